"""A placer: the net in order, cut where each device has its share of the time. Gradients and updates follow their nodes.

belfry place NET --problem --devices cpu:0,cpu:1 -o problem.json && python3 by_time.py problem.json > cut.json
belfry place NET --placement cut.json -o plan.json"""

import json
import sys

problem = json.load(open(sys.argv[1], encoding="utf-8"))
timed = [n for n in problem["nodes"] if "seconds" in n and "of" not in n]
devices = [d for d in timed[0]["seconds"]]
whole, spent, place = sum(min(n["seconds"].values()) for n in timed), 0, {}
for n in timed:
    place[n["name"]] = n.get("pin") or devices[min(int(len(devices) * spent / whole), len(devices) - 1)]
    spent += min(n["seconds"].values())
for source, reader, _ in problem["edges"]:  # a variable lies where it is read first
    if source not in place and reader in place:
        place[source] = place[reader]
rules = [{"match": name, "device": device, "reason": "its share of the time"} for name, device in place.items()]
rules += [{"match": "**", "device": devices[0], "reason": "the rest"}]
json.dump({"belfry": 1, **{key: problem[key] for key in ("towers", "threads", "batch", "combine", "order")}, "placement": rules}, sys.stdout, indent=1)
