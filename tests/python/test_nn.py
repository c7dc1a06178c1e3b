"""Modules, layers, optimizers, data."""
import copy
import pathlib
import pickle

import pytest

import gradus as gd
from gradus import data, nn, optim

MNIST = pathlib.Path(__file__).resolve().parents[2] / "data/mnist"


class Residual(nn.Module):
    """The network of examples/mnist.c."""

    def __init__(self, inputs=784):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(inputs, 16), nn.Linear(16, 16), nn.Linear(16, 10)

    def forward(self, x):
        a = self.fc1(x).relu()
        b = self.fc2(a).relu()
        return self.fc3(a + b)


def named(net, x):
    """The same in the way of C."""
    a = gd.relu(net.linear("fc1", x, 16))
    b = gd.relu(net.linear("fc2", a, 16))
    return net.linear("fc3", a + b, 10)


def test_training_has_the_bits_of_c():
    gd.seed(1)
    model, net = Residual(20), nn.Net(seed=1)
    x, y = gd.randn(50, 20), gd.randint(0, 10, 50)
    assert model(x).tobytes() == named(net, x).tobytes()
    adam, theirs = optim.Adam(model, lr=2e-3), gd._ops.adam(net, lr=2e-3)
    step = gd.compile(lambda x, y: adam.minimize(gd.cross_entropy(model(x), y)))
    for _ in range(5):
        assert step(x, y).item() == theirs.minimize(gd.cross_entropy(named(net, x), y)).item()
    for path, p in model.named_parameters():
        assert p.tobytes() == net.parameter(path).tobytes(), path


@pytest.mark.skipif(not list(MNIST.glob("train-images*")), reason="data/mnist is not there")
def test_mnist():
    gd.seed(1)
    model = Residual()
    adam = optim.Adam(model, lr=2e-3)
    step = gd.compile(lambda x, y: adam.minimize(gd.cross_entropy(model(x), y)))
    loader = data.DataLoader(data.mnist(MNIST), batch_size=50, shuffle=True)
    assert len(loader) == 1200
    loss = sum(step(x, y).item() for x, y in loader) / len(loader)
    assert abs(loss - 0.3708) < 0.005  # what examples/mnist.c prints for its first epoch
    test = data.mnist(MNIST, train=False)
    x, y = test[:]
    assert x.shape == (10000, 784) and gd.accuracy(model(x), y).item() > 0.92


def test_modules_know_their_parts():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(None, 2, bias=False), lambda x: x * 2)
    assert [p for p, _ in model.named_parameters()] == ["0.weight", "0.bias"]
    assert model(gd.ones((5, 3))).shape == (5, 2)
    assert [p for p, _ in model.named_parameters()] == ["0.weight", "0.bias", "2.weight"]
    assert model.parameter_count() == 24 and "(0): Linear(3, 4, bias=True)" in repr(model)
    model.shared = model[0]
    assert len(list(model.parameters())) == 3 and len(model) == 5
    del model.shared
    model.eval()
    assert not model[1].training
    with pytest.raises(AttributeError, match="super"):
        type("M", (nn.Module,), {"__init__": lambda self: setattr(self, "a", nn.Parameter([1.0]))})()


def test_state_dicts_and_files(tmp_path):
    gd.seed(0)
    a, b = Residual(8), Residual(8)
    x = gd.randn(3, 8)
    assert a(x).tobytes() != b(x).tobytes()
    b.load_state_dict(a.state_dict())
    assert a(x).tobytes() == b(x).tobytes()
    a.save(tmp_path / "a.safetensors")
    net = nn.Net()
    net.load(str(tmp_path / "a.safetensors"))
    assert named(net, x).tobytes() == a(x).tobytes()  # the file of a model in C
    with pytest.raises(ValueError, match="missing: fc1.bias"):
        b.load_state_dict({k: v for k, v in a.state_dict().items() if k != "fc1.bias"})
    with pytest.raises(gd.ShapeError):
        b.load_state_dict({**a.state_dict(), "fc1.bias": gd.zeros(3)})
    for other in (copy.deepcopy(a), pickle.loads(pickle.dumps(a))):
        assert other(x).tobytes() == a(x).tobytes()
        assert not set(map(id, other.parameters())) & set(map(id, a.parameters()))


