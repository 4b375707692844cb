"""What belfry says of GPUs: those of a fake driver, and by name what is missing. Arguments: the program, the fake driver's file or nothing."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

program = str(pathlib.Path(sys.argv[1]).resolve())
fake = str(pathlib.Path(sys.argv[2]).resolve()) if len(sys.argv) > 2 and sys.argv[2] else ""
loader = "/lib64/ld-linux-x86-64.so.2"
objections = []


def belfry(*arguments, cache=True, cwd=None, input="", **variables):
    """Variables without a value are unset. Without its cache the loader finds by bare name only what lies in the system's folders."""
    environment = {k: v for k, v in os.environ.items() if k not in ("CUDA_VISIBLE_DEVICES", "BELFRY_CUDA_BACKEND", "BELFRY_CUDA_PATH")}
    environment.update(variables)
    start = [program] if cache else [loader, "--inhibit-cache", program]
    return subprocess.run(start + list(arguments), capture_output=True, text=True, input=input, cwd=cwd, env=environment)


def expect(condition, text):
    if not condition:
        objections.append(text)


def missing(words, what, **variables):
    """`devices` names what is missing with all words, as text and for machines, and still tells of the rest."""
    for cache in (True, False) if os.path.exists(loader) else (True,):
        done = belfry("devices", cache=cache, **variables)
        line = next((l for l in done.stdout.splitlines() if l.startswith(f"missing  {what}: ")), "")
        expect(done.returncode == 0 and done.stdout.startswith("cpu:0") and all(w in line for w in words), f"{variables}, cache {cache}: {done}")
    facts = json.loads(belfry("devices", "--json", **variables).stdout)
    found = next((m for m in facts["missing"] if m["what"] == what), {})
    expect(found and found["why"] and found["way_out"] and all(w in found["why"] + "; " + found["way_out"] for w in words), f"{variables}: {facts}")


graph = {"belfry": 1, "name": "small", "inputs": [{"name": "x", "dtype": "f32", "shape": [2]}], "nodes": [{"name": "y", "op": "tanh", "inputs": ["x"]}, {"name": "z", "op": "softmax", "inputs": ["y"]}], "outputs": ["z"]}


