"""The base of the optimizers, whose classes are generated (_optimizers.py)."""
from __future__ import annotations

from . import _convert, _io, _lib, _objects
from ._convert import run_status, run_value
from ._lib import C
from ._tensor import Tensor
from .nn._module import Adopted, Module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Union

    Parameters = Union[Module, Iterable[Tensor], Iterable[tuple[str, Tensor]], Iterable[dict[str, Any]]]


class Optimizer:
    """Updates parameters against their gradients. `parameters`: a Module, its parameters(), pairs of (path, parameter), or groups:
    dicts with "params", and "lr" or "weight_decay" for these alone.

    With a loss in hand, minimize(loss) takes its gradient and updates; or loss.backward(), as often as wanted, then step() and
    zero_grad(). Both work within gd.compile. Of a Module, parameters that layers make later join in."""

    model: Module | None

    def __init__(self, parameters: Parameters, make: Callable[..., _objects.Optimizer], **options: Any) -> None:
        groups: list[dict[str, Any]] = []
        self.model = parameters if isinstance(parameters, Module) else None
        self._adopted = Adopted(parameters if isinstance(parameters, Module) else named_parameters(parameters, groups))
        self._optimizer = make(self._adopted.update(), **options)
        self._scales_losses = False
        for i, group in enumerate(groups):
            self._optimizer.group(f"{i}.*", **group)

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
        """Set the gradients of all parameters to zeros."""
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
        """Hold every element of the gradients within +-limit; 0: do not."""
        run_status(C.gd_optimizer_clip_value, self.handle, limit)

    @property
    def gradient_norm(self) -> float:
        """Of the last step, before it was clipped; NaN unless norms are clipped."""
        return run_value(C.gd_optimizer_gradient_norm, self.handle)

    def scale_losses(self, initial: float = 65536.0, growth: float = 2.0, backoff: float = 0.5, interval: int = 2000) -> None:
        """For gradients in float16, whose smallest numbers would become 0: from now on minimize() multiplies the loss by a factor and
        divides the gradients by it. A step whose gradients are not finite changes nothing but the factor, which is multiplied by
        `backoff`, and by `growth` after `interval` finite ones. backward() is given scale_loss(loss)."""
        self._optimizer.scale_losses(initial=initial, growth=growth, backoff=backoff, interval=interval)
        self._scales_losses = True

    @property
    def loss_scale(self) -> float:
        """The factor now; 1 where losses are not scaled."""
        return run_value(C.gd_optimizer_loss_scale, self.handle)

    def scale_loss(self, loss: Tensor) -> Tensor:
        """The loss times the factor, for backward(); the loss itself where losses are not scaled."""
        return _convert.run(C.gd_scale_loss, self.handle, loss._h)

    def save(self, path: Any) -> None:
        """Write moments, the count of steps and the learning rate to a safetensors file."""
        run_status(C.gd_optimizer_save, self.handle, _convert.as_text(path))

    def load(self, path: Any) -> None:
        """Read what save() wrote, into an optimizer of the same kind and of the same parameters."""
        run_status(C.gd_optimizer_load, self.handle, _convert.as_text(path))

    def state_dict(self) -> dict[str, Any]:
        """What save() writes: {"optimizer": kind, "lr": …, "state": tensors by name}, copies of the state."""
        import os
        import tempfile
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "state")
            self.save(path)
            file = _objects.TensorFile.open(path)
            kind, lr = file.metadata("optimizer"), file.metadata("lr")
            file.close()
            return {"optimizer": kind, "lr": float(lr or "nan"), "state": _io.load(path)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what state_dict() of an optimizer of the same kind and of the same parameters gave."""
        import os
        import tempfile
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "state")
            _io.save(path, state["state"], {"optimizer": state["optimizer"], "lr": repr(state["lr"])})
            self.load(path)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(lr={self.lr:g})"


def named_parameters(parameters: Any, groups: list[dict[str, Any]]) -> list[tuple[str, Tensor]]:
    """[(path, parameter)] of what an optimizer is given. The options of groups are added to `groups`, whose number begins their paths."""
    if isinstance(parameters, Tensor) or not hasattr(parameters, "__iter__"):
        raise TypeError(f"parameters are a Module or tensors, not a {type(parameters).__name__}")
    named: list[tuple[str, Tensor]] = []
    for i, p in enumerate(parameters):
        if isinstance(p, dict):
            options = dict(p)
            inner = options.pop("params")
            within = list(inner.named_parameters()) if isinstance(inner, Module) else named_parameters(inner, [])
            named += [(f"{i}.{path}", t) for path, t in within]
            groups.append(options)
        else:
            named.append(p if isinstance(p, tuple) else (str(i), p))
    if not named:
        raise _lib.InvalidError("an optimizer without parameters")
    return named
