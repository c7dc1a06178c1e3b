"""Tensor: operators, indexing, values in and out. Functions stand in _ops.py, which is generated."""
from __future__ import annotations

import ctypes
import sys
from itertools import islice

from . import _context, _convert, _lib, _native, _ops
from ._context import _pending, held
from ._convert import _claim_shape, _new, _shapes_at, as_tensor, run, run_shaped, run_status, run_value, shape_at
from ._array_info import at
from ._dtype import BY_CODE, BY_NAME, DType, dtype
from ._interop import Interop
from ._lib import C, tracing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from ._convert import DTypeLike, TensorLike


_at_reshape = _convert.function_at(C.gd_reshape)


class Tensor(Interop, _ops.TensorMethods):
    """An n-dimensional array with NumPy's operators and indexing, that gradients can be taken through.

    Made by gd.tensor, gd.zeros, gd.asarray and the like. It owns one reference of the library, which goes with the object.
    """

    __slots__ = ("_h", "__weakref__")
    _h: Any  # None: closed

    if not TYPE_CHECKING:
        __hash__ = object.__hash__

    def __init__(self, data: Any = None, *, dtype: DTypeLike = None, requires_grad: bool = False) -> None:
        t = tensor([] if data is None else data, dtype=dtype, requires_grad=requires_grad)
        self._h, t._h = t._h, None

    def __del__(self, _release: Any = C.gd_release_later) -> None:
        try:
            _release(self._h)
        except AttributeError:  # one that could not be made
            pass

    # ---- what it is

    @property
    def shape(self) -> tuple[int, ...]:
        s = C.gd_tensor_shape(self._h)
        return tuple(s.dim[:s.rank])

    @property
    def strides(self) -> tuple[int, ...]:
        """In elements."""
        s = C.gd_tensor_strides(self._h)
        return tuple(s.dim[:s.rank])

    @property
    def dtype(self) -> DType:
        return BY_CODE[C.gd_tensor_dtype(self._h)]

    @property
    def ndim(self) -> int:
        return C.gd_tensor_shape(self._h).rank

    @property
    def size(self) -> int:
        return C.gd_tensor_count(self._h)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    @property
    def context(self) -> Any:
        """The gd.Context that it belongs to."""
        return _context.Context._of(_context.home_of(self._h))

    @property
    def device(self) -> str:
        return C.gd_context_device(C.gd_tensor_context(self._h)).decode()

    def to_device(self, device: str, stream: Any = None) -> Tensor:
        """A copy on a device, or in a gd.Context; the tensor itself where it is there already."""
        if stream is not None:
            raise ValueError("there are no streams")
        return self._moved(_context.place_of(device))

    def _moved(self, place: Any) -> Tensor:
        if _context.home_of(self._h) is place:
            return self
        if self.requires_grad and not _context.home_of(self._h).no_grad_depth:
            raise _lib.StateError("gradients do not pass from one context to another: move the parameters, or t.detach()")
        return _context.moved(self, place)

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        """The module gradus, which follows the Python array API standard."""
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            raise ValueError(f"the array API standard of {api_version} is not known here; 2024.12 is")
        return sys.modules[__package__]

    def numel(self) -> int:
        return self.size

    def dim(self) -> int:
        return self.ndim

    def is_contiguous(self) -> bool:
        return C.gd_tensor_is_contiguous(self._h)

    def __len__(self) -> int:
        shape = self.shape
        if not shape:
            raise TypeError("a tensor of rank 0 has no length")
        return shape[0]

    # ---- gradients

    @property
    def requires_grad(self) -> bool:
        return C.gd_requires_grad(self._h)

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        self.requires_grad_(wanted)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Ask for gradients of this leaf, or no more."""
        if type(requires_grad) is not bool:
            raise TypeError("requires_grad is True or False")
        with _context.home_of(self._h).lock:
            if C.gd_set_requires_grad(self._h, requires_grad) is None:
                _lib.fail()
        return self

    @property
    def grad(self) -> Tensor | None:
        """The gradient that backward() has added up; None before the first."""
        with _context.home_of(self._h).lock:
            h = C.gd_gradient(self._h)
            return None if h is None else _convert.wrap(C.gd_claim(None, h))

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        run_status(C.gd_set_gradient, self._h, None if value is None else as_tensor(value)._h)

    @grad.deleter
    def grad(self) -> None:
        run_status(C.gd_set_gradient, self._h, None)

    def retain_grad(self) -> Tensor:
        """Let a result have a gradient of its own, as leaves have."""
        with _context.home_of(self._h).lock:
            if C.gd_retain_grad(self._h) is None:
                _lib.fail()
        return self

    def backward(self, gradient: TensorLike | None = None) -> None:
        """Add d(sum of self)/d(leaf) to the grad of every leaf that requires it. `gradient` weighs the elements."""
        if gradient is None:
            run_status(C.gd_backward, self._h)
        else:
            seed = as_tensor(gradient)
            run_status(C.gd_backward_seeded, self._h, seed._h)

    def zero_grad(self) -> None:
        run_status(C.gd_zero_grad, self._h)

    def detach(self) -> Tensor:
        """The same values without a history."""
        return run(C.gd_detach, self._h)

    # ---- other shapes and dtypes

    @property
    def T(self) -> Tensor:
        return _ops.permute(self, range(self.ndim)[::-1])

    @property
    def mT(self) -> Tensor:
        return _ops.transpose(self, -2, -1)

    def reshape(self, *shape: Any) -> Tensor:
        try:
            at = _shapes_at[shape]  # of x.reshape(2, 3), seen before
        except (KeyError, TypeError):
            at = shape_at(shape[0] if len(shape) == 1 else shape)
        if held or _pending:
            return run_shaped(_at_reshape, self._h, at)
        h = _claim_shape(_at_reshape, self._h, at)
        if h is None:
            _lib.fail()
        t = _new(Tensor)
        t._h = h
        return t

    view = reshape

    def permute(self, *order: Any) -> Tensor:
        return _ops.permute(self, order[0] if len(order) == 1 and hasattr(order[0], "__len__") else order)

    def flatten(self, start: int = 0) -> Tensor:
        """The axes from `start` on as one."""
        return _ops.reshape(self, (*self.shape[:start], -1)) if self.ndim else _ops.reshape(self, (1,))

    def expand(self, *shape: Any) -> Tensor:
        return _ops.broadcast_to(self, shape[0] if len(shape) == 1 and hasattr(shape[0], "__len__") else shape)

    def squeeze(self, axis: int | None = None) -> Tensor:
        if axis is not None:
            return _ops.squeeze(self, axis)
        return _ops.reshape(self, tuple(n for n in self.shape if n != 1))

    def to(self, where: Any) -> Tensor:
        """In another dtype, x.to("float64"); or a copy in another context, x.to(gd.Context()), or on a device, x.to("opencl:0")."""
        if _context.is_place(where):
            return self.to_device(where)
        return _ops.cast(self, where)

    def float(self) -> Tensor:
        return _ops.cast(self, BY_NAME["f32"])

    def long(self) -> Tensor:
        return _ops.cast(self, BY_NAME["i64"])

    def clone(self) -> Tensor:
        """A copy with storage of its own; gradients pass."""
        return copy(self)

    # ---- values out

    def item(self) -> int | float | bool:
        """The only element."""
        if self.size != 1:
            raise _lib.ShapeError(f"item() is of one element, and this has {self.size}")
        return self._numbers()[0]

    def _numbers(self) -> list:
        """All elements in row-major order."""
        d = self.dtype
        if d.format in (None, "e"):
            return _ops.cast(self, BY_NAME["f32"]).detach()._numbers()
        cells = (_convert._CELLS[d.short] * max(1, self.size))()
        with _context.home_of(self._h).lock:
            if C.gd_tensor_read(self._h, cells, self.nbytes):
                _lib.fail()
        return cells[:self.size]

    def tolist(self) -> Any:
        """The elements in nested lists."""
        items = iter(self._numbers())

        def nested(shape):
            return [nested(shape[1:]) for _ in range(shape[0])] if len(shape) > 1 else list(islice(items, shape[0]))
        return nested(self.shape) if self.ndim else next(items)

    def tobytes(self) -> bytes:
        """The elements in row-major order, as they lie in memory."""
        block = ctypes.create_string_buffer(max(1, self.nbytes))
        with _context.home_of(self._h).lock:
            if C.gd_tensor_read(self._h, block, self.nbytes):
                _lib.fail()
        return block.raw[:self.nbytes]

    __bytes__ = tobytes

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(f"the truth of {self.size} elements: use .any() or .all()")
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if self.dtype.is_float or self.size != 1:
            raise TypeError("a float is no index" if self.dtype.is_float else f"an index is one number, and this has {self.size}")
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __contains__(self, value: TensorLike) -> bool:
        return bool(_ops.any(_ops.eq(self, value)))

    # ---- operators

    if not TYPE_CHECKING:  # the stubs of TensorMethods have them, and what _array_api.py sets
        __add__, __sub__, __mul__, __truediv__ = _ops.add, _ops.sub, _ops.mul, _ops.div
        __floordiv__, __mod__, __pow__, __matmul__ = _ops.floor_div, _ops.mod, _ops.pow, _ops.matmul
        __neg__, __abs__, __invert__ = _ops.neg, _ops.abs, _ops.bitwise_not
        __lt__, __le__, __gt__, __ge__ = _ops.lt, _ops.le, _ops.gt, _ops.ge
        __and__, __or__, __xor__ = _ops.bitwise_and, _ops.bitwise_or, _ops.bitwise_xor
        __lshift__, __rshift__ = _ops.left_shift, _ops.right_shift

    def __radd__(self, other: TensorLike) -> Tensor:
        return _ops.add(other, self)

    def __rsub__(self, other: TensorLike) -> Tensor:
        return _ops.sub(other, self)

    def __rmul__(self, other: TensorLike) -> Tensor:
        return _ops.mul(other, self)

    def __rtruediv__(self, other: TensorLike) -> Tensor:
        return _ops.div(other, self)

    def __rfloordiv__(self, other: TensorLike) -> Tensor:
        return _ops.floor_div(other, self)

    def __rmod__(self, other: TensorLike) -> Tensor:
        return _ops.mod(other, self)

    def __rmatmul__(self, other: TensorLike) -> Tensor:
        return _ops.matmul(other, self)

    def __rand__(self, other: TensorLike) -> Tensor:
        return _ops.bitwise_and(other, self)

    def __ror__(self, other: TensorLike) -> Tensor:
        return _ops.bitwise_or(other, self)

    def __rxor__(self, other: TensorLike) -> Tensor:
        return _ops.bitwise_xor(other, self)

    def __rlshift__(self, other: TensorLike) -> Tensor:
        return _ops.left_shift(other, self)

    def __rrshift__(self, other: TensorLike) -> Tensor:
        return _ops.right_shift(other, self)

    def __pos__(self) -> Tensor:
        return self

    def __eq__(self, other: Any) -> Any:
        return False if other is None else _ops.eq(self, other)

    def __ne__(self, other: Any) -> Any:
        return True if other is None else _ops.ne(self, other)

    # ---- indexing

    def __getitem__(self, key: Any) -> Tensor:
        view, indices = basic(self, key)
        if indices is None:
            return view
        return _ops.index(view, indices)

    def __setitem__(self, key: Any, value: TensorLike) -> None:
        view, indices = basic(self.detach(), key)
        value = _convert.beside(value, self) if type(value) in (int, float, bool) else as_tensor(value)
        if indices is not None:
            value = _ops.index_put(view, indices, value)
        overwrite(self, view, value)

    def fill_(self, value: float) -> Tensor:
        """Every element `value`."""
        overwrite(self, self.detach(), _convert.beside(value, self))
        return self

    def zero_(self) -> Tensor:
        return self.fill_(0)

    def copy_(self, source: TensorLike) -> Tensor:
        """The values of `source`, broadcast and converted."""
        overwrite(self, self.detach(), as_tensor(source))
        return self


if not TYPE_CHECKING:
    Tensor = _native.install(Tensor)
_convert.Tensor = _ops.Tensor = Tensor


# ---- indexing

def basic(x: Tensor, key: Any) -> tuple[Tensor, list | None]:
    """x with the slices, single indices and new axes of a key applied, and the index tensors that remain, one for each axis
    (None: all of it), or None."""
    items = list(key) if type(key) is tuple else [key]
    items = [_index(item) for item in items]
    used = sum(item.ndim if isinstance(item, Tensor) and item.dtype.kind == "b" else item is not None and item is not Ellipsis
               for item in items)
    if sum(item is Ellipsis for item in items) > 1:
        raise IndexError("an index has one ellipsis")
    if used > x.ndim:
        raise _lib.ShapeError(f"{used} indices for {x.ndim} axes")
    where = next((i for i, item in enumerate(items) if item is Ellipsis), None)
    fill = [slice(None)] * (x.ndim - used)
    items = items + fill if where is None else items[:where] + fill + items[where + 1:]
    advanced = any(isinstance(item, Tensor) for item in items)
    axis, indices = 0, []
    for item in items:
        if item is None:
            x = _ops.unsqueeze(x, axis)
        elif isinstance(item, slice):
            if item != slice(None):
                x = _slice(x, axis, item)
        elif isinstance(item, int) and not advanced:
            x = _ops.select(x, axis, item)
            continue
        else:
            item = as_tensor(item)
            if item.ndim == 0 and item.dtype.kind == "b":  # a new axis, of one element or none
                x = _ops.unsqueeze(x, axis)
                item = _ops.zeros(int(item.item()), BY_NAME["i64"])
            indices += [None] * (axis - len(indices)) + [item]
            axis += item.ndim - 1 if item.dtype.kind == "b" else 0
            indices += [Ellipsis] * (item.ndim - 1 if item.dtype.kind == "b" else 0)
        axis += 1
    return x, [i for i in indices if i is not Ellipsis] if advanced else None


def _slice(x: Tensor, axis: int, item: slice) -> Tensor:
    end = 2 ** 63 - 1
    step = 1 if item.step is None else item.step.__index__()
    if step == 0:
        raise _lib.InvalidError("the step of a slice is not 0")
    start = (0 if step > 0 else end) if item.start is None else item.start.__index__()
    stop = end if item.stop is None else item.stop.__index__()
    return _ops.slice(x, axis, start, stop, step)


def _index(item: Any) -> Any:
    """An item of a key as None, Ellipsis, a slice, an int or a tensor."""
    if item is None or item is Ellipsis or type(item) in (slice, int):
        return item
    if isinstance(item, Tensor):
        return int(item) if item.ndim == 0 and item.dtype.kind != "b" and not tracing() else item
    if type(item) is bool or isinstance(item, (list, tuple)) or hasattr(item, "__array_interface__") and \
            getattr(item, "ndim", 0):
        t = as_tensor(item)
        return t if t.size or t.dtype.kind == "b" else _ops.cast(t, BY_NAME["i64"])
    if hasattr(item, "__index__"):
        return item.__index__()
    raise IndexError(f"{type(item).__name__} is no index")


def overwrite(owner: Tensor, view: Tensor, value: Tensor) -> None:
    """Put `value` into the memory of `view`, which is a part of owner's."""
    if owner.requires_grad and not _context.home_of(owner._h).no_grad_depth:
        raise _lib.StateError("a tensor that requires a gradient is not changed in place outside of gd.no_grad()")
    value = _ops.contiguous(_ops.broadcast_to(_ops.cast(value.detach(), view.dtype), view.shape))
    if tracing():
        raise _lib.TracingError("a part of a tensor is not changed within a compiled function; use gd.where or gd.index_put")
    home = _context.home_of(view._h)
    shared = _context.home_of(value._h) is home and C.gd_context_has_host_memory(home.handle)
    run_status(C.gd_tensor_write, view._h, value._address if shared else value.tobytes(), value.nbytes)


