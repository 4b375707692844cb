"""From a training's folder to answers: pictures and arrays through predict, plans for inference, and what train says and refuses. Arguments: belfry, the source tree."""

import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib

program, root = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2]).resolve()
objections = []


def expect(condition, text):
    if not condition:
        objections.append(text)


def png(width, height, value):
    rows = b"".join(b"\0" + bytes(value(x, y) for x in range(width)) for y in range(height))
    parts = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(struct.pack(">I", len(d)) + kind + d + struct.pack(">I", zlib.crc32(kind + d)) for kind, d in parts)


def npy(descr, shape, data):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def check_photos(folder, belfry):
    for k in range(20):
        for name, low in (("dark", 20), ("light", 150)):
            path = folder / "photos" / name / f"{k:02}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(30, 29 + k % 3, lambda x, y: low + (x * 3 + y * (k + 1)) % 80))
    done = belfry("train", "mnist_cnn", "--data", "photos")
    expect(done.returncode == 1 and "--hold-out 0.2" in done.stderr, f"class folders alone: {done}")
    expect("0 (dark) 20, 1 (light) 20" in belfry("data", "inspect", "photos").stdout, "inspect of class folders alone")
    train = ["train", "mnist_cnn", "--data", "photos", "--hold-out", "0.3", "--rescale", "1/255", "--shuffle", "--batch", "8", "--out", "seen"]
    done = belfry(*train, "--epochs", "12")
    expect(done.returncode == 0 and "test accuracy 100.00 %" in done.stdout, f"training on photos: {done}")
    record = json.loads((folder / "seen/run.json").read_text(encoding="utf-8"))
    expect(record["classes"] == ["dark", "light"] and record["state"] == "state.safetensors" and abs(record["pixels"]["scale"] * 255 - 1) < 1e-12, f"run.json: {record}")
    rows = [int(re.search(r"of (\d+) rows", belfry("evaluate", "seen", "--data", "photos", "--split", s).stderr)[1]) for s in ("train", "test")]
    expect(sum(rows) == 40 and 4 <= rows[1] <= 20, f"a part that is held out: {rows}")
    done = belfry("predict", "seen", "--feed", "photos/dark", "photos/light/03.png", "--top", "1", "--batch", "6")
    lines = done.stdout.splitlines()
    expect(done.returncode == 0 and len(lines) == 21 and all(": dark " in line for line in lines[:20]) and "photos/light/03.png: light " in lines[20], f"predict of pictures: {done}")
    done = belfry("predict", "seen", "--feed", "photos/light", "--json")
    read = json.loads(done.stdout or "{}")
    (scores,) = read.get("outputs", {"": []}).values()
    expect(read["rows"] == 20 and read["files"][3] == "photos/light/03.png" and all(row[0]["name"] == "light" and len(row) == 3 for row in scores), f"predict --json: {done}")
    (folder / "odd").mkdir()
    (folder / "odd" / os.fsdecode(b"\xff.png")).write_bytes((folder / "photos/light/03.png").read_bytes())
    done = belfry("predict", "seen", "--feed", "odd", "--json")
    expect(done.returncode == 0 and json.loads(done.stdout)["files"] == ["odd/\\xff.png"], f"predict --json of a photo whose name is no UTF-8: {done}")
    refused = belfry("predict", "seen", "--feed", "photos", "seen/state.safetensors")
    expect(refused.returncode == 2 and "both pictures and files of tensors" in refused.stderr, f"pictures beside tensors: {refused}")

    # Other data are of the run's classes, whichever of them are there; hidden folders are none.
    for part in ("train", "val"):
        (folder / "exam" / part).mkdir(parents=True)
        (folder / "exam" / part / "light").symlink_to(folder / "photos/light")
        (folder / "exam" / part / ".cache").mkdir()
    done = belfry("evaluate", "seen", "--data", "exam")
    expect(done.returncode == 0 and "accuracy 1.000000" in done.stdout and "of 20 rows" in done.stderr, f"one class of the run: {done}")
    (folder / "exam/val/grey").symlink_to(folder / "photos/dark")
    done = belfry("evaluate", "seen", "--data", "exam")
    expect(done.returncode == 1 and "'grey' is no class" in done.stderr and "dark, light" in done.stderr, f"a class that the run does not know: {done}")

    # A run that is there is neither lost nor mixed.
    done = belfry(*train)
    expect(done.returncode == 1 and all(w in done.stderr for w in ("there is a run already", "no checkpoints were kept", "--overwrite", "another folder")), f"a run that is there: {done}")
    done = belfry(*train, "--steps", "3", "--overwrite")
    expect(done.returncode == 0 and json.loads((folder / "seen/run.json").read_text(encoding="utf-8"))["steps"] == 3, f"--overwrite: {done}")


