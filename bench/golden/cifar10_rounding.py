#!/usr/bin/env python3
"""How far rounding alone moves the final norms of golden/cifar10_tutorial: TensorFlow's own ops train the case's net from its init.safetensors.

    python3 bench/golden/cifar10_rounding.py ../shared [--towers 1] [--nudges 3]

Needs tensorflow (2.21, as the case), numpy and safetensors. Each line is one training: with or without oneDNN, in f64, and in f32 from initial kernels of which every element
is moved by at most one unit in the last place. It has the largest difference of a loss to the file's, the largest share of what the test allows
it (four times the file's spread, and 3e-6) with its step, and of each final norm as a share of the file's norm: those above 1e-3,
the case's tolerance, with a star.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

STEPS, ROWS, LAYERS = 60, 32, ("conv1", "conv2", "local3", "local4", "softmax_linear")
MODES = {"oneDNN": ("1", "float32", 0), "no oneDNN": ("0", "float32", 0), "float64": ("0", "float64", 0)}


def images(np, tf, shared, count, dtype):
    records = np.fromfile(shared / "data/cifar10/data_batch_1.bin", np.uint8)[: count * 3073].reshape(-1, 3073)
    x = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)[:, 4:28, 4:28, :]
    if dtype == tf.float32:
        standard = np.stack([tf.image.per_image_standardization(tf.cast(i, tf.float32)).numpy() for i in x])
    else:
        x = x.astype(np.float64)
        standard = (x - x.mean((1, 2, 3), keepdims=True)) / np.maximum(x.std((1, 2, 3), keepdims=True), 1728**-0.5)
    return standard, records[:, 0].astype(np.int32)


def train(shared, towers, dtype, nudge):
    """Losses per step and tower, and final variables."""
    import numpy as np
    import tensorflow as tf
    from safetensors.numpy import load_file

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.experimental.enable_op_determinism()
    dtype, draw = tf.as_dtype(dtype), np.random.default_rng(nudge)
    w = {}
    for name, value in load_file(shared / "golden/cifar10_tutorial/init.safetensors").items():
        if nudge and name.endswith("weights"):
            value = np.nextafter(value, value + draw.integers(-1, 2, value.shape).astype(np.float32))
        w[name] = tf.Variable(tf.cast(value, dtype))
    x, y = images(np, tf, shared, STEPS * towers * ROWS, dtype)

    def normal(t):
        if dtype == tf.float32:
            return tf.nn.local_response_normalization(t, 4, 1.0, 0.001 / 9, 0.75)
        padded = tf.pad(tf.square(t), [[0, 0]] * 3 + [[4, 4]])
        return t / tf.pow(1.0 + 0.001 / 9 * sum(padded[..., i : i + 64] for i in range(9)), 0.75)

    def conv(t, layer):
        return tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(t, w[layer + "/weights"], 1, "SAME"), w[layer + "/biases"]))

    def loss_of(image, label):
        t = normal(tf.nn.max_pool2d(conv(image, "conv1"), 3, 2, "SAME"))
        t = tf.reshape(tf.nn.max_pool2d(normal(conv(t, "conv2")), 3, 2, "SAME"), [ROWS, -1])
        for layer in ("local3", "local4"):
            t = tf.nn.relu(t @ w[layer + "/weights"] + w[layer + "/biases"])
        logits = t @ w["softmax_linear/weights"] + w["softmax_linear/biases"]
        decay = sum(tf.nn.l2_loss(w[layer + "/weights"]) * tf.cast(0.004, dtype) for layer in ("local3", "local4"))
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(label, logits)) + decay

    @tf.function
    def step(image, label, rate):
        losses, found = [], []
        for i in range(towers):
            with tf.GradientTape() as tape:
                losses.append(loss_of(image[i * ROWS : (i + 1) * ROWS], label[i * ROWS : (i + 1) * ROWS]))
            found.append(tape.gradient(losses[-1], list(w.values())))
        for variable, parts in zip(w.values(), zip(*found)):
            variable.assign_sub(rate * (tf.add_n(parts) / towers))
        return tf.stack(losses)

    losses = []
    for t in range(STEPS):
        rows = slice(t * towers * ROWS, (t + 1) * towers * ROWS)
        rate = np.float32(0.1) * np.float32(0.1) ** np.float32(t // 20)
        losses.append(step(tf.constant(x[rows]), tf.constant(y[rows]), tf.cast(rate, dtype)).numpy().tolist())
    return losses, {name: float(np.linalg.norm(v.numpy().astype(np.float64))) for name, v in w.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared", type=pathlib.Path, help="the folder that holds golden/ and data/")
    parser.add_argument("--towers", type=int, default=1, choices=(1, 2))
    parser.add_argument("--nudges", type=int, default=3, help="trainings from nudged kernels")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        dtype, nudge = args.one.split(",")
        print(json.dumps(train(args.shared, args.towers, dtype, int(nudge))))
        return
    golden = json.loads((args.shared / "golden/cifar10_tutorial/expected.json").read_text())["runs"][f"towers_{args.towers}"]
    names = [f"{layer}/{part}" for layer in LAYERS for part in ("weights", "biases")]
    print(f"{'':12}{'loss':>9}{'of the tolerance':>22}" + "".join(f"{n.replace('softmax_linear', 'softmax'):>16}" for n in names))
    modes = dict(MODES, **{f"nudged {k}": ("1", "float32", k) for k in range(1, args.nudges + 1)})
    for mode, (onednn, dtype, nudge) in modes.items():
        environment = dict(os.environ, TF_ENABLE_ONEDNN_OPTS=onednn, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
        command = [sys.executable, __file__, str(args.shared), "--towers", str(args.towers), "--one", f"{dtype},{nudge}"]
        losses, norms = json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
        apart = max(abs(a - b) for mine, theirs in zip(losses, golden["total_loss"]) for a, b in zip(mine, theirs))
        used, at = max((abs(a - b) / (4 * golden["loss_spread"][t] + 3e-6 * max(1, abs(b))), t) for t in range(STEPS) for a, b in zip(losses[t], golden["total_loss"][t]))
        shares = [abs(norms[n] / golden["final"][n]["l2"] - 1) for n in names]
        print(f"{mode:12}{apart:9.1e}{used:11.2f} of step {at:2}" + "".join(f"{s:15.1e}{'*' if s > 1e-3 else ' '}" for s in shares), flush=True)


if __name__ == "__main__":
    main()
