"""JAX on a GPU beside bench_gpu: the same lines, f32 with TF32 off and with it, and bf16 for all but parameters, norms and the loss. Exits with 77 where there is no JAX, or none that sees a GPU."""
import functools, sys

from gpu_lines import INFERRED, TRAINED, arguments, tell_all

try:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax
except ImportError as e:
    print(f'skipped, since python3 here has no JAX: {e}', file=sys.stderr)
    sys.exit(77)


class Parameters:
    """Of a net, in the order in which it asks: drawn the first time, else those that are given. `statistics`: the running ones of its norms."""
    def __init__(self, values=None, statistics=None, training=True, narrow=lambda x: x):
        self.narrow = narrow
        self.fresh, self.values, self.statistics, self.training = values is None, values or [], statistics or [], training
        self.taken, self.norms, self.new, self.draw = 0, 0, [], np.random.default_rng(0)

    def __call__(self, *shape, value=None):
        if self.fresh:
            scale = (2 / max(1, np.prod(shape[:-1]))) ** 0.5
            self.values.append(np.full(shape, value, np.float32) if value is not None else (self.draw.normal(size=shape) * scale).astype(np.float32))
        self.taken += 1
        return self.values[self.taken - 1]

    def norm(self, x, epsilon=1e-3):
        gamma, beta = self(x.shape[-1], value=1), self(x.shape[-1], value=0)
        if self.fresh:
            self.statistics.append((np.zeros(x.shape[-1], np.float32), np.ones(x.shape[-1], np.float32)))
        old_mean, old_variance = self.statistics[self.norms]
        self.norms += 1
        wide = x.astype(jnp.float32)
        mean, variance = (wide.mean((0, 1, 2)), wide.var((0, 1, 2))) if self.training else (old_mean, old_variance)
        self.new.append((0.99 * old_mean + 0.01 * mean, 0.99 * old_variance + 0.01 * variance))
        return ((wide - mean) * (gamma * lax.rsqrt(variance + epsilon)) + beta).astype(x.dtype)

    def conv(self, x, filters, kernel, stride=1, padding='SAME', bias=True, groups=1):
        w = self(kernel, kernel, x.shape[-1] // groups, filters)
        x = lax.conv_general_dilated(x, w.astype(x.dtype), (stride, stride), padding, dimension_numbers=('NHWC', 'HWIO', 'NHWC'), feature_group_count=groups)
        return x + self(filters, value=0).astype(x.dtype) if bias else x

    def dense(self, x, units):
        return x @ self(x.shape[-1], units).astype(x.dtype) + self(units, value=0).astype(x.dtype)

    def layer_norm(self, x, epsilon=1e-5):
        gamma, beta, wide = self(x.shape[-1], value=1), self(x.shape[-1], value=0), x.astype(jnp.float32)
        mean, variance = wide.mean(-1, keepdims=True), wide.var(-1, keepdims=True)
        return ((wide - mean) * lax.rsqrt(variance + epsilon) * gamma + beta).astype(x.dtype)


def max_pool(x, window, stride, padding='VALID'):
    return lax.reduce_window(x, np.array(-np.inf, x.dtype), lax.max, (1, window, window, 1), (1, stride, stride, 1), padding)


def mnist_cnn(p, x):
    x = max_pool(jax.nn.relu(p.conv(x, 32, 3, padding='VALID')), 2, 2)
    return p.dense(x.reshape(x.shape[0], -1), 10)


def cifar10(p, x):
    def norm(x):
        squares = lax.reduce_window(jnp.square(x.astype(jnp.float32)), 0.0, lax.add, (1, 1, 1, 9), (1, 1, 1, 1), 'SAME')
        return (x * (1 + 0.001 / 9 * squares) ** -0.75).astype(x.dtype)

    x = norm(max_pool(jax.nn.relu(p.conv(x, 64, 5)), 3, 2, 'SAME'))
    x = max_pool(norm(jax.nn.relu(p.conv(x, 64, 5))), 3, 2, 'SAME')
    x = jax.nn.relu(p.dense(x.reshape(x.shape[0], -1), 384))
    return p.dense(jax.nn.relu(p.dense(x, 192)), 10)


def mobilenet_v2(p, x):
    def conv(x, filters, kernel, stride, groups=1):
        return p.norm(p.conv(x, filters, kernel, stride, bias=False, groups=groups))

    x = jax.nn.relu6(conv(x, 32, 3, 2))
    number = 0
    for expansion, filters, blocks, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for i in range(blocks):
            step = stride if i == 0 else 1
            y = jax.nn.relu6(conv(x, expansion * x.shape[-1], 1, 1)) if number else x
            y = jax.nn.relu6(conv(y, y.shape[-1], 3, step, groups=y.shape[-1]))
            y = conv(y, filters, 1, 1)
            x, number = x + y if step == 1 and x.shape[-1] == filters else y, number + 1
    return p.dense(jax.nn.relu6(conv(x, 1280, 1, 1)).mean((1, 2)), 1000)


def resnet50(p, x):
    def conv(x, filters, kernel, stride=1, padding='SAME'):
        return p.norm(p.conv(x, filters, kernel, stride, padding), 1.001e-5)

    x = jax.nn.relu(conv(x, 64, 7, 2, ((3, 3), (3, 3))))
    x = max_pool(x, 3, 2, ((0, 0), (1, 1), (1, 1), (0, 0)))
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for i in range(blocks):
            filters, stride = 64 << stage, 2 if stage and i == 0 else 1
            shortcut = conv(x, 4 * filters, 1, stride) if i == 0 else x
            y = jax.nn.relu(conv(x, filters, 1, stride))
            x = jax.nn.relu(shortcut + conv(jax.nn.relu(conv(y, filters, 3)), 4 * filters, 1))
    return p.dense(x.mean((1, 2)), 1000)


def transformer(p, tokens, width=512, heads=8, blocks=4):
    """A causal language model over bytes, as `belfry nets` has it."""
    batch, length = tokens.shape
    x = p.narrow(jnp.take(p(256, width), tokens, 0) + p(length, width))
    attend = 'cudnn' if x.dtype == jnp.bfloat16 and jax.default_backend() == 'gpu' else None
    for _ in range(blocks):
        q, k, v = jnp.moveaxis(p.dense(p.layer_norm(x), 3 * width).reshape(batch, length, 3, heads, width // heads), 2, 0)
        x = x + p.dense(jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=attend).reshape(batch, length, width), width)
        x = x + p.dense(jax.nn.gelu(p.dense(p.layer_norm(x), 4 * width), approximate=False), width)
    return (p.layer_norm(x) @ p(width, 256).astype(x.dtype)).reshape(-1, 256)


# name: net, batches, shape of a picture or a row of tokens, classes, trains
WORKLOADS = {
    'mnist_cnn_train': (mnist_cnn, TRAINED, (28, 28, 1), 10, True),
    'cifar10_train': (cifar10, TRAINED, (24, 24, 3), 10, True),
    'mobilenet_v2_train': (mobilenet_v2, TRAINED, (224, 224, 3), 1000, True),
    'resnet50_train': (resnet50, TRAINED, (224, 224, 3), 1000, True),
    'transformer_train': (transformer, TRAINED, (128,), 256, True),
    'mobilenet_v2_infer': (mobilenet_v2, INFERRED, (224, 224, 3), 1000, False),
}


def adam(p, m, v, t, g):
    rate = 1e-3 * jnp.sqrt(1 - 0.999 ** t) / (1 - 0.9 ** t)
    m, v = [0.9 * a + 0.1 * b for a, b in zip(m, g)], [0.999 * a + 0.001 * b * b for a, b in zip(v, g)]
    return [a - rate * b / (jnp.sqrt(c) + 1e-7) for a, b, c in zip(p, m, v)], m, v


def step_of(name, batch, variant):
    """One jitted step; the feeds come from the host, those of the next training step meanwhile, and the loss goes there."""
    net, _, shape, classes, trains = WORKLOADS[name]
    draw, halves = np.random.default_rng(1), variant == 'jit_bf16'
    x = draw.random((batch, *shape), np.float32) if len(shape) == 3 else draw.integers(0, classes, (batch, *shape), np.int32)
    y = draw.integers(0, classes, batch if len(shape) == 3 else x.size, np.int32)
    first = Parameters()
    jax.eval_shape(lambda x: net(first, x), jax.ShapeDtypeStruct((1, *shape), x.dtype))  # draws, and computes nothing
    narrow = lambda x: x.astype(jnp.bfloat16) if halves and x.dtype == jnp.float32 else x
    precise = functools.partial(jax.default_matmul_precision, {'jit': 'highest', 'jit_tf32': 'tensorfloat32', 'jit_bf16': 'default'}[variant])

    @jax.jit
    def infer(p, statistics, x):
        with precise():
            return net(Parameters(p, statistics, False, narrow), narrow(x)).astype(jnp.float32)

    def loss_of(p, statistics, x, y):
        own = Parameters(p, statistics, True, narrow)
        logits = net(own, narrow(x)).astype(jnp.float32)
        loss = -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()
        decayed = 0.002 * sum(jnp.square(w).sum() for w in (p[4], p[6])) if net is cifar10 else 0
        return loss + decayed, own.new

    @functools.partial(jax.jit, donate_argnums=0)
    def train(state, x, y):
        p, m, v, statistics, t = state
        with precise():
            (loss, new), g = jax.value_and_grad(loss_of, has_aux=True)(p, statistics, x, y)
        if net is cifar10:
            p = [a - 0.1 * b for a, b in zip(p, g)]
        else:
            p, m, v = adam(p, m, v, t + 1, g)
        return (p, m, v, new, t + 1), loss

    p, statistics = jax.device_put((first.values, first.statistics))
    ahead = [jax.device_put((x, y))]

    def answer():
        out = infer(p, statistics, ahead[0][0])
        ahead[0] = jax.device_put((x, y))
        return np.asarray(out)

    if not trains:
        return answer
    state = [(p, [jnp.zeros_like(a) for a in p], [jnp.zeros_like(a) for a in p], statistics, jnp.zeros(()))]

    def step():
        state[0], loss = train(state[0], *ahead[0])
        ahead[0] = jax.device_put((x, y))
        return float(loss)

    return step


o = arguments(__doc__, WORKLOADS)
if o.device == 'cuda' and jax.default_backend() != 'gpu':
    print(f'skipped, since JAX {jax.__version__} sees no GPU here', file=sys.stderr)
    sys.exit(77)
tell_all('jax ' + jax.__version__, o, {name: w[1] for name, w in WORKLOADS.items()}, ('jit', 'jit_tf32', 'jit_bf16'), step_of, jax.clear_caches)
