"""gd.fit and gd.evaluate; runs of it are killed and resumed."""
import json
import signal
import subprocess
import sys
import time

import gradus as gd
import pytest
from conftest import environment
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
    records = gd.fit(model, adam, loader, 6, validation=loader, metrics={"accuracy": gd.accuracy},
                     schedule=lambda step: rates.append(step) or 0.01, callback=lambda r: r["epoch"] < 5)
    assert [r["epoch"] for r in records] == [1, 2, 3, 4, 5] and rates == list(range(50))
    assert records[-1]["validation_loss"] < records[0]["validation_loss"] and records[-1]["validation_accuracy"] > 0.8
    assert model._training and abs(records[-1]["lr"] - 0.01) < 1e-9
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 5 and said[0].startswith("epoch 1/6  loss ") and "validation_accuracy" in said[0]


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
    records = gd.fit(model, adam, Interrupting(loader), 3, validation=loader, progress=False)
    assert len(records) == 1 and records[0]["interrupted"] and records[0]["loss"] > 0 and "validation_loss" not in records[0]


# ---- in a run folder

PROGRAM = """
import os, sys
import gradus as gd
from gradus import data, nn, optim
folder, stop, seed, kind = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]

class Samples:  # a data set in Python
    def __len__(self): return 50
    def __getitem__(self, i): return [float((i * k) % 7) for k in range(1, 7)], i % 3

gd.seed(seed)
more = {}
if kind in ("module", "averages"):
    model = nn.Sequential(nn.Linear(None, 12), nn.BatchNorm(12), nn.ReLU(), nn.Dropout(0.3), nn.Linear(12, 3))
    loader, held_out = data.DataLoader(Samples(), 8, shuffle=True, seed=2, workers=2), data.DataLoader(Samples(), 20, shuffle=True)
else:
    table = data.table(kind)
    train, held_out = table.split(table.columns[-1])
    model = nn.Model.from_json('{"input": [%d], "layers": [{"name": "a", "type": "linear", "units": 8}, '
                               '{"name": "n", "type": "batch_norm"}, {"name": "d", "type": "dropout", "dropout": 0.2}, {"name": "o", "type": "linear", "units": 3}]}'
                               % train.shape)
    loader = data.DataLoader(train, 16, shuffle=True, seed=2)

if kind == "averages":
    model.eval()(gd.ones((1, 6)))
    model.train()
    more = {"accumulate": 2, "ema": optim.EMA(model, decay=0.8)}

def rate(step):
    if step == stop:
        os._exit(9)
    return 0.01 / (1 + step)
with gd.Run(folder, interval=0) as run:  # each checkpoint is written
    gd.fit(model, optim.Adam(model), loader, 5, validation=held_out, metrics={"accuracy": gd.accuracy}, monitor="accuracy", schedule=rate,
           run=run, resume=True, checkpoint_steps=3, progress=False, **more)
"""


def run_program(folder, stop=-1, seed=1, kind="module"):
    return subprocess.run([sys.executable, "-c", PROGRAM, str(folder), str(stop), str(seed), str(kind)], check=False, env=environment(),
                          capture_output=True, text=True)


FILES = ("model.safetensors", "checkpoints/last.safetensors", "checkpoints/best.safetensors")