LAYERS = [
    (lambda: nn.Conv2d(3, 8, 3, padding=1), (2, 3, 7, 7), (2, 8, 7, 7)), (lambda: nn.Conv2d(None, 4, 3, stride=2), (2, 3, 7, 7), (2, 4, 3, 3)),
    (lambda: nn.Conv1d(3, 6, 5, padding="same", groups=3), (2, 3, 9), (2, 6, 9)),
    (lambda: nn.ConvTranspose2d(3, 4, 2, stride=2), (2, 3, 5, 5), (2, 4, 10, 10)),
    (lambda: nn.BatchNorm2d(3), (4, 3, 5, 5), (4, 3, 5, 5)), (lambda: nn.BatchNorm(), (4, 3), (4, 3)),
    (lambda: nn.LayerNorm(6), (2, 5, 6), (2, 5, 6)), (lambda: nn.RMSNorm((5, 6)), (2, 5, 6), (2, 5, 6)),
    (lambda: nn.GroupNorm(2, 4), (2, 4, 5), (2, 4, 5)), (lambda: nn.InstanceNorm(4, affine=True), (2, 4, 5), (2, 4, 5)),
    (lambda: nn.MaxPool2d(2), (2, 3, 6, 6), (2, 3, 3, 3)), (lambda: nn.AvgPool2d(2, stride=1), (2, 3, 6, 6), (2, 3, 5, 5)),
    (lambda: nn.Flatten(), (2, 3, 4), (2, 12)), (lambda: nn.Dropout(0.3), (5, 5), (5, 5)), (lambda: nn.GELU(), (3,), (3,)),
    (lambda: nn.LeakyReLU(slope=0.1), (3,), (3,)), (lambda: nn.Softmax(axis=0), (3, 2), (3, 2)),
    (lambda: nn.LSTM(7, layers=2), (2, 5, 3), (2, 5, 7)), (lambda: nn.GRU(7, bidirectional=True), (2, 5, 3), (2, 5, 14)),
    (lambda: nn.MultiheadAttention(2, causal=True), (2, 5, 8), (2, 5, 8)), (lambda: nn.FeedForward(16), (2, 5, 8), (2, 5, 8)),
    (lambda: nn.TransformerEncoderLayer(heads=2, hidden=16), (2, 5, 8), (2, 5, 8)),
    (lambda: nn.TransformerEncoder(heads=2, layers=2), (2, 5, 8), (2, 5, 8)),
    (lambda: nn.PReLU(), (2, 3), (2, 3)), (lambda: nn.PReLU(per_channel=True), (2, 3, 4), (2, 3, 4)), (lambda: nn.DropConnect(4, 0.3), (2, 3), (2, 4)),
    (lambda: nn.AdaptiveAvgPool((2, 3)), (2, 3, 6, 6), (2, 3, 2, 3)), (lambda: nn.GlobalMaxPool(), (2, 3, 6, 6), (2, 3)),
    (lambda: nn.Hardswish(), (3, 4), (3, 4)), (lambda: nn.GLU(), (3, 4), (3, 2)), (lambda: nn.Last(), (2, 5, 3), (2, 3)),
    (lambda: nn.SinusoidalPosition(), (2, 5, 8), (2, 5, 8)), (lambda: nn.RNN(4, relu=True), (2, 5, 3), (2, 5, 4)),
    (lambda: nn.Conv3d(2, 3, 2), (1, 2, 3, 3, 3), (1, 3, 2, 2, 2)), (lambda: nn.MaxPool1d(2), (2, 3, 6), (2, 3, 3)),
]


@pytest.mark.parametrize("make, given, expected", LAYERS, ids=[str(i) for i in range(len(LAYERS))])
def test_layers_train_compiled_as_eagerly(make, given, expected):
    results = []
    for mode in ("eager", "compiled"):
        gd.seed(5)
        layer, head = make(), nn.Linear(None, 1)
        x = gd.randn(given)
        assert layer(x).shape == expected
        head(layer(x).reshape(given[0], -1))
        sgd = optim.SGD([*layer.parameters(), *head.parameters()], lr=0.01)

        def step(x):
            return sgd.minimize(head(layer(x).reshape(given[0], -1)).square().mean())
        gd.seed(6)
        losses = [gd.compile(step, mode=mode)(x).item() for _ in range(3)]
        results.append((losses, [p.tobytes() for p in layer.parameters()], [b.tobytes() for b in layer.buffers()]))
    assert results[0] == results[1]


