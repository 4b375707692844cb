"""Data from outside: fetched from a server of its own, inspected, and trained on from folders of pictures and from arrays. Argument: the program."""

import hashlib
import http.server
import io
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
import zlib

program = str(pathlib.Path(sys.argv[1]).resolve())
objections = []


def expect(condition, text):
    if not condition:
        objections.append(text)


def belfry(folder, *arguments):
    environment = dict(os.environ, no_proxy="127.0.0.1", NO_PROXY="127.0.0.1")
    return subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment)


def png(width, height, value):
    """Grey, a byte per pixel."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes(value(x, y) for x in range(width)) for y in range(height))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


class Server(http.server.BaseHTTPRequestHandler):
    files, asked = {}, []

    def do_GET(self):
        self.asked.append(self.path)
        data = self.files.get(self.path)
        self.send_response(200 if data is not None else 404)
        self.send_header("Content-Length", str(len(data or b"")))
        self.end_headers()
        self.wfile.write(data or b"")

    def log_message(self, *words):
        pass


def check_fetch(folder):
    if not shutil.which("curl"):
        print("without curl nothing is fetched")
        return
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        member = tarfile.TarInfo("inner/data_batch_1.bin")
        member.size = 3073
        tar.addfile(member, io.BytesIO(bytes(3073)))
    plain = bytes(range(256)) * 1000
    server = http.server.HTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    root = f"http://127.0.0.1:{server.server_port}"
    Server.files = {"/plain.bin": plain, "/packed.tar.gz": packed.getvalue(), "/other.bin": plain[:-1] + b"?"}

    def entry(name, data, urls, **more):
        return {"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "urls": urls, **more}

    sets = {"small": {"files": [entry("plain.bin", plain, [root + "/nothing.bin", root + "/plain.bin"]), entry("packed.tar.gz", packed.getvalue(), [root + "/packed.tar.gz"], unpack=True)]},
            "wrong": {"files": [entry("other.bin", plain, [root + "/other.bin"])]}, "gone": {"files": [entry("plain.bin", plain, ["http://127.0.0.1:1/plain.bin"])]}}
    (folder / "list.json").write_text(json.dumps(sets))
    done = belfry(folder, "data", "fetch", "small", "--list", "list.json")
    expect(done.returncode == 0 and sorted(os.listdir(folder / "small")) == ["data_batch_1.bin", "packed.tar.gz", "plain.bin"], f"fetch small: {done.stderr}")
    expect((folder / "small" / "plain.bin").read_bytes() == plain and Server.asked == ["/nothing.bin", "/plain.bin", "/packed.tar.gz"], f"fetch small asked {Server.asked}")
    done = belfry(folder, "data", "fetch", "small", "--list", "list.json", "--json")
    expect(done.returncode == 0 and "plain.bin is there already" in done.stderr and len(Server.asked) == 3, f"fetch small again: {done.stderr}, {Server.asked}")
    files = [{key: one[key] for key in ("name", "bytes", "sha256")} for one in sets["small"]["files"]]
    expect(json.loads(done.stdout) == {"name": "small", "data": "small", "files": files}, f"fetch --json: {done}")
    done = belfry(folder, "data", "fetch", "wrong", "--list", "list.json")
    expect(done.returncode == 1 and "/other.bin: sha256 " in done.stderr and os.listdir(folder / "wrong") == [], f"a wrong checksum: {done.stderr}")
    done = belfry(folder, "data", "fetch", "gone", "--list", "list.json", "--out", "away")
    expect(done.returncode == 1 and "plain.bin cannot be had" in done.stderr and "127.0.0.1" in done.stderr and "a network here" in done.stderr and "by hand" in done.stderr, f"no network: {done.stderr}")
    done = belfry(folder, "data", "fetch", "mnits")
    expect(done.returncode == 2 and "did you mean mnist" in done.stderr and "cifar10" in done.stderr, f"an unknown name: {done.stderr}")
    (folder / "bad.json").write_text('{"small": {"files": [{"name": "../x", "bytes": 1, "sha256": "", "urls": []}]}}')
    done = belfry(folder, "data", "fetch", "small", "--list", "bad.json")
    expect(done.returncode == 1 and "'../x' is no name of a file" in done.stderr, f"a name that leads away: {done.stderr}")
    server.shutdown()


def check_photos(folder):
    photos = folder / "photos"
    for part, count in (("train", 20), ("val", 6)):
        for k in range(count):
            for name, low in (("dark", 20), ("light", 150)):
                path = photos / part / name / f"{k:02}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(png(30 + k % 3, 29, lambda x, y: low + (x * 3 + y * (k + 1)) % 80))
    done = belfry(folder, "data", "inspect", "photos", "--json")
    facts = json.loads(done.stdout or "{}")
    expect(facts.get("kind") == "photos" and facts["classes"] == ["dark", "light"], f"inspect: {done}")
    train = facts["splits"]["train"]["columns"]
    expect(train["image"]["shape"] == [40, 29, 32, 3] and train["image"]["least_size"] == [29, 30] and train["label"]["classes"] == {"0": 20, "1": 20}, f"inspect: {train}")
    expect(0.2 < train["image"]["mean"][0] < 0.8, f"inspect: {train}")
    done = belfry(folder, "data", "inspect", "photos")
    expect(done.returncode == 0 and "0 (dark) 20, 1 (light) 20" in done.stdout, f"inspect: {done.stdout}")

    arguments = ["train", "mnist_cnn", "--data", "photos", "--rescale", "1/255", "--distort", "shear=5,zoom=0.1,crop=2,flip=1,brightness=5,contrast=0.1", "--shuffle", "--batch", "8", "--epochs", "20", "--towers", "2"]
    states = []
    for devices in ("cpu:0", "cpu:0,cpu:1"):
        done = belfry(folder, *arguments, "--devices", devices, "--out", "run" + devices, "--checkpoints", "ck" + devices)
        expect(done.returncode == 0 and "test accuracy 100.00 %" in done.stdout, f"training on photos: {done.stdout} {done.stderr[-400:]}")
        states.append((folder / ("run" + devices) / "state.safetensors").read_bytes())
    expect(states[0] == states[1], "distorted photos: two towers on one device and on two end with other bits")
    again = [a.replace("crop=2", "crop=3") for a in arguments]
    done = belfry(folder, *again, "--devices", "cpu:0", "--checkpoints", "ckcpu:0")
    expect(done.returncode == 1 and "is of another run" in done.stderr and "crop=3" in done.stderr, f"other distortions of one run: {done.stderr}")
    for words, wanted in ((["--distort", "blur=1"], "there is no distortion 'blur'"), (["--rescale", "1/"], "a scale and perhaps an offset"), (["--shard", "2/2"], "I/N is expected"), (["--drop-last", "--full-batches"], "excludes")):
        done = belfry(folder, "train", "mnist_cnn", "--data", "photos", *words)
        expect(done.returncode and wanted in done.stderr, f"{words}: {done.stderr}")
    # Class folders alone: a part is held out by --hold-out, and evaluated are all of them; their order is shuffled unless somebody says otherwise.
    done = belfry(folder, "train", "mnist_cnn", "--data", "photos/train", "--hold-out", "0.3", "--epochs", "1", "--out", "held")
    said = re.search(r"(\d+) rows of 40 are held out to test on", done.stderr)
    expect(done.returncode == 0 and said and 4 <= int(said[1]) <= 20 and "photos come in another order in each epoch" in done.stderr, f"held out of class folders: {done.stderr[-600:]}")
    expect(json.loads((folder / "held/run.json").read_text())["shuffle"] is True, "photos are shuffled, and run.json does not say so")
    (photos / "train" / "dark" / "a.heic").write_bytes(b"?")
    done = belfry(folder, "train", "mnist_cnn", "--data", "photos", "--steps", "1", "--no-shuffle")
    expect("1 file in the class folders is no .jpg, .jpeg or .png and passed over: photos/train/dark/a.heic" in done.stderr, f"pictures that are not read: {done.stderr[-600:]}")
    expect(done.returncode == 0 and "sorted by their labels" in done.stderr, f"photos class by class: {done.stderr[-600:]}")
    done = belfry(folder, "evaluate", "held", "--data", "photos/val")
    expect(done.returncode == 0 and "all 12 rows are evaluated" in done.stderr and "of 12 rows" in done.stderr, f"class folders alone, evaluated: {done}")
    done = belfry(folder, "evaluate", "held", "--data", "photos/train")
    expect(done.returncode == 0 and said and f"of {said[1]} rows" in done.stderr, f"the part that a run held out: {done}")
    for k in range(2, 12):
        path = photos / "train" / f"class{k:02}" / "0.png"
        path.parent.mkdir()
        shutil.copy(photos / "train" / "dark" / "00.png", path)
    done = belfry(folder, "train", "mnist_cnn", "--data", "photos", "--batch", "8", "--out", "many")
    expect(done.returncode == 1 and "there are 12 classes, and the net tells 10 apart" in done.stderr and "Epoch" not in done.stderr, f"more classes than outputs: {done}")
    done = belfry(folder, "train", "mnist_cnn", "--data", "photos", "--out", "photos/run")
    expect(done.returncode == 1 and "--out photos/run: lies in the folder of the data" in done.stderr, f"a run among the photos: {done}")
    for k in range(2, 12):
        shutil.rmtree(photos / "train" / f"class{k:02}")
    victim = photos / "train" / "dark" / "03.png"
    victim.write_bytes(victim.read_bytes()[:60])
    done = belfry(folder, "data", "inspect", "photos")
    expect(done.returncode == 1 and "03.png: cannot be read as a PNG photo" in done.stderr, f"a damaged photo: {done}")


def check_links(folder):
    """Links that lead back to themselves: place, what is wrong, and the way out."""
    for link in ("looped/train", "words/a.txt", "round"):
        (folder / link).parent.mkdir(exist_ok=True)
        (folder / link).symlink_to((folder / link).name)
    (folder / "looped/a").mkdir()
    (folder / "looped/a/0.png").write_bytes(png(28, 28, lambda x, y: x))
    for name, code, wanted in (("looped", 1, ("looped/train: cannot be looked at: ", "remove it")), ("words", 1, ("words/a.txt: cannot read: ", "the link leads back to itself")), ("round", 1, ("round is a link that leads nowhere", "name the folder or file"))):
        for verb in (["data", "inspect"], ["data", "inspect", "--json"], ["train", "mlp", "--data"])[:3 if name == "round" else 2]:
            done = belfry(folder, *verb, name)
            expect(done.returncode == code and not done.stdout and all(words in done.stderr for words in wanted) and "filesystem error" not in done.stderr, f"a link in a loop: {done}")


def check_tables(folder):
    """Digits in tables: what other programs write, and runs that are not mixed up."""
    names = ["label"] + [f"pixel{k}" for k in range(784)]
    rows = [[k % 2] + [(k % 2) * 150 + (j * (k + 1)) % 60 for j in range(784)] for k in range(40)]

    def table(name, names, rows, comma=","):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("\n".join(comma.join(str(x) for x in row) for row in ([names] if names else []) + rows) + "\n")

    table("table.csv", names, rows)
    table("sorted.csv", names, sorted(rows))

    def train(*more, data="table.csv", part="0.25"):
        return belfry(folder, "train", "mlp", "--data", data, "--hold-out", part, "--batch", "4", "--quiet", "--checkpoints", "tck", *more)

    done = train("--rescale", "1/255", "--epochs", "1", "--out", "tab")
    expect(done.returncode == 0, f"training on a table: {done}")
    for done, wanted in ((train(), "pixels: "), (train("--rescale", "1/255", part="0.3"), "held out: 0.25 there, 0.3 here"), (train("--rescale", "1/255", data="sorted.csv"), "values of the data: ")):
        expect(done.returncode == 1 and "is of another run" in done.stderr and wanted in done.stderr, f"checkpoints of other data: {done}")
    done = train("--out", "tab")
    expect(done.returncode == 1 and "or replace that run with --overwrite" in done.stderr, f"the ways out: {done}")
    done = belfry(folder, "train", "mlp", "--data", "table.csv", "--hold-out", "0.25", "--epochs", "1", "--steps", "2")
    expect(done.returncode == 2 and "leave one out" in done.stderr, f"epochs and steps: {done}")
    done = belfry(folder, "train", "mlp", "--data", "table.csv", "--resume", "tck")
    expect(done.returncode and "tck/step-" in done.stderr, f"a folder to resume from: {done}")
    done = belfry(folder, "train", "mlp", "--data", "table.csv", "--rescal", "1/255")
    expect(done.returncode == 2 and "did you mean --rescale" in done.stderr, f"an option that is none: {done}")

    # The scale is the run's; a table is fed as bytes.
    belfry(folder, "data", "digits", "--out", "drawn", "--train", "40", "--test", "20")
    done = belfry(folder, "evaluate", "tab", "--data", "drawn")
    expect(done.returncode == 0 and "of 20 rows" in done.stderr, f"a run with a scale on MNIST's files: {done}")
    belfry(folder, "train", "mlp", "--data", "drawn", "--epochs", "1", "--quiet", "--out", "mn")
    done = belfry(folder, "evaluate", "mn", "--data", "table.csv")
    expect(done.returncode == 0 and "--rescale 1/255 does that here" in done.stderr, f"a run on MNIST's files on pixels that are not scaled: {done}")
    done = belfry(folder, "predict", "tab", "--feed", "table.csv", "--top", "1")
    expect(done.returncode == 0 and len(done.stdout.splitlines()) == 40, f"predict of a table: {done}")
    done = belfry(folder, "run", "mlp", "--feed", "table.csv")
    expect(done.returncode == 1 and "table.csv: is a table, and feeds are read here from .safetensors, .npz and .npy" in done.stderr, f"run of a table: {done}")
    (folder / "loose").mkdir()
    (folder / "loose" / "a.png").write_bytes(png(28, 28, lambda x, y: x))
    done = belfry(folder, "predict", "tab", "--feed", "loose")
    expect(done.returncode == 0 and "loose/a.png: class " in done.stdout and done.stdout.count("class") == 3, f"scores of a picture: {done}")

    done = belfry(folder, "data", "inspect", "table.csv")
    expect(done.returncode == 0 and "pixel0 … pixel783  784 columns" in done.stdout and "0 20, 1 20" in done.stdout and len(done.stdout.splitlines()) == 4, f"inspect of a table: {done}")
    table("semi.csv", names, rows, ";")
    table("bare.csv", None, rows)
    table("digit.csv", ["Digit"] + names[1:], rows)
    table("kaggle/train.csv", names, rows)
    table("kaggle/test.csv", names[1:], [row[1:] for row in rows])
    for name, wanted in (("semi.csv", "semicolons"), ("bare.csv", "where the names of the columns are expected"), ("digit.csv", "if 'Digit' is the label, name it 'label'"), ("kaggle", "--data kaggle/train.csv --hold-out 0.2")):
        done = belfry(folder, "train", "mlp", "--data", name, *([] if name == "kaggle" else ["--hold-out", "0.2"]), "--out", "mended")
        expect(done.returncode == 1 and wanted in done.stderr and len(done.stderr) < 700, f"{name}: {done}")
    for low, wanted, unwanted in ((-1, ": number the classes from 0 on\n", "classes="), (9, "number the classes from 0 on, or take one with as many outputs", "classes=10)")):
        table("low.csv", names, [[row[0] + low] + row[1:] for row in rows])
        done = belfry(folder, "train", "mlp", "--data", "low.csv", "--hold-out", "0.2")
        expect(done.returncode == 1 and wanted in done.stderr and unwanted not in done.stderr, f"labels from {low} on: {done}")
    # Words for classes: sorted by name, and known to what serves the run.
    table("words.csv", names, [["dog" if row[0] else "cat"] + row[1:] for row in rows])
    done = belfry(folder, "train", "mlp", "--data", "words.csv", "--hold-out", "0.25", "--rescale", "1/255", "--batch", "4", "--epochs", "3", "--out", "worded")
    expect(done.returncode == 0 and "test accuracy 100.00 %" in done.stdout and json.loads((folder / "worded/run.json").read_text())["classes"] == ["cat", "dog"], f"training on words for classes: {done}")
    done = belfry(folder, "predict", "worded", "--feed", "words.csv", "--top", "1")
    expect(done.returncode == 0 and done.stdout.count("dog") == 20 and done.stdout.count("cat") == 20, f"predict names classes that were words: {done}")
    done = belfry(folder, "evaluate", "worded", "--data", "words.csv")
    expect(done.returncode == 0 and "accuracy 1.0" in done.stdout, f"evaluate on words: {done}")
    done = belfry(folder, "data", "inspect", "words.csv")
    expect(done.returncode == 0 and "0 (cat) 20, 1 (dog) 20" in done.stdout, f"inspect of words: {done}")
    # Columns are read by name: of a run's, a checkpoint's and those to train on, wherever they stand in another table.
    order = [0] + list(range(len(names) - 1, 0, -1))
    table("turned.csv", [names[k] for k in order], [["dog" if row[0] else "cat"] + [row[k] for k in order[1:]] for row in rows])
    expect(json.loads((folder / "worded/run.json").read_text())["features"] == names[1:], "run.json does not say which columns the net learnt from")
    for verb, data, *more in (("predict", "--feed", "--fetch", "dense_2/bias_add"), ("evaluate", "--data", "--hold-out", "0.25")):
        one, other = (belfry(folder, verb, "worded", data, f, *more) for f in ("words.csv", "turned.csv"))
        expect(one.returncode == 0 and one.stdout == other.stdout, f"{verb} of columns in another order: {one} {other}")
    one, other = (belfry(folder, "predict", "mlp", "--state", "worded/state.safetensors", "--feed", f, "--fetch", "dense_2/bias_add") for f in ("words.csv", "turned.csv"))
    expect(one.returncode == 0 and one.stdout == other.stdout, f"predict --state of columns in another order: {one.stdout[:300]} {other}")
    half = ["train", "mlp", "--hold-out", "0.25", "--rescale", "1/255", "--batch", "4"]
    done = belfry(folder, *half, "--data", "words.csv", "--epochs", "1", "--checkpoints", "wck")
    expect(done.returncode == 0, f"a checkpoint: {done.stderr[-400:]}")
    last = sorted((folder / "wck").glob("step-*"))[-1]
    ends = [belfry(folder, *half, "--data", f, "--epochs", "2", "--resume", str(last), "--json") for f in ("words.csv", "turned.csv")]
    means = [json.loads(done.stdout or "{}").get("means") for done in ends]
    expect(means[0] and means[0] == means[1], f"--resume of columns in another order: {ends}")
    done = belfry(folder, *half, "--data", "turned.csv", "--epochs", "2", "--checkpoints", "wck")
    expect(done.returncode == 1 and "features: " in done.stderr, f"the folder of checkpoints of another order of columns: {done.stderr[-600:]}")
    # What asks for no more leaves a run as it is.
    whole = ["train", "mlp", "--data", "words.csv", "--hold-out", "0.25", "--rescale", "1/255", "--batch", "4", "--epochs", "2", "--out", "ended", "--checkpoints", "eck"]
    done = belfry(folder, *whole)
    before = (folder / "ended/run.json").read_bytes()
    whole[whole.index("--epochs") + 1] = "1"
    done = belfry(folder, *whole, "--state", "worded/state.safetensors")
    expect(done.returncode == 0 and "asks for no more" in done.stderr and "--state worded/state.safetensors: does nothing here" in done.stderr, f"no more to do: {done}")
    expect((folder / "ended/run.json").read_bytes() == before, "a command that asks for no more changed run.json")
    # Names of classes stay apart where they have commas, and short in a line.
    (folder / "commas.csv").write_text((folder / "words.csv").read_text().replace("dog", '"dog, small"').replace("cat", "c" * 1000))
    done = belfry(folder, "data", "inspect", "commas.csv")
    expect(done.returncode == 0 and f'0 ({"c" * 80}…) 20, 1 ("dog, small") 20' in done.stdout, f"inspect of long names and names with commas: {done}")
    # Control characters of classes are shown, not obeyed.
    (folder / "escape.csv").write_text((folder / "words.csv").read_text().replace("dog", "\x1b[31mdog"))
    done = belfry(folder, "data", "inspect", "escape.csv")
    expect(done.returncode == 0 and "(\\x1b[31mdog) 20" in done.stdout and "\x1b" not in done.stdout, f"inspect of words with control characters: {done}")
    shutil.copytree(folder / "worded", folder / "escaped")
    (folder / "escaped/run.json").write_text((folder / "worded/run.json").read_text().replace('"dog"', '"\\u001b[31mdog"'))
    done = belfry(folder, "predict", "escaped", "--feed", "table.csv", "--top", "1")
    expect(done.returncode == 0 and done.stdout.count("\\x1b[31mdog") == 20 and "\x1b" not in done.stdout, f"predict of classes with control characters: {done}")
    table("species.csv", ["species"] + names[1:], [["dog"] + row[1:] for row in rows])
    done = belfry(folder, "train", "mlp", "--data", "species.csv", "--hold-out", "0.25")
    expect(done.returncode == 1 and "words are read as classes in a column 'label': name it so" in done.stderr, f"words in another column: {done}")
    # What fails before the first step leaves no run behind.
    table("short.csv", names[:-1], [row[:-1] for row in rows])
    done = belfry(folder, "train", "mlp", "--data", "short.csv", "--hold-out", "0.2", "--out", "mended")
    expect(done.returncode == 1, f"a pixel too few: {done}")
    done = belfry(folder, "train", "mlp", "--data", "table.csv", "--hold-out", "0.2", "--steps", "2", "--out", "mended")
    expect(done.returncode == 0, f"the command that is put right: {done}")


def check_arrays(folder):
    try:
        import numpy
    except ImportError:
        print("without numpy, arrays are left to frontends_test")
        return
    label = numpy.arange(40) % 2
    image = (label[:, None, None] * 150 + numpy.arange(28 * 28).reshape(28, 28) % 60).astype(numpy.uint8)
    numpy.savez_compressed(folder / "packed.npz", x_train=image, y_train=label, x_test=image, y_test=label)
    done = belfry(folder, "data", "inspect", "packed.npz")
    expect(done.returncode == 0 and "x  u8(40, 28, 28)" in done.stdout and "2 classes: 0 20, 1 20" in done.stdout, f"inspect: {done}")
    # One part, its pixels flat in an array or a column each: a part is held out, and rows become pictures.
    numpy.savez(folder / "one_hot.npz", x=image, y=numpy.eye(10, dtype="f4")[label.reshape(-1)])
    done = belfry(folder, "train", "mlp", "--data", "one_hot.npz", "--hold-out", "0.2")
    expect(done.returncode == 1 and "one-hot rows become those by argmax(-1)" in done.stderr, f"one-hot labels: {done}")
    numpy.savez(folder / "one.npz", x=image.reshape(40, 784), y=label)
    names = ",".join(["label"] + [f"pixel{k}" for k in range(784)])
    numpy.savetxt(folder / "one.csv", numpy.column_stack([label, image.reshape(40, 784)]), fmt="%d", delimiter=",", header=names, comments="")
    numpy.savez(folder / "wrong.npz", x=image, y=label + 9)
    done = belfry(folder, "train", "mnist_cnn", "--data", "wrong.npz", "--hold-out", "0.3")
    expect(done.returncode == 1 and "'label' has numbers from 9 to 10, and the net tells 10 classes apart" in done.stderr and "Epoch" not in done.stderr, f"labels that no output is for: {done}")
    held = []
    for data in ("one.npz", "one.csv"):
        done = belfry(folder, "train", "mnist_cnn", "--data", data, "--hold-out", "0.3", "--rescale", "1/255", "--batch", "8", "--epochs", "4", "--seed", "1")
        held += re.findall(r"(\d+) rows of 40 are held out", done.stderr) + [done.stdout]
        expect(done.returncode == 0 and "test accuracy 100.00 %" in done.stdout, f"{data}: {done}")
        done = belfry(folder, "train", "mnist_cnn", "--data", data)
        expect(done.returncode == 1 and "comes in one part" in done.stderr and "--hold-out" in done.stderr, f"{data} without a part held out: {done}")
    expect(len(held) == 4 and held[:2] == held[2:], f"the same rows of an array and of a table: {held}")
    done = belfry(folder, "train", "mobilenet_v2:image=32", "--data", "one.csv", "--hold-out", "0.3")
    expect(done.returncode == 1 and "'image' has 3072 values a row" in done.stderr and "784 columns that no input is named after (pixel0 to pixel783)" in done.stderr, f"a table of other pictures: {done}")
    done = belfry(folder, "train", "mnist_cnn", "--data", "packed.npz", "--hold-out", "0.3")
    expect(done.returncode == 1 and "has rows to test on" in done.stderr, f"held out of what has two parts: {done}")
    done = belfry(folder, "train", "mnist_cnn", "--data", "packed.npz", "--rescale", "1/255", "--distort", "zoom=0.1", "--batch", "8", "--epochs", "4")
    expect(done.returncode == 0 and "test accuracy 100.00 %" in done.stdout, f"training on arrays: {done.stdout} {done.stderr[-400:]}")


with tempfile.TemporaryDirectory() as place:
    for check in (check_fetch, check_photos, check_links, check_tables, check_arrays):
        check(pathlib.Path(place))

print("\n".join(objections))
sys.exit(1 if objections else 0)
