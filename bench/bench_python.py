"""The Python package: importing it, eager ops on four numbers against PyTorch's (and tinygrad's, where it is there), and what a compiled
step of MNIST takes above the library's own call; and training MNIST as a whole program, against PyTorch's.

Each number is the least of many short batches, of the processor's time: what a call takes when nothing else is in the way.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import python_side as side

ROOT = pathlib.Path(__file__).resolve().parent.parent
BATCHES, CALLS = (60, 300) if side.QUICK else (400, 300)
OPS = {"add": "a + b", "relu": "a.relu()", "sum": "a.sum()", "reshape": "a.reshape(2, 2)", "a + 1.5": "a + 1.5"}
IMPORT = """
import resource, time
def resident(): return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 2**20
before, begin = resident(), time.process_time()
import {}
print(time.process_time() - begin, resident() - before)
"""


def least(samples):
    """(the least, how far the quartiles lie apart over it)"""
    return min(samples), side.median(samples)[1]


def timed(statements, names):
    """Nanoseconds a run of each statement, in turns, less those of an empty one."""
    codes = {}
    for name, statement in [("", "pass"), *statements.items()]:
        space = dict(names)
        exec(f"def run(clock):\n  begin = clock()\n  for _ in range({CALLS}):\n    {statement}\n  return (clock() - begin) / {CALLS} * 1e9", space)
        codes[name] = space["run"]
    samples = {name: [] for name in codes}
    for _ in range(BATCHES):
        for name, code in codes.items():
            samples[name].append(code(time.process_time))
    empty = min(samples.pop(""))
    return {name: (low - empty, spread) for name, (low, spread) in ((n, least(s)) for n, s in samples.items())}


# ---- sides, each a process: "ops gradus" prints a line for each op

def gradus_names(requires_grad):
    import gradus as gd
    gd.set_threads(1)
    a = gd.tensor([1.0, -2.0, 3.0, 0.5], requires_grad=requires_grad)
    return {"a": a, "b": gd.tensor([0.5, 0.25, -4.0, 2.0])}


def torch_names(requires_grad):
    import torch
    torch.set_num_threads(1)
    return {"a": torch.tensor([1.0, -2.0, 3.0, 0.5], requires_grad=requires_grad), "b": torch.tensor([0.5, 0.25, -4.0, 2.0])}


def tinygrad_names(requires_grad):
    from tinygrad import Tensor
    a = Tensor([1.0, -2.0, 3.0, 0.5], device="CPU", requires_grad=requires_grad)
    return {"a": a.realize(), "b": Tensor([0.5, 0.25, -4.0, 2.0], device="CPU").realize()}


SIDES = {"gradus": gradus_names, "torch": torch_names, "tinygrad": tinygrad_names}


def print_ops(which):
    statements = {name: f"({text}).realize()" if which == "tinygrad" else text for name, text in OPS.items()}
    for requires_grad in (False, True):
        names = SIDES[which](requires_grad)
        found = timed(statements, names)
        for name, text in OPS.items():
            result = eval(statements[name], dict(names))
            values = result.detach().tolist() if hasattr(result, "detach") else result.tolist()
            print("op", name, "|", int(requires_grad), *found[name], "|", values)


def process(*words, way="fast"):
    """What this program prints as that side; None where the side cannot run."""
    done = subprocess.run([sys.executable, __file__, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                          env={**os.environ, "GRADUS_PYTHON": way})
    if done.returncode != 0 and words[-1] == "gradus":
        print(done.stderr, file=sys.stderr)
    return done.stdout if done.returncode == 0 else None


def ops_of(text):
    found = {}
    for line in text.splitlines():
        name, numbers, values = line.removeprefix("op ").split(" | ")
        requires_grad, ns, spread = numbers.split()
        found[name, requires_grad == "1"] = (float(ns), float(spread)), values
    return found


def compare_ops():
    peers = {name: ops_of(text) for name, text in ((n, process("ops", n)) for n in ("torch", "tinygrad")) if text}
    for way, note in (("fast", ""), ("ctypes", ", over ctypes")):
        text = process("ops", "gradus", way=way)
        if text is None:
            print(f"python: there is no {way} here", file=sys.stderr)
            continue
        for (name, requires_grad), (ours, values) in ops_of(text).items():
            for peer, found in peers.items():
                theirs, expected = found[name, requires_grad]
                case = f"{name}, 4 numbers{' that require a gradient' if requires_grad else ''}{note}"
                side.print_row("python", case, "ns", ours, theirs, {"torch": "PyTorch"}.get(peer, peer), values == expected)


def compare_imports():
    for module, peer in (("torch", "PyTorch"), ("tinygrad", "tinygrad"), ("numpy", "NumPy")):
        ours, theirs = [], []
        for _ in range(5 if side.QUICK else 15):
            for name, found in (("gradus", ours), (module, theirs)):
                done = subprocess.run([sys.executable, "-c", IMPORT.format(name)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                      check=False, env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""})
                if done.returncode == 0:
                    found.append([float(n) for n in done.stdout.split()])
        if not theirs:
            continue
        for i, metric, scale in ((0, "ms", 1000), (1, "MiB", 1)):
            (a, b), (c, d) = least([one[i] for one in ours]), least([one[i] for one in theirs])
            side.print_row("python", f"import, {'time' if i == 0 else 'memory'}", metric, (a * scale, b), (c * scale, d), peer, True)


def mnist_step(mode):
    """A step of MNIST's network of batch 50, its arguments, and the losses of the first ones."""
    import gradus as gd
    from gradus import nn, optim
    gd.seed(1)
    fc1, fc2, fc3 = nn.Linear(784, 16), nn.Linear(16, 16), nn.Linear(16, 10)
    adam = optim.Adam(nn.ModuleList([fc1, fc2, fc3]), lr=1e-6)  # so small that no gradient ever becomes denormal

    def step(x, y):
        first = fc1(x).relu()
        return adam.minimize(gd.cross_entropy(fc3(first + fc2(first).relu()), y))
    step, x, y = gd.compile(step, mode=mode), gd.rand(50, 784), gd.randint(0, 10, 50)
    return step, x, y, [step(x, y).item() for _ in range(20)]


