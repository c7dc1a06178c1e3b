"""The work of bench_optimizer in PyTorch: steps of an optimizer over given gradients.

    python3 optimizer_torch.py NAME THREADS SECONDS LAYERS WIDTH

Prints "name PyTorch VERSION" and lines "how TEXT", "ms VARIANT MILLISECONDS SPREAD DIGEST": the median time of a step, and a number made
of the parameters after three steps. Each is tried as it is and under torch.compile. Exit status 3: there is no PyTorch.
"""
import sys

import torch_peer
import torch

import problem

NAME, THREADS, SECONDS, LAYERS, WIDTH = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
MAKE = {
    "momentum": lambda p, **k: torch.optim.SGD(p, lr=1e-3, momentum=0.9, **k),
    "adam": lambda p, **k: torch.optim.Adam(p, lr=1e-3, **k),
}


def pattern(shape, period):
    count = 1
    for size in shape:
        count *= size
    return ((torch.arange(count) % period - period // 2).float() * 1e-3).reshape(shape)


def parameters():
    made = []
    for _ in range(LAYERS):
        for shape in ((WIDTH, WIDTH), (WIDTH,)):
            p = torch.nn.Parameter(pattern(shape, 1000))
            p.grad = pattern(shape, 777)
            made.append(p)
    return made


def digest(p):
    values = p.detach().flatten().double()
    return (values * (torch.arange(values.numel()) % 97 + 1)).sum().item() / values.numel()


def make(variant, options):
    p = parameters()
    optimizer = MAKE[NAME](p, **{variant: True})
    step = optimizer.step if options is None else torch.compile(optimizer.step, **options)
    for _ in range(3):
        step()
    return step, digest(p[0])


def main():
    torch_peer.start(THREADS, compiles=True)
    print(f"name PyTorch {torch_peer.version()}")
    time_of = lambda made: problem.median_seconds(made[0], lambda: None, 1, SECONDS)
    for variant in ("fused", "foreach"):
        ways = {"eager": lambda: make(variant, None), "compiled": lambda: make(variant, {})}
        best = torch_peer.fastest(ways, time_of, variant)
        if best is not None:
            name, (seconds, spread), (_, check) = best
            print(f"how {name}\nms {variant} {seconds * 1e3:.3f} {spread:.4g} {check:.9g}", flush=True)


main()
