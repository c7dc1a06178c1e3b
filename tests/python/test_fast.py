"""gradus._fast: that it means what Python's functions over ctypes mean, and what it does for itself: lifetimes, the lock, threads."""
import gc
import inspect
import pickle
import subprocess
import sys
import threading
import weakref

import pytest

import gradus as gd
from conftest import environment
from gradus import _context, _lib, _native, _ops

fast = _lib.fast
needs_fast = pytest.mark.skipif(fast is None, reason="the package runs over ctypes")


def run(code, way):
    return subprocess.run([sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, timeout=120,
                          env={**environment(), "GRADUS_PYTHON": way})


def test_the_environment_chooses():
    code = "import gradus as gd; print(gd._lib.fast is None, type(gd.relu).__name__, (gd.ones(3) + 1).tolist())"
    done = run(code, "ctypes")
    assert done.stdout == "True function [2.0, 2.0, 2.0]\n", done.stderr
    if fast is not None:
        done = run(code, "fast")
        assert done.stdout == "False builtin_function_or_method [2.0, 2.0, 2.0]\n", done.stderr


@needs_fast
def test_functions_show_what_python_functions_show():
    assert len(_native.PYTHON) > 200
    for name, written in _native.PYTHON.items():
        shown, own = inspect.signature(getattr(_ops, name)), inspect.signature(written)
        assert [(p.name, p.default, p.kind) for p in shown.parameters.values()] == \
            [(p.name, p.default, p.kind) for p in own.parameters.values()], name
        assert inspect.cleandoc(getattr(_ops, name).__doc__) == inspect.cleandoc(written.__doc__), name
        assert pickle.loads(pickle.dumps(getattr(_ops, name))) is getattr(_ops, name)
    assert str(inspect.signature(gd.Tensor.softmax)) == "(self, /, axis=-1)"


def x(*shape, dtype="float32", requires_grad=False):
    t = (gd.arange(0, gd.ones(shape).size, dtype="float64") % 7 - 3).reshape(shape) / 2
    t = t.to(dtype)
    return t.requires_grad_() if requires_grad else t


CALLS = [
    ("add", lambda f: f(x(2, 3), x(3))), ("add", lambda f: f(x(2, 3), 1.5)), ("add", lambda f: f(2, x(4, dtype="int64"))),
    ("add", lambda f: f(x(3, dtype="int32"), 0.5)), ("add", lambda f: f(x(3, dtype="bool"), 1)), ("sub", lambda f: f(1, x(3))),
    ("mul", lambda f: f(x(3), [1, 2, 3])), ("mul", lambda f: f(True, x(3))), ("div", lambda f: f(3, x(4, dtype="float64"))),
    ("add", lambda f: f(x(2, dtype="int64"), 2 ** 60)), ("add", lambda f: f(y=x(2), x=x(2))),
    ("pow", lambda f: f(x(4).abs() + 1, 2.0)), ("matmul", lambda f: f(x(2, 3), x(3, 2))), ("relu", lambda f: f(x(5, requires_grad=True))),
    ("relu", lambda f: f([1.0, -1.0])), ("sum", lambda f: f(x(2, 3))), ("sum", lambda f: f(x(2, 3), 1, True)),
    ("sum", lambda f: f(x(2, 3), axis=(0, 1), keepdims=True)), ("sum", lambda f: f(x(2, 3), axis=[0])),
    ("softmax", lambda f: f(x(2, 3), axis=0)), ("reshape", lambda f: f(x(2, 3), (3, -1))), ("reshape", lambda f: f(x(6), shape=6)),
    ("cast", lambda f: f(x(3), gd.int32)), ("cast", lambda f: f(x(3), "int32")), ("concat", lambda f: f([x(2), x(3)])),
    ("stack", lambda f: f((x(2), x(2)), axis=1)), ("concat", lambda f: f([x(2), [1.0]])), ("zeros", lambda f: f((2, 3))),
    ("zeros", lambda f: f(4, gd.float64)), ("where", lambda f: f(x(3) > 0, x(3), 0.0)), ("linear", lambda f: f(x(2, 3), x(3, 4))),
    ("linear", lambda f: f(x(2, 3), x(3, 4), x(4))), ("linear", lambda f: f(x(2, 3), x(3, 4), bias=None)),
    ("conv2d", lambda f: f(x(1, 2, 5, 5), x(3, 2, 3, 3), padding=1)), ("conv2d", lambda f: f(x(1, 2, 5, 5), x(3, 2, 3, 3), stride=(2, 1))),
    ("cross_entropy", lambda f: f(x(3, 4), gd.tensor([0, 1, 3]))), ("transpose", lambda f: f(x(2, 3))), ("gelu", lambda f: f(x(4))),
    ("var", lambda f: f(x(5), correction=1)), ("layer_norm", lambda f: f(x(2, 4), x(4), x(4))), ("clip", lambda f: f(x(5), -1, 1)),
]
WRONG = [
    ("add", lambda f: f(x(2), x(3))), ("add", lambda f: f(x(2))), ("add", lambda f: f(x(2), "a")), ("relu", lambda f: f(None)),
    ("sum", lambda f: f(x(2), axis=3)), ("sum", lambda f: f(x(2), dimension=0)), ("softmax", lambda f: f(x(2), 0, 0)),
    ("add", lambda f: f(x(2, dtype="uint8"), 300)), ("matmul", lambda f: f(x(2, 3), x(2, 3))), ("reshape", lambda f: f(x(6), (4, -1))),
    ("add", lambda f: f(x(2), x(2), x=x(2))), ("concat", lambda f: f([])), ("zeros", lambda f: f((-1,))), ("reshape", lambda f: f(x(6), 2.0)),
]


@needs_fast
@pytest.mark.parametrize("name, call", [c for c in CALLS if c[0] in _native.PYTHON])
def test_calls_give_what_python_gives(name, call):
    ours, written = call(getattr(_ops, name)), call(_native.PYTHON[name])
    assert type(ours) is gd.Tensor and ours.dtype is written.dtype and ours.shape == written.shape
    assert ours.requires_grad == written.requires_grad and ours.tobytes() == written.tobytes()


@needs_fast
@pytest.mark.parametrize("name, call", WRONG)
def test_errors_are_those_of_python(name, call):
    caught = []
    for function in (getattr(_ops, name), _native.PYTHON[name]):
        with pytest.raises(Exception) as info:
            call(function)
        caught.append((info.type, str(info.value)))
        del info
    assert caught[0] == caught[1]


OPERATORS = ["t + u", "t + 1.5", "2 - t", "t * [1.0, 2.0, 3.0]", "t / 3", "t // 2", "t % 2", "t ** 2.0", "2.0 ** t", "t @ u", "-t", "abs(t)",
             "t < u", "t >= 0", "0 == t", "t != u", "t == None", "t != None", "i & 3", "i | i", "1 ^ i", "~i", "i << 1", "i >> 1", "+t", "t[1]",
             "t[-1]", "t[0:2]", "t[None]", "m[1, 0]", "m[1]", "m.reshape(3, 2)", "m.reshape((6,))", "m.reshape(-1)", "m.view(6)", "t.item", "s.item()",
             "m.shape", "m.T.strides", "m.ndim", "m.size", "m.dtype", "t.requires_grad", "w.requires_grad", "w.detach().requires_grad", "len(m)",
             "m.sum(0)", "m.sum(axis=1, keepdims=True)", "i.item", "b.item()", "h.item()", "t + 'a'", "t[3]", "s[0]", "t + m.T", "m.reshape(4)", "m.item()",
             "'a' + t", "t @ 2", "i + 0.5", "divmod(t, 2)", "pow(t, 2, 3)", "hash(t) == hash(t)", "bool(m)"]


def test_operators_mean_the_same_both_ways():
    code = """
import gradus as gd
t, u, i = gd.tensor([1.0, -2.0, 3.0]), gd.tensor([0.5, 4.0, -1.0]), gd.tensor([1, 2, 3])
m, w, s, b, h = gd.arange(6).reshape(2, 3), gd.ones(2).requires_grad_(), gd.tensor(2.5), gd.tensor(True), gd.tensor(1.5, "float16")
for text in %r:
    try:
        result = eval(text)
        print(text, "->", "method" if callable(result) else repr(result))
    except Exception as error:
        print(text, "->", type(error).__name__, isinstance(error, gd.Error) and error)
""" % OPERATORS
    ways = [run(code, way) for way in (["ctypes"] if fast is None else ["ctypes", "fast"])]
    assert ways[0].stdout.count("\n") >= len(OPERATORS), ways[0].stderr
    assert ways[0].stdout == ways[-1].stdout and not ways[-1].stderr


class Mine(gd.Tensor):
    pass


@needs_fast
def test_a_tensor_is_an_object_of_its_own_kind():
    t = gd.ones(3)
    assert not gc.is_tracked(t) and type(t) is gd.Tensor is fast.Tensor and sys.getsizeof(t) <= 32
    seen = weakref.ref(t)
    assert seen() is t
    del t
    assert seen() is None
    mine = Mine([1.0, 2.0])
    mine.note = "kept"
    assert (mine + 1).tolist() == [2.0, 3.0] and type(mine + 1) is gd.Tensor and (1.5 * mine).tolist() == [1.5, 3.0]
    assert pickle.loads(pickle.dumps(mine)).tolist() == [1.0, 2.0]
    closed = gd.Tensor.__new__(gd.Tensor)
    with pytest.raises((gd.Error, TypeError)):
        closed + 1
    with pytest.raises((gd.Error, TypeError)):
        gd.relu(closed)


@needs_fast
def test_no_objects_are_left_behind():
    t, m = gd.ones(3), gd.ones((2, 3))

    def work():
        for _ in range(500):
            t + t, t + 1.5, m.sum(axis=1), m.reshape(3, 2), m.shape, t[0].item(), gd.concat([t, t], axis=0), t == t
            for call in (lambda: t + m.T, lambda: m.sum(7), lambda: gd.relu(None), lambda: t + "a"):
                try:
                    call()
                except Exception:
                    pass
    work()
    gc.collect()
    before = sys.getallocatedblocks()
    work()
    gc.collect()
    assert abs(sys.getallocatedblocks() - before) < 200


def test_the_lock_may_be_taken_again_by_its_thread():
    lock, order = _context.home().lock, []
    ready = threading.Event()

    def other():
        ready.set()
        with lock:
            order.append("other")
    with lock:
        with lock:
            thread = threading.Thread(target=other)
            thread.start()
            ready.wait()
            assert (gd.ones(2) + 1).tolist() == [2, 2]
        order.append("first")
    thread.join()
    assert order == ["first", "other"]
    with pytest.raises(RuntimeError):
        lock.release()


def test_threads_wait_for_one_another():
    """Ops, long calls without the GIL, objects that end on other threads, all at once."""
    step = gd.compile(lambda a: (a @ a).sum() + a[0, 0])
    expected = step(gd.ones((64, 64))).item()
    errors, dropped = [], [gd.ones(3) for _ in range(300)]

    def work(k):
        try:
            for i in range(150):
                if k == 0:
                    assert step(gd.ones((64, 64))).item() == expected
                elif k == 1 and dropped:
                    dropped.pop()
                else:
                    with _context.home().lock:
                        t = gd.full((4,), float(i)) + k
                    assert t.sum().item() == 4.0 * (i + k)
        except BaseException as error:
            errors.append(error)
    threads = [threading.Thread(target=work, args=(k % 4,)) for k in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not errors, errors


def test_a_trace_keeps_other_threads_out():
    inside, results = threading.Event(), []

    def other():
        inside.wait()
        results.append((gd.ones(3) * 2).tolist())
    thread = threading.Thread(target=other)

    @gd.compile
    def step(a):
        b = a + 1
        inside.set()
        import time
        time.sleep(0.05)
        return b * 2
    thread.start()
    assert step(gd.ones(2)).tolist() == [4, 4]
    thread.join()
    assert results == [[2, 2, 2]] and "sleep" not in step.plan()


def test_compiled_calls_of_tensors_alone():
    """The short way, and what has to leave it: other shapes and constants, a module's training flag, a trace, keywords, numbers."""
    calls = []

    @gd.compile
    def step(a, b, scale=2):
        calls.append(scale)
        return {"sum": a + b, "scaled": [a * scale]}

    @gd.compile
    def outer(a):
        return step(a, a)["sum"] * 2

    dropout = gd.nn.Dropout(1.0)
    drop = gd.compile(lambda a: dropout(a))
    for _ in range(3):
        assert step(gd.ones(2), gd.ones(2))["sum"].tolist() == [2, 2]
        assert step(gd.ones(3), gd.ones(3))["scaled"][0].tolist() == [2] * 3
        assert step(gd.ones(2), gd.ones(2), 3)["scaled"][0].tolist() == [3, 3]
        assert step(gd.ones(2), b=gd.ones(2))["sum"].tolist() == [2, 2]
        assert step(gd.ones(2), [1.0, 5.0])["sum"].tolist() == [2, 6]
        assert outer(gd.ones(2)).tolist() == [4, 4]
        assert drop(gd.ones(2)).tolist() == [0, 0]
        dropout.eval()
        assert drop(gd.ones(2)).tolist() == [1, 1]
        dropout.train()
    assert step.mode == "compiled" and calls.count(3) == 1
    with pytest.raises(gd.ShapeError):
        step(gd.ones(2), gd.ones(3))
    first = step(gd.ones(2), gd.ones(2))["sum"]
    assert step(gd.zeros(2), gd.ones(2))["sum"].tolist() == [1, 1] and first.tolist() == [2, 2]
