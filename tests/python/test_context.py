"""Contexts of one's own: devices, threads that compute at the same time, what goes where when it ends."""
import copy
import gc
import pickle
import threading
import time

import pytest

import gradus as gd
from conftest import environment
from gradus import nn, optim

DEVICES = [name for name in gd.devices() if name != "cpu"]


@pytest.fixture(autouse=True)
def contexts_end():
    """The contexts that a test opens are closed after it."""
    before = {home.handle for home in gd._context._homes.values()}
    yield
    gc.collect()
    gd.memory()
    left = [home for handle, home in gd._context._homes.items() if handle not in before and home not in gd._context._of_devices.values()]
    assert not left


def run_all(*works):
    """Each in a thread of its own; what they give."""
    results = [None] * len(works)

    def run(i):
        try:
            results[i] = works[i]()
        except BaseException as error:
            results[i] = error
    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(works))]
    [t.start() for t in threads]
    [t.join(120) for t in threads]
    return results


def test_ops_work_in_the_context_of_their_operands():
    x, context = gd.ones(3), gd.Context(threads=1, seed=4)
    with context:
        y = gd.full(3, 2.0)
        assert gd.ones(2).context == context and gd.tensor([1]).context == context and gd.rand(2).context == context
        assert (x + 1).context == x.context != context
    assert y.context == context and repr(context) == "<gradus Context 'cpu', 1 thread>" and context.isa == x.context.isa
    assert context.extensions == x.context.extensions and (context.isa == "avx512" or not context.extensions)
    for z in (y * 2, 2 - y, y + [1, 2, 3], y.sum(), y[1:], y == 2, gd.stack([y, y]), gd.zeros_like(y), gd.zeros_like(y, dtype="int32"), -y,
              y.reshape(3, 1), gd.softmax(y, axis=0), y ** 2 ** 60):
        assert z.context == context
    assert gd.ones(2).context != context
    with pytest.raises(gd.InvalidError, match="gd_add: operands belong to different contexts"):
        x + y
    with pytest.raises(gd.InvalidError, match="different contexts"):
        gd.stack([x, y])
    assert (x + y.to(x.context)).tolist() == [3, 3, 3] and x.to(x.context) is x


def test_blocks_nest_and_are_of_their_thread():
    outer, inner = gd.Context(threads=1), gd.Context(threads=2)
    here = gd.ones(1).context
    with outer:
        with inner, pytest.raises(ZeroDivisionError):
            with outer:
                1 / 0
        assert gd.ones(1).context == outer
        assert run_all(lambda: gd.ones(1).context) == [here]
        with inner:
            assert gd.ones(1).context == inner
    assert gd.ones(1).context == here and here != outer


def test_threads_may_share_a_context_that_is_no_default_one():
    context, here = gd.Context(threads=1), gd.ones(1).context
    both = threading.Barrier(2, timeout=60)
    other = gd.Context(threads=2)

    def work(outer):
        with outer:
            both.wait()
            with context:
                both.wait()
                total = sum((gd.ones(4) * i).sum().item() for i in range(50))
                both.wait()
            return total, gd.ones(1).context == outer
    assert run_all(lambda: work(here), lambda: work(other)) == [(4900.0, True)] * 2


def test_numbers_are_named():
    def convolved(numbers):
        with gd.Context(numbers=numbers):
            gd.seed(1)
            return gd.conv2d(gd.randn(1, 32, 16, 16), gd.randn(32, 32, 3, 3), padding=1).numpy()
    exact, fast = convolved("exact"), convolved("fast")
    assert (exact != fast).any()
    assert abs(exact - fast).max() < 1e-3
    with pytest.raises(gd.InvalidError, match="one of .*exact, library, tf32, fast"):
        gd.Context(numbers="quick")
    with pytest.raises(gd.UnsupportedError, match="exact or fast"):
        gd.Context(numbers="tf32")


