"""Optimizers: gd.optim.Adam(model.parameters(), lr=1e-3), after PyTorch, and schedules of the learning rate."""
from __future__ import annotations

from . import _api, _callbacks, _convert, _lib, _objects, _ops
from ._convert import run_status, run_value
from ._lib import C
from ._tensor import Tensor
from .nn._module import Adopted, Module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable


class Optimizer:
    """Updates parameters against their gradients. `parameters`: a Module, its parameters(), or pairs of (path, parameter).

    With a loss in hand, minimize(loss) takes its gradient and updates; or loss.backward(), as often as wanted, then step() and
    zero_grad(). Both work within gd.compile. Of a Module, parameters that layers make later join in."""

    _make: Any = None

    def __init__(self, parameters: Module | Iterable[Any], **options: Any) -> None:
        if isinstance(parameters, Module):
            self._adopted, self.model = Adopted(parameters), parameters
        elif isinstance(parameters, Tensor) or not hasattr(parameters, "__iter__"):
            raise TypeError(f"parameters are a Module or tensors, not a {type(parameters).__name__}")
        else:
            named = [p if isinstance(p, tuple) else (str(i), p) for i, p in enumerate(parameters)]
            if not named:
                raise _lib.InvalidError("an optimizer without parameters")
            self._adopted, self.model = Adopted(named), None
        self._optimizer = type(self)._make(self._adopted.update(), **options)

    @property
    def handle(self) -> int:
        self._adopted.update()
        return self._optimizer.handle

    def minimize(self, loss: Tensor) -> Tensor:
        """Update every parameter against the gradient of the loss, which is given back."""
        return _convert.run(C.gd_minimize, self.handle, loss._h)

    def step(self) -> None:
        """Update every parameter against the gradient that backward() has added up."""
        run_status(C.gd_optimizer_step, self.handle)

    def zero_grad(self) -> None:
        run_status(C.gd_optimizer_zero_grad, self.handle)

    @property
    def lr(self) -> float:
        """The learning rate. Compiled steps see a change at their next call."""
        return C.gd_optimizer_lr(self.handle)

    @lr.setter
    def lr(self, value: float) -> None:
        run_status(C.gd_optimizer_set_lr, self.handle, value)

    def group(self, pattern: str, **options: float) -> None:
        """Constants of their own for the parameters whose path matches, "*.bias": lr, weight_decay."""
        self.handle
        self._optimizer.group(pattern, **options)

    def clip_norm(self, max_norm: float) -> None:
        """Scale all gradients together so that their norm is at most this; 0: do not."""
        run_status(C.gd_optimizer_clip_norm, self.handle, max_norm)

    def clip_value(self, limit: float) -> None:
        run_status(C.gd_optimizer_clip_value, self.handle, limit)

    @property
    def gradient_norm(self) -> float:
        """Of the last step, before it was clipped; NaN unless norms are clipped."""
        return run_value(C.gd_optimizer_gradient_norm, self.handle)

    def save(self, path: Any) -> None:
        """Write moments, the count of steps and the learning rate to a safetensors file."""
        run_status(C.gd_optimizer_save, self.handle, _convert.as_text(path))

    def load(self, path: Any) -> None:
        run_status(C.gd_optimizer_load, self.handle, _convert.as_text(path))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(lr={self.lr:g})"


def _optimizer(name: str, function: Callable) -> type:
    return type(name, (Optimizer,), {"_make": staticmethod(function), "__doc__": function.__doc__, "__module__": "gradus.optim"})


SGD, Adam, AdamW = _optimizer("SGD", _ops.sgd), _optimizer("Adam", _ops.adam), _optimizer("AdamW", _ops.adamw)
NAdam, RAdam = _optimizer("NAdam", _ops.nadam), _optimizer("RAdam", _ops.radam)
RMSprop, Adagrad = _optimizer("RMSprop", _ops.rmsprop), _optimizer("Adagrad", _ops.adagrad)
Adadelta, Lion, LAMB = _optimizer("Adadelta", _ops.adadelta), _optimizer("Lion", _ops.lion), _optimizer("LAMB", _ops.lamb)


class LBFGS:
    """Limited-memory BFGS with a line search, for small models and losses without noise: step(closure), closure() being the loss on
    the whole of the data. Options: lr, max_iterations (of a step), history, tolerance_gradient, line_search, …"""

    def __init__(self, parameters: Module | Iterable[Any], **options: Any) -> None:
        self._adopted = Adopted(parameters if isinstance(parameters, Module) else
                                [p if isinstance(p, tuple) else (str(i), p) for i, p in enumerate(parameters)])
        self._lbfgs = _objects.Lbfgs.create(self._adopted.update(), **options)

    def step(self, closure: Callable[[], Tensor]) -> float:
        """Improve the parameters; the loss before. The closure is called as often as is needed."""
        self._adopted.update()
        loss = _convert.ctypes.c_double()
        with _callbacks.Called(closure) as number:
            run_status(C.gd_lbfgs_step, self._lbfgs.handle, _callbacks.CLOSURE, number, _convert.byref(loss))
        return loss.value


class EMA:
    """Moving averages of a model's parameters: update() after a step, swap() before and after an evaluation."""

    def __init__(self, model: Module, decay: float = 0.999) -> None:
        self._ema = _objects.Ema.create(model.library_module(), decay=decay)

    def update(self) -> None:
        self._ema.update()

    def swap(self) -> None:
        self._ema.swap()


class Schedule:
    """A learning rate over time: schedule(step). kind: "cosine", "linear", "step", "one_cycle", …; options as gd_schedule's."""

    def __init__(self, kind: str, lr: float, milestones: Iterable[int] = (), **options: float) -> None:
        self._schedule = _convert.options_of(_api.gd_schedule)
        self._milestones = (_convert.ctypes.c_int64 * len(list(milestones)))(*milestones)
        if len(self._milestones):
            self._schedule.milestones = _convert.ctypes.addressof(self._milestones)
            self._schedule.milestone_count = len(self._milestones)
        self._schedule.kind, self._schedule.lr = _convert.as_enum("gd_schedule_kind", kind), lr
        known = {name for name, _ in _api.gd_schedule._fields_}
        for name, value in options.items():
            if name not in known:
                raise TypeError(f"a schedule has no {name}: {', '.join(sorted(known))}")
            setattr(self._schedule, name, value)

    def __call__(self, step: int) -> float:
        return run_value(C.gd_schedule_at, _convert.byref(self._schedule), step)


def cosine(lr: float, steps: int, warmup: int = 0, lr_end: float = 0.0) -> Schedule:
    """From lr down to lr_end by half a cosine, after a linear warm-up."""
    return Schedule("cosine", lr, steps=steps, warmup=warmup, lr_end=lr_end)


def linear(lr: float, steps: int, warmup: int = 0, lr_end: float = 0.0) -> Schedule:
    return Schedule("linear", lr, steps=steps, warmup=warmup, lr_end=lr_end)


__all__ = ["SGD", "Adam", "AdamW", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adadelta", "Lion", "LAMB", "EMA", "LBFGS", "Optimizer", "Schedule",
           "cosine", "linear"]
