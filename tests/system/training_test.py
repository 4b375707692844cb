"""What a person sees of training: the line on a terminal, plain lines elsewhere, runs side by side. Argument: belfry."""

import fcntl
import json
import math
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
import zipfile

program = str(pathlib.Path(sys.argv[1]).resolve())
objections = []


def expect(condition, text):
    if not condition:
        objections.append(text)


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)

    def belfry(*arguments, **options):
        return subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)

    def on_terminal(*arguments, **environment):
        """What stands on a terminal of 80 columns as standard error, bytes as they come."""
        outer, inner = pty.openpty()
        subprocess.run(["stty", "cols", "80"], stdin=inner, check=True)
        process = subprocess.Popen([program, *arguments], cwd=folder, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, stderr=inner, env={**os.environ, "TERM": "xterm", **environment})
        os.close(inner)
        out = b""
        while True:
            try:
                part = os.read(outer, 4096)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            out += part
        os.close(outer)
        expect(process.wait() == 0, f"on a terminal: {arguments}: {out[-800:]}")
        return out.decode()

    done = belfry("data", "digits", "--out", "digits", "--train", "512", "--test", "32", "--json")
    assert done.returncode == 0 and json.loads(done.stdout) == {"data": "digits", "train": 512, "test": 32}, done
    train = ["train", "mnist_cnn", "--data", "digits", "--batch", "16", "--epochs", "2"]
    two = ["--devices", "cpu:0,cpu:1"]
    shown = on_terminal(*train, *two, NO_COLOR="")
    over = [piece for piece in shown.split("\r\x1b[K")[1:] if "\n" not in piece]
    expect(over and all(len(piece) < 80 and re.match(r"Epoch  \d/ 2  +\d+/  32  \d+ img/s", piece) for piece in over if piece), f"lines that are written over: {over[:3]}")
    expect(re.search(r"Epoch  2/ 2  [\d.]+ s  \d+ img/s, x[\d.]+ of one device  accuracy", shown), f"the epoch's line on two devices: {shown[-600:]}")
    for plain in (on_terminal(*train, *two, NO_COLOR="1"), on_terminal(*train, *two, TERM="dumb"), belfry(*train, *two, "--out", "two").stderr):
        expect("\x1b" not in plain and "\r" not in plain.replace("\r\n", "\n") and "Epoch  2/ 2" in plain, f"plain lines: {plain[-600:]}")

    done = belfry("train", "mlp", "--data", "digits", "--batch", "512", "--epochs", "2")
    rates = [float(rate) for rate in re.findall(r"^Epoch  \d/ 2  [\d.]+ s  (\d+) img/s", done.stderr, re.M)]
    expect(len(rates) == 2 and min(rates) > 0, f"epochs of one step have a rate: {done.stderr[-400:]}")

    done = belfry(*train, "--out", "one", "--seed", "3", "--json")
    expect(done.returncode == 0, f"a run folder: {done.stderr[-600:]}")
    # The result for machines has the figures of the log, of the words and of an evaluation.
    result = json.loads(done.stdout)
    log = [line for line in map(json.loads, (folder / "one/log.jsonl").read_text(encoding="utf-8").splitlines()) if "steps" in line]
    expect(len(log) == 2 and all(line[key] == one[key] for line, one in zip(log, result["epochs"]) for key in one) and [one["epoch"] for one in result["epochs"]] == [1, 2], f"epochs of train --json: {result}")
    expect(all(f"val_accuracy {one['val_accuracy']:.4f}" in done.stderr for one in result["epochs"]) and (result["run"], result["rows"], result["steps"]) == ("one", 32, 64), f"train --json: {result} {done.stderr[-400:]}")
    evaluated, words = json.loads(belfry("evaluate", "one", "--data", "digits", "--json").stdout), belfry("evaluate", "one", "--data", "digits").stdout
    expect(evaluated["rows"] == 32 and all(abs(result["means"][name] - mean) < 1e-5 and f"{name} {mean:.6f}\n" in words for name, mean in evaluated["means"].items()), f"means of train --json: {result} {evaluated}")
    written = sorted(p.name for p in (folder / "one").iterdir())
    expect(written == ["graph.json", "log.jsonl", "plan.json", "run.json", "state.safetensors", "tensorboard", "trace.json"], f"a run folder has {written}")
    # A folder whose name is no UTF-8 is shown by its bytes.
    odd = os.fsdecode(b"odd/r\xe9")
    (folder / "odd").mkdir()
    done = belfry("train", "mlp", "--data", "digits", "--batch", "64", "--epochs", "1", "--out", odd, "--json", errors="surrogateescape")
    expect(done.returncode == 0 and json.loads(done.stdout)["run"] == "odd/r\\xe9", f"train --json into a folder that is no UTF-8: {done}")
    done = belfry("runs", odd, "--json", errors="surrogateescape")
    expect(done.returncode == 0 and json.loads(done.stdout)[0]["run"] == "odd/r\\xe9", f"runs --json of a folder that is no UTF-8: {done}")
    # A metric may not have the name of what an epoch says of itself.
    graph = json.loads(belfry("convert", "mlp").stdout)
    metric, value = next(iter(graph["metrics"].items()))
    for name in ("epoch", "steps"):
        (folder / "taken.json").write_text(json.dumps({**graph, "metrics": {**graph["metrics"], name: value}}), encoding="utf-8")
        done = belfry("train", "taken.json", "--data", "digits", "--steps", "1", "--json")
        expect(done.returncode == 1 and not done.stdout and f"the metric '{name}' has the name of what each epoch of --json says" in done.stderr, f"train --json with a metric {name}: {done}")
    expect(belfry("train", "taken.json", "--data", "digits", "--steps", "1").returncode == 0, "train with a metric 'steps' and without --json")
    # Its name goes to no terminal as it is, and what is small or large has its digits.
    sized = [{"name": f"sized_{k}", "op": "constant", "attributes": {"value": {"dtype": "f32", "shape": [], "values": [size]}}} for k, size in enumerate((2.4e-7, 3.4e38))]
    odd = "bold\x1b[1m\nline"
    (folder / "sized.json").write_text(json.dumps({**graph, "nodes": [*graph["nodes"], *sized], "metrics": {odd: value, "tiny": "sized_0", "vast": "sized_1"}}), encoding="utf-8")
    for verb, digits in ((["train", "sized.json", "--data", "digits", "--steps", "2"], 4), (["evaluate", "sized.json", "--data", "digits"], 6)):
        done = belfry(*verb)
        expect(done.returncode == 0 and r"bold\x1b[1m\x0aline " in done.stdout and "\x1b" not in done.stdout + done.stderr, f"a metric's name with control characters: {done}")
        means = json.loads(belfry(*verb, "--json").stdout)["means"]
        for name in ("tiny", "vast"):
            expect(f"{name} {means[name]:.{digits}g}" in done.stdout, f"{name} of {means}: {done.stdout}")
    # Nor is it a vector, or has the name of the loss.
    for name, of, words in (("scores", graph["outputs"][0], "a metric is a scalar, but 'scores' of the graph 'mlp' is"), ("loss", value, "the metric 'loss' of the graph 'mlp' is")):
        (folder / "no_metric.json").write_text(json.dumps({**graph, "metrics": {name: of}}), encoding="utf-8")
        for verb in (["train", "no_metric.json", "--data", "digits", "--steps", "1"], ["evaluate", "no_metric.json", "--data", "digits"]):
            done = belfry(*verb)
            expect(done.returncode == 1 and not done.stdout and words in done.stderr, f"a metric {name}: {done}")
    # Metrics of 16 bits are read as all others are.
    nodes = [*graph["nodes"], {"name": "half", "op": "cast", "inputs": [value], "attributes": {"dtype": "f16"}}]
    (folder / "half.json").write_text(json.dumps({**graph, "nodes": nodes, "metrics": {metric: value, "half": "half"}}), encoding="utf-8")
    for verb in (["train", "half.json", "--data", "digits", "--steps", "2", "--batch", "32"], ["evaluate", "half.json", "--data", "digits"]):
        done = belfry(*verb, "--json")
        means = json.loads(done.stdout or '{"means": {}}')["means"]
        expect(done.returncode == 0 and abs(means["half"] - means[metric]) < 1e-3, f"a metric of f16: {done}")
    done = belfry("runs", "one", "two")
    lines = done.stdout.splitlines()
    expect(done.returncode == 0 and len(lines) == 4 and "net mnist_cnn, data digits, batch 16, epochs 2" in lines[0] and lines[1].split()[:5] == ["run", "seed", "strategy", "devices", "towers"], f"runs: {done}")
    expect(lines[2].split()[:5] == ["one", "3", "single", "cpu:0", "1"] and lines[3].split()[:5] == ["two", "0", "towers", "cpu:0,cpu:1", "2"] and lines[1].endswith("curve of val_loss") and "█" in lines[2], f"runs: {done.stdout}")
    done = belfry("show", "one", "--timeline")
    expect(done.returncode == 0 and "measured: the step of one/trace.json" in done.stderr and "cpu:0" in done.stdout, f"a run's timeline: {done}")
    facts = json.loads(belfry("runs", "--json", ".").stdout)
    expect([f["config"]["seed"] for f in facts] == [3, 0] and all(len(f["epochs"]) == 2 and len(f["steps"]) == 64 for f in facts), "runs --json")
    log = [json.loads(line) for line in (folder / "two/log.jsonl").read_text(encoding="utf-8").splitlines()]
    devices = [[line[f"rows_per_second/cpu:{d}"] for d in (0, 1)] for line in log if "steps" in line]
    expect(all(abs(2 * a / line["rows_per_second"] - 1) < 1e-4 and a == b for (a, b), line in zip(devices, (line for line in log if "steps" in line))), f"throughput by device: {devices}")
    # A plan's run says the plan's own strategy and devices.
    belfry("place", "mlp", "--devices", "sim:0-1", "--strategy", "mirrored", "--batch", "64", "-o", "planned.json")
    done = belfry("train", "planned.json", "--data", "digits", "--steps", "2", "--quiet", "--out", "planned")
    config = json.loads(belfry("runs", "--json", "planned").stdout or "[{}]")[0].get("config", {})
    expect([config.get(key) for key in ("strategy", "devices", "towers")] == ["mirrored", "sim:0-1", 2], f"a run of a plan: {done} {config}")
    done = belfry("runs", "digits")
    expect(done.returncode == 1 and "run.json; belfry train --out makes one" in done.stderr, f"runs of no run: {done}")

    done = belfry("train", "mnist_cnn", "--data", "digits", "--batch", "16", "--epochs", "40", "--patience", "1", "--monitor", "val_accuracy", "--checkpoints", "early")
    stopped = re.search(r"val_accuracy was not better for 1 epoch; the variables are those of epoch (\d+), with ([\d.]+)", done.stderr)
    epochs = re.findall(r"val_accuracy ([\d.]+)", done.stderr)
    expect(done.returncode == 0 and stopped and int(stopped[1]) == len(epochs) - 1 and f"test accuracy {100 * float(stopped[2]):.2f} %" in done.stdout, f"an early stop: {done}")
    again = belfry("train", "mnist_cnn", "--data", "digits", "--batch", "16", "--epochs", "40", "--patience", "1", "--monitor", "val_accuracy", "--checkpoints", "early")
    expect(again.returncode == 0 and "Epoch" not in again.stderr and again.stdout == done.stdout, f"an early stop that is started again: {again}")
    done = belfry("train", "mnist_cnn", "--data", "digits", "--batch", "32", "--checkpoints", "early")
    expect(done.returncode == 1 and "is of another run (batch: 16 there, 32 here)" in done.stderr, f"checkpoints of another run: {done}")

    # A folder has one run: what goes on in it is that run, and --overwrite begins anew, its checkpoints too.
    def mlp(epochs, *more):
        return belfry("train", "mlp", "--data", "digits", "--batch", "64", "--epochs", str(epochs), "--quiet", *more)

    def steps(run, log="log.jsonl"):
        return [json.loads(line)["step"] for line in (folder / run / log).read_text(encoding="utf-8").splitlines() if '"step"' in line]

    own, others = "ck_a/step-00000008.safetensors", "ck_b/step-00000008.safetensors"
    first = mlp(1, "--out", "a", "--checkpoints", "ck_a")
    for done in (first, mlp(1, "--out", "b", "--checkpoints", "ck_b", "--seed", "5")):
        expect(done.returncode == 0, f"a run with checkpoints: {done}")
    for arguments, wanted in ((["--resume", others], "is none of its checkpoints"), (["--checkpoints", "ck_b"], "there is a run already"), (["--resume", own, "--seed", "9"], "is of another run (seed: 0 there, 9 here)"),
                              (["--checkpoints", "ck_b", "--overwrite"], "holds checkpoints of another run than the one in a"), (["--checkpoints", "ck_a", "--overwrite", "--resume", others], "holds checkpoints already")):
        done = mlp(2, "--out", "a", *arguments)
        expect(done.returncode == 1 and wanted in done.stderr, f"two runs in one folder: {arguments}: {done}")
        expect(steps("a") == list(range(1, 9)) and (folder / own).exists() and (folder / others).exists(), f"a run that was refused changed what is there: {arguments}")
    done = mlp(2, "--out", "a", "--resume", own)
    expect(done.returncode == 0 and steps("a") == list(range(1, 17)), f"a run that goes on in its folder: {done} {steps('a')}")
    done = mlp(2, "--out", "a", "--checkpoints", "ck_a")  # whose checkpoints they are is known still
    expect(done.returncode == 0 and sorted(p.name for p in (folder / "ck_a").iterdir()) == ["step-00000008.safetensors", "step-00000016.safetensors"], f"and once more: {done}")
    done = mlp(1, "--out", "a", "--checkpoints", "ck_a", "--overwrite")
    expect(done.returncode == 0 and done.stdout == first.stdout and steps("a") == list(range(1, 9)) and [p.name for p in (folder / "ck_a").iterdir()] == ["step-00000008.safetensors"], f"a run that begins anew: {done}")
    done = mlp(3, "--out", "c", "--resume", own)
    done = belfry("runs", "c")
    expect(done.stdout.splitlines()[-1].split()[:3] == ["c", "3", "24"], f"epochs of a run that went on: {done}")

    # SIGINT and SIGTERM end a training after its step, as --steps would: with a checkpoint, from which the same command goes on to the same bits. The second ends it at once.
    def signalled(arguments, send, *more):
        """Signals once its log has a step; then more, half a second later or more apart."""
        process = subprocess.Popen([program, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        log = folder / arguments[arguments.index("--out") + 1] / "log.jsonl"
        while process.poll() is None and not (log.exists() and log.stat().st_size):
            time.sleep(0.01)
        for one in (send, *more):
            process.send_signal(one)
            if more:
                time.sleep(0.6)
        out, words = process.communicate()
        return subprocess.CompletedProcess(arguments, process.returncode, out, words)

    long = ["train", "mnist_cnn", "--data", "digits", "--batch", "16", "--shuffle", "--epochs"]
    assert belfry(*long, "40", "--out", "straight").returncode == 0
    for sent in (signal.SIGINT, signal.SIGTERM):
        halting = [*long, "100000", "--out", f"halted{sent.value}", "--checkpoints", f"halted{sent.value}/ck"]
        done = signalled(halting, sent)
        taken = steps(f"halted{sent.value}")[-1]
        expect(done.returncode == 128 + sent.value and f"{sent.name} ended the run after {taken} steps, in epoch {(taken - 1) // 32 + 1}: the same command goes on from there" in done.stderr and "test accuracy" in done.stdout, f"a training that {sent.name} ends: {done}")
        expect(any(f"{taken:08}" in p.name for p in (folder / f"halted{sent.value}/ck").iterdir()), f"the checkpoint of the last step: {taken}")
        again = belfry(*long, "40", "--out", f"halted{sent.value}", "--checkpoints", f"halted{sent.value}/ck")
        expect(again.returncode == 0 and (taken >= 1280 or (folder / f"halted{sent.value}/state.safetensors").read_bytes() == (folder / "straight/state.safetensors").read_bytes()), f"goes on from where {sent.name} ended it, {taken} steps: {again.stderr[-300:]}")
    done = signalled([*long, "100000", "--out", "halted"], signal.SIGINT)
    expect(done.returncode == 130 and "its results are those until there" in done.stderr and (folder / "halted/state.safetensors").exists(), f"without checkpoints: {done}")
    done = signalled([*long, "100000", "--out", "halted_anew", "--checkpoints", "halted_anew/ck", "--overwrite"], signal.SIGINT)
    expect(done.returncode == 130 and "the same command without --overwrite goes on from there" in done.stderr, f"with --overwrite: {done}")
    done = signalled([*long, "100000", "--out", "halted_best", "--checkpoints", "halted_best/ck", "--patience", "1000"], signal.SIGTERM)
    taken = max(int(p.stem[5:]) for p in (folder / "halted_best/ck").glob("step-*"))
    expect(done.returncode == 143 and f"SIGTERM ended the run after {taken} steps" in done.stderr, f"with --patience: {taken} {done}")
    # All is written before what was trained is evaluated: a signal there loses nothing.
    assert belfry("data", "digits", "--out", "many", "--train", "64", "--test", "20000").returncode == 0
    process = subprocess.Popen([program, "train", "mlp", "--data", "many", "--epochs", "1", "--out", "written"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    while process.poll() is None and not (folder / "written/trace.json").exists():
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    process.communicate()
    expect((folder / "written/state.safetensors").exists() and belfry("evaluate", "written", "--data", "digits").returncode == 0, "what was trained is lost while it is evaluated")

    # Nor where Ctrl-C has ended who reads the words, as `tee` does.
    process = subprocess.Popen([program, *long, "100000", "--out", "unread", "--checkpoints", "unread/ck"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    while process.poll() is None and not ((folder / "unread/log.jsonl").exists() and (folder / "unread/log.jsonl").stat().st_size):
        time.sleep(0.01)
    process.stderr.close()
    process.send_signal(signal.SIGINT)
    process.stdout.read()
    process.wait()
    expect((folder / "unread/state.safetensors").exists() and any(f"{steps('unread')[-1]:08}" in p.name for p in (folder / "unread/ck").iterdir()), f"a training whose words nobody reads: {process.returncode}")

    with zipfile.ZipFile(folder / "pictures.npz", "w") as arrays:
        for column, descr, shape, bytes_each in (("image", "<f4", (2112, 24, 24, 3), 4), ("label", "<i4", (2112,), 4)):
            header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
            header += " " * (-(len(header) + 11) % 64) + "\n"
            arrays.writestr(f"{column}.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(math.prod(shape) * bytes_each))
    # A step of so large a batch on one thread takes far longer than half a second.
    done = signalled(["train", "cifar10", "--data", "pictures.npz", "--hold-out", "0.03", "--batch", "2048", "--threads-per-tower", "1", "--out", "twice", "--epochs", "1000"], signal.SIGINT, signal.SIGINT)
    expect(done.returncode == -signal.SIGINT and "once more ends it at once" in done.stderr and not (folder / "twice/trace.json").exists(), f"a second one: {done}")

    # Another optimizer on the command line is that of a graph's file.
    assert belfry("convert", "mlp", "-o", "net.json").returncode == 0
    net = json.loads((folder / "net.json").read_text(encoding="utf-8"))
    for options, optimizer in ((["--optimizer", "adam:learning_rate=0.002,amsgrad=true"], {"kind": "adam", "learning_rate": 0.002, "amsgrad": True}), (["--lr", "0.03"], {**net["train"]["optimizer"], "learning_rate": 0.03})):
        net["train"]["optimizer"] = optimizer
        (folder / "net.json").write_text(json.dumps(net), encoding="utf-8")
        for source, more, out in (("mlp", options, "by_option"), ("net.json", [], "by_file")):
            done = belfry("train", source, "--data", "digits", "--batch", "64", "--epochs", "1", "--out", out, "--overwrite", *more)
            expect(done.returncode == 0, f"{source} {more}: {done}")
        expect((folder / "by_option/state.safetensors").read_bytes() == (folder / "by_file/state.safetensors").read_bytes(), f"{options} is not {optimizer}")
    for options, words in ((["--optimizer", "adm"], "did you mean adam"), (["--optimizer", "adam:lr=1"], "did you mean learning_rate?"), (["--optimizer", "adam:beta1=x"], "is a number, not 'x'"), (["--optimizer", "adam:learning_rate=1", "--lr", "1"], "say one thing twice")):
        done = belfry("train", "mlp", "--data", "digits", *options)
        expect(done.returncode == 2 and words in done.stderr, f"{options}: {done}")
    done = belfry("train", "two/plan.json", "--data", "digits", "--lr", "1")
    expect(done.returncode == 2 and "--learning-rate does nothing here: a plan has its precision, optimizer" in done.stderr, f"another rate for a plan: {done}")

    # Begun with what another optimizer left, and told.
    done = belfry("train", "mlp", "--data", "digits", "--batch", "64", "--epochs", "1", "--optimizer", "adam", "--state", "by_file/state.safetensors")
    expect(done.returncode == 0 and "tensors of another training, which are passed over: momentum_m/" in done.stderr, f"another optimizer's state: {done}")
    config = [json.loads((folder / run / "run.json").read_text(encoding="utf-8")) for run in ("by_option", "by_file")]
    expect(config[0]["learning_rate"] == 0.03 and "learning_rate" not in config[1], f"what the run was told: {config}")

    # A run that was killed before its first checkpoint is begun anew by its own command alone: another one would take its log's place.
    killed = ["train", "mnist_cnn", "--data", "digits", "--batch", "16", "--epochs", "100000", "--out", "early_kill", "--checkpoints", "early_kill/ck", "--checkpoint-every", "1000000"]
    done = signalled(killed, signal.SIGKILL)
    before = (folder / "early_kill/log.jsonl").read_bytes()
    for other, words in ((["--lr", "0.5"], "another graph"), (["--state", "straight/state.safetensors"], "began_with: none there"), (["--batch", "8"], "batch: 16 there, 8 here"), (["--seed", "3"], "seed: 0 there, 3 here"), (["--shuffle"], "shuffle: false there, true here")):
        changed = [*killed, *other] if "--batch" not in other else ["8" if a == "16" else a for a in killed]
        done = belfry(*changed)
        expect(done.returncode == 1 and words in done.stderr and "--overwrite" in done.stderr and (folder / "early_kill/log.jsonl").read_bytes() == before, f"another command in its folder: {done}")
    done = belfry(*["1" if a == "100000" else a for a in killed])
    expect(done.returncode == 0 and steps("early_kill") == list(range(1, 33)), f"its own command begins it anew: {done}")

    # What lies in --out before the first step lies there after a failure, and nothing that is read or not a run's is written over.
    def files(*names):
        return {str(p): p.read_bytes() for name in names for p in sorted((folder / name).rglob("*")) if p.is_file()}

    (folder / "own").mkdir()
    assert belfry("convert", "mlp", "-o", "own/graph.json").returncode == 0 and belfry("convert", "mnist_cnn", "-o", "other.json").returncode == 0
    assert mlp(2, "--out", "run", "--checkpoints", "run/ck", "--patience", "2").returncode == 0
    (folder / "logs").mkdir()
    assert mlp(1, "--log", "logs/run.jsonl").returncode == 0
    (folder / "work").mkdir()
    (folder / "work/plan.json").write_bytes((folder / "run/plan.json").read_bytes())
    (folder / "notes.txt").write_text("of a year\n", encoding="utf-8")
    (folder / "few").mkdir()
    (folder / "few/graph.json").write_bytes((folder / "own/graph.json").read_bytes())
    anew = ["--out", "run", "--checkpoints", "run/ck", "--overwrite"]
    for net, arguments, wanted in (("own/graph.json", ["--out", "own"], "own/graph.json: is a file that is read here, and would be lost; name another"), ("other.json", ["--out", "own"], "own/graph.json: is another graph and of no run"),
                                   ("mlp", ["--out", "few", "--patience", "2", "--monitor", "foo"], "no epoch has the metric 'foo'"), ("work/plan.json", ["--out", "work", "--overwrite"], "work/plan.json: is a file that is read here"),
                                   ("mlp", ["--out", "work", "--overwrite"], "work/plan.json: is of no run, and would be lost"), ("mlp", ["--state", "run/state.safetensors", "--out", "run", "--overwrite"], "run/state.safetensors: is a file that is read here"),
                                   ("mlp", ["--log", "notes.txt"], "notes.txt: is no log of a training, and would be lost"), ("other.json", ["--log", "other.json"], "--log other.json: is a file that is read here"),
                                   ("mlp", [*anew, "--patience", "2", "--monitor", "foo"], "no epoch has the metric 'foo'"), ("mlp", [*anew, "--log", "nodir/x"], "there is no folder 'nodir'"),
                                   ("mlp", [*anew, "--log", "notes.txt"], "is no log of a training"), ("mlp", [*anew, "--log", "/dev/full"], "the log could not be written"), ("mlp", [*anew, "--tensorboard", "notes.txt"], "notes.txt"),
                                   ("mlp", [*anew, "--averages"], "average"), ("mlp", [*anew, "--log", "logs/run.jsonl", "--averages"], "average")):
        before = files("own", "work", "few", "run", "logs"), (folder / "notes.txt").read_text(encoding="utf-8"), (folder / "other.json").read_bytes()
        done = belfry("train", net, "--data", "digits", "--batch", "64", "--epochs", "1", *arguments)
        expect(done.returncode == 1 and wanted in done.stderr, f"train {net} {arguments}: {done.returncode} {done.stderr[-400:]}")
        after = files("own", "work", "few", "run", "logs"), (folder / "notes.txt").read_text(encoding="utf-8"), (folder / "other.json").read_bytes()
        changed = sorted(set(before[0].items()) - set(after[0].items())) or [name for name in after[0].keys() - before[0].keys() if "/few/" not in name]
        expect(not changed and before[1:] == after[1:], f"train {net} {arguments} failed and changed {[str(c)[:100] for c in changed]}")
    # A log elsewhere too, until the new run has made a step.
    (folder / "nan.csv").write_text("label," + ",".join(f"p{k}" for k in range(784)) + "\n" + f"0,{','.join(['nan'] * 784)}\n" * 20, encoding="utf-8")
    before = files("run", "logs")
    done = belfry("train", "mlp", "--data", "nan.csv", "--hold-out", "0.5", *anew, "--log", "logs/run.jsonl")
    expect(done.returncode == 1 and re.search("the loss 'loss' is -?nan after batch 1", done.stderr) and files("run", "logs") == before, f"--overwrite that fails in its first step: {done}, {before.keys()} {files('run', 'logs').keys()}")
    assert mlp(2, "--log", "logs/run.jsonl").returncode == 0
    # runs finds a log that lies elsewhere, and says where it is no more; a path's control characters are shown.
    assert mlp(1, "--out", "far\x1b[1m", "--log", "logs/far.jsonl").returncode == 0
    done, config = belfry("runs", "far\x1b[1m"), json.loads((folder / "far\x1b[1m/run.json").read_text(encoding="utf-8"))
    row = dict(zip(*(re.split(r"  +", line) for line in done.stdout.splitlines()[1:])))
    expect(done.returncode == 0 and config["log"] == "../logs/far.jsonl" and row.get("steps") == "8" and row.get("run") == r"far\x1b[1m" and "\x1b" not in done.stdout, f"runs of a log elsewhere: {done} {config}")
    (folder / "logs/far.jsonl").unlink()
    done = belfry("runs", "far\x1b[1m")
    expect(done.returncode == 0 and "its log is not at " in done.stderr and "logs/far.jsonl" in done.stderr and "0.0 s" not in done.stdout, f"runs of a log that is gone: {done}")
    expect(steps("logs", "run.jsonl") == list(range(1, 17)), f"a log that is begun anew: {steps('logs', 'run.jsonl')}")
    done = mlp(1, *anew)
    expect(done.returncode == 0 and steps("run") == list(range(1, 9)) and [p.name for p in (folder / "run/ck").iterdir()] == ["step-00000008.safetensors"] and not list((folder / "run").glob("replaced*")), f"--overwrite after failures: {done}")

    # A training that was killed between its begin with --overwrite and its first step: the next start puts back what it had set aside.
    dead = subprocess.Popen(["true"])
    dead.wait()
    before = files("run")
    for place in (folder / "run", folder / "run/ck"):
        parts = [p for p in place.iterdir() if p.name != "ck"]
        room = place / f"replaced.partial-{dead.pid}-1"
        room.mkdir()
        for part in parts:
            part.rename(room / part.name)
    for name in ("graph.json", "run.json"):
        (folder / "run" / name).write_bytes(b"{}")
    (folder / "run" / f"graph.json.partial-{dead.pid}-1").write_bytes(b"{")  # the kill was while it was written
    done = belfry("train", "mlp", "--data", "digits", "--batch", "64", "--epochs", "1", *anew[:-1], "--seed", "9")
    expect(done.returncode == 1 and done.stderr.count("is put back") == 1 and "is of another run (seed: " in done.stderr, f"after a kill before the first step: {done}")
    expect(files("run") == before, f"after a kill before the first step there is {sorted(files('run'))}, and was {sorted(before)}")

    # One that was killed after it, while what was replaced is removed: the next start removes the rest, of the checkpoints too.
    for place, room, part in ((folder / "run", f"gone.partial-{dead.pid}-1", "run.json"), (folder / "run/ck", f"replaced.partial-{dead.pid}-1", "step-00000008.safetensors")):
        (place / room).mkdir()
        (place / room / part).write_bytes((place / part).read_bytes())
    done = mlp(1, *anew[:-1])
    left = [p.name for p in (folder / "run").rglob("*.partial-*")]
    expect(done.returncode == 0 and not left and [p.name for p in (folder / "run/ck").iterdir()] == ["step-00000008.safetensors"], f"after a kill behind the first step: {done} {left}")

    # A run that has ended since is not given for it; the user's own files beside checkpoints stay.
    room = folder / f"run/replaced.partial-{dead.pid}-1"
    room.mkdir()
    (room / "run.json").write_bytes((folder / "run/run.json").read_bytes().replace(b"mlp", b"old"))
    (folder / "run/ck/step-notes.txt").write_text("mine", encoding="utf-8")
    before = (folder / "run/state.safetensors").read_bytes()
    done = belfry("train", "mlp", "--data", "digits", "--batch", "64", "--epochs", "1", *anew[:-1])
    expect("holds an earlier run" in done.stderr and room.exists() and (folder / "run/state.safetensors").read_bytes() == before, f"beside a run that has ended: {done}")
    done = mlp(1, *anew)
    expect(done.returncode == 0 and not room.exists() and (folder / "run/ck/step-notes.txt").read_text(encoding="utf-8") == "mine", f"--overwrite beside what an earlier one left: {done}")

    # Two at a time would write into one log.
    holder = os.open(folder / "run/ck", os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    before = files("run")
    done = mlp(1, *anew)
    expect(done.returncode == 1 and "run/ck: another process trains into this folder" in done.stderr and files("run") == before, f"into a folder that another process trains into: {done}")
    os.close(holder)

    # So are other words for the same classes.
    def words(*names):
        table = "".join(f"{names[r % 2]},{','.join(str((r + k) % 7 / 7) for k in range(784))}\n" for r in range(20))
        (folder / "words.csv").write_text("label," + ",".join(f"p{k}" for k in range(784)) + "\n" + table, encoding="utf-8")
        return belfry("train", "mlp", "--data", "words.csv", "--hold-out", "0.3", "--batch", "4", "--epochs", "1", "--checkpoints", "ck_w")

    expect(words("Hund", "Maus").returncode == 0 and "going on from" in words("Hund", "Maus").stderr, "a table of words goes on")
    done = words("Hund", "Mops")
    expect(done.returncode == 1 and 'is of another run (names of the classes: "Hund", "Maus" there, "Hund", "Mops" here)' in done.stderr, f"other words: {done}")

    done = words("0", "1")
    expect(done.returncode == 1 and 'is of another run (names of the classes: "Hund", "Maus" there, none here' in done.stderr, f"numbers for words: {done}")

    # One that is named reads labels by its own classes, to train and to evaluate.
    file = max((folder / "ck_w").glob("step-*"))
    words("Hund", "Mops")
    done = belfry("train", "mlp", "--data", "words.csv", "--hold-out", "0.3", "--batch", "4", "--epochs", "3", "--resume", file)
    expect(done.returncode == 1 and "words.csv, line 3, column 'label': 'Mops' is no class that is trained on; those are Hund, Maus: write one of them" in done.stderr, f"a new word beside --resume: {done}")
    words("Maus", "Maus")
    for options in (["--resume", file, "--hold-out", "0.3", "--batch", "4", "--epochs", "3"], ["--resume", file, "--hold-out", "0.3", "--batch", "4", "--epochs", "3", "--out", "run_w"]):
        done = belfry("train", "mlp", "--data", "words.csv", *options)
        expect(done.returncode == 0 and "names of the classes" not in done.stderr, f"fewer words beside --resume: {done}")
    expect(json.loads((folder / "run_w/run.json").read_text(encoding="utf-8"))["classes"] == ["Hund", "Maus"], "the run that went on from it has its classes")
    means = {}
    for name in ("Maus", "1", "0"):
        words(name, name)
        for weights in (file, "run_w/state.safetensors"):
            done = belfry("evaluate", "mlp", "--state", weights, "--data", "words.csv", "--json")
            means[name, weights] = done.stdout
            expect(done.returncode == 0 and "no names of classes" not in done.stderr, f"evaluate of {name} by {weights}: {done}")
    for weights in (file, "run_w/state.safetensors"):
        expect(means["Maus", weights] == means["1", weights] != means["0", weights], f"Maus is class 1 of {weights}: {means}")
    done = (words("Maus", "Maus"), belfry("evaluate", "mlp", "--data", "words.csv"))[1]
    expect("no names of classes were kept with the net: Maus is taken for 0" in done.stderr, f"evaluate of words by a net that knows none: {done}")

    # A checkpoint that says nothing of them is gone on from.
    stored = file.read_bytes()
    end = 8 + int.from_bytes(stored[:8], "little")
    head = json.loads(stored[8:end])
    for key in ("run/names of the classes", "xxh3-128"):
        del head["__metadata__"][key]
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(len(text).to_bytes(8, "little") + text + stored[end:])
    done = words("Hund", "Mops")
    expect(done.returncode == 0 and f"going on from ck_w/{file.name}" in done.stderr, f"a checkpoint that does not name its classes: {done}")

    # A log is no stream that is closed: words and results go nowhere, and what is asked for that way fails.
    for closed, code in (("2>&-", 0), ("1>&-", 1), ("0<&-", 0)):
        shell = subprocess.run(["sh", "-c", f'"$0" train mlp --data digits --batch 64 --epochs 1 --log closed.jsonl {closed}', program], cwd=folder, capture_output=True, text=True)
        lines = (folder / "closed.jsonl").read_text(encoding="utf-8").splitlines()
        expect(shell.returncode == code and len(lines) == 9 and all(line.startswith("{") for line in lines), f"a log with {closed}: {shell} {lines}")

    # Another graph of the same name is another run.
    graph = json.loads((folder / "own/graph.json").read_text(encoding="utf-8"))
    options = graph["train"]["optimizer"]
    options["learning_rate"] = options.get("learning_rate", 0.001) / 2
    (folder / "slower.json").write_text(json.dumps(graph), encoding="utf-8")
    done = belfry("train", "slower.json", "--data", "digits", "--batch", "64", "--epochs", "2", *anew[:-1])
    expect(done.returncode == 1 and "is of another run (hash of the graph: " in done.stderr and "--overwrite" in done.stderr, f"another graph of the same name: {done}")
    done = belfry("train", "own/graph.json", "--data", "digits", "--batch", "64", "--epochs", "2", *anew[:-1])
    expect(done.returncode == 0 and "going on from" in done.stderr, f"the same graph from a file: {done}")

    # Logs of more than 256 MiB go on and are shown.
    log = folder / "run/log.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines()
    with open(log, "w", encoding="utf-8") as out:
        for line in lines:
            out.write(line[:-1] + ', "note": "' + "x" * (15 << 20) + '"}\n')
    expect(log.stat().st_size > 1 << 28, f"a long log has {log.stat().st_size} bytes")
    done = belfry("train", "own/graph.json", "--data", "digits", "--batch", "64", "--epochs", "3", "--quiet", *anew[:-1])
    expect(done.returncode == 0, f"a run with a long log goes on: {done.stderr[-400:]}")
    done = belfry("runs", "run")
    expect(done.returncode == 0 and done.stdout.splitlines()[-1].split()[1:3] == ["3", "24"], f"runs with a long log: {done.stderr[-400:]} {done.stdout[-400:]}")

if objections:
    sys.exit("\n".join(objections))
print("training shows one line on a terminal and plain ones elsewhere; runs stand side by side")
