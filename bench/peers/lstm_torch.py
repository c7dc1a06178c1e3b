"""The peer of bench_lstm: torch.nn.LSTM, a training step's forward and backward.

    lstm_torch.py BATCH TIME INPUT WIDTH LAYERS

Parameters and inputs are sines (numbers()), as in the bench. Prints

    time SECONDS SUM_RESULT SUM_DX      sums weighted by cosines
"""
import math
import os
import sys
import time

import torch

THREADS = int(os.environ.get("OMP_NUM_THREADS", "1"))


def numbers(shape, phase, scale):
    count = math.prod(shape)
    return (scale * torch.sin(torch.arange(count, dtype=torch.float64) * 0.7 + phase)).float().reshape(shape)


def weighted(t):
    flat = t.detach().double().flatten()
    return (flat * torch.cos(torch.arange(flat.numel(), dtype=torch.float64) * 0.3)).sum().item()


def main():
    batch, steps, n, width, layers = map(int, sys.argv[1:6])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-THREADS:])
    torch.set_num_threads(THREADS)
    print(f"name PyTorch {torch.__version__.split('+')[0]}")
    lstm = torch.nn.LSTM(n, width, layers, batch_first=True)
    phase = 0
    with torch.no_grad():
        for k in range(layers):
            for name in (f"weight_ih_l{k}", f"bias_ih_l{k}", f"weight_hh_l{k}", f"bias_hh_l{k}"):
                p = getattr(lstm, name)
                shape = p.shape if p.dim() == 1 else p.shape[::-1]
                mine = numbers(shape, phase, 0.05)
                p.copy_(mine if p.dim() == 1 else mine.t())
                phase += 1
    x = numbers((batch, steps, n), 50, 1.0).requires_grad_()
    g = numbers((batch, steps, width), 51, 1.0)
    wanted = [x, *lstm.parameters()]

    def step():
        y, _ = lstm(x)
        return (y, *torch.autograd.grad(y, wanted, g))

    results = step()
    clock = time.process_time if THREADS == 1 else time.perf_counter
    samples, spent = [], 0.0
    while spent < 3.0 or len(samples) < 7:
        begin = clock()
        step()
        samples.append(clock() - begin)
        spent += samples[-1]
    samples.sort()
    print(f"time {samples[len(samples) // 2]:.9g} {weighted(results[0]):.9g} {weighted(results[1]):.9g}", flush=True)


main()
