"""The bundle for machines with a GPU starts where there is nothing: in an empty environment, and in a root folder that has but a shell and what run.sh calls. Without a driver its tests skip with
the reason; on the fake one they run. A process that hangs or dies takes nothing with it."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD, SHARED = map(pathlib.Path, sys.argv[1:3])
PARTS = ["devices", "kernels", "bits", "golden", "sanitize", "memory", "bench", "peers"]
WORKLOADS = 7
# What run.sh calls.
PROGRAMS = ("sh", "mkdir", "dirname", "timeout", "env", "date", "wc", "cat", "head", "tail", "tr", "rm")
# In place of the tests: one dies, and loses its GPU, in its second test, one hangs; others pass.
STUB = """#!/bin/sh
echo "$1, CUDA in $BELFRY_CUDA_PATH, kernels $BELFRY_GPU_KERNELS"
case $1 in
  *-*die*) echo "[ RUN      ] S.lives"; echo "[       OK ] S.lives (1 ms)" ;;
  *GpuOps*) echo "[ RUN      ] S.good"; echo "[       OK ] S.good (1 ms)"; echo "[ RUN      ] S.die"; exit 3 ;;
  *GpuBits*) echo "[ RUN      ] S.hangs"; sleep 300 ;;
  *) echo "[ RUN      ] S.good"; echo "[       OK ] S.good (1 ms)" ;;
esac
"""
# Refuses the device under one tool; under another there is something to tell.
SANITIZER = """#!/bin/sh
[ "$2" != synccheck ] || { echo "========= Error: Device not supported"; exit 1; }
[ "$2" != racecheck ] || { echo "========= ERROR SUMMARY: 1 error"; code=9; }
echo "$*"
while case $1 in */gpu_test) false ;; esac; do shift; done
"$@"
exit $code
"""

# A peer that has compiled, another that does not, and one that hangs when it is measured.
PEER = """import pathlib, sys, time
gate = pathlib.Path(sys.argv[sys.argv.index('--gate') + 1])
if 'cifar10_train' in sys.argv:
    sys.exit('it does not compile')
gate.with_suffix('.ready').touch()
while not gate.with_suffix('.go').exists():
    time.sleep(0.01)