def test_random_numbers_and_memory_are_the_contexts():
    def drawn():
        return gd.rand(5).tolist()
    gd.seed(3)
    expected = [drawn(), nn.Linear(3, 4).weight.tolist(), drawn()]
    gd.seed(3)
    first = drawn()
    with gd.Context(threads=1):
        gd.seed(3)
        assert [drawn(), nn.Linear(3, 4).weight.tolist(), drawn()] == expected
        live = gd.memory().live_tensors
        t = gd.ones(3)
        assert gd.memory().live_tensors == live + 1
        del t
    assert [first, nn.Linear(3, 4).weight.tolist(), drawn()] == expected
    with gd.Context(memory_limit=1 << 20), pytest.raises(gd.OutOfMemoryError, match=r'largest tensor is "0.weight", f32 \[300, 200\]'):
        model = nn.Sequential(nn.Linear(300, 200))
        optim.SGD(model, lr=0.1)
        gd.ones(1 << 20)


def test_no_grad_is_the_current_contexts():
    context = gd.Context(threads=1)
    w = gd.ones(2, ).requires_grad_()
    with context:
        v = gd.ones(2).requires_grad_()
        with gd.no_grad():
            assert not (v * 2).requires_grad and (w * 2).requires_grad
            v[0] = 3
            with pytest.raises(gd.StateError):
                w[0] = 3
        assert (v * 2).requires_grad
        with pytest.raises(gd.StateError, match="gradients do not pass from one context to another"):
            w.to(context)
        assert w.detach().to(context).context == context


def training(threads=1):
    """Losses of a small model that is trained from the same seed."""
    gd.seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 3))
    adam = optim.Adam(model, lr=0.05)

    @gd.compile
    def step(x, y):
        return adam.minimize(gd.cross_entropy(model(x), y))
    x, y = gd.randn(32, 4), gd.randint(0, 3, 32)
    return [step(x, y).item() for _ in range(30)]


def test_threads_train_models_of_their_own():
    expected = training()

    def in_a_context():
        with gd.Context(threads=1):
            return training()
    assert run_all(*[in_a_context] * 4) == [expected] * 4


def test_threads_are_in_their_contexts_at_once():
    """Both record a function, or are called back, at the same time: with one lock for all neither would go on."""
    meeting = threading.Barrier(2, timeout=60)

    def body(x):
        meeting.wait()
        return (x * 2).exp()

    def recorded():
        with gd.Context(threads=1):
            return gd.compile(body)(gd.ones(2)).tolist()

    def called_back():
        with gd.Context(threads=1):
            return gd.checkpoint(body, gd.ones(2)).tolist()
    expected = gd.exp(gd.ones(2) * 2).tolist()
    assert run_all(recorded, called_back) == [expected, expected]
    assert run_all(called_back, called_back) == [expected, expected]


def test_a_server_serves_while_another_thread_is_in_a_long_call():
    """The long call lets go of the GIL, and holds the lock of its own context only."""
    begun, ended, served = threading.Event(), threading.Event(), []

    def long():
        with gd.Context(threads=1):
            a = gd.ones((700, 700)) / 700
            power = gd.compile(lambda a: sum([gd.sin(a @ a @ a @ a) for _ in range(1)], a * 0).sum())
            power(a)
            begun.set()
            for _ in range(3):
                power(a)
            ended.set()

    def serve():
        with gd.Context(threads=1):
            begun.wait()
            model = gd.compile(lambda x: (x @ x).sum())
            x = gd.ones((3, 3))
            while not ended.is_set():
                served.append(model(x).item() + (x + 1).sum().item())
                time.sleep(0.0005)
    assert run_all(long, serve) == [None, None]
    assert set(served) <= {45.0}


def test_one_function_is_called_in_several_contexts():
    expected = [((i + 1.0) ** 2 * 9) for i in range(4)]
    f = gd.compile(lambda x, y=None: (x @ x).sum() * 3)

    def call(i):
        with gd.Context(threads=1):
            x = gd.full((1, 1), i + 1.0) * 3 ** 0.5
            return [round(f(x).item(), 3) for _ in range(20)]
    assert run_all(*[lambda i=i: call(i) for i in range(4)]) == [[e] * 20 for e in expected]
    with gd.Context(threads=1):
        inside = gd.ones((2, 2))
    with pytest.raises(gd.InvalidError, match="input 1 belongs to another context"):
        gd.compile(lambda x, y: x @ y)(gd.ones((2, 2)), inside)


