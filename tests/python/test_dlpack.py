"""Memory shared with other libraries by DLPack, both ways."""
import gc
import threading

import pytest

import gradus as gd
from gradus._lib import Error

DTYPES = ["float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]


@pytest.fixture
def np():
    return pytest.importorskip("numpy")


def knows_read_only(np):
    """NumPy since 2.1."""
    return np.lib.NumpyVersion(np.__version__) >= "2.1.0"


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def jax():
    return pytest.importorskip("jax")


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_both_ways(np, dtype):
    a = np.arange(6).reshape(2, 3).astype(dtype)
    t = gd.from_dlpack(a)
    assert t.dtype.name == dtype and t.shape == (2, 3) and t._address == a.ctypes.data
    assert t.tolist() == a.tolist()
    b = np.from_dlpack(t)
    assert b.dtype == a.dtype and b.ctypes.data == a.ctypes.data
    assert (b == a).all()


def test_strides_are_shared(np):
    a = np.arange(24, dtype="float32").reshape(4, 6)[::-2, 1::2].T
    t = gd.from_dlpack(a, copy=False)
    assert t.tolist() == a.tolist() and t.strides == tuple(n // 4 for n in a.strides)
    a[0, 0] = -1
    assert t[0, 0].item() == -1
    x = gd.arange(6).reshape(2, 3).T[1:]
    assert np.from_dlpack(x).tolist() == x.tolist() and np.from_dlpack(x).strides == (8, 24)
    assert np.from_dlpack(gd.zeros((2, 0))).shape == (2, 0) and np.from_dlpack(gd.tensor(3.0)).item() == 3


def test_memory_lives_as_long_as_it_is_shared(np):
    before = gd.memory().live_tensors
    t = gd.arange(5)
    a = np.from_dlpack(t)
    del t
    gc.collect()
    assert gd.memory().live_tensors == before + 1 and a.tolist() == [0, 1, 2, 3, 4]
    box = [a]
    del a
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()
    assert gd.memory().live_tensors == before


def test_a_capsule_that_nobody_takes():
    before = gd.memory().live_tensors
    for version in (None, (1, 0)):
        capsule = gd.ones(3).__dlpack__(max_version=version)
        assert gd.memory().live_tensors == before + 1
        assert ("versioned" in repr(capsule)) == (version is not None)
        with pytest.raises(KeyError):  # the destructor runs while an exception is pending
            held = [capsule]
            del capsule
            {}[held.pop() and 1]
        assert gd.memory().live_tensors == before
    capsule = gd.ones(3).__dlpack__()
    assert gd.from_dlpack(capsule).tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="taken out"):
        gd.from_dlpack(capsule)


def test_read_only_memory_is_copied(np):
    a = np.arange(3)
    a.flags.writeable = False
    t = gd.from_dlpack(a)
    assert t.tolist() == [0, 1, 2] and t._address != a.ctypes.data
    with pytest.raises(BufferError):
        gd.from_dlpack(a, copy=False)
    b = np.arange(3)
    assert gd.from_dlpack(b, copy=True)._address != b.ctypes.data


def test_what_requires_a_gradient_is_read_only(np):
    w = gd.ones(3).requires_grad_()
    if knows_read_only(np):
        assert not np.from_dlpack(w).flags.writeable and np.from_dlpack(w, copy=True).tolist() == [1, 1, 1]
    else:
        with pytest.raises(BufferError, match="requires a gradient"):
            np.from_dlpack(w)
    assert np.from_dlpack(w.detach()).flags.writeable == knows_read_only(np)
    with pytest.raises(BufferError, match="requires a gradient"):
        w.__dlpack__()
    assert gd.from_dlpack(w).tolist() == [1, 1, 1]


def test_refusals():
    with pytest.raises(BufferError, match="no value|traced"):
        gd.compile(lambda x: x.__dlpack__())(gd.ones(2))
    with pytest.raises(BufferError):
        gd.ones(2).__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError):
        gd.ones(2).__dlpack__(stream=1)
    with pytest.raises(TypeError, match="__dlpack__"):
        gd.from_dlpack([1, 2])
    with pytest.raises(ValueError, match="device"):
        gd.from_dlpack(gd.ones(2), device="tpu")
    assert gd.ones(2).__dlpack_device__() == (1, 0)


def test_an_old_producer_is_asked_without_wishes():
    class Old:
        def __dlpack__(self):
            return gd.arange(3).__dlpack__()
    assert gd.from_dlpack(Old()).tolist() == [0, 1, 2]


def test_complex_numbers_are_refused_and_stay_their_owners(np):
    a = np.ones(3, "complex64")
    with pytest.raises(TypeError) as caught:
        gd.from_dlpack(a)
    assert isinstance(caught.value, Error)
    assert a.tolist() == [1, 1, 1]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int64", "bool", "uint8"])
def test_torch_both_ways(torch, dtype):
    p = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype)).T
    t = gd.from_dlpack(p)
    assert t.dtype.name == dtype and t._address == p.data_ptr() and t.strides == p.stride()
    back = torch.from_dlpack(t)
    assert back.data_ptr() == p.data_ptr() and back.dtype == p.dtype and torch.equal(back, p)
    mine = gd.ones((2, 3), dtype).T
    theirs = torch.utils.dlpack.from_dlpack(mine.__dlpack__())
    assert theirs.shape == (3, 2) and theirs.data_ptr() == mine._address
    if dtype == "float32":
        theirs[0, 0] = 7
        assert mine[0, 0].item() == 7


def test_jax_both_ways(jax):
    import jax.numpy as jnp
    t = gd.from_dlpack(jnp.arange(6, dtype="float32").reshape(2, 3))
    assert t.tolist() == [[0, 1, 2], [3, 4, 5]] and t.dtype.name == "float32"
    x = gd.arange(6, dtype="float32").reshape(2, 3)
    assert jax.dlpack.from_dlpack(x).tolist() == x.tolist()
