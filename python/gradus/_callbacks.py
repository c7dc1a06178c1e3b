"""Functions that C calls: gd.checkpoint, gd.testing.gradcheck, gd.optim.LBFGS, gd.text.quantize.

An exception must not pass through C: it is stored, C is told of a failure, and the exception is raised when C has returned.
"""
from __future__ import annotations

import ctypes
import itertools
import signal
import threading

from . import _api, _context, _lib, _ops
from ._convert import as_tensor, wrap
from ._lib import C, thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ._tensor import Tensor

_BODY = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))
_CLOSURE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_TOLD = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_bool))
_functions: dict[int, Callable] = {}  # by the number that C hands back
_next = itertools.count(1)
_numbers: dict[Callable, int] = {}  # of functions that C calls for as long as a history has them, of which it tells nobody


def _call(number: int, count: int, inputs) -> Tensor | None:
    """What the function gives; None when it raised."""
    home = _context.home_of(inputs[0]) if count else _context.home()
    before = _context.enter(home)
    try:
        C.gd_scope_begin(home.handle)  # what the calls of the function empty; C ends it
        return as_tensor(_functions[number](*[wrap(C.gd_retain(inputs[i])) for i in range(count)]))
    except BaseException as error:  # KeyboardInterrupt as well
        thread.stored = thread.stored or error  # lib.fail raises it
        return None
    finally:
        _context.enter(before)


@_BODY
def _trampoline(number, count, inputs):
    result = _call(number, count, inputs)
    if result is None:
        return 0
    thread.results = (*thread.results, result)
    return result._h


@_CLOSURE
def _closure(number):
    result = _call(number, 0, None)
    thread.results = (result,)  # C has done with the one before
    return 0 if result is None else result._h


@_TOLD
def _told(number, written, stop):
    try:
        _functions[number](_api.gd_gguf_written.from_address(written))
    except BaseException as error:  # KeyboardInterrupt as well
        thread.stored = thread.stored or error
        stop[0] = True
    return 0


ADDRESS = ctypes.cast(_trampoline, ctypes.c_void_p).value
CLOSURE = ctypes.cast(_closure, ctypes.c_void_p).value
TOLD = ctypes.cast(_told, ctypes.c_void_p).value


class Called:
    """A function for the time of a call of C: its number. Holds Ctrl-C back: raised on the way into a callback, KeyboardInterrupt
    would be lost, and C be given a wild result."""

    def __init__(self, function: Callable[..., Any], forever: bool = False) -> None:
        self.forever = forever
        self.number = _numbers.get(function) or next(_next)
        _functions[self.number] = function
        if forever:
            _numbers[function] = self.number

    def __enter__(self) -> int:
        self.pressed, self.before, self.results = False, None, thread.results
        if threading.current_thread() is threading.main_thread():
            self.before = signal.signal(signal.SIGINT, self._press)
        return self.number

    def _press(self, *what) -> None:
        self.pressed = True

    def __exit__(self, *what) -> None:
        thread.results = self.results
        if not self.forever:
            _functions.pop(self.number, None)
        if self.before is not None:
            signal.signal(signal.SIGINT, self.before)
            if self.pressed:
                signal.raise_signal(signal.SIGINT)


def checkpoint(function: Callable[..., Any], *inputs: Tensor) -> Tensor:
    """function(*inputs), a tensor, whose intermediate values are let go and computed again when its gradient is taken. The
    function is kept: let it be the same one in every step, not a lambda made anew."""
    with Called(function, forever=True) as number:
        return _ops.checkpoint(ADDRESS, number, inputs)
