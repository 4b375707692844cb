"""PyTorch and JAX beside bench_gpu, a process per case: all compile and warm up side by side, then each is measured alone, while the others wait. Lines as theirs.

    gpu_peers.py [--seconds 1] [--ready 150] [--until 300] torch:resnet50_train:128:eager_bf16 jax:resnet50_train:128:jit_bf16 …
"""
import argparse, os, pathlib, subprocess, sys, tempfile, time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument('--seconds', default='1', help='how long each case is measured')
parser.add_argument('--ready', type=float, default=150, help='seconds that cases have to compile in; those that do not make it are left out')
parser.add_argument('--until', type=float, default=300, help='seconds after which no other case begins to be measured')
parser.add_argument('--wait', type=pathlib.Path, help='a file: nothing is measured before it is there')
parser.add_argument('--device', help='or cpu, to see that the program works')
parser.add_argument('cases', nargs='+', help='PEER:WORKLOAD:BATCH:VARIANT')
o = parser.parse_args()
begin = time.monotonic()
here = pathlib.Path(__file__).resolve().parent
# Each has a share of the cores, and takes of the GPU's memory what it needs.
environment = dict(os.environ, OMP_NUM_THREADS='2', TORCHINDUCTOR_COMPILE_THREADS='4', XLA_PYTHON_CLIENT_PREALLOCATE='false')
with tempfile.TemporaryDirectory() as folder:
    waiting = []
    for case in o.cases:
        peer, workload, batch, variant = case.split(':')
        gate = pathlib.Path(folder) / case.replace(':', '_')
        said = open(gate.with_suffix('.txt'), 'w+')
        command = [sys.executable, '-B', str(here / f'gpu_{peer}.py'), '--seconds', o.seconds, '--batch', batch, '--variants', variant, '--gate', str(gate), *(['--device', o.device] if o.device else []), workload]
        waiting.append((case, gate, said, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True, env=environment)))
    settled = lambda gate, process: gate.with_suffix('.ready').exists() or process.poll() is not None
    while time.monotonic() - begin < o.ready and not all(settled(gate, process) for _, gate, _, process in waiting):
        time.sleep(0.05)
    while o.wait and not o.wait.exists() and time.monotonic() - begin < o.until:
        time.sleep(0.05)
    print(f'{sum(g.with_suffix(".ready").exists() for _, g, _, _ in waiting)} of {len(waiting)} cases were ready after {time.monotonic() - begin:.0f} s', file=sys.stderr, flush=True)
    for case, gate, _, process in waiting:  # what still compiles would disturb the others
        if not gate.with_suffix('.ready').exists():
            process.kill()
    for case, gate, said, process in waiting:
        if gate.with_suffix('.ready').exists() and time.monotonic() - begin < o.until:
            gate.with_suffix('.go').touch()
        else:
            process.kill()
        out, _ = process.communicate()
        print(out, end='', flush=True)
        if not out:
            said.seek(0)
            print(f'{case}: no figure; {said.read()[-600:].strip()}', file=sys.stderr, flush=True)
