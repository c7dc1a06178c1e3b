"""gd.lr_range: the learning-rate range test, as gd_lr_range of C has it, after which everything is as before."""
from __future__ import annotations

import math

from . import _lib
from ._compile import compile
from ._fit import _loss_of, make_parameters
from ._run import Run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ._tensor import Tensor

PAST = 0.98  # of the average, in the next one: as fastai and PyTorch Lightning smooth losses


def lr_range(model: Any, optimizer: Any, loader: Any, loss: Callable[[Any, Tensor], Tensor] | None = None, *, start: float = 1e-6,
             end: float = 10.0, steps: int = 100) -> tuple[float, list[tuple[float, float]]]:
    """(rate, [(rate, loss), …]): train for so many steps with ever larger learning rates, until the loss is no number or four times its
    least, and put everything back: parameters, buffers, optimizer, random numbers, the loader's place. The losses are smoothed; the rate
    is where they fall most steeply, a good one to begin with, NaN if they fall nowhere. loss: as of gd.fit. Smith, "Cyclical learning
    rates for training neural networks", 2017."""
    if not (start > 0.0 and start <= end < math.inf) or steps < 1:
        raise _lib.InvalidError("lr_range: rates above 0 that grow, in one step or more")
    if not hasattr(loader, "load_state_dict"):
        raise _lib.InvalidError("lr_range: the loader is no gd.data.DataLoader, and does not say where it stands")
    import tempfile  # only here: it brings 20 modules along
    objective = _loss_of(model, loss)
    buffered = model if hasattr(model, "named_buffers") else None

    @compile
    def step(*batch):
        return optimizer.minimize(objective(model(*batch[:-1]), batch[-1]))

    if hasattr(model, "named_parameters"):
        make_parameters(model, loader.first())
    place = loader.state_dict()
    batches = loader.endless()
    step.prepare(*next(batches))  # the optimizer's state is there then, as it begins
    batches.close()
    loader.load_state_dict(place)
    with tempfile.TemporaryDirectory() as folder, Run(folder, asynchronous=False) as run:
        run.save(optimizer, model=buffered, loader=loader)
        try:
            points = _points(step, optimizer, loader, start, end, steps)
        finally:
            run.load(optimizer, model=buffered, loader=loader)
    return _steepest(points), points


def _points(step: Callable[..., Tensor], optimizer: Any, loader: Any, start: float, end: float, steps: int) -> list[tuple[float, float]]:
    factor = (end / start) ** (1.0 / (steps - 1)) if steps > 1 else 1.0
    batches = loader.endless()
    average, weight, least = 0.0, 0.0, math.inf
    points: list[tuple[float, float]] = []
    for i in range(steps):
        optimizer.lr = start * factor ** i
        value = step(*next(batches)).item()
        if not math.isfinite(value):
            break
        average, weight = PAST * average + (1.0 - PAST) * value, PAST * weight + (1.0 - PAST)
        points.append((start * factor ** i, average / weight))
        least = min(least, points[-1][1])
        if points[-1][1] > 4.0 * abs(least) and i > 0:
            break
    batches.close()
    return points


def _steepest(points: list[tuple[float, float]]) -> float:
    """Where the loss falls most over a tenth of the points; not among the first, of which the average is of too few."""
    width, found, most = len(points) // 10 + 1, math.nan, 0.0
    for i in range(2 * width, len(points)):
        fall = points[i - width][1] - points[i][1]
        if fall > most:
            most, found = fall, points[i - width // 2][0]
    return found


__all__ = ["lr_range"]
