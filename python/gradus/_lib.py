"""The C library: finding and loading it, calls, errors, ownership, the default context.

Ownership. A Python object owns one reference of the library. When it goes, its handle is put on a list, which the next call
gives back: a finalizer may run on any thread and at any time, and a context is used by one thread at a time. The library has such a
list for tensors (gd_release_later).

Threads. Every call holds one lock, so that Python threads share the default context; they do not compute at the same time.
Long calls (a compiled step, a gradient) let other Python threads run meanwhile. gd.no_grad is the context's: of all threads.
"""
from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections import deque

from . import _api

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LONG = ("gd_call", "gd_backward", "gd_grad", "gd_function_prepare", "gd_function_profile", "gd_generate_with",
         "gd_language_model_open", "gd_language_model_load", "gd_mnist_with", "gd_cifar10_with", "gd_image_folder_with", "gd_image_list_with",
         "gd_lbfgs_step", "gd_loader_next", "gd_function_run", "gd_vmap_end", "gd_claim_call")


# ---- errors

class Error(Exception):
    """Every error of the library is one of these, and of the Python class of its kind. Its text is the library's sentence."""


class InvalidError(Error, ValueError):
    """An argument has no meaning here."""


class ShapeError(Error, ValueError, IndexError):
    """Shapes do not fit together, or an axis or an index is out of range."""


class DTypeError(Error, TypeError):
    """A dtype is not accepted, or two do not go together."""


class OutOfMemoryError(Error, MemoryError):
    """Out of memory, or over the limit that was set."""


class FileError(Error, OSError):
    """The operating system refused: open, read, write, rename."""


class FormatError(Error, ValueError):
    """A file or text is not what it claims to be."""


class UnsupportedError(Error, NotImplementedError):
    """Meaningful, but this build or device cannot do it."""


class StateError(Error, RuntimeError):
    """The call comes at the wrong time."""


class TracingError(StateError):
    """A value is asked for while a function is being compiled: there is none yet."""


class DeviceError(Error, RuntimeError):
    """A device failed."""


_CLASSES = {"invalid": InvalidError, "shape": ShapeError, "dtype": DTypeError, "memory": OutOfMemoryError, "io": FileError,
            "format": FormatError, "unsupported": UnsupportedError, "state": StateError, "device": DeviceError}
_BY_CODE = {code: _CLASSES[name.removeprefix("err_")] for name, code in _api.ENUMS["gd_status"].items()
            if name.removeprefix("err_") in _CLASSES}


# ---- the library

def _load():
    given, here = os.environ.get("GRADUS_LIBRARY"), os.path.join(os.path.dirname(__file__), "libgradus.so")
    tried = []
    for path in [given] if given else [here, "libgradus.so.0"]:
        if path == here and not os.path.exists(path):
            tried.append(f"{path}: not there")
            continue
        try:
            return ctypes.PyDLL(path), ctypes.CDLL(path), path
        except OSError as error:
            tried.append(f"{path}: {error}")
    raise ImportError("libgradus cannot be loaded:\n  " + "\n  ".join(tried) +
                      "\nInstall the package (pip install .), or set GRADUS_LIBRARY to the library's path.")


class _Functions:
    """The library's functions as attributes: C.gd_add."""


def _bind():
    holding, releasing, path = _load()
    hash = holding.gd_api_hash
    hash.restype = ctypes.c_char_p
    if hash().decode() != _api.HASH:
        raise ImportError(f"{path} was built from other headers than this package; install both from the same source")
    functions = _Functions()
    for name, (result, parameters) in _api.FUNCTIONS.items():
        function = getattr(releasing if name in _LONG else holding, name)
        function.restype, function.argtypes = result, parameters
        setattr(functions, name, function)
    return functions, path


def _load_fast() -> Any:
    """The extension, taking its functions from the same library; None where it is not there, or GRADUS_PYTHON=ctypes."""
    wanted = os.environ.get("GRADUS_PYTHON", "")
    if wanted == "ctypes" or sys.version_info < (3, 11) or sys.implementation.name != "cpython":
        return None
    try:
        from . import _fast
    except ImportError:
        if wanted == "fast":
            raise
        return None
    if _fast.HASH != _api.HASH:
        raise ImportError("gradus._fast was built from other headers than this package; install both from the same source")
    _fast.load(PATH)
    return _fast


held: list = []  # not empty: a thread holds the lock


