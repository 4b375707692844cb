"""What the peers' benchmarks on a GPU share: the workloads' names and batches, how a step is timed, and the line that says so, as bench_gpu has them."""
import argparse, gc, json, pathlib, sys, time

# The batch that says the most comes first: a process that is ended has told it.
TRAINED, INFERRED = (128, 256, 32), (1, 32)


def arguments(description, names):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument('--seconds', type=float, default=2, help='how long each case is measured')
    parser.add_argument('--batch', type=int, help='this one alone')
    parser.add_argument('--device', default='cuda', help='or cpu, to see that the program works')
    parser.add_argument('--variants', default='', help='those that are named, by commas')
    parser.add_argument('--gate', type=pathlib.Path, help='a file: when a case has warmed up FILE.ready is made, and it is measured once there is FILE.go')
    parser.add_argument('names', nargs='*', help=', '.join(names))
    o = parser.parse_args()
    if unknown := [n for n in o.names if n not in names]:
        parser.error(f'there is no workload {unknown[0]}')
    return o


def measured(step, seconds, gate):
    for _ in range(5):
        step()
    if gate:
        gate.with_suffix('.ready').touch()
        while not gate.with_suffix('.go').exists():
            time.sleep(0.02)
        for _ in range(3):
            step()
    times, begin = [], time.perf_counter()
    while len(times) < 15 or time.perf_counter() - begin < seconds:
        t = time.perf_counter()
        step()
        times.append((time.perf_counter() - t) * 1e3)
    return sorted(times)


def tell_all(peer, o, workloads, variants, step_of, clear=lambda: None):
    """workloads: by name the batches; step_of(name, batch, variant) makes a step. A batch that does not fit does not end the others."""
    for name, batches in workloads.items():
        for batch in batches if not o.names or name in o.names else ():
            for variant in o.variants.split(',') if o.variants else variants:
                if o.batch and batch != o.batch:
                    continue
                clear()
                begin = time.perf_counter()
                try:
                    step = step_of(name, batch, variant)
                    step()
                    first = time.perf_counter() - begin
                    times = measured(step, o.seconds, o.gate)
                except Exception as e:
                    print(f'{name} batch {batch} {variant}: {e}', file=sys.stderr, flush=True)
                    continue
                finally:
                    step = None
                    gc.collect()
                at = lambda share: times[int(share * (len(times) - 1))]
                print(json.dumps({'peer': peer, 'variant': variant, 'workload': name, 'batch': batch, 'median_ms': round(at(0.5), 4), 'p10_ms': round(at(0.1), 4), 'p90_ms': round(at(0.9), 4),
                                  'per_second': round(batch / at(0.5) * 1e3, 1), 'steps': len(times), 'first_step_s': round(first, 2)}), flush=True)
