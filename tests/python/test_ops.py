"""Functions by their names against NumPy, where NumPy has them."""
import numpy as np
import pytest

import gradus as gd

X = np.array([[0.5, -1.25, 2.0], [3.5, -0.75, 1.5]], dtype=np.float32)
Y = np.array([[1.5, 2.0, -0.5]], dtype=np.float32)
P = np.abs(X) / 4 + 0.1  # in (0, 1)
I = np.array([[7, -3, 2], [5, 0, -8]], dtype=np.int64)
J = np.array([[2, 3, 5]], dtype=np.int64)
B = np.array([[True, False, True], [False, False, True]])

UNARY = ["abs", "absolute", "acos", "arccos", "acosh", "asin", "arcsin", "asinh", "arcsinh", "atan", "arctan", "atanh", "arctanh", "ceil",
         "cos", "cosh", "exp", "exp2", "expm1", "floor", "isfinite", "isinf", "isnan", "log", "log10", "log1p", "log2", "neg", "negative",
         "reciprocal", "round", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc"]
BINARY = ["add", "atan2", "arctan2", "divide", "equal", "floor_divide", "fmod", "greater", "greater_equal", "hypot", "less", "less_equal",
          "logaddexp", "maximum", "minimum", "multiply", "not_equal", "remainder", "subtract"]
REDUCTIONS = ["all", "any", "max", "mean", "min", "prod", "std", "sum", "var", "amax", "amin"]


def close(t, expected, tolerance=3e-6):
    expected = np.asarray(expected)
    assert t.shape == expected.shape
    np.testing.assert_allclose(np.asarray(t, dtype=np.float64), expected.astype(np.float64), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    x = P if name in ("acos", "arccos", "asin", "arcsin", "atanh", "arctanh", "log", "log10", "log1p", "log2", "sqrt") else \
        P + 1 if name in ("acosh", "arccosh") else X
    numpy_name = {"neg": "negative"}.get(name, name)
    if not hasattr(np, numpy_name):  # the short names are new in NumPy 2
        numpy_name = "arc" + name[1:]
    close(getattr(gd, name)(gd.tensor(x)), getattr(np, numpy_name)(x))


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("kind", ["tensors", "right", "left"])
def test_binary(name, kind):
    f, g = getattr(gd, name), getattr(np, name)
    if kind == "tensors":
        close(f(gd.tensor(X), gd.tensor(Y)), g(X, Y))
        if name not in ("logaddexp", "hypot", "atan2", "arctan2", "divide"):
            close(f(gd.tensor(I), gd.tensor(J)), g(I, J))
    elif kind == "right":
        close(f(gd.tensor(X), 1.5), g(X, np.float32(1.5)))
    else:
        close(f(1.5, gd.tensor(X)), g(np.float32(1.5), X))


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 1)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions(name, axis, keepdims):
    x = B if name in ("all", "any") else X
    close(getattr(gd, name)(gd.tensor(x), axis=axis, keepdims=keepdims), getattr(np, name)(x, axis=axis, keepdims=keepdims))
    close(getattr(gd.tensor(x), name)(axis, keepdims=keepdims), getattr(np, name)(x, axis=axis, keepdims=keepdims))


SAME = {  # calls that read alike in both
    "arange": lambda m: m.arange(2, 11, 3), "arange(stop)": lambda m: m.arange(4), "eye": lambda m: m.eye(3),
    "linspace": lambda m: m.linspace(0.0, 1.0, 5), "full": lambda m: m.full((2, 2), 7.5), "ones": lambda m: m.ones((2, 3)),
    "zeros": lambda m: m.zeros(3),
    "concatenate": lambda m: m.concatenate([a(m, X), a(m, Y)], axis=0), "stack": lambda m: m.stack([a(m, X), a(m, X)], axis=1),
    "where": lambda m: m.where(a(m, B), a(m, X), a(m, Y)), "matmul": lambda m: m.matmul(a(m, X), a(m, X).T),
    "outer": lambda m: m.outer(a(m, X)[0], a(m, Y)[0]), "dot": lambda m: m.dot(a(m, X)[0], a(m, Y)[0]),
    "einsum": lambda m: m.einsum("ij,kj->ik", a(m, X), a(m, Y)) if m is np else m.einsum("ij,kj->ik", [a(m, X), a(m, Y)]),
    "cumsum": lambda m: m.cumsum(a(m, X), axis=1), "cumprod": lambda m: m.cumprod(a(m, X), axis=0),
    "sort": lambda m: m.sort(a(m, X), axis=1), "argsort": lambda m: m.argsort(a(m, X), axis=1),
    "argmax": lambda m: m.argmax(a(m, X)), "argmin": lambda m: m.argmin(a(m, X), axis=0),
    "tile": lambda m: m.tile(a(m, X), (2, 1)), "repeat": lambda m: m.repeat(a(m, X), 2, axis=1),
    "roll": lambda m: m.roll(a(m, X), 1, axis=1), "flip": lambda m: m.flip(a(m, X), axis=0),
    "tril": lambda m: m.tril(a(m, X)), "triu": lambda m: m.triu(a(m, X), 1), "diag": lambda m: m.diag(a(m, Y)[0]),
    "diagonal": lambda m: m.diagonal(a(m, X)), "take": lambda m: m.take(a(m, X), a(m, np.array([2, 0])), axis=1),
    "clip": lambda m: m.clip(a(m, X), -1.0, 2.0), "searchsorted": lambda m: m.searchsorted(a(m, np.sort(X[0])), a(m, X[1])),
    "logical_and": lambda m: m.logical_and(a(m, B), a(m, B)), "logical_not": lambda m: m.logical_not(a(m, B)),
    "bitwise_and": lambda m: m.bitwise_and(a(m, I), a(m, J)), "left_shift": lambda m: m.left_shift(a(m, I), a(m, J)),
    "expand_dims": lambda m: m.expand_dims(a(m, X), 1), "squeeze": lambda m: m.squeeze(a(m, Y), 0),
    "broadcast_to": lambda m: m.broadcast_to(a(m, Y), (4, 3)), "reshape": lambda m: m.reshape(a(m, X), (3, -1)),
    "swapaxes": lambda m: m.swapaxes(a(m, X), 0, 1), "take_along_axis": lambda m: m.take_along_axis(a(m, X), a(m, np.array([[1], [2]])), 1),
    "power": lambda m: m.power(a(m, P), a(m, Y)), "zeros_like": lambda m: m.zeros_like(a(m, X)),
    "ones_like": lambda m: m.ones_like(a(m, X)), "full_like": lambda m: m.full_like(a(m, X), 3.0),
}


def a(module, x):
    return x if module is np else gd.tensor(x)


@pytest.mark.parametrize("name", SAME)
def test_same_call_same_values(name):
    close(SAME[name](gd), SAME[name](np))


def test_several_results():
    values, indices = gd.topk(gd.tensor(X), 2)
    close(values, -np.sort(-X, axis=1)[:, :2])
    close(indices, np.argsort(-X, axis=1)[:, :2])
    for ours, theirs in zip(gd.unique(gd.tensor(I)), np.unique(I, return_inverse=True, return_counts=True)):
        close(ours, theirs.reshape(ours.shape))
    for ours, theirs in zip(gd.split(gd.tensor(X), [1, 2], axis=1), np.split(X, [1], axis=1)):
        close(ours, theirs)
    for ours, theirs in zip(gd.chunk(gd.tensor(X), 2, axis=1), np.array_split(X, 2, axis=1)):
        close(ours, theirs)
    for ours, theirs in zip(gd.meshgrid(gd.arange(2), gd.arange(3)), np.meshgrid(np.arange(2), np.arange(3))):
        close(ours, theirs)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float16", "float32", "float64"])
def test_arrays_come_and_go(dtype):
    x = (np.arange(12).reshape(3, 4) % 2 if dtype == "bool" else np.arange(12).reshape(3, 4)).astype(dtype)
    for array in (x, x.T, x[::2, ::-1], x[:0], x[1, 1]):
        t = gd.asarray(array)
        assert t.dtype == array.dtype and t.dtype == dtype and t.shape == array.shape
        np.testing.assert_array_equal(t.numpy(), array)
        np.testing.assert_array_equal(np.asarray(t), array)
        assert t.tolist() == array.tolist()


def test_numpy_shares_memory_and_keeps_it():
    t = gd.zeros((2, 3))
    shared = np.asarray(t)
    shared[0, 1] = 5
    assert t[0, 1].item() == 5
    copied = t.numpy()
    del t
    gd.ones((2, 3)) + 1
    assert shared[0, 1] == 5 and copied[0, 1] == 5
    assert isinstance(np.ones(3, np.float32) * gd.ones(3), gd.Tensor)
    w = gd.ones(2, ).requires_grad_()
    assert not np.asarray(w).flags.writeable


def test_numbers_beside_tensors():
    i = gd.tensor([1, 2, 3])
    assert (i + 1).dtype == "int64" and (i + 1.0).dtype == "float32" and (i * 1.5).tolist() == [1.5, 3.0, 4.5]
    assert (gd.tensor([1.0], dtype="float64") + 1).dtype == "float64"
    assert (i + (2 ** 53 + 1)).tolist() == [2 ** 53 + 2, 2 ** 53 + 3, 2 ** 53 + 4]
    assert gd.tensor([2 ** 62 + 1]).item() == 2 ** 62 + 1
    assert (5 - i).tolist() == [4, 3, 2] and (12 // i).tolist() == [12, 6, 4] and (7 % i).tolist() == [0, 1, 1]
    assert (2 ** gd.tensor([1.0, 3.0])).tolist() == [2.0, 8.0] and (6 / gd.tensor([2.0])).tolist() == [3.0]
    assert gd.maximum(i, 2).tolist() == [2, 2, 3] and gd.maximum(i, 2).dtype == "int64"
    with pytest.raises(ValueError):
        gd.tensor([1], dtype="uint8") + 256
