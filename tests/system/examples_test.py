"""Every short example runs and prints what stands beside it, numbers with a point to a tenth. Arguments: their folder, belfry, the programs."""

import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

folder, belfry = pathlib.Path(sys.argv[1]), str(pathlib.Path(sys.argv[2]).resolve())
programs = {pathlib.Path(p).name: [str(pathlib.Path(p).resolve())] for p in sys.argv[3:]}
for script in folder.glob("0*.py"):
    programs[script.stem] = [sys.executable, str(script), belfry, "."]
NUMBER = re.compile(r"-?\d+\.\d+")
objections = []


def same(line, wanted):
    if NUMBER.sub("#", line) != NUMBER.sub("#", wanted):
        return False
    return all(abs(float(a) - float(b)) <= 0.1 * max(abs(float(b)), 0.1) for a, b in zip(NUMBER.findall(line), NUMBER.findall(wanted)))


def check_run_folder(work, printed):
    """What a program has written stands for its net on the command line."""
    found = {}
    for words in ("evaluate run --data digits --json", "predict run --feed digits.npy --top 1 --json", "show run", "runs run"):
        (pathlib.Path(work) / "digits.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + b"{'descr': '|u1', 'fortran_order': False, 'shape': (500, 28, 28), }".ljust(117) + b"\n" + (pathlib.Path(work) / "digits/t10k-images-idx3-ubyte").read_bytes()[16:])
        done = subprocess.run([belfry, *words.split()], cwd=work, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        found[words.split()[0]] = done.stdout
        if done.returncode:
            objections.append(f"{words}: {done.stderr[-500:]}")
    accuracy = json.loads(found["evaluate"])["means"]["accuracy"]
    labels = (pathlib.Path(work) / "digits/t10k-labels-idx1-ubyte").read_bytes()[8:]
    scores, = json.loads(found["predict"])["outputs"].values()
    right = sum(row[0]["class"] == label for row, label in zip(scores, labels))
    if right != round(500 * accuracy) or f"test accuracy {accuracy:.2f}\nloaded" not in printed:
        objections.append(f"a program's own run: {right} of 500 are right, {accuracy} is evaluated, and it printed\n{printed}")


for name, command in sorted(programs.items()):
    with tempfile.TemporaryDirectory() as work:
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if name == "training":
            check_run_folder(work, done.stdout)
    wanted = [line for file in folder.rglob(f"{name}.txt") for line in file.read_text(encoding="utf-8").splitlines()]
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) != len(wanted) or not all(map(same, lines, wanted)):
        objections.append(f"{name}: exit {done.returncode}, printed\n{done.stdout}{done.stderr[-500:]}not\n" + "\n".join(wanted))
    source, = [file for file in folder.rglob(f"{name}.*") if file.suffix != ".txt"]
    if len(source.read_text(encoding="utf-8").splitlines()) > 60:
        objections.append(f"{name}: more than 60 lines")
# With words, one of them is the command line with a strategy of its own.
if own := programs.get("06_own_strategy"):
    done = subprocess.run([*own, "place", "mlp", "--strategy", "small_apart", "--devices", "cpu:0,cpu:1", "-O", "towers=4"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode or '"reason": "small variables stand apart"' not in done.stdout or '"towers": 4' not in done.stdout:
        objections.append(f"06_own_strategy place: exit {done.returncode}, {done.stdout[-300:]}{done.stderr[-500:]}")
    done = subprocess.run([*own, "place", "--help"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if "small_apart: towers, with small variables on the last device, -O towers=" not in " ".join(done.stdout.split()):
        objections.append(f"06_own_strategy place --help names no strategy of its own: {done.stdout[-800:]}{done.stderr[-300:]}")
if own := programs.get("05_own_op"):
    with tempfile.TemporaryDirectory() as work:
        graph = {"belfry": 1, "name": "own", "inputs": [{"name": "x", "dtype": "f32", "shape": ["batch"]}], "nodes": [{"name": "y", "op": "softsign", "inputs": ["x"]}], "outputs": ["y"]}
        pathlib.Path(work, "own.json").write_text(json.dumps(graph), encoding="utf-8")
        has, has_not = (subprocess.run([*program, "place", "own.json"], cwd=work, capture_output=True, text=True) for program in (own, [belfry]))
    if has.returncode or '"op": "softsign"' not in has.stdout:
        objections.append(f"05_own_op place: exit {has.returncode}, {has.stdout[-300:]}{has.stderr[-500:]}")
    if has_not.returncode != 1 or "there is no op 'softsign'" not in has_not.stderr or "cli_main (docs/add_an_op.md)" not in has_not.stderr:
        objections.append(f"an op of one's own that the program lacks: exit {has_not.returncode}, {has_not.stderr[-500:]}")
if len(programs) < 12:
    objections.append(f"only {len(programs)} examples")

print("\n".join(objections))
sys.exit(1 if objections else 0)
