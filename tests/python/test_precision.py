"""Mixed precision: gd.autocast, scaled losses, gd.fit(precision=)."""
import gradus as gd
import pytest
from gradus import nn, optim


def test_a_scope_rounds_products_and_widens_losses():
    x, w = gd.ones((3, 4)), gd.tensor([[1.0, 1.0]] * 4, requires_grad=True)
    with gd.autocast():
        assert gd.autocast_dtype() == gd.bfloat16
        y = x @ w
        assert y.dtype == gd.bfloat16 and gd.relu(y).dtype == gd.bfloat16
        assert gd.softmax(y, 1).dtype == gd.float32 and gd.mse(y, y).dtype == gd.float32
        with gd.autocast(enabled=False):
            assert (x @ w).dtype == gd.float32
        with gd.autocast(gd.float16):
            assert (x @ w).dtype == gd.float16
    assert gd.autocast_dtype() == gd.float32
    gd.sum(y).backward()
    assert w.grad.dtype == gd.float32 and w.grad.tolist() == [[3, 3]] * 4

    @gd.autocast("bfloat16")
    def product(a, b):
        return a @ b
    assert product(x, w).dtype == gd.bfloat16 and product.__name__ == "product"
    with pytest.raises(gd.DTypeError, match="given f64"):
        with gd.autocast(gd.float64):
            pass


def test_optimizers_keep_states_in_bfloat16(tmp_path):
    def trained(**options):
        gd.seed(0)
        model = nn.Linear(4, 3)
        adam = optim.Adam(model, lr=0.1, **options)
        x = gd.randn(5, 4)
        for _ in range(3):
            adam.minimize(model(x).square().mean())
        adam.save(tmp_path / "adam")
        return model.weight.tobytes(), {t.dtype for t in gd.load(tmp_path / "adam").values()}
    assert trained()[1] == {gd.float32, gd.float64}  # the count of steps
    narrow = trained(state_dtype="bfloat16")
    assert narrow == trained(state_dtype=gd.bfloat16, stochastic_rounding=True)
    assert narrow[1] == {gd.bfloat16, gd.float64}
    nearest = trained(state_dtype=gd.bfloat16, stochastic_rounding=False)
    assert len({narrow[0], nearest[0], trained()[0]}) == 3
    with pytest.raises(gd.DTypeError, match="states are kept in f32 or bf16, not in f16"):
        trained(state_dtype="float16")


def test_a_model_of_bfloat16_keeps_small_updates_by_chance():
    def mean_after(**options):
        gd.seed(0)
        model = nn.Linear(64, 64, bias=False)
        model(gd.ones((1, 64)))
        model.to("bfloat16")
        model.weight.detach().copy_(gd.ones((64, 64)))
        sgd = optim.SGD(model, lr=1e-3, **options)
        for _ in range(200):
            sgd.minimize(model.weight.sum())
        return model.weight.to("float32").mean().item()
    assert mean_after() == 1.0
    assert abs(mean_after(stochastic_rounding=True) - 0.8) < 0.01


def test_an_exception_ends_the_scope():
    with pytest.raises(ZeroDivisionError):
        with gd.autocast():
            1 / 0
    assert gd.autocast_dtype() == gd.float32


def test_compiled_functions_follow_the_scope_they_are_called_in():
    @gd.compile
    def product(a, b):
        return a @ b
    a, b = gd.randn((5, 6)), gd.randn((6, 3))
    for dtype in (gd.float32, gd.bfloat16, gd.float32, gd.bfloat16):
        with gd.autocast(dtype):
            r = product(a, b)
            assert r.dtype == dtype and r.astype(gd.float32).tolist() == (a @ b).astype(gd.float32).tolist()


def test_losses_are_scaled_and_bad_steps_passed_over():
    w = gd.tensor([1.0, 1.0], requires_grad=True)
    optimizer = gd.optim.SGD([w], lr=0.5)
    assert optimizer.loss_scale == 1
    optimizer.scale_losses(initial=8)

    @gd.compile
    def step(x):
        return optimizer.minimize(gd.sum(w * x))
    step(gd.tensor([1.0, 2.0]))
    assert w.tolist() == [0.5, 0.0] and optimizer.loss_scale == 8
    step(gd.tensor([float("inf"), 2.0]))
    assert w.tolist() == [0.5, 0.0] and optimizer.loss_scale == 4
    optimizer.zero_grad()
    optimizer.scale_loss(gd.sum(w * 2)).backward()
    assert w.grad.tolist() == [8, 8]
    optimizer.step()
    assert w.tolist() == [-0.5, -1.0]
    with pytest.raises(gd.InvalidError, match="growth"):
        optimizer.scale_losses(growth=0.5)


class Net(gd.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = gd.nn.Linear(4, 16), gd.nn.Linear(16, 3)

    def forward(self, x):
        return self.b(gd.relu(self.a(x)))


def trained(precision, folder, epochs=3, accumulate=1, resume=False):
    gd.seed(1)
    model = Net()
    x = gd.randn((60, 4))
    y = gd.argmax(x[:, :3], 1)
    loader = gd.data.DataLoader(gd.data.from_arrays(x, y), batch_size=20, shuffle=True, seed=2)
    records = gd.fit(model, gd.optim.Adam(model, lr=0.02), loader, epochs, precision=precision, accumulate=accumulate, run=folder,
                     resume=resume, progress=False)
    return [p.tolist() for p in model.parameters()], records[-1]["loss"]


@pytest.mark.parametrize("accumulate", (1, 2))
def test_fit_trains_in_mixed_precision_and_goes_on_in_the_same(tmp_path, accumulate):
    whole, loss = trained("bfloat16", None, 4, accumulate)
    half, near = trained(gd.float16, None, 4, accumulate)
    plain, other = trained(None, None, 4, accumulate)
    assert whole != plain and half != plain and abs(loss - other) < 0.02 and abs(near - other) < 0.02
    trained("bfloat16", tmp_path / "run", 2, accumulate)
    with pytest.raises(gd.StateError, match="begun with precision=bfloat16"):
        trained(None, tmp_path / "run", 4, accumulate, resume=True)
    assert trained("bfloat16", tmp_path / "run", 4, accumulate, resume=True) == (whole, loss)


@pytest.mark.parametrize("initial", (None, 1, 8))
def test_fit_keeps_the_loss_scale_that_was_set(initial):
    model = Net()
    optimizer = gd.optim.Adam(model, lr=0.02)
    if initial:
        optimizer.scale_losses(initial=initial)
    data = gd.data.from_arrays(gd.randn((20, 4)), gd.zeros(20, dtype=gd.int64))
    gd.fit(model, optimizer, gd.data.DataLoader(data, batch_size=10), 1, precision="float16", progress=False)
    assert optimizer.loss_scale == initial if initial else optimizer.loss_scale > 1000  # 65536, that comes down
