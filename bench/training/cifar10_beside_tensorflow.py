#!/usr/bin/env python3
"""Trains TensorFlow's CIFAR-10 tutorial net with Belfry and with TensorFlow, each from several seeds, and holds the loss curves beside each other.

Both take the same images (cut to the 24 x 24 in their middle, standardised), every epoch in another order, batches of the same size over two towers,
the same initialisers (normal, redrawn outside two deviations), weight decay on two layers, learning rate in stairs, and moving averages of the weights.
Initial values and orders are drawn by each program for itself, so curves agree in distribution only: of every 100 steps the mean loss is taken, and the
band of Belfry's seeds must overlap that of TensorFlow's. Three seeds and three of one program miss each other in one window of ten by chance, so bands
may be apart, by up to 3 standard deviations of the seeds (taken over five windows): in simulated runs of one program beside itself they are further
apart somewhere in 1 to 2 comparisons of 100, however much the windows of a run hang together. Exit 1 where they are.
"""

import argparse
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
WINDOW, LIMIT = 100, 3.0
RATE, FACTOR, DECAY, AVERAGE = 0.1, 0.1, 0.004, 0.9999


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a folder with data_batch_*.bin and test_batch*.bin")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3, help="runs of each program; at least 3")
    parser.add_argument("--batch", type=int, default=64, help="rows of a step: half of them for each of the two towers")
    parser.add_argument("--decay-steps", type=int, default=1000, help="steps of a stair; the tutorial's 350 epochs are more than this run has")
    parser.add_argument("--belfry", default=ROOT / "build" / "belfry", help="the program; by default what tools/build makes")
    parser.add_argument("--net", help="what Belfry trains, by default cifar10:decay_steps=...; another rate must be noticed: cifar10:rate=0.05")
    parser.add_argument("--out", default=ROOT / "build" / "cifar10_beside_tensorflow", help="a folder for the losses of each run, bands.csv and bands.svg")
    parser.add_argument("--reuse", action="store_true", help="take runs whose losses are in that folder already as they are")
    o = parser.parse_args()
    o.net = o.net or f"cifar10:decay_steps={o.decay_steps}"
    if o.seeds < 3 or o.steps < WINDOW or o.batch % 2:
        parser.error(f"at least 3 seeds, at least {WINDOW} steps, and an even batch are needed")
    return o


def say(text):
    print(text, file=sys.stderr, flush=True)


# ---------------------------------------------------------------- Belfry


def train_belfry(o, seed, log):
    command = [o.belfry, "train", o.net, "--data", o.data, "--devices", "cpu:0,cpu:1", "--batch", o.batch, "--steps", o.steps, "--shuffle", "--averages", "--seed", seed, "--log", log]
    say("  " + " ".join(map(str, command)))
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"belfry failed:\n{done.stderr}")
    return float(re.search(r"test accuracy ([\d.]+) %", done.stdout).group(1))


# ---------------------------------------------------------------- TensorFlow


def rows(folder, pattern):
    """Images (n, 24, 24, 3) and labels, as the tutorial's evaluation prepares them."""
    files = sorted(pathlib.Path(folder).glob(pattern))
    if not files:
        sys.exit(f"{folder}: no {pattern}")
    records = np.concatenate([np.fromfile(f, np.uint8).reshape(-1, 3073) for f in files])
    x = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)[:, 4:28, 4:28].astype(np.float64)
    mean, deviation = x.mean((1, 2, 3), keepdims=True), x.std((1, 2, 3), keepdims=True)
    return ((x - mean) / np.maximum(deviation, 1 / math.sqrt(24 * 24 * 3))).astype(np.float32), records[:, 0].astype(np.int32)


def orders(count, batch, rng):
    """Batches of row numbers for ever: each epoch in an order of its own, its last batch what is left."""
    while True:
        order = rng.permutation(count)
        for first in range(0, count, batch):
            yield order[first : first + batch]


def tensorflow():
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        import tensorflow as tf
    except ImportError:
        sys.exit("TensorFlow is not here; it comes by: python3 -m venv tf && tf/bin/pip install tensorflow-cpu, and tf/bin/python runs this script")
    if not tf.config.threading.get_intra_op_parallelism_threads():  # before its first operation: a thread for each tower
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(2)
    return tf