def test_what_goes_on_another_thread_goes_to_its_own_context():
    context = gd.Context(threads=1)
    with context:
        live = gd.memory().live_tensors
        box = [gd.ones(10) for _ in range(20)]
        box += [gd.compile(lambda x: x + 1), optim.SGD([gd.ones(2).requires_grad_()], lr=0.1)]
        box[-2](box[0])
    run_all(box.clear)
    with context:
        gc.collect()
        assert gd.memory().live_tensors == live


def test_many_threads_many_contexts_and_one_that_is_shared():
    shared = gd.ones((16, 16))
    step = gd.compile(lambda a: (a @ a).sum())
    expected = step(shared).item()

    def work(k):
        with gd.Context(threads=1):
            mine = gd.compile(lambda a: (a * k).sum())
            x = gd.ones(8)
            for i in range(60):
                assert mine(x).item() == 8 * k and (x + i).sum().item() == 8 + 8 * i
                assert step(shared).item() == expected and (shared + i).context == shared.context
                assert shared.to(x.context).sum().item() == 256
        return k
    assert run_all(*[lambda k=k: work(k) for k in range(6)]) == list(range(6))


def test_a_context_lives_as_long_as_anything_of_it():
    with gd.Context(threads=1):
        x = gd.ones(3)
        model = nn.Linear(3, 2)
        model(x)
    gc.collect()
    assert (x + 1).tolist() == [2, 2, 2] and x.context.threads == 1
    del x
    gc.collect()
    gd.memory()
    assert model.weight.context.threads == 1
    numbers = len(gd._context._homes)
    del model
    gc.collect()
    gd.memory()
    assert len(gd._context._homes) == numbers - 1


def test_models_move():
    gd.seed(2)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm(), nn.Linear(4, 1))
    x = gd.randn(8, 3)
    expected = model(x).tolist()
    context = gd.Context(threads=1)
    other = copy.deepcopy(model).to(context)
    assert all(p.context == context for p in [*other.parameters(), *other.buffers()])
    assert all(p.requires_grad for p in other.parameters()) and model[0].weight.context == x.context
    with context:
        again = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm(), nn.Linear(4, 1))
        again.load_state_dict(model.state_dict())
    there = x.to(context)
    other.eval(), again.eval(), model.eval()
    expected = model(x).tolist()
    assert other(there).tolist() == again(there).tolist() == expected
    assert optim.SGD(again, lr=0.1).minimize(again(there).sum()).context == context
    with pytest.raises(gd.InvalidError, match="different contexts"):
        other(x)
    assert copy.deepcopy(there).context == context and pickle.loads(pickle.dumps(there)).context == x.context


def test_vmap_and_gradients_in_another_context():
    with gd.Context(threads=1) as context:
        w = gd.tensor([1.0, 2.0])
    loss = lambda w, x: (w * x).sum() ** 2  # noqa: E731
    with context:
        each = gd.vmap(gd.grad(loss), in_axes=(None, 0))(w, gd.tensor([[1.0, 0.0], [0.0, 1.0]]))
    assert each.context == context and each.tolist() == [[2, 0], [0, 4]]


def test_an_unknown_device_lists_those_there_are():
    for make in (lambda: gd.Context("abacus"), lambda: gd.ones(2, device="opencl:77"), lambda: gd.ones(2).to("opencl:77")):
        with pytest.raises(gd.InvalidError, match='no device is called "(abacus|opencl:77)"; there are "cpu"'):
            make()
    with pytest.raises(gd.InvalidError, match="0 threads"):
        gd.Context(threads=0)
    with pytest.raises(TypeError, match="no dtype"):
        gd.ones(2).to("floot32")


