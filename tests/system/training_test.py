"""What a person sees of training: the line on a terminal, plain lines elsewhere, runs side by side. Argument: belfry."""

import json
import os
import pathlib
import pty
import re
import subprocess
import sys
import tempfile

program = str(pathlib.Path(sys.argv[1]).resolve())
objections = []


def expect(condition, text):
    if not condition:
        objections.append(text)


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)

    def belfry(*arguments):
        return subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)

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

    assert belfry("data", "digits", "--out", "digits", "--train", "512", "--test", "32").returncode == 0
    train = ["train", "mnist_cnn", "--data", "digits", "--batch", "16", "--epochs", "2"]
    two = ["--devices", "cpu:0,cpu:1"]
    shown = on_terminal(*train, *two, NO_COLOR="")
    over = [piece for piece in shown.split("\r\x1b[K")[1:] if "\n" not in piece]
    expect(over and all(len(piece) < 80 and re.match(r"Epoch  \d/ 2  +\d+/  32  \d+ img/s", piece) for piece in over if piece), f"lines that are written over: {over[:3]}")
    expect(re.search(r"Epoch  2/ 2  [\d.]+ s  \d+ img/s, x[\d.]+ of one device  accuracy", shown), f"the epoch's line on two devices: {shown[-600:]}")
    for plain in (on_terminal(*train, *two, NO_COLOR="1"), on_terminal(*train, *two, TERM="dumb"), belfry(*train, *two, "--out", "two").stderr):
        expect("\x1b" not in plain and "\r" not in plain.replace("\r\n", "\n") and "Epoch  2/ 2" in plain, f"plain lines: {plain[-600:]}")

    done = belfry(*train, "--out", "one", "--seed", "3")
    expect(done.returncode == 0, f"a run folder: {done.stderr[-600:]}")
    written = sorted(p.name for p in (folder / "one").iterdir())
    expect(written == ["graph.json", "log.jsonl", "plan.json", "run.json", "state.safetensors", "tensorboard", "trace.json"], f"a run folder has {written}")
    done = belfry("runs", "one", "two")
    lines = done.stdout.splitlines()
    expect(done.returncode == 0 and len(lines) == 4 and "net mnist_cnn, data digits, batch 16, epochs 2" in lines[0] and lines[1].split()[:5] == ["run", "seed", "strategy", "devices", "towers"], f"runs: {done}")
    expect(lines[2].split()[:5] == ["one", "3", "single", "cpu:0", "1"] and lines[3].split()[:5] == ["two", "0", "towers", "cpu:0,cpu:1", "2"] and lines[1].endswith("curve of val_loss") and "█" in lines[2], f"runs: {done.stdout}")
    facts = json.loads(belfry("runs", "--json", ".").stdout)
    expect([f["config"]["seed"] for f in facts] == [3, 0] and all(len(f["epochs"]) == 2 and len(f["steps"]) == 64 for f in facts), "runs --json")
    log = [json.loads(line) for line in (folder / "two/log.jsonl").read_text(encoding="utf-8").splitlines()]
    devices = [[line[f"rows_per_second/cpu:{d}"] for d in (0, 1)] for line in log if "steps" in line]
    expect(all(abs(2 * a / line["rows_per_second"] - 1) < 1e-4 and a == b for (a, b), line in zip(devices, (line for line in log if "steps" in line))), f"throughput by device: {devices}")
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

if objections:
    sys.exit("\n".join(objections))
print("training shows one line on a terminal and plain ones elsewhere; runs stand side by side")