def test_training_and_use_are_compiled_apart():
    layer = nn.Dropout(0.5)
    f = gd.compile(lambda x: layer(x))
    x = gd.ones(1000)
    assert (f(x) == 0).any().item()
    layer.eval()
    assert (f(x) == 1).all().item()
    layer.train()
    assert (f(x) == 0).any().item() and f.stats.calls == 2


def test_layers_make_their_parameters_within_a_compiled_function():
    results = []
    for mode in ("eager", "compiled"):
        gd.seed(1)
        layers = nn.Sequential(nn.Conv2d(None, 4, 3), nn.BatchNorm(), nn.Flatten(), nn.Linear(None, 2))
        step = gd.compile(lambda x: layers(x), mode=mode)
        x = gd.randn(5, 2, 4, 4)
        results.append([step(x).tobytes() for _ in range(3)] + [t.tobytes() for t in [*layers.parameters(), *layers.buffers()]])
    assert results[0] == results[1] and len(results[0]) == 11


def test_models_in_double():
    gd.seed(3)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Identity(), nn.Linear(4, 6))
    recurrent = nn.LSTM(5)
    x = gd.randn(8, 3)
    single = model.eval()(x)
    assert model.to("float64") is model and {p.dtype for p in model.parameters()} | {b.dtype for b in model.buffers()} == {gd.float64}
    double = model(x.to("float64"))
    assert double.dtype == gd.float64 and (double.to("float32") - single).abs().max().item() < 1e-5
    recurrent.to(gd.float64)
    y = recurrent(gd.randn(2, 7, 3, dtype="float64"))
    assert y.dtype == gd.float64 and all(p.dtype == gd.float64 and p.requires_grad for p in recurrent.parameters())
    model.train()
    adam = optim.Adam(model, lr=0.01)
    step = gd.compile(lambda x: adam.minimize(model(x).square().mean()))
    losses = [step(x.to("float64")) for _ in range(20)]
    assert losses[0].dtype == gd.float64 and losses[-1].item() < losses[0].item()
    lazy = nn.Sequential(nn.Linear(None, 4), nn.BatchNorm(), nn.Conv1d(None, 3, 1)).to("float64")
    assert gd.compile(lambda x: lazy[2](lazy[1](lazy[0](x))[:, :, None]))(gd.randn(6, 3, dtype="float64")).dtype == gd.float64
    assert {t.dtype for t in [*lazy.parameters(), *lazy.buffers()]} == {gd.float64} and len(list(lazy.buffers())) == 2
    before = [p.tobytes() for p in recurrent.parameters()]
    recurrent.to("float32").to("float64")
    assert recurrent(gd.randn(2, 7, 3, dtype="float64")).dtype == gd.float64 and len(before) == len(list(recurrent.parameters()))


def test_what_modules_share_stays_one_elsewhere():
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    model = nn.Sequential(first, second)
    for where in ("float64", gd.Context(), "reference"):
        assert model.to(where) is model and first.weight is second.weight and len(list(model.parameters())) == 3


def test_models_for_tokens():
    model = nn.DecoderOnly(vocabulary=11, width=8, heads=2, layers=1, max_length=6)
    tokens = gd.randint(0, 11, (2, 6))
    logits = model(tokens)
    assert logits.shape == (2, 6, 11)
    adam = optim.AdamW(model, lr=0.01)
    step = gd.compile(lambda t: adam.minimize(gd.cross_entropy(model(t[:, :-1]), t[:, 1:])))
    first = step(tokens).item()
    for _ in range(30):
        last = step(tokens).item()
    assert last < first / 2
    other = pickle.loads(pickle.dumps(model))
    assert other(tokens).tobytes() == model(tokens).tobytes()


