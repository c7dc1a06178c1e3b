"""The eager cases of bench_call_overhead in PyTorch: nanoseconds a call from Python, the end of the result included.

    python3 call_overhead_torch.py

Prints "name PyTorch VERSION" and lines "ns NS SPREAD; CASE". Exit status 3: there is no PyTorch.
"""
import torch_peer
import torch

import problem

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
    """(median, spread) of the processor time of a call, over rounds of OPS."""
    def run():
        for _ in range(OPS):
            call(x, y)

    seconds, spread = problem.median_seconds(run, lambda: None, 1, 0.1)
    return seconds * 1e9 / OPS, spread


def main():
    torch_peer.start(1)
    print(f"name PyTorch {torch_peer.version()}")
    for requires_grad in (False, True):
        for name, (shape, call) in CASES.items():
            x = torch.linspace(-2, 2, 16 if len(shape) == 2 else 4).reshape(shape).requires_grad_(requires_grad)
            y = torch.linspace(1, 4, 16 if len(shape) == 2 else 4).reshape(shape).requires_grad_(requires_grad)
            empty, _ = nanoseconds(lambda x, y: None, x, y)
            ns, spread = nanoseconds(call, x, y)
            print(f"ns {ns - empty:.1f} {spread:.4g}; {name}{', requires grad' if requires_grad else ''}", flush=True)


main()