def tensorflow_net(tf, seed, dtype="float32"):
    """The variables by layer, kernel and bias, and the function from images to logits."""
    shapes = {"conv1": ([5, 5, 3, 64], 0.05, 0.0), "conv2": ([5, 5, 64, 64], 0.05, 0.1), "local3": ([2304, 384], 0.04, 0.1), "local4": ([384, 192], 0.04, 0.1)}
    shapes["softmax_linear"] = ([192, 10], 1 / 192, 0.0)
    variables = {}
    for number, (name, (shape, deviation, bias)) in enumerate(shapes.items()):
        kernel = tf.random.stateless_truncated_normal(shape, [seed, number], stddev=deviation, dtype=dtype)
        variables[name] = (tf.Variable(kernel), tf.Variable(tf.fill(shape[-1:], tf.constant(bias, dtype))))

    def norm(x):
        """local_response_normalization(x, 4, bias=1, alpha=0.001 / 9, beta=0.75), which TensorFlow has for floats of 32 bits and below alone."""
        if x.dtype == tf.float32:
            return tf.nn.local_response_normalization(x, 4, bias=1.0, alpha=0.001 / 9, beta=0.75)
        squares = tf.pad(x * x, [[0, 0], [0, 0], [0, 0], [4, 4]])
        return x * (1 + 0.001 / 9 * sum(squares[..., i : i + x.shape[-1]] for i in range(9))) ** -0.75

    def logits(x):
        conv = lambda x, name: tf.nn.relu(tf.nn.conv2d(x, variables[name][0], 1, "SAME") + variables[name][1])
        dense = lambda x, name: tf.matmul(x, variables[name][0]) + variables[name][1]
        pool = lambda x: tf.nn.max_pool2d(x, 3, 2, "SAME")
        x = pool(norm(conv(norm(pool(conv(x, "conv1"))), "conv2")))
        x = tf.nn.relu(dense(tf.reshape(x, [-1, 2304]), "local3"))
        return dense(tf.nn.relu(dense(x, "local4")), "softmax_linear")

    return variables, logits


