#!/usr/bin/env python3
"""Trains the CIFAR-10 net with Belfry from a seed, and from Belfry's state after some of those steps with TensorFlow too, in f32 and in f64, on the very batches that Belfry takes.

It tells bad luck from a fault: a batch that throws the loss up throws it up in all three alike, and a fault of Belfry's parts its losses from both others at once.
Rounding parts them too, but TensorFlow's f32 from its f64 as well, and not at once: at a rate of 0.1 a difference of 1e-7 grows by up to ten times in two steps, and after
some twenty steps two runs from one state are as far apart as two seeds. So the state should be taken a few steps before what is to be looked at.
Per window of steps it prints the greatest difference of losses between the three, and with --each all three losses of every step. Exit 1 where Belfry is apart
from f64, in the first five steps, by over 5e-5 of the loss (seen: 5e-6 and less).
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import cifar10_beside_tensorflow as beside

BELFRY, F32, F64 = "Belfry", "TensorFlow f32", "TensorFlow f64"
NEAR, LIMIT = 5, 5e-5


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a folder with data_batch_*.bin and test_batch*.bin")
    parser.add_argument("--seed", type=int, default=0, help="of Belfry's initial values and order")
    parser.add_argument("--after", type=int, default=1, help="steps of Belfry's before TensorFlow starts; at least 1")
    parser.add_argument("--checkpoint", help="what Belfry wrote after those steps, with this seed and batch, so that they need not be taken again")
    parser.add_argument("--steps", type=int, default=100, help="steps of each from there on")
    parser.add_argument("--window", type=int, default=10, help="steps of a line of the table")
    parser.add_argument("--each", action="store_true", help="a line for each step too, with all three losses")
    parser.add_argument("--batch", type=int, default=64, help="rows of a step: half of them for each of the two towers")
    parser.add_argument("--decay-steps", type=int, default=1000, help="steps of a stair of the learning rate")
    parser.add_argument("--belfry", default=beside.ROOT / "build" / "belfry", help="the program; by default what tools/build makes")
    o = parser.parse_args()
    if min(o.after, o.steps, o.window) < 1 or o.batch % 2:
        parser.error("at least one step before and after, a window of at least one, and an even batch are needed")
    o.net = f"cifar10:decay_steps={o.decay_steps}"
    return o


# ---------------------------------------------------------------- Belfry


def train_belfry(o, folder):
    """The checkpoint after the first steps, and the losses of those that follow."""
    common = [o.belfry, "train", o.net, "--data", o.data, "--devices", "cpu:0,cpu:1", "--batch", o.batch, "--shuffle", "--seed", o.seed]
    checkpoint, log = o.checkpoint or folder / f"step-{o.after:08}.safetensors", folder / "log.jsonl"
    first, then = common + ["--steps", o.after, "--checkpoints", folder], common + ["--steps", o.after + o.steps, "--resume", checkpoint, "--log", log]
    for command in (then,) if o.checkpoint else (first, then):
        beside.say("  " + " ".join(map(str, command)))
        done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"belfry failed:\n{done.stderr}")
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return tensors(checkpoint), [line for line in lines if "step" in line and "rows" in line]


def tensors(path):
    """A safetensors file as arrays by name."""
    data = pathlib.Path(path).read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    header.pop("__metadata__", None)
    types = {"F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8", "U64": "<u8"}
    return {name: np.frombuffer(data[end + e["data_offsets"][0] : end + e["data_offsets"][1]], types[e["dtype"]]).reshape(e["shape"]) for name, e in header.items()}


# ---------------------------------------------------------------- Belfry's order: Fisher and Yates, by XXH3 of (epoch, draw)

MASK = (1 << 64) - 1
FLIPS = 0x1F67B3B7A4A44072 ^ 0x78E5C0CC4EE679CB, 0x2172FFCC7DD05A82 ^ 0x8E2443F7744608B8  # bytes 24 to 55 of XXH3's secret


def xxh3_of_two(first, second, seed):
    """XXH3_64bits_withSeed of two words of 64 bits."""
    low, high = first ^ ((FLIPS[0] + seed) & MASK), second ^ ((FLIPS[1] - seed) & MASK)
    product = low * high
    h = (16 + int.from_bytes(low.to_bytes(8, "little"), "big") + high + ((product & MASK) ^ (product >> 64))) & MASK
    h = ((h ^ (h >> 37)) * 0x165667919E3779F9) & MASK
    return h ^ (h >> 32)


def shuffled(count, seed, epoch):
    order, draw = list(range(count)), 0
    for i in range(count, 1, -1):
        while True:
            product = xxh3_of_two(epoch, draw, seed) * i
            draw += 1
            if product & MASK >= (1 << 64) % i:
                break
        j = product >> 64
        order[i - 1], order[j] = order[j], order[i - 1]
    return order


def batches_after(o, count):
    """Row numbers of each batch from the step `after` on; the last batch of an epoch is what is left."""
    each = -(-count // o.batch)
    epoch, skipped = divmod(o.after, each)
    while True:
        order = shuffled(count, o.seed, epoch)
        for first in range(skipped * o.batch, count, o.batch):
            yield order[first : first + o.batch]
        epoch, skipped = epoch + 1, 0


# ---------------------------------------------------------------- TensorFlow


def train_tensorflow(o, tf, state, dtype, data):
    variables, logits = beside.tensorflow_net(tf, 0, dtype)
    for name, pair in variables.items():
        for v, part in zip(pair, ("kernel", "bias")):
            v.assign(state[f"{name}/{part}"].astype(dtype))
    train_step, _ = beside.tensorflow_step(tf, variables, logits, o.decay_steps, o.after)
    images, labels = data
    batches, losses = batches_after(o, len(labels)), []
    for _ in range(o.steps):
        pick = next(batches)
        losses.append((float(train_step(images[pick].astype(dtype), labels[pick])), len(pick)))
    return losses


def main():
    o = arguments()
    tf = beside.tensorflow()
    with tempfile.TemporaryDirectory() as folder:
        state, lines = train_belfry(o, pathlib.Path(folder))
    if int(state["step"]) != o.after or len(lines) != o.steps:
        sys.exit(f"belfry took other steps than {o.after} and {o.steps}")
    data = beside.rows(o.data, "data_batch*.bin")
    losses = {BELFRY: np.array([line["loss"] for line in lines])}
    for name, dtype in ((F32, "float32"), (F64, "float64")):
        run = train_tensorflow(o, tf, state, dtype, data)
        if [rows for _, rows in run] != [line["rows"] for line in lines]:
            sys.exit("the batches are of other sizes than Belfry's")
        losses[name] = np.array([loss for loss, _ in run])
    return report(o, lines, losses)


def report(o, lines, losses):
    ours, f32, f64 = losses[BELFRY], losses[F32], losses[F64]
    if o.each:
        print(f"{'step':>6} {'rows':>4}  " + "  ".join(f"{name:>14}" for name in losses))
        for k, line in enumerate(lines):
            print(f"{line['step']:>6} {line['rows']:>4}  " + "  ".join(f"{x[k]:>14.7f}" for x in losses.values()))
    print(f"greatest difference of losses, seed {o.seed}, from Belfry's state after {o.after} steps\n{'steps':>13}  {'loss':^15}  {'Belfry-TF f32':>13}  {'Belfry-TF f64':>13}  {'TF f32-f64':>13}")
    for first in range(0, o.steps, o.window):
        at = slice(first, min(first + o.window, o.steps))
        apart = [float(np.abs(a[at] - b[at]).max()) for a, b in ((ours, f32), (ours, f64), (f32, f64))]
        print(f"{o.after + at.start + 1:>6} {o.after + at.stop:>6}  {ours[at].min():.4f}..{ours[at].max():.4f}  " + "  ".join(f"{x:>13.2e}" for x in apart))
    worst = float((np.abs(ours - f64) / f64)[:NEAR].max())
    if worst > LIMIT:
        print(f"DIFFERENT: within {NEAR} steps of one state the losses are apart by {worst:.1e} of the loss")
    return 1 if worst > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
