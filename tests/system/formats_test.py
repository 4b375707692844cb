"""What Belfry writes is read by TensorBoard, Python's safetensors and numpy, and the other way, without a difference.
Arguments: belfry, own (read by hand here) or the package to compare with, the environment of tools/test. Exit 77 where no Python here has the package."""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

program, part = str(pathlib.Path(sys.argv[1]).resolve()), sys.argv[2]
MODULES = {"own": "json", "numpy": "numpy", "safetensors": "numpy, safetensors.numpy", "tensorboard": "tensorboard.backend.event_processing.plugin_event_multiplexer"}
PYTHONS = [sys.executable, f"{sys.argv[3]}/bin/python3", "/usr/bin/python3"]
objections, checked = [], []


def run_where_it_is_installed():
    """This script goes on in the first Python that has the package."""
    for python in PYTHONS:
        if pathlib.Path(python).exists() and subprocess.run([python, "-c", f"import {MODULES[part]}"], capture_output=True, stdin=subprocess.DEVNULL).returncode == 0:
            return python == sys.executable or os.execv(python, [python, *sys.argv[:3], str(pathlib.Path(python).parents[1])])
    print(f"skipped: {MODULES[part]} cannot be imported by {', '.join(PYTHONS)}; tools/test installs it, where there is a network")
    sys.exit(77)


def expect(condition, text):
    checked.append(text)
    if not condition:
        objections.append(text)


def belfry(folder, *arguments):
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        sys.exit(f"belfry {' '.join(arguments)}: {done.stderr[-2000:]}")
    return done