def tensorflow_step(tf, variables, logits, decay_steps, taken=0):
    """A step of training on two towers, which gives the loss before its update, and the moving averages of all variables; `taken` steps went before it."""
    trained = [v for pair in variables.values() for v in pair]
    shadows = [tf.Variable(v) for v in trained]
    step = tf.Variable(taken, dtype=tf.int64)
    dtype = trained[0].dtype

    @tf.function(input_signature=[tf.TensorSpec([None, 24, 24, 3], dtype), tf.TensorSpec([None], tf.int32)])
    def train_step(images, labels):
        losses, gradients = [], []
        half = tf.shape(images)[0] // 2
        for part in (slice(0, half), slice(half, None)):  # a tower each
            with tf.GradientTape() as tape:
                entropy = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels[part], logits(images[part])))
                losses.append(entropy + DECAY * sum(tf.nn.l2_loss(variables[name][0]) for name in ("local3", "local4")))
            gradients.append(tape.gradient(losses[-1], trained))
        rate = RATE * FACTOR ** tf.cast(step // decay_steps, dtype)
        for v, first, second in zip(trained, *gradients):
            v.assign_sub(rate * (first + second) / 2)
        s = tf.cast(step.assign_add(1), dtype)
        weight = 1 - tf.minimum(tf.constant(AVERAGE, dtype), (1 + s) / (10 + s))
        for shadow, v in zip(shadows, trained):
            shadow.assign_sub(weight * (shadow - v))
        return sum(losses) / 2

    return train_step, list(zip(trained, shadows))


def train_tensorflow(o, seed, log):
    variables, logits = tensorflow_net(tensorflow(), seed)
    train_step, averages = tensorflow_step(tensorflow(), variables, logits, o.decay_steps)
    images, labels = rows(o.data, "data_batch*.bin")
    batches = orders(len(labels), o.batch, np.random.default_rng(seed))
    start = time.time()
    with open(log, "w", encoding="utf-8") as out:
        for k in range(1, o.steps + 1):
            pick = next(batches)
            loss = float(train_step(images[pick], labels[pick]))
            out.write(json.dumps({"step": k, "rows": len(pick), "seconds": round(time.time() - start, 3), "loss": loss}) + "\n")
    for v, shadow in averages:
        v.assign(shadow)
    images, labels = rows(o.data, "test_batch*.bin")
    right = np.concatenate([np.argmax(logits(images[i : i + 256]), 1) for i in range(0, len(labels), 256)]) == labels
    return 100 * float(right.mean())


# ---------------------------------------------------------------- both


def runs_of(o, name, train):
    """Losses (seeds, steps) and final accuracies in per cent."""
    losses, accuracies = [], []
    for seed in range(o.seeds):
        log, result = pathlib.Path(o.out, f"{name}_{seed}.jsonl"), pathlib.Path(o.out, f"{name}_{seed}.json")
        if not (o.reuse and result.exists()):
            start = time.time()
            result.unlink(missing_ok=True)
            accuracy = train(o, seed, log)
            result.write_text(json.dumps({"accuracy": accuracy, "steps": o.steps, "batch": o.batch, "decay_steps": o.decay_steps, "seconds": round(time.time() - start, 1)}) + "\n", encoding="utf-8")
        facts = json.loads(result.read_text(encoding="utf-8"))
        if (facts["steps"], facts["batch"], facts["decay_steps"]) != (o.steps, o.batch, o.decay_steps):
            sys.exit(f"{result}: of other steps, batch or stairs; leave --reuse out")
        lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        losses.append([line["loss"] for line in lines if "step" in line])
        accuracies.append(facts["accuracy"])
        say(f"{name}, seed {seed}: {len(losses[-1])} steps, {facts['seconds']:.0f} s, last loss {losses[-1][-1]:.3f}, test accuracy {accuracies[-1]:.1f} %")
        if len(losses[-1]) != o.steps:
            sys.exit(f"{log}: {len(losses[-1])} steps, not {o.steps}")
    return np.array(losses), accuracies


def compared(ours, theirs):
    """Per window: first and last step, both bands, and by how many deviations of the seeds they are apart (below 0: they overlap)."""
    windows = ours.shape[1] // WINDOW
    means = [x[:, : windows * WINDOW].reshape(len(x), windows, WINDOW).mean(2) for x in (ours, theirs)]
    variance = (means[0].var(0, ddof=1) + means[1].var(0, ddof=1)) / 2
    out = []
    for w in range(windows):
        (a, b), (c, d) = ((m[:, w].min(), m[:, w].max()) for m in means)
        deviation = math.sqrt(variance[max(0, w - 2) : w + 3].mean())
        out.append((w * WINDOW + 1, (w + 1) * WINDOW, a, b, c, d, max(a - d, c - b) / deviation))
    return out


def svg(table):
    """Both bands over the steps."""
    width, height, left, top = 720, 360, 50, 20
    most, least = max(max(r[3], r[5]) for r in table), min(min(r[2], r[4]) for r in table)
    x = lambda row: left + (width - left - 20) * ((row[0] + row[1]) / 2) / table[-1][1]
    y = lambda v: top + (height - 2 * top - 20) * (most - v) / (most - least)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>']
    for name, colour, low, place in (("Belfry", "#1f77b4", 2, 0), ("TensorFlow", "#ff7f0e", 4, 1)):
        edge = [f"{x(r):.1f},{y(r[low + 1]):.1f}" for r in table] + [f"{x(r):.1f},{y(r[low]):.1f}" for r in reversed(table)]
        out.append(f'<polygon points="{" ".join(edge)}" fill="{colour}" fill-opacity="0.35" stroke="{colour}"/><text x="{width - 120}" y="{top + 20 + 18 * place}" fill="{colour}">{name}</text>')
    for v in (least, (least + most) / 2, most):
        out.append(f'<text x="4" y="{y(v) + 4:.1f}">{v:.2f}</text>')
    for r in table[4::5]:
        out.append(f'<text x="{x(r):.1f}" y="{height - 8}" text-anchor="middle">{r[1]}</text>')
    return "\n".join(out) + "</svg>\n"


def main():
    o = arguments()
    pathlib.Path(o.out).mkdir(parents=True, exist_ok=True)
    ours, our_accuracies = runs_of(o, "belfry", train_belfry)
    theirs, their_accuracies = runs_of(o, "tensorflow", train_tensorflow)
    table = compared(ours, theirs)
    with open(pathlib.Path(o.out, "bands.csv"), "w", encoding="utf-8") as out:
        out.write("first,last,belfry_min,belfry_max,tensorflow_min,tensorflow_max,apart_in_deviations\n")
        for row in table:
            out.write(",".join(f"{v:.6g}" for v in row) + "\n")
    pathlib.Path(o.out, "bands.svg").write_text(svg(table), encoding="utf-8")
    print(f"mean loss of {WINDOW} steps, {o.seeds} seeds each\n{'steps':>11}  {'Belfry':^15}  {'TensorFlow':^15}  overlap")
    for first, last, a, b, c, d, apart in table:
        print(f"{first:>5} {last:>5}  {a:.4f}..{b:.4f}  {c:.4f}..{d:.4f}  " + ("yes" if apart <= 0 else f"no, apart by {apart:.2f} deviations of the seeds"))
    print(f"{sum(r[6] <= 0 for r in table)} of {len(table)} windows overlap")
    for name, accuracies in (("Belfry", our_accuracies), ("TensorFlow", their_accuracies)):
        print(f"test accuracy of the averaged weights, {name}: " + ", ".join(f"{a:.1f}" for a in accuracies) + " %")
    bad = [r for r in table if r[6] > LIMIT]
    if bad:
        print(f"DIFFERENT: in {len(bad)} windows the bands are more than {LIMIT:g} deviations apart")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
