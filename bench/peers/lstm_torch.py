"""The work of bench_lstm in PyTorch: torch.nn.LSTM, forward and backward.

    python3 lstm_torch.py THREADS SECONDS BATCH TIME INPUT WIDTH LAYERS eager|eager-bf16|compile-bf16

Parameters and inputs are sines (problem.sines()), as in the bench. Prints the lines of bench/side.h; what is compared are sums of the
result and of the input's gradient, weighted by cosines. Exit status 3: there is no PyTorch.
"""
import math
import sys

import torch_peer
import torch

import problem

THREADS, SECONDS = int(sys.argv[1]), float(sys.argv[2])
BATCH, TIME, INPUT, WIDTH, LAYERS = map(int, sys.argv[3:8])
NAME = sys.argv[8]
MODE, precision = torch_peer.precision(NAME)


def sines(shape, phase, scale):
    return torch.from_numpy(problem.sines(math.prod(shape), phase, scale)).reshape(shape)


def network(batch_first):
    lstm = torch.nn.LSTM(INPUT, WIDTH, LAYERS, batch_first=batch_first)
    phase = 0
    with torch.no_grad():
        for k in range(LAYERS):
            for name in (f"weight_ih_l{k}", f"bias_ih_l{k}", f"weight_hh_l{k}", f"bias_hh_l{k}"):
                p = getattr(lstm, name)
                mine = sines(p.shape[::-1], phase, 0.05)
                p.copy_(mine if p.dim() == 1 else mine.t())
                phase += 1
    return lstm


def make_step(batch_first, compile_options=None):
    """A function of no arguments that returns the result and all gradients, [BATCH, TIME, ...] first. Time-major tensors are what
    nn.LSTM works on inside; to be laid out so from the start is the user's choice."""
    lstm = network(batch_first)
    lay = (lambda t: t) if batch_first else (lambda t: t.transpose(0, 1).contiguous())
    x = lay(sines((BATCH, TIME, INPUT), 50, 1.0)).requires_grad_()
    g = lay(sines((BATCH, TIME, WIDTH), 51, 1.0))
    wanted = [x, *lstm.parameters()]

    def forward():
        with precision():
            y, _ = lstm(x)
        return y.float()

    if compile_options is not None:
        forward = torch.compile(forward, **compile_options)

    def step():
        y = forward()
        return (y, *torch.autograd.grad(y, wanted, g))

    return step, (lambda t: t) if batch_first else (lambda t: t.transpose(0, 1))


def main():
    torch_peer.start(THREADS, compiles=MODE == "compile")
    print(f"name PyTorch {torch_peer.version()}", *([NAME.replace("-", " ")] if NAME != "eager" else []))
    if torch_peer.ONLY_MEMORY:
        step, _ = make_step(True)
        for _ in range(3):
            step()
        problem.print_memory()
        return

    def time_of(made):
        step, back = made
        sums = [problem.weighted_sum(back(t.detach()).numpy()) for t in step()[:2]]
        return (*problem.median_seconds(step, lambda: None, 1, SECONDS), sums)

    ways = {"batch first": lambda: make_step(True), "time first": lambda: make_step(False)}
    if MODE == "compile":
        ways = {f"time first, {name}": lambda o=o: make_step(False, o) for name, o in torch_peer.compile_ways().items()}
    best = torch_peer.fastest(ways, time_of, NAME)
    if best is None:
        sys.exit(3)
    name, (seconds, spread, sums), (step, _) = best
    print(f"how {name}\nspread {spread:.4g}\nstep {NAME} {seconds:.9g} {problem.numbers(sums)}", flush=True)
    problem.print_memory_of_a_child()
    problem.await_turns(problem.chunk_of(step, lambda: None, 1))


main()