def lines_of(folder):
    """The log, without times."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "time"} for line in lines]


@pytest.mark.parametrize("kind, middle, later", [("module", 19, 30), ("table", 19, 30), ("averages", 11, 17)])
def test_a_killed_run_goes_on_to_the_same_bytes(tmp_path, iris, kind, middle, later):
    kind = iris if kind == "table" else kind
    whole = tmp_path / "whole"
    said = run_program(whole, kind=kind)
    assert said.returncode == 0, said.stderr
    for stop in (2, middle):  # before the first checkpoint, from which on the seed does not matter, and in the midst of an epoch
        folder = tmp_path / f"part{stop}"
        assert run_program(folder, stop, kind=kind).returncode == 9
        assert not (folder / "model.safetensors").exists()
        if stop > 2:
            assert run_program(folder, later, seed=5, kind=kind).returncode == 9
        assert run_program(folder, seed=1, kind=kind).returncode == 0
        for name in FILES:
            assert (folder / name).read_bytes() == (whole / name).read_bytes(), (stop, name)
        assert lines_of(folder) == lines_of(whole)
    before = (whole / FILES[0]).read_bytes()
    assert run_program(whole, kind=kind).returncode == 0  # there is nothing left to do
    assert (whole / FILES[0]).read_bytes() == before


def test_killed_from_outside_at_any_moment(tmp_path):
    assert run_program(tmp_path / "whole").returncode == 0
    for delay in (0.3, 0.5):
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path / "part"), "-1", "1", "module"], env=environment())
        time.sleep(delay)
        process.kill()
        process.wait()
    assert run_program(tmp_path / "part").returncode == 0
    for name in FILES:
        assert (tmp_path / "part" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_what_a_run_folder_has(tmp_path):
    model, adam, loader = problem()
    model(gd.ones((1, 5)))
    before = {name: t.tolist() for name, t in model.state_dict().items()}
    records = gd.fit(model, adam, loader, 3, validation=loader, metrics={"accuracy": gd.accuracy}, run=tmp_path / "r", progress=False)
    assert {p.name for p in (tmp_path / "r").iterdir()} == {"config.json", "metrics.jsonl", "checkpoints", "lock", "pictures",
                                                            "model.safetensors"}
    config = json.loads((tmp_path / "r/config.json").read_text())
    assert config == {"program": "gd.fit", "epochs": 3, "batch": 32, "seed": 0, "optimizer": {"name": "adam", "lr": 0.01}}
    last = lines_of(tmp_path / "r")[-1]
    assert last["validation/accuracy"] == records[-1]["validation_accuracy"] and last["train/loss"] == records[-1]["loss"]
    assert last["step"] == 30 and last["epoch"] == 3
    assert "validation/loss" in (tmp_path / "r/pictures/curves.svg").read_text()
    kept = gd.load(tmp_path / "r/model.safetensors")
    assert {name: t.tolist() for name, t in kept.items()} == {name: t.tolist() for name, t in model.state_dict().items()} != before
    with pytest.raises(gd.StateError, match="resume=True goes on with it"):
        gd.fit(model, adam, loader, 3, run=tmp_path / "r", progress=False)
    with pytest.raises(gd.StateError, match="the run's epochs have 10 batches, the loader's 5"):
        gd.fit(model, adam, data.DataLoader(loader.dataset, 64), 3, run=tmp_path / "r", resume=True, progress=False)
    again = gd.fit(model, adam, loader, 4, validation=loader, metrics={"accuracy": gd.accuracy}, run=tmp_path / "r", resume=True,
                   progress=False)
    assert again[:3] == records and again[3]["epoch"] == 4
    with gd.Run(tmp_path / "other") as run:
        run.save(adam, loader=loader, state={"of": "another program"})
    with pytest.raises(gd.StateError, match="was not begun by gd.fit"):
        gd.fit(model, adam, loader, 3, run=tmp_path / "other", resume=True, progress=False)


def test_accumulated_batches_are_one():
    """Also where they do not come out even: of 50 samples in batches of 8, by 3, the last update is of 2."""
    gd.seed(3)
    x = gd.randn(50, 4)
    samples = data.from_arrays(x, x @ gd.randn(4, 1))

    def train(batch, accumulate):
        model = nn.Linear(4, 1)
        model.load_state_dict({"weight": gd.ones((4, 1)), "bias": gd.zeros((1,))})
        sgd = optim.SGD(model, lr=0.1, momentum=0.5)
        steps = []
        records = gd.fit(model, sgd, data.DataLoader(samples, batch), 2, loss=gd.mse, accumulate=accumulate, progress=False,
                         schedule=lambda step: steps.append(step) or 0.1)
        return steps, [record["loss"] for record in records], model.weight.tolist()
    steps, losses, weight = train(8, 3)
    wanted_steps, wanted_losses, wanted = train(24, 1)
    assert steps == wanted_steps == list(range(6))
    assert losses == pytest.approx(wanted_losses, rel=1e-5)
    assert sum(weight, []) == pytest.approx(sum(wanted, []), rel=1e-5)


def test_averages_are_what_is_validated_and_kept(tmp_path):
    gd.seed(3)
    x = gd.randn(60, 4)
    samples = data.from_arrays(x, x @ gd.randn(4, 1))
    model = nn.Linear(4, 1)
    ema = optim.EMA(model, decay=0.9)
    by_hand, wanted = [], []

    def average(record):
        ema.swap()
        wanted.append(gd.evaluate(model, samples, loss=gd.mse)["loss"])
        by_hand.append([value for row in model.weight.tolist() for value in row])
        ema.swap()
    for run in (tmp_path / "r", None):
        records = gd.fit(model, optim.Adam(model, lr=0.01), data.DataLoader(samples, 8), 3, loss=gd.mse, validation=samples if run else None,
                         ema=ema, callback=average, run=run, progress=False)
        if run:
            assert [record["validation_loss"] for record in records] == wanted
            assert sum(model.weight.tolist(), []) == by_hand[wanted.index(min(wanted))] != by_hand[0]
    plain = gd.load(tmp_path / "r/model.safetensors")["weight"]
    assert sum(plain.tolist(), []) == by_hand[2]


def test_a_plateau_lowers_the_rate():
    model, adam, loader = problem()
    records = gd.fit(model, adam, loader, 6, plateau=optim.Plateau(factor=0.5, patience=0, threshold=10.0), progress=False)
    assert [record["lr"] for record in records] == [0.01, 0.01, 0.005, 0.0025, 0.00125, 0.000625]
    with pytest.raises(gd.InvalidError, match="a plateau does not go with a schedule"):
        gd.fit(model, adam, loader, 1, plateau=optim.Plateau(), schedule=optim.cosine(0.1, 10, warmup=2), progress=False)
    rates = []
    model, adam, loader = problem()
    records = gd.fit(model, adam, loader, 1, schedule=lambda step: rates.append(optim.cosine(0.01, 10, warmup=4)(step)) or rates[-1],
                     progress=False)
    assert rates[:4] == pytest.approx([0.0025, 0.005, 0.0075, 0.01]) and rates[9] < 0.003


def test_a_rate_is_found_and_nothing_is_changed():
    """The points of C's test (test_fit.c), on (w + 1)^2 from w = 1: an average with 0.98 of the past, ended at four times its least."""
    x = gd.ones((8, 1), dtype="float64")  # in f32 w would come to be -1, and stay there
    samples = data.from_arrays(x, gd.zeros((8, 1), dtype="float64"))

    def bowl(out, y):
        return ((out + 1.0 - y) ** 2).mean()
    model = nn.Linear(1, 1, bias=False).to("float64")
    model.load_state_dict({"weight": gd.ones((1, 1), dtype="float64")})
    sgd, loader = optim.SGD(model, lr=0.25), data.DataLoader(samples, 4, shuffle=True)
    gd.seed(9)
    rate, points = gd.lr_range(model, sgd, loader, bowl, start=1e-4, end=100.0)
    w, average, wanted = 1.0, 0.0, []
    for n in range(100):
        lr = 1e-4 * 1e6 ** (n / 99)
        average = 0.98 * average + 0.02 * (w + 1) ** 2
        wanted.append((lr, average / (1 - 0.98 ** (n + 1))))
        w -= lr * 2 * (w + 1)
        if n and wanted[-1][1] > 4 * min(value for _, value in wanted):
            break
    assert 60 < len(points) == len(wanted) < 100
    assert [value for point in points for value in point] == pytest.approx([value for point in wanted for value in point], rel=1e-4)
    assert 0.01 < rate < 1.0
    assert model.weight.tolist() == [[1.0]] and sgd.lr == 0.25 and (loader.epoch, loader.position) == (0, 0)
    for wrong in ({"start": 0.0}, {"steps": 0}, {"start": 2.0, "end": 1.0}):
        with pytest.raises(gd.InvalidError, match="rates above 0 that grow"):
            gd.lr_range(model, sgd, loader, bowl, **wrong)
    whole, adam, loader = problem()
    one = gd.fit(whole, adam, loader, 2, progress=False)
    again, adam, loader = problem()
    gd.lr_range(again, adam, loader, steps=20)
    assert gd.fit(again, adam, loader, 2, progress=False) == one


