#!/bin/sh
# Runs the GPU tests and benchmarks: run.sh [-o RESULTS] [PART…]; nothing is built, but for kernels. The parts, by default all in this order:
#   devices kernels bits golden sanitize memory bench peers
# Tests run several at a time, while peers compile; benchmarks run alone, and peers are measured behind them.
# RESULTS ($OUT, else results beside this file) has a line per process in results.jsonl, what they said in log.txt, and figures in bench.jsonl.
# SECONDS_IN_ALL (540) is when it ends, whatever is left; LONGEST what no process of ours may exceed; SECONDS_EACH (1) is how long each case of a benchmark is measured.
here=$(cd "$(dirname "$0")" && pwd)
known="devices kernels bits golden sanitize memory bench peers"
out=${OUT:-$here/results}
if [ "$1" = -o ]; then
  [ $# -ge 2 ] || { echo "run.sh: -o needs a folder for results" >&2; exit 2; }
  out=$2
  shift 2
fi
case $1 in -h | --help) echo "run.sh [-o RESULTS] [PART…]: the parts are $known; its head says what they are, what is left, and which variables it heeds"; exit 0 ;; esac
for part in "$@"; do
  case " $known " in *" $part "*) ;; *) echo "run.sh: there is no part '$part'; there are $known" >&2; exit 2 ;; esac
done
{ mkdir -p "$out" && out=$(cd "$out" && pwd) && rm -f "$out/ceilings.txt" "$out"/peers.* "$out"/running*; } || { echo "run.sh: $out: the folder for results cannot be made" >&2; exit 2; }
parts=${*:-$known}
chosen=$#
running=$out/running.txt log=$out/log.txt
all=${SECONDS_IN_ALL:-540}
each=${SECONDS_EACH:-1}
case $all$LONGEST in *[!0-9]*) echo "run.sh: SECONDS_IN_ALL and LONGEST are whole numbers of seconds, not '$all' and '$LONGEST'" >&2; exit 2 ;; esac
for file in bin/belfry bin/gpu_test bin/bench_gpu lib/libbelfry_cuda.so; do
  [ -f "$here/$file" ] || { echo "run.sh: $here lacks $file: unpack the bundle anew" >&2; exit 2; }
done
now() { date +%s; }
deadline=$(($(now) + all))
failed=0

# Not among the results, and there for a second command.
export BELFRY_CACHE="${BELFRY_CACHE:-${TMPDIR:-/tmp}/belfry-gpu-cache}" BELFRY_CUDA_BACKEND="$here/lib/libbelfry_cuda.so" BELFRY_SHARED="$here/shared"
mkdir -p "$BELFRY_CACHE"
wheels=$(python3 -c 'import glob, nvidia; print(":".join(d for p in nvidia.__path__ for d in sorted(glob.glob(p + "/*/lib"))))' 2>/dev/null)
[ -z "$wheels" ] || export BELFRY_CUDA_PATH="${BELFRY_CUDA_PATH:+$BELFRY_CUDA_PATH:}$wheels"
libraries=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# A C library that is too old, or none: the bundle has one.
loader=
LD_LIBRARY_PATH=$libraries "$here/bin/belfry" --help >/dev/null 2>&1 || loader=$here/lib/base/ld-linux-x86-64.so.2

short() { printf %.120s "$1"; }
told() { printf %s "$1" | tr '"\\\t' "'/ "; }
line() { printf '{"part": "%s", "name": "%s", %s}\n' "$part" "$name" "$1" >>"$out/results.jsonl"; }
skip() {  # WHY
  echo "$part $name: skipped, since $(short "$1")"
  line "\"skipped\": \"$(told "$1")\""
}
first_line() {
  why=
  read -r why <"$running"
}

# What was said to the log, of very much its beginning and end.
keep() {
  echo "==== $part $name: exit $code" >>"$log"
  if [ "$(wc -c <"$running")" -le 1000000 ]; then
    cat "$running" >>"$log"
  else
    { head -c 700000 "$running"; printf '\n[…]\n'; tail -c 300000 "$running"; } >>"$log"
  fi
}

