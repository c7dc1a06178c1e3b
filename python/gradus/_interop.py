"""Tensors beside the rest of Python: NumPy's protocols, buffers, pickle, copies, printing."""
from __future__ import annotations

import ctypes
from itertools import islice

from . import _context, _convert, _lib, _ops
from ._convert import run
from ._dtype import dtype as as_dtype
from ._lib import C

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._tensor import Tensor

_SHOWN = 12  # rows and columns that a table in a notebook has


class Interop:
    """What Tensor has for others' sake."""

    __slots__ = ()
    __array_ufunc__ = None  # ndarray * Tensor calls Tensor.__rmul__

    # ---- memory

    @property
    def _address(self) -> int:
        with _context.home_of(self._h).lock:
            address = C.gd_tensor_data(self._h)
            if address is None and self.size:
                _lib.fail()
        return address or 0

    @property
    def is_in_host_memory(self) -> bool:
        """Whether the CPU reads the elements where they are. Else .numpy() and the like are of a copy."""
        return C.gd_context_has_host_memory(_context.home_of(self._h).handle)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if not self.is_in_host_memory:
            raise AttributeError(f"the elements are in memory of {self.device}: .numpy() and .to('cpu') are copies")
        d = self.dtype
        return {"version": 3, "typestr": d.typestr, "shape": self.shape, "data": (self._address, self.requires_grad),
                "strides": tuple(n * d.itemsize for n in self.strides)}

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy
        if not self.is_in_host_memory:
            if copy is False:
                raise ValueError(f"an array of a tensor on {self.device} is a copy")
            return self.detach().to("cpu").__array__(dtype)
        shared = numpy.asarray(_Shared(self))
        wanted = shared if dtype is None else shared.astype(dtype, copy=False)
        if copy is False and wanted is not shared:
            raise ValueError(f"an array of {dtype} is a copy of this tensor of {self.dtype.name}")
        return wanted.copy() if copy and wanted is shared else wanted

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """A capsule through which another library shares the memory; read-only where a gradient is required."""
        from ._dlpack import export
        return export(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        from ._dlpack import CPU, device_of
        return CPU if self.is_in_host_memory else device_of(self.device)

    def numpy(self) -> Any:
        """A copy as a NumPy array. numpy.asarray(t) shares the memory."""
        return self.__array__(copy=True)

    def _bytes(self) -> memoryview:
        """The bytes of a tensor that is contiguous, shared."""
        block = (ctypes.c_ubyte * self.nbytes).from_address(self._address)
        block._tensor = self  # as long as a memoryview lives
        return memoryview(block).cast("B")

    @property
    def data(self) -> memoryview:
        """The elements as a memoryview that shares their memory; of tensors that are contiguous."""
        if not self.is_in_host_memory:
            raise BufferError(f"the elements are in memory of {self.device}: .to('cpu').data is of a copy")
        if not self.is_contiguous():
            raise BufferError("the tensor is not contiguous: .contiguous().data is of a copy")
        form = self.dtype.format
        if form is None or not self.size:
            raise BufferError("there is no memoryview of " + ("no elements" if form else self.dtype.name))
        try:
            view = self._bytes().cast(form, self.shape) if self.ndim else self._bytes().cast(form)
        except ValueError:  # "e": of float16
            raise BufferError(f"this Python has no memoryview of {self.dtype.name}; numpy.asarray(t) shares the memory") from None
        return view.toreadonly() if self.requires_grad else view

    def __buffer__(self, flags: int) -> memoryview:
        return self.data

    # ---- copies

    def __reduce_ex__(self, protocol: int) -> tuple[Any, ...]:
        """From protocol 5 on the elements may go out of band (pickle.dumps(…, buffer_callback=…)), without a copy."""
        from pickle import PickleBuffer
        plain = self.detach().contiguous()
        shared = protocol >= 5 and plain.size and plain.is_in_host_memory
        block = PickleBuffer(plain._bytes()) if shared else plain.tobytes()
        return rebuild, (type(self), block, self.shape, self.dtype.name, self.requires_grad)

    def __copy__(self) -> Tensor:
        return run(C.gd_detach, self._h) if not self.requires_grad else self

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        with _context.within(_context.home_of(self._h)):
            made = rebuild(*self.__reduce_ex__(4)[1])
        memo[id(self)] = made
        return made

    # ---- text

    def __repr__(self) -> str:
        name = type(self).__name__
        if self._h is None:
            return f"{name}(closed)"
        notes = f"dtype={self.dtype.name}" + (", requires_grad=True" if self.requires_grad else "")
        try:
            text = _convert.run_text(C.gd_tensor_format, self._h)
        except _lib.Error:
            return f"{name}(no value: recorded by a function that is compiled, shape={self.shape}, {notes})"
        return f"{name}({text.replace(chr(10), chr(10) + ' ' * (len(name) + 1))}, {notes})"

    def __format__(self, spec: str) -> str:
        """f"{t:.2f}" is of each element; f"{t}" is repr(t)."""
        if not spec:
            return repr(self)
        items = iter(self._numbers())

        def part(shape):
            inner = (part(shape[1:]) for _ in range(shape[0])) if len(shape) > 1 else (format(n, spec) for n in islice(items, shape[0]))
            return f"[{' '.join(inner)}]"
        return part(self.shape) if self.ndim else format(next(items), spec)

    def _repr_html_(self) -> str:
        """What a notebook shows: a table of vectors and matrices, else the text."""
        from html import escape
        shape = " × ".join(map(str, self.shape)) or "a number"
        title = f"<b>{type(self).__name__}</b> {shape}, {self.dtype.name}{', requires_grad' if self.requires_grad else ''}"
        if not 1 <= self.ndim <= 2 or not self.size:
            return f"<div>{title}<pre>{escape(repr(self))}</pre></div>"
        try:
            lines = _shortened(self.detach() if self.ndim == 2 else _ops.unsqueeze(self.detach(), 0))
        except _lib.Error:
            return f"<div><pre>{escape(repr(self))}</pre></div>"
        rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in lines)
        return f"<div>{title}<table>{rows}</table></div>"


def _shortened(matrix: Tensor) -> list[list[str]]:
    """The cells of a matrix as text; of a large one the first and last, and … between."""
    kept = []
    for count in matrix.shape:
        half = _SHOWN // 2
        kept.append(list(range(count)) if count <= _SHOWN else [*range(half), None, *range(count - half, count)])
    cells = []
    for i in kept[0]:
        row = None if i is None else _ops.select(matrix, 0, i)
        cells.append(["…" if i is None or k is None else _text(_ops.select(row, 0, k).item()) for k in kept[1]])
    return cells


def _text(number: Any) -> str:
    return f"{number:.5g}" if type(number) is float else str(number)


class _Shared:
    """What numpy.asarray makes an array of without a copy, and keeps."""

    def __init__(self, t: Tensor) -> None:
        self.tensor, self.__array_interface__ = t, t.__array_interface__


def rebuild(cls: type[Any], data: Any, shape: tuple[int, ...], dtype: str, requires_grad: bool) -> Tensor:
    """A pickled tensor: of bytes, or of what a buffer of pickle's became."""
    if not isinstance(data, bytes):
        view = memoryview(data).cast("B")
        data = bytes(view) if view.readonly else ctypes.addressof((ctypes.c_ubyte * view.nbytes).from_buffer(view))
    t = _convert.from_bytes(data, shape, as_dtype(dtype))
    if cls is not type(t):
        made = cls.__new__(cls)
        made._h, t._h = t._h, None
        t = made
    return t.requires_grad_() if requires_grad else t