@pytest.mark.parametrize("name", optim._optimizers.__all__)
def test_optimizers_learn(name):
    gd.seed(0)
    x = gd.randn(64, 3)
    y = (x * gd.tensor([1.0, -2.0, 0.5])).sum(axis=1, keepdims=True)
    model = nn.Linear(3, 1)
    o = getattr(optim, name)(model.parameters(), lr=getattr(optim, name)(model.parameters()).lr * 10)
    first = gd.mse(model(x), y).item()
    for _ in range(50):
        gd.mse(model(x), y).backward()
        o.step()
        o.zero_grad()
    assert gd.mse(model(x), y).item() < first


def test_optimizers_take_options_and_keep_state(tmp_path):
    gd.seed(0)
    a, b = nn.Linear(4, 2), nn.Linear(4, 2)
    b.load_state_dict(a.state_dict())
    x = gd.randn(5, 4)
    first, second = optim.AdamW(a, lr=0.1, weight_decay=0.0), optim.AdamW(b, lr=0.1, weight_decay=0.0)
    first.minimize(a(x).square().mean())
    first.save(tmp_path / "adam")
    second.minimize(b(x).square().mean())
    second.load(tmp_path / "adam")
    first.lr = 0.01
    assert first.lr == 0.01 and repr(first) == "AdamW(lr=0.01)"
    second.lr = 0.01
    for model, o in ((a, first), (b, second)):
        o.minimize(model(x).square().mean())
    assert a.weight.tobytes() == b.weight.tobytes()
    with pytest.raises(TypeError):
        optim.SGD(a, momentun=0.9)
    with pytest.raises(ValueError):
        optim.SGD([])
    assert abs(optim.cosine(1.0, 100)(50) - 0.5) < 0.02 and optim.Schedule("step", 1.0, period=10)(25) == pytest.approx(0.01)


def test_lbfgs():
    gd.seed(0)
    x = gd.randn(64, 3)
    y = (x * gd.tensor([1.0, -2.0, 0.5])).sum(axis=1, keepdims=True) + 0.25
    model = nn.Linear(3, 1)
    lbfgs = optim.LBFGS(model, max_iterations=30)
    calls = []

    def closure():
        calls.append(1)
        return gd.mse(model(x), y)
    first = lbfgs.step(closure)
    assert gd.mse(model(x), y).item() < 1e-6 < first and len(calls) > 2
    with pytest.raises(ZeroDivisionError):
        lbfgs.step(lambda: 1 / 0)
    ema = optim.EMA(model, decay=0.5)
    ema.update()
    with gd.no_grad():
        model.weight.fill_(7)
    ema.swap()
    assert (model.weight - gd.tensor([[1.0], [-2.0], [0.5]])).abs().max().item() < 1e-2


def test_layers_of_several_inputs():
    gd.seed(2)
    x, memory = gd.randn(2, 5, 8), gd.randn(2, 3, 8)
    for make, inputs in ((lambda: nn.TransformerDecoderLayer(heads=2), (x, memory)), (lambda: nn.TransformerDecoder(heads=2, layers=2), (x, memory)),
                         (lambda: nn.Transformer(heads=2, layers=1), (memory, x)), (lambda: nn.ScaledDotProductAttention(), (x, memory, memory))):
        layer = make()
        assert layer(*inputs).shape == (2, 5, 8)
        assert gd.compile(lambda *t: layer(*t))(*inputs).tobytes() == layer(*inputs).tobytes()
    attention = nn.MultiheadAttention(2)
    assert attention(x, memory=memory).shape == (2, 5, 8) and "kv.weight" in dict(attention.named_parameters())
    lstm = nn.LSTM(4)
    y, hidden, cell = lstm(x, last_hidden=True, last_cell=True)
    assert hidden.shape == cell.shape == (1, 2, 4) and (y[:, -1] == hidden[0]).all()
    assert repr(lstm) == "LSTM(units=4)" and repr(nn.LeakyReLU(0.2)) == "LeakyReLU(slope=0.2)" and repr(nn.ReLU()) == "ReLU()"


def test_every_layer_of_c_has_a_class():
    layers = {name for name in dir(nn.Net) if name in {m.removeprefix("gd_nn_").removesuffix("_with") for m in gd._api.FUNCTIONS
                                                      if m.startswith("gd_nn_")}}
    here = {"linear", "layer_norm", "rms_norm", "group_norm", "instance_norm", "batch_norm", "dropout", "embedding"}  # written by hand
    generated = {cls._method for cls in vars(nn).values() if isinstance(cls, type) and issubclass(cls, nn._named.Named)}
    assert layers and layers <= here | generated, layers - here - generated


