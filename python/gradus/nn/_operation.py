"""The base of layers and losses without parameters, whose classes are generated: nn.ReLU, nn.CrossEntropyLoss."""
from __future__ import annotations

from ._module import Module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Operation(Module):
    """A function of tensors with its options: those of __init__ are handed to it at every call."""

    _defaults: dict[str, Any] = {}

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def extra_repr(self) -> str:
        return shown(self.options, self._defaults)


def shown(options: dict[str, Any], defaults: dict[str, Any]) -> str:
    """The options that are not at their defaults."""
    def is_default(name: str, value: Any) -> bool:
        return name in defaults and (defaults[name] is value or bool(defaults[name] == value))

    other = {name: value for name, value in options.items() if not is_default(name, value)}
    return ", ".join(f"{name}={value!r}" for name, value in other.items())