# COMMAND…: for at most $limit seconds, and no longer than its part and the whole have. Sets code, took and cut; with `lines` what it prints is appended there.
limited() {
  begin=$(now)
  cut=
  code=124
  took=0
  if [ -n "$LONGEST" ] && [ "$LONGEST" -lt "$limit" ]; then limit=$LONGEST; fi
  if [ $((end - begin)) -lt "$limit" ]; then limit=$((end - begin)) cut=', "cut": true'; fi
  : >"$running"
  [ "$limit" -ge 1 ] || return 1
  if [ -n "$lines" ]; then timeout -k 5 "$limit" "$@" >>"$lines" 2>"$running"; else timeout -k 5 "$limit" "$@" >"$running" 2>&1; fi
  code=$?
  took=$(($(now) - begin))
  case $code in 124 | 137) ;; *) cut= ;; esac
}
# PROGRAM ARGUMENTS…: of the bundle, under a tool of compute-sanitizer if $tool names one.
ours() {
  program=$here/bin/$1
  shift
  set -- "$program" "$@"
  [ -z "$loader" ] || set -- "$loader" --library-path "$libraries:$here/lib/base" "$@"
  case $tool in
    '') ;;
    memcheck) set -- "$sanitizer" --tool memcheck --report-api-errors no --error-exitcode 9 "$@" ;;
    *) set -- "$sanitizer" --tool "$tool" --error-exitcode 9 "$@" ;;
  esac
  limited env LD_LIBRARY_PATH="$libraries" "$@"
}
fail() { [ -n "$cut" ] || failed=1; }
no_time() { skip "no time is left: SECONDS_IN_ALL and run.sh $part give it more"; }

# Of what gtest printed: how many passed, failed and were skipped, the last reason for that, and the names of those that began.
count() {
  passed=0 wrong=0 skipped=0 begun='' refused='' names='' why='' last=''
  while IFS= read -r text || [ -n "$text" ]; do
    case $last in *": Skipped") why=$text ;; esac
    last=$text
    case $text in
      "[ RUN      ] "*) begun=$begun:${text#"[ RUN      ] "} ;;
      "[       OK ]"*" ms)") passed=$((passed + 1)) ;;
      "[  SKIPPED ]"*" ms)") skipped=$((skipped + 1)) ;;
      "[  FAILED  ]"*" ms)") wrong=$((wrong + 1)) names="$names
  ${text#"[  FAILED  ] "}" ;;
      "========= Error: "* | "========= Internal Sanitizer Error"*) refused=${text#"========= "} ;;
    esac
  done <"$running"
}

