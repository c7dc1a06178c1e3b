"""The eager cases of bench_call_overhead in PyTorch: nanoseconds a call from Python, the end of the result included.

    python3 call_overhead_torch.py

Prints "name PyTorch VERSION" and lines "ns NS CASE". Exit status 3: there is no PyTorch.
"""
import statistics
import sys
import time

try:
    import torch
except ImportError:
    sys.exit(3)

CASES = {
    "add, 4 elements": ((4,), lambda x, y: x + y),
    "relu, 4 elements": ((4,), lambda x, y: torch.relu(x)),
    "exp, 4 elements": ((4,), lambda x, y: torch.exp(x)),
    "sum, 4 elements": ((4,), lambda x, y: torch.sum(x)),
    "matmul, 4x4 by 4x4": ((4, 4), lambda x, y: x @ y),
    "reshape, a view": ((4, 4), lambda x, y: x.reshape(2, 8)),
    "transpose, a view": ((4, 4), lambda x, y: x.transpose(0, 1)),
    "slice, a view": ((4, 4), lambda x, y: x[1:3]),
}
OPS = 200


def nanoseconds(call, x, y):
    """Median processor time over rounds of OPS calls."""
    samples = []
    for _ in range(200):
        start = time.process_time_ns()
        for _ in range(OPS):
            call(x, y)
        samples.append((time.process_time_ns() - start) / OPS)
    return statistics.median(samples)


def main():
    torch.set_num_threads(1)
    print(f"name PyTorch {torch.__version__.split('+')[0]}")
    for requires_grad in (False, True):
        for name, (shape, call) in CASES.items():
            x = torch.linspace(-2, 2, 16 if len(shape) == 2 else 4).reshape(shape).requires_grad_(requires_grad)
            y = torch.linspace(1, 4, 16 if len(shape) == 2 else 4).reshape(shape).requires_grad_(requires_grad)
            empty = nanoseconds(lambda x, y: None, x, y)
            print(f"ns {nanoseconds(call, x, y) - empty:.1f} {name}{', requires grad' if requires_grad else ''}", flush=True)


main()
