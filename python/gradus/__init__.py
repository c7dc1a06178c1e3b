"""Gradus: a deep-learning engine in C, from Python.

    import gradus as gd

    x = gd.randn(3, 4)
    w = gd.randn(4, 2).requires_grad_()
    (x @ w).relu().sum().backward()
    print(w.grad)

Functions have NumPy's names, or PyTorch's where NumPy has none. gd.nn has modules, gd.optim optimizers, gd.data data sets;
gd.compile makes of a training step one call of the library.
"""
from __future__ import annotations

from . import _array_api, _context, _lib, _ops
from ._ops import *  # noqa: F403  the generated functions
from ._dtype import BY_CODE as _dtypes
from ._dtype import DType
from ._lib import (DeviceError, DTypeError, Error, FileError, FormatError, InvalidError, OutOfMemoryError, ShapeError, StateError,
                   TracingError, UnsupportedError)
from ._tensor import Tensor, argmax, argmin, asarray, copy, from_numpy, rand, randint, randn, seed, tensor
from ._array_api import *  # noqa: F403  what the array API standard has otherwise than C
from ._array_api import __array_api_version__, __array_namespace_info__
from ._tree import flatten as tree_flatten
from ._tree import unflatten as tree_unflatten
from ._autograd import grad, jvp, no_grad, value_and_grad
from ._callbacks import checkpoint
from ._compile import compile
from ._context import Context, devices
from ._fit import evaluate, fit
from ._io import load, save
from ._lr_range import lr_range
from ._precision import autocast, autocast_dtype
from ._run import Run
from ._vmap import vmap

TYPE_CHECKING = False
if TYPE_CHECKING:
    import builtins
    from typing import Any

    from . import data as data
    from . import linalg as linalg
    from . import metrics as metrics
    from . import nn as nn
    from . import optim as optim
    from . import report as report
    from . import testing as testing
    from . import text as text
    from ._api import gd_memory_stats

    float32: DType
    float64: DType
    float16: DType
    bfloat16: DType
    int8: DType
    int16: DType
    int32: DType
    int64: DType
    uint8: DType
    uint16: DType
    uint32: DType
    uint64: DType
    bool: DType

array = tensor
for _d in _dtypes.values():
    globals()[_d.name] = _d
pi: float = 3.141592653589793
e: float = 2.718281828459045
inf: float = float("inf")
nan: float = float("nan")
newaxis: None = None

__version__: str = _lib.C.gd_version().decode()
_MODULES = ("nn", "optim", "data", "linalg", "metrics", "report", "testing", "text")


if not TYPE_CHECKING:
    def __getattr__(name):
        if name in _MODULES:
            from importlib import import_module
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module 'gradus' has no attribute {name!r}")


def from_dlpack(x: Any, /, *, device: str | None = None, copy: builtins.bool | None = None) -> Tensor:
    """A tensor over the memory of another library's: what has __dlpack__, or a capsule. The memory is shared, with its strides;
    where it cannot be (it is read-only, or another device's), or with copy=True, it is copied. copy=False: BufferError then."""
    from . import _dlpack
    return _dlpack.from_dlpack(x, device=device, copy=copy)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])


def memory() -> gd_memory_stats:
    """The state of the current context's memory: gd.memory().in_use, .peak, .live_tensors."""
    with _context.within(_context.home()) as home:
        _context.drain(home)
        _lib.C.gd_claim(home.handle, None)  # takes off what tensors have given back
        return _lib.C.gd_memory(home.handle)


def set_threads(count: int) -> None:
    """How many threads compute. Results do not depend on it."""
    from . import _ops
    _ops.context_set_threads(count)


def get_threads() -> int:
    """How many threads compute."""
    from . import _ops
    return _ops.context_threads()


def isa() -> str:
    """The instruction set in use, "avx512"."""
    from . import _ops
    return _ops.context_isa()


__all__ = ["Context", "DType", "DTypeError", "DeviceError", "Error", "FileError", "FormatError", "InvalidError", "OutOfMemoryError", "Run",
           "ShapeError", "StateError", "Tensor", "TracingError", "UnsupportedError", "argmax", "argmin", "array", "asarray", "autocast",
           "autocast_dtype", "bfloat16", "checkpoint", "compile", "copy", "data", "devices", "e", "evaluate", "fit", "float16", "float32",
           "float64", "from_dlpack", "from_numpy", "get_threads", "grad", "inf", "int16", "int32", "int64", "int8", "isa", "jvp", "linalg",
           "load", "lr_range", "memory", "metrics", "nan", "newaxis", "nn", "no_grad", "optim", "pi", "rand", "randint", "randn", "report",
           "save", "seed", "set_threads", "tensor", "testing", "text", "tree_flatten", "tree_unflatten", "uint16", "uint32", "uint64",
           "uint8", "value_and_grad", "vmap"]
__all__ += _ops.__all__
__all__ += _array_api.__all__