def test_other_data_are_not_gone_on_with(tmp_path):
    x = gd.arange(40.0).reshape((20, 2)) / 40
    y = x[:, :1]
    model = nn.Linear(2, 1)
    sgd = optim.SGD(model, lr=0.1)

    def train(values):
        return gd.fit(model, sgd, data.DataLoader(data.from_arrays(values, y), 5), 2, loss=gd.mse, run=tmp_path / "r", resume=True,
                      progress=False)
    first = train(x)
    other = x.copy()
    other[7, 1] = 3.0
    with pytest.raises(gd.StateError, match="the data has changed since the run began"):
        train(other)
    assert train(x) == first
    assert data.from_arrays(x).fingerprint() == data.from_arrays(x.copy()).fingerprint() != data.from_arrays(other).fingerprint()


def test_the_best_parameters_are_kept(tmp_path):
    """A rate that spoils everything after the second epoch."""
    model, adam, loader = problem()
    records = gd.fit(model, adam, loader, 9, validation=loader, metrics={"accuracy": gd.accuracy}, monitor="accuracy", patience=3,
                     schedule=lambda step: 0.01 if step < 20 else 5.0, run=tmp_path / "r", progress=False)
    accuracies = [record["validation_accuracy"] for record in records]
    best = accuracies.index(max(accuracies))
    assert len(records) == best + 4 < 9 and accuracies[-1] < accuracies[best]
    assert gd.evaluate(model, loader, metrics={"accuracy": gd.accuracy})["accuracy"] == accuracies[best]


