"""What the namespace tells of itself: dtypes and their limits, devices, capabilities, as the Python array API standard has it."""
from __future__ import annotations

from . import _context
from ._convert import promoted
from ._dtype import BY_CODE, BY_NAME, DType, dtype as as_dtype

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

_KINDS = {"bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu", "real floating": "f", "complex floating": "",
          "numeric": "iuf"}
_BITS = {"f16": (10, -14, 15), "bf16": (7, -126, 127), "f32": (23, -126, 127), "f64": (52, -1022, 1023)}  # mantissa, exponents


def at(device: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """function(*arguments) with a device's context, or a gd.Context, as the current one."""
    before = _context.enter(_context.place_of(device))
    try:
        return function(*arguments)
    finally:
        _context.enter(before)


class finfo:
    """The limits of a float dtype: bits, eps, max, min, smallest_normal, dtype."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType

    def __init__(self, type: Any) -> None:
        d = self.dtype = _dtype_of(type)
        if d.kind != "f":
            raise TypeError(f"{d.name} is no float dtype")
        mantissa, least, most = _BITS[d.short]
        self.bits = 8 * d.itemsize
        self.eps, self.smallest_normal = 2.0 ** -mantissa, 2.0 ** least
        self.max = (2.0 - self.eps) * 2.0 ** most
        self.min = -self.max

    def __repr__(self) -> str:
        return f"finfo(dtype={self.dtype.name}, eps={self.eps}, max={self.max}, smallest_normal={self.smallest_normal})"


class iinfo:
    """The limits of an integer dtype: bits, max, min, dtype."""

    bits: int
    max: int
    min: int
    dtype: DType

    def __init__(self, type: Any) -> None:
        d = self.dtype = _dtype_of(type)
        if d.kind not in "iu":
            raise TypeError(f"{d.name} is no integer dtype")
        self.bits = 8 * d.itemsize
        self.min = -(1 << self.bits - 1) if d.kind == "i" else 0
        self.max = self.min + (1 << self.bits) - 1

    def __repr__(self) -> str:
        return f"iinfo(dtype={self.dtype.name}, min={self.min}, max={self.max})"


def _dtype_of(value: Any) -> DType:
    return getattr(value, "dtype", None) if type(getattr(value, "dtype", None)) is DType else as_dtype(value)


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind: "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating",
    "numeric", another dtype, or any of a tuple of them."""
    d = as_dtype(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(d, one) for one in kind)
    if type(kind) is str and kind in _KINDS:
        return d.kind in _KINDS[kind]
    if type(kind) is str and kind not in BY_NAME:
        raise ValueError(f"{kind!r} is no kind of dtypes; there are {', '.join(_KINDS)}")
    return d is as_dtype(kind)


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype that operands of these are computed in: of tensors, dtypes and Python's numbers, of which one at least is no number."""
    numbers = [one for one in arrays_and_dtypes if type(one) in (bool, int, float)]
    dtypes = [_dtype_of(one) for one in arrays_and_dtypes if type(one) not in (bool, int, float)]
    if not dtypes:
        raise ValueError("a result's dtype comes from tensors and dtypes: there is none")
    d = dtypes[0]
    for other in dtypes[1:]:
        d = promoted(d, other)
    for number in numbers:
        if type(number) is float and d.kind != "f":
            d = BY_NAME["f32"]
        elif type(number) is int and d.kind == "b":
            d = BY_NAME["i64"]
    return d


def can_cast(from_: Any, to: Any) -> bool:
    """Whether promotion can lead from the one dtype (or tensor) to the other."""
    to = as_dtype(to)
    return promoted(_dtype_of(from_), to) is to


class _Info:
    """What gd.__array_namespace_info__() gives."""

    def capabilities(self) -> dict[str, Any]:
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 8}

    def default_device(self) -> str:
        return _context.C.gd_context_device(_context.current()).decode()

    def devices(self) -> list[str]:
        return _context.devices()

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        return {"real floating": BY_NAME["f32"], "integral": BY_NAME["i64"], "indexing": BY_NAME["i64"]}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        """The standard's dtypes; float16 and bfloat16 are further ones."""
        return {d.name: d for d in BY_CODE.values() if d.short not in ("f16", "bf16") and (kind is None or isdtype(d, kind))}


def __array_namespace_info__() -> _Info:
    """Devices, dtypes and capabilities, as the Python array API standard asks for them."""
    return _Info()


__all__ = ["can_cast", "finfo", "iinfo", "isdtype", "result_type"]