time.sleep(300 if '32' in sys.argv else 0)
print('{"workload": "' + sys.argv[-1] + '"}')
"""


def run(command, results, code=0, **environment):
    """Gives the lines of results.jsonl."""
    done = subprocess.run(["env", "-i", *(f"{k}={v}" for k, v in environment.items()), *command], capture_output=True, text=True)
    print(done.stdout, done.stderr)
    assert done.returncode == code, f"{command} gives {done.returncode}"
    assert len(list(results.rglob("*"))) <= 8 and "running.txt" not in os.listdir(results), list(results.rglob("*"))
    return [json.loads(line) for line in (results / "results.jsonl").read_text().splitlines()]


def without_driver(command, results):
    # A driver that this machine may have is not to be found.
    lines = run(command, results, BELFRY_CUDA_DRIVER="absent.so")
    assert list(dict.fromkeys(line["part"] for line in lines)) == PARTS, lines
    tests = [line for line in lines if line["part"] in ("kernels", "bits", "golden", "memory")]
    assert len(tests) >= 13, tests
    for line in tests:
        assert line["exit"] == 0 and line["passed"] == 0 and line["left_out"] > 0 and "absent.so: cannot open shared object file" in line["why"], line
    bench = [line for line in lines if line["part"] == "bench"]
    assert len(bench) == WORKLOADS and all("device gpu:0 cannot be used" in line["skipped"] for line in bench), bench
    assert all("skipped" in line for line in lines if line["part"] in ("peers", "sanitize")), lines
    assert "cpu:0" in (results / "log.txt").read_text()


def bare_root(folder, bundle):
    """The bundle beside a few programs, with the C library that those need."""
    (folder / "bin").mkdir()
    for program in PROGRAMS:
        real = pathlib.Path(shutil.which(program)).resolve()
        lines = subprocess.run(["ldd", real], capture_output=True, text=True, check=True).stdout.split()
        for path in [real, *(pathlib.Path(w) for w in lines if w.startswith("/"))]:
            (folder / path.relative_to("/")).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / path.relative_to("/"))
            (folder / path.relative_to("/")).chmod(0o755)
        if not (folder / "bin" / program).exists():
            os.symlink(real, folder / "bin" / program)
    (folder / "dev").mkdir()
    (folder / "dev/null").write_text("")
    shutil.copytree(bundle, folder / "a bundle")


def on_the_fake_driver(bundle, results):
    fake = {"BELFRY_CUDA_DRIVER": BUILD / "tests/libfake_cuda.so", "BELFRY_GPU_TESTS": "host", "FAKE_CUDA_WORKS": 1, "FAKE_CUDA_PATIENCE": 120000, "PATH": os.environ["PATH"], "BELFRY_CACHE": results.parent / "cache"}
    lines = run([bundle / "run.sh", "-o", results, "memory"], results, **fake)
    assert [(line["part"], line["passed"], line["failed"]) for line in lines] == [("memory", 1, 0)], lines
    assert "free before" in (results / "log.txt").read_text()
    # Every process loses its GPU soon, and all ops have their turn.
    lines = run([bundle / "run.sh", "-o", results, "kernels"], results, code=1, FAKE_CUDA_FAIL="cuLaunchHostFunc:40:700", **fake)[1:]
    lost = [line for line in lines if line["name"] == "GpuOps" and line["exit"] == 3]
    log = (results / "log.txt").read_text()
    assert len(lost) > 1 and all(line["failed"] == 1 for line in lost) and log.count("the GPU is lost since") >= len(lost), lines
    runs = re.findall(r"\[ RUN      \] Gpu/GpuOps\.(\S+)", log)
    listed = subprocess.run([bundle / "bin/gpu_test", "--gtest_list_tests", "--gtest_filter=Gpu/GpuOps.*"], capture_output=True, text=True, check=True, env={"LD_LIBRARY_PATH": str(bundle / "lib"), **{k: str(v) for k, v in fake.items()}}).stdout
    assert len(runs) == len(set(runs)) == listed.count("# GetParam") > 1, (log, listed)


def with_what_hangs_and_dies(bundle, results):
    work = results.parent
    (bundle / "bin/gpu_test").write_text(STUB)
    (work / "tools").mkdir()
    (work / "tools/compute-sanitizer").write_text(SANITIZER)
    (work / "tools/compute-sanitizer").chmod(0o755)
    (work / "python/nvidia/cu13/lib").mkdir(parents=True)
    path = f"{work}/tools:{os.environ['PATH']}"
    lines = run([bundle / "run.sh", "-o", results, "kernels", "bits", "golden", "sanitize"], results, code=1, LONGEST=2, BELFRY_CACHE=work / "cache", PATH=path, PYTHONPATH=work / "python")
    told = {}
    for line in lines:
        told.setdefault(line["name"], []).append(line.get("skipped") or (line["exit"], line["passed"], line["failed"]))
    assert told["GpuOps"] == [(3, 1, 0), (0, 1, 0)], "what had not begun runs in another process"
    assert told["GpuBits"] == [(124, 0, 0), (124, 0, 0)] and told["GpuStrategies"] == told["GoldenOp"] == [(0, 1, 0)], told
    assert told["memcheck"] == [(3, 1, 0), (0, 1, 0)] and told["racecheck"] == [(9, 1, 0)] and "Device not supported" in told["synccheck"][0], told
    log = (results / "log.txt").read_text()
    for words in ("--gtest_filter=*/GpuOps.*-S.good:S.die,", "--gtest_filter=*/MnistCnn.*-*f64*,", f"CUDA in {work}/python/nvidia/cu13/lib,", "kernels nvrtc_\n", "--tool memcheck --report-api-errors no --error-exitcode 9"):
        assert words in log, (words, log)
    (work / "python/torch.py").write_text("class cuda:\n    is_available = lambda: True\n")
    (bundle / "gpu_torch.py").write_text(PEER)
    line = run([bundle / "run.sh", "-o", results, "kernels", "peers"], results, code=1, SECONDS_IN_ALL=30, SECONDS_EACH=0.1, LONGEST=2, BELFRY_CACHE=work / "cache", PATH=path, PYTHONPATH=work / "python")[-1]
    assert line["part"] == "peers" and line["exit"] == 0 and line["figures"] == 8 == len((results / "bench.jsonl").read_text().splitlines()), line
    assert "cases were ready after" in (results / "log.txt").read_text() and "torch:cifar10_train:128:compile_bf16: no figure; it does not compile" in (results / "log.txt").read_text()
    before = len((results / "results.jsonl").read_text().splitlines())
    lines = run([bundle / "run.sh", "-o", results, "kernels", "memory"], results, SECONDS_IN_ALL=0)[before:]
    assert len(lines) == 3 and all("no time is left" in line["skipped"] for line in lines), lines


def refuses(command, words, code):
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == code and words in done.stderr and done.stderr.count("\n") == 1, done


with tempfile.TemporaryDirectory() as work:
    work = pathlib.Path(work)
    packed = work / "bundle.tar.xz"
    subprocess.run([ROOT / "tools/gpu-bundle", "-o", packed, "--build", BUILD, "--shared", SHARED, "--level", "1"], check=True)
    refuses([ROOT / "tools/gpu-bundle", "-o", work / "nowhere/x.tar.xz"], "x.tar.xz cannot be written", 1)
    subprocess.run([sys.executable, "-m", "tarfile", "-e", packed, work], check=True)
    bundle = work / "belfry-gpu"
    refuses([bundle / "run.sh", "benhc"], "there is no part 'benhc'", 2)
    without_driver([bundle / "run.sh", "-o", work / "results"], work / "results")
    on_the_fake_driver(bundle, work / "on_fake")

    root = work / "root"
    root.mkdir()
    bare_root(root, bundle)
    into = ["chroot", root] if os.geteuid() == 0 else ["unshare", "-r", "chroot", root]
    path = os.environ["PATH"] + ":/usr/sbin"
    into[0] = shutil.which(into[0], path=path)
    if subprocess.run([*into, "/bin/sh", "-c", "exit 0"], capture_output=True).returncode:
        print("no root folder of one's own here: that half is left out")
    else:
        without_driver([*into, "/bin/sh", "-c", "PATH=/bin '/a bundle/run.sh' -o /results"], root / "results")
    with_what_hangs_and_dies(bundle, work / "hangs")
