"""Training that is killed at random instants and started again by the same command ends with the same bits as one that is not, on
other devices too. Arguments: belfry, how many kills (default 60), a seed."""

import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

program = str(pathlib.Path(sys.argv[1]).resolve())
kills = int(sys.argv[2]) if len(sys.argv) > 2 else 60
seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
chance = random.Random(seed)
EPOCHS, EVERY, IN_A_ROW = 12, 3, 8
# The towers and their threads make the arithmetic; where they are does not.
PLACES = (["--devices", "cpu:0"], ["--devices", "cpu:0,cpu:1"], ["--strategy", "mirrored", "--devices", "sim:0-1"])


def command(folder, place):
    return [program, "train", "mnist_cnn", "--data", "digits", "--batch", "24", "--shuffle", "--seed", "7", "--towers", "2", "--threads-per-tower", "1", "--epochs", str(EPOCHS),
            "--checkpoint-every", str(EVERY), "--checkpoints", f"{folder}/checkpoints", "--out", folder, "--log", f"{folder}/log.jsonl", *place]


def curves(folder):
    """The log without what is of this machine's clock."""
    lines = [json.loads(line) for line in pathlib.Path(folder, "log.jsonl").read_text(encoding="utf-8").splitlines()]
    machine = ("second", "cpu", "memory")
    return [{key: value for key, value in line.items() if not any(word in key for word in machine)} for line in lines]


with tempfile.TemporaryDirectory() as here:
    def started(folder, place):
        return subprocess.Popen(command(folder, place), cwd=here, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)

    def finished(folder, place):
        process = started(folder, place)
        said = process.communicate()[1]
        if process.returncode != 0:
            sys.exit(f"seed {seed}: {' '.join(process.args)} ended with {process.returncode}: {said[-2000:]}")
        return said

    subprocess.run([program, "data", "digits", "--out", "digits", "--train", "250", "--test", "32"], cwd=here, check=True, capture_output=True)
    begin = time.monotonic()
    finished("whole", PLACES[0])
    length = time.monotonic() - begin
    files = [pathlib.Path(here, "whole", "state.safetensors"), *sorted(pathlib.Path(here, "whole/checkpoints").iterdir())]
    expected, logged = [f.read_bytes() for f in files], curves(f"{here}/whole")
    done = chain = unfinished = resumed = 0
    while done < kills:
        chain += 1
        folder = f"run{chain}"
        for _ in range(min(IN_A_ROW, kills - done)):
            process = started(folder, chance.choice(PLACES))
            time.sleep(chance.uniform(0, length))
            if process.poll() is not None:
                break  # it had ended
            process.send_signal(signal.SIGKILL)
            resumed += "going on from" in process.communicate()[1]
            done += 1
            unfinished += any(".partial-" in f.name for f in pathlib.Path(here, folder).rglob("*"))
        finished(folder, chance.choice(PLACES))
        got = [pathlib.Path(here, folder, f.relative_to(f"{here}/whole")) for f in files]
        differing = [f.name for f, bytes_ in zip(got, expected) if not f.is_file() or f.read_bytes() != bytes_]
        left = [f.name for f in pathlib.Path(here, folder).rglob("*") if ".partial-" in f.name or f.parent.name == "checkpoints" and f not in got]
        if differing or left or curves(f"{here}/{folder}") != logged:
            sys.exit(f"seed {seed}, run {chain} after {done} kills: other bytes in {differing}, left over {left}, the curves are {'the same' if curves(f'{here}/{folder}') == logged else 'others'}")
    print(f"{done} kills over {chain} runs of {length:.1f} s: {resumed} of them on a run that had gone on, {unfinished} left an unfinished file; all ended with the same bytes and the same curves")
