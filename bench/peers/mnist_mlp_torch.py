"""The work of bench_mnist_mlp in PyTorch, eager and compiled.

    python3 mnist_mlp_torch.py PROBLEM THREADS SECONDS

See problem.py for what goes in and out. Where PyTorch has several good ways to do the same, all are tried and the fastest counts; the
digits are resident as they come (u8, turned into numbers batch by batch) or as numbers (f32). Exit status 3: there is no PyTorch.
"""
import os
import sys
import tempfile
import time

# torch.compile keeps what it compiled on disk; here it begins with nothing.
cache = tempfile.TemporaryDirectory()
os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache.name

import torch_peer
import torch
import torch.nn.functional as F

import problem

THREADS, SECONDS = int(sys.argv[2]), float(sys.argv[3])


class Net(torch.nn.Module):
    def __init__(self, parameters):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = torch.nn.Linear(784, 16), torch.nn.Linear(16, 16), torch.nn.Linear(16, 10)
        with torch.no_grad():
            for layer, weight, bias in zip((self.fc1, self.fc2, self.fc3), parameters[0::2], parameters[1::2]):
                layer.weight.copy_(torch.from_numpy(weight).T)
                layer.bias.copy_(torch.from_numpy(bias))

    def forward(self, x):
        a = F.relu(self.fc1(x))
        b = F.relu(self.fc2(a))
        return self.fc3(a + b)


def take(pixels, index):
    """The examples `index` as numbers."""
    x = pixels[index]
    return x * (1 / 255) if x.dtype == torch.uint8 else x


class Predictor(torch.nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return torch.softmax(self.net(x), 1)


def with_optimizer(data, **options):
    """A training step as most programs have it. Returns step(batch number) -> loss."""
    net = Net(data.parameters)
    optimizer = torch.optim.SGD(net.parameters(), lr=problem.LR, **options)

    def step(i):
        index = data.order[i * problem.BATCH : (i + 1) * problem.BATCH]
        loss = F.cross_entropy(net(take(data.pixels, index)), data.labels[index])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def by_hand(data):
    """The same without an optimizer object."""
    net = Net(data.parameters)
    parameters = list(net.parameters())

    def step(i):
        index = data.order[i * problem.BATCH : (i + 1) * problem.BATCH]
        loss = F.cross_entropy(net(take(data.pixels, index)), data.labels.index_select(0, index))
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            torch._foreach_add_(parameters, gradients, alpha=-problem.LR)
        return loss.detach()

    return step


def compiled_forward(data, options):
    """torch.compile on forward and loss; backward comes along, the update is one more compiled call."""
    net = Net(data.parameters)
    parameters = list(net.parameters())

    @torch.compile(**options)
    def loss_of(pixels, labels, index):
        return F.cross_entropy(net(take(pixels, index)), labels[index])

    def step(i):
        index = data.order[i * problem.BATCH : (i + 1) * problem.BATCH]
        loss = loss_of(data.pixels, data.labels, index)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            torch._foreach_add_(parameters, gradients, alpha=-problem.LR)
        return loss.detach()

    return step


def compiled_step(data, options):
    """The whole step as one compiled function: torch.func makes the gradients part of it."""
    net = Net(data.parameters)
    parameters = {name: p.detach().clone() for name, p in net.named_parameters()}

    def loss_of(p, x, y):
        return F.cross_entropy(torch.func.functional_call(net, p, (x,)), y)

    @torch.compile(**options)
    def train(p, pixels, labels, index):
        gradients, loss = torch.func.grad_and_value(loss_of)(p, take(pixels, index), labels[index])
        for name, gradient in gradients.items():
            p[name].sub_(problem.LR * gradient)
        return loss

    def step(i):
        index = data.order[i * problem.BATCH : (i + 1) * problem.BATCH]
        with torch.no_grad():
            return train(parameters, data.pixels, data.labels, index)

    return step


def train(data, mode, makers):
    """The fastest of several ways, and of both kinds of digits with that way; its losses."""
    compiling = {}

    def time_of(step):
        begin = time.perf_counter()
        losses = [step(i % data.batches) for i in range(problem.CHECKED)]
        compiling[step] = time.perf_counter() - begin
        return (*problem.measure(step, lambda: None, data.batches, SECONDS), losses)

    def fastest_with(digits, kind, names):
        return torch_peer.fastest({f"{name}, {kind} digits": lambda name=name: makers[name](digits) for name in names}, time_of, mode)

    best = fastest_with(data, "u8", makers)
    if best is None:
        return
    other = fastest_with(data.as_f32(), "f32", [best[0].removesuffix(", u8 digits")])
    name, (seconds, spread, losses), step = min(filter(None, (best, other)), key=lambda b: b[1][0])
    problem.print_step(mode, name, losses, (seconds, spread), problem.measure_epoch(step, lambda: None, data.batches, seconds))
    if mode == "compile":
        print(f"compile {mode} {compiling[step]:.3f}")


@torch.no_grad()
def image(data, mode, predictors):
    x = data.as_f32().pixels[:1].clone()

    def time_of(predictor):
        p = predictor(x)
        return (*problem.measure_call(lambda: predictor(x)), p[0])

    best = torch_peer.fastest(predictors, time_of, f"image, {mode}")
    if best is not None:
        name, (seconds, spread, p), _ = best
        print(f"imagehow {mode} {name}\nimagespread {mode} {spread:.4g}\nimage {mode} {seconds * 1e6:.3f} {problem.numbers(p)}", flush=True)


class Digits:
    """The problem in tensors."""

    def __init__(self, data, pixels):
        self.data, self.parameters, self.batches, self.pixels = data, data.parameters, data.batches, pixels
        self.labels, self.order = torch.from_numpy(data.labels), torch.from_numpy(data.order)

    def as_f32(self):
        return Digits(self.data, torch.from_numpy(self.data.pixels_f32()))


def main():
    torch_peer.start(THREADS)
    raw = problem.Problem(sys.argv[1])
    data = Digits(raw, torch.from_numpy(raw.pixels))
    print(f"name PyTorch {torch_peer.version()}")
    step = with_optimizer(data, foreach=False)
    step(0)
    if torch_peer.ONLY_MEMORY:
        for i in range(data.batches):
            step(i)
        problem.print_memory()
        return
    problem.print_start()
    if THREADS == 1:
        problem.print_memory_of_a_child()
    train(data, "eager", {
        "optim.SGD": lambda d: with_optimizer(d, foreach=False),
        "optim.SGD(foreach)": lambda d: with_optimizer(d, foreach=True),
        "optim.SGD(fused)": lambda d: with_optimizer(d, fused=True),
        "autograd.grad and _foreach_add_": by_hand,
    })
    compiled = {}
    for name, options in torch_peer.compile_ways(small=True).items():
        if name != "max-autotune":  # the products of 50 rows are too small for its templates
            compiled[f"forward and loss, {name}"] = lambda d, o=options: compiled_forward(d, o)
            compiled[f"whole step, {name}"] = lambda d, o=options: compiled_step(d, o)
    train(data, "compile", compiled)
    if THREADS == 1:
        predictor = Predictor(Net(data.parameters)).eval()
        image(data, "eager", {"eager": lambda: predictor})
        image(data, "scripted", {"frozen": lambda: torch.jit.freeze(torch.jit.trace(predictor, data.as_f32().pixels[:1], check_trace=False))})
        options = torch_peer.compile_ways(inference=True, small=True)
        image(data, "compile", {name: lambda o=o: torch.compile(predictor, **o) for name, o in options.items()})


main()
