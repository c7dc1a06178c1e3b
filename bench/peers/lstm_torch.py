"""The work of bench_lstm in PyTorch: torch.nn.LSTM, forward and backward.

    python3 lstm_torch.py THREADS SECONDS BATCH TIME INPUT WIDTH LAYERS

Parameters and inputs are sines (problem.sines()), as in the bench. Prints "name", then "step" with the median seconds and sums
of the result and of the input's gradient, weighted by cosines, then "memory" in MiB. Exit status 3: there is no PyTorch.
"""
import math
import sys

import problem

THREADS, SECONDS = int(sys.argv[1]), float(sys.argv[2])
BATCH, TIME, INPUT, WIDTH, LAYERS = map(int, sys.argv[3:8])
problem.use_processors(THREADS)

try:
    import torch
except ImportError:
    sys.exit(3)


def sines(shape, phase, scale):
    return torch.from_numpy(problem.sines(math.prod(shape), phase, scale)).reshape(shape)


def main():
    torch.set_num_threads(THREADS)
    print(f"name PyTorch {torch.__version__.split('+')[0]}")
    lstm = torch.nn.LSTM(INPUT, WIDTH, LAYERS, batch_first=True)
    phase = 0
    with torch.no_grad():
        for k in range(LAYERS):
            for name in (f"weight_ih_l{k}", f"bias_ih_l{k}", f"weight_hh_l{k}", f"bias_hh_l{k}"):
                p = getattr(lstm, name)
                mine = sines(p.shape[::-1], phase, 0.05)
                p.copy_(mine if p.dim() == 1 else mine.t())
                phase += 1
    x = sines((BATCH, TIME, INPUT), 50, 1.0).requires_grad_()
    g = sines((BATCH, TIME, WIDTH), 51, 1.0)
    wanted = [x, *lstm.parameters()]

    def step():
        y, _ = lstm(x)
        return (y, *torch.autograd.grad(y, wanted, g))

    sums = [problem.weighted_sum(t.detach().numpy()) for t in step()[:2]]
    seconds = problem.median_seconds(step, lambda: None, 1, SECONDS)
    print(f"step eager {seconds:.9g} {problem.numbers(sums)}")
    problem.print_memory()


main()
