"""A placer: the net in order, cut into a part for each device so that the one that is busiest has the least to do. Devices may be unequal: each part's
time is that on its own device. Gradients and updates follow their nodes.

belfry place NET --problem --devices cpu:0,cpu:1 -o problem.json && python3 by_time.py problem.json > cut.json
belfry place NET --placement cut.json -o plan.json"""

import json
import sys

problem = json.load(open(sys.argv[1], encoding="utf-8"))
timed = [n for n in problem["nodes"] if "seconds" in n and "of" not in n]
devices = list(timed[0]["seconds"])


def parts(limit):
    """Device after device is filled up to the limit; None where the last one is full before the end."""
    place, at, spent = {}, 0, 0
    for n in timed:
        if "pin" in n:
            place[n["name"]] = n["pin"]
            continue
        while at < len(devices) and spent + n["seconds"][devices[at]] > limit:
            at, spent = at + 1, 0
        if at == len(devices):
            return None
        place[n["name"]] = devices[at]
        spent += n["seconds"][devices[at]]
    return place


low, high = 0, sum(n["seconds"][devices[0]] for n in timed)  # all on the first
for _ in range(60):
    middle = (low + high) / 2
    low, high = (low, middle) if parts(middle) else (middle, high)
place = parts(high * 1.000001)
for source, reader, _ in problem["edges"]:  # a variable lies where it is read first
    if source not in place and reader in place:
        place[source] = place[reader]
rules = [{"match": name, "device": device, "reason": "its share of the time"} for name, device in place.items()]
rules += [{"match": "**", "device": devices[0], "reason": "the rest"}]
json.dump({"belfry": 1, **{key: problem[key] for key in ("towers", "threads", "batch", "combine", "order")}, "placement": rules}, sys.stdout, indent=1)