class _Lock:
    """An RLock that others see to be held. Where nobody holds it, a single call of C that keeps the GIL needs none."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def acquire(self) -> bool:
        self._lock.acquire()
        held.append(self)
        return True

    def release(self) -> None:
        self._lock.release()  # RuntimeError: it is not this thread's
        held.pop()

    __enter__ = acquire

    def __exit__(self, *what: Any) -> None:
        self._lock.release()
        held.pop()

    def _at_fork_reinit(self) -> None:
        self._lock._at_fork_reinit()  # type: ignore[attr-defined]
        held.clear()


C: Any
PATH: str
C, PATH = _bind()
fast: Any = _load_fast()  # gradus._fast, or None
lock: Any = _Lock() if fast is None else fast.lock
if fast is not None:
    held.append(fast)  # who holds that one is not seen here
_context = None
no_grad_depth = 0
stored: list = []  # an exception of a function that C called, to be raised when C has returned
# To be given back: handles of tensors that others stand for, and (level, function, handle and, kept until then, what it was made from) of other objects.
_pending: deque = deque()
forget = _pending.append
FIRST = 1 << 30  # the level of what ends before all others


def context() -> int:
    """The default context, opened at first use. It is never closed: the process gives its memory back."""
    global _context
    if _context is None:
        from . import _ops
        with lock:
            if _context is None:
                opened = _ops.open("cpu")
                C.gd_scope_begin(opened)  # what gd_claim empties
                if fast is not None:
                    fast.set_context(opened)
                _context = opened
    return _context


if hasattr(os, "register_at_fork"):  # the thread that held it is not in the child
    os.register_at_fork(after_in_child=lock._at_fork_reinit)


def _level(item) -> int:
    return item[0]


def drain() -> None:
    """Give back what Python has let go. With the lock held. Python's collector ends the objects of a cycle in any order:
    what was made from others is ended before them."""
    while _pending:
        _drain_listed()  # releasing an object may list the ones it was made from


def _drain_listed() -> None:
    objects = []
    while _pending:
        item = _pending.popleft()
        if type(item) is int:
            C.gd_release(item)
        else:
            objects.append(item)
    if objects:
        objects.sort(key=_level, reverse=True)
        for item in objects:
            item[1](item[2])


def claim(h, _claim=C.gd_claim):
    """Own h; all other temporaries go."""
    return _claim(_context, h)


def fail(what: str = "an argument is None") -> None:
    """Raise the library's error as the class of its kind."""
    code = C.gd_error_code()
    if stored:
        error = stored[0]
        stored.clear()
        C.gd_error_clear()
        raise error
    if code == 0:
        raise TypeError(what)
    message = C.gd_error_message().decode("utf-8", "replace")
    C.gd_error_clear()
    kind = _BY_CODE.get(code, Error)
    if kind is StateError and _context is not None and C.gd_is_tracing(_context):
        kind = TracingError
    raise kind(message)


class Object:
    """Owns a handle of an opaque type, and keeps alive what it was made from."""

    __slots__ = ("_h", "_kept", "_level", "__weakref__")  # level: above all that it was made from
    _end: str | None = None  # the name of the function that ends it
    _h: int
    _kept: tuple[Any, ...]
    _level: int

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        """As create()."""
        if not hasattr(cls, "create"):
            raise TypeError(f"a {cls.__name__} is made by its other constructors")
        return cls.create(*arguments, **options)

    @classmethod
    def _made(cls, h: int, kept: tuple[Any, ...]) -> Any:
        made = object.__new__(cls)
        made._h, made._kept = h, kept
        made._level = 1 + max((one._level for one in kept if isinstance(one, Object)), default=0)
        return made

    @classmethod
    def _borrowed(cls, h: int, owner: Any) -> Any:
        made = cls._made(0, (owner,))
        made._kept += (h,)
        return made

    @property
    def handle(self) -> int:
        h = self._h or (self._kept[1] if len(self._kept) == 2 and type(self._kept[1]) is int else 0)
        if not h:
            raise StateError(f"the {type(self).__name__} has been closed")
        return h

    def _forget(self) -> None:
        self._h, self._kept = 0, ()

    def close(self) -> None:
        """End it now; it cannot be used any more."""
        if self._h and self._end:
            with lock:
                getattr(C, self._end)(self._h)
        self._forget()

    def __del__(self, _forget: Any = forget, _C: Any = C) -> None:
        if self._h and self._end:
            _forget((self._level, getattr(_C, self._end), self._h, self._kept))  # what it was made from lives until it is ended

    def __repr__(self) -> str:
        return f"<gradus {type(self).__name__}>"
