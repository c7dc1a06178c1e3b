"""The work of bench_mnist_mlp in PyTorch, eager and compiled.

    python3 mnist_mlp_torch.py PROBLEM THREADS SECONDS

See problem.py for what goes in and out. Where PyTorch has several good ways to do the same, all are tried and the fastest counts.
Exit status 3: there is no PyTorch.
"""
import os
import sys
import tempfile
import time

# torch.compile keeps what it compiled on disk; here it begins with nothing.
cache = tempfile.TemporaryDirectory()
os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache.name

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit(3)

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
        loss = F.cross_entropy(net(data.pixels[index]), data.labels[index])
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
        loss = F.cross_entropy(net(data.pixels.index_select(0, index)), data.labels.index_select(0, index))
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            torch._foreach_add_(parameters, gradients, alpha=-problem.LR)
        return loss.detach()

    return step


def compiled_forward(data):
    """torch.compile on forward and loss; backward comes along, the update is one more compiled call."""
    net = Net(data.parameters)
    parameters = list(net.parameters())

    @torch.compile
    def loss_of(pixels, labels, index):
        return F.cross_entropy(net(pixels[index]), labels[index])

    def step(i):
        index = data.order[i * problem.BATCH : (i + 1) * problem.BATCH]
        loss = loss_of(data.pixels, data.labels, index)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            torch._foreach_add_(parameters, gradients, alpha=-problem.LR)
        return loss.detach()

    return step


def compiled_step(data):
    """The whole step as one compiled function: torch.func makes the gradients part of it."""
    net = Net(data.parameters)
    parameters = {name: p.detach().clone() for name, p in net.named_parameters()}

    def loss_of(p, x, y):
        return F.cross_entropy(torch.func.functional_call(net, p, (x,)), y)

    @torch.compile
    def train(p, pixels, labels, index):
        gradients, loss = torch.func.grad_and_value(loss_of)(p, pixels[index], labels[index])
        for name, gradient in gradients.items():
            p[name].sub_(problem.LR * gradient)
        return loss

    def step(i):
        index = data.order[i * problem.BATCH : (i + 1) * problem.BATCH]
        with torch.no_grad():
            return train(parameters, data.pixels, data.labels, index)

    return step


def fastest(data, mode, makers):
    """Time every way; print the fastest, with its losses."""
    best = None
    for name, make in makers.items():
        try:
            step = make(data)
            begin = time.perf_counter()
            losses = [step(i % data.batches) for i in range(problem.CHECKED)]
            first = time.perf_counter() - begin
            seconds = problem.measure(step, lambda: None, data.batches, SECONDS)
        except Exception as error:  # torch.compile needs a C++ compiler, and more
            lines = str(error).strip().splitlines() or [type(error).__name__]
            print(f"note PyTorch {mode}, {name}: {lines[0][:200]}")
            continue
        print(f"note PyTorch {mode}, {name}: {seconds * 1e6:.1f} us a step, {first:.2f} s for the first {problem.CHECKED}")
        if best is None or seconds < best[0]:
            best = seconds, losses, first, step
    if best is not None:
        seconds, losses, first, step = best
        problem.print_step(mode, losses, seconds, problem.measure_epoch(step, lambda: None, data.batches, seconds))
        if mode == "compile":
            print(f"compile {mode} {first:.3f}")


def image(data, mode, predictor):
    x = data.pixels[:1].clone()
    with torch.inference_mode():
        try:
            p = predictor(x)
            for _ in range(200):
                predictor(x)
            seconds = problem.measure_call(lambda: predictor(x))
        except Exception as error:
            print(f"note PyTorch image, {mode}: {(str(error).splitlines() or ['failed'])[0][:200]}")
            return
    print(f"image {mode} {seconds * 1e6:.3f} {problem.numbers(p[0])}", flush=True)


def scripted(data, predictor):
    """TorchScript, frozen; None where this PyTorch has none any more."""
    try:
        return torch.jit.freeze(torch.jit.trace(predictor, data.pixels[:1], check_trace=False))
    except Exception as error:
        print(f"note PyTorch script: {(str(error).splitlines() or ['failed'])[0][:200]}")
        return None


def main():
    problem.use_processors(THREADS)
    torch.set_num_threads(THREADS)
    data = problem.Problem(sys.argv[1])
    data.pixels = torch.from_numpy(data.pixels)
    data.labels = torch.from_numpy(data.labels)
    data.order = torch.from_numpy(data.order)
    print(f"name PyTorch {torch.__version__.split('+')[0]}")
    step = with_optimizer(data, foreach=False)
    step(0)
    problem.print_start()
    if THREADS == 1:
        for i in range(data.batches):
            step(i)
        problem.print_memory()
    fastest(data, "eager", {
        "optim.SGD": lambda d: with_optimizer(d, foreach=False),
        "optim.SGD(foreach)": lambda d: with_optimizer(d, foreach=True),
        "optim.SGD(fused)": lambda d: with_optimizer(d, fused=True),
        "autograd.grad and _foreach_add_": by_hand,
    })
    fastest(data, "compile", {"forward and loss": compiled_forward, "whole step": compiled_step})
    if THREADS == 1:
        predictor = Predictor(Net(data.parameters)).eval()
        image(data, "eager", predictor)
        frozen = scripted(data, predictor)
        if frozen is not None:
            image(data, "scripted", frozen)
        image(data, "compile", torch.compile(predictor))


main()
