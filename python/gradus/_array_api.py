"""The functions of the Python array API standard (2024.12) that are made of others, or whose arguments are not those of the C function
of that name. They stand in gd itself, and where their first argument is a tensor, among its methods.
"""
from __future__ import annotations

import builtins
from collections import namedtuple

from . import _convert, _creation, _lib, _ops
from ._array_info import __array_namespace_info__, can_cast, finfo, iinfo, isdtype, result_type
from ._convert import as_tensor, operands
from ._creation import *  # noqa: F403
from ._creation import arange, full, ones, zeros
from ._dtype import BY_NAME, dtype as as_dtype
from ._lib import C
from ._tensor import Tensor, copy as copied

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

    from ._convert import AxisLike, DTypeLike, ShapeLike, TensorLike

_I64, _BOOL = BY_NAME["i64"], BY_NAME["bool"]


# ---- conversion

def astype(x: TensorLike, dtype: DTypeLike, *, copy: bool = True, device: Any = None) -> Tensor:
    """x in another dtype; with copy=False x itself where it has it."""
    x = as_tensor(x) if device is None else as_tensor(x).to_device(device)
    if x.dtype is as_dtype(dtype):
        return copied(x) if copy else x
    return _ops.cast(x, dtype)


# ---- elementwise

def pow(x1: TensorLike, x2: TensorLike) -> Tensor:
    """x1 ^ x2; of integers an integer, which wraps (float32 where the exponent is a negative number)."""
    x, y = x1, x2
    if type(y) is float or type(x) is float:
        return _ops.pow(x, y)
    t = x if isinstance(x, Tensor) else y if isinstance(y, Tensor) else as_tensor(x)
    if C.gd_tensor_dtype(t._h) not in _INTEGERS or type(y) is int and y < 0:
        return _ops.pow(x, y)
    x, y = operands(x, y)
    if x.dtype.is_float or y.dtype.is_float:
        return _ops.pow(x, y)
    return _ops.integer_pow(x, y)


_INTEGERS = frozenset(d.code for d in BY_NAME.values() if d.kind in "iu")


def clip(x: TensorLike, min: Any = None, max: Any = None) -> Tensor:
    """min(max(x, min), max), in x's dtype; a bound that is None does not bind. Bounds are numbers or tensors that broadcast."""
    x = as_tensor(x)
    if type(min) in (int, float) and type(max) in (int, float) and x.dtype.is_float and min == min and max == max:
        return _ops.clip(x, min, max)
    d = x.dtype
    for bound, function in ((min, _ops.maximum), (max, _ops.minimum)):
        if bound is None:
            continue
        if type(bound) is int and d.kind in "iu":
            info = iinfo(d)
            if bound <= info.min and function is _ops.maximum or bound >= info.max and function is _ops.minimum:
                continue
            bound = builtins.max(info.min, builtins.min(info.max, bound))
        x = function(x, bound)
        if x.dtype is not d:
            x = _ops.cast(x, d)
    return x


def where(condition: TensorLike, x1: TensorLike, x2: TensorLike) -> Tensor:
    """x1 where the condition holds, else x2. A Python number takes the other's dtype."""
    if not (isinstance(x1, Tensor) and isinstance(x2, Tensor)):
        x1, x2 = operands(x1, x2)
    return _ops.where(condition, x1, x2)


def positive(x: TensorLike) -> Tensor:
    """x itself."""
    return as_tensor(x)


def real(x: TensorLike) -> Tensor:
    """x itself: no dtype is complex."""
    return as_tensor(x)


def conj(x: TensorLike) -> Tensor:
    """x itself: no dtype is complex."""
    return as_tensor(x)


def imag(x: TensorLike) -> Tensor:
    """Zeros: no dtype is complex."""
    return _ops.zeros_like(x)


def divmod(x1: TensorLike, x2: TensorLike) -> tuple[Tensor, Tensor]:
    """(x1 // x2, x1 % x2)."""
    return _ops.floor_div(x1, x2), _ops.mod(x1, x2)


# ---- reductions and scans

