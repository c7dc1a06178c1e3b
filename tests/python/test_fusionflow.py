"""gradus.compat.fusionflow: FusionFlow's API, a test for each row of its checklist, and a program of it that runs unchanged."""
import ctypes
import subprocess
import sys
import textwrap

import pytest

from conftest import environment

np = pytest.importorskip("numpy")
from gradus.compat.fusionflow import FFDataType, FFDevice, Linear, Module, MSELoss, Parameter, SGD, Tensor  # noqa: E402


def vector(*values, requires_grad=False):
    return Tensor.from_numpy(np.array(values, np.float32), requires_grad=requires_grad)


def test_1_dtypes_are_ints():
    assert [FFDataType.FLOAT32, FFDataType.FLOAT64, FFDataType.INT32, FFDataType.INT64, FFDataType.BOOL] == [0, 1, 2, 3, 4]
    assert [FFDataType.to_string(i) for i in (0, 3, 4, 9)] == ["float32", "int64", "bool", "unknown"]
    assert FFDataType.to_numpy(1) is np.float64 and FFDataType.to_numpy(4) is np.bool_ and FFDataType.to_numpy(9) is None
    assert FFDataType.to_ctype(2) is ctypes.c_int32 and FFDataType.to_ctype(9) is None


def test_2_devices_are_ints():
    assert [FFDevice.CPU, FFDevice.GPU_CUDA, FFDevice.GPU_ROCM] == [0, 1, 2]
    assert [FFDevice.to_string(i) for i in (0, 1, 2, 3)] == ["cpu", "cuda", "rocm", "unknown"]
    with pytest.raises(RuntimeError):
        Tensor.zeros((2,), device=FFDevice.GPU_CUDA)


def test_3_to_6_made_by_class_methods():
    z = Tensor.zeros((2, 3), FFDataType.FLOAT64, requires_grad=True)
    assert z.numpy().dtype == np.float64 and not z.numpy().any() and z.requires_grad
    assert Tensor.ones((2,), FFDataType.INT32).numpy().tolist() == [1, 1] and not Tensor.ones((2,)).requires_grad
    assert (Tensor.eye(3).numpy() == np.eye(3)).all()
    u = Tensor.uniform(2.0, 3.0, (100,)).numpy()
    assert u.shape == (100,) and 2 <= u.min() < u.max() <= 3
    with pytest.raises(TypeError):
        Tensor.zeros((2,), dtype=7)


def test_7_from_numpy_copies():
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    t = Tensor.from_numpy(a.T)
    a[:] = 0
    assert t.shape == (3, 2) and t.numpy().tolist() == [[0, 3], [1, 4], [2, 5]]
    assert [Tensor.from_numpy(np.zeros(1, d)).dtype for d in ("f4", "f8", "i4", "i8", "?")] == [0, 1, 2, 3, 4]
    for wrong in ([1.0], np.zeros(1, np.complex64), np.zeros(1, np.float16)):
        with pytest.raises(TypeError):
            Tensor.from_numpy(wrong)


def test_8_fill_in_place():
    t = vector(1, 2, requires_grad=True)
    assert t.fill_(7) is t and t.numpy().tolist() == [7, 7] and t.requires_grad


def test_9_copy_from_numpy():
    t = vector(1, 2, requires_grad=True)
    t.copy_from_numpy(np.array([3, 4], np.float32))
    assert t.numpy().tolist() == [3, 4]
    with pytest.raises(ValueError):
        t.copy_from_numpy(np.zeros(3, np.float32))
    with pytest.raises(TypeError):
        t.copy_from_numpy(np.zeros(2, np.float64))


def test_10_copy_is_a_new_leaf():
    t = vector(1, 2, requires_grad=True)
    c = (t * 2).copy()
    assert c.requires_grad and t.copy().requires_grad and not vector(1).copy().requires_grad
    c.mean().backward()
    assert c.grad.numpy().tolist() == [0.5, 0.5] and t.grad is None


def test_11_astype_passes_gradients():
    t = vector(1, 2, requires_grad=True)
    d = t.astype(FFDataType.FLOAT64)
    assert d.dtype == FFDataType.FLOAT64 and t.astype(FFDataType.INT64).numpy().tolist() == [1, 2]
    (d * 3).mean().backward()
    assert t.grad.numpy().tolist() == [1.5, 1.5] and t.grad.dtype == FFDataType.FLOAT32
    with pytest.raises(TypeError):
        t.astype("float64")


def test_12_what_it_is():
    t = Tensor.zeros((2, 3))
    assert (t.shape, t.ndim, t.dtype, t.device, t.size) == ((2, 3), 2, 0, 0, 6)
    assert type(t.shape) is tuple and type(t.dtype) is int and type(t.device) is int


def test_13_requires_grad_is_set_and_dropped():
    t = vector(1, 2)
    t.requires_grad = True
    t.mean().backward()
    assert t.grad is not None
    t.requires_grad = False
    assert t.grad is None and not t.requires_grad
    t.requires_grad = True
    assert t.grad is None
    with pytest.raises(TypeError):
        t.requires_grad = 1


