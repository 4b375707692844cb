"""Checkpoints that cannot be written: training ends with what is wrong and the last good checkpoint, and goes on from it to the same
bits. Arguments: belfry. What needs root (a small disk, a read-only mount) is left out without it, and said."""

import os
import pathlib
import resource
import subprocess
import sys
import tempfile

program = str(pathlib.Path(sys.argv[1]).resolve())
objections, left_out = [], []


def expect(condition, text):
    if not condition:
        objections.append(text)


def mounted(folder, *arguments):
    """Whether this process may mount; what it mounts goes with `umount`."""
    done = subprocess.run(["mount", *arguments, str(folder)], capture_output=True, text=True)
    if done.returncode != 0:
        left_out.append(f"mount {' '.join(arguments)}: {done.stderr.strip()}")
    return done.returncode == 0


with tempfile.TemporaryDirectory() as name:
    here = pathlib.Path(name)
    here.chmod(0o755)

    def train(folder, **options):
        command = [program, "train", "mnist_cnn", "--data", "digits", "--batch", "16", "--epochs", "4", "--checkpoints", str(folder), "--log", f"{folder}.jsonl"]
        return subprocess.run(command, cwd=here, capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)

    def goes_on(folder, words, done):
        """It failed with these words and named its newest checkpoint, which is whole; with room again it ends as the run that never failed did."""
        found = sorted(p for p in folder.iterdir() if p.name.startswith("step-"))
        last = f"the last good checkpoint is {found[-1]}" if found else "there is no checkpoint yet"
        expect(done.returncode == 1 and all(w in done.stderr for w in [*words, last]) and "bug in Belfry" not in done.stderr, f"{folder.name}: {done.returncode} {done.stderr[-600:]}, where {words} and '{last}' were expected")
        expect(not any(".partial-" in p.name for p in found), f"{folder.name}: unfinished files are left: {found}")
        return found

    def same_end(folder, **options):
        done = train(folder, **options)
        files = sorted(folder.glob("step-*"))
        expect(done.returncode == 0 and files and files[-1].read_bytes() == whole, f"{folder.name}: does not go on to the same end: {done.stderr[-600:]}")
        return done

    subprocess.run([program, "data", "digits", "--out", "digits", "--train", "64", "--test", "32"], cwd=here, check=True, capture_output=True)
    done = train(here / "whole")
    expect(done.returncode == 0, f"an ordinary run: {done.stderr[-600:]}")
    *_, last = sorted((here / "whole").iterdir())
    whole = last.read_bytes()

    # A limit on the size of a file: any user can set one, and a shell leaves the signal that goes with it as it is.
    folder = here / "limited"
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) // 2, resource.RLIM_INFINITY))
    done = train(folder, preexec_fn=limit)
    expect(not goes_on(folder, ["step-00000004.safetensors: cannot write: File too large; files may not grow so large here: ulimit -f"], done), "a checkpoint under the limit")
    same_end(folder)

    # A disk with room for two checkpoints of the three that are kept.
    folder = here / "full"
    folder.mkdir()
    if mounted(folder, "-t", "tmpfs", "-o", f"size={len(whole) * 5 // 2}", "none"):
        try:
            done = train(folder)
            found = goes_on(folder, ["step-00000012.safetensors: cannot write: No space left on device; make room, or choose another place"], done)
            expect([p.name for p in found] == ["step-00000004.safetensors", "step-00000008.safetensors"], f"on the full disk: {found}")
            subprocess.run(["mount", "-o", f"remount,size={len(whole) * 5}", str(folder)], check=True)
            expect("going on from" in same_end(folder).stderr, "with more room it begins anew")
        finally:
            subprocess.run(["umount", str(folder)], check=True)

    # A log on a disk that is full: what was trained until then is named.
    folder = here / "logged"
    for log, words in (("/dev/full", "there is no checkpoint yet"), ("ordinary.jsonl", None), ("/dev/full", f"the last good checkpoint is {folder}/step-00000004.safetensors")):
        more = ["--epochs", "1" if log != "/dev/full" else "2"]
        done = subprocess.run([program, "train", "mnist_cnn", "--data", "digits", "--batch", "16", "--checkpoints", str(folder), "--log", log, *more], cwd=here, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        expect(done.returncode == (1 if words else 0) and (not words or f"{log}: the log could not be written" in done.stderr and words in done.stderr), f"a log in {log}: {done.returncode} {done.stderr[-600:]}")

    # A run to be replaced, in a file system without room for the folders that its parts are set aside in, or for the second of them: it stays whole.
    folder = here / "replaced"
    folder.mkdir()
    if mounted(folder, "-t", "tmpfs", "-o", "nr_inodes=40", "none"):
        try:
            contents = lambda: {str(p.relative_to(folder)): p.is_file() and p.read_bytes() for p in folder.rglob("*") if not p.name.startswith("filler")}
            anew = [program, "train", "mlp", "--data", "digits", "--batch", "16", "--epochs", "1", "--out", "replaced/run", "--checkpoints", "replaced/run/checkpoints"]
            call = lambda *more: subprocess.run([*anew, *more], cwd=here, capture_output=True, text=True, stdin=subprocess.DEVNULL)
            done = call()
            expect(done.returncode == 0, f"the run to be replaced: {done.stderr[-600:]}")
            before = contents()
            fillers = []
            try:
                for i in range(40):
                    (folder / f"filler{i}").touch()
                    fillers.append(folder / f"filler{i}")
            except OSError:
                pass
            for free in range(2):
                done = call("--overwrite")
                expect(done.returncode == 1 and "the folder cannot be made: No space left on device" in done.stderr, f"--overwrite with room for {free} folders: {done.returncode} {done.stderr[-600:]}")
                expect(contents() == before, f"--overwrite with room for {free} folders changed the run that is there: {sorted(contents())}, where {sorted(before)} were")
                fillers.pop().unlink()
            for filler in fillers:
                filler.unlink()
            done = call("--overwrite")
            expect(done.returncode == 0 and sorted(p for p in contents() if "tfevents" not in p) == sorted(p for p in before if "tfevents" not in p), f"--overwrite with room: {done.stderr[-600:]} {sorted(contents())}")
        finally:
            subprocess.run(["umount", str(folder)], check=True)

    # A folder that cannot be written in is refused before any step.
    folder = here / "read_only"
    folder.mkdir()
    if mounted(folder, "-t", "tmpfs", "-o", "ro,size=1m", "none"):
        try:
            done = train(folder)
            expect(done.returncode == 1 and "cannot write in this folder: Read-only file system; its file system takes no changes: choose a place on another" in done.stderr and "Epoch" not in done.stderr, f"a read-only folder: {done.stderr[-600:]}")
        finally:
            subprocess.run(["umount", str(folder)], check=True)
    folder = here / "anothers"
    folder.mkdir(mode=0o755)
    options = {"user": 65534, "env": {**os.environ, "HOME": "/"}} if os.geteuid() == 0 else {}
    if not options:
        folder.chmod(0o555)
    try:
        done = train(folder, **options)
    except PermissionError as error:
        done = None
        left_out.append(f"another user's folder: that user cannot run the program: {error}")
    expect(done is None or done.returncode == 1 and "cannot write in this folder: Permission denied; choose a place where you have the rights" in done.stderr and "Epoch" not in done.stderr, f"a folder of another user: {done.stderr[-600:]}")

    # Folders that may not be listed: which one, why, and the way out, wherever they are named.
    for closed in ("shut", "photos/cat", "arrays/train", "texts", "runs/run"):
        (here / closed).mkdir(parents=True)
    (here / "texts/a.txt").write_text("words " * 400)
    (here / "table.csv").write_text("label," + ",".join(f"p{k}" for k in range(784)) + "\n" + "\n".join(f"{r % 2}," + ",".join(str(r) for _ in range(784)) for r in range(8)) + "\n")
    (here / "blind").mkdir()
    (here / "blind").chmod(0o333)  # may be written in
    for closed in ("shut", "photos/cat", "arrays/train", "texts", "runs/run"):
        (here / closed).chmod(0)
    way = "its owner may open it to you (chmod o+rx or g+rx)" if options else "chmod u+rx opens it"
    table = ["--data", "table.csv", "--hold-out", "0.3", "--steps", "1"]
    for where, command in [("shut", ["data", "inspect", "shut"]), ("shut", ["train", "mlp", "--data", "shut"]), ("shut", ["train", "mlp", "--data", "shut/digits"]), ("photos/cat", ["train", "mlp", "--data", "photos", "--hold-out", "0.2"]),
                           ("photos/cat", ["data", "inspect", "photos"]), ("arrays/train", ["train", "mlp", "--data", "arrays"]), ("texts", ["data", "inspect", "texts"]), ("shut", ["predict", "mlp", "--feed", "shut"]),
                           ("photos/cat", ["predict", "mlp", "--feed", "photos"]), ("shut", ["predict", "shut", "--feed", "table.csv"]), ("shut", ["runs", "shut"]), ("shut", ["show", "shut"]), ("shut", ["place", "mlp", "-o", "shut/plan.json"]),
                           ("blind", ["train", "mlp", *table, "--checkpoints", "blind"]), ("blind", ["train", "mlp", *table, "--out", "blind"]),
                           ("shut", ["train", "mlp", *table, "--out", "shut/run"]), ("shut", ["train", "mlp", *table, "--log", "shut/log.jsonl"]), ("shut", ["train", "mlp", *table, "--tensorboard", "shut/charts"]), ("shut", ["run", "mlp", "--state", "shut/state.npz"]), ("shut", ["run", "mlp", "--feed", "shut/feed.npz"]),
                           ("shut", ["place", "mlp", "--placement", "shut/rules.json"]), ("shut", ["place", "mlp", "--calibration", "shut/costs.json"]), ("shut", ["place", "mlp", "--cluster", "shut/plan.json"]), ("shut", ["forecast", "mlp", "--trace", "shut/trace.json"]),
                           ("shut", ["train", "mlp", *table, "--resume", "shut/step.safetensors"]), ("shut", ["show", "shut/small.json"]), ("shut", ["evaluate", "shut/run", "--data", "table.csv"]), ("shut", ["runs", "shut/run"])]:
        try:
            done = subprocess.run([program, *command], cwd=here, capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)
        except PermissionError as error:
            left_out.append(f"folders that may not be listed: another user cannot run the program: {error}")
            break
        expect(done.returncode in (1, 2) and f"{where}: cannot be listed: Permission denied; {way}, or name another" in done.stderr and "Epoch" not in done.stderr, f"{command} with {where} closed: {done}")
    else:
        for command in (["place", "mlp", "-o", "anothers/plan.json"], ["train", "mlp", *table, "--out", "anothers/run"], ["train", "mlp", *table, "--log", "anothers/log.jsonl"], ["data", "digits", "--out", "anothers/digits"]):
            done = subprocess.run([program, *command], cwd=here, capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)
            expect(done.returncode == 1 and "Permission denied; choose a place where you have the rights" in done.stderr, f"{command} in another's folder: {done}")
        done = subprocess.run([program, "runs", "runs"], cwd=here, capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)
        expect(done.returncode == 1 and f"runs/run: is left out: Permission denied; {way}" in done.stderr and "neither it nor a folder in it has a run.json" in done.stderr, f"a run that may not be looked at: {done}")
        (here / "open").mkdir()
        (here / "open").chmod(0o777)
        for file in ("log.jsonl", "small.json"):
            (here / "open" / file).touch(mode=0o444 if file == "log.jsonl" else 0)
        for command, words in ((["train", "mlp", *table, "--log", "open/log.jsonl"], "the log cannot be opened for writing: Permission denied; name another file for it"), (["show", "open/small.json"], f"cannot read: Permission denied; {way.replace('rx', 'r')}, or name another file")):
            done = subprocess.run([program, *command], cwd=here, capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)
            expect(done.returncode == 1 and words in done.stderr, f"{command}, which is another's: {done}")
    for closed in ("blind", "shut", "photos/cat", "arrays/train", "texts", "runs/run"):
        (here / closed).chmod(0o755)

if objections:
    sys.exit("\n".join(objections))
print("training says what it cannot write, and goes on from the last good checkpoint" + "".join(f"\nleft out: {text}" for text in left_out))
