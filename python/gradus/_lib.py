"""The C library: finding and loading it, and its errors. Contexts and ownership: _context.py."""
from __future__ import annotations

import ctypes
import os
import sys
import threading

from . import _api, _integers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LONG = ("gd_call", "gd_backward", "gd_grad", "gd_function_prepare", "gd_function_profile", "gd_generate_with",
         "gd_language_model_open", "gd_language_model_load_with", "gd_mnist_with", "gd_cifar10_with", "gd_image_folder_with",
         "gd_image_list_with", "gd_lbfgs_step", "gd_loader_next", "gd_function_run", "gd_vmap_end", "gd_claim_call")


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


for _class in (Error, InvalidError, ShapeError, DTypeError, OutOfMemoryError, FileError, FormatError, UnsupportedError, StateError,
               TracingError, DeviceError):
    _class.__module__ = "gradus"  # where it is caught by name, and what a traceback shows

_CLASSES = {"invalid": InvalidError, "shape": ShapeError, "dtype": DTypeError, "memory": OutOfMemoryError, "io": FileError,
            "format": FormatError, "unsupported": UnsupportedError, "state": StateError, "device": DeviceError}
_BY_CODE = {code: _CLASSES[name.removeprefix("err_")] for name, code in _api.ENUMS["gd_status"].items()
            if name.removeprefix("err_") in _CLASSES}


# ---- the library

def _reason(error: str) -> str:
    """What is to be done about a library that was built for another system."""
    needed = [tuple(map(int, text.split(".")[:2])) for text in error.replace("'", "`").split("GLIBC_")[1:] for text in [text.split("`")[0]]
              if text[:1].isdigit()]
    if needed:
        import platform
        wanted, here = ".".join(map(str, max(needed))), platform.libc_ver()[1] or "another libc"
        return (f"\n  It was built for glibc {wanted} or newer, and this system has {here}: install it from source here "
                "(pip install . in a clone), or use a newer system.")
    if "ld-linux" in error or "ld-musl" in error:
        return "\n  It was built for another C library (glibc or musl): install it from source here (pip install . in a clone)."
    return ""


def _load():
    if not hasattr(ctypes, "PyDLL"):
        raise ImportError(f"gradus is for CPython, and this is {sys.implementation.name}, which has no ctypes.PyDLL")
    given, here = os.environ.get("GRADUS_LIBRARY"), os.path.join(os.path.dirname(__file__), "libgradus.so")
    tried = []
    for path in [given] if given else [here, "libgradus.so.0"]:
        if path == here and not os.path.exists(path):
            tried.append(f"{path}: not there")
            continue
        try:
            return ctypes.PyDLL(path), ctypes.CDLL(path), path
        except OSError as error:
            tried.append(f"{path}: {error}{_reason(str(error))}")
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
        function.restype = result
        function.argtypes = [_integers.PARAMETERS.get(p, p) for p in parameters]
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


class _Thread(threading.local):
    """What each thread has of its own."""

    home: Any = None  # its current context; None: the default one
    entered: tuple = ()  # (the one before, and so on) of the blocks of contexts that it is in
    traces = 0  # functions it is recording, within one another
    reading: Any = None  # the modules whose training flag the function being recorded has read
    last: Any = None  # the context that the object which was made last was made in
    results: tuple = ()  # what functions that C called gave, until C has it
    stored: Any = None  # an exception of a function that C called, to be raised when C has returned


C: Any
PATH: str
C, PATH = _bind()
fast: Any = _load_fast()  # gradus._fast, or None
thread = _Thread()


def tracing() -> bool:
    """Whether this thread is recording a function."""
    return thread.traces > 0 and C.gd_is_tracing(thread.home.handle)


def argument_error(function: Any, arguments: tuple[Any, ...], error: ctypes.ArgumentError) -> Exception:
    """What is to be raised of an argument that ctypes does not take."""
    out_of_range, text = _integers.explain(function, arguments, error)
    if not out_of_range:
        return TypeError(text)
    of_tensor = _api.OWNERS.get(function.__name__, "").startswith("t")  # an axis, an index or a size
    return (ShapeError if of_tensor else InvalidError)(text)


def fail(what: str = "an argument is None") -> None:
    """Raise the library's error as the class of its kind."""
    code = C.gd_error_code()
    if thread.stored is not None:
        error, thread.stored = thread.stored, None
        C.gd_error_clear()
        raise error
    if code == 0:
        raise TypeError(what)
    message = C.gd_error_message().decode("utf-8", "replace")
    C.gd_error_clear()
    kind = _BY_CODE.get(code, Error)
    if kind is StateError and tracing():
        kind = TracingError
    raise kind(message)
