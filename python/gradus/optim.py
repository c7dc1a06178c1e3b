"""Optimizers: gd.optim.Adam(model, lr=1e-3), after PyTorch, and schedules of the learning rate."""
from __future__ import annotations

import ctypes

import gradus._optimizers as _optimizers  # in this form type checkers see its __all__

from . import _api, _callbacks, _convert, _objects
from ._convert import run_status, run_value
from ._lib import C
from ._optimizer import Optimizer, named_parameters
from ._optimizers import *  # noqa: F403  SGD, Adam, … of the library
from ._tensor import Tensor
from .nn._module import Adopted, Module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable

    from ._optimizer import Parameters


class LBFGS:
    """Limited-memory BFGS with a line search, for small models and losses without noise: step(closure), closure() being the loss on
    the whole of the data. Options: lr, max_iterations (of a step), history, tolerance_gradient, line_search, …"""

    def __init__(self, parameters: Parameters, **options: Any) -> None:
        self._adopted = Adopted(parameters if isinstance(parameters, Module) else named_parameters(parameters, []))
        self._lbfgs = _objects.Lbfgs.create(self._adopted.update(), **options)

    def step(self, closure: Callable[[], Tensor]) -> float:
        """Improve the parameters; the loss before. The closure is called as often as is needed."""
        self._adopted.update()
        loss = ctypes.c_double()
        with _callbacks.Called(closure) as number:
            run_status(C.gd_lbfgs_step, self._lbfgs.handle, _callbacks.CLOSURE, number, _convert.byref(loss))
        return loss.value


class EMA:
    """Moving averages of a model's parameters: update() after a step, swap() before and after an evaluation."""

    def __init__(self, model: Module, decay: float = 0.999) -> None:
        self._ema = _objects.Ema.create(model.library_module(), decay=decay)

    def update(self) -> None:
        """Move the averages towards the parameters as they are."""
        self._ema.update()

    def swap(self) -> None:
        """Exchange parameters and averages."""
        self._ema.swap()


class Schedule:
    """A learning rate over time: schedule(step). kind: "cosine", "linear", "step", "one_cycle", …; options as gd_schedule's."""

    def __init__(self, kind: str, lr: float, milestones: Iterable[int] = (), **options: float) -> None:
        self._schedule = _convert.options_of(_api.gd_schedule)
        times = list(milestones)
        self._milestones = _convert.array_of(ctypes.c_int64, times)
        if len(self._milestones):
            self._schedule.milestones = ctypes.addressof(self._milestones)
            self._schedule.milestone_count = len(self._milestones)
        self._schedule.kind, self._schedule.lr = _convert.as_enum("gd_schedule_kind", kind), lr
        known = {name for name, *_ in _api.gd_schedule._fields_} - {"size", "kind", "milestones", "milestone_count"}
        for name, value in options.items():
            if name not in known:
                raise TypeError(f"a schedule has no {name}: {', '.join(sorted(known))}")
            setattr(self._schedule, name, value)

    def __call__(self, step: int) -> float:
        return run_value(C.gd_schedule_at, _convert.byref(self._schedule), step)


def constant(lr: float, warmup: int = 0) -> Schedule:
    """lr, after a linear warm-up."""
    return Schedule("constant", lr, warmup=warmup)


def step(lr: float, period: int, factor: float = 0.1, warmup: int = 0) -> Schedule:
    """lr, times `factor` after every `period` steps."""
    return Schedule("step", lr, period=period, factor=factor, warmup=warmup)


def multi_step(lr: float, milestones: Iterable[int], factor: float = 0.1, warmup: int = 0) -> Schedule:
    """lr, times `factor` at each of the milestones."""
    return Schedule("multi_step", lr, milestones=milestones, factor=factor, warmup=warmup)


def exponential(lr: float, factor: float = 0.99, warmup: int = 0) -> Schedule:
    """lr times `factor` to the number of steps."""
    return Schedule("exponential", lr, factor=factor, warmup=warmup)


def linear(lr: float, steps: int, warmup: int = 0, lr_end: float = 0.0) -> Schedule:
    """From lr to lr_end in a straight line, after a linear warm-up."""
    return Schedule("linear", lr, steps=steps, warmup=warmup, lr_end=lr_end)


def polynomial(lr: float, steps: int, power: float = 1.0, warmup: int = 0, lr_end: float = 0.0) -> Schedule:
    """lr_end + (lr - lr_end) * (1 - step / steps) ** power."""
    return Schedule("polynomial", lr, steps=steps, power=power, warmup=warmup, lr_end=lr_end)


def cosine(lr: float, steps: int, warmup: int = 0, lr_end: float = 0.0) -> Schedule:
    """From lr down to lr_end by half a cosine, after a linear warm-up."""
    return Schedule("cosine", lr, steps=steps, warmup=warmup, lr_end=lr_end)


def one_cycle(lr: float, steps: int, rising_share: float = 0.3, start_divisor: float = 25.0, end_divisor: float = 1e4) -> Schedule:
    """Up from lr / start_divisor to lr over the first share of the steps, then down to lr / start_divisor / end_divisor."""
    return Schedule("one_cycle", lr, steps=steps, rising_share=rising_share, start_divisor=start_divisor, end_divisor=end_divisor)


class Plateau:
    """Lowers the learning rate when a metric has stopped falling (rising=True: rising): after each epoch
    optimizer.lr = plateau(optimizer.lr, loss). Options are those of gd_plateau: factor, patience, threshold, cooldown, lr_end."""

    def __init__(self, factor: float = 0.1, patience: int = 10, threshold: float = 1e-4, cooldown: int = 0, lr_end: float = 0.0,
                 rising: bool = False) -> None:
        self._plateau = _convert.as_struct(_api.gd_plateau, {
            "factor": factor, "patience": patience, "threshold": threshold, "cooldown": cooldown, "lr_end": lr_end, "rising": rising})

    def __call__(self, lr: float, metric: float) -> float:
        return run_value(C.gd_plateau_step, ctypes.byref(self._plateau), lr, metric)


__all__ = ["EMA", "LBFGS", "Optimizer", "Plateau", "Schedule", "constant", "cosine", "exponential", "linear", "multi_step", "one_cycle",
           "polynomial", "step"]
__all__ += _optimizers.__all__
