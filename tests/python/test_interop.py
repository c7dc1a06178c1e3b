"""Tensors beside the rest of Python: NumPy's protocols, buffers, pickle, copies, printing."""
import copy
import pickle
import sys

import numpy as np
import pytest

import gradus as gd

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]


def sample(dtype):
    return gd.asarray(np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle(dtype, protocol):
    x = sample(dtype)
    for t in (x, x.T, x[:, ::2], x[:0], x[1, 1]):
        again = pickle.loads(pickle.dumps(t, protocol))
        assert again.dtype == t.dtype and again.shape == t.shape and again.tolist() == t.tolist()


def test_pickle_out_of_band():
    x = gd.arange(1000.0).reshape(10, 100)
    buffers = []
    small = pickle.dumps(x, 5, buffer_callback=buffers.append)
    assert len(small) < 300 and len(buffers) == 1 and buffers[0].raw().nbytes == 4000
    x[0, 0] = 7  # the buffer is the tensor's memory
    again = pickle.loads(small, buffers=buffers)
    assert again[0, 0].item() == 7 and again.shape == (10, 100)
    again[0, 0] = 8
    assert x[0, 0].item() == 7
    read_only = pickle.loads(small, buffers=[bytes(b.raw()) for b in buffers])
    assert read_only.tolist() == x.tolist()
    buffers.clear()
    half = gd.ones(3, dtype="bfloat16")
    assert pickle.loads(pickle.dumps(half, 5)).tolist() == [1, 1, 1]


class Named(gd.Tensor):
    pass


def test_subclasses_and_leaves_are_kept():
    w = gd.ones(2).requires_grad_()
    for again in (pickle.loads(pickle.dumps(w, 5)), copy.deepcopy(w)):
        assert again.requires_grad and again is not w
        (again * 3).sum().backward()
        assert again.grad.tolist() == [3, 3] and w.grad is None
    named = Named([1.0, 2.0])
    for again in (pickle.loads(pickle.dumps(named)), copy.deepcopy(named)):
        assert type(again) is Named and again.tolist() == [1, 2]
    shared = copy.copy(named)
    named[0] = 5
    assert shared[0].item() == 5
    two = copy.deepcopy([named, named])
    assert two[0] is two[1]


def test_arrays():
    x = sample("float32")
    assert np.asarray(x, dtype="float64").dtype == np.float64 and np.array(x, copy=True).base is None
    array = np.asarray(x)
    array[0, 0] = 9
    assert x[0, 0].item() == 9
    with pytest.raises(ValueError, match="copy"):
        x.__array__("int32", copy=False)
    with pytest.raises(TypeError, match="float32"):
        np.asarray(gd.ones(2, dtype="bfloat16"))
    interface = x.T.__array_interface__
    assert interface["shape"] == (3, 2) and interface["strides"] == (4, 12) and interface["typestr"] == "<f4"


@pytest.mark.parametrize("dtype", DTYPES)
def test_buffers(dtype):
    x = sample(dtype)
    if dtype == "float16":  # of which not every Python has memoryviews
        try:
            memoryview(b"12").cast("e")
        except ValueError:
            with pytest.raises(BufferError, match="float16"):
                x.data
            return
    view = x.data
    assert view.format == np.asarray(x).dtype.char.replace("l", "q").replace("L", "Q") and view.shape == (2, 3) and not view.readonly
    assert view.tobytes() == x.tobytes() == np.asarray(x).tobytes()
    assert gd.asarray(view).tolist() == x.tolist() and gd.asarray(view).dtype == dtype
    view[0, 1] = 0
    assert x[0, 1].item() == 0
    assert bytes(x) == x.tobytes() and bytes(x[0, 0]) == x[0, 0].tobytes()
    if sys.version_info >= (3, 12):
        assert memoryview(x).shape == (2, 3)
    kept = gd.arange(4, dtype="int32").data
    assert kept.tolist() == [0, 1, 2, 3]
    assert gd.ones(2).requires_grad_().data.readonly


def test_format():
    x = gd.tensor([[1.0, 2.5], [-3.25, 4.0]])
    assert f"{x:.1f}" == "[[1.0 2.5] [-3.2 4.0]]" and f"{x[0, 1]:6.2f}" == "  2.50" and f"{x}" == repr(x) == str(x)
    assert f"{gd.asarray([3, 4]):04d}" == "[0003 0004]" and f"{gd.zeros((2, 0)):.1f}" == "[[] []]"
    with pytest.raises(ValueError):
        format(x, "d")


def test_notebooks_show_tables():
    page = gd.tensor([[1.0, 2.5], [3.0, 1e-9]])._repr_html_()
    assert page.count("<tr>") == 2 and page.count("<td>") == 4 and "<td>2.5</td>" in page and "2 × 2, float32" in page
    large = gd.ones((1000, 50)).requires_grad_()._repr_html_()
    assert large.count("<tr>") == 13 and "…" in large and "requires_grad" in large and len(large) < 5000
    for t in (gd.ones((2, 2, 2)), gd.tensor(3), gd.zeros(0)):
        assert "<pre>Tensor(" in t._repr_html_()
    shown = []
    gd.compile(lambda x: shown.append(x._repr_html_()) or x * 2)(gd.ones((2, 2)))
    assert "no value" in shown[0]
