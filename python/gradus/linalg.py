"""Linear algebra: of the array API standard's extension, what needs no decomposition of matrices (C has none so far): cholesky, det, eigh,
eigvalsh, inv, matrix_rank, pinv, qr, slogdet, solve, svd and svdvals are missing."""
from __future__ import annotations

from . import _array_api, _ops
from ._array_api import matrix_transpose, moveaxis, tensordot, vecdot
from ._convert import as_tensor
from ._lib import ShapeError
from ._ops import matmul, outer
from ._tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._convert import AxisLike, DTypeLike, TensorLike


def _matrices(x: TensorLike) -> Tensor:
    x = as_tensor(x)
    if x.ndim < 2:
        raise ShapeError(f"a matrix has two axes, and this tensor {x.ndim}")
    return x


def cross(x1: TensorLike, x2: TensorLike, *, axis: int = -1) -> Tensor:
    """The vector product of vectors of three elements along an axis; the other axes broadcast."""
    x1, x2 = as_tensor(x1), as_tensor(x2)
    rank = min(x1.ndim, x2.ndim)
    if not -rank <= axis < rank or axis >= 0 and x1.ndim != x2.ndim:
        raise ShapeError(f"no axis {axis} in shapes {x1.shape} and {x2.shape}")
    x1, x2 = moveaxis(x1, axis, -1), moveaxis(x2, axis, -1)
    if x1.shape[-1] != 3 or x2.shape[-1] != 3:
        raise ShapeError(f"vectors of three elements, not of {x1.shape[-1]} and {x2.shape[-1]}")
    a, b = ([_ops.select(x, -1, i) for i in range(3)] for x in (x1, x2))
    parts = [_ops.sub(_ops.mul(a[i], b[k]), _ops.mul(a[k], b[i])) for i, k in ((1, 2), (2, 0), (0, 1))]
    return moveaxis(_ops.stack(parts, -1), -1, axis)


def diagonal(x: TensorLike, *, offset: int = 0) -> Tensor:
    """Diagonal number `offset` of the matrices in the last two axes."""
    return _ops.diagonal(_matrices(x), -2, -1, offset)


def trace(x: TensorLike, *, offset: int = 0, dtype: DTypeLike = None) -> Tensor:
    """The sum of the diagonal of the matrices in the last two axes."""
    return _array_api.sum(diagonal(x, offset=offset), -1, dtype=dtype)


def vector_norm(x: TensorLike, *, axis: AxisLike = None, keepdims: bool = False, ord: float = 2) -> Tensor:
    """(sum |x|^ord)^(1/ord) along axes (None: of all elements); for infinities the largest or smallest |x|, for 0 how many are not 0."""
    x = as_tensor(x)
    if ord >= 0 or ord == -float("inf"):
        return _ops.norm(x, axis, float(ord), keepdims)
    return _ops.pow(_ops.sum(_ops.pow(_ops.abs(x), float(ord)), axis, keepdims), 1.0 / ord)


def matrix_norm(x: TensorLike, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """Of the matrices in the last two axes: "fro", and by columns (1, -1) or rows (inf, -inf) the largest or smallest sum of |x|. 2, -2
    and "nuc" need singular values: NotImplementedError."""
    x = _matrices(x)
    if ord == "fro":
        return _ops.norm(x, (-2, -1), 2.0, keepdims)
    axis = {1: -2, -1: -2, float("inf"): -1, -float("inf"): -1}.get(ord)
    if axis is None:
        raise NotImplementedError(f"the norm {ord!r} needs singular values, which are not here yet")
    sums = _ops.sum(_ops.abs(x), axis, True)
    extreme = _ops.max if ord > 0 else _ops.min
    return extreme(sums, (-2, -1), keepdims)


def matrix_power(x: TensorLike, n: int) -> Tensor:
    """x @ x @ … @ x, n times; n = 0 gives identities. Negative n needs an inverse: NotImplementedError."""
    x = _matrices(x)
    if x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"powers are of square matrices, not of {x.shape[-2]} by {x.shape[-1]}")
    if n < 0:
        raise NotImplementedError("a negative power needs an inverse, which is not here yet")
    power = _array_api.copied(_ops.broadcast_to(_ops.eye(x.shape[-1], x.dtype), x.shape))
    while n > 0:
        power = matmul(power, x) if n % 2 else power
        x = matmul(x, x)
        n //= 2
    return power


__all__ = ["cross", "diagonal", "matmul", "matrix_norm", "matrix_power", "matrix_transpose", "outer", "tensordot", "trace", "vecdot",
           "vector_norm"]