MODEL = '''{ "input": [3], "loss": "mse", "layers": [ { "name": "a", "type": "linear", "units": 5, "activation": "tanh" },
  { "name": "n", "type": "batch_norm" }, { "name": "d", "type": "dropout", "dropout": 0.5 }, { "name": "b", "type": "linear", "units": 2 } ] }'''


def test_models_from_json(tmp_path):
    gd.seed(4)
    (tmp_path / "m.json").write_text(MODEL)
    model, other = nn.Model.from_json(MODEL, seed=1), nn.Model.from_json(tmp_path / "m.json", seed=1)
    assert [p for p, _ in model.named_parameters()] == ["a.weight", "a.bias", "n.weight", "n.bias", "b.weight", "b.bias"]
    assert [p for p, _ in model.named_buffers()] == ["n.running_mean", "n.running_var"] and model.inputs == {"input": (3,)}
    x, y = gd.randn(16, 3), gd.randn(16, 2)
    model.eval(), other.eval()
    assert model(x).tobytes() == other(x).tobytes() and model(x).tobytes() == model(x).tobytes()
    model.train()
    assert model(x).tobytes() != model(x).tobytes()
    adam = optim.Adam(model, lr=0.05)
    step = gd.compile(lambda x, y: adam.minimize(model.loss(model(x), y)))
    losses = [step(x, y).item() for _ in range(60)]
    assert losses[-1] < losses[0]
    model.eval()
    for copied in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert copied(x).tobytes() == model(x).tobytes() and not copied.training
    assert nn.Model.from_json(model.to_json()).parameter_count() == model.parameter_count()
    with pytest.raises(ValueError):
        nn.Model.from_json('{ "input": [3], "layers": [ { "name": "a", "type": "nothing" } ] }')
    model.save(tmp_path / "m.safetensors")
    again = nn.Model.from_file(tmp_path / "m.safetensors").eval()
    assert again(x).tobytes() == model(x).tobytes() and again.to_json() == model.to_json()
    other.load(tmp_path / "m.safetensors")
    assert other(x).tobytes() == model(x).tobytes()


def test_models_of_several_inputs_and_outputs():
    model = nn.Model.from_json('''{ "inputs": [ { "name": "x", "shape": [3] }, { "name": "y", "shape": [2] } ], "outputs": ["both", "x2"],
      "losses": [ { "type": "mse", "outputs": ["both"] }, { "type": "mse", "outputs": ["x2"], "scale": 2 } ],
      "layers": [ { "name": "both", "type": "concat", "inputs": ["x", "y"] }, { "name": "x2", "type": "linear", "units": 2, "inputs": ["x"] } ] }''')
    x, y = gd.randn(4, 3), gd.randn(4, 2)
    assert model.inputs == {"x": (3,), "y": (2,)} and model.outputs == ["both", "x2"]
    both, twice = model(x, y)
    assert both.tolist() == gd.concat([x, y], axis=1).tolist() and twice.shape == (4, 2)
    loss = model.loss((both, twice), gd.zeros((4, 5)), y)
    assert abs(loss.item() - (both.square().mean() + 2 * (twice - y).square().mean()).item()) < 1e-5
    with pytest.raises(ValueError):
        model(x)


TWO = '''{ "inputs": [ { "name": "tokens", "shape": [5], "dtype": "i64" }, { "name": "n", "shape": [], "dtype": "i64" } ],
  "layers": [ { "name": "t", "type": "embedding", "vocabulary": 7, "units": 4 }, { "name": "r", "type": "gru", "units": 3, "lengths": "n" },
              { "name": "e", "type": "last", "lengths": "n" }, { "name": "c", "type": "linear", "units": 2 },
              { "name": "s", "type": "linear", "units": 1, "inputs": ["e"] } ],
  "outputs": ["c", "s"],
  "losses": [ { "type": "cross_entropy", "weight": [1, 2], "label_smoothing": 0.1 }, { "type": "huber", "scale": 0.5 } ] }'''


