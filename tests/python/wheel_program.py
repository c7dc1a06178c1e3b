"""Run by tools/make-wheel in an environment that has the wheel and nothing else: no compiler, no NumPy, none of this system's copies
of libraries that a wheel has to bring along."""
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import zipfile

for name in ("cc", "gcc", "clang", "cmake", "ninja"):
    assert not shutil.which(name), f"{name} is in PATH"
assert importlib.util.find_spec("numpy") is None, "NumPy is there"

import gradus as gd
from gradus import nn, optim

wheel = os.path.basename(sys.argv[1])
assert re.fullmatch(r"gradus-[0-9.]+-py3-none-manylinux\w+\.whl", wheel), wheel
with zipfile.ZipFile(sys.argv[1]) as archive:
    names = set(archive.namelist())
assert {"gradus/libgradus.so", "gradus/py.typed", "gradus/_api.py", "gradus/_ops.py"} <= names, sorted(names)
# The extension is for CPython 3.11 and later; others have the same package over ctypes.
takes_fast = "gradus/_fast.abi3.so" in names and sys.version_info >= (3, 11) and os.environ.get("GRADUS_PYTHON") != "ctypes"
assert (getattr(gd._lib, "fast", None) is not None) == takes_fast
assert gd.__file__.startswith(sys.prefix), gd.__file__
assert "numpy" not in sys.modules
assert bool(gd._context.held) == (takes_fast or sys.version_info < (3, 11))  # before, threads may come between any two instructions
assert repr(gd.ones((2, 3)) + 1) == "Tensor([[2. 2. 2.]\n        [2. 2. 2.]], dtype=float32)"

gd.seed(1)
model = nn.Sequential(nn.Linear(1, 32), gd.tanh, nn.Linear(32, 1))
adam = optim.Adam(model, lr=0.01)
step = gd.compile(lambda x, y: adam.minimize(gd.mse(model(x), y)))
x = gd.linspace(-3, 3, 64).reshape(64, 1)
losses = [step(x, gd.sin(x)).item() for _ in range(300)]
assert losses[-1] < losses[0] / 20, losses[::50]

with tempfile.TemporaryDirectory() as folder:  # a file, by libjansson
    path = os.path.join(folder, "sine.safetensors")
    model.save(path)
    assert sorted(gd.load(path)) == ["0.bias", "0.weight", "2.bias", "2.weight"]
if os.path.exists("/proc/self/maps"):
    with open("/proc/self/maps") as maps:
        loaded = {line.split()[-1] for line in maps if re.search(r"lib(gradus|jansson|jpeg|png)", line)}
    assert loaded and all(path.startswith(sys.prefix) for path in loaded), loaded
print(f"{wheel}: {len(names)} files, works on Python {sys.version.split()[0]} {'with _fast' if takes_fast else 'over ctypes'}; loss {losses[0]:.4f} -> {losses[-1]:.6f}")
