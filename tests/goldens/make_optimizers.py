#!/usr/bin/env python3
"""Writes tests/goldens/optimizers.h: parameters after 20 steps of optimizers as PyTorch takes them, for
tests/test_optimizers.c.

    python3 tests/goldens/make_optimizers.py > tests/goldens/optimizers.h

Needs torch and numpy. The problem is tanh(x @ w + b) to t by mean squared error; each row names what made it. Lion and
LAMB, which PyTorch has not, are transcribed from their papers in NumPy below.
"""
import sys

import numpy as np
import torch
from torch import optim
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

STEPS = 20
W = [[0.5, -0.25, 0.125], [-0.75, 1.0, 0.375]]
B = [0.0625, -0.5, 0.25]
X = [[1.0, -0.5], [0.25, 2.0], [-1.5, 0.75], [0.5, 0.5]]
T = [[1.0, 0.0, -1.0], [0.5, -0.5, 2.0], [0.0, 1.0, 0.25], [-1.0, 0.75, 1.5]]


class Lion:
    """Chen et al., "Symbolic discovery of optimization algorithms", 2023, algorithm 2."""

    def __init__(self, parameters, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        self.parameters, self.lr, self.betas, self.weight_decay = parameters, lr, betas, weight_decay
        self.m = [np.zeros(p.shape) for p in parameters]

    def step(self):
        b1, b2 = self.betas
        for p, m in zip(self.parameters, self.m):
            g, theta = p.grad.numpy().astype(np.float64), p.detach().numpy().astype(np.float64)
            c = b1 * m + (1 - b1) * g
            theta = theta - self.lr * (np.sign(c) + self.weight_decay * theta)
            m[...] = b2 * m + (1 - b2) * g
            p.data = torch.tensor(theta, dtype=torch.float32)


class LAMB:
    """You et al., "Large batch optimization for deep learning: training BERT in 76 minutes", 2019, algorithm 2, with phi
    the identity."""

    def __init__(self, parameters, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0):
        self.parameters, self.lr, self.betas, self.eps, self.weight_decay = parameters, lr, betas, eps, weight_decay
        self.m = [np.zeros(p.shape) for p in parameters]
        self.v = [np.zeros(p.shape) for p in parameters]
        self.t = 0

    def step(self):
        self.t += 1
        b1, b2 = self.betas
        for p, m, v in zip(self.parameters, self.m, self.v):
            g, x = p.grad.numpy().astype(np.float64), p.detach().numpy().astype(np.float64)
            m[...] = b1 * m + (1 - b1) * g
            v[...] = b2 * v + (1 - b2) * g**2
            r = (m / (1 - b1**self.t)) / (np.sqrt(v / (1 - b2**self.t)) + self.eps)
            u = r + self.weight_decay * x
            norms = np.linalg.norm(x), np.linalg.norm(u)
            ratio = norms[0] / norms[1] if norms[0] * norms[1] > 0 else 1.0
            p.data = torch.tensor(x - self.lr * ratio * u, dtype=torch.float32)


# name, the optimizer of [w, b]
ROWS = [
    ("sgd", "optim.SGD([w, b], lr=0.05)"),
    ("sgd_momentum", "optim.SGD([w, b], lr=0.05, momentum=0.9)"),
    ("sgd_dampened", "optim.SGD([w, b], lr=0.05, momentum=0.9, dampening=0.5, weight_decay=0.01)"),
    ("sgd_nesterov", "optim.SGD([w, b], lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.1)"),
    ("adam", "optim.Adam([w, b], lr=0.02)"),
    ("adam_other", "optim.Adam([w, b], lr=0.02, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.1)"),
    ("amsgrad", "optim.Adam([w, b], lr=0.02, betas=(0.8, 0.9), amsgrad=True)"),
    ("adamw", "optim.AdamW([w, b], lr=0.02)"),
    ("adamw_decayed", "optim.AdamW([w, b], lr=0.02, weight_decay=0.2, amsgrad=True)"),
    ("nadam", "optim.NAdam([w, b], lr=0.02)"),
    ("nadam_other", "optim.NAdam([w, b], lr=0.02, betas=(0.8, 0.95), eps=1e-4, momentum_decay=0.01, weight_decay=0.1)"),
    ("nadam_decoupled", "optim.NAdam([w, b], weight_decay=0.2, decoupled_weight_decay=True)"),
    ("radam", "optim.RAdam([w, b], lr=0.02)"),
    ("radam_other", "optim.RAdam([w, b], lr=0.02, betas=(0.8, 0.9), eps=1e-4, weight_decay=0.1)"),
    ("radam_decoupled", "optim.RAdam([w, b], lr=0.02, weight_decay=0.2, decoupled_weight_decay=True)"),
    ("rmsprop", "optim.RMSprop([w, b], lr=0.02)"),
    ("rmsprop_other", "optim.RMSprop([w, b], lr=0.02, alpha=0.9, eps=1e-4, momentum=0.8, weight_decay=0.1)"),
    ("adagrad", "optim.Adagrad([w, b], lr=0.1)"),
    ("adagrad_other",
     "optim.Adagrad([w, b], lr=0.1, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.25, eps=1e-4)"),
    ("adadelta", "optim.Adadelta([w, b])"),
    ("adadelta_other", "optim.Adadelta([w, b], lr=0.5, rho=0.8, eps=1e-4, weight_decay=0.1)"),
    ("lion", "Lion([w, b], lr=0.01)"),
    ("lion_other", "Lion([w, b], lr=0.01, betas=(0.8, 0.95), weight_decay=0.1)"),
    ("lamb", "LAMB([w, b], lr=0.02)"),
    ("lamb_other", "LAMB([w, b], lr=0.02, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.1)"),
    ("groups", "optim.AdamW([{'params': [w]}, {'params': [b], 'lr': 0.1, 'weight_decay': 0}], lr=0.02, weight_decay=0.2)"),
    ("clip_norm", "optim.SGD([w, b], lr=0.05, momentum=0.9)"),
    ("clip_value", "optim.SGD([w, b], lr=0.05, momentum=0.9)"),
]
CLIP = {"clip_norm": lambda w, b: clip_grad_norm_([w, b], 0.25), "clip_value": lambda w, b: clip_grad_value_([w, b], 0.125)}


class Problem(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.b = torch.nn.Parameter(torch.tensor(W)), torch.nn.Parameter(torch.tensor(B))

    def loss(self):
        self.zero_grad()
        loss = ((torch.tanh(torch.tensor(X) @ self.w + self.b) - torch.tensor(T)) ** 2).mean()
        loss.backward()
        return loss

    def bounded_loss(self):
        """With a penalty, so that there is a minimum to find."""
        self.zero_grad()
        loss = ((torch.tanh(torch.tensor(X) @ self.w + self.b) - torch.tensor(T)) ** 2).mean()
        loss = loss + 0.125 * ((self.w**2).sum() + (self.b**2).sum())
        loss.backward()
        return loss


def show(name, call, problem):
    values = problem.w.flatten().tolist() + problem.b.tolist()
    print(f'    {{ "{name}", "{call}",\n      {{ {", ".join(f"{v:#.9g}f" for v in values)} }} }},')


def main():
    print("/* tests/goldens/optimizers.h: made by tests/goldens/make_optimizers.py with PyTorch "
          f"{torch.__version__.split('+')[0]}. */")
    print("// clang-format off\nstatic const golden goldens[] = {")
    for name, call in ROWS:
        problem = Problem()
        foreach = "" if call.startswith("L") else ", foreach=False"
        o = eval(call[:-1] + foreach + ")", {**globals(), "w": problem.w, "b": problem.b})
        for _ in range(STEPS):
            problem.loss()
            CLIP.get(name, lambda w, b: None)(problem.w, problem.b)
            o.step()
        show(name, call, problem)
    print("};")
    print("static const golden averages = {")
    problem = Problem()
    ema = AveragedModel(problem, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    o = optim.SGD(problem.parameters(), lr=0.05)
    for _ in range(STEPS):
        problem.loss()
        o.step()
        ema.update_parameters(problem)
    values = ema.module.w.flatten().tolist() + ema.module.b.tolist()
    print('    "ema", "AveragedModel(problem, multi_avg_fn=get_ema_multi_avg_fn(0.9))",')
    print(f'    {{ {", ".join(f"{v:#.9g}f" for v in values)} }}\n}};')
    print("static const golden lbfgs_goldens[] = {")
    for name, call, steps in (("lbfgs", "optim.LBFGS([w, b], max_iter=10, line_search_fn='strong_wolfe')", 1),
                              ("lbfgs_short", "optim.LBFGS([w, b], max_iter=3, history_size=2, line_search_fn='strong_wolfe')", 3),
                              ("lbfgs_plain", "optim.LBFGS([w, b], lr=0.5, max_iter=5)", 2)):
        problem = Problem().double()
        problem.w.data, problem.b.data = torch.tensor(W).double(), torch.tensor(B).double()
        torch.set_default_dtype(torch.float64)
        o = eval(call, {**globals(), "w": problem.w, "b": problem.b})
        for _ in range(steps):
            o.step(problem.bounded_loss)
        torch.set_default_dtype(torch.float32)
        show(name, call + f", {steps} steps in float64", problem)
    print("};\n// clang-format on")


if __name__ == "__main__":
    sys.exit(main())
