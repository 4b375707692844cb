"""Forecasts of the steps that bench_gpu measured, by a cluster's published figures alone, for docs/forecast.md.

    bench/gpu_forecast.py docs/figures/gpu_h100.jsonl [--cluster h100x8] [--belfry build/belfry]
"""
import argparse, json, statistics, subprocess

NETS = {'transformer': 'transformer:width=512,heads=8,length=128,blocks=4'}


def forecast(belfry, cluster, line):
    net, how = line['workload'].rsplit('_', 1)
    command = [belfry, 'forecast', NETS.get(net, net), '--precision', line['variant'], '--batch', str(line['batch']), '--devices', 'gpu:0', '--cluster', cluster, '--json']
    return 1e3 * json.loads(subprocess.run(command + (['--inference'] if how == 'infer' else []), check=True, capture_output=True, text=True).stdout)['seconds']


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('lines')
    parser.add_argument('--cluster', default='h100x8')
    parser.add_argument('--belfry', default='build/belfry')
    o = parser.parse_args()
    lines = [json.loads(text) for text in open(o.lines)]
    steps = [line for line in lines if line['peer'] == 'belfry' and line['workload'].endswith(('_train', '_infer')) and ',' not in line['variant']]
    errors = []
    print('| workload | batch | precision | measured, ms | forecast, ms | error |\n|---|---:|---|---:|---:|---:|')
    for line in sorted(steps, key=lambda line: (line['workload'], line['batch'], line['variant'])):
        ms = forecast(o.belfry, o.cluster, line)
        errors.append(ms / line['median_ms'] - 1)
        print(f'| {line["workload"]} | {line["batch"]} | {line["variant"]} | {line["median_ms"]:.3g} | {ms:.3g} | {errors[-1]:+.0%} |')
    print(f'\nMedian of the errors\' sizes: {statistics.median(map(abs, errors)):.0%}; the largest {max(errors, key=abs):+.0%}.')


if __name__ == '__main__':
    main()