def test_14_gradients_are_set():
    t = vector(1, 2, requires_grad=True)
    assert t.grad is None
    t.grad = vector(5, 6)
    assert t.grad.numpy().tolist() == [5, 6]
    t.mean().backward()
    assert t.grad.numpy().tolist() == [5.5, 6.5]
    t.grad = None
    assert t.grad is None
    for wrong in (vector(1), Tensor.zeros((2,), FFDataType.FLOAT64), 3):
        with pytest.raises(TypeError):
            t.grad = wrong
    with pytest.raises(RuntimeError):
        vector(1).grad = vector(1)


def test_15_transposed_matrices():
    t = Tensor.from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3), requires_grad=True)
    assert t.T.shape == (3, 2)
    (t.T @ Tensor.ones((2, 1))).mean().backward()
    assert np.allclose(t.grad.numpy(), 1 / 3)
    with pytest.raises(ValueError):
        vector(1).T


def test_16_arithmetic_with_tensors_and_numbers():
    a, b = vector(1, 2), vector(4, 8)
    cases = [(a + b, [5, 10]), (a - b, [-3, -6]), (a * b, [4, 16]), (a / b, [0.25, 0.25]), (a + 1, [2, 3]), (1 + a, [2, 3]),
             (a - 1, [0, 1]), (1 - a, [0, -1]), (2 * a, [2, 4]), (a * 2, [2, 4]), (a / 2, [0.5, 1]), (2 / a, [2, 1]), (a ** 2, [1, 4])]
    for got, expected in cases:
        assert type(got) is Tensor and got.numpy().tolist() == expected
    m = Tensor.from_numpy(np.ones((2, 3), np.float32))
    assert (m @ Tensor.ones((3, 4))).numpy().tolist() == [[3] * 4] * 2 and (m + Tensor.ones((3,))).numpy().tolist() == [[2] * 3] * 2
    for wrong in (lambda: a + "1", lambda: a @ 2):
        with pytest.raises(TypeError):
            wrong()


def test_17_comparisons_with_numbers():
    t = vector(1, 2, 3)
    assert (t > 2).numpy().tolist() == [False, False, True] and (t < 2).dtype == FFDataType.BOOL


def test_18_methods_and_their_gradients():
    x = np.array([-1.5, 0.25, 2.0], np.float32)
    s = 1 / (1 + np.exp(-x))
    cases = {"mean": (x.mean(), np.full(3, 1 / 3)), "tanh": (np.tanh(x), 1 - np.tanh(x) ** 2), "exp": (np.exp(x), np.exp(x)),
             "sigmoid": (s, s * (1 - s)), "relu": (np.maximum(x, 0), x > 0), "abs": (np.abs(x), np.sign(x))}
    for name, (expected, gradient) in cases.items():
        t = Tensor.from_numpy(x, requires_grad=True)
        y = getattr(t, name)()
        y.backward()
        assert np.allclose(y.numpy(), expected, rtol=1e-5) and np.allclose(t.grad.numpy(), gradient, rtol=1e-5), name
    t = Tensor.from_numpy(x, requires_grad=True)
    y = t.clip(-1, 1)
    y.backward()
    assert y.numpy().tolist() == [-1, 0.25, 1] and t.grad.numpy().tolist() == [0, 1, 0]
    a, b = vector(1, 2, requires_grad=True), vector(3, 4, 5)
    y = a.outer(b)
    y.backward()
    assert y.numpy().tolist() == [[3, 4, 5], [6, 8, 10]] and a.grad.numpy().tolist() == [12, 12]
    with pytest.raises(ValueError):
        a.outer(Tensor.zeros((2, 2)))


def test_19_backward_seeds_ones_and_warns_where_nothing_requires_a_gradient():
    t = vector(1, 2, requires_grad=True)
    y = t * 3
    y.backward()
    assert t.grad.numpy().tolist() == [3, 3] and y.grad.numpy().tolist() == [1, 1]  # results have gradients as well
    with pytest.warns(UserWarning, match="requires no gradient"):
        vector(1).backward()


def test_20_values_out():
    t = vector(1, 2)
    copy = t.numpy()
    copy[:] = 0
    assert t.numpy().tolist() == [1, 2] and vector(7).item() == 7.0 and type(vector(7).item()) is float
    with pytest.raises(ValueError):
        t.item()


def test_21_repr():
    assert repr(vector(7, requires_grad=True)) == "Tensor((1,), data=7.0, dtype=float32, device='cpu', requires_grad=True)"
    assert repr(Tensor.zeros((20,))) == "Tensor((20,), data=<...>, dtype=float32, device='cpu')"
    assert repr(Parameter.zeros((1,))).startswith("Parameter((1,), data=0.0")


def test_truth_and_identity_are_those_of_objects():
    t = vector(0, 0)
    assert t and t == t and t != vector(0, 0) and t in [t]  # so that `x.grad.item() if x.grad else None` works


