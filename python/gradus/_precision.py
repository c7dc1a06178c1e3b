"""Mixed precision: gd.autocast."""
from __future__ import annotations

import functools

from . import _context
from ._convert import run_status
from ._dtype import BY_CODE, dtype
from ._lib import C

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ._dtype import DType


class autocast:
    """Within it, in the context that is the thread's current one, matrix products, convolutions, attention and recurrent layers take
    float32 operands rounded to `dtype`, bfloat16 or float16, and give results of it; losses, norms, softmax, sums, exp, log and pow
    compute in float32; the rest takes what it is given.
    Parameters and their gradients stay float32, and backward() needs no scope. dtype=None, or enabled=False: none within an outer one.
    A context manager and a decorator; nests up to 32 deep. For float16 see optimizer.scale_losses()."""

    def __init__(self, dtype: DType | str | None = "bfloat16", enabled: bool = True) -> None:
        self.dtype: DType = _dtype_of(dtype if enabled else None)

    def __enter__(self) -> autocast:
        self.home: _context.Home = _context.home()
        run_status(C.gd_autocast_begin, self.home.handle, self.dtype.code)
        return self

    def __exit__(self, *what: Any) -> None:
        run_status(C.gd_autocast_end, self.home.handle)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def cast(*args, **kwargs):
            with autocast(self.dtype):
                return function(*args, **kwargs)
        return cast


def _dtype_of(name: Any) -> DType:
    return dtype("float32" if name is None else name)


def autocast_dtype() -> DType:
    """The dtype of the innermost gd.autocast; float32: there is none."""
    return BY_CODE[C.gd_autocast_get(_context.current())]
