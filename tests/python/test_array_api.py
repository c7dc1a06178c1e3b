"""What the Python array API standard asks for beyond NumPy's calls; its own suite is run by tools/run-tests python-conformance."""
import math

import numpy as np
import pytest

import gradus as gd

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def test_the_namespace_tells_of_itself():
    x = gd.ones(2)
    assert x.__array_namespace__() is gd and x.__array_namespace__(api_version="2024.12") is gd and gd.__array_api_version__ == "2024.12"
    with pytest.raises(ValueError, match="2077"):
        x.__array_namespace__(api_version="2077.12")
    info = gd.__array_namespace_info__()
    assert info.devices()[:2] == [x.device, "reference"] and info.default_device() == x.device and x.to_device("cpu") is x
    assert info.capabilities() == {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 8}
    assert info.default_dtypes() == {"real floating": gd.float32, "integral": gd.int64, "indexing": gd.int64}
    assert list(info.dtypes(kind="unsigned integer")) == ["uint8", "uint16", "uint32", "uint64"]
    assert set(info.dtypes()) == {*INTEGERS, "bool", "float32", "float64"}
    for call in (lambda: x.to_device("opencl:77"), lambda: gd.zeros(2, device="abacus"), lambda: gd.asarray([1], device="tpu:0")):
        with pytest.raises(ValueError, match="no device is called"):
            call()


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype):
    info, theirs = gd.iinfo(dtype), np.iinfo(dtype)
    assert (info.min, info.max, info.bits, info.dtype) == (theirs.min, theirs.max, theirs.bits, dtype)
    values = [info.min, info.max, 1, 2, 3]
    x, y = gd.tensor(values, dtype=dtype), np.array(values, dtype)
    assert x.tolist() == values
    for ours, numpys in ((gd.pow(x, x), y ** np.abs(y)) if info.min == 0 else (x ** gd.tensor([2] * 5, dtype=dtype), y ** 2), (x + x, y + y),
                         (x * x, y * y), (~x, ~y), (x & 3, y & 3), (x | 3, y | 3), (x ^ 3, y ^ 3), (x >> 1, y >> 1), (x << 1, y << 1),
                         (x // 2, y // 2), (x % 3, y % 3), (x ** 3, y ** 3), (gd.clip(x, 2, 3), np.clip(y, 2, 3)), (-x, -y)):
        assert ours.dtype == dtype and ours.tolist() == numpys.tolist()
    assert [n.tolist() for n in divmod(x, 2)] == [n.tolist() for n in np.divmod(y, 2)]
    assert gd.sum(x).dtype == np.sum(y).dtype and gd.cumulative_sum(x).tolist() == np.cumsum(y).tolist()
    assert (1 << x[2:]).tolist() == [2, 4, 8] and (64 >> x[2:]).tolist() == [32, 16, 8]


def test_whole_numbers_beyond_doubles():
    big = 2 ** 62 + 1
    x = gd.asarray([big, 1])
    assert (x == big).tolist() == [True, False] and (x < big).tolist() == [False, True] and (big - x).tolist() == [0, big - 1]
    assert gd.full(2, big).tolist() == [big, big] and gd.full_like(x, -big).tolist() == [-big, -big]
    assert gd.full((), 2 ** 64 - 1, dtype="uint64").item() == 2 ** 64 - 1
    assert gd.arange(big, big + 3).tolist() == [big, big + 1, big + 2]
    x[1] = big + 2
    assert x.tolist() == [big, big + 2] and int(x[1]) == big + 2
    small = gd.asarray([1, 255], dtype="uint8")
    assert (small == 2 ** 60).tolist() == [False, False] and (small < 2 ** 60).tolist() == [True, True] and (small > -2 ** 60).all()


def test_powers_of_whole_numbers():
    assert (gd.asarray([2, -3]) ** 3).tolist() == [8, -27] and (gd.asarray([2]) ** 3).dtype == "int64"
    assert (2 ** gd.asarray([0, 10])).tolist() == [1, 1024] and (gd.asarray([2, 4]) ** -1).tolist() == [0.5, 0.25]
    assert (gd.asarray([3.0]) ** gd.asarray([2])).dtype == "float32" and (gd.asarray([4]) ** 0.5).tolist() == [2.0]


def test_dtypes():
    for name in ("float32", "float64", "float16"):
        ours, theirs = gd.finfo(getattr(gd, name)), np.finfo(name)
        assert (ours.bits, ours.eps, ours.max, ours.min, ours.smallest_normal) == (
            theirs.bits, theirs.eps, theirs.max, theirs.min, theirs.smallest_normal)
    assert gd.finfo(gd.bfloat16).max == 3.3895313892515355e38 and gd.finfo(gd.ones(1)).dtype is gd.float32
    assert gd.isdtype(gd.int8, "integral") and gd.isdtype(gd.float16, ("bool", "real floating")) and not gd.isdtype(gd.bool, "numeric")
    assert gd.isdtype(gd.int8, gd.int8) and not gd.isdtype(gd.float32, "complex floating")
    assert gd.result_type(gd.int8, gd.ones(1, "uint8")) is gd.int16 and gd.result_type(gd.int8, 1) is gd.int8
    assert gd.result_type(gd.int8, 1.0) is gd.float32 and gd.result_type(gd.bool, 1, gd.float64) is gd.float64
    assert gd.can_cast(gd.int8, gd.int16) and not gd.can_cast(gd.float64, gd.float32) and gd.can_cast(gd.ones(1), gd.float64)
    for wrong in (lambda: gd.finfo(gd.int8), lambda: gd.iinfo(gd.float32)):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(ValueError):
        gd.isdtype(gd.int8, "whole")
    x = gd.ones(2)
    assert gd.astype(x, "float32", copy=False) is x and gd.astype(x, "float32") is not x and x.astype("int8").dtype == "int8"
    y = x.astype("float32")
    y[0] = 5
    assert x.tolist() == [1, 1]


X = np.array([[3.0, 1.0, 2.0], [0.5, -1.0, 4.0]], np.float32)
SAME = {
    "eye": lambda m: m.eye(2, 4, k=1, dtype=m.int32), "linspace": lambda m: m.linspace(0.0, 1.0, 4, endpoint=False),
    "meshgrid xy": lambda m: m.stack(m.meshgrid(m.arange(2), m.arange(3))), "diff": lambda m: m.diff(a(m), axis=1, n=2),
    "meshgrid ij": lambda m: m.stack(m.meshgrid(m.arange(2), m.arange(3), m.arange(2), indexing="ij")),
    "diff joined": lambda m: m.diff(a(m), axis=0, prepend=a(m), append=a(m)[:1]), "permute_dims": lambda m: m.permute_dims(a(m), (1, 0)),
    "cumulative_sum": lambda m: m.cumulative_sum(a(m), axis=1, include_initial=True),
    "cumulative_prod": lambda m: m.cumulative_prod(a(m), axis=0, include_initial=True),
    "moveaxis": lambda m: m.moveaxis(m.ones((2, 3, 4, 5)), (0, -1), (-1, 1)), "roll": lambda m: m.roll(a(m), 4),
    "roll two": lambda m: m.roll(a(m), (1, -1), axis=(0, 1)), "repeat all": lambda m: m.repeat(a(m), 2),
    "repeat each": lambda m: m.repeat(a(m), m.asarray([2, 0, 1]), axis=1), "tile": lambda m: m.tile(a(m), (2, 1, 3)),
    "concat flat": lambda m: m.concat([a(m), a(m)[0]], axis=None), "squeeze": lambda m: m.squeeze(m.ones((1, 2, 1)), axis=(0, 2)),
    "flip": lambda m: m.flip(a(m)), "take": lambda m: m.take(a(m), m.asarray([-1, 0]), axis=1),
    "take_along_axis": lambda m: m.take_along_axis(a(m), m.asarray([[0, -1], [1, 1]]), axis=1),
    "take_along_axis broadcast": lambda m: m.take_along_axis(a(m), m.asarray([[1, 0, 1]]), axis=0),
    "tensordot": lambda m: m.tensordot(m.ones((2, 3, 4)), m.ones((3, 4, 5))), "vecdot": lambda m: m.vecdot(a(m), a(m)[0]),
    "tensordot axes": lambda m: m.tensordot(a(m), a(m), axes=((0,), (0,))), "matrix_transpose": lambda m: m.matrix_transpose(a(m)),
    "searchsorted": lambda m: m.searchsorted(a(m)[0], a(m)[1], side="right", sorter=m.argsort(a(m)[0])),
    "clip": lambda m: m.clip(a(m), a(m)[0] - 1, 2.5), "clip min": lambda m: m.clip(a(m), min=1.5), "signbit": lambda m: m.signbit(-a(m)),
    "clip max": lambda m: m.clip(a(m), max=1.5), "copysign": lambda m: m.copysign(a(m), a(m)[1]),
    "nextafter": lambda m: m.nextafter(a(m), a(m)[:1]), "where": lambda m: m.where(a(m) > 1, a(m), 0.1),
    "unstack": lambda m: m.stack(m.unstack(a(m), axis=1)), "nonzero": lambda m: m.stack(m.nonzero(a(m) > 1)),
    "broadcast_arrays": lambda m: m.stack(m.broadcast_arrays(a(m)[0], a(m))), "vector_norm": lambda m: m.linalg.vector_norm(a(m), ord=3),
    "norm -1": lambda m: m.linalg.vector_norm(a(m), ord=-1.0), "trace": lambda m: m.linalg.trace(a(m), offset=1),
    "cross": lambda m: m.linalg.cross(a(m), a(m)[0:1] + 1), "matrix_power": lambda m: m.linalg.matrix_power(a(m)[:, :2], 5),
    "fro": lambda m: m.linalg.matrix_norm(a(m)), "norm 1": lambda m: m.linalg.matrix_norm(a(m), ord=1, keepdims=True),
    "norm inf": lambda m: m.linalg.matrix_norm(a(m), ord=-math.inf), "isclose": lambda m: m.isclose(a(m), a(m) + 1e-7),
}


def a(m):
    return m.asarray(X)


NEW = ("clip max", "clip min", "cumulative_prod", "cumulative_sum", "unstack")  # NumPy has them since 2.1


@pytest.mark.parametrize("name", SAME)
def test_same_call_same_values(name):
    if name in NEW and np.lib.NumpyVersion(np.__version__) < "2.1.0":
        pytest.skip("this NumPy has it not")
    ours, theirs = SAME[name](gd), SAME[name](np)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(np.asarray(ours, dtype=np.float64), theirs.astype(np.float64), rtol=1e-6, atol=1e-6)


def test_sets():
    x = gd.asarray([[3, 1], [3, 2]])
    every = gd.unique_all(x)
    assert [t.tolist() for t in every] == [[1, 2, 3], [1, 3, 0], [[2, 0], [2, 1]], [1, 1, 2]]
    assert gd.unique_counts(x).counts.tolist() == [1, 1, 2] and gd.unique_inverse(x).inverse_indices.shape == (2, 2)
    nan = gd.unique_counts(gd.asarray([math.nan, 1.0, math.nan]))
    assert nan.counts.tolist() == [1, 1, 1] and math.isnan(nan.values[2].item())
    assert gd.unique_values(gd.zeros(0)).shape == (0,) and gd.unique_values(gd.asarray([True, False, True])).tolist() == [False, True]


def test_views_and_copies_as_asked():
    x = gd.arange(6.0).reshape(2, 3)
    shared, apart = gd.reshape(x, (3, 2), copy=False), gd.reshape(x, (3, 2), copy=True)
    x[0, 0] = 9
    assert shared[0, 0].item() == 9 and apart[0, 0].item() == 0
    with pytest.raises(ValueError, match="view"):
        gd.reshape(x.T, (6,), copy=False)
    assert gd.asarray(x, copy=False) is x and gd.asarray(x, copy=True) is not x
    with pytest.raises(ValueError):
        gd.asarray(x, dtype="int32", copy=False)


def test_indexing():
    x = gd.arange(24).reshape(2, 3, 4)
    n = np.arange(24).reshape(2, 3, 4)
    for key in (1, -1, (0, ...), (..., 1), None, (None, 1, None, ..., slice(None, None, -1)), (slice(None), 2), (..., None), (1, slice(5, 0, -2)), ..., (),
                (np.array([1, 0]), 2), (np.array([[1, 0]]), slice(None), np.array([0, 3])), (0, np.array([1, 2]), -1), True, False,
                n > 5, n[:, :, 0] > 5, (1, n[0] > 5), (np.array([True, False]), 1)):
        np.testing.assert_array_equal(np.asarray(x[tuple(gd.asarray(k) if isinstance(k, np.ndarray) else k for k in key)
                                                   if isinstance(key, tuple) else gd.asarray(key) if isinstance(key, np.ndarray) else key]),
                                      n[key], err_msg=str(key))
    for wrong in (2, -3, (0, 0, 0, 0), (..., ...), 1.0, "a", gd.ones(4, "bool"), gd.ones((2, 2), "bool")):
        with pytest.raises(IndexError):
            x[wrong]


def test_operators_leave_other_tensors_alone():
    x = y = gd.asarray([1, 2, 3])
    for operation in ("y += 2", "y -= 1", "y *= 3", "y **= 2", "y //= 2", "y %= 7", "y <<= 2", "y >>= 1", "y |= 1", "y &= 3", "y ^= 1"):
        exec(operation)
    assert x.tolist() == [1, 2, 3]
    n = np.array([1, 2, 3])
    t = gd.asarray([1, 2, 3])
    t **= 2
    t <<= 1
    assert t.tolist() == ((n ** 2) << 1).tolist()
    assert (True & gd.asarray([True, False])).tolist() == [True, False] and (gd.asarray([True]) ^ True).tolist() == [False]


def test_errors_are_of_the_right_kinds():
    x = gd.ones((2, 3))
    for call in (lambda: gd.expand_dims(x, 4), lambda: gd.sum(x, axis=2), lambda: gd.moveaxis(x, 0, 2), lambda: gd.squeeze(x, 5)):
        with pytest.raises(IndexError):
            call()
    for call in (lambda: gd.squeeze(x, 0), lambda: gd.matrix_transpose(x[0]), lambda: gd.nonzero(x[0, 0]), lambda: gd.cumulative_sum(x),
                 lambda: gd.tensordot(x, x, axes=1), lambda: gd.vecdot(x, x[:, :2]), lambda: gd.meshgrid(x, indexing="no"),
                 lambda: gd.searchsorted(x[0], x[0], side="middle"), lambda: gd.take_along_axis(x, gd.zeros(2, "int64"))):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(NotImplementedError):
        gd.linalg.matrix_norm(x, ord=2)


def test_composites_have_gradients():
    x = gd.randn(3, 4, dtype="float64").requires_grad_()
    index = gd.asarray([[0, -1], [1, 1], [2, 0]])
    for function in (lambda t: gd.tensordot(t, t, axes=((1,), (1,))).square().sum(), lambda t: gd.take_along_axis(t, index, 1).square().sum(),
                     lambda t: gd.vecdot(t, t[0]).square().sum(), lambda t: gd.clip(t, -0.5, 0.5).square().sum(),
                     lambda t: gd.cumulative_sum(t, axis=0, include_initial=True).square().sum(), lambda t: (t ** 2).sum(),
                     lambda t: gd.linalg.cross(t[:, :3], t[0, 1:] + 1).square().sum(), lambda t: gd.copysign(t, -t).square().sum()):
        assert gd.testing.gradcheck(function, x) < 1e-6