def write_feed(folder):
    header = json.dumps({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    pathlib.Path(folder, "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))


def refused(words, placed=True, absent="gpu:0-1", known=False, **variables):
    """Running a plan that names GPUs is refused with the reason and the offer, which leads to a run; placing on them, where there is no backend. `known`: place says the reason."""
    words = ["gpu:0 cannot be used", *words]
    offer = ["sim:0-1 can stand in for gpu:0-1", "belfry place PLAN --devices sim:0-1 -o NEW", "--devices sim:0-1 beside it"]
    with tempfile.TemporaryDirectory() as folder:
        def here(*arguments):
            return belfry(*arguments, cwd=folder, **variables)

        pathlib.Path(folder, "small.json").write_text(json.dumps(graph), encoding="utf-8")
        write_feed(folder)
        on = ("--strategy", "layers", "--move", "z=LAST")
        done = here("place", "small.json", "-o", "sim.json", "--devices", "sim:0-1", *(w.replace("LAST", "sim:1") for w in on))
        expect(done.returncode == 0, f"place on sim:0-1: {done}")
        done = here("place", "small.json", "-o", "gpu.json", "--devices", "gpu:0-1", *(w.replace("LAST", "gpu:1") for w in on))
        if placed:
            expect(done.returncode == 0 and done.stderr.count(f"{absent}: not here") == (absent != "") and ("--cluster F gives the machine" in done.stderr) == (absent != ""), f"place on GPUs, {variables}: {done}")
            told = next((l for l in done.stderr.splitlines() if l.startswith("this plan cannot run here: ")), "")
            expect(bool(told) == known and all(w in told for w in (*words[1:], "--devices sim:0-1 beside it") if known), f"what place says of the GPUs here, {variables}: {done}")
        else:
            expect(done.returncode == 1 and all(w in done.stderr for w in [*words, "name them where gpu:0-1 is named"]), f"place on GPUs, {variables}: {done}")
            plan = pathlib.Path(folder, "sim.json").read_text(encoding="utf-8").replace("sim:", "gpu:").replace('"threads": [0]}', '"threads": [1, 2, 0]}')
            pathlib.Path(folder, "gpu.json").write_text(re.sub(r'"kernel": "(?!feed|copy|fetch)(\w+)"', lambda k: f'"kernel": "nvrtc_{"softmax" if "softmax" in k[1] else "elementwise"}"', plan), encoding="utf-8")
        done = here("forecast", "small.json", "--devices", "gpu:0", "--json")
        expect(done.returncode == 0 and json.loads(done.stdout)["seconds"] > 0 and done.stderr.count("gpu:0: not here") == (absent != ""), f"forecast on gpu:0, {variables}: {done}")
        done = here("forecast", "small.json", "--devices", "gpu:0", "--cluster", "p100x8", "--json")
        expect(done.returncode == 0 and "not here" not in done.stderr, f"forecast of a cluster, {variables}: {done}")
        done = here("run", "gpu.json", "--feed", "x.safetensors")
        expect(done.returncode == 1 and all(w in done.stderr for w in [*words, *offer]), f"run on GPUs, {variables}: {done}")
        done = here("run", "small.json", "--feed", "x.safetensors", "--devices", "gpu:0")
        expect(done.returncode == 1 and all(w in done.stderr for w in [*words, "sim:0 can stand in for gpu:0", "name them where gpu:0 is named"]), f"run of a graph on gpu:0, {variables}: {done}")
        # A placement for them is one for others, and a cluster's GPUs may be left alone.
        pathlib.Path(folder, "rules.json").write_text(json.dumps({"belfry": 1, "placement": [{"match": "z", "device": "gpu:1"}, {"match": "y", "device": "gpu:0"}, {"match": "**", "device": "cpu:0"}]}), encoding="utf-8")
        done = here("run", "small.json", "--feed", "x.safetensors", "--placement", "rules.json")
        expect(done.returncode == 1 and all(w in done.stderr for w in [*words, "give --devices sim:0-1 beside the placement file"]), f"run of a placement, {variables}: {done}")
        done = here("run", "small.json", "--feed", "x.safetensors", "--placement", "rules.json", "--devices", "sim:0-1")
        expect(done.returncode == 0 and "rules.json: sim:0-1 in place of gpu:0-1" in done.stderr, f"run of a placement on sims, {variables}: {done}")
        by_rules = done.stdout
        for strategy in ("single", "auto"):
            done = here("place", "small.json", "--cluster", "k80x4", "--devices", "cpu:0", "--strategy", strategy, "-o", "cpu.json")
            expect(done.returncode == 0, f"place on the CPU of a cluster with GPUs, {variables}: {done}")
        done = here("place", "small.json", "--cluster", "k80x4", "--devices", "cpu:0", "--move", "z=gpu:1", "-o", "cpu.json")
        expect(done.returncode == (0 if placed else 1) and (placed or all(w in done.stderr for w in ("'z' is placed on a device of kind 'gpu'", *words[1:], "or move it there with --move 'z=cpu:0'"))), f"a node on a cluster's GPU, {variables}: {done}")
        done = here("run", "cpu.json", "--feed", "x.safetensors")
        expect((done.returncode == 1 and "gpu:1 cannot be used" in done.stderr) if placed else done.returncode == 0, f"run of a cluster's plan, {variables}: {done}")
        results = here("run", "sim.json", "--feed", "x.safetensors")
        expect(results.returncode == 0 and results.stdout and by_rules == results.stdout, f"run on sims, {variables}: {results}, by rules {by_rules}")
        for devices in ("sim:0-1", "cpu:0-1"):  # what the offer says, word by word
            done = here("place", "gpu.json", "--devices", devices, "-o", "new.json")
            expect(done.returncode == 0 and f"{devices} in place of gpu:0-1" in done.stderr, f"place of the plan on {devices}: {done}")
            for command in (("run", "new.json"), ("run", "gpu.json", "--devices", devices)):
                done = here(*command, "--feed", "x.safetensors")
                expect(done.returncode == 0 and done.stdout == results.stdout, f"{command}, {variables}: {done}")


def left_alone(**variables):
    """Without a backend GPUs that decide nothing are no hindrance, and each offer that is made works as it stands."""
    with tempfile.TemporaryDirectory() as folder:
        def here(*arguments, code=0, words=(), variables=variables):
            done = belfry(*arguments, cwd=folder, **variables)
            expect(done.returncode == code and all(w in done.stderr for w in words), f"{arguments}, {variables}, wanted {code} {words}: {done}")
            return done

        def write(name, content):
            pathlib.Path(folder, name).write_text(json.dumps(content), encoding="utf-8")

        asks = dict(graph, nodes=[dict(graph["nodes"][0], device="gpu:0"), graph["nodes"][1]])
        write("small.json", graph)
        write("asks.json", asks)
        write("host.json", {"belfry": 1, "placement": [{"match": "**", "device": "cpu:0"}]})
        write("rules.json", {"belfry": 1, "placement": [{"match": "y", "device": ["gpu:0"]}, {"match": "**", "device": "cpu:0"}, {"match": "**", "device": "gpu:1"}]})
        write("twice.json", {"belfry": 1, "placement": [{"match": "**", "device": ["gpu:0", "gpu:0"]}]})
        cluster = ("--cluster", "k80x4", "--devices", "cpu:0", "-o", "a.json")
        for way_out in (("--soft-placement",), ("--move", "**=cpu:0"), ("--move", "y=cpu:0"), ("--placement", "host.json")):
            here("place", "asks.json", *cluster, *way_out)
        here("place", "asks.json", *cluster, code=1, words=("'y' is placed on a device of kind 'gpu'", "--move 'y=cpu:0'", "--soft-placement"))
        if fake:
            here("place", "small.json", "--devices", "gpu:0-1", "--strategy", "layers", "--move", "z=gpu:1", "-o", "gpu.json", variables=dict(BELFRY_CUDA_DRIVER="/nowhere/libcuda.so.1"))
            here("place", "gpu.json", "--move", "**=cpu:0", "-o", "a.json")
            here("place", "gpu.json", "-o", "a.json", code=1, words=("place PLAN --devices sim:0-1 -o NEW",))
            here("place", "gpu.json", "--move", "y=cpu:0", "-o", "a.json", code=1, words=("'z' is placed on", "--move 'z=cpu:0'"))
        for strategy in ("layers", "auto"):
            here("place", "small.json", "--devices", "gpu:0-1", "--strategy", strategy, "-o", "a.json", code=1, words=("gpu:0 cannot be used", "sim:0-1 can stand in for gpu:0-1"))
        here("place", "small.json", "--cluster", "k80x4", "--strategy", "layers", "-o", "a.json", code=1, words=("give --devices sim:0-3, name them where gpu:0-3 is named, and leave --cluster out",))
        here("place", "small.json", "--devices", "sim:0-3", "--strategy", "layers", "-o", "a.json")
        here("place", "asks.json", "--devices", "gpu:0", "-o", "a.json", code=1, words=("name them where gpu:0 is named, with --soft-placement",))
        here("place", "asks.json", "--devices", "sim:0", "--soft-placement", "-o", "a.json")
        here("place", "small.json", "--placement", "rules.json", "-o", "a.json", code=1, words=("give --devices sim:0-1 beside the placement file",))
        here("place", "small.json", "--placement", "rules.json", "--devices", "sim:0-1", "-o", "a.json")
        here("place", "small.json", "--placement", "twice.json", "--devices", "sim:0", "-o", "a.json", code=1, words=("sim:0",))
        expect("a part of its own" not in here("place", "small.json", "--placement", "twice.json", "--devices", "sim:0", "-o", "a.json", code=1).stderr, "a device that a file names twice")
        expect("can stand in" not in here("show", "--ops", "tanh", words=("without the kernels of GPUs: GPU backend",)).stderr, "the kernels of an op")
        here("bench", "mlp", "--devices", "gpu:0", code=1, words=("name them where gpu:0 is named (belfry devices",))
        here("place", "small.json", "--cluster", "k80x4", "--devices", "cpu:0", "-o", "host_of_cluster.json")
        here("place", "host_of_cluster.json", "--move", "y=gpu:0", "-o", "a.json", code=1, words=("'y' is placed on a device of kind 'gpu'",))
        if fake:  # one of other headers, and one that the loader would map, and die
            built = pathlib.Path(program).parent
            own, build = (built / "libbelfry_cuda.so").read_bytes(), re.search('"(.*)"', (built / "belfry_build.h").read_text())[1].encode()
            expect(own.count(build) == 1, "the backend says which build it is of")
            for name, content, words in (("other.so", own.replace(build, b"0" * len(build)), "belongs to another build of Belfry"), ("cut.so", own[:len(own) // 2], "is cut short: it has")):
                pathlib.Path(folder, name).write_bytes(content)
                here("run", "small.json", "--devices", "gpu:0", code=1, words=(words, "unset BELFRY_CUDA_BACKEND"), variables=dict(BELFRY_CUDA_BACKEND=str(pathlib.Path(folder, name))))
        for file, words in (("/etc/passwd", "cannot be opened"), ("/etc", "/etc is no regular file")):
            here("run", "small.json", "--devices", "gpu:0", code=1, words=(words, "unset BELFRY_CUDA_BACKEND"), variables=dict(BELFRY_CUDA_BACKEND=file))


def unavailable(**variables):
    """The same where the backend is there, and no GPU."""
    with tempfile.TemporaryDirectory() as folder:
        def here(*arguments, code=0, words=(), stdin=None):
            done = belfry(*arguments, cwd=folder, **variables) if stdin is None else belfry(*arguments, cwd=folder, input=stdin, **variables)
            expect(done.returncode == code and all(w in done.stderr for w in words), f"{arguments}, {variables}, wanted {code} {words}: {done}")
            return done

        line = json.dumps({"belfry": 1, "placement": [{"match": "dense_1/**", "device": "gpu:1"}, {"match": "**", "device": "cpu:0"}]})
        pathlib.Path(folder, "rules.json").write_text(line, encoding="utf-8")
        scored = json.loads(here("forecast", "mlp", "--jsonl", "--cluster", "k80x4", "--devices", "cpu:0", "--batch", "32", stdin=line + "\n").stdout)
        placed = json.loads(here("place", "mlp", "--placement", "rules.json", "--cluster", "k80x4", "--batch", "32", "-o", "a.json", "--json").stdout)
        expect(scored["peak"] == {d["device"]: d["bytes"] for d in placed["devices"]}, f"a line has the bytes of the plan: {scored}, {placed['devices']}")
        # An inner member of a tree that a line sends elsewhere leaves the tree out there too.
        tree = next(n for n in json.loads(pathlib.Path(folder, "a.json").read_text())["nodes"] if n.get("attributes", {}).get("kind") == "elementwise")
        line = json.dumps({"belfry": 1, "placement": [{"match": tree["members"][0]["name"], "device": "gpu:1"}, {"match": "**", "device": "cpu:0"}]})
        pathlib.Path(folder, "inner.json").write_text(line, encoding="utf-8")
        scored = json.loads(here("forecast", "mlp", "--jsonl", "--cluster", "k80x4", "--devices", "cpu:0", "--batch", "32", stdin=line + "\n").stdout)
        placed = json.loads(here("place", "mlp", "--placement", "inner.json", "--cluster", "k80x4", "--batch", "32", "-o", "b.json", "--json").stdout)
        expect(scored.get("peak") == {d["device"]: d["bytes"] for d in placed["devices"]}, f"a line of an inner member has the bytes of the plan: {scored}, {placed['devices']}")
        # Moves and lines are one list: what one says of the last member, and the other of an inner one, leaves the tree or not as in placing.
        line = json.dumps({"belfry": 1, "placement": [{"match": tree["name"], "device": "gpu:1"}, {"match": "**", "device": "cpu:0"}]})
        pathlib.Path(folder, "last.json").write_text(line, encoding="utf-8")
        for device in ("gpu:1", "gpu:2"):
            move = ("--move", f"{tree['members'][0]['name']}={device}", "--cluster", "k80x4", "--batch", "32")
            scored = json.loads(belfry("forecast", "mlp", "--jsonl", "--devices", "cpu:0", *move, cwd=folder, input=line + "\n", **variables).stdout)
            placed = belfry("place", "mlp", "--placement", "last.json", *move, "-o", "c.json", "--json", cwd=folder, **variables)
            same = placed.returncode == 1 and "error" in scored if placed.returncode else scored.get("peak") == {d["device"]: d["bytes"] for d in json.loads(placed.stdout)["devices"]}
            expect(same, f"a move of an inner member to {device} beside a line: {scored}, {placed}")
        told = here("forecast", "mlp", "--placement", "rules.json", "--devices", "sim:0", "--batch", "8", "--measure", "1").stderr
        expect(told.count("sim:0 in place of gpu:1") == 1, f"what is put in place is said once: {told}")
        # Engines that were measured are named in every plan for GPUs, but for one that runs as it stands.
        costs = {"belfry": 1, "machine": "m", "dispatch": 0, "handoff": 0, "wake": 0, "step": 0, "memmove": 0, "kernels": []}
        pathlib.Path(folder, "bare.json").write_text(json.dumps(costs), encoding="utf-8")
        pathlib.Path(folder, "costs.json").write_text(json.dumps(dict(costs, engines=[{"key": "k", "engine": "e"}])), encoding="utf-8")
        here("place", "mnist_cnn", "--devices", "gpu:0", "--calibration", "costs.json", "--batch", "8", "-o", "cnn.json")
        here("place", "cnn.json", "--calibration", "costs.json", "-o", "b.json")
        for command in (("mnist_cnn", "--calibration", "costs.json"), ("mnist_cnn", "--devices", "gpu:0", "--calibration", "bare.json"), ("cnn.json", "--calibration", "bare.json")):
            here("place", *command, "-o", "b.json", code=2, words=("--calibration does nothing here",))
        here("train", "cnn.json", "--data", folder, "--calibration", "costs.json", code=2, words=("--calibration does nothing here",))
        # An engine without a name is none, with the backend as without.
        plan = pathlib.Path(folder, "cnn.json").read_text(encoding="utf-8")
        pathlib.Path(folder, "empty.json").write_text(plan.replace('"cudnn_conv2d"', '"cudnn_conv2d@"'), encoding="utf-8")
        for backend in (dict(), dict(BELFRY_CUDA_BACKEND="/nowhere/libbelfry_cuda.so")):
            done = belfry("forecast", "empty.json", cwd=folder, **variables, **backend)
            expect('"cudnn_conv2d"' in plan and done.returncode == 1 and "names 'cudnn_conv2d@' on gpu:0, but conv2d" in done.stderr, f"an engine without a name, {backend}: {done}")
        # Loops: the workers' devices together.
        pathlib.Path(folder, "rows.csv").write_text(",".join([f"p{k}" for k in range(784)] + ["label"]) + "\n" + "".join(",".join([str(k % 7)] * 784 + [str(k % 10)]) + "\n" for k in range(40)), encoding="utf-8")
        here("train", "mlp", "--data", "rows.csv", "--hold-out", "0.2", "--batch", "8", "--strategy", "parameter_server", "--devices", "gpu:0-1", "-O", "staleness=2", "--steps", "2", code=1, words=("sim:0-1 can stand in for gpu:0-1", "name them where gpu:0-1 is named"))
        # GPUs that are there by hand alone, in a cluster.
        here("place", "mlp", "--cluster", "k80x4", "--devices", "cpu:0", "-o", "host.json")
        here("forecast", "host.json", "--measure", "1", "--move", "dense_1/**=gpu:0", code=1, words=("gpu:0 cannot be used", "cpu:0 can stand in for GPUs: name it where --move"))
        # Another host's CPU gives way like a GPU.
        several = ("--cluster", "pascal128x4", "--strategy", "parameter_server", "-O", "servers=cpu:0,/host:1/cpu:0")
        here("place", "mlp", *several, "--devices", "gpu:0", "-o", "several.json")
        here("forecast", "several.json", "--measure", "1", code=1, words=("sim:0-1 can stand in for gpu:0,/host:1/cpu:0",))
        here("place", "several.json", "--devices", "sim:0-1", "-o", "a.json")
        here("forecast", "a.json", "--measure", "1")
        rules = json.dumps({"belfry": 1, "placement": [{"match": "dense_1/**", "device": "/host:1/cpu:0"}, {"match": "dense_2/**", "device": "cpu:0"}, {"match": "**", "device": "gpu:0"}]})
        pathlib.Path(folder, "hosts.json").write_text(rules, encoding="utf-8")
        here("place", "mlp", "--placement", "hosts.json", "--devices", "sim:0-1", "-o", "a.json", words=("sim:0-1 in place of gpu:0,/host:1/cpu:0",))
        here("place", "mlp", *several, "--devices", "/host:1/gpu:0", "-o", "other.json")
        here("forecast", "other.json", "--measure", "1", code=1, words=("/host:1/gpu:0 cannot be used: it belongs to another host", "can stand in for"))


if not fake:
    missing(["this build has none", "-Dcuda=enabled"], "GPU backend")
    refused(["this build has none"], placed=False)
missing(["/nowhere/libbelfry_cuda.so, which is not there", "unset it"], "GPU backend", BELFRY_CUDA_BACKEND="/nowhere/libbelfry_cuda.so")
refused(["which is not there"], placed=False, BELFRY_CUDA_BACKEND="/nowhere/libbelfry_cuda.so")
left_alone(BELFRY_CUDA_BACKEND="/nowhere/libbelfry_cuda.so")
if fake:
    missing(["/nowhere/libcuda.so.1", "driver 580"], "CUDA driver", BELFRY_CUDA_DRIVER="/nowhere/libcuda.so.1")
    missing(["cannot be opened", "unset BELFRY_CUDA_DRIVER"], "CUDA driver", BELFRY_CUDA_DRIVER="/etc/passwd")
    missing(["lacks 63 of 63 functions", "BELFRY_CUDA_DRIVER"], "CUDA driver", BELFRY_CUDA_DRIVER="libz.so.1")
    missing(["knows CUDA 12.4 at most", "needs 13"], "CUDA driver", BELFRY_CUDA_DRIVER=fake, FAKE_CUDA_DRIVER_VERSION="12040")
    missing(["CUDA_ERROR_NO_DEVICE (100)", "nvidia-smi"], "GPU", BELFRY_CUDA_DRIVER=fake, FAKE_CUDA_INIT="100")
    missing(["CUDA_VISIBLE_DEVICES is '7'"], "GPU", BELFRY_CUDA_DRIVER=fake, CUDA_VISIBLE_DEVICES="7")
    with tempfile.TemporaryDirectory() as folder:
        # Named first, it stands before what the machine has.
        for name in ("libcudnn.so.9", "libcudnn_graph.so.9"):
            shutil.copy(fake, os.path.join(folder, name))
        missing(["wrong version", "libcudnn.so.9 is 8.9.7", "wanted is 9.x"], "cuDNN", BELFRY_CUDA_DRIVER=fake, BELFRY_CUDA_PATH=folder, FAKE_CUDNN_VERSION="80907")

    with tempfile.TemporaryDirectory() as folder:
        # An NVML that does not start, so that this machine's own is not asked.
        shutil.copy(fake, os.path.join(folder, "libnvidia-ml.so.1"))
        two = dict(BELFRY_CUDA_DRIVER=fake, BELFRY_CUDA_PATH=folder, FAKE_NVML_INIT="9", FAKE_CUDA_GPUS="2", FAKE_CUDA_NAME="Fake H9", FAKE_CUDA_CAPABILITY="9.0", FAKE_CUDA_MEMORY=str(3 << 29))
        done = belfry("devices", **two)
        line = "gpu:0    Fake H9, compute capability 9.0, memory 1.5 GiB (1.5 GiB free)"
        expect(done.returncode == 0 and line in done.stdout and "gpu:1    Fake H9" in done.stdout and "peer to gpu:1" in done.stdout, f"two: {done}")
        facts = json.loads(belfry("devices", "--json", **two).stdout)
        gpus = [d for d in facts["devices"] if d["id"].startswith("gpu:")]
        expect([g["pci"] for g in gpus] == ["0000:01:00.0", "0000:02:00.0"] and gpus[1]["memory_bytes"] == 3 << 29 and gpus[1]["uuid"].startswith("GPU-f1"), f"two: {facts}")
        expect(facts["cuda"]["driver_cuda"] == "13.0" and facts["cuda"]["links"] == [{"from": "gpu:0", "to": "gpu:1", "kind": "peer", "peer": True}], f"two: {facts}")
        facts = json.loads(belfry("devices", "--json", CUDA_VISIBLE_DEVICES="1", **two).stdout)
        expect([d["pci"] for d in facts["devices"] if d["id"].startswith("gpu:")] == ["0000:02:00.0"], f"one of two: {facts}")
        pathlib.Path(folder, "small.json").write_text(json.dumps(graph), encoding="utf-8")
        for devices, absent in (("gpu:0-1", ""), ("gpu:1-3", "gpu:2-3: not here"), ("sim:0-1", ""), ("gpu:0-1", "")):
            done = belfry("place", "small.json", "--devices", devices, "--strategy", "layers", "-o", "two.json", cwd=folder, **two)
            expect(done.returncode == 0 and (absent in done.stderr if absent else "not here" not in done.stderr), f"place on {devices} of two: {done}")
        # What one GPU has for another whose memory it does not share goes through the host, and the plan says so.
        for peer, way in (("1", [["y", "gpu:1"]]), ("0", [["y", "cpu:0"], ["y.copy", "gpu:1"]])):
            done = belfry("place", "small.json", "--devices", "gpu:0-1", "--strategy", "layers", "--move", "z=gpu:1", "-o", "peers.json", cwd=folder, FAKE_CUDA_PEER=peer, **two)
            plan = json.loads(pathlib.Path(folder, "peers.json").read_text(encoding="utf-8"))
            copies = [[n["inputs"][0], n["assigned"]] for n in plan["nodes"] if n["op"] == "copy" and n["cause"] == "y"]
            expect(done.returncode == 0 and copies == way and plan["plan"]["cluster"]["peers"] == (["gpu:0-1"] if peer == "1" else ["gpu:0", "gpu:1"]), f"peers {peer}: {done}, {copies}")
            if peer == "1":  # a plan that counts on what is not there
                text = pathlib.Path(folder, "peers.json").read_text(encoding="utf-8")
                pathlib.Path(folder, "apart.json").write_text(text.replace('"peers": ["gpu:0-1"]', '"peers": ["gpu:0", "gpu:1"]'), encoding="utf-8")
        write_feed(folder)
        done = belfry("run", "apart.json", "--feed", "x.safetensors", cwd=folder, **two)
        expect(done.returncode == 1 and all(w in done.stderr for w in ["no peers: ", "'y' on gpu:0", "do not read each other's memory", "belfry place"]), f"run of a plan that reads no peer: {done}")
        # The driver is asked once, since each time it makes contexts where NVML does not start.
        asked = belfry("place", "mlp", "--devices", "gpu:0-1", "-o", "two_mlp.json", cwd=folder, LD_DEBUG="files", **two).stderr
        expect(sum("direct_opencount" in l and os.path.basename(fake) in l for l in asked.splitlines()) == 1, "place asks the driver once")
        refused(["CUDA driver", "driver 580"], BELFRY_CUDA_DRIVER="/nowhere/libcuda.so.1")
        unavailable(BELFRY_CUDA_DRIVER="/nowhere/libcuda.so.1")

        for capability, why in (("6.0", "is below 7.5, the least that CUDA 13 compiles for; take a GPU of"), ("19.0", "and not for 19.0; install the latest NVRTC of CUDA 13")):
            other = dict(two, FAKE_CUDA_CAPABILITY=capability)
            done = belfry("devices", **other)
            expect(done.returncode == 0 and done.stdout.count("         cannot be used: ") == 2 and done.stdout.count(why) == 2 and "no plan runs on gpu:0 here" in done.stdout, f"capability {capability}: {done}")
            facts = json.loads(belfry("devices", "--json", **other).stdout)
            stops = [d.get("cannot_be_used", {}) for d in facts["devices"] if d["id"].startswith("gpu:")]
            expect(len(stops) == 2 and all(s and s["why"] + "; " + s["way_out"] in done.stdout for s in stops), f"capability {capability}: {facts}")
            refused([why], absent="", known=True, **other)
        # The driver is there, the GPUs are, and a library is not.
        shutil.copy(fake, os.path.join(folder, "libnvrtc.so.13"))
        refused(["NVRTC: wrong version: ", "libnvrtc.so.13 is 12.0", "pip install nvidia-cuda-nvrtc"], absent="", known=True, FAKE_NVRTC_VERSION="12000", **two)
        wrong = dict(two, FAKE_NVRTC_VERSION="12000")
        for command, times in ((["mlp", "--devices", "gpu:0-1"], 1), (["two.json"], 1), (["mlp", "--devices", "gpu:0-1", "--problem"], 0), (["mlp", "--cluster", "k80x4"], 0),
                               (["mlp", "--devices", "gpu:0-1", "--strategy", "parameter_server", "-O", "staleness=2"], 1), (["mlp", "--cluster", "k80x4", "--strategy", "parameter_server", "-O", "staleness=2"], 0)):
            done = belfry("place", *command, "-o", "new.json", cwd=folder, **wrong)
            expect("parameter_server" not in command or not times or "sim:0-1 can stand in for gpu:0-1 with the CPU's numbers: name them where" in done.stderr, f"place {command} offers: {done}")
            expect(done.returncode == 0 and done.stderr.count("this plan cannot run here: NVRTC: wrong version") == times, f"place {command} says {times} times what is missing: {done}")
        os.remove(os.path.join(folder, "libnvrtc.so.13"))
        # A context that cannot be made.
        for code, why in (("2", "CUDA_ERROR_OUT_OF_MEMORY (2): as the fake driver was told; other processes hold its memory"), ("46", "another process has it for itself alone")):
            refused(["no context can be made on it: cuDevicePrimaryCtxRetain gives", why], absent="", FAKE_CUDA_FAIL=f"cuDevicePrimaryCtxRetain:1:{code}", **two)

for objection in objections:
    print(objection)
sys.exit(1 if objections else 0)
