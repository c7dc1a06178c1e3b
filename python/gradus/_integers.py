"""Whole numbers handed to C. ctypes takes any, and keeps the low 32 or 64 bits: an axis of 2**32 would be axis 0. Those that do not fit are
errors here. Signed and unsigned numbers of 64 bits take a negative number as its two's complement, as seeds are given."""
from __future__ import annotations

import ctypes
import re
from operator import index

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence


class Parameter:
    """A parameter's type, for argtypes: a whole number of `kind`, from `least` to `most`."""

    def __init__(self, kind: Any, least: int, most: int):
        self.kind, self.least, self.most = kind, least, most

    def from_param(self, value: Any) -> Any:
        if type(value) is not int:
            if isinstance(value, self.kind):
                return value
            value = index(value)
        if self.least <= value <= self.most:
            return self.kind(value)
        raise ValueError(f"{value} is not from {self.least} to {self.most}")


_LEAST = -2 ** 63
PARAMETERS = {ctypes.c_int32: Parameter(ctypes.c_int32, -2 ** 31, 2 ** 31 - 1), ctypes.c_uint32: Parameter(ctypes.c_uint32, 0, 2 ** 32 - 1),
              ctypes.c_int64: Parameter(ctypes.c_int64, _LEAST, 2 ** 63 - 1),
              ctypes.c_uint64: Parameter(ctypes.c_uint64, _LEAST, 2 ** 64 - 1)}  # c_int and c_size_t are one of these


def check(numbers: Sequence[Any], kind: Any) -> None:
    """Whether each fits into `kind`: ValueError."""
    parameter = PARAMETERS.get(kind)
    for n in numbers if parameter else ():
        parameter.from_param(n)


def array_of(kind: Any, numbers: Sequence[Any]) -> Any:
    """An array of C's, of numbers that fit."""
    check(numbers, kind)
    return (kind * len(numbers))(*numbers)


class Struct(ctypes.Structure):
    """A struct whose members refuse what they cannot hold."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if type(value) is int and not -2 ** 31 <= value < 2 ** 31:
            kept = getattr(self, name)
            if type(kept) is int and kept != value:
                raise ValueError(f"{name}: {value} does not fit: it would be {kept}")

    def __repr__(self) -> str:
        members = ", ".join(f"{n[0]}={getattr(self, n[0])!r}" for n in self._fields_)
        return f"{type(self).__name__}({members})"


def explain(function: Any, arguments: tuple[Any, ...], error: ctypes.ArgumentError) -> tuple[bool, str]:
    """Whether it is a number out of range, and what ctypes says of an argument as a sentence: which argument, and what it is."""
    match = re.match(r"argument (\d+): (?:<class '(\w+)'>|(\w+)): (.*)", str(error), re.DOTALL)
    if not match:
        return False, f"{function.__name__}: {error}"
    number, old, new, why = match.groups()
    value = arguments[int(number) - 1]
    if why == "wrong type":
        why = "the number is too large" if type(value) is int else f"{type(value).__name__} cannot be taken"
    return (old or new) == "ValueError", f"{function.__name__}: argument {number}: {why}"
