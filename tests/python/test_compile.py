"""Compiled functions."""
import gc
import pickle
import traceback

import pytest

import gradus as gd


def test_arguments_and_results_are_trees():
    calls = []

    @gd.compile
    def f(a, b, *, scale=1, names=("x",)):
        calls.append(scale)
        return {"sum": (a["t"] + b) * scale, "k": (7, None, names), "list": [a["t"]]}
    for _ in range(3):
        r = f({"t": gd.ones(2)}, gd.tensor([1.0, 2.0]), scale=2)
        assert r["sum"].tolist() == [4, 6] and r["k"] == (7, None, ("x",)) and r["list"][0].tolist() == [1, 1]
    assert calls == [2]
    assert f({"t": gd.ones(3)}, gd.ones(3), scale=2)["sum"].tolist() == [4] * 3 and calls == [2, 2]  # another shape
    assert f({"t": gd.ones(3)}, gd.ones(3), scale=3)["sum"].tolist() == [6] * 3 and calls == [2, 2, 3]  # another constant
    assert f.stats.plans == 1 and "kernels" in f.plan()


def test_results_stay():
    @gd.compile
    def f(x):
        return x * 2
    kept = [f(gd.full(2, float(i))) for i in range(4)]
    views = [f(gd.full((2, 2), float(i)))[0] for i in range(4)]
    assert [t.tolist() for t in kept] == [[2.0 * i] * 2 for i in range(4)]
    assert [t.tolist() for t in views] == [[2.0 * i] * 2 for i in range(4)]


def test_a_branch_on_a_value_names_the_users_line():
    @gd.compile
    def f(x):
        y = x * 2
        if y > 0:  # this line
            return y
        return x
    for read in (f, gd.compile(lambda x: x.item()), gd.compile(lambda x: x.numpy()), gd.compile(lambda x: float(x))):
        with pytest.raises(gd.TracingError) as caught:
            read(gd.ones(()))
        if read is f:
            assert any("this line" in (frame.line or "") for frame in traceback.extract_tb(caught.tb))
        del caught
    assert gd.compile(lambda x: gd.where(x > 0, x, -x))(gd.tensor(-2.0)).item() == 2


def test_exceptions_pass():
    @gd.compile
    def f(x, wrong):
        if wrong:
            raise KeyError("mine")
        return x + 1
    for _ in range(3):
        with pytest.raises(KeyError, match="mine"):
            f(gd.ones(2), True)
        assert f(gd.ones(2), False).tolist() == [2, 2]
    with pytest.raises(KeyboardInterrupt):
        gd.compile(lambda x: interrupt())(gd.ones(2))
    with pytest.raises(gd.ShapeError, match="broadcast"):
        gd.compile(lambda x: x + gd.ones(7))(gd.ones(2))
    assert (gd.ones(2) + 1).tolist() == [2, 2]


def interrupt():
    raise KeyboardInterrupt


def test_nested_functions_are_inlined():
    @gd.compile
    def inner(x):
        return x * 3

    @gd.compile
    def outer(x):
        return inner(x) + 1
    assert outer(gd.ones(2)).tolist() == [4, 4] and inner.__name__ == "inner"


def test_results_of_another_form_for_another_shape():
    @gd.compile
    def f(x):
        return [x[i] for i in range(x.shape[0])]
    for n in (2, 3, 2, 3):
        assert [t.item() for t in f(gd.arange(n))] == list(range(n))


def test_methods_and_captured_state():
    class Counter:
        def __init__(self, by):
            self.total, self.by = gd.zeros(()), by

        @gd.compile
        def add(self, x):
            gd.assign(self.total, self.total + x.sum() * self.by)
            return self.total * 1
    a, b = Counter(1), Counter(10)
    for _ in range(3):
        a.add(gd.ones(2))
        b.add(gd.ones(2))
    assert a.total.item() == 6 and b.total.item() == 60


def test_gradients_pass_through_calls():
    @gd.compile
    def f(x):
        return (x * x).sum()
    x = gd.tensor([1.0, 2.0], requires_grad=True)
    f(x).backward()
    assert x.grad.tolist() == [2, 4]


@pytest.mark.parametrize("mode", ["eager", "lazy", "compiled"])
def test_modes_give_the_same_bits(mode):
    def f(x, w):
        y = gd.tanh(x @ w)
        return gd.softmax(y), y.sum()
    gd.seed(3)
    x, w = gd.randn(17, 13), gd.randn(13, 11)
    expected = f(x, w)
    g = gd.compile(f, mode=mode)
    for _ in range(2):
        assert [t.tobytes() for t in g(x, w)] == [t.tobytes() for t in expected]


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
def test_frozen_functions_give_the_same_bits(dtype):
    gd.seed(4)
    x, w = gd.randn(9, 300).to(dtype), gd.randn(300, 117).to(dtype)
    plain, frozen = gd.compile(lambda x: x @ w), gd.compile(lambda x: x @ w, frozen=True)
    for _ in range(2):
        assert frozen(x).tobytes() == plain(x).tobytes()
    assert "1 operand packed once" in frozen.plan() and frozen.stats.packed_bytes > 0
    assert "packed once" not in plain.plan() and plain.stats.packed_bytes == 0
    before = frozen(x).tobytes()
    w.copy_(w + 1)
    assert frozen(x).tobytes() == plain(x).tobytes() != before


def test_none_as_result_and_numpy_as_argument():
    np = pytest.importorskip("numpy")
    total = gd.zeros(2)

    @gd.compile
    def f(x):
        gd.assign(total, total + x)
    assert f(np.ones(2, np.float32)) is None and f(np.ones(2, np.float32)) is None
    assert total.tolist() == [2, 2]


