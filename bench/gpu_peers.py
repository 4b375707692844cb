"""PyTorch and JAX beside bench_gpu, a process per case: all compile and warm up side by side, then each is measured alone, while the others wait. Lines as theirs.

    gpu_peers.py [--seconds 1] [--ready 150] [--until 300] torch:resnet50_train:128:eager_bf16 jax:resnet50_train:128:jit_bf16 …
"""
import argparse, os, pathlib, signal, subprocess, sys, tempfile, time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument('--seconds', default='1', help='how long each case is measured')
parser.add_argument('--ready', type=float, default=150, help='seconds that cases have to compile in; those that do not make it are left out')
parser.add_argument('--until', type=float, default=300, help='seconds after which no other case begins to be measured')
parser.add_argument('--wait', type=pathlib.Path, help='a file: nothing is measured before it is there')
parser.add_argument('--device', help='or cpu, to see that the program works')
parser.add_argument('cases', nargs='+', help='PEER:WORKLOAD:BATCH:VARIANT')
o = parser.parse_args()
for case in o.cases:
    if case.count(':') != 3 or case.split(':')[0] not in ('torch', 'jax'):
        parser.error(f'{case} is no PEER:WORKLOAD:BATCH:VARIANT of torch or jax')
begin = time.monotonic()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
here = pathlib.Path(__file__).resolve().parent
# Each has a share of the cores, and takes of the GPU's memory what it needs.
environment = dict(os.environ, OMP_NUM_THREADS='2', TORCHINDUCTOR_COMPILE_THREADS='4', XLA_PYTHON_CLIENT_PREALLOCATE='false')
waiting, figures = [], 0
with tempfile.TemporaryDirectory() as folder:
    ready = lambda gate: gate.with_suffix('.ready').exists()
    left = lambda: o.until - (time.monotonic() - begin)
    try:
        for case in o.cases:
            peer, workload, batch, variant = case.split(':')
            gate = pathlib.Path(folder) / case.replace(':', '_')
            said = open(gate.with_suffix('.txt'), 'w+')
            command = [sys.executable, '-B', str(here / f'gpu_{peer}.py'), '--seconds', o.seconds, '--batch', batch, '--variants', variant, '--gate', str(gate), *(['--device', o.device] if o.device else []), workload]
            waiting.append((case, gate, said, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True, env=environment)))
        while time.monotonic() - begin < o.ready and not all(ready(gate) or process.poll() is not None for _, gate, _, process in waiting):
            time.sleep(0.05)
        for case, gate, _, process in waiting:  # what still compiles would disturb the others
            if not ready(gate):
                process.kill()
        print(f'{sum(ready(gate) for _, gate, _, _ in waiting)} of {len(waiting)} cases were ready after {time.monotonic() - begin:.0f} s', file=sys.stderr, flush=True)
        while o.wait and not o.wait.exists() and left() > 0:
            time.sleep(0.05)
        for case, gate, said, process in waiting:
            if ready(gate) and left() > 0:
                gate.with_suffix('.go').touch()
            else:
                process.kill()
            try:
                out = process.communicate(timeout=max(min(left(), 5 + 10 * float(o.seconds)), 1))[0]  # one that hangs keeps the others from their turn no longer
            except subprocess.TimeoutExpired:
                process.kill()
                out = process.communicate()[0]
            print(out, end='', flush=True)
            figures += bool(out)
            if not out:
                said.seek(0)
                print(f'{case}: no figure; {said.read()[-600:].strip()}', file=sys.stderr, flush=True)
    finally:
        for *_, process in waiting:
            process.kill()
sys.exit(0 if figures else 1)
