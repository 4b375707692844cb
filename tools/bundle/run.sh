#!/bin/sh
# Runs the GPU tests, then the benchmarks: run.sh [RESULTS]. Everything goes to the folder RESULTS (results); nothing is built, but for kernels.
# STEPS="tests sanitize bench peers" names what runs; SECONDS_EACH is how long each benchmark measures.
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/results}
steps=${STEPS:-tests sanitize bench peers}
mkdir -p "$out" && out=$(cd "$out" && pwd) || { echo "run.sh: $out: the folder for results cannot be made" >&2; exit 2; }
for step in $steps; do
  case "$step" in
    tests | sanitize | bench | peers) ;;
    *) echo "run.sh: STEPS names '$step'; it can name tests, sanitize, bench and peers" >&2; exit 2 ;;
  esac
done

export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" BELFRY_CUDA_BACKEND="$here/lib/libbelfry_cuda.so" BELFRY_SHARED="$here/shared" BELFRY_CACHE="$out/cache"
# A C library that is too old, or none: the bundle has one.
by=
if ! "$here/bin/belfry" --help >/dev/null 2>&1; then by="$here/lib/base/ld-linux-x86-64.so.2 --library-path $LD_LIBRARY_PATH:$here/lib/base"; fi

failed=0
run() {  # NAME COMMAND…: its words to NAME.txt
  name=$1
  shift
  "$@" >"$out/$name.txt" 2>&1
  code=$?
  echo "$name: exit $code"
  [ $code = 0 ] || failed=1
}
wants() {
  case " $steps " in *" $1 "*) return 0 ;; esac
  return 1
}

run devices $by "$here/bin/belfry" devices
# The golden nets of f32 beside what is said of GPUs alone.
golden='*/CifarTutorial.*:*/GoldenRun.*:*/MnistCnn.*:*/MnistTwoHeads.*:*/MobileNetOnDigits.begins*'
if wants tests; then run tests $by "$here/bin/gpu_test" "--gtest_filter=Gpu*:$golden-*f64*" "--gtest_output=json:$out/tests.json"; fi
if wants sanitize; then
  if command -v compute-sanitizer >/dev/null; then
    # Every kernel once; under racecheck and synccheck only our own have something to tell.
    for tool in memcheck racecheck synccheck; do
      run "sanitize_$tool" compute-sanitizer --tool $tool --error-exitcode 9 $by "$here/bin/gpu_test" '--gtest_filter=GpuKernels.*'
    done
  else
    echo "sanitize: skipped, since there is no compute-sanitizer in PATH"
  fi
fi
if wants bench; then
  $by "$here/bin/bench_gpu" --seconds "${SECONDS_EACH:-2}" >"$out/bench.jsonl" 2>"$out/bench.txt"
  code=$?
  if [ $code = 77 ]; then read -r why <"$out/bench.txt"; fi
  echo "bench: exit $code${why:+: $why}"
  case $code in 0 | 77) ;; *) failed=1 ;; esac
fi
if wants peers; then
  if command -v python3 >/dev/null && python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
    python3 "$here/gpu_torch.py" --seconds "${SECONDS_EACH:-2}" >"$out/peers.jsonl" 2>"$out/peers.txt"
    code=$?
    echo "peers: exit $code"
    [ $code = 0 ] || failed=1
  else
    echo "peers: skipped, since python3 here has no PyTorch that sees a GPU"
  fi
fi
exit $failed
