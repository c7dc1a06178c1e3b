"""gd.vmap: axes, trees, gradients of each example, compiled and nested, threads, errors."""
import threading

import pytest

import gradus as gd
from gradus import nn


@pytest.fixture(autouse=True)
def seeded():
    gd.seed(1)


def close(a, b):
    return gd.allclose(a, b, relative=1e-5, absolute=1e-6)


def test_axes_of_arguments_and_results():
    x, y = gd.randn(4, 3), gd.randn(3, 4)
    expected = gd.stack([gd.dot(x[i], y[:, i]) for i in range(4)])
    assert close(gd.vmap(gd.dot, in_axes=(0, 1))(x, y), expected)
    assert close(gd.vmap(gd.dot, in_axes=(-2, -1))(x, y), expected)
    assert close(gd.vmap(gd.outer, in_axes=(0, None), out_axes=2)(x, x[0]),
                 gd.stack([gd.outer(x[i], x[0]) for i in range(4)], axis=2))
    assert gd.vmap(lambda a, scale: a * scale, in_axes=(0, None))(x, 2.0).shape == (4, 3)
    assert close(gd.vmap(lambda a, b: a + b)(x, b=x), x + x)


def test_trees_go_in_and_come_out():
    batch = {"image": gd.randn(3, 5, 2), "label": gd.arange(5)}

    def function(batch, table):
        return {"sum": batch["image"].sum(), "both": (table[0], "text")}, batch["label"] * 2
    both = gd.vmap(function, in_axes=({"image": 1, "label": 0}, (None,)))
    found, doubled = both(batch, (gd.ones(2),))
    assert close(found["sum"], batch["image"].sum(axis=(0, 2))) and doubled.tolist() == [0, 2, 4, 6, 8]
    assert found["both"][0].shape == (5, 2) and found["both"][1] == "text"


def test_gradients_of_each_example():
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(None, 8), nn.LayerNorm(8), nn.Linear(8, 2))
    images, labels = gd.randn(5, 1, 6, 6), gd.tensor([0, 1, 1, 0, 1])
    model(images)

    def loss(model, image, label):
        return gd.cross_entropy(model(image.unsqueeze(0)), label.unsqueeze(0))
    step = gd.vmap(gd.value_and_grad(loss), in_axes=(None, 0, 0))
    losses, gradients = step(model, images, labels)
    for i in range(5):
        value, expected = gd.value_and_grad(loss)(model, images[i], labels[i])
        assert close(losses[i], value)
        for name, g in expected.items():
            assert close(gradients[name][i], g), name
    compiled = gd.compile(lambda x, y: step(model, x, y))
    again = compiled(images, labels)
    assert close(again[0], losses) and all(close(again[1][name], g) for name, g in gradients.items())
    # Their mean is the gradient of the mean.
    whole = gd.grad(gd.cross_entropy(model(images), labels), dict(model.named_parameters()))
    assert all(close(gradients[name].mean(axis=0), g) for name, g in whole.items())


def test_a_hessian_and_a_jacobian():
    def function(x):
        return (x ** 3.0).sum() + x[0] * x[1]
    x = gd.tensor([1.0, 2.0, 3.0])

    def hessian_row(x, direction):
        return gd.grad(lambda x: gd.dot(gd.grad(function)(x), direction))(x)
    rows = gd.vmap(hessian_row, in_axes=(None, 0))(x, gd.eye(3))
    assert rows.detach().tolist() == [[6, 1, 0], [1, 12, 0], [0, 0, 18]]
    columns = gd.vmap(lambda v: gd.jvp(lambda x: x * x, [x], [v])[1])(gd.eye(3))
    assert columns.tolist() == [[2, 0, 0], [0, 4, 0], [0, 0, 6]]


def test_gradients_pass_through():
    w, x = gd.randn(3).requires_grad_(), gd.randn(5, 3)
    gd.vmap(lambda row: gd.dot(row, w) ** 2.0)(x).sum().backward()
    assert close(w.grad, 2 * (x @ w.detach()) @ x)
    assert gd.grad(gd.grad(lambda x: x ** 3.0))(gd.tensor(2.0)).item() == 12


def test_within_itself():
    x, y = gd.randn(4, 3), gd.randn(5, 3)
    assert close(gd.vmap(lambda a: gd.vmap(lambda b: gd.dot(a, b))(y))(x), x @ y.T)


def test_what_has_no_rule_is_done_element_by_element():
    lstm = nn.LSTM(6)
    x = gd.randn(3, 4, 2)
    expected = lstm(x)
    expected = expected[0] if isinstance(expected, tuple) else expected
    mapped = gd.vmap(lambda row: (lambda r: r[0] if isinstance(r, tuple) else r)(lstm(row.unsqueeze(0))).squeeze(0))(x)
    assert close(mapped, expected)


def test_random_numbers_are_of_each():
    drawn = gd.vmap(lambda row: gd.dropout(row, 0.5))(gd.ones((4, 100)))
    assert len({tuple(row) for row in drawn.tolist()}) == 4
    gd.seed(1)
    assert gd.array_equal(gd.vmap(lambda row: gd.dropout(row, 0.5))(gd.ones((4, 100))), drawn)


def test_errors_name_the_argument():
    x, y = gd.randn(4, 3), gd.randn(3, 3)

    def function(image, label):
        return gd.dot(image, label)
    for axes, error, says in ((0, gd.ShapeError, "label has 3 elements along axis 0, image has 4"), ((0, 2), gd.ShapeError, "label has shape"),
                              (None, gd.InvalidError, "no tensor"), ((0,), ValueError, "tuple of 2"), ((0, "x"), TypeError, "whole number")):
        with pytest.raises(error, match=says):
            gd.vmap(function, in_axes=axes)(x, y)
    with pytest.raises(gd.ShapeError, match="argument 2 has 3|y has 3"):
        gd.vmap(gd.dot)(x, y)
    with pytest.raises(gd.TracingError):
        gd.vmap(lambda x: x if x.sum() > 0 else -x)(x)
    with pytest.raises(ZeroDivisionError):
        gd.vmap(lambda x: x / (1 // 0))(x)
    norm = nn.BatchNorm(3)
    images = gd.randn(4, 2, 3)
    norm(images[0])
    with pytest.raises(gd.StateError, match="running statistics"):
        gd.vmap(norm)(images)
    norm.eval()
    assert gd.vmap(norm)(images).shape == (4, 2, 3)
    assert (gd.ones(2) + 1).tolist() == [2, 2]


def test_threads_map_at_once():
    x, errors = gd.randn(8, 5), []
    expected = (x * x).sum(axis=1)

    def work():
        try:
            for _ in range(30):
                assert close(gd.vmap(gd.dot)(x, x), expected)
        except BaseException as error:
            errors.append(error)
    threads = [threading.Thread(target=work) for _ in range(3)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not errors
