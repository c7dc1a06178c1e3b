#!/usr/bin/env python3
"""Writes tests/goldens/schedules.h: learning rates as torch.optim.lr_scheduler gives them, for tests/test_schedules.c.

    python3 tests/goldens/make_schedules.py > tests/goldens/schedules.h

Needs torch. Each row names the call that gave it; number i is the learning rate after i calls of step().
"""
import sys
import warnings

import torch
from torch.optim import lr_scheduler as S

STEPS = 40
# name, base learning rate, scheduler of optimizer o
ROWS = [
    ("constant", 0.5, "S.ConstantLR(o, factor=1.0)"),
    ("step", 0.5, "S.StepLR(o, step_size=7, gamma=0.25)"),
    ("multi_step", 0.5, "S.MultiStepLR(o, milestones=[3, 11, 12, 30], gamma=0.5)"),
    ("exponential", 0.5, "S.ExponentialLR(o, gamma=0.9)"),
    ("linear", 0.5, "S.LinearLR(o, start_factor=1.0, end_factor=0.25, total_iters=30)"),
    ("polynomial", 0.5, "S.PolynomialLR(o, total_iters=30, power=2.5)"),
    ("cosine", 0.5, "S.CosineAnnealingLR(o, T_max=39, eta_min=0.125)"),
    ("restarts", 0.5, "S.CosineAnnealingWarmRestarts(o, T_0=7, eta_min=0.125)"),
    ("growing_restarts", 0.5, "S.CosineAnnealingWarmRestarts(o, T_0=5, T_mult=2)"),
    ("warm_cosine", 0.5,
     "S.SequentialLR(o, [S.LinearLR(o, start_factor=1/8, total_iters=7), S.CosineAnnealingLR(o, T_max=32)], milestones=[8])"),
    ("warm_step", 0.5,
     "S.SequentialLR(o, [S.LinearLR(o, start_factor=1/8, total_iters=7), S.StepLR(o, 5, gamma=0.5)], milestones=[8])"),
    ("one_cycle", 0.5, "S.OneCycleLR(o, max_lr=0.5, total_steps=40)"),
    ("one_cycle_linear", 0.5,
     "S.OneCycleLR(o, max_lr=0.5, total_steps=40, pct_start=0.5, anneal_strategy='linear', div_factor=10, final_div_factor=100)"),
]
METRICS = [1.0, 0.8, 0.7, 0.71, 0.7, 0.69999, 0.7, 0.72, 0.6, 0.61, 0.62, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6,
           0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4]
PLATEAUS = [
    ("plateau", 0.5, "S.ReduceLROnPlateau(o, factor=0.5, patience=2)"),
    ("plateau_cooldown", 0.5, "S.ReduceLROnPlateau(o, factor=0.5, patience=1, threshold=0.01, cooldown=3, min_lr=0.05)"),
    ("plateau_max", 0.5, "S.ReduceLROnPlateau(o, mode='max', factor=0.25, patience=0)"),
]


def show(name, call, rates):
    print(f'    {{ "{name}", "{call}",\n      {{ {", ".join(f"{r:.17g}" for r in rates)} }} }},')


def main():
    warnings.simplefilter("ignore")
    print("/* tests/goldens/schedules.h: made by tests/goldens/make_schedules.py with PyTorch "
          f"{torch.__version__.split('+')[0]}. */")
    print("// clang-format off\nstatic const golden goldens[] = {")
    for name, lr, call in ROWS:
        o = torch.optim.SGD([torch.zeros(1)], lr=lr)
        scheduler, rates = eval(call, {"S": S, "o": o}), []
        for i in range(STEPS):
            rates.append(o.param_groups[0]["lr"])
            o.step()
            if i + 1 < STEPS:
                scheduler.step()
        show(name, call, rates)
    print(f"}};\nstatic const double metrics[] = {{ {', '.join(map(str, METRICS))} }};")
    print("static const golden plateaus[] = {")
    for name, lr, call in PLATEAUS:
        o = torch.optim.SGD([torch.zeros(1)], lr=lr)
        scheduler, rates = eval(call, {"S": S, "o": o}), []
        for metric in METRICS:
            scheduler.step(metric)
            rates.append(o.param_groups[0]["lr"])
        show(name, call, rates)
    print("};\n// clang-format on")


if __name__ == "__main__":
    sys.exit(main())
