"""Pictures, pages and timelines from outside: well-formed, of the same text again, refused where they cannot be. Argument: the program."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

program = str(pathlib.Path(sys.argv[1]).resolve())
objections = []


def expect(condition, text):
    if not condition:
        objections.append(text)


with tempfile.TemporaryDirectory() as folder:
    def here(*arguments):
        return subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, encoding="utf-8", stdin=subprocess.DEVNULL)

    def text(name):
        return pathlib.Path(folder, name).read_text(encoding="utf-8")

    def refused(status, words, *arguments):
        done = here(*arguments)
        expect(done.returncode == status and not done.stdout and all(w in done.stderr for w in words), f"{arguments}: {done}")

    here("place", "mnist_cnn", "-o", "two.json", "--devices", "cpu:0,cpu:1", "--batch", "16", "-O", "variables=cpu:0")
    here("place", "two.json", "-o", "moved.json", "--move", "tower_1/dense/**=cpu:0")
    here("place", "mobilenet_v2:alpha=0.35,image=96", "-o", "four.json", "--devices", "sim:0-3", "--batch", "8")
    here("place", "transformer:blocks=20", "-o", "wide.json", "--devices", "sim:0-21", "--strategy", "layers", "--batch", "8")
    for source, nodes in (("two.json", "conv2d/relu"), ("four.json", "block_1"), ("wide.json", "sim:21"), ("mlp", "dense")):
        done = here("show", source, "--svg", "p.svg", "--html", "p.html")
        expect(done.returncode == 0 and not done.stdout and "wrote p.svg" in done.stderr, f"show {source}: {done}")
        svg, page = text("p.svg"), text("p.html")
        root = xml.etree.ElementTree.fromstring(svg)
        expect(root.tag == "{http://www.w3.org/2000/svg}svg" and nodes in svg, f"the svg of {source}")
        inner = re.search(r"<svg.*?</svg>", page, re.S).group(0)
        xml.etree.ElementTree.fromstring(inner)
        data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S).group(1))
        count = len(data["nodes"])
        expect(count > 20 and all(0 <= k < count for n in data["nodes"] for k in n[15]) and all(0 <= k < count for box in data["boxes"] for k in box), f"the nodes of {source}'s page")
        for width, height, inside in data["inside"].values():
            xml.etree.ElementTree.fromstring(inside)
        expect(("four" in source) == bool(data["inside"]), f"{source}: layers that open: {len(data['inside'])}")
        if source.endswith("json"):
            expect(data["streams"] and all(len(cells) % 5 == 0 for name, cells in data["streams"]), f"the streams of {source}'s page")
        here("show", source, "--svg", "q.svg", "--html", "q.html")
        expect(text("q.svg") == svg and text("q.html") == page, f"{source} is drawn differently the second time")
    expect(not list(pathlib.Path(folder).glob("*partial*")), "unfinished files are left")

    # What moved.
    done = here("show", "moved.json", "--svg", "m.svg", "--beside", "two.json")
    moved = text("m.svg").count('class="halo"')
    decisions = len([line for line in here("diff", "two.json", "moved.json").stdout.splitlines() if line.startswith("decision: '")])
    expect(decisions > 0 and moved == decisions, f"{moved} boxes are outlined, {decisions} nodes moved")

    # 80 columns, of a forecast and of a run.
    done = here("show", "two.json", "--timeline")
    expect(done.returncode == 0 and all(len(line) <= 80 for line in done.stdout.splitlines()), f"--timeline: {done}")
    expect(re.search("[FB]", "".join(done.stdout.splitlines()[2:6])), f"no critical path in {done.stdout}")
    header = {"image": {"dtype": "F32", "shape": [16, 28, 28, 1], "data_offsets": [0, 50176]}, "label": {"dtype": "I32", "shape": [16], "data_offsets": [50176, 50240]}}
    head = json.dumps(header).encode()
    pathlib.Path(folder, "feed.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + bytes(50240))
    done = here("run", "two.json", "--feed", "feed.safetensors", "--steps", "1", "--trace", "t.json")
    expect(done.returncode == 0, f"run --trace: {done}")
    done = here("show", "two.json", "--timeline", "--trace", "t.json")
    lines = done.stdout.splitlines()
    expect(done.returncode == 0 and all(len(line) <= 80 for line in lines) and sum(line.endswith(" %") for line in lines) == 4, f"--timeline --trace: {done}")
    step, forecast = (json.loads(here("show", "two.json", "--timeline", "--json", *more).stdout) for more in (["--trace", "t.json"], []))
    expect(step["seconds"] == max(l["end"] for l in step["launches"]) != forecast["seconds"] and [l["launch"] for l in step["launches"]] == [l["launch"] for l in forecast["launches"]], f"--timeline --trace --json: {step['seconds']}")
    expect(re.search("[FBAU]", "".join(lines[2:6])), f"no critical path in {lines}")  # of a step in which the machine stalls it may begin late
    refused(1, ["another plan"], "show", "moved.json", "--timeline", "--trace", "t.json")

    refused(1, ["nowhere/p.svg"], "show", "two.json", "--svg", "nowhere/p.svg")
    refused(1, ["nowhere/p.html"], "show", "mlp", "--html", "nowhere/p.html")
    refused(1, ["mlp is no plan"], "show", "mlp", "--timeline")
    refused(2, ["--beside"], "show", "two.json", "--beside", "moved.json")
    refused(2, ["--trace"], "show", "two.json", "--svg", "p.svg", "--trace", "t.json")
    refused(2, ["--calibration"], "show", "two.json", "--calibration", "t.json")

for line in objections:
    print(line)
print(f"{len(objections)} objections")
sys.exit(bool(objections))
