"""Gradients."""
import numpy as np
import pytest

import gradus as gd


def test_backward_adds_up():
    w = gd.tensor([1.0, 2.0], requires_grad=True)
    assert w.grad is None
    (w * w).sum().backward()
    assert w.grad.tolist() == [2, 4]
    (w * 3).backward(gd.tensor([1.0, 10.0]))
    assert w.grad.tolist() == [5, 34]
    w.zero_grad()
    assert w.grad.tolist() == [0, 0]


def test_grad_of_trees_and_of_gradients():
    x = gd.tensor(3.0, requires_grad=True)
    y = gd.tensor([1.0, 2.0], requires_grad=True)
    found = gd.grad((x ** 3.0 * y).sum(), {"x": x, "rest": [y]})
    assert found["x"].item() == 81 and found["rest"][0].tolist() == [27, 27]
    second, = gd.grad(found["x"], [x])
    assert second.item() == 54


def test_value_and_grad():
    def f(p, scale, k=1):
        return (p["w"] * p["w"]).sum() * scale * k, "more"
    (value, more), gradient = gd.value_and_grad(f, has_aux=True)({"w": gd.tensor([1.0, 3.0])}, 2.0, k=5)
    assert value.item() == 100 and more == "more" and gradient["w"].tolist() == [20, 60]
    value, (a, b) = gd.value_and_grad(lambda x, y: (x * y).sum(), argnums=(0, 1))(gd.ones(2), gd.tensor([3.0, 4.0]))
    assert a.tolist() == [3, 4] and b.tolist() == [1, 1]
    net = gd.nn.Linear(2, 1)
    _, gradient = gd.value_and_grad(lambda m, x: m(x).sum())(net, gd.ones((3, 2)))
    assert gradient["weight"].tolist() == [[3], [3]] and gradient["bias"].tolist() == [3]


def test_no_grad_is_a_context_and_a_decorator():
    w = gd.ones(2).requires_grad_()
    with gd.no_grad():
        assert not (w * 2).requires_grad
        with gd.no_grad():
            pass
        assert not (w * 2).requires_grad

    @gd.no_grad()
    def f():
        return w * 2
    assert not f().requires_grad and (w * 2).requires_grad
    with pytest.raises(ZeroDivisionError):
        with gd.no_grad():
            1 / 0
    assert (w * 2).requires_grad and not w.detach().requires_grad


@pytest.mark.keeps  # of the checkpointed function
def test_checkpoint():
    def block(x):
        return gd.tanh(x * 2).sum()
    x = gd.tensor([0.1, 0.2], requires_grad=True)
    gd.checkpoint(block, x).backward()
    expected, = gd.grad(block(x), [x])
    assert x.grad.tolist() == expected.tolist()

    def wrong(x):
        raise KeyError("here")
    with pytest.raises(KeyError, match="here"):
        gd.checkpoint(wrong, x)


def test_an_exception_in_a_body_that_runs_again_is_raised_by_backward():
    runs = []

    def once(x):
        runs.append(1)
        if len(runs) > 1:
            raise LookupError("the second time")
        return (x * x).sum()
    x = gd.ones(2).requires_grad_()
    y = gd.checkpoint(once, x)
    with pytest.raises(LookupError, match="second"):
        y.backward()


def test_gradients_match_differences():
    rng = np.random.default_rng(0)
    for f in (lambda x: gd.softmax(x).square().sum(), lambda x: (x @ x.T).tanh().sum(), lambda x: gd.logsumexp(x, axis=1).prod(),
              lambda x: x[[0, 1, 0]][:, 1:].exp().sum(), lambda x: gd.concat([x, x * x])[::2].mean()):
        x = rng.standard_normal((3, 4))
        t = gd.tensor(x, requires_grad=True)
        found = gd.grad(f(t), t).numpy()
        for i, j in ((0, 0), (1, 2), (2, 3)):
            step = np.zeros_like(x)
            step[i, j] = 1e-6
            slope = (f(gd.tensor(x + step)).item() - f(gd.tensor(x - step)).item()) / 2e-6
            assert abs(slope - found[i, j]) < 1e-6


def test_derivatives_in_a_direction():
    def f(x, y):
        return {"a": (x ** 2.0 * y).sum(), "b": gd.tanh(x) + y}
    gd.seed(1)
    x, y, dx, dy = (gd.randn(3, dtype="float64") for _ in range(4))
    value, slope = gd.jvp(f, (x, y), (dx, dy))
    assert value["a"].item() == f(x, y)["a"].item() and not slope["b"].requires_grad
    expected = (2 * x * y * dx + x * x * dy).sum().item()
    assert abs(slope["a"].item() - expected) < 1e-12
    other = (1 - gd.tanh(x) ** 2.0) * dx + dy
    assert (slope["b"] - other).abs().max().item() < 1e-12
    with pytest.raises(ValueError, match="tangent"):
        gd.jvp(f, (x, y), (dx,))
