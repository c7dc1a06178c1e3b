"""For tests of one's own."""
from __future__ import annotations

import ctypes

from . import _api, _callbacks, _convert
from ._lib import C
from ._tensor import as_tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable


def gradcheck(function: Callable[..., Any], inputs: Any, tolerance: float = 1e-6) -> float:
    """Compare the gradients of function(*inputs) with central differences, and give the largest relative error. InvalidError names
    the worst element when it is above the tolerance: 1e-6 suits float64, 1e-2 float32. Inputs that require no gradient are given to
    it as they are. The function is called four times for each element."""
    tensors = [as_tensor(t) for t in ([inputs] if not isinstance(inputs, (list, tuple)) else inputs)]
    worst = _api.gd_gradient_error()
    with _callbacks.Called(function) as number:
        _convert.run_status(C.gd_check_gradients, _callbacks.ADDRESS, number, len(tensors), _convert.handles(tensors), tolerance,
                            ctypes.byref(worst))
    return worst.error


__all__ = ["gradcheck"]