# NAME LIMIT FILTER [WITHOUT]: a process. One that dies is followed by another for the tests that had not begun; one that hung has half the time.
tests() {
  name=$1 limit=$2 filter=$3 without=$4 again=0
  while [ $again -lt 30 ]; do
    ours gpu_test "--gtest_filter=$filter${without:+-$without}" || { no_time; return; }
    count
    keep
    if [ -n "$refused" ] && [ $code != 0 ]; then skip "compute-sanitizer says: $refused"; return; fi
    [ -n "$begun" ] || [ $again = 0 ] || return
    echo "$part $name: exit $code, $took s: $passed passed, $wrong failed, $skipped skipped${why:+ ($(short "$why"))}${cut:+, and no time is left}$names"
    line "\"exit\": $code, \"seconds\": $took, \"passed\": $passed, \"failed\": $wrong, \"left_out\": $skipped${why:+, \"why\": \"$(told "$why")\"}$cut"
    [ $code = 0 ] || fail
    [ -n "$begun" ] && [ -z "$cut" ] || return
    case $code in
      0 | 1 | 9) return ;;
      124 | 137) limit=$((limit / 2)) ;;
    esac
    [ "$limit" -ge 1 ] || return
    without=${without:+$without:}${begun#:}
    again=$((again + 1))
  done
}
# NAME PROCESSES LIMIT FILTER [WITHOUT]: its tests, dealt to so many processes beside all others since `together`.
beside() {
  name=$1 limit=20
  dealt=0 under=$tool tool=''
  while [ $dealt -lt "$2" ]; do dealt=$((dealt + 1)); eval "share_$dealt="; done
  ours gpu_test "--gtest_filter=$4${5:+-$5}" --gtest_list_tests || { no_time; return; }
  tool=$under
  while IFS= read -r text; do
    case $text in
      "  "*) dealt=$((dealt % $2 + 1)) text=${text#"  "} && eval "share_$dealt=\$share_$dealt:\$suite\${text%%  *}" ;;
      *.) suite=$text ;;
    esac
  done <"$running"
  [ -n "$share_1" ] || share_1=:$4${5:+-$5}  # it will say why
  for dealt in 1 2 3 4; do
    [ $dealt -le "$2" ] || break
    eval "share=\$share_$dealt"
    [ -n "$share" ] || continue
    at=$out/running-$part-$1-$dealt
    ( running=$at.txt log=$at.log failed=0; tests "$1" "$3" "${share#:}"; rm -f "$running"; exit $failed ) &
    processes="$processes $!"
  done
}
together() {
  for process in $processes; do wait "$process" || failed=1; done
  for text in "$out"/running-*.log; do [ ! -f "$text" ] || { cat "$text" >>"$log"; rm -f "$text"; }; done
  processes=''
}
# NAME: after a benchmark, whose figures are in bench.jsonl already.
figures() {
  keep
  first_line
  if [ $code = 77 ]; then skip "$why"; return; fi
  made=$(($(wc -l <"$lines") - before))
  echo "$part $name: exit $code, $took s: $made figures${cut:+, and no time is left}${why:+; $(short "$why")}"
  line "\"exit\": $code, \"seconds\": $took, \"figures\": $made$cut"
  [ $code = 0 ] || fail
}
bench() {  # NAME LIMIT
  name=$1 limit=$2
  before=$(wc -l <"$lines")
  if [ -n "$cluster" ]; then set -- --cluster "$here/clusters/$cluster.json"; else set --; fi
  ours bench_gpu --seconds "$each" --ceilings "$out/ceilings.txt" "$@" "$name" || { no_time; return; }
  figures
}
sees() { command -v python3 >/dev/null && timeout -k 5 60 python3 -c "$1" 2>/dev/null; }
# They compile now, and are measured when `peers` says go. All hold memory of the GPU until then: more of large nets would leave too little.
compile_peers() {
  cases=
  if sees 'import torch; assert torch.cuda.is_available()'; then
    for workload in resnet50_train transformer_train mobilenet_v2_train cifar10_train mnist_cnn_train; do cases="$cases torch:$workload:128:compile_bf16"; done
    cases="$cases torch:transformer_train:128:compile_tf32 torch:transformer_train:128:eager_bf16 torch:mnist_cnn_train:128:compile torch:mobilenet_v2_infer:1:compile_bf16 torch:mobilenet_v2_infer:32:compile_bf16"
  fi
  if sees 'import jax; assert jax.default_backend() == "gpu"'; then
    cases="$cases jax:resnet50_train:128:jit_bf16 jax:transformer_train:128:jit_bf16 jax:mnist_cnn_train:128:jit jax:mobilenet_v2_infer:1:jit_bf16"
  fi
  [ -n "$cases" ] || return
  rm -f "$out/go"
  python3 -B "$here/gpu_peers.py" --seconds "$each" --ready 150 --until "$all" --wait "$out/go" $cases >"$out/peers.jsonl" 2>"$out/peers.txt" &
  peers=$!
}
# Until all have compiled, or had the time for it: they would disturb what is measured.
peers_idle() {
  [ -z "$peers" ] || while kill -0 "$peers" 2>/dev/null && [ ! -s "$out/peers.txt" ] && [ "$(now)" -lt $deadline ]; do sleep 1; done
}
# SECONDS: of the part, unless parts were named, which then have all that is left.
begins() {
  end=$(($(now) + $1))
  if [ $end -gt $deadline ] || [ "$chosen" -gt 0 ]; then end=$deadline; fi
}