def sum(x: TensorLike, axis: AxisLike = None, keepdims: bool = False, *, dtype: DTypeLike = None) -> Tensor:
    """The sum along axes (None: all); unsigned integers give uint64, other integers and bools int64. `dtype` is computed in and given."""
    return _ops.sum(x, axis, keepdims) if dtype is None else _total(_ops.sum, x, dtype, axis, keepdims)


def prod(x: TensorLike, axis: AxisLike = None, keepdims: bool = False, *, dtype: DTypeLike = None) -> Tensor:
    """The product along axes, as sum."""
    return _ops.prod(x, axis, keepdims) if dtype is None else _total(_ops.prod, x, dtype, axis, keepdims)


def _total(function, x, dtype, *arguments):
    return _ops.cast(function(_ops.cast(x, dtype), *arguments), dtype)


def cumulative_sum(x: TensorLike, axis: int | None = None, dtype: DTypeLike = None, include_initial: bool = False) -> Tensor:
    """Running sums along an axis, which may be left out where there is one; include_initial: from 0 on."""
    return _cumulative(_ops.cumsum, zeros, x, axis, dtype, include_initial)


def cumulative_prod(x: TensorLike, axis: int | None = None, dtype: DTypeLike = None, include_initial: bool = False) -> Tensor:
    """Running products along an axis, which may be left out where there is one; include_initial: from 1 on."""
    return _cumulative(_ops.cumprod, ones, x, axis, dtype, include_initial)


def _cumulative(function, start, x, axis, dtype, include_initial):
    x = as_tensor(x)
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"along which of {x.ndim} axes?")
        axis = 0
    made = function(x, axis) if dtype is None else _total(function, x, dtype, axis)
    if include_initial:
        shape = list(made.shape)
        shape[axis] = 1
        made = _ops.concat([start(tuple(shape), made.dtype), made], axis)
    return made


def diff(x: TensorLike, axis: int = -1, n: int = 1, prepend: TensorLike | None = None, append: TensorLike | None = None) -> Tensor:
    """Each element minus the one before it, n times; first joined with what stands before and behind it."""
    parts = [as_tensor(part) for part in (prepend, x, append) if part is not None]
    x = parts[0] if len(parts) == 1 else _ops.concat(parts, axis)
    for _ in range(n):
        x = _ops.diff(x, axis)
    return x


# ---- order, sets, searching

