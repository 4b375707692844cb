"""The lines of bench_gpu and its peers as tables for docs/gpu_speed.md: steps in ms (medians), how many times as many examples a second as the fastest peer, and the share of the roof.

    bench/gpu_table.py bench.jsonl [more.jsonl …]
"""
import json, sys

PRECISIONS = ('f32', 'tf32', 'bf16')
PEERS = (('eager', 'PyTorch'), ('compile', 'torch.compile'), ('compile_max_autotune', 'max-autotune'), ('jit', 'JAX'))


def main(files):
    best = {}
    for file in files:
        for text in open(file):
            line = json.loads(text)
            peer, variant = line['peer'].split()[0], line['variant']
            precision = next((p for p in ('tf32', 'bf16') if variant == p or variant.endswith('_' + p)), 'f32')
            kind = variant if peer == 'belfry' else variant.removesuffix('_' + precision)
            if peer == 'belfry' and variant in PRECISIONS:
                kind = 'belfry'
            best[line['workload'], line['batch'], precision, kind] = line  # the last one counts
    shown = [(kind, title) for kind, title in PEERS if any(k[3] == kind for k in best)]
    print('| workload | batch | precision | Belfry | ' + ' | '.join(t for _, t in shown) + ' | to the fastest peer | share of the roof |')
    print('|---|---:|---|---:|' + '---:|' * (len(shown) + 2))
    workloads = list(dict.fromkeys(k[0] for k in best if k[3] == 'belfry' and k[0] not in ('ceiling', 'launch')))
    for workload in workloads:
        for batch in sorted({k[1] for k in best if k[0] == workload and k[3] == 'belfry'}):
            for precision in PRECISIONS:
                ours = best.get((workload, batch, precision, 'belfry'))
                if not ours:
                    continue
                peers = [best.get((workload, batch, precision, kind)) for kind, _ in shown]
                fastest = min((p['median_ms'] for p in peers if p), default=None)
                cells = [f'{p["median_ms"]:.3g}' if p else '' for p in peers]
                ratio = f'{fastest / ours["median_ms"]:.2f}' if fastest else ''
                roof = f'{ours["share_of_roof"]:.0%}' if 'share_of_roof' in ours else ''
                print(f'| {workload} | {batch} | {precision} | {ours["median_ms"]:.3g} | ' + ' | '.join(cells) + f' | {ratio} | {roof} |')
    launches = {k[3] if k[3] != 'belfry' else 'f32': v for k, v in best.items() if k[0] == 'launch'}
    if launches:
        print('\nA launch costs ' + ', '.join(f'{v["us_per_op"]:.2f} us {"recorded" if k == "f32" else "without graphs"}' for k, v in launches.items()) + '.')


main(sys.argv[1:])