# ---- creation

def tensor(data: Any, dtype: DTypeLike = None, requires_grad: bool = False) -> Tensor:
    """A new tensor of numbers, nested lists, an array, or another tensor; the values are copied."""
    d = None if dtype is None else _dtype(dtype)
    t = as_tensor(data, d)
    if t is data:
        t = copy(t.detach())
    if d is not None and t.dtype is not d:
        t = _ops.cast(t, d)
    return t.requires_grad_() if requires_grad else t


_dtype = dtype


def asarray(data: Any, dtype: DTypeLike = None, copy: bool | None = None, *, device: Any = None) -> Tensor:
    """`data` as a tensor; itself where it is one of that dtype, unless copy=True."""
    if device is not None:
        if isinstance(data, Tensor):
            data, copy = data.to_device(device), copy and _context.home_of(data._h) is _context.place_of(device)
        else:
            return at(device, asarray, data, dtype, copy)
    if copy or not isinstance(data, Tensor):
        if copy is False:
            raise ValueError("a tensor of this is a copy")
        return tensor(data, dtype)
    if copy is False and dtype is not None and data.dtype is not _dtype(dtype):
        raise ValueError(f"a tensor of another dtype than {data.dtype.name} is a copy")
    return data if dtype is None else _ops.cast(data, dtype)


