"""Training that is killed at random instants and started again by the same command ends with the same bits as one that is not, on
other devices too. One that replaces a run counts in its place from its first step on. Arguments: belfry, how many kills (default 60), a seed."""

import json
import pathlib
import random
import shutil
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


def replaced_and_killed(here, name, again):
    """A run that has taken another's place by its first step is killed while that one is removed, before its own log has a line; `again`: options
    of the next start."""
    folder = pathlib.Path(here, name)

    def training(run, *more):
        places = ["--out", run, "--checkpoints", f"{run}/checkpoints", "--log", f"{run}.jsonl"]
        return [program, "train", "mlp", "--data", "digits", "--batch", "64", "--epochs", "1", *places, *more]

    def finished(*arguments):
        done = subprocess.run(training(*arguments), cwd=here, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(done.args)} ended with {done.returncode}: {done.stderr[-2000:]}")
        return done.stderr

    finished(f"{name}_whole", "--seed", "8")
    log = pathlib.Path(here, f"{name}.jsonl")
    for files in (8000, 16000, 32000):  # which takes a while to remove
        shutil.rmtree(folder, ignore_errors=True)
        log.unlink(missing_ok=True)
        finished(name)
        before = log.read_bytes()
        for k in range(files):
            (folder / "tensorboard" / f"events{k}").touch()
        process = subprocess.Popen(training(name, "--seed", "8", "--overwrite"), cwd=here, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not list(folder.glob("gone.partial-*")):
            time.sleep(0.001)
        process.kill()
        process.wait()
        if in_time := list(folder.glob("gone.partial-*")) and log.read_bytes() == before:
            break
    if not in_time:
        sys.exit(f"the kill came too late: {sorted(p.name for p in folder.iterdir())}")
    if json.loads((folder / "run.json").read_text(encoding="utf-8"))["seed"] != 8:
        sys.exit("a run that took another's place by its first step is not there")
    said = finished(name, "--seed", "8", *again)
    left = [p.name for p in folder.rglob("*.partial-*")]
    files = ["state.safetensors", *(f"checkpoints/{p.name}" for p in (folder / "checkpoints").iterdir())]
    differing = [f for f in files if (folder / f).read_bytes() != pathlib.Path(here, f"{name}_whole", f).read_bytes()]
    steps = [json.loads(line)["step"] for line in log.read_text(encoding="utf-8").splitlines() if '"step"' in line]
    if "is put back" in said or left or differing or len(files) != 2 or steps != [1, 2, 3, 4]:
        sys.exit(f"started again with {again}: left over {left}, other bytes in {differing} of {files}, steps {steps}: {said[-600:]}")


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
    replaced_and_killed(here, "goes_on", [])
    replaced_and_killed(here, "anew", ["--overwrite"])
    begin = time.monotonic()
    finished("whole", PLACES[0])
    length = time.monotonic() - begin
    files = [pathlib.Path(here, "whole", "state.safetensors"), *sorted(pathlib.Path(here, "whole/checkpoints").iterdir())]
    expected, logged = [f.read_bytes() for f in files], curves(f"{here}/whole")
    over = subprocess.Popen(["true"])
    over.wait()
    unfinished_trace = pathlib.Path(here, "whole", f"trace.json.partial-{over.pid}-0-1")  # of a kill when all else was written
    unfinished_trace.touch()
    finished("whole", PLACES[0])
    if unfinished_trace.exists() or [f.read_bytes() for f in files] != expected:
        sys.exit("started again, a run that has ended keeps a file that a kill left, or has other bytes")
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