def test_models_of_padded_sequences(tmp_path):
    model = nn.Model.from_json(TWO, seed=3)
    assert list(model.inputs) == ["tokens", "n"] and model.outputs == ["c", "s"]
    tokens, n = gd.randint(0, 7, (6, 5)), gd.tensor([5, 1, 2, 3, 4, 5])
    c, s = model(tokens, n)
    y, z = gd.tensor([0, 1, 0, 1, 1, 0]), gd.ones((6, 1))
    expected = gd.cross_entropy(c, y, weight=[1.0, 2.0], label_smoothing=0.1) + gd.huber(s, z) * 0.5
    assert model.loss((c, s), y, z).item() == expected.item()
    adam = optim.Adam(model, lr=0.05)
    step = gd.compile(lambda t, n, y, z: adam.minimize(model.loss(model(t, n), y, z)))
    assert [step(tokens, n, y, z).item() for _ in range(20)][-1] < expected.item()
    model.save(tmp_path / "m.safetensors")
    back = nn.Model.from_file(tmp_path / "m.safetensors")
    assert [o.tobytes() for o in back(tokens, n)] == [o.tobytes() for o in model(tokens, n)]
    assert [name for name, _ in back.named_parameters()] == [name for name, _ in model.named_parameters()]
    gru = model.layers[1]
    assert (gru["type"], gru["lengths"], gru["result"], gru["parameters"]) == ("gru", "n", (None, 5, 3), 3 * 3 * (4 + 3 + 2))


def test_models_are_changed():
    model = nn.Model.from_json(MODEL, seed=1)
    builder = model.edit(seed=2)
    builder.insert("a", {"name": "skip", "type": "add", "inputs": ["a", "a"]})
    builder.replace({"name": "b", "type": "linear", "units": 3, "bias": False})
    builder.remove("d")
    builder.drop_losses()
    builder.add_loss({"type": "cross_entropy", "weight": [1.0, 2.0, 3.0]})
    other = nn.Model(builder.end()).eval()
    assert [layer["name"] for layer in other.layers] == ["a", "skip", "n", "b"]
    x, y = gd.randn(4, 3), gd.tensor([0, 1, 2, 0])
    assert other(x).shape == (4, 3) and other.loss(other(x), y).item() == gd.cross_entropy(other(x), y, weight=[1.0, 2.0, 3.0]).item()
    assert dict(other.named_parameters())["a.weight"].tobytes() == dict(model.named_parameters())["a.weight"].tobytes()
    with pytest.raises(ValueError, match="no layer"):
        model.edit().remove("nothing")


def test_state_dicts_of_pytorch():
    gd.seed(0)
    x = gd.randn(4, 3)
    state = {"0.weight": gd.randn(5, 3), "0.bias": gd.randn(5), "1.weight": gd.ones(5), "1.bias": gd.zeros(5), "1.running_mean": gd.randn(5),
             "1.running_var": gd.ones(5) * 2, "1.num_batches_tracked": gd.tensor(7), "2.weight": gd.randn(2, 5)}
    for first in (nn.Linear(3, 5), nn.Linear(None, 5)):
        model = nn.Sequential(first, nn.BatchNorm1d(), nn.Linear(None, 2, bias=False)).eval()
        model.load_state_dict(state, layout="torch")
        hidden = x @ state["0.weight"].mT + state["0.bias"]
        hidden = (hidden - state["1.running_mean"]) / (state["1.running_var"] + 1e-5).sqrt()
        assert (model(x) - hidden @ state["2.weight"].mT).abs().max().item() < 1e-5
    with pytest.raises(ValueError, match="not in the model: 3.weight"):
        model.load_state_dict({**state, "3.weight": gd.ones(1)}, layout="torch")
    model.load_state_dict({"2.weight": gd.zeros((2, 5))}, strict=False, layout="torch")
    assert (model(x) == 0).all()
    with pytest.raises(ValueError, match="layout"):
        model.load_state_dict(state, layout="keras")