def from_numpy(array: Any) -> Tensor:
    """A tensor with a copy of an array's values."""
    return _convert.from_array(array)


def copy(x: Tensor) -> Tensor:
    """x's values in storage of their own; gradients pass."""
    return run(C.gd_copy, as_tensor(x)._h)


def rand(*shape: Any, dtype: DTypeLike = None) -> Tensor:
    """Uniform in [0, 1)."""
    return _ops.uniform(shape[0] if len(shape) == 1 else shape, 0.0, 1.0, dtype)


def randn(*shape: Any, dtype: DTypeLike = None) -> Tensor:
    """Normal with mean 0 and deviation 1."""
    return _ops.normal(shape[0] if len(shape) == 1 else shape, 0.0, 1.0, dtype)


def randint(low: int, high: int, shape: Any) -> Tensor:
    """Whole numbers in [low, high), i64."""
    drawn = _ops.floor(_ops.uniform(shape, 0.0, float(high - low), BY_NAME["f64"]))
    return _ops.cast(drawn, BY_NAME["i64"]) + low


def argmax(x: TensorLike, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the first largest element along an axis; None: of all, in row-major order."""
    x = as_tensor(x) if axis is not None else as_tensor(x).flatten()
    return _ops.argmax(x, 0 if axis is None else axis, keepdims)


def argmin(x: TensorLike, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the first smallest element, as argmax."""
    x = as_tensor(x) if axis is not None else as_tensor(x).flatten()
    return _ops.argmin(x, 0 if axis is None else axis, keepdims)


Tensor.argmax, Tensor.argmin = argmax, argmin


def seed(value: int) -> None:
    """Restart the stream of random numbers, and that of initial values (gd.nn)."""
    from . import nn
    run_value(C.gd_seed, _context.current(), value)
    nn.seed(value)