@pytest.mark.parametrize("device", DEVICES)
def test_devices(device):
    np = pytest.importorskip("numpy")
    with gd.Context(device) as context:
        x = gd.arange(6, dtype="float32").reshape(2, 3)
        assert x.device == context.device == device
        assert (x @ x.T).tolist() == [[5, 14], [14, 50]] and (x.T * 2).numpy().tolist() == [[0, 6], [2, 8], [4, 10]]
        x[0, 1] = 7
        y = gd.tensor(np.arange(3))
        f = gd.compile(lambda a, b: (a * b).sum(axis=1))
        assert f(x, y).tolist() == [11, 14] and f(x, y).device == device
        expected = training()
        assert gd.tensor([1.0]).device == device
    assert [round(v, 4) for v in training()] == [round(v, 4) for v in expected]
    assert np.asarray(x).tolist() == [[0, 7, 2], [3, 4, 5]] and f"{x[0]:.0f}" == "[0 7 2]" and "7." in repr(x)
    assert pickle.loads(pickle.dumps(x)).device == "cpu" and x.to("cpu").tolist() == x.tolist()
    assert gd.ones(2).to(device).device == device and gd.ones(2, device=device).device == device
    assert gd.zeros_like(x).device == device and gd.zeros_like(x, device="cpu").device == "cpu"
    if not x.is_in_host_memory:
        with pytest.raises(ValueError, match="copy"):
            np.asarray(x, copy=False)
        with pytest.raises(BufferError, match="opencl"):
            memoryview(x.data)
        assert not hasattr(x, "__array_interface__")
        assert x.__dlpack_device__()[0] == 4
        with context:
            shared = gd.from_dlpack(x, copy=False)
            shared[0, 0] = 9
            assert shared.device == device and x.tolist() == [[9, 7, 2], [3, 4, 5]] == gd.from_dlpack(x, copy=True).tolist()
            x[0, 0] = 0
        with gd.Context(device):  # on OpenCL memory is that of a context
            assert gd.from_dlpack(x).tolist() == x.tolist()
            with pytest.raises(BufferError, match="another OpenCL context"):
                gd.from_dlpack(x, copy=False)
        with pytest.raises(BufferError, match="without a copy"):
            x.__dlpack__(dl_device=(1, 0), copy=False)
        with pytest.raises(BufferError, match="without a copy"):
            gd.from_dlpack(x, copy=False)
        assert np.from_dlpack(gd.ones(2)).tolist() == [1, 1] and gd.from_dlpack(x).tolist() == x.tolist()


@pytest.mark.parametrize("where", [lambda: gd.Context(threads=1), *[lambda name=name: gd.Context(name) for name in DEVICES]],
                         ids=["context", *DEVICES])
def test_fit_brings_batches_to_the_model(where):
    def losses(place, moved):
        gd.seed(3)
        x = gd.randn(60, 4)
        loader = gd.data.DataLoader(gd.data.from_arrays(x=x, y=(x[:, 0] > 0).to("int64")), 20, shuffle=True, seed=1)
        with place or x.context:
            gd.seed(4)
            if moved:
                with x.context:
                    gd.seed(4)
                    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to(place or x.context)
            else:  # parameters come with the first batch
                model = nn.Sequential(nn.Linear(None, 8), nn.ReLU(), nn.Linear(None, 2))
            sgd = optim.SGD(model, lr=0.5)
        made = gd.fit(model, sgd, loader, 3, validation=loader, metrics={"accuracy": gd.accuracy}, progress=False)
        assert not place or all(p.context == place for p in model.parameters())
        assert gd.evaluate(model, loader)["loss"] == made[-1]["validation_loss"]
        return [round(value, 5) for record in made for value in record.values()]
    place = where()
    assert losses(place, True) == losses(place, False) == losses(None, True)


def test_the_first_context_may_be_ones_own():
    import subprocess
    import sys
    run = subprocess.run([sys.executable, "-X", "dev", "-c", "import gradus as gd\nwith gd.Context(threads=1):\n  x = gd.ones(2)\n"
                          "  try: x @ gd.ones(3)\n  except gd.ShapeError: pass\nprint((x + 1).tolist(), len(gd._context._homes))\n"
                          "f = gd.compile(lambda x: x * 2)\nprint(f(x).tolist(), x.context.threads, len(gd._context._homes))\n"],
                         capture_output=True, text=True, timeout=60, env=environment())
    assert run.stdout == "[2.0, 2.0] 1\n[2.0, 2.0] 1 1\n" and not run.stderr, (run.stdout, run.stderr)