def check_places(folder, belfry, pixels, labels, accuracy):
    """Where answers may be written, what is said of them, and what is no feed."""
    kept = {name: (folder / name).read_bytes() for name in ("run/state.safetensors", "run/graph.json", "bytes.npy")}
    for out, words in (("run/state.safetensors", "belongs to the run"), ("run/graph.json", "belongs to the run"), ("run/ck/step-00000032.safetensors", "belongs to the run"), ("bytes.npy", "read here"), ("scores.json", ".safetensors, .npz or")):
        done = belfry("predict", "run", "--feed", "bytes.npy", "--out", out)
        expect(done.returncode == (2 if out == "scores.json" else 1) and words in done.stderr and not done.stdout, f"predict --out {out}: {done}")
    expect(all((folder / name).read_bytes() == data for name, data in kept.items()), "predict wrote over what is refused")
    done = belfry("predict", "run", "--feed", "bytes.npy", "--out", "scores.npy")
    expect(done.returncode == 0 and (folder / "scores.npy").read_bytes().startswith(b"\x93NUMPY"), f"predict --out scores.npy: {done.stderr}")
    with zipfile.ZipFile(folder / "two.npz", "w") as feeds:
        feeds.writestr("image.npy", npy("|u1", (64, 28, 28), pixels))
        feeds.writestr("label.npy", npy("|u1", (64,), labels))
    # Whole numbers of any width are labels, and words that no input reads stand in no one's way.
    for descr, code in (("|i1", "b"), ("<i2", "h"), ("<u4", "I"), ("<u8", "Q")):
        with zipfile.ZipFile(folder / "more.npz", "w") as feeds:
            feeds.writestr("image.npy", npy("|u1", (64, 28, 28), pixels))
            feeds.writestr("label.npy", npy(descr, (64,), struct.pack(f"<64{code}", *labels)))
            feeds.writestr("words.npy", npy("<U1", (64,), b"a\0\0\0" * 64))
        done = belfry("evaluate", "run", "--data", "more.npz", "--json")
        expect(done.returncode == 0 and abs(json.loads(done.stdout)["means"]["accuracy"] - accuracy) < 1e-4, f"labels of {descr} beside words: {done}, not {accuracy}")
    done = belfry("predict", "run", "--feed", "more.npz", "--json")
    expect(done.returncode == 0 and "words" not in done.stderr, f"words beside what is predicted from: {done}")
    (folder / "words.npy").write_bytes(npy("<U1", (2,), b"a\0\0\0" * 2))
    done = belfry("predict", "run", "--feed", "words.npy")
    expect(done.returncode == 1 and "dtype '<U1' is not read here" in done.stderr, f"words alone: {done}")
    done = belfry("run", "run", "--feed", "two.npz", "--out", "two.npy")
    expect(done.returncode == 1 and "holds one array" in done.stderr, f"run --out two.npy: {done}")

    # Bytes in arrays are scaled by what the run knows, in evaluate as in predict.
    done = belfry("evaluate", "run", "--data", "two.npz", "--json")
    expect(done.returncode == 0 and abs(json.loads(done.stdout)["means"]["accuracy"] - accuracy) < 1e-4, f"evaluate of bytes: {done}, not {accuracy}")

    # Values that are no numbers are told of, by row.
    rows = [0.5] * (4 * 784)
    rows[784 + 3] = rows[3 * 784] = float("nan")
    (folder / "nan.npy").write_bytes(npy("<f4", (4, 28, 28, 1), struct.pack(f"<{len(rows)}f", *rows)))
    done = belfry("predict", "run", "--feed", "nan.npy", "--json")
    expect(done.returncode == 0 and "row 1: '" in done.stderr and "no number (nan), and so in 2 rows in all" in done.stderr and '"nan"' in done.stdout, f"nan: {done}")

    # Feeds that do not fit say so in the words of files.
    (folder / "lone.npy").write_bytes(npy("<f4", (28, 28, 1), struct.pack("<784f", *rows[:784])))
    (folder / "lone8.npy").write_bytes(npy("|u1", (28, 28), pixels[:784]))
    (folder / "x.bmp").write_bytes(b"BM" + bytes(80))
    (folder / "net.onnx").write_bytes(b"\x08\x07" + bytes(80))
    (folder / "t10k-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 0x803, 1, 28, 28) + bytes(784))
    for feed, words in (("lone.npy", ("lone.npy: 'image' is f32(28, 28, 1)", "add the axis of rows")), ("lone8.npy", ("lone8.npy: ", "u8(28, 28)", "add the axis of rows")), ("x.bmp", ("a BMP picture, which is not read", ".png")), ("net.onnx", ("ONNX net, which is not read",)), ("t10k-images-idx3-ubyte", ("MNIST's format", "belfry evaluate RUN"))):
        done = belfry("predict", "run", "--feed", feed)
        expect(done.returncode == 1 and all(w in done.stderr for w in words) and "HostTensor" not in done.stderr, f"predict of {feed}: {done}")
    done = belfry("predict", "run", "--feed", "photos/dark/00.png", "x.bmp")
    expect(done.returncode == 1 and "x.bmp: is a BMP picture" in done.stderr, f"a BMP beside a PNG: {done}")
    done = belfry("predict", "net.onnx", "--feed", "bytes.npy")
    expect(done.returncode == 1 and "ONNX file, which is not read" in done.stderr, f"a net of ONNX: {done}")
    done = belfry("show", "run", "--memory")
    expect(done.returncode == 2 and "belfry place run -o plan.json" in done.stderr, f"show --memory of a run: {done}")


def check_digits(folder, belfry):
    belfry("data", "digits", "--out", "digits", "--train", "256", "--test", "64")
    train = ["train", "mnist_cnn", "--data", "digits", "--batch", "16", "--epochs", "2", "--checkpoints", "run/ck", "--out", "run"]
    done = belfry(*train, "--devices", "cpu:0,cpu:1")
    said = done.stderr.splitlines()
    preface = next((k for k, line in enumerate(said) if line.startswith("Epoch")), 99)
    expect(done.returncode == 0 and preface <= 8 and said[0].startswith("mnist_cnn: strategy towers") and said[1].startswith("memory planned: cpu:0 "), f"what train begins with: {said[:12]}")
    accuracy = float(re.search(r"test accuracy ([\d.]+) %", done.stdout)[1]) / 100
    said = belfry("train", "mlp", "--data", "digits", "--steps", "1", "--strategy", "auto", "--devices", "cpu:0,cpu:1").stderr.splitlines()
    expect(said[0].startswith("chosen by forecast: ") and re.fullmatch(r"and \d+ more: --verbose", said[5]) and said[6].startswith("mlp: strategy"), f"what train --strategy auto begins with: {said[:9]}")
    done = belfry("train", "mlp", "--data", "digits", "--steps", "1", "--verbose")
    expect(done.returncode == 0 and "arithmetic hash" in done.stderr and "allocated" in done.stderr, f"train --verbose: {done.stderr}")

    # Bytes of any name are what the run's pixels make of them; floats go in as they are.
    pixels = (folder / "digits/t10k-images-idx3-ubyte").read_bytes()[16:]
    labels = (folder / "digits/t10k-labels-idx1-ubyte").read_bytes()[8:]
    (folder / "bytes.npy").write_bytes(npy("|u1", (64, 28, 28), pixels))
    (folder / "floats.npy").write_bytes(npy("<f4", (64, 28, 28, 1), struct.pack(f"<{len(pixels)}f", *[struct.unpack("<f", struct.pack("<f", p / 255))[0] for p in pixels])))
    outs = []
    for kind in ("bytes", "floats"):
        done = belfry("predict", "run", "--feed", f"{kind}.npy", "--out", f"{kind}.safetensors", "--top", "1")
        expect(done.returncode == 0 and "weights of run/state.safetensors" in done.stderr and "as they are" not in done.stderr, f"predict of {kind}: {done}")
        outs.append((folder / f"{kind}.safetensors").read_bytes())
        right = sum(int(re.search(r"class (\d)", line)[1]) == label for line, label in zip(done.stdout.splitlines(), labels))
        expect(abs(right / 64 - accuracy) < 1e-4, f"{kind}: {right} of 64 are right, and {accuracy} of the evaluation")
    expect(outs[0] == outs[1], "bytes and floats give other scores")
    # A pixel a column is the same bytes.
    (folder / "flat.npy").write_bytes(npy("|u1", (64, 784), pixels))
    done = belfry("predict", "run", "--feed", "flat.npy", "--out", "flat.safetensors")
    expect(done.returncode == 0 and (folder / "flat.safetensors").read_bytes() == outs[0], f"bytes with a pixel a column: {done.stderr}")
    with zipfile.ZipFile(folder / "flat.npz", "w") as feeds:
        feeds.writestr("image.npy", (folder / "flat.npy").read_bytes())
    done = belfry("predict", "run", "--feed", "flat.npz", "--out", "flat.safetensors")
    expect(done.returncode == 0 and (folder / "flat.safetensors").read_bytes() == outs[0], f"bytes with a pixel a column in a .npz: {done.stderr}")
    check_places(folder, belfry, pixels, labels, accuracy)
    (folder / "wide.npy").write_bytes(npy("<f4", (64, 28, 28, 1), struct.pack(f"<{len(pixels)}f", *pixels)))
    done = belfry("predict", "run", "--feed", "wide.npy", "--top", "1")
    expect(done.returncode == 0 and "0 to 255 and go in as they are" in done.stderr, f"numbers of 0 to 255 into a net that knows 0 to 1: {done.stderr}")
    done = belfry("predict", "run", "--feed", "photos", "--fetch", "acuracy")
    expect(done.returncode == 1 and "no value 'acuracy' to fetch" in done.stderr and "did you mean accuracy" in done.stderr, f"a name to fetch that is none: {done}")
    done = belfry("predict", "mnist_cnn", "--feed", "bytes.npy", "--top", "1")
    expect(done.returncode == 0 and "0 to 255; --rescale says otherwise" in done.stderr, f"bytes into a net that no run describes: {done}")

    # A training that has not ended is served from its newest checkpoint, whose slots stay behind.
    record = json.loads((folder / "run/run.json").read_text(encoding="utf-8"))
    record.pop("state")
    (folder / "run/run.json").write_text(json.dumps(record), encoding="utf-8")
    done = belfry("predict", "run", "--feed", "bytes.npy", "--out", "last.safetensors")
    expect(done.returncode == 0 and "weights of run/ck/step-00000032.safetensors" in done.stderr and (folder / "last.safetensors").read_bytes() == outs[0], f"a run that has not ended: {done.stderr}")

    # What lies there of an earlier training is not this one's; what needs no weights does without.
    record.pop("checkpoints")
    (folder / "run/run.json").write_text(json.dumps(record), encoding="utf-8")
    for verb in (["predict", "run", "--feed", "bytes.npy"], ["evaluate", "run", "--data", "digits"]):
        done = belfry(*verb)
        expect(done.returncode == 1 and "has not ended" in done.stderr and "--state run/state.safetensors takes that" in done.stderr, f"{verb} of a run without weights: {done}")
    for verb in (["show", "run"], ["place", "run"], ["forecast", "run"], ["predict", "run", "--feed", "bytes.npy", "--state", "run/state.safetensors"]):
        done = belfry(*verb)
        expect(done.returncode == 0 and done.stdout, f"{verb} of a run without weights: {done.stderr}")
    record["state"] = "state.safetensors"
    (folder / "run/run.json").write_text(json.dumps(record), encoding="utf-8")
    done = belfry("place", "serve.json", "--move", "**=cpu:1") if belfry("place", "run", "--inference", "-o", "serve.json").returncode == 0 else None
    expect(done and done.returncode == 1 and "a plan keeps those that it has" in done.stderr, f"a device that a plan has not: {done}")

    # A plan that serves: smaller, without labels, and run as it stands.
    for name, more in (("train.json", []), ("serve.json", ["--inference"])):
        expect(belfry("place", "run", "--batch", "64", "-o", name, *more).returncode == 0, f"place {name}")
    plans = [json.loads((folder / name).read_text(encoding="utf-8")) for name in ("train.json", "serve.json")]
    expect([len(p["inputs"]) for p in plans] == [2, 1] and not any("adam" in v["name"] for v in plans[1]["variables"]), "a plan for inference has labels or slots")
    seconds = []
    for more in ([], ["--inference"]):
        facts = json.loads(belfry("forecast", "run", "--batch", "64", "--json", *more).stdout)
        seconds.append(facts["seconds"])
    expect(0 < seconds[1] < 0.7 * seconds[0], f"forecasts of a step and of a batch served: {seconds}")
    done = belfry("predict", "serve.json", "--feed", "floats.npy", "--state", "run/state.safetensors", "--out", "planned.safetensors")
    expect(done.returncode == 0 and "not the plan that was given" not in done.stderr and (folder / "planned.safetensors").read_bytes() == outs[0], f"a plan that serves: {done}")
    done = belfry("show", "run", "--inference")
    expect(done.returncode == 0 and "label" not in done.stdout and "image" in done.stdout, f"show --inference: {done.stdout[:300]}")
    done = belfry("bench", "run", "--inference", "--batch", "4", "--towers", "1", "--rounds", "2")
    expect(done.returncode == 0 and "a batch served (" in done.stdout, f"bench --inference: {done}")
    done = belfry("show", "serve.json", "--inference")
    expect(done.returncode == 2 and "is a plan" in done.stderr, f"show --inference of a plan: {done}")
    problem = [json.loads(line) for line in re.findall(r'^ *(\{"name": .*?\}),?$', belfry("place", "run", "--inference", "--batch", "64", "--problem").stdout, re.M) if "assigned" in line]
    done = belfry("forecast", "run", "--inference", "--batch", "64", "--jsonl", text=f"{[0] * len(problem)}\n")
    expect(len(problem) > 5 and not any("label" in n["name"] or "adam" in n["name"] for n in problem), f"a problem of what serves: {problem}")
    expect(done.returncode == 0 and abs(json.loads(done.stdout).get("step_seconds", 0) / seconds[1] - 1) < 1e-9, f"a score of what serves: {done}, not {seconds[1]}")

    # Outputs and arrays of 16 bits: their classes, and where they are no number.
    for dtype in ("f16", "bf16"):
        cast = {"belfry": 1, "name": "cast", "inputs": [{"name": "x", "dtype": "f32", "shape": ["batch", 3]}],
                "nodes": [{"name": "y", "op": "cast", "inputs": ["x"], "attributes": {"dtype": dtype}}], "outputs": ["y"]}
        (folder / "cast.json").write_text(json.dumps(cast), encoding="utf-8")
        (folder / "rows.npy").write_bytes(npy("<f4", (2, 3), struct.pack("<6f", 1, 3, 2, 0.5, float("nan"), 4)))
        done = belfry("predict", "cast.json", "--feed", "rows.npy", "--top", "2", "--json")
        best = [[one["class"] for one in row] for row in json.loads(done.stdout or '{"outputs": {"y": []}}')["outputs"]["y"]]
        expect(done.returncode == 0 and best == [[1, 2], [2, 0]] and "'y' is no number (nan)" in done.stderr, f"predict of {dtype}: {done}")
    with zipfile.ZipFile(folder / "halves.npz", "w") as halves:
        halves.writestr("x.npy", npy("<f2", (4,), struct.pack("<4e", 0.5, 1.5, 2.5, 3.5)))
    done = belfry("data", "inspect", "halves.npz", "--json")
    column = json.loads(done.stdout or '{"splits": {"all": {"columns": {"x": {}}}}}')["splits"]["all"]["columns"]["x"]
    expect(done.returncode == 0 and column.get("mean") == [2] and "classes" not in column, f"data inspect of halves: {done}")

    # Runs: the steps that were done beside those that were asked for.
    expect(belfry("train", "mlp", "--data", "digits", "--steps", "40", "--batch", "16", "--out", "asked").returncode == 0, "a run of 40 steps")
    lines = [re.split(r"  +", line) for line in belfry("runs", "run", "asked").stdout.splitlines()[1:]]
    column = lines[0].index("steps")
    expect([row[column] for row in lines[1:]] == ["32", "40"] and "--steps" in lines[0], f"runs: {lines}")

    # An evaluation's trace says what to do.
    with zipfile.ZipFile(folder / "feeds.npz", "w") as feeds:
        feeds.writestr("image.npy", (folder / "floats.npy").read_bytes())
        feeds.writestr("label.npy", npy("<i4", (64,), struct.pack("<64i", *labels)))
    done = belfry("run", "train.json", "--feed", "feeds.npz", "--trace", "evaluation.json")
    expect(done.returncode == 0 and "--steps 1 traces the step" in done.stderr, f"an evaluation's trace: {done}")
    done = belfry("show", "train.json", "--timeline", "--trace", "evaluation.json")
    expect(done.returncode == 1 and "run --steps 1 --trace" in done.stderr, f"a timeline of an evaluation: {done}")

    # Arrays of bytes are told of.
    (folder / "grey").mkdir()
    for split, n in (("train", 32), ("val", 16)):
        (folder / "grey" / split).mkdir()
        (folder / f"grey/{split}/image.npy").write_bytes(npy("|u1", (n, 28, 28), pixels[:n * 784]))
        (folder / f"grey/{split}/label.npy").write_bytes(npy("|u1", (n,), labels[:n]))
    done = belfry("train", "mlp", "--data", "grey", "--steps", "1")
    expect(done.returncode == 0 and "0 to 255" in done.stderr and "--rescale 1/255" in done.stderr, f"pictures of bytes: {done.stderr}")
    expect("0 to 255" not in belfry("train", "mlp", "--data", "grey", "--steps", "1", "--rescale", "1/255").stderr, "rescaled pictures are told of")


def check_clusters(belfry):
    names = sorted(p.stem for p in (root / "clusters").glob("*.json"))
    text = re.sub(r"\s+", " ", belfry("forecast", "--help").stdout)
    expect(len(names) > 7 and all(name in text for name in names), f"forecast --help does not list {names}")
    one, two, three = (belfry("forecast", "mlp", "--batch", "64", "--strategy", "mirrored", "--json", "--cluster", c).stdout for c in ("h100x8", "8xh100", str(root / "clusters/h100x8.json")))
    expect(one and one == two == three, "a cluster by its name is not that of its file")
    done = belfry("forecast", "mlp", "--cluster", "h100x9")
    expect(done.returncode == 2 and "did you mean h100x8" in done.stderr, f"a cluster that nobody knows: {done}")


with tempfile.TemporaryDirectory() as name:
    here = pathlib.Path(name)

    def run_here(*arguments, text=""):
        return subprocess.run([program, *arguments], cwd=here, capture_output=True, text=True, input=text)

    check_photos(here, run_here)
    check_digits(here, run_here)
    check_clusters(run_here)

print("\n".join(objections))
sys.exit(1 if objections else 0)
