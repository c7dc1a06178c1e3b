"""The peer of bench_attention: torch.nn.functional.scaled_dot_product_attention, forward and backward.

    attention_torch.py HEADS WIDTH CAUSAL TIME…

on OMP_NUM_THREADS threads. Operands are sines (numbers()), as in the bench. Prints, for each time,

    time T SECONDS SUM_RESULT SUM_DQ SUM_DK SUM_DV     sums weighted by cosines
    memory T MIB                                       what a step allocated at most, if torch can say
"""
import math
import os
import sys
import time

import torch
import torch.nn.functional as F

THREADS = int(os.environ.get("OMP_NUM_THREADS", "1"))


def numbers(shape, phase):
    count = math.prod(shape)
    return torch.sin(torch.arange(count, dtype=torch.float64) * 0.7 + phase).float().reshape(shape)


def weighted(t):
    flat = t.detach().double().flatten()
    return (flat * torch.cos(torch.arange(flat.numel(), dtype=torch.float64) * 0.3)).sum().item()


def main():
    heads, width, causal = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "1"
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-THREADS:])
    torch.set_num_threads(THREADS)
    print(f"name PyTorch {torch.__version__.split('+')[0]}")
    for steps in map(int, sys.argv[4:]):
        shape = (1, heads, steps, width)
        q, k, v = (numbers(shape, phase).requires_grad_() for phase in (0, 1, 2))
        g = numbers(shape, 3)

        def step():
            y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            return (y, *torch.autograd.grad(y, (q, k, v), g))

        results = step()
        clock = time.process_time if THREADS == 1 else time.perf_counter
        samples, spent = [], 0.0
        while spent < 1.0 or len(samples) < 5:
            begin = clock()
            step()
            samples.append(clock() - begin)
            spent += samples[-1]
        samples.sort()
        sums = " ".join(f"{weighted(t):.9g}" for t in results)
        print(f"time {steps} {samples[len(samples) // 2]:.9g} {sums}", flush=True)


main()
