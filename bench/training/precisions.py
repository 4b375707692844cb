#!/usr/bin/env python3
"""Trains a net in f32, bf16 and f16 from several seeds and prints the test accuracies of each.

Halves are held to f32's own spread: exit 1 where the mean accuracy of bf16 or f16 lies below f32's mean by more than f32's
seeds lie apart from the least to the greatest.
"""

import argparse
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def accuracy(o, precision, seed):
    command = [o.belfry, "train", o.net, "--data", o.data, "--batch", o.batch, "--steps", o.steps, "--shuffle", "--seed", seed, "--precision", precision]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    found = re.search(r"test accuracy ([0-9.]+) %", done.stdout)
    if done.returncode or not found:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return float(found[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", default="mnist_cnn")
    parser.add_argument("--data", required=True, help="the folder that belfry train takes")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0 to this, without it")
    parser.add_argument("--belfry", default=ROOT / "build" / "belfry", help="the program; by default what tools/build makes")
    o = parser.parse_args()
    found = {p: [accuracy(o, p, seed) for seed in range(o.seeds)] for p in ("f32", "bf16", "f16")}
    for precision, each in found.items():
        print(f"{precision:5} mean {statistics.mean(each):6.2f} %   {min(each):6.2f} to {max(each):6.2f}   {' '.join(f'{a:.2f}' for a in each)}")
    least = statistics.mean(found["f32"]) - (max(found["f32"]) - min(found["f32"]))
    low = [p for p in ("bf16", "f16") if statistics.mean(found[p]) < least]
    if low:
        sys.exit(f"{', '.join(low)} below f32's mean by more than its seeds lie apart: under {least:.2f} %")


if __name__ == "__main__":
    main()
