"""gd.Run: trainings that are saved, end, and go on in a fresh process, with the same bits."""
import subprocess
import sys

import pytest

import gradus as gd

PROGRAM = """
import sys
import gradus as gd

class Net(gd.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.norm, self.fc2 = gd.nn.Linear(6, 12), gd.nn.BatchNorm(12), gd.nn.Linear(12, 3)
    def forward(self, x):
        return self.fc2(gd.dropout(gd.relu(self.norm(self.fc1(x))), 0.3))

gd.seed(int(sys.argv[3]))
model = Net()
x = gd.sin(gd.arange(0, 240, dtype="float32").reshape(40, 6))
data = gd.data.from_arrays(x, gd.arange(0, 40) % 3)
optimizer = gd.optim.Adam(model, lr=0.01)
average = gd.optim.EMA(model, 0.9)
loader = gd.data.DataLoader(data, batch_size=8, shuffle=True, seed=2)
model(x[:2])

@gd.compile
def step(a, b):
    return optimizer.minimize(gd.cross_entropy(model(a), b))

with gd.Run(sys.argv[1]) as run:
    done = run.load(optimizer, loader=loader, ema=average) or 0
    while done < 20:
        for a, b in loader:
            step(a, b)
            average.update()
            done += 1
            run.save(optimizer, loader=loader, ema=average, state=done, best=done == 7)
            if done == int(sys.argv[2]):
                run.wait()
                import os
                os._exit(9)
"""


def train(folder, stop, seed):
    return subprocess.run([sys.executable, "-c", PROGRAM, str(folder), str(stop), str(seed)], check=False).returncode


def test_goes_on_bit_for_bit(tmp_path):
    assert train(tmp_path / "whole", -1, 1) == 0
    for stop in (1, 5, 13, 20):
        folder = tmp_path / f"part{stop}"
        assert train(folder, stop, 1) == 9
        assert train(folder, -1, 5) == 0
        for name in ("last", "best"):
            a, b = (f / "checkpoints" / f"{name}.safetensors" for f in (tmp_path / "whole", folder))
            assert a.read_bytes() == b.read_bytes()


def test_errors(tmp_path):
    model = gd.nn.Linear(2, 2)
    optimizer = gd.optim.SGD(model, lr=0.1)
    model(gd.ones((1, 2)))
    run = gd.Run(tmp_path / "a")
    assert run.folder == str(tmp_path / "a") and run.load(optimizer) is None
    with pytest.raises(gd.StateError, match="trains in this folder"):
        gd.Run(tmp_path / "a")
    run.save(optimizer, state={"epoch": 3})
    assert run.load(optimizer) == {"epoch": 3}
    with pytest.raises(gd.FormatError, match="not of adam"):
        run.load(gd.optim.Adam(model))
    run.close()
    with pytest.raises(gd.StateError, match="closed"):
        run.wait()