def sort(x: TensorLike, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """x in rising or falling order along an axis; equal elements keep their order."""
    return _ops.sort(x, axis, descending)


def argsort(x: TensorLike, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The indices along an axis that put x in that order; equal elements keep theirs."""
    return _ops.argsort(x, axis, descending)


if TYPE_CHECKING:
    from typing import NamedTuple

    class UniqueAll(NamedTuple):
        values: Tensor
        indices: Tensor
        inverse_indices: Tensor
        counts: Tensor

    class UniqueCounts(NamedTuple):
        values: Tensor
        counts: Tensor

    class UniqueInverse(NamedTuple):
        values: Tensor
        inverse_indices: Tensor
else:
    UniqueAll = namedtuple("UniqueAll", "values indices inverse_indices counts")
    UniqueCounts = namedtuple("UniqueCounts", "values counts")
    UniqueInverse = namedtuple("UniqueInverse", "values inverse_indices")


def unique_all(x: TensorLike) -> UniqueAll:
    """The different values in rising order (each NaN is one of its own), where each was first, which of them each element of x is, and
    how often each occurs."""
    x = as_tensor(x)
    flat = _ops.reshape(x, (-1,))
    count = flat.size
    if count == 0:
        none = zeros(0, _I64)
        return UniqueAll(copied(flat), none, zeros(x.shape, _I64), none)
    order = _ops.argsort(_ops.cast(flat, BY_NAME["u8"]) if flat.dtype.kind == "b" else flat)
    rising = flat[order]
    first = _ops.concat([ones(1, _BOOL), _ops.ne(rising[1:], rising[:-1])])
    places = _ops.reshape(_ops.nonzero(first), (-1,))
    group = _ops.cumsum(_ops.cast(first, _I64), 0) - 1
    inverse = _ops.scatter(zeros(count, _I64), order, group, 0)
    counts = _ops.concat([places[1:], full(1, count)]) - places
    return UniqueAll(rising[places], order[places], _ops.reshape(inverse, x.shape), counts)


def unique_counts(x: TensorLike) -> UniqueCounts:
    """The different values and how often each occurs."""
    made = unique_all(x)
    return UniqueCounts(made.values, made.counts)


def unique_inverse(x: TensorLike) -> UniqueInverse:
    """The different values and which of them each element is."""
    made = unique_all(x)
    return UniqueInverse(made.values, made.inverse_indices)


def unique_values(x: TensorLike) -> Tensor:
    """The different values, in rising order."""
    return unique_all(x).values


def nonzero(x: TensorLike) -> tuple[Tensor, ...]:
    """Where x is not 0: for each axis the indices, int64."""
    x = as_tensor(x)
    if x.ndim == 0:
        raise ValueError("a tensor of rank 0 has no axis along which elements are found")
    return unstack(_ops.nonzero(x), axis=1)


def searchsorted(x1: TensorLike, x2: TensorLike, side: str = "left", sorter: TensorLike | None = None) -> Tensor:
    """How many elements of x1, in rising order (of x1[sorter]), stand before each of x2: those smaller, with side="right" those not
    larger."""
    if side not in ("left", "right"):
        raise ValueError(f'side is "left" or "right", not {side!r}')
    x1 = as_tensor(x1)
    return _ops.searchsorted(x1 if sorter is None else take(x1, sorter), x2, side == "right")


# ---- rearranging

def permute_dims(x: TensorLike, axes: Sequence[int]) -> Tensor:
    """The axes in a new order."""
    return _ops.permute(x, axes)


def moveaxis(x: TensorLike, source: AxisLike, destination: AxisLike) -> Tensor:
    """Axes at other places; the others keep their order."""
    x = as_tensor(x)
    source, destination = _axes(source, x.ndim), _axes(destination, x.ndim)
    if len(source) != len(destination):
        raise ValueError(f"{len(source)} axes for {len(destination)} places")
    order = [i for i in range(x.ndim) if i not in source]
    for place, axis in sorted(zip(destination, source)):
        order.insert(place, axis)
    return _ops.permute(x, order)


def _axes(axes, rank: int) -> tuple[int, ...]:
    axes = _convert._whole(axes, "axes")
    if builtins.any(not -rank <= axis < rank for axis in axes) or len({axis % rank for axis in axes if rank}) != len(axes):
        raise _lib.ShapeError(f"axes {axes} of {rank}")
    return tuple(axis % rank for axis in axes)


def reshape(x: TensorLike, shape: ShapeLike, *, copy: bool | None = None) -> Tensor:
    """The elements in another shape, in which one size may be -1. A view where strides can express it; copy=True: never, copy=False:
    else an error."""
    x = as_tensor(x)
    made = _ops.reshape(x, shape)
    if copy is None:
        return made
    shared = made._address == x._address
    if copy:
        return copied(made) if shared else made
    if not shared and x.size:
        raise ValueError(f"the shape {tuple(made.shape)} is not a view of this tensor")
    return made


def expand_dims(x: TensorLike, axis: int = 0) -> Tensor:
    """A new axis of size 1."""
    return _ops.unsqueeze(x, axis)


def squeeze(x: TensorLike, axis: AxisLike = None) -> Tensor:
    """Without these axes, which have size 1; None: without all that have."""
    x = as_tensor(x)
    if axis is None:
        return _ops.squeeze_all(x)
    for one in sorted(_axes(axis, x.ndim), reverse=True):
        x = _ops.squeeze(x, one)
    return x


def concat(arrays: Sequence[TensorLike], axis: int | None = 0) -> Tensor:
    """Joined along an axis; None: as vectors."""
    if axis is None:
        return _ops.concat([_ops.reshape(as_tensor(x), (-1,)) for x in arrays], 0)
    return _ops.concat(arrays, axis)


def unstack(x: TensorLike, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The parts along an axis, which disappears: views."""
    x = as_tensor(x)
    (axis,) = _axes(axis, x.ndim)
    return tuple(_ops.select(x, axis, i) for i in range(x.shape[axis]))


def broadcast_arrays(*arrays: TensorLike) -> list[Tensor]:
    """All in their common shape."""
    arrays = [as_tensor(x) for x in arrays]
    shape = _broadcast(*[x.shape for x in arrays])
    return [_ops.broadcast_to(x, shape) for x in arrays]


def _broadcast(*shapes) -> tuple[int, ...]:
    rank = builtins.max((len(shape) for shape in shapes), default=0)
    sizes = []
    for along in zip(*[(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]):
        known = {n for n in along if n != 1}
        if len(known) > 1:
            raise _lib.ShapeError(f"shapes {', '.join(map(str, shapes))} do not broadcast together")
        sizes.append(known.pop() if known else 1)
    return tuple(sizes)


def flip(x: TensorLike, axis: AxisLike = None) -> Tensor:
    """Reversed along axes; None: along all."""
    return _ops.flip(x, axis)


def roll(x: TensorLike, shift: AxisLike, axis: AxisLike = None) -> Tensor:
    """Moved on by so many places along axes; None: as one row. What leaves at one end comes back at the other."""
    x = as_tensor(x)
    if axis is None:
        return _ops.reshape(_ops.roll(_ops.reshape(x, (-1,)), shift, 0), x.shape)
    axes = _convert._whole(axis, "axes")
    shifts = _convert._whole(shift, "shifts")
    for one, places in zip(axes, shifts * len(axes) if len(shifts) == 1 else shifts):
        x = _ops.roll(x, places, one)
    return x


def repeat(x: TensorLike, repeats: Any, axis: int | None = None) -> Tensor:
    """Each element so many times along an axis (None: of the row of all); `repeats` is one number, or one for each element."""
    x = as_tensor(x)
    if axis is None:
        x, axis = _ops.reshape(x, (-1,)), 0
    if hasattr(repeats, "__index__") and not getattr(repeats, "shape", ()):
        return _ops.repeat(x, repeats.__index__(), axis)
    repeats = _ops.cast(repeats, _I64)
    if repeats.ndim != 1:
        raise ValueError("repeats is a number or a vector")
    if repeats.size == 1:
        return _ops.repeat(x, int(repeats.item()), axis)
    if repeats.size != x.shape[axis]:
        raise _lib.ShapeError(f"{repeats.size} repeats for {x.shape[axis]} elements")
    if not repeats.size:
        return x
    ends = _ops.cumsum(repeats, 0)
    return _ops.take(x, _ops.searchsorted(ends, arange(int(ends[-1])), True), axis)


def tile(x: TensorLike, repetitions: ShapeLike) -> Tensor:
    """x as a whole so many times along each axis."""
    return _ops.tile(x, repetitions)


# ---- indexing

def _from_end(indices: Tensor, size: int) -> Tensor:
    """Negative indices count from the end."""
    if indices.dtype.kind == "u":
        return indices
    return _ops.where(_ops.lt(indices, 0), indices + size, indices)


def take(x: TensorLike, indices: TensorLike, axis: int | None = None) -> Tensor:
    """The slices of x at `indices` along an axis; None: of the row of all elements. Negative ones count from the end."""
    x, indices = as_tensor(x), _whole_numbers(indices)
    if axis is None:
        x, axis = _ops.reshape(x, (-1,)), 0
    (axis,) = _axes(axis, x.ndim)
    return _ops.take(x, _from_end(indices, x.shape[axis]), axis)


def _whole_numbers(indices) -> Tensor:
    indices = as_tensor(indices)
    return indices if indices.size or not indices.dtype.is_float else _ops.cast(indices, _I64)


def take_along_axis(x: TensorLike, indices: TensorLike, axis: int = -1) -> Tensor:
    """out[i, j] = x[indices[i, j], j] for axis 0, and so on; off the axis the shapes broadcast. Negative ones count from the end."""
    x, indices = as_tensor(x), _whole_numbers(indices)
    (axis,) = _axes(axis, x.ndim)
    if indices.ndim != x.ndim:
        raise _lib.ShapeError(f"indices of {indices.ndim} axes for {x.ndim}")
    sizes, lengths = list(x.shape), list(indices.shape)
    size, length = sizes[axis], lengths[axis]
    sizes[axis] = lengths[axis] = 1
    common = list(_broadcast(sizes, lengths))
    common[axis] = size
    x = _ops.broadcast_to(x, common)
    common[axis] = length
    return _ops.gather(x, _from_end(_ops.broadcast_to(indices, common), size), axis)


# ---- products

def matrix_transpose(x: TensorLike) -> Tensor:
    """The last two axes exchanged."""
    x = as_tensor(x)
    if x.ndim < 2:
        raise ValueError(f"a matrix has two axes, and this tensor {x.ndim}")
    return _ops.transpose(x, -2, -1)


def tensordot(x1: TensorLike, x2: TensorLike, axes: Any = 2) -> Tensor:
    """Sums of products along axes: so many of the last of x1 and the first of x2, or those two lists of them."""
    x1, x2 = as_tensor(x1), as_tensor(x2)
    if hasattr(axes, "__index__"):
        left, right = tuple(range(x1.ndim - axes, x1.ndim)), tuple(range(axes))
    else:
        left, right = _axes(axes[0], x1.ndim), _axes(axes[1], x2.ndim)
    if [x1.shape[i] for i in left] != [x2.shape[i] for i in right]:
        raise _lib.ShapeError(f"the shapes {x1.shape} and {x2.shape} differ along the axes {left} and {right}")
    kept_left, kept_right = [i for i in range(x1.ndim) if i not in left], [i for i in range(x2.ndim) if i not in right]
    count = 1
    for i in left:
        count *= x1.shape[i]
    rows, columns = [x1.shape[i] for i in kept_left], [x2.shape[i] for i in kept_right]
    a = _ops.reshape(_ops.permute(x1, [*kept_left, *left]), (_product(rows), count))
    b = _ops.reshape(_ops.permute(x2, [*right, *kept_right]), (count, _product(columns)))
    return _ops.reshape(_ops.matmul(a, b), (*rows, *columns))


def _product(sizes) -> int:
    count = 1
    for n in sizes:
        count *= n
    return count


def vecdot(x1: TensorLike, x2: TensorLike, axis: int = -1) -> Tensor:
    """The sum of products along an axis; the others broadcast."""
    x1, x2 = as_tensor(x1), as_tensor(x2)
    rank = builtins.min(x1.ndim, x2.ndim)
    if not -rank <= axis < 0:
        raise _lib.ShapeError(f"the axis counts from the end, from -{rank} to -1, and is {axis}")
    x1, x2 = moveaxis(x1, axis, -1), moveaxis(x2, axis, -1)
    if x1.shape[-1] != x2.shape[-1]:
        raise _lib.ShapeError(f"vectors of {x1.shape[-1]} and of {x2.shape[-1]} elements")
    return _ops.einsum("...i,...i->...", [x1, x2])


__array_api_version__ = "2024.12"
__all__ = ["argsort", "astype", "broadcast_arrays", "can_cast", "clip", "concat", "conj", "cumulative_prod", "cumulative_sum", "diff",
           "divmod", "expand_dims", "finfo", "flip", "iinfo", "imag", "isdtype", "matrix_transpose", "moveaxis", "nonzero",
           "permute_dims", "positive", "pow", "prod", "real", "repeat", "reshape", "result_type", "roll", "searchsorted", "sort",
           "squeeze", "sum", "take", "take_along_axis", "tensordot", "tile", "unique_all", "unique_counts", "unique_inverse",
           "unique_values", "unstack", "vecdot", "where"]
# The same under NumPy's and PyTorch's names.
cat = concat
concatenate = concat
power = pow
repeat_interleave = repeat
unsqueeze = expand_dims
__all__ += _creation.__all__
__all__ += ["cat", "concatenate", "power", "repeat_interleave", "unsqueeze"]

_METHODS = ("argsort astype clip conj cumulative_prod cumulative_sum diff expand_dims flip moveaxis nonzero pow prod repeat roll "
            "repeat_interleave searchsorted sort sum take take_along_axis tensordot tile tril triu unsqueeze vecdot")
for _name in _METHODS.split():
    setattr(Tensor, _name, globals()[_name])
Tensor.__pow__ = pow
Tensor.__rpow__ = lambda self, other: pow(other, self)
Tensor.__divmod__ = divmod
Tensor.__rdivmod__ = lambda self, other: divmod(other, self)
