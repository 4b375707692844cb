"""What belfry says of GPUs: those of a fake driver, and by name what is missing. Arguments: the program, the fake driver's file or nothing."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

program = str(pathlib.Path(sys.argv[1]).resolve())
fake = str(pathlib.Path(sys.argv[2]).resolve()) if len(sys.argv) > 2 and sys.argv[2] else ""
loader = "/lib64/ld-linux-x86-64.so.2"
objections = []


def belfry(*arguments, cache=True, cwd=None, **variables):
    """Variables without a value are unset. Without its cache the loader finds by bare name only what lies in the system's folders."""
    environment = {k: v for k, v in os.environ.items() if k not in ("CUDA_VISIBLE_DEVICES", "BELFRY_CUDA_BACKEND", "BELFRY_CUDA_PATH")}
    environment.update(variables)
    start = [program] if cache else [loader, "--inhibit-cache", program]
    return subprocess.run(start + list(arguments), capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=cwd, env=environment)


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


graph = {"belfry": 1, "name": "small", "inputs": [{"name": "x", "dtype": "f32", "shape": [2]}], "nodes": [{"name": "y", "op": "tanh", "inputs": ["x"]}], "outputs": ["y"]}


def refused(words, placed=True, **variables):
    """Running a plan that names gpu:0 is refused with the reason and the offer; placing on it, where there is no backend."""
    words = ["gpu:0 cannot be used", "sim:0, which stands in for it", *words]
    with tempfile.TemporaryDirectory() as folder:
        def here(*arguments):
            return belfry(*arguments, cwd=folder, **variables)

        pathlib.Path(folder, "small.json").write_text(json.dumps(graph), encoding="utf-8")
        header = json.dumps({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
        pathlib.Path(folder, "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
        done = here("place", "small.json", "-o", "sim.json", "--devices", "sim:0")
        expect(done.returncode == 0, f"place on sim:0: {done}")
        done = here("place", "small.json", "-o", "gpu.json", "--devices", "gpu:0")
        if placed:
            expect(done.returncode == 0 and done.stderr.count("gpu:0: not here") == 1 and "--cluster F gives the machine" in done.stderr, f"place on gpu:0, {variables}: {done}")
        else:
            expect(done.returncode == 1 and all(w in done.stderr for w in words), f"place on gpu:0, {variables}: {done}")
            plan = pathlib.Path(folder, "sim.json").read_text(encoding="utf-8")
            pathlib.Path(folder, "gpu.json").write_text(plan.replace("sim:0", "gpu:0").replace('"sim"', '"gpu"'), encoding="utf-8")
        done = here("forecast", "small.json", "--devices", "gpu:0", "--json")
        expect(done.returncode == 0 and json.loads(done.stdout)["seconds"] > 0 and done.stderr.count("gpu:0: not here") == 1, f"forecast on gpu:0, {variables}: {done}")
        done = here("forecast", "small.json", "--devices", "gpu:0", "--cluster", "p100x8", "--json")
        expect(done.returncode == 0 and "not here" not in done.stderr, f"forecast of a cluster, {variables}: {done}")
        done = here("run", "gpu.json", "--feed", "x.safetensors")
        expect(done.returncode == 1 and all(w in done.stderr for w in words), f"run on gpu:0, {variables}: {done}")
        done = here("run", "sim.json", "--feed", "x.safetensors")
        expect(done.returncode == 0, f"run on sim:0: {done}")


if not fake:
    missing(["this build has none", "-Dcuda=enabled"], "GPU backend")
    refused(["this build has none"], placed=False)
missing(["/nowhere/libbelfry_cuda.so, which is not there", "unset it"], "GPU backend", BELFRY_CUDA_BACKEND="/nowhere/libbelfry_cuda.so")
refused(["which is not there"], placed=False, BELFRY_CUDA_BACKEND="/nowhere/libbelfry_cuda.so")
if fake:
    missing(["/nowhere/libcuda.so.1", "driver 580"], "CUDA driver", BELFRY_CUDA_DRIVER="/nowhere/libcuda.so.1")
    missing(["lacks 62 of 62 functions", "BELFRY_CUDA_DRIVER"], "CUDA driver", BELFRY_CUDA_DRIVER="libz.so.1")
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
        for devices, absent in (("gpu:0-1", ""), ("gpu:1-3", "gpu:2-3: not here"), ("sim:0-1", "")):
            done = belfry("place", "small.json", "--devices", devices, "--strategy", "layers", "-o", "two.json", cwd=folder, **two)
            expect(done.returncode == 0 and (absent in done.stderr if absent else "not here" not in done.stderr), f"place on {devices} of two: {done}")
        refused(["CUDA driver", "driver 580"], BELFRY_CUDA_DRIVER="/nowhere/libcuda.so.1")

for objection in objections:
    print(objection)
sys.exit(1 if objections else 0)