def test_22_parameters():
    p = Parameter.from_numpy(np.ones(3, np.float32))
    assert isinstance(p, Tensor) and p.requires_grad and Parameter.zeros((2, 2)).requires_grad and Parameter(vector(1)).requires_grad
    np.random.seed(3)
    r = Parameter.from_random((5, 24))
    np.random.seed(3)
    assert (r.numpy() == np.random.uniform(-0.5, 0.5, (5, 24)).astype(np.float32)).all() and type(r) is Parameter
    assert abs(Parameter.from_random((6,)).numpy()).max() <= 1


class Two(Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.scale, self.note = Linear(2, 3), Linear(3, 1, bias=False), Parameter.zeros((1,)), "kept"
        self._complete_init()

    def forward(self, x):
        return self.second(self.first(x).tanh()) + self.scale


def test_23_modules():
    m = Two()
    assert list(m.parameters()) == [m.scale, m.first.weight, m.first.bias, m.second.weight] and list(m.parameters(recurse=False)) == [m.scale]
    assert m.note == "kept" and list(m._modules) == ["first", "second"]
    m(Tensor.ones((4, 2))).mean().backward()
    assert all(p.grad is not None for p in m.parameters())
    m.zero_grad()
    assert all(p.grad is None for p in m.parameters())
    m.scale = None
    assert len(list(m.parameters())) == 3 and m.scale is None
    with pytest.raises(NotImplementedError):
        Module()(1)
    with pytest.raises(AttributeError):
        m.absent


def test_24_linear():
    layer = Linear(4, 3)
    assert layer.weight.shape == (4, 3) and layer.bias.shape == (3,) and (layer.in_features, layer.out_features) == (4, 3)
    assert Linear(4, 3, bias=False).bias is None
    x = np.random.randn(5, 4).astype(np.float32)
    assert np.allclose(layer(Tensor.from_numpy(x)).numpy(), x @ layer.weight.numpy() + layer.bias.numpy(), atol=1e-6)


def test_25_mse():
    a, b = vector(1, 2, requires_grad=True), vector(3, 5)
    loss = MSELoss()(a, b)
    loss.backward()
    assert loss.item() == 6.5 and a.grad.numpy().tolist() == [-2, -3]


def test_26_sgd():
    p, unused, still = vector(1, 2, requires_grad=True), vector(5, requires_grad=True), vector(1)
    sgd = SGD(iter([p, unused, still]), lr=0.5)
    (p * 2).mean().backward()
    sgd.step()
    assert p.numpy().tolist() == [0.5, 1.5] and unused.item() == 5 and still.item() == 1 and sgd.params == [p, unused, still]
    sgd.lr = 1.0
    sgd.step()
    assert p.numpy().tolist() == [-0.5, 0.5]
    sgd.zero_grad()
    assert p.grad is None and SGD([p]).lr == 0.01
    with pytest.raises(TypeError):
        SGD(3)


PROGRAM = '''
import gc
import numpy as np
from fusionflow import FFDataType, FFDevice, Linear, Module, MSELoss, Parameter, SGD, Tensor

np.random.seed(0)

a = Tensor.from_numpy(np.array([2.], dtype=np.float32), requires_grad=True)
b = Tensor.from_numpy(np.array([3.], dtype=np.float32), requires_grad=True)
c = Tensor.from_numpy(np.array([1.], dtype=np.float32), requires_grad=True)
y = a * b + c
a.grad = None; b.grad = None; c.grad = None
y.backward()
print(*(t.grad.item() if t.grad else None for t in (a, b, c)))


class Network(Module):
    def __init__(self, width):
        super().__init__()
        self.hidden = Linear(2, width)
        self.out = Linear(width, 1)
        self._complete_init()

    def forward(self, x):
        return self.out(self.hidden(x).tanh())


inputs = np.random.uniform(-1, 1, (64, 2)).astype(np.float32)
targets = inputs[:, :1] * inputs[:, 1:]
X, Y = Tensor.from_numpy(inputs), Tensor.from_numpy(targets)
model, criterion = Network(16), MSELoss()
optimizer = SGD(model.parameters(), lr=0.1)
for epoch in range(400):
    loss = criterion(model(X), Y)
    if epoch == 0:
        first = loss.item()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(first, loss.item(), X.dtype == FFDataType.FLOAT32, X.device == FFDevice.CPU)
del model, loss
gc.collect()
'''


def test_a_program_runs_unchanged_but_for_the_import(tmp_path):
    (tmp_path / "fusionflow.py").write_text("from gradus.compat.fusionflow import *\n")
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    run = subprocess.run([sys.executable, tmp_path / "program.py"], capture_output=True, text=True, env=environment())
    assert run.returncode == 0, run.stderr
    gradients, losses = run.stdout.splitlines()
    first, last, is_float, is_cpu = losses.split()
    assert gradients == "3.0 2.0 1.0" and float(last) < 0.2 * float(first) and is_float == is_cpu == "True"
