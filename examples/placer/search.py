"""A search: runs of nodes are moved to a device drawn at random of those that the strategy uses, and stay where that makes the step shorter.

belfry place NET --problem --devices cpu:0,cpu:1 --strategy layers -o problem.json
python3 search.py problem.json 2000 belfry forecast NET --jsonl --devices cpu:0,cpu:1 --strategy layers > found.json"""

import json
import random
import re
import subprocess
import sys

problem = json.load(open(sys.argv[1], encoding="utf-8"))
devices = list(next(n["seconds"] for n in problem["nodes"] if "seconds" in n))
used = {kind + str(k) for n in problem["nodes"] for kind, low, high in re.findall(r"([^,]*:)(\d+)-?(\d*)", n["assigned"]) for k in range(int(low), int(high or low) + 1)}
numbers = [k for k, d in enumerate(devices) if d in used]
scorer = subprocess.Popen(sys.argv[3:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
best, least = [devices.index(n.get("pin", devices[numbers[0]])) for n in problem["nodes"]], None
for _ in range(int(sys.argv[2])):
    first, moved = random.randrange(len(best)), random.choice(numbers)
    past = first + random.randint(1, 20)
    drawn = best if least is None else [moved if first <= k < past and "pin" not in n else best[k] for k, n in enumerate(problem["nodes"])]
    print(json.dumps(drawn), file=scorer.stdin, flush=True)
    score = json.loads(scorer.stdout.readline()).get("step_seconds", float("inf"))
    if least is None or score < least:
        best, least = drawn, score
rules = [{"match": n["name"], "device": devices[d], "reason": f"a search says {least} s"} for n, d in zip(problem["nodes"], best)] + [{"match": "**", "device": devices[numbers[0]], "reason": "the rest"}]
json.dump({"belfry": 1, **{key: problem[key] for key in ("towers", "batch", "combine", "threads", "order")}, "placement": rules}, sys.stdout, indent=1)
