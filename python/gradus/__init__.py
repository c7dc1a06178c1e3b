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

from . import _lib
from ._ops import *  # noqa: F403  the generated functions
from ._ops import __all__ as _generated
from ._dtype import BY_CODE as _dtypes
from ._dtype import DType
from ._lib import (DeviceError, DTypeError, Error, FileError, FormatError, InvalidError, OutOfMemoryError, ShapeError, StateError,
                   TracingError, UnsupportedError)
from ._tensor import (Tensor, arange, argmax, argmin, asarray, copy, empty, from_numpy, full, full_like, ones_like, rand, randint,
                      randn, seed, tensor)
from ._tree import flatten as tree_flatten
from ._tree import unflatten as tree_unflatten
from ._autograd import grad, no_grad, value_and_grad
from ._callbacks import checkpoint
from ._compile import compile
from ._fit import evaluate, fit
from ._io import load, save

array = tensor
for _d in _dtypes.values():
    globals()[_d.name] = _d
pi, e, inf, nan, newaxis = 3.141592653589793, 2.718281828459045, float("inf"), float("nan"), None

__version__ = _lib.C.gd_version().decode()
_MODULES = ("nn", "optim", "data", "metrics", "testing", "text")


def __getattr__(name: str):
    if name in _MODULES:
        from importlib import import_module
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'gradus' has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *_MODULES])


def memory():
    """The state of the default context's memory: gd.memory().in_use, .peak, .live_tensors."""
    with _lib.lock:
        _lib.drain()
        return _lib.C.gd_memory(_lib.context())


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


__all__ = sorted({*_generated, "Tensor", "DType", "arange", "argmax", "argmin", "array", "asarray", "checkpoint", "compile", "copy",
                  "empty", "evaluate", "fit", "from_numpy", "full", "full_like", "get_threads", "grad", "isa", "load", "memory", "no_grad",
                  "ones_like", "rand", "randint", "randn", "save", "seed", "set_threads", "tensor", "value_and_grad", *_MODULES,
                  *(_d.name for _d in _dtypes.values())} - {"bool"})