processes='' peers=''
trap 'kill $peers $processes 2>/dev/null' EXIT
trap 'exit 130' INT TERM
case " $parts " in *" peers "*) compile_peers ;; esac
for part in $parts; do
  lines='' tool=''
  case $part in
    devices)
      name=devices limit=30
      begins 30
      ours belfry devices && cat "$running"
      keep
      echo "devices: exit $code"
      line "\"exit\": $code, \"seconds\": $took"
      [ $code = 0 ] || fail
      ;;
    kernels)
      begins 140
      beside GpuOps 4 130 '*/GpuOps.*'
      beside GpuKernels 1 60 'GpuKernels.*:GpuTrees.*'
      together
      ;;
    bits)
      begins 140
      beside GpuBits 1 40 'GpuBits.*'
      beside GpuRepeats 3 80 '*/GpuRepeats.*'
      beside GpuStrategies 4 100 '*/GpuStrategies.*'
      together
      ;;
    golden)
      # The nets of f32 beside what is said of GPUs alone.
      begins 120
      beside GpuGolden 1 30 'GpuGolden.*'
      for suite in MnistCnn MnistTwoHeads TowersByHand CifarTutorial; do beside $suite 1 60 "*/$suite.*" '*f64*'; done
      beside GoldenRun 3 80 '*/GoldenRun.*'
      beside GoldenOp 2 60 '*/GoldenOp.*'
      beside MobileNetOnDigits 1 60 '*/MobileNetOnDigits.begins*'
      beside InceptionResNetV2 1 90 'InceptionResNetV2.*'
      together
      ;;
    sanitize)
      begins 180
      sanitizer=$(command -v compute-sanitizer || command -v /usr/local/cuda/bin/compute-sanitizer)
      for name in memcheck racecheck synccheck; do
        if [ -z "$sanitizer" ]; then skip "there is no compute-sanitizer in PATH or /usr/local/cuda/bin"; continue; fi
        tool=$name
        # Under racecheck and synccheck only our own kernels have something to tell.
        if [ $tool = memcheck ]; then beside memcheck 4 150 '*/GpuOps.*:GpuKernels.*'
        else BELFRY_GPU_KERNELS=nvrtc_ && export BELFRY_GPU_KERNELS && beside $tool 3 150 '*/GpuOps.*'; fi
        unset BELFRY_GPU_KERNELS
      done
      together
      ;;
    memory)
      peers_idle  # the whole GPU's memory is looked at
      begins 15
      tests GpuMemory 15 'GpuMemory.*'
      ;;
    bench)
      peers_idle
      begins 190
      limit=30 cluster=''
      ours belfry devices
      while read -r text; do
        case $text in *H200*) cluster=h200x1024 ;; *H100*) cluster=h100x8 ;; *A100*) cluster=a100x8 ;; *P100*) cluster=p100x8 ;; *K80*) cluster=k80x8 ;; esac
      done <"$running"
      lines=$out/bench.jsonl
      : >>"$lines"
      bench launch 15
      bench transformer_train 60
      bench mobilenet_v2_infer 40
      bench resnet50_train 80
      bench mnist_cnn_train 40
      bench cifar10_train 50
      bench mobilenet_v2_train 80
      ;;
    peers)
      begins "$all"
      lines=$out/bench.jsonl
      name=peers from=$(now)
      : >>"$lines"
      if [ -z "$peers" ]; then skip "python3 here has no PyTorch or JAX that sees a GPU"; continue; fi
      peers_idle
      : >"$out/go"
      while kill -0 "$peers" 2>/dev/null && [ "$(now)" -lt "$end" ]; do sleep 1; done
      code=0 took=$(($(now) - from)) cut='' before=$(wc -l <"$lines")
      if kill "$peers" 2>/dev/null; then code=124 cut=', "cut": true'; else wait "$peers" || code=$?; fi
      peers=''  # whose number may soon be another's
      cat "$out/peers.jsonl" >>"$lines"
      cat "$out/peers.txt" >"$running"
      figures
      rm -f "$out/peers.jsonl" "$out/peers.txt" "$out/go"
      ;;
  esac
done
rm -f "$running" "$out/ceilings.txt"
exit $failed
