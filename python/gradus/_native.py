"""gradus._fast, where it is there, in the place of what it stands for: functions of _ops.py, and Tensor. What stands there in Python
is kept, for the unusual cases (python/fast/fast.h)."""
from __future__ import annotations

from . import _context, _lib
from ._dtype import BY_CODE

fast = _lib.fast
_NOT_TAKEN = {"__module__", "__dict__", "__weakref__", "__slots__", "__del__", "_h"}
_WRITTEN = {"item", "detach", "reshape", "view"}  # methods that the extension has besides those of the ops
_function = type(lambda: None)
PYTHON: dict = {}  # the functions of _ops.py that others stand for


def install_ops(namespace: dict) -> None:
    """In _ops.py, at its end: functions in the place of its own, under all their names."""
    if fast is None:
        return
    made = fast.install_ops(namespace)
    PYTHON.update({name: namespace[name] for name in made})
    python = {PYTHON[name]: function for name, function in made.items()}
    for name, value in list(namespace.items()):
        if type(value) is _function and value in python:
            namespace[name] = python[value]


def install(written: type) -> type:
    """The class Tensor as it is written in Python, or the extension's type, with all its methods."""
    if fast is None:
        return written
    from ._ops import TensorMethods
    tensor, kept, ops = fast.Tensor, {}, vars(TensorMethods)
    own = set(vars(tensor)) - {"__doc__", "__module__"}
    for name in {name: None for kind in written.__mro__[-2::-1] for name in vars(kind)}:
        value = next(vars(kind)[name] for kind in written.__mro__ if name in vars(kind))
        if name in own:
            kept[name] = value
        # The extension's methods are the ops of their names: what is written otherwise is taken.
        if name not in _NOT_TAKEN and (name not in own or name in ops and name not in _WRITTEN and value is not ops[name]):
            setattr(tensor, name, value)
    fast.install(kept, _lib.fail, _context._drain_handle, _context._pending, tuple(BY_CODE[code] for code in range(len(BY_CODE))))
    return tensor
