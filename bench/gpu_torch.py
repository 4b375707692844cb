"""PyTorch on a GPU beside bench_gpu: the same workloads and lines. f32 with TF32 off and with it, and bf16 by autocast; needs torchvision for the pictures' nets.

compile is torch.compile with CUDA graphs; --variants compile_max_autotune,compile_max_autotune_bf16 tunes as well, which takes minutes a net.
"""
import contextlib, gc

from gpu_lines import INFERRED, TRAINED, arguments, tell_all
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.backends.cudnn.benchmark = True  # its engines are timed, as bench_gpu times ours


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
    def make():
        import torchvision
        net = getattr(torchvision.models, name)(weights=None)
        if name == 'resnet50':  # as Keras and `belfry nets` have it: convolutions have biases, and the first of a block the stride
            for m in net.modules():
                if isinstance(m, nn.Conv2d):
                    m.bias = nn.Parameter(torch.zeros(m.out_channels))
                if isinstance(m, torchvision.models.resnet.Bottleneck):
                    m.conv1.stride, m.conv2.stride = m.conv2.stride, (1, 1)
        return net
    return make


def pictures(*shape, classes):
    return lambda n: (torch.rand(n, *shape), torch.randint(classes, (n,)))


# name: model, batches, inputs, trains
WORKLOADS = {
    'mnist_cnn_train': (Digits, TRAINED, pictures(1, 28, 28, classes=10), True),
    'cifar10_train': (Cifar10, TRAINED, pictures(3, 24, 24, classes=10), True),
    'mobilenet_v2_train': (picture_net('mobilenet_v2'), TRAINED, pictures(3, 224, 224, classes=1000), True),
    'resnet50_train': (picture_net('resnet50'), TRAINED, pictures(3, 224, 224, classes=1000), True),
    'transformer_train': (Transformer, TRAINED, lambda n: (torch.randint(256, (n, 128)), torch.randint(256, (n * 128,))), True),
    'mobilenet_v2_infer': (picture_net('mobilenet_v2'), INFERRED, pictures(3, 224, 224, classes=1000), False),
}
VARIANTS = ('eager', 'eager_tf32', 'eager_bf16', 'compile', 'compile_tf32', 'compile_bf16')


class Feeds:
    """From pinned memory of the host; the next step's are copied meanwhile, as bench_gpu's are."""
    def __init__(self, tensors, device):
        self.tensors, self.device, self.ahead = tensors, device, None
        if device == 'cuda':
            self.tensors, self.stream = [t.pin_memory() for t in tensors], torch.cuda.Stream()

    def copied(self):
        return [t.to(self.device, non_blocking=True) for t in self.tensors]

    def take(self):
        if self.device != 'cuda':
            return self.copied()
        taken = self.ahead or self.copied()
        now = torch.cuda.current_stream()
        now.wait_stream(self.stream)
        for t in taken:
            t.record_stream(now)
        with torch.cuda.stream(self.stream):
            self.ahead = self.copied()
        return taken


def step_of(name, batch, variant, device):
    """One step as a user writes it who wants it fast: the feeds come from the host."""
    make, _, inputs, trains = WORKLOADS[name]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = variant.endswith('tf32')
    model, (x, y) = make().to(device).train(trains), inputs(batch)
    if x.dim() == 4:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    feeds = Feeds((x, y) if trains else (x,), device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1) if isinstance(model, Cifar10) else torch.optim.Adam(model.parameters(), fused=device == 'cuda')
    halves = (lambda: torch.autocast(device, torch.bfloat16)) if variant.endswith('bf16') else contextlib.nullcontext

    def loss_of(x, y):
        return F.cross_entropy(model(x).float(), y) + (model.penalty() if hasattr(model, 'penalty') else 0)

    forward = model
    if variant.startswith('compile'):
        mode = 'max-autotune' if 'autotune' in variant else 'reduce-overhead'
        loss_of, forward = torch.compile(loss_of, mode=mode, dynamic=False), torch.compile(model, mode=mode, dynamic=False)

    def train():
        optimizer.zero_grad(set_to_none=True)
        with halves():
            loss = loss_of(*feeds.take())
        loss.backward()
        optimizer.step()
        return loss.item()

    @torch.inference_mode()
    def infer():
        with halves():
            return forward(feeds.take()[0]).cpu()

    return train if trains else infer


def clear():
    """All cases compile the same lines: without this the ninth would run eagerly, and the second batch by shapes that may change."""
    torch.compiler.reset()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


o = arguments(__doc__, WORKLOADS)
tell_all('torch ' + torch.__version__, o, {name: w[1] for name, w in WORKLOADS.items()}, VARIANTS, lambda name, batch, variant: step_of(name, batch, variant, o.device), clear)
