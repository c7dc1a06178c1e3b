"""Losses as modules; gd.cross_entropy and the like are the functions."""
from __future__ import annotations

from .. import _ops
from .._tensor import Tensor
from ._module import Module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Loss(Module):
    """The options are those of the function."""

    _function = ""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return getattr(_ops, self._function)(x, target, **self.options)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


def _loss(name: str, function: str) -> type:
    return type(name, (_Loss,), {"_function": function, "__doc__": getattr(_ops, function).__doc__, "__module__": "gradus.nn"})


CrossEntropyLoss = _loss("CrossEntropyLoss", "cross_entropy")
MSELoss = _loss("MSELoss", "mse")
L1Loss = _loss("L1Loss", "mae")
NLLLoss = _loss("NLLLoss", "nll")
BCELoss = _loss("BCELoss", "bce")
BCEWithLogitsLoss = _loss("BCEWithLogitsLoss", "bce_with_logits")
HuberLoss = _loss("HuberLoss", "huber")
SmoothL1Loss = _loss("SmoothL1Loss", "smooth_l1")
KLDivLoss = _loss("KLDivLoss", "kl_div")
