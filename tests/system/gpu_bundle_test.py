"""The bundle for machines with a GPU starts where there is nothing: in an empty environment, and in a root folder that has but a shell. Without a driver its tests skip with the reason."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD, SHARED = map(pathlib.Path, sys.argv[1:3])
WANTED = ("devices: exit 0", "tests: exit 0", "sanitize: skipped", "bench: exit 77: device gpu:0 cannot be used", "peers: skipped")


def run(command, results):
    # A driver that this machine may have is not to be found.
    done = subprocess.run(["env", "-i", "BELFRY_CUDA_DRIVER=absent.so", *command], capture_output=True, text=True)
    print(done.stdout, done.stderr)
    assert done.returncode == 0, f"{command} gives {done.returncode}"
    for words in WANTED:
        assert words in done.stdout, f"'{words}' is not said"
    tests = (results / "tests.txt").read_text()
    assert "[  SKIPPED ]" in tests and "absent.so: cannot open shared object file" in tests and "[  PASSED  ] 0 tests." in tests, tests
    assert "cpu:0" in (results / "devices.txt").read_text()


def bare_root(folder, bundle):
    """The bundle beside a shell and mkdir, with the C library that those need."""
    for program in ("sh", "mkdir", "dirname"):
        real = pathlib.Path(shutil.which(program)).resolve()
        lines = subprocess.run(["ldd", real], capture_output=True, text=True, check=True).stdout.split()
        for path in [real, *(pathlib.Path(w) for w in lines if w.startswith("/"))]:
            (folder / path.relative_to("/")).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / path.relative_to("/"))
            (folder / path.relative_to("/")).chmod(0o755)
        (folder / "bin").mkdir(exist_ok=True)
        if not (folder / "bin" / program).exists():
            os.symlink(real, folder / "bin" / program)
    (folder / "dev").mkdir()
    (folder / "dev/null").write_text("")
    shutil.move(bundle, folder / "belfry-gpu")


with tempfile.TemporaryDirectory() as work:
    work = pathlib.Path(work)
    packed = work / "bundle.tar.xz"
    subprocess.run([ROOT / "tools/gpu-bundle", "-o", packed, "--build", BUILD, "--shared", SHARED, "--level", "0"], check=True)
    subprocess.run(["tar", "-C", work, "-xf", packed], check=True)
    run([work / "belfry-gpu/run.sh", work / "results"], work / "results")

    root = work / "root"
    root.mkdir()
    bare_root(root, work / "belfry-gpu")
    into = ["chroot", root] if os.geteuid() == 0 else ["unshare", "-r", "chroot", root]
    path = os.environ["PATH"] + ":/usr/sbin"
    into[0] = shutil.which(into[0], path=path)
    if subprocess.run([*into, "/bin/sh", "-c", "exit 0"], capture_output=True).returncode:
        print("no root folder of one's own here: that half is left out")
    else:
        run([*into, "/bin/sh", "-c", "PATH=/bin /belfry-gpu/run.sh /results"], root / "results")
