"""A placer: the net in order, cut into a part for each device that the strategy computes on, so that the one that is busiest has the least to do. Devices may
be unequal: each part's time is that on its own device. Gradients, slots and updates go with what they are of, all else with its first reader or maker.

belfry place NET --problem --devices cpu:0,cpu:1 -o problem.json && python3 by_time.py problem.json > cut.json
belfry place NET --placement cut.json -o plan.json"""

import json
import re
import sys

problem = json.load(open(sys.argv[1], encoding="utf-8"))
nodes, edges = problem["nodes"], problem["edges"]
timed = [n for n in nodes if "seconds" in n and "of" not in n]
used = {kind + str(k) for n in timed for kind, low, high in re.findall(r"([^,]*:)(\d+)-?(\d*)", n["assigned"]) for k in range(int(low), int(high or low) + 1)}
devices = [d for d in timed[0]["seconds"] if d in used]
near = {n["name"]: ["tower_*/" + n["of"], n["of"]] if "of" in n else [] for n in nodes}
for name, other in [(maker, reader) for maker, reader, _ in edges] + [(reader, maker) for maker, reader, _ in edges]:
    near[name].append(other)
home = {n["name"]: n["name"] for n in timed}
while found := {name: home[known[0]] for name in near if name not in home and (known := [k for k in near[name] if k in home])}:
    home.update(found)
costs = {n["name"]: dict.fromkeys(devices, 0) for n in timed}
for n in nodes:
    for d in devices:
        costs[home.get(n["name"], timed[0]["name"])][d] += n.get("seconds", {d: 0})[d]


def parts(limit):
    """Device after device is filled up to the limit; None where the last one is full before the end."""
    place, at, spent = {}, 0, 0
    for name, seconds in costs.items():
        while at < len(devices) and spent + seconds[devices[at]] > limit:
            at, spent = at + 1, 0
        if at == len(devices):
            return None
        place[name], spent = devices[at], spent + seconds[devices[at]]
    return place


low, high = 0, sum(seconds[devices[0]] for seconds in costs.values())  # all on the first
for _ in range(60):
    middle = (low + high) / 2
    low, high = (low, middle) if parts(middle) else (middle, high)
place = parts(high * 1.000001)
rules = [{"match": n["name"], "device": n.get("pin") or place[home[n["name"]]], "reason": "its share of the time"} for n in nodes if "pin" in n or n["name"] in home]
rules += [{"match": "**", "device": devices[0], "reason": "the rest"}]
json.dump({"belfry": 1, **{key: problem[key] for key in ("towers", "threads", "batch", "combine", "order")}, "placement": rules}, sys.stdout, indent=1)
