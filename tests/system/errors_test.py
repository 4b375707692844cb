"""Wrong input, of every verb and file format: an exit code, and one clear message with the place, the value and a way out; nothing is silent, nothing crashes.
Arguments: the program, the source tree."""

import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

program, root = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2]).resolve()
objections, tried = [], 0
cluster = str(root / "clusters" / "p100x8.json")


def write_tensors(path, **tensors):
    """name = (dtype, shape, bytes)"""
    header, data = {}, b""
    for key, (dtype, shape, content) in tensors.items():
        header[key] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    head = json.dumps(header).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + data)


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)

    def here(*arguments, **options):
        return subprocess.run([program, *arguments], cwd=folder, text=True, capture_output=True, **({"stdin": subprocess.DEVNULL} | options))

    def check(code, words, *arguments, **options):
        """Words without a code are said beside the work, which is done."""
        global tried
        tried += 1
        done = here(*arguments, **options)
        last = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else ""
        clear = all(w in done.stderr for w in words) and "bug in Belfry" not in done.stderr and (code == 0 or len(last) > 20)
        if done.returncode != code or not clear:
            objections.append(f"{' '.join(arguments)}: should end with {code} and say {words}: {done.returncode} {done.stderr[-400:]}")
        return done

    pixels, label = struct.pack("<6272f", *[0.5] * 6272), struct.pack("<8i", *range(8))
    image = ("F32", [8, 28, 28, 1], pixels)
    write_tensors(folder / "feed.safetensors", image=image, label=("I32", [8], label))
    write_tensors(folder / "more.safetensors", image=image, label=("I32", [8], label), labels=("I32", [8], label))
    write_tensors(folder / "less.safetensors", label=("I32", [8], label))
    (folder / "cut.safetensors").write_bytes((folder / "feed.safetensors").read_bytes()[:300])
    (folder / "folder").mkdir()
    for arguments in (["convert", "mlp", "-o", "mlp.json"], ["place", "mlp", "-o", "mlp_plan.json", "--batch", "8"], ["place", "mnist_cnn", "-o", "cnn_plan.json", "--batch", "8"]):
        here(*arguments)

    def edited(path, source, *changes):
        """A JSON file with other values at some places; None takes the key out."""
        whole = json.loads((folder / source).read_text(encoding="utf-8"))
        for place, value in changes:
            at = whole
            for key in place[:-1]:
                at = at[key]
            if value is None:
                del at[place[-1]]
            else:
                at[place[-1]] = value
        (folder / path).write_text(json.dumps(whole, indent=1), encoding="utf-8")

    # Devices: those of a cluster are its file's, and CPUs count from 0.
    for verb in ("place", "forecast"):
        for devices in ("gpu:9", "gpu:0,gpu:9"):
            check(1, [f"{cluster}: the cluster has no device gpu:9; it has gpu:0-7,cpu:0", "name some of these", "leave --cluster out"], verb, "mlp", "--cluster", cluster, "--devices", devices)
    check(1, ["has no device gpu:8; it has gpu:0-7"], "forecast", "mlp", "--cluster", cluster, "--devices", "gpu:0-1", "-O", "variables=gpu:8")
    check(1, ["device cpu:9999 is not here", "number them from cpu:0 on", "sim:0"], "place", "mlp", "--devices", "cpu:9999")
    check(1, ["device cpu:9999 is not here"], "place", "mlp", "--devices", "cpu:0-1", "-O", "variables=cpu:9999")
    check(2, ["--devices", "names no device"], "place", "mlp", "--devices", "")
    edited("asks.json", "mlp.json", (["nodes", 0, "device"], "cpu:1"))
    check(1, ["[reshape] 'reshape' is requested on cpu:1, which is not among the devices of this plan: cpu:0", "request one of these", "--devices", "--soft-placement"], "place", "asks.json")

    # What the command line alone shows is wrong use.
    check(2, ["--hold-out: 'nan' is no number from 0.001 to 0.999"], "train", "mlp", "--data", ".", "--hold-out", "nan")
    check(2, ["--memory-fraction: 'nan' is no number from 0.01 to 1"], "place", "mlp", "--memory-fraction", "nan")
    for verb in ("place", "forecast"):
        check(2, ["--memory-fraction does nothing here: no device is a GPU"], verb, "mlp", "--devices", "sim:0", "--memory-fraction", "0.5")
    check(2, ["--memory-fraction does nothing here: h100x8 says itself how much memory its devices have", "leave --memory-fraction out"], "place", "mlp", "--cluster", "h100x8", "--memory-fraction", "0.5")
    check(2, ["there is no op 'cnv2d'; did you mean conv2d?"], "show", "--ops", "cnv2d")
    check(2, ["there is no data set 'mnits'; did you mean mnist?"], "data", "fetch", "mnits")
    check(2, ["the net 'mnist_cnn' has no settings, so no 'foo'"], "show", "mnist_cnn:foo=1")
    check(2, ["classes = 99999999999 is no whole number"], "show", "mobilenet_v2:classes=99999999999")
    check(2, ["-o=plan.json: an option of one letter has its value behind a space: -o plan.json"], "place", "mlp", "-o=plan.json")
    check(2, ["--towers is given 2 times; give it once"], "place", "mlp", "--towers", "2", "--towers", "4")
    check(2, ["'h100x9' is neither a file nor one of the clusters", "did you mean h100x8"], "place", "mlp", "--cluster", "h100x9")
    check(2, ["o.txt: '.txt' is the ending of no format", "name a file that ends in .safetensors"], "run", "mlp", "--feed", "feed.safetensors", "--out", "o.txt")
    for arguments in (["train", "-h", "--data", "nosuch"], ["train", "nosuch", "--batch", "none", "--help"], ["data", "fetch", "-h"]):
        done = here(*arguments)
        verb = " ".join(["belfry", *(a for a in arguments[:2] if a in ("train", "data", "fetch"))])
        expect_help = done.returncode == 0 and f"Usage: {verb} " in done.stdout and not done.stderr
        objections.extend([] if expect_help else [f"{' '.join(arguments)}: {done.returncode} {done.stdout[:100]} {done.stderr[:200]}"])
        tried += 1

    # Tensors, data and files of other shapes and kinds than are meant.
    write_tensors(folder / "wide.safetensors", image=("F32", [8, 28, 14, 2], pixels), label=("I32", [8], label))
    write_tensors(folder / "first.safetensors", image=("F32", [8, 1, 28, 28], pixels), label=("I32", [8], label))
    for verb in ("run", "predict"):
        check(1, ["wide.safetensors: 'image' is f32(8, 28, 14, 2), but the input is f32(batch, 28, 28, 1)", "resize the pictures"], verb, "mlp", "--feed", "wide.safetensors")
    check(1, ["first.safetensors: 'image' is f32(8, 1, 28, 28)", "channels come last, as transpose(0, 2, 3, 1)"], "run", "mlp", "--feed", "first.safetensors")
    (folder / "words.txt").write_text("words " * 4000, encoding="utf-8")
    check(1, ["words.txt: is a file, and text is read from the *.txt of a folder"], "train", "transformer", "--data", "words.txt")
    check(1, ["mlp.json", "is of a graph or plan, and a cluster is wanted here"], "place", "mlp", "--cluster", "mlp.json")
    (folder / "rules.json").write_text('{"belfry": 1, "placment": []}', encoding="utf-8")
    check(1, ['rules.json:1: lacks the key "placement"; is "placment" meant for it?'], "place", "mlp", "--placement", "rules.json")
    check(1, ["mlp_plan.json", "is of a graph or plan, and a placement file is wanted here"], "place", "mlp", "--placement", "mlp_plan.json")
    edited("no_plan.json", "mlp_plan.json", (["plan"], None))
    check(1, ["the file is of format 2; this program reads format 1 of graphs", 'plans, which are of format 2, have a key "plan"'], "show", "no_plan.json")
    here("place", "mlp", "-o", "two_plan.json", "--towers", "2", "--batch", "8")
    placed = json.loads((folder / "two_plan.json").read_text(encoding="utf-8"))["nodes"]
    one = next(k for k, node in enumerate(placed) if node["op"] == "matmul")
    edited("text.json", "two_plan.json", (["nodes", one, "assigned"], "cpu:0"))
    check(1, ['must be an object of towers and their devices, as {"0": "cpu:0", "1-3": "cpu:1"}'], "place", "text.json")

    # Values of options: the strategy, the value, and ways out.
    check(2, ["[towers] -O variables=spraed: it is a device (cpu:0), spread or chosen", "did you mean spread?"], "place", "mlp", "--devices", "sim:0-1", "--strategy", "towers", "-O", "variables=spraed")
    for strategy in ("pipeline", "hybrid"):
        check(2, [f"[{strategy}] -O order=zigzag: it is one of 1f1b, gpipe, interleaved"], "place", "mlp", "--devices", "sim:0-3", "--strategy", strategy, "-O", "order=zigzag")
        check(2, [f"[{strategy}] -O chunks=0: no whole number from 1 to 1024", "leave the option out for 1"], "place", "mlp", "--devices", "sim:0-3", "--strategy", strategy, "-O", "chunks=0")
    for verb in ("place", "forecast"):
        check(2, ["[towers] -O towers=0: no whole number from 1 to 65536", "leave the option out"], verb, "mlp", "--devices", "sim:0-1", "-O", "towers=0")
        check(2, ["-O: 'towers' is not of the form KEY=VALUE"], verb, "mlp", "-O", "towers")
        check(2, ["there is no strategy 'tower'", "did you mean towers?"], verb, "mlp", "--strategy", "tower")
        check(2, ["--move: 'dense' is not of the form"], verb, "mlp", "--move", "dense")
        check(2, ["--move: 'cpu' is no device"], verb, "mlp", "--move", "dense/**=cpu")
        for devices, words in (("sim:5-2", "goes backwards; write sim:2-5"), ("sim:0,", "comma"), ("sim:0,sim:0", "named twice"), ("cpu", "is no device")):
            check(2, ["--devices: '" + devices + "'", words], verb, "mlp", "--devices", devices)
    check(2, ["--devices: 'sim:5-2'", "write sim:2-5"], "bench", "mlp", "--devices", "sim:5-2")
    check(2, ["[parameter_server] -O backup=5: 5 of 4 workers cannot be backup workers", "give -O backup=3 or less", "--devices, --towers"], "place", "mlp", "--devices", "sim:0-3", "--strategy", "parameter_server", "-O", "backup=5")
    check(1, ["'tower_7/**' speaks of tower 7, but there are 2", "from 0 to 1", "--towers 8"], "place", "mlp", "--devices", "sim:0-1", "--move", "tower_7/**=sim:1")
    check(0, ["single takes sim:0 alone, and leaves sim:1 idle", "--strategy towers"], "place", "mlp", "--devices", "sim:0-1", "--strategy", "single", "-o", "one.json")
    check(0, ["--devices cpu:0-3"], "forecast", "mlp", "--cluster", "laptop8", "--strategy", "auto")

    # Options of strategies: which there are, and none twice.
    check(2, ["[towers] -O varables=cpu:0: the strategy has no option 'varables'; it has variables, towers, combine, threads, reduction; did you mean variables?"], "place", "mlp", "--strategy", "towers", "-O", "varables=cpu:0")
    check(2, ["[single] -O zz=1: the strategy has no option 'zz'; it has towers, combine, threads"], "place", "mlp", "-O", "zz=1")
    check(2, ["the option combine is given twice"], "place", "mlp", "-O", "combine=tower_sum", "-O", "combine=tower_mean")
    check(2, ["--towers 4 and -O towers=2 say one thing twice"], "place", "mlp", "--towers", "4", "-O", "towers=2")

    # A file is another one's kind, empty, cut short, or holds what cannot be.
    (folder / "bare.json").write_text('{"belfry": 1}', encoding="utf-8")
    check(1, ["bare.json: the graph is empty", "belfry convert"], "place", "bare.json")
    (folder / "short.json").write_text((folder / "mlp.json").read_text(encoding="utf-8")[:300], encoding="utf-8")
    check(1, ["short.json:", "syntax error"], "show", "short.json")
    edited("op.json", "mlp.json", (["nodes", 0, "op"], "rehsape"))
    check(1, ["op.json:", "/nodes/0/op: there is no op 'rehsape'; did you mean reshape?", "belfry show --ops"], "place", "op.json")
    edited("zero.json", "mlp.json", (["variables", 0, "init"], {"kind": "normal"}))
    check(1, ["zero.json:", "/variables/0", "init 'normal' without its deviation draws zeros alone", "or init zeros"], "place", "zero.json")
    for place in ("combine", "order"):
        edited("plan.json", "mlp_plan.json", (["plan", place], -1))
        if check(1, [f"/plan/{place}: must be a text, not the integer -1"], "run", "plan.json").stderr.count("plan.json:") != 1:
            objections.append(f"/plan/{place}: the message names its place twice")
    (folder / "rules.json").write_text('{"belfry": 1, "recompute": ["zz"], "placement": [{"match": "**", "device": "cpu:0"}]}', encoding="utf-8")
    check(1, ["'zz' is to be computed again", "name one that is there", '"recompute"'], "place", "mlp", "--placement", "rules.json")
    machine = json.loads(pathlib.Path(cluster).read_text(encoding="utf-8"))
    machine["devices"][0]["efficiency"] = 1.5
    (folder / "machine.json").write_text(json.dumps(machine), encoding="utf-8")
    check(1, ["/devices/0/efficiency: is 1.5; it must be a number from 0 to 1"], "forecast", "mlp", "--cluster", "machine.json")
    if check(1, ["--state", "cut.safetensors", "do not lie in"], "run", "mnist_cnn", "--feed", "feed.safetensors", "--state", "cut.safetensors").stderr.count("cut.safetensors") != 1:
        objections.append("--state: the message names its file twice")

    # What does not fit says what would, in GiB too; a run by another machine's file says whose threads these are.
    tight = {"belfry": 1, "cores": 1, "host_memory": [1 << 42], "devices": [{"devices": "cpu:0", "memory": 1 << 30, "flops": 1e11, "bandwidth": 1e10, "launch": 1e-6, "efficiency": 0.5}]}
    (folder / "tight.json").write_text(json.dumps(tight), encoding="utf-8")
    for verb in ("forecast", "place"):
        done = here(verb, "mlp", "--cluster", "tight.json", "--batch", "2097152")
        told = done.stdout + done.stderr
        if done.returncode != 1 or not re.search(r"cpu:0 needs \d+ bytes \(\d+\.\d\d GiB\), but has 1073741824 \(1\.00 GiB\)", told) or "most is held on cpu:0: " not in told or " fits: " not in told or "--batch" not in told:
            objections.append(f"{verb} of what does not fit: {told[-600:]}")
    (folder / "other.json").write_text(json.dumps({**tight, "cores": (os.cpu_count() or 1) + 1}), encoding="utf-8")
    check(0, ["--cluster other.json: a machine of", "belfry forecast and place"], "run", "mnist_cnn", "--feed", "feed.safetensors", "--cluster", "other.json", "--threads-per-tower", "1")

    # Plans of unlike graphs.
    unlike = ["are plans of unlike graphs: the variable 'dense/bias' is f32(10) in the first and f32(512) in the second", "more"]
    check(1, [*unlike, "place both of one graph", "belfry diff"], "compare", "cnn_plan.json", "mlp_plan.json", "--feed", "feed.safetensors")
    check(0, [*unlike, "nodes of one name alone"], "diff", "cnn_plan.json", "mlp_plan.json")
    check(0, unlike, "show", "mlp_plan.json", "--beside", "cnn_plan.json", "--svg", "beside.svg")
    if here("diff", "mlp_plan.json", "mlp_plan.json").stderr:
        objections.append("diff of a plan with itself speaks of its graph")
    small = {"belfry": 1, "name": "small", "inputs": [{"name": "x", "dtype": "f32", "shape": [2]}], "nodes": [{"name": "y", "op": "tanh", "inputs": ["x"]}], "outputs": ["y"]}
    (folder / "small.json").write_text(json.dumps(small), encoding="utf-8")
    here("place", "small.json", "-o", "small_plan.json")
    check(1, ["no node in common", "two plans of one graph", "belfry show"], "diff", "small_plan.json", "mlp_plan.json")
    check(1, ["mlp.json is no plan, and diff reads two", "belfry place"], "diff", "mlp_plan.json", "mlp.json")

    # Feeds and fetches.
    check(0, ["more.safetensors: the graph has no input 'labels'", "its inputs are image, label"], "run", "mnist_cnn", "--feed", "more.safetensors")
    check(1, ["no feed for the input 'image' f32(batch, 28, 28, 1); there are feeds for label"], "run", "mnist_cnn", "--feed", "less.safetensors")
    check(1, ["no feed for the input 'image'", "nothing is fed"], "run", "mnist_cnn")
    check(1, ["no value 'zz' to fetch", "losses loss, the metrics accuracy", "belfry show lists all"], "run", "mnist_cnn", "--feed", "feed.safetensors", "--fetch", "zz")

    # Where the result cannot be written is said before the work.
    for option in ("--out", "--save-state", "--trace"):
        for path, words in (("folder", "is a folder; name a file"), ("none/file", "there is no folder 'none'; make it first")):
            if check(1, [path, words], "run", "mnist_cnn", "--feed", "feed.safetensors", option, path).stdout:
                objections.append(f"{option} {path} is refused when all is done")
    check(1, ["is a folder"], "place", "mlp", "-o", "folder")
    # Training by loops has two plans: they lie beside a file, and beside nothing else.
    os.mkfifo(folder / "pipe")
    loops = ["--strategy", "parameter_server", "--devices", "sim:0-1", "-O", "staleness=1"]
    before = set(os.listdir("/dev")), set(os.listdir(folder))
    for out in ("/dev/null", "/dev/stdout", "pipe"):
        done = check(1, [f"-o {out}: ", "two plans", "name a file, as in -o plan.json, which writes plan.worker.json and plan.server.json"], "place", "mlp", "-o", out, *loops)
        if done.stdout:
            objections.append(f"place of loops into {out} wrote {done.stdout[:100]}")
    (folder / "taken.server.json").mkdir()
    check(1, ["taken.server.json: is a folder"], "place", "mlp", "-o", "taken.json", *loops)
    (folder / "taken.server.json").rmdir()
    if left := [name for name in (*set(os.listdir("/dev")) - before[0], *set(os.listdir(folder)) - before[1]) if name.endswith(".json")]:
        objections.append(f"place of loops that is refused leaves {left}")
    check(0, ["wrote loops.worker.json", "wrote loops.server.json"], "place", "mlp", "-o", "loops.json", *loops)
    # What is read is not written over.
    here("run", "mlp", "--feed", "feed.safetensors", "--save-state", "w.safetensors")
    kept = {name: (folder / name).read_bytes() for name in ("mlp.json", "mlp_plan.json", "feed.safetensors", "w.safetensors")}
    fed = ["run", "mlp.json", "--feed", "feed.safetensors", "--state", "w.safetensors"]
    for arguments in ([*fed, "--trace", "mlp.json"], [*fed, "--trace", "feed.safetensors"], [*fed, "--trace", "w.safetensors"], [*fed, "--out", "w.safetensors"], [*fed, "--save-state", "mlp.json"],
                      ["show", "mlp.json", "--dot", "mlp.json"], ["show", "mlp_plan.json", "--svg", "./mlp_plan.json"], ["show", "cnn_plan.json", "--html", "mlp_plan.json", "--beside", "mlp_plan.json"],
                      ["bench", "mlp.json", "--rounds", "1", "--calibrate", "-o", "mlp.json"]):
        check(1, [arguments[-1] if arguments[0] != "show" else ".json", "is a file that is read here, and would be lost; name another"], *arguments)
    if any((folder / name).read_bytes() != data for name, data in kept.items()):
        objections.append("a file that is read was written over")
    check(1, ["there is no folder 'none'"], "bench", "mlp", "--calibrate", "-o", "none/here.json")
    check(2, ["data wants one of fetch, inspect and digits"], "data")

    # What graphs are made of is listed on machines without GPUs too.
    check(2, ["there is no op 'zz'", "belfry show --ops"], "show", "--ops", "zz")
    check(0, [], "show", "--ops", "conv2d")

    # The same placement has the same figures as a line of --jsonl and as a plan's file, in whatever order its rules name the devices.
    placement = {"belfry": 1, "towers": 2, "batch": 8, "threads": 1, "placement": [{"match": "tower_0/dense_1/**", "device": "sim:1"}, {"match": "tower_0/**", "device": "sim:2"}, {"match": "**", "device": "sim:0"}]}
    (folder / "three.json").write_text(json.dumps(placement), encoding="utf-8")
    (folder / "shared.json").write_text(json.dumps({"belfry": 1, "placement": [{"match": "**", "device": ["cpu:0", "sim:0"]}]}), encoding="utf-8")
    devices = ["--devices", "sim:2,sim:0,sim:1"]
    line = json.loads(here("forecast", "mlp", "--jsonl", "--batch", "8", *devices, "--strategy", "layers", stdin=None, input=json.dumps(placement) + "\n").stdout)
    figures = json.loads(here("forecast", "mlp", "--placement", "three.json", "--json", *devices).stdout)
    if line != {"step_seconds": figures["seconds"], "peak": {d["device"]: d["bytes"] for d in figures["devices"]}} or list(line["peak"])[:3] != ["sim:2", "sim:0", "sim:1"]:
        objections.append(f"a placement's score is not its plan's: {line} {figures['seconds']} {figures['devices']}")
    sorted_devices = json.loads(here("forecast", "mlp", "--placement", "three.json", "--json").stdout)["devices"]
    if [d["device"] for d in sorted_devices] != ["sim:0", "sim:1", "sim:2", "cpu:0"]:
        objections.append(f"the devices of a placement's rules: {sorted_devices}")
    check(1, ["--devices sim:2,sim:0: the placement's rules are on sim:0-2; name 3 devices in place of these, in their order, as sim:0-2"], "place", "mlp", "--placement", "three.json", "--devices", "sim:2,sim:0")
    check(1, ["cpu:0 has a part of its own in the plan, beside sim:0"], "place", "mlp", "--placement", "shared.json", "--devices", "cpu:0")

print("\n".join(objections) if objections else f"{tried} wrong inputs are told")
sys.exit(1 if objections else 0)