def single(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def masked_crc32c(data):
    """Bit by bit, from the polynomial alone: the program has a table of another's."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def fields(data):
    """(number, value) of a protocol buffer's fields."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            value |= (data[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if data[at - 1] < 128:
                return value

    while at < len(data):
        key = varint()
        size = {1: 8, 5: 4}.get(key & 7)
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = varint() if size is None else size
        yield key >> 3, data[at:at + size]
        at += size


def records(path):
    data = path.read_bytes()
    while data:
        length, crc = struct.unpack("<QI", data[:12])
        event = data[12:12 + length]
        expect(crc == masked_crc32c(data[:8]) and struct.unpack("<I", data[12 + length:16 + length])[0] == masked_crc32c(event), f"a checksum of {path.name}")
        yield dict(fields(event))
        data = data[16 + length:]


def trained_twice(folder):
    """A run that was cut off behind its first epoch and gone on from: its log's steps and epochs, and each chart's points."""
    command = ["train", "mnist_cnn", "--data", "digits", "--batch", "16", "--epochs", "3", "--checkpoints", "checkpoints", "--out", "run"]
    belfry(folder, *command)
    checkpoints = sorted((folder / "checkpoints").iterdir())
    for later in checkpoints[1:]:
        later.unlink()
    belfry(folder, *command)
    lines = [json.loads(line) for line in (folder / "run/log.jsonl").read_text(encoding="utf-8").splitlines()]
    steps, epochs = ([line for line in lines if key in line] for key in ("rows", "steps"))
    expect([line["step"] for line in steps] == list(range(1, 13)) and len(epochs) == 3, f"the log of a run that went on: {[line.get('step') for line in lines]}")
    expect(all(line["step_seconds"] > 0 for line in steps) and all(line["cpu"] > 0 and line["memory_bytes"] > 1 << 20 and line["rows_per_second/cpu:0"] == line["rows_per_second"] for line in epochs), f"what the log says of the machine: {epochs}")
    return {"train": {tag: [(s["step"], single(s[tag])) for s in steps] for tag in ("loss", "accuracy", "learning_rate")},
            "validation": {tag: [(4 * e["epoch"], single(e[f"val_{tag}"])) for e in epochs] for tag in ("loss", "accuracy")}}


def event_files_are_right(folder, wanted):
    """Read by hand: a file for each start, and what a reader keeps of the first is what the second goes on from."""
    expect(masked_crc32c(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF, "this script's checksum")
    for part, tags in wanted.items():
        points = {}
        files = sorted((folder / "run/tensorboard" / part).iterdir(), key=lambda f: f.stat().st_mtime_ns)
        expect(len(files) == 2, f"event files of {part}: {files}")
        for file in files:
            first, start, *events = records(file)
            expect(first[3] == b"brain.Event:2" and dict(fields(start[7])) == {1: 1}, f"the head of {file.name}: {first} {start}")
            points = {tag: [p for p in of if p[0] < start[2]] for tag, of in points.items()}
            for event in events:
                for _, value in fields(event[5]):
                    value = dict(fields(value))
                    points.setdefault(value[1].decode(), []).append((event[2], struct.unpack("<f", value[2])[0]))
        rates = points.get("rows_per_second/cpu:0", [])
        expect([step for step, _ in rates] == ([4, 8, 12] if part == "train" else []) and all(rate > 0 for _, rate in rates), f"the rate of a device after each epoch: {part}: {rates}")
        for tag, of in tags.items():
            expect(points[tag] == of, f"{part}/{tag}: {points[tag]}, where the log has {of}")


def tensorboard_reads(folder, wanted):
    """Each point of the log, and no other."""
    from tensorboard.backend.event_processing import event_accumulator, plugin_event_multiplexer

    for part, tags in wanted.items():
        events = event_accumulator.EventAccumulator(str(folder / "run/tensorboard" / part))
        events.Reload()
        for tag, points in tags.items():
            got = [(e.step, e.value) for e in events.Scalars(tag)]
            expect(got == points, f"TensorBoard's {part}/{tag}: {got}, where the log has {points}")
        expect(set(events.Tags()["scalars"]) >= set(tags), f"tags of {part}: {events.Tags()['scalars']}")
    # The reader of the program itself, which takes scalars as tensors.
    runs = plugin_event_multiplexer.EventMultiplexer()
    runs.AddRunsFromDirectory(str(folder / "run/tensorboard"))
    runs.Reload()
    expect(set(runs.Runs()) == {"train", "validation"}, f"runs that TensorBoard finds: {set(runs.Runs())}")
    for part, tags in wanted.items():
        for tag, points in tags.items():
            got = [(e.step, float(e.tensor_proto.float_val[0])) for e in runs.Tensors(part, tag)]
            expect(got == points, f"TensorBoard's tensors {part}/{tag}: {got}, where the log has {points}")


GRAPH = {"belfry": 1, "name": "formats", "inputs": [], "nodes": [], "outputs": []}


def formats_go_both_ways(folder, numpy, safetensors):
    """Tensors written there go through a graph here that leaves them as they are, and are read there again."""
    random = numpy.random.default_rng(3)
    tensors = {"f32": random.standard_normal((3, 5)).astype("f4"), "f64": random.standard_normal(7), "i32": random.integers(-9, 9, (2, 2)).astype("i4"),
               "i64": random.integers(-(1 << 62), 1 << 62, 4), "odd": numpy.array([numpy.inf, -numpy.inf, numpy.nan, -0.0, 1e-45], "f4"), "empty": numpy.zeros((0, 3), "f4")}
    tensors["by_columns"] = numpy.asfortranarray(random.standard_normal((4, 3)).astype("f4"))
    tensors.pop("empty")
    graph = dict(GRAPH, inputs=[{"name": name, "dtype": name if name in ("f64", "i32", "i64") else "f32", "shape": list(t.shape)} for name, t in tensors.items()],
                 nodes=[{"name": f"{name}_out", "op": "identity", "inputs": [name]} for name in tensors], outputs=[f"{name}_out" for name in tensors])
    (folder / "formats.json").write_text(json.dumps(graph), encoding="utf-8")

    def same(where, got):
        for name, t in tensors.items():
            g = got[f"{name}_out"]
            expect(g.dtype == t.dtype and g.shape == t.shape and g.tobytes() == numpy.ascontiguousarray(t).tobytes(), f"{where}: {name} is {g.dtype} {g.shape} {g}, where {t} was written")

    numpy.savez(folder / "stored.npz", **tensors)
    numpy.savez_compressed(folder / "packed.npz", **tensors)
    feeds = ["stored.npz", "packed.npz"]
    if safetensors:
        safetensors.save_file({k: numpy.ascontiguousarray(v) for k, v in tensors.items()}, folder / "tensors.safetensors", metadata={"note": "é"})
        feeds.append("tensors.safetensors")
    for feed in feeds:
        for out in ["out.npz"] + (["out.safetensors"] if safetensors else []):
            belfry(folder, "run", "formats.json", "--feed", feed, "--out", out)
            if out.endswith("npz"):
                with numpy.load(folder / out) as read:
                    same(f"{feed} to {out}", dict(read))
            else:
                same(f"{feed} to {out}", safetensors.load_file(folder / out))
    one = dict(GRAPH, inputs=[graph["inputs"][0]], nodes=[graph["nodes"][0]], outputs=[graph["outputs"][0]])
    (folder / "one.json").write_text(json.dumps(one), encoding="utf-8")
    numpy.save(folder / "f32.npy", tensors["f32"])
    belfry(folder, "run", "one.json", "--feed", "f32.npy", "--out", "one.npz")
    with numpy.load(folder / "one.npz") as read:
        expect((read["f32_out"] == tensors["f32"]).all(), f"f32.npy to one.npz: {read['f32_out']}")


def checkpoints_are_safetensors(folder, numpy, safetensors):
    """A checkpoint and a state are read there; written there again, they are what training and evaluation go on from."""
    belfry(folder, "train", "mnist_cnn", "--data", "digits", "--epochs", "1", "--checkpoints", "one", "--out", "one_out")
    checkpoint, = (folder / "one").iterdir()
    state = safetensors.load_file(folder / "one_out/state.safetensors")
    saved = safetensors.load_file(checkpoint)
    expect(set(state) == set(saved) and all(state[k].tobytes() == saved[k].tobytes() for k in state), "the checkpoint's tensors are not the state's")
    safetensors.save_file(state, folder / "again.safetensors")
    numpy.savez(folder / "again.npz", **state)
    results = [belfry(folder, "evaluate", "mnist_cnn", "--data", "digits", "--state", f).stdout for f in ("one_out/state.safetensors", "again.safetensors", "again.npz")]
    expect(results[0] == results[1] == results[2] and "loss" in results[0], f"evaluation of a state that was read and written in Python: {results}")


run_where_it_is_installed()
with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    belfry(folder, "data", "digits", "--out", "digits", "--train", "64", "--test", "32")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if part == "own":
        event_files_are_right(folder, trained_twice(folder))
    elif part == "tensorboard":
        tensorboard_reads(folder, trained_twice(folder))
    else:
        import numpy

        packed = None
        if part == "safetensors":
            import safetensors.numpy as packed

            checkpoints_are_safetensors(folder, numpy, packed)
        formats_go_both_ways(folder, numpy, packed)

if objections:
    sys.exit("\n".join(objections))
print(f"{len(checked)} comparisons without a difference")
