"""gd.fit and gd.evaluate."""
import signal

import gradus as gd
import pytest
from gradus import data, nn, optim


def problem():
    gd.seed(0)
    x = gd.randn(300, 5)
    y = (x[:, 0] > 0).to("int64") + (x[:, 1] > 1).to("int64")
    loader = data.DataLoader(data.from_arrays(x, y), batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
    return model, optim.Adam(model, lr=0.01), loader


def test_it_trains_evaluates_and_tells(capsys):
    model, adam, loader = problem()
    rates = []
    records = gd.fit(model, adam, loader, 6, test=loader, metrics={"accuracy": gd.accuracy},
                     schedule=lambda step: rates.append(step) or 0.01, callback=lambda r: r["epoch"] < 5)
    assert [r["epoch"] for r in records] == [1, 2, 3, 4, 5] and rates == list(range(50))
    assert records[-1]["test_loss"] < records[0]["test_loss"] and records[-1]["test_accuracy"] > 0.8
    assert model._training and abs(records[-1]["lr"] - 0.01) < 1e-9
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 5 and said[0].startswith("epoch 1/6  loss ") and "test_accuracy" in said[0]


def test_its_steps_are_those_of_a_loop():
    results = []
    for own_loop in (False, True):
        model, adam, loader = problem()
        model.eval()  # no dropout
        if own_loop:
            step = gd.compile(lambda x, y: adam.minimize(gd.cross_entropy(model(x), y)))
            for _ in range(2):
                for x, y in loader:
                    step(x, y)
        else:
            gd.fit(model, adam, loader, 2, progress=False)
        results.append([p.tobytes() for p in model.parameters()])
    assert results[0] == results[1]


def test_a_number_is_no_class():
    x = gd.randn(40, 3)
    loader = data.DataLoader(data.from_arrays(x, x[:, :1] * 2), batch_size=8)
    model = nn.Linear(3, 1)
    sgd = optim.SGD(model, lr=0.1)
    with pytest.raises(ValueError, match="loss=gd.mse"):
        gd.fit(model, sgd, loader, 1, progress=False)
    with pytest.raises(ValueError, match="loss=gd.mse"):
        gd.evaluate(model, loader)
    records = gd.fit(model, sgd, loader, 3, loss=gd.mse, progress=False)
    assert records[-1]["loss"] < records[0]["loss"]


def test_ctrl_c_ends_it_in_order():
    model, adam, loader = problem()

    class Interrupting:
        def __init__(self, loader):
            self.loader = loader

        def __len__(self):
            return len(self.loader)

        def __iter__(self):
            for i, batch in enumerate(self.loader):
                if i == 4:
                    signal.raise_signal(signal.SIGINT)
                yield batch
    records = gd.fit(model, adam, Interrupting(loader), 3, test=loader, progress=False)
    assert len(records) == 1 and records[0]["interrupted"] and records[0]["loss"] > 0 and "test_loss" not in records[0]
