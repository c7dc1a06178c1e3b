"""The peer of bench_attention: torch.nn.functional.scaled_dot_product_attention, forward and backward.

    attention_torch.py SECONDS HEADS WIDTH CAUSAL TIME…

on OMP_NUM_THREADS threads. Operands are sines (numbers()), as in the bench. PyTorch has several kernels for it (fused, and plain
products); each that runs on this machine is tried, and the fastest counts. Prints, for each time,

    how T KERNEL
    time T SECONDS SPREAD SUM_RESULT SUM_DQ SUM_DK SUM_DV     sums weighted by cosines
"""
import math
import os
import sys

import torch_peer
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import problem

THREADS = int(os.environ.get("OMP_NUM_THREADS", "1"))
KERNELS = {"fused": [SDPBackend.FLASH_ATTENTION], "plain products": [SDPBackend.MATH]}


def numbers(shape, phase):
    count = math.prod(shape)
    return torch.sin(torch.arange(count, dtype=torch.float64) * 0.7 + phase).float().reshape(shape)


def weighted(t):
    flat = t.detach().double().flatten()
    return (flat * torch.cos(torch.arange(flat.numel(), dtype=torch.float64) * 0.3)).sum().item()


def make_step(kernels, operands, causal):
    q, k, v, g = operands

    def step():
        with sdpa_kernel(kernels):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            return (y, *torch.autograd.grad(y, (q, k, v), g))

    return step


def main():
    seconds, heads, width, causal = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "1"
    torch_peer.start(THREADS)
    print(f"name PyTorch {torch_peer.version()}")
    for steps in map(int, sys.argv[5:]):
        shape = (1, heads, steps, width)
        operands = [numbers(shape, phase).requires_grad_(phase < 3) for phase in range(4)]
        time_of = lambda step: problem.median_seconds(step, lambda: None, 1, seconds)
        tried = KERNELS if steps <= 1024 else {"fused": KERNELS["fused"]}
        ways = {name: lambda k=k: make_step(k, operands, causal) for name, k in tried.items()}
        best = torch_peer.fastest(ways, time_of, f"attention {steps}")
        if best is None:
            continue
        name, (median, spread), step = best
        sums = " ".join(f"{weighted(t):.9g}" for t in step())
        print(f"how {steps} {name}\ntime {steps} {median:.9g} {spread:.4g} {sums}", flush=True)


main()
