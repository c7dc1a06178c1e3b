"""New tensors: zeros, full, arange and the like, with the array API standard's arguments."""
from __future__ import annotations

from . import _context, _convert, _lib, _ops
from ._array_info import at
from ._convert import as_tensor, run, shape_of
from ._dtype import BY_NAME, dtype as as_dtype
from ._lib import C
from ._tensor import Tensor, copy as copied

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._convert import DTypeLike, ShapeLike, TensorLike

_I64, _BOOL, _F32 = BY_NAME["i64"], BY_NAME["bool"], BY_NAME["f32"]
_EXACT = 2 ** 53


def zeros(shape: ShapeLike, dtype: DTypeLike = None, *, device: Any = None) -> Tensor:
    """Zeros, float32 unless another dtype is asked for."""
    return _ops.zeros(shape, dtype) if device is None else at(device, _ops.zeros, shape, dtype)


def ones(shape: ShapeLike, dtype: DTypeLike = None, *, device: Any = None) -> Tensor:
    """Ones, float32 unless another dtype is asked for."""
    return _ops.ones(shape, dtype) if device is None else at(device, _ops.ones, shape, dtype)


def empty(shape: ShapeLike, dtype: DTypeLike = None, *, device: Any = None) -> Tensor:
    """Zeros: memory is not given out with what was in it."""
    return zeros(shape, dtype, device=device)


def full(shape: ShapeLike, fill_value: Any, dtype: DTypeLike = None, *, device: Any = None) -> Tensor:
    """Every element `fill_value`, of the dtype that Python's number has where none is asked for."""
    if device is not None:
        return at(device, full, shape, fill_value, dtype)
    if isinstance(fill_value, Tensor):
        d = fill_value.dtype if dtype is None else as_dtype(dtype)
        return copied(_ops.broadcast_to(_ops.cast(fill_value, d), shape))
    if dtype is None:
        dtype = _BOOL if type(fill_value) is bool else _I64 if isinstance(fill_value, int) else _F32
    d = as_dtype(dtype)
    if type(fill_value) is int and d.kind in "iu" and not -_EXACT <= fill_value <= _EXACT:
        return copied(_ops.broadcast_to(_convert.from_number(fill_value, d), shape))
    return run(C.gd_full, _context.current(), shape_of(shape), fill_value, d.code)


def zeros_like(x: TensorLike, dtype: DTypeLike = None, *, device: Any = None) -> Tensor:
    """Zeros of x's shape, and its dtype unless another is asked for."""
    return _like(x, dtype, device, _ops.zeros_like, zeros)


def ones_like(x: TensorLike, dtype: DTypeLike = None, *, device: Any = None) -> Tensor:
    """Ones of x's shape, and its dtype unless another is asked for."""
    return _like(x, dtype, device, _ops.ones_like, ones)


def empty_like(x: TensorLike, dtype: DTypeLike = None, *, device: Any = None) -> Tensor:
    """As zeros_like."""
    return zeros_like(x, dtype, device=device)


def _like(x, dtype, device, same, other):
    x = as_tensor(x)
    if device is None and dtype is None:
        return same(x)
    return at(_context.Context._of(_context.home_of(x._h)) if device is None else device, other, x.shape, dtype or x.dtype)


def full_like(x: TensorLike, fill_value: Any, dtype: DTypeLike = None, *, device: Any = None) -> Tensor:
    """Every element `fill_value`, of x's shape, and its dtype unless another is asked for."""
    x = as_tensor(x)
    return full(x.shape, fill_value, x.dtype if dtype is None else dtype, device=device)


def arange(start: float, stop: float | None = None, step: float = 1, dtype: DTypeLike = None, *, device: Any = None) -> Tensor:
    """start, start + step, … below stop; int64 when all three are whole numbers, else float32."""
    if device is not None:
        return at(device, arange, start, stop, step, dtype)
    if stop is None:
        start, stop = 0, start
    whole = all(isinstance(n, int) for n in (start, stop, step))
    d = as_dtype(dtype) if dtype is not None else _I64 if whole else _F32
    if whole and step and d.kind in "iu" and max(abs(start), abs(stop)) > _EXACT:
        count = run(C.gd_arange, _context.current(), 0, len(range(start, stop, step)), 1, _I64.code)
        return _ops.add(_ops.mul(_ops.cast(count, d), _convert.from_number(step, d)), _convert.from_number(start, d))
    return run(C.gd_arange, _context.current(), start, stop, step, d.code)


def linspace(start: float, stop: float, num: int, dtype: DTypeLike = None, *, device: Any = None, endpoint: bool = True) -> Tensor:
    """`num` numbers at equal distances, from start to stop, or up to before stop."""
    if device is not None:
        return at(device, lambda: linspace(start, stop, num, dtype, endpoint=endpoint))
    d = _F32 if dtype is None else as_dtype(dtype)
    through = d if d.is_float else BY_NAME["f64"]
    if not endpoint and num > 0:
        made = run(C.gd_linspace, _context.current(), start, stop, num + 1, through.code)[:num]
    else:
        made = run(C.gd_linspace, _context.current(), start, stop, num, through.code)
    return made if through is d else _ops.cast(made, d)


def eye(n_rows: int, n_cols: int | None = None, *, k: int = 0, dtype: DTypeLike = None, device: Any = None) -> Tensor:
    """Ones on diagonal number k of a matrix, zeros elsewhere."""
    if device is not None:
        return at(device, lambda: eye(n_rows, n_cols, k=k, dtype=dtype))
    if (n_cols is None or n_cols == n_rows) and k == 0:
        return _ops.eye(n_rows, dtype)
    rows, columns = arange(n_rows), arange(n_rows if n_cols is None else n_cols)
    diagonal = _ops.eq(_ops.unsqueeze(rows, 1) + k, _ops.unsqueeze(columns, 0))
    return _ops.cast(diagonal, _F32 if dtype is None else dtype)


def meshgrid(*arrays: TensorLike, indexing: str = "xy") -> list[Tensor]:
    """Vectors as grids: of n_0, n_1, … elements, tensors of shape (n_0, n_1, …) ("ij"), or with the first two axes exchanged ("xy")."""
    if indexing not in ("xy", "ij"):
        raise ValueError(f'indexing is "xy" or "ij", not {indexing!r}')
    swapped = indexing == "xy" and len(arrays) > 1
    vectors = [_ops.reshape(as_tensor(x), (-1,)) for x in arrays]
    if not vectors:
        return []
    if swapped:
        vectors[:2] = vectors[1::-1]
    grids = _ops.meshgrid(vectors)
    if swapped:
        grids[:2] = grids[1::-1]
    return grids


def tril(x: TensorLike, k: int = 0) -> Tensor:
    """The last two axes as matrices with 0 above diagonal number k."""
    return _ops.tril(x, k)


def triu(x: TensorLike, k: int = 0) -> Tensor:
    """The last two axes as matrices with 0 below diagonal number k."""
    return _ops.triu(x, k)


__all__ = ["zeros", "ones", "empty", "full", "zeros_like", "ones_like", "empty_like", "full_like", "arange", "linspace", "eye", "meshgrid",
           "tril", "triu"]
