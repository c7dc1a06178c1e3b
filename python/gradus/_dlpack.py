"""DLPack: tensors' memory shared with NumPy, PyTorch, JAX and others, both ways and without a copy.

The deleters and the capsules' destructor are the library's (gradus/dlpack.h): they run on any thread, while exceptions are
pending, and after Python has ended.
"""
from __future__ import annotations

from ctypes import PYFUNCTYPE, c_char_p, c_int, c_void_p, cast, py_object, pythonapi

from . import _context, _convert, _lib
from ._lib import C
from ._tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CPU = (1, 0)
_TYPES = {"cuda": 2, "opencl": 4}  # of devices whose memory is shared
_HOST = (1, 3, 11)  # devices whose memory the CPU can reach: its own, and what CUDA and ROCm have pinned
# A capsule keeps the address of its name: these live as long as the module.
_VERSIONED, _UNVERSIONED, _USED_VERSIONED, _USED = b"dltensor_versioned", b"dltensor", b"used_dltensor_versioned", b"used_dltensor"
_new = PYFUNCTYPE(py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", pythonapi))
_is_valid = PYFUNCTYPE(c_int, py_object, c_char_p)(("PyCapsule_IsValid", pythonapi))
_pointer = PYFUNCTYPE(c_void_p, py_object, c_char_p)(("PyCapsule_GetPointer", pythonapi))
_rename = PYFUNCTYPE(c_int, py_object, c_char_p)(("PyCapsule_SetName", pythonapi))
_destructor = cast(C.gd_dlpack_capsule_destructor, c_void_p).value
C.gd_dlpack_set_capsules(cast(pythonapi.PyCapsule_IsValid, c_void_p), cast(pythonapi.PyCapsule_GetPointer, c_void_p))
_COPYING = {None: 0, True: 1, False: 2}


def device_of(name: str) -> tuple[int, int]:
    """A device as DLPack numbers it, "cuda:1" as (2, 1); of one that it does not know, the CPU's."""
    kind, _, number = name.partition(":")
    return (_TYPES[kind], int(number)) if kind in _TYPES else CPU


def export(t: Tensor, stream: Any, max_version: tuple[int, int] | None, dl_device: tuple[int, int] | None, copy: bool | None) -> Any:
    """See Tensor.__dlpack__."""
    own = CPU if t.is_in_host_memory else device_of(t.device)
    if dl_device is not None and tuple(dl_device) not in (CPU, own):
        raise BufferError(f"memory of {t.device} is not exported to a device {tuple(dl_device)}")
    if stream is not None and own == CPU:
        raise BufferError(f"{t.device} has no streams")
    if dl_device is not None and tuple(dl_device) == CPU != own:
        if copy is False:
            raise BufferError(f"memory of {t.device} does not get to the CPU without a copy")
        t = t.detach().to("cpu")
    versioned = max_version is not None and max_version[0] >= 1
    with _context.home_of(t._h).lock:
        managed = (C.gd_dlpack_export if versioned else C.gd_dlpack_export_unversioned)(t._h, bool(copy))
        if not managed:
            try:
                _lib.fail()
            except _lib.Error as error:
                raise BufferError(str(error)) from None
    return _new(managed, _VERSIONED if versioned else _UNVERSIONED, _destructor)


def _is_on(x: Any, device: str) -> bool:
    return hasattr(x, "__dlpack_device__") and tuple(x.__dlpack_device__()) == device_of(device) != CPU


def _capsule_of(x: Any, copy: bool | None, shares: bool) -> Any:
    if type(x).__name__ == "PyCapsule":
        return x
    if not hasattr(x, "__dlpack__"):
        raise TypeError(f"{type(x).__name__} has no __dlpack__")
    wishes: dict[str, Any] = {"max_version": (1, 1)}
    if hasattr(x, "__dlpack_device__") and x.__dlpack_device__()[0] not in _HOST and not shares:
        if copy is False:
            raise BufferError("the memory is that of another device: it is not shared without a copy")
        wishes["dl_device"] = CPU
    if copy is False:
        wishes["copy"] = False
    try:
        return x.__dlpack__(**wishes)
    except TypeError:  # from before the protocol had these
        if "dl_device" in wishes:
            raise
        return x.__dlpack__()


def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """See gd.from_dlpack."""
    home = _context.home() if device is None else _context.place_of(device)
    if _is_on(x, C.gd_context_device(home.handle).decode()):
        try:
            return _take(home, _capsule_of(x, copy, True), copy)
        except BufferError:  # OpenCL: of another context of the device
            if copy is False:
                raise
    try:
        capsule = _capsule_of(x, copy, False)
    except BufferError:
        if copy is False or not hasattr(x, "__array_interface__"):
            raise
        from ._tensor import asarray
        return asarray(x, device=device)  # NumPy before 2.1 hands out nothing that is read-only
    return _take(home, capsule, copy)


def _take(home: _context.Home, capsule: Any, copy: bool | None) -> Tensor:
    versioned = bool(_is_valid(capsule, _VERSIONED))
    if not versioned and not _is_valid(capsule, _UNVERSIONED):
        raise ValueError("the capsule holds no tensor, or one that has been taken out")
    managed = _pointer(capsule, _VERSIONED if versioned else _UNVERSIONED)
    take = C.gd_dlpack_import if versioned else C.gd_dlpack_import_unversioned
    with _context.within(home) as home:
        h = C.gd_claim(home.handle, take(home.handle, managed, _COPYING[copy]))
        if h is None:
            try:
                _lib.fail()
            except _lib.UnsupportedError as error:
                raise BufferError(str(error)) from None
        _rename(capsule, _USED_VERSIONED if versioned else _USED)
    return _convert.wrap(h)