def above_the_call(step, x, y):
    """(microseconds from Python, of the library's call alone by one foreign call)"""
    from gradus import _convert, _lib
    names = {"step": step, "x": x, "y": y, "call": _lib.C.gd_call, "h": step._last.h, "inputs": _convert.handles([x, y])}
    found = timed({"python": "step(x, y)", "call": "call(h, 2, inputs)"}, names)
    return tuple((ns / 1e3, spread) for ns, spread in (found["python"], found["call"]))


def compare_step():
    import gradus as gd
    gd.set_threads(1)
    step, x, y, losses = mnist_step("compiled")
    side.print_row("python", "train step, MNIST, batch 50, compiled", "us", *above_the_call(step, x, y), "gd_call alone",
                   losses == mnist_step("eager")[-1])
    small, x = gd.compile(lambda x, y: x + y), gd.ones(4)
    verified = small(x, x).tolist() == [2.0] * 4
    side.print_row("python", "a compiled call of two arguments", "us", *above_the_call(small, x, x), "gd_call alone", verified)


def program(words, folder):
    """(seconds by the clock of a whole program, the last accuracy that it prints); None where it cannot run."""
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, *map(str, words)], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    seconds = time.perf_counter() - begin
    found = re.findall(r"test accuracy ([0-9.]+) %", done.stdout)
    return (seconds, float(found[-1])) if done.returncode == 0 and found else None


def compare_programs():
    """Training MNIST's network from the import to the last epoch's accuracy on the test's digits: a process each."""
    epochs, runs = (1, 1) if side.QUICK else (10, 3)
    ours, theirs = ROOT / "examples/python/mnist.py", side.PEERS / "mnist_program_torch.py"
    peers = {"PyTorch": [theirs, epochs], "PyTorch's DataLoader": [theirs, epochs, "loader"]}
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(ROOT / "data", os.path.join(folder, "data"))
        found = {name: [] for name in ("gradus", *peers)}
        for _ in range(runs):
            for name, words in (("gradus", [ours, epochs]), *peers.items()):
                result = program(words, folder)
                found[name] += [result] if result else []
    for name in peers:
        if found["gradus"] and found[name]:
            (mine, right), (other, expected) = (([s for s, _ in found[n]], found[n][0][1]) for n in ("gradus", name))
            side.print_row("python", f"train MNIST end to end, {epochs} epochs", "s", side.median(mine), side.median(other), name,
                           abs(right - expected) < 2 and right > 88, clock="wall")


def main():
    side.problem.use_processors(1)
    compare_imports()
    compare_ops()
    compare_step()
    compare_programs()
    return 0 if side.all_verified else 1


if sys.argv[1:2] == ["ops"]:
    print_ops(sys.argv[2])
else:
    sys.exit(main())
