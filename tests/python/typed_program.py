"""Checked by pyright in test_types.py, never run: each line with the mark is an error, the others are none."""
from typing import Callable

import gradus as gd
from gradus import data, nn, optim

x: gd.Tensor = gd.randn(3, 4)
y: gd.Tensor = (x + 1.5) @ gd.ones((4, 2))
n: float | int | bool = y.sum(axis=1).mean().item()
names: list[str] = [path for path, _ in nn.Linear(4, 2).named_parameters()]
wide: gd.DType = gd.float64
model = nn.Sequential(nn.Linear(None, 8), nn.ReLU(), nn.LSTM(5, layers=2))
adam = optim.Adam(model, lr=1e-3, weight_decay=0.1)
loss: gd.Tensor = nn.CrossEntropyLoss(label_smoothing=0.1)(x, y)


@gd.compile
def step(a: gd.Tensor, b: gd.Tensor) -> gd.Tensor:
    return adam.minimize(gd.cross_entropy(model(a), b))


@gd.compile(mode="lazy")
def other(a: gd.Tensor, scale: int) -> tuple[gd.Tensor, int]:
    return a * scale, scale


told: gd.Tensor = step(x, y)
both: tuple[gd.Tensor, int] = other(x, 2)
losses: list[float] = step.run(data.DataLoader(data.mnist()), 100)
gradient: Callable[..., object] = gd.value_and_grad(lambda a: a.sum())
text: str = step.plan() + step.explain()
score: float = gd.metrics.Confusion(3).score("micro").f1

gd.softmax(x, axis="last")  # wrong
optim.Adam(model, learning_rate=0.1)  # wrong
nn.LSTM("five")  # wrong
step(x)  # wrong
z: int = gd.relu(x)  # wrong
gd.zeros((2, 3)).no_such_method()  # wrong
gd.no_such_function(x)  # wrong
gd.metrics.Confusion("three")  # wrong