def test_ctrl_c_saves(tmp_path):
    def train(folder, seed, epochs=4, interrupt=None):
        model, adam, loader = problem()
        gd.seed(seed)

        def rate(step):
            if step == interrupt:
                signal.raise_signal(signal.SIGINT)
            return 0.01
        records = gd.fit(model, adam, loader, epochs, run=folder, resume=True, schedule=rate, progress=False)
        return records, (folder / "model.safetensors").read_bytes()
    whole, wanted = train(tmp_path / "whole", 0)
    records, _ = train(tmp_path / "part", 0, interrupt=13)
    assert len(records) == 2 and records[1]["interrupted"] and records[0] == whole[0]
    assert train(tmp_path / "part", 7) == (whole, wanted)


def test_frozen_parts_stay_so_and_a_metric_that_is_no_number_is_no_better(tmp_path):
    model, adam, loader = problem()
    model[2].eval()
    gd.evaluate(model, loader)
    assert model.training and not model[2].training
    records = gd.fit(model, adam, loader, 9, validation=loader, metrics={"none": lambda out, y: out.mean() * float("nan")},
                     monitor="none", patience=2, progress=False)
    assert len(records) == 2


def test_wrong_wishes_are_told_before_anything_is_trained(tmp_path):
    model, adam, loader = problem()
    for wrong, sentence in (({"monitor": "acuracy"}, "there is no metric 'acuracy'"), ({"patience": 3}, "of a validation"),
                            ({"resume": True}, "run= says")):
        with pytest.raises(ValueError, match=sentence):
            gd.fit(model, adam, loader, 1, progress=False, **wrong)
    with pytest.raises(ValueError, match="no gd.data.DataLoader"):
        gd.fit(model, adam, list(loader), 1, run=tmp_path / "r", progress=False)


