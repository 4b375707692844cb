"""PyTorch on a GPU beside bench_gpu: the same workloads and lines. gpu_torch.py [--seconds 2] [NAME…]; VARIANTS=eager,compile. f32, TF32 off; needs torchvision for the pictures' nets."""
import argparse, json, os, sys, time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
torch.manual_seed(0)


class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.dense = nn.Conv2d(1, 32, 3), nn.Linear(5408, 10)

    def forward(self, x):
        return self.dense(F.max_pool2d(F.relu(self.conv(x)), 2).flatten(1))


class Cifar10(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 64, 5, padding=2), nn.Conv2d(64, 64, 5, padding=2)
        self.c, self.d, self.e = nn.Linear(2304, 384), nn.Linear(384, 192), nn.Linear(192, 10)

    def forward(self, x):
        norm = lambda x: F.local_response_norm(x, 9, alpha=0.001, beta=0.75, k=1.0)
        pool = lambda x: F.max_pool2d(F.pad(x, (0, 1, 0, 1)), 3, 2)
        x = norm(pool(F.relu(self.a(x))))
        x = pool(norm(F.relu(self.b(x)))).flatten(1)
        return self.e(F.relu(self.d(F.relu(self.c(x)))))

    def penalty(self):
        return 0.002 * (self.c.weight.square().sum() + self.d.weight.square().sum())


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.q, self.o = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down, self.n1, self.n2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.q(self.n1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Transformer(nn.Module):
    """A causal language model over bytes, as `belfry nets` has it."""
    def __init__(self, width=512, heads=8, length=128, blocks=4):
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, width), nn.Parameter(torch.zeros(length, width))
        self.blocks, self.norm, self.head = nn.Sequential(*[Block(width, heads) for _ in range(blocks)]), nn.LayerNorm(width), nn.Linear(width, 256)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.tokens(x) + self.places))).flatten(0, 1)


def picture_net(name):
    import torchvision
    return lambda: getattr(torchvision.models, name)(weights=None)


def pictures(*shape, classes):
    return lambda n: (torch.rand(n, *shape), torch.randint(classes, (n,)))


# name: model, batches, inputs, trains
WORKLOADS = {
    'mnist_cnn_train': (Digits, (32, 128, 256), pictures(1, 28, 28, classes=10), True),
    'cifar10_train': (Cifar10, (32, 128, 256), pictures(3, 24, 24, classes=10), True),
    'mobilenet_v2_train': (picture_net('mobilenet_v2'), (32, 128, 256), pictures(3, 224, 224, classes=1000), True),
    'resnet50_train': (picture_net('resnet50'), (32, 128, 256), pictures(3, 224, 224, classes=1000), True),
    'transformer_train': (Transformer, (32, 128, 256), lambda n: (torch.randint(256, (n, 128)), torch.randint(256, (n * 128,))), True),
    'mobilenet_v2_infer': (picture_net('mobilenet_v2'), (1, 32), pictures(3, 224, 224, classes=1000), False),
}


def step_of(model, x, y, trains, compiled, device):
    """One step as a user writes it: the feeds come from the host."""
    model = model.to(device).train(trains)
    if x.dim() == 4:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.1) if isinstance(model, Cifar10) else torch.optim.Adam(model.parameters(), fused=device == 'cuda')
    loss_of = lambda x, y: F.cross_entropy(model(x), y) + (model.penalty() if hasattr(model, 'penalty') else 0)
    if compiled:
        loss_of, forward = torch.compile(loss_of, mode='max-autotune'), torch.compile(model, mode='max-autotune')
    else:
        forward = model

    def train():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(x.to(device), y.to(device))
        loss.backward()
        optimizer.step()
        return loss.item()

    @torch.inference_mode()
    def infer():
        return forward(x.to(device)).cpu()

    return train if trains else infer


def measured(step, seconds):
    for _ in range(5):
        step()
    times, begin = [], time.perf_counter()
    while len(times) < 15 or time.perf_counter() - begin < seconds:
        t = time.perf_counter()
        step()
        times.append((time.perf_counter() - t) * 1e3)
    return sorted(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--seconds', type=float, default=2)
    parser.add_argument('--device', default='cuda')
    parser.add_argument('names', nargs='*')
    o = parser.parse_args()
    for name, (model, batches, inputs, trains) in WORKLOADS.items():
        for batch in batches if not o.names or name in o.names else ():
            for variant in os.environ.get('VARIANTS', 'eager,compile').split(','):
                try:
                    times = measured(step_of(model(), *inputs(batch), trains, variant == 'compile', o.device), o.seconds)
                except Exception as e:  # A batch that does not fit does not end the others.
                    print(f'{name} batch {batch} {variant}: {e}', file=sys.stderr)
                    continue
                at = lambda share: times[int(share * (len(times) - 1))]
                print(json.dumps({'peer': 'torch ' + torch.__version__, 'variant': variant, 'workload': name, 'batch': batch, 'median_ms': round(at(0.5), 4), 'p10_ms': round(at(0.1), 4),
                                  'p90_ms': round(at(0.9), 4), 'per_second': round(batch / at(0.5) * 1e3, 1), 'steps': len(times)}), flush=True)


main()
