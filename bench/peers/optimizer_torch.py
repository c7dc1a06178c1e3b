"""The work of bench_optimizer in PyTorch: steps of an optimizer over given gradients.

    python3 optimizer_torch.py NAME THREADS SECONDS LAYERS WIDTH

Prints "name PyTorch VERSION" and lines "ms VARIANT MILLISECONDS DIGEST": the median time of a step, and a number made of the
parameters after three steps. Exit status 3: there is no PyTorch.
"""
import statistics
import sys
import time

try:
    import torch
except ImportError:
    sys.exit(3)

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


def main():
    torch.set_num_threads(THREADS)
    clock = time.process_time if THREADS == 1 else time.perf_counter
    print(f"name PyTorch {torch.__version__.split('+')[0]}")
    for variant in ("fused", "foreach"):
        p = parameters()
        optimizer = MAKE[NAME](p, **{variant: True})
        for _ in range(3):
            optimizer.step()
        check, samples, end = digest(p[0]), [], time.perf_counter() + SECONDS
        while len(samples) < 5 or time.perf_counter() < end:
            start = clock()
            optimizer.step()
            samples.append(clock() - start)
        print(f"ms {variant} {statistics.median(samples) * 1e3:.3f} {check:.9g}", flush=True)
        del p, optimizer


main()