def test_unhashable_constants_are_explained():
    with pytest.raises(TypeError, match="hashable"):
        gd.compile(lambda x, s: x)(gd.ones(2), {1, 2})
    with pytest.raises(ValueError, match="expected one of"):
        gd.compile(lambda x: x, mode="fast")


def test_functions_go_and_pickle():
    live = gd.memory().live_tensors
    f = gd.compile(lambda x: x + gd.ones(100))
    f(gd.ones(100))
    del f
    gc.collect()
    assert gd.memory().live_tensors == live
    assert pickle.loads(pickle.dumps(compiled))(gd.ones(2)).tolist() == [2, 2]


def plain(x):
    return x * 2


compiled = gd.compile(plain)


def test_plans_are_profiled():
    f = gd.compile(lambda x: gd.softmax(x @ x))
    table = f.profile(gd.ones((64, 64)), runs=2)
    assert "matmul" in table and "softmax" in table and "GFLOP/s" in table
    kernels = f.kernels(gd.ones((64, 64)), runs=2)
    assert len(kernels) == f.stats.kernels and {"matmul", "softmax"} <= {k["op"] for k in kernels}
    assert all(k["seconds"] > 0 and k["bytes"] > 0 and k["what"] for k in kernels) and kernels[0]["flops"] == 2 * 64 ** 3
    with pytest.raises(gd.StateError, match="not been called"):
        gd.compile(lambda x: x).plan()


def test_a_plan_as_c(tmp_path):
    f = gd.compile(plain, detached=True)
    f(gd.ones(3))
    f.save_c(str(tmp_path / "f.c"), "twice")
    assert "int twice(" in (tmp_path / "f.c").read_text()
    f.save_c(tmp_path / "f.c", "again")
    assert "int again(" in (tmp_path / "f.c").read_text()
    with pytest.raises(ValueError):
        f.save_c(tmp_path / "f.c", "no name")
    assert "int again(" in (tmp_path / "f.c").read_text() and [p.name for p in tmp_path.iterdir()] == ["f.c"]  # the old file stands
    with pytest.raises(OSError):
        f.save_c(tmp_path / "no folder" / "f.c")


def test_a_profile_is_drawn(tmp_path):
    f = gd.compile(lambda x: gd.softmax(x @ x))
    f.profile(gd.ones((64, 64)), runs=2, trace=tmp_path / "trace.json")
    import json
    events = json.loads((tmp_path / "trace.json").read_text())
    events = events["traceEvents"] if isinstance(events, dict) else events
    assert {"matmul", "softmax"} <= {word for e in events for word in str(e.get("name")).split()}


def test_compiling_again_is_explained():
    layer = gd.nn.Dropout(0.5)

    @gd.compile
    def f(batch, scale=1):
        return layer(batch["x"]) * scale
    x = gd.ones((2, 3))
    f({"x": x})
    f({"x": x})
    f({"x": gd.ones((4, 3))})
    f({"x": gd.ones((4, 3))}, scale=2)
    f({"x": gd.ones((4, 3))}, scale=2.5)
    layer.eval()
    f({"x": gd.ones((4, 3))}, scale=2.5)
    f({"x": gd.ones((4, 3)).requires_grad_()}, scale=2.5)
    lines = f.explain().splitlines()
    assert lines[0] == "f has been compiled 6 times:" and lines[1] == "1. float32 (2, 3): the first call"
    assert lines[2] == "2. batch['x'] is float32 (4, 3), was float32 (2, 3)"
    assert lines[3].startswith("3. constants differ: ") and lines[4] == "4. constants differ: scale is 2.5, was 2"
    assert lines[5] == "5. Dropout is in use now" and lines[6] == "6. batch['x'] requires a gradient now"

    class Model:
        @gd.compile
        def forward(self, x, k):
            return x * k
    model = Model()
    model.forward(x, 1)
    model.forward(x, 2)
    assert model.forward.explain().splitlines()[2] == "2. constants differ: k is 2, was 1"
    with pytest.warns(UserWarning, match="9 different constants.*\n.*the first call"):
        [model.forward(x, k) for k in range(3, 12)]


def test_a_lazy_function_finds_its_plans_again():
    """Recorded at every call, planned once for each recording there is."""
    calls, w = [], gd.ones(3).requires_grad_()
    model = gd.nn.Sequential(gd.nn.Linear(3, 2), gd.nn.Dropout(0.5))

    @gd.compile(mode="lazy")
    def f(x):
        calls.append(1)
        return (model(x * (len(calls) % 2 + 1)) * 0 + (x * w).sum() * (len(calls) % 2 + 1)).sum()
    for i in range(1, 41):
        assert f(gd.ones((1, 3))).item() == 6 * (i % 2 + 1)
    assert len(calls) == f.stats.traces == f.stats.calls == 40 and f.stats.plans == 2
    assert len(f._last.reads) == 1  # the Dropout, once
    with pytest.raises(ZeroDivisionError):
        gd.compile(lambda x: x / (1 // 0), mode="lazy")(w)
    f(gd.ones((1, 3))).backward()
    assert w.grad.tolist() == [4, 4, 4]
    assert f(gd.ones((2, 3))).item() == 12 * 2 and f.stats.plans == 3


def test_preparing_runs_nothing():
    traced = []

    @gd.compile
    def double(x):
        traced.append(1)
        return x * 2.0
    x = gd.ones((3,))
    double.prepare(x)
    assert len(traced) == 1
    assert double(x).tolist() == [2.0, 2.0, 2.0] and len(traced) == 1