def test_models_of_pytorch_compute_the_same():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    x = torch.randn(2, 7, 6)
    for theirs, ours in ((torch.nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True), nn.LSTM(5, layers=2, bidirectional=True)),
                         (torch.nn.GRU(6, 5, batch_first=True), nn.GRU(5)), (torch.nn.RNN(6, 5, batch_first=True), nn.RNN(5)),
                         (torch.nn.MultiheadAttention(6, 3, batch_first=True), nn.MultiheadAttention(3))):
        attends = isinstance(ours, nn.MultiheadAttention)
        expected = (theirs(x, x, x) if attends else theirs(x))[0].detach().numpy()
        ours.load_state_dict({name: t.detach().numpy() for name, t in theirs.state_dict().items()}, layout="torch")
        assert (ours(gd.asarray(x.numpy())) - gd.asarray(expected)).abs().max().item() < 1e-5, ours


def test_groups_of_parameters_and_states_of_optimizers():
    def train(load_after):
        gd.seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        x, y = gd.randn(8, 3), gd.randn(8, 1)

        def optimizer():
            return optim.Adam([{"params": model[0], "lr": 0.0}, {"params": list(model[2].parameters()), "weight_decay": 0.5}], lr=0.1)
        adam, before = optimizer(), model[0].weight.tobytes()
        for i in range(6):
            if i == load_after:
                state = adam.state_dict()
                assert state["optimizer"] == "adam" and state["lr"] == 0.1 and state["state"]["step"].item() == i
                adam = optimizer()
                adam.load_state_dict(pickle.loads(pickle.dumps(state)))
            adam.minimize(gd.mse(model(x), y))
        assert model[0].weight.tobytes() == before  # its learning rate is 0
        return model[2].weight.tobytes()
    assert train(3) == train(None) != train_without_decay()
    with pytest.raises(TypeError):
        optim.Adam([{"params": nn.Linear(2, 2), "beta1": 0.5}])
    with pytest.raises(ValueError):
        optim.SGD(nn.Linear(2, 2)).load_state_dict({"optimizer": "adam", "lr": 0.1, "state": {}})


def train_without_decay():
    gd.seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    x, y = gd.randn(8, 3), gd.randn(8, 1)
    adam = optim.Adam([{"params": model[0], "lr": 0.0}, {"params": model[2]}], lr=0.1)
    for _ in range(6):
        adam.minimize(gd.mse(model(x), y))
    return model[2].weight.tobytes()


def test_schedules():
    steps = [optim.constant(0.5), optim.step(1.0, 10), optim.multi_step(1.0, (5, 20)), optim.exponential(1.0, 0.5), optim.linear(1.0, 100),
             optim.polynomial(1.0, 100, power=2.0), optim.cosine(1.0, 100), optim.one_cycle(1.0, 100)]
    expected = [0.5, 0.01, 0.01, 0.5 ** 25, 0.75, 0.75 ** 2, 0.8535533905932737]
    assert [s(25) for s in steps[:7]] == pytest.approx(expected) and steps[7](0) == pytest.approx(0.04) and max(map(steps[7], range(100))) <= 1
    assert [optim.linear(1.0, 10, warmup=4)(i) for i in range(4)] == pytest.approx([0.25, 0.5, 0.75, 1.0])
    plateau, rates, lr = optim.Plateau(factor=0.5, patience=1), [], 1.0
    for metric in (3.0, 2.0, 2.0, 2.0, 2.0, 2.0):
        lr = plateau(lr, metric)
        rates.append(lr)
    assert rates == [1, 1, 1, 0.5, 0.5, 0.25]
    with pytest.raises(TypeError, match="no perid"):
        optim.Schedule("step", 1.0, perid=3)


def test_losses():
    logits, target = gd.tensor([[2.0, 0.0], [0.0, 1.0]]), gd.tensor([0, 1])
    assert nn.CrossEntropyLoss()(logits, target).item() == gd.cross_entropy(logits, target).item()
    assert nn.MSELoss()(gd.ones(3), gd.zeros(3)).item() == 1