def test_a_loss_that_is_no_number_is_told():
    x = gd.ones((40, 2))
    x[9, 0] = float("nan")
    model = nn.Linear(2, 1)
    with pytest.raises(gd.StateError, match="the loss is nan in epoch 1, at step 2; gd.fit\\(blame=True\\) finds the op"):
        gd.fit(model, optim.SGD(model, lr=0.1), data.DataLoader(data.from_arrays(x, x[:, :1]), 8), 2, loss=gd.mse, progress=False)


def test_several_inputs():
    a, b = gd.randn(64, 3), gd.randn(64, 2)
    y = a.sum(axis=1, keepdims=True) - b.sum(axis=1, keepdims=True)
    left, right = nn.Linear(3, 1), nn.Linear(2, 1)

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = left, right

        def forward(self, a, b):
            return self.left(a) + self.right(b)
    model = Two()
    samples = data.from_arrays(a=a, b=b, y=y)
    records = gd.fit(model, optim.Adam(model, lr=0.05), data.DataLoader(samples, 16), 40, validation=samples, loss=gd.mse, progress=False)
    assert records[-1]["validation_loss"] < 0.01 < records[0]["validation_loss"]


class Logs(nn.Module):
    """log of numbers that a row below zero in the data makes no numbers."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 4)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        h = self.drop(self.fc(x)).square()
        return gd.log(h + x.sum(axis=1, keepdims=True))


def logs(bad_row):
    gd.seed(3)
    model = Logs()
    x = gd.rand(320, 2) + 1.0
    if bad_row is not None:
        x[bad_row] = -1000.0
    loader = data.DataLoader(data.from_arrays(x, gd.zeros((320, 4))), 8, shuffle=False)
    return model, optim.Adam(model, lr=0.01), loader


@pytest.mark.parametrize("accumulate", [1, 3])
def test_blame_tells_the_op_and_the_line(accumulate):
    model, adam, loader = logs(37 * 8 + 5)
    with pytest.raises(gd.StateError) as caught:
        gd.fit(model, adam, loader, 2, loss=gd.mse, blame=True, accumulate=accumulate, progress=False)
    told, step = str(caught.value), 37 // accumulate + 1
    assert told.startswith(f'the loss is nan in epoch 1, at step {step}: "log" of [8, 4] makes nan of numbers in -2000 … '), told
    assert ", behind fc.bias\n" in told
    assert "test_fit.py\", line " in told and told.endswith(", in forward\n    return gd.log(h + x.sum(axis=1, keepdims=True))"), told

    same, other, loader = logs(37 * 8 + 5)  # all is as it was before that step
    steps = iter(loader)
    gd.fit(same, other, [next(steps) for _ in range(37 // accumulate * accumulate)], 1, loss=gd.mse, accumulate=accumulate, progress=False)
    assert [p.tolist() for p in model.parameters()] == [p.tolist() for p in same.parameters()]


def test_blame_changes_no_bit():
    values = []
    for blame in (False, True):
        model, adam, loader = logs(None)
        records = gd.fit(model, adam, loader, 2, loss=gd.mse, blame=blame, progress=False)
        values.append((records, [p.tolist() for p in model.parameters()], gd.rand(2).tolist()))
    assert values[0] == values[1]


def test_blame_tells_of_parameters_and_of_the_batch():
    x = gd.ones((40, 2))
    model = nn.Linear(2, 1)
    with pytest.raises(gd.StateError, match=r"at step 2: (weight|bias) was not finite before it: the step before went too far"):
        gd.fit(model, optim.SGD(model, lr=float("1e38")), data.DataLoader(data.from_arrays(x * 1e3, x[:, :1]), 8), 2, loss=gd.mse, blame=True,
               progress=False)
    x[39, 0] = float("inf")
    model = nn.Sequential(nn.Linear(None, 1))
    with pytest.raises(gd.StateError, match=r"at step 5: tensor 0 of the batch is not finite"):
        gd.fit(model, optim.SGD(model, lr=1e-3), data.DataLoader(data.from_arrays(x, x[:, 1:]), 8, shuffle=False), 2, loss=gd.mse, blame=True,
               progress=False)