def test_loaders_of_sequences_and_arrays_go_on_where_they_stopped():
    for dataset in (data.from_arrays(gd.arange(10), gd.arange(10) * 2), [(gd.tensor(i), 2 * i) for i in range(10)]):
        loader = data.DataLoader(dataset, batch_size=3, shuffle=True, seed=4)
        epochs = [[x.tolist() for x, y in loader if y.tolist() == [2 * i for i in x.tolist()]] for _ in range(2)]
        assert [sorted(sum(e, [])) for e in epochs] == [list(range(10))] * 2 and epochs[0] != epochs[1]
        again = data.DataLoader(dataset, batch_size=3, shuffle=True, seed=4)
        seen = iter(again)
        [next(seen) for _ in range(2)]
        third = data.DataLoader(dataset, batch_size=3, shuffle=True, seed=4)
        third.load_state_dict(again.state_dict())
        assert [x.tolist() for x, _ in third] == epochs[0][2:]
        assert [x.tolist() for x, _ in again] == epochs[1]  # a loop that was left is over
    assert len(data.DataLoader(data.from_arrays(gd.arange(10)), 3, drop_last=True)) == 3


@pytest.mark.skipif(not list(MNIST.glob("t10k-images*")), reason="data/mnist is not there")
def test_loaders_of_the_library_give_batches_that_may_be_kept():
    digits = data.mnist(MNIST, train=False)
    loader = data.DataLoader(digits, batch_size=2500)
    kept = list(loader)
    assert [x.tobytes() for x, _ in kept] == [x.tobytes() for x, _ in loader]
    shuffled = data.DataLoader(digits, batch_size=3000, shuffle=True, seed=3)
    epochs = [[y.tobytes() for _, y in shuffled] for _ in range(3)]
    assert len(epochs[0]) == 4 and epochs[0] != epochs[1]
    other = data.DataLoader(digits, batch_size=3000, shuffle=True, seed=3)
    for i, (_, y) in enumerate(other):
        assert y.tobytes() == epochs[0][i]
        if i == 1:
            break
    state = other.state_dict()
    assert state == {"epoch": 0, "position": 2, "seed": 3}
    assert [y.tobytes() for _, y in other] == epochs[1]  # a loop that was left is over
    for loader in (other, data.DataLoader(digits, batch_size=3000, shuffle=True, seed=3)):
        loader.load_state_dict(state)
        assert [y.tobytes() for _, y in loader] == epochs[0][2:] and [y.tobytes() for _, y in loader] == epochs[1]
    first = iter(other)
    next(first)
    next(iter(other))
    with pytest.raises(gd.StateError, match="another loop"):
        next(first)


def test_tokenisers():
    t = gd.text.Tokenizer.characters("hello world")
    assert t.decode(t.encode("hello")) == "hello" and len(t) == 8
    with pytest.raises(ValueError):
        t.encode("xyz")
    assert gd.text.Tokenizer.bytes().encode("é") == [195, 169]


STORIES = MNIST.parent / "models/stories260K"


@pytest.mark.skipif(not list(STORIES.glob("*.bin")), reason="data/models is not there")
def test_text_is_generated_piece_by_piece():
    tokenizer = gd.text.Tokenizer.llama2c(STORIES / "tok512.bin")
    model = gd.text.load_model(STORIES / "stories260K.bin")
    pieces = list(gd.text.generate(model, tokenizer, "Once upon a time", 20, temperature=0.0))
    assert len(pieces) <= 20 and "".join(pieces).startswith(", there was a little girl named")
    tokens = [tokenizer.begin, *tokenizer.encode("Once upon a time")]
    for piece in pieces[:5]:  # the most likely token of the whole sequence, each time
        token = int(model.forward(gd.tensor([tokens]))[0, -1].argmax())
        assert tokenizer.piece(token, tokens[-1]).decode() == piece
        tokens.append(token)
    drawn = ["".join(gd.text.generate(model, tokenizer, "The", 30, seed=s)) for s in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    expected = (STORIES / "expected_t0_n200.txt").read_text()  # llama2.c's
    assert expected.startswith("".join(gd.text.generate(model, tokenizer, "", 150, temperature=0.0)).lstrip())
    prompt = "a " * 255
    room = 512 - len(tokenizer.encode(prompt))
    assert len(list(gd.text.generate(model, tokenizer, prompt, top_k=5))) <= room  # ends at the model's length
    with pytest.raises(gd.ShapeError, match="more than the model's 512"):
        next(gd.text.generate(model, tokenizer, "a " * 600))
