"""The work of bench_lenet, bench_simple_cnn and bench_cats_dogs in PyTorch.

    python3 cnn_torch.py lenet|simple_cnn|cats_dogs eager|compile PROBLEM THREADS SECONDS CHUNK RATE

PROBLEM is the file that bench/cnn.c writes: weight and bias of each layer (f32; dense weights [in, out]), the batch (f32), its labels
(i64). Prints "name", "step" with the median seconds over chunks of CHUNK steps and the losses of the first steps, and "memory" in MiB.
Where PyTorch has several good ways to do the same, all are tried and the fastest counts. Exit status 3: there is no PyTorch.
"""
import ctypes
import os
import sys
import tempfile

cache = tempfile.TemporaryDirectory()
os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache.name
try:
    import numpy as np
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError:
    sys.exit(3)

import problem

SUITE, MODE, PATH = sys.argv[1:4]
THREADS, SECONDS, CHUNK, RATE = int(sys.argv[4]), float(sys.argv[5]), int(sys.argv[6]), float(sys.argv[7])
CHECKED = 4


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


def simple_cnn():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))


def cats_dogs():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(64 * 64 * 64, 128), nn.ReLU(), nn.Linear(128, 2))


NETWORKS = {"lenet": (lenet, (64, 1, 28, 28)), "simple_cnn": (simple_cnn, (32, 3, 32, 32)), "cats_dogs": (cats_dogs, (16, 3, 64, 64))}


def read_problem():
    """The network with its weights, the batch, and its labels."""
    make, shape = NETWORKS[SUITE]
    net = make()
    with open(PATH, "rb") as file, torch.no_grad():
        take = lambda dtype, dims: torch.from_numpy(np.fromfile(file, dtype, int(np.prod(dims))).reshape(dims))
        for layer in net:
            if isinstance(layer, nn.Conv2d):
                layer.weight.copy_(take("<f4", tuple(layer.weight.shape)))
            elif isinstance(layer, nn.Linear):
                layer.weight.copy_(take("<f4", (layer.in_features, layer.out_features)).T)
            else:
                continue
            layer.bias.copy_(take("<f4", tuple(layer.bias.shape)))
        x, y = take("<f4", shape), take("<i8", shape[:1])
        assert not file.read(1), "not a problem of this network"
    return net, x, y


def make_step(channels_last=False, **options):
    net, x, y = read_problem()
    if channels_last:
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    optimizer = (torch.optim.SGD if SUITE == "simple_cnn" else torch.optim.Adam)(net.parameters(), lr=RATE, **options)
    loss_of = lambda: F.cross_entropy(net(x), y)
    if MODE == "compile":
        loss_of = torch.compile(loss_of)

    def step():
        loss = loss_of()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def keep_memory():
    """glibc's malloc keeps what is freed, instead of giving large blocks back to the system after each step."""
    M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_MAX, 0)
    libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def measure(name, **options):
    """Seconds and first losses of one way."""
    step = make_step(**options)
    losses = [step().item() for _ in range(CHECKED)]
    seconds = problem.median_seconds(step, lambda: None, CHUNK, SECONDS)
    print(f"note PyTorch {MODE}, {name}, OMP_NUM_THREADS={THREADS}: {seconds * 1e3:.3f} ms", flush=True)
    return seconds, losses


def main():
    problem.use_processors(THREADS)
    torch.set_num_threads(THREADS)
    print("name PyTorch", torch.__version__.split("+")[0], MODE, flush=True)
    try:
        ways = [measure("fused", fused=True)]
    except Exception as error:  # torch.compile needs a C++ compiler
        print("note PyTorch", MODE, (str(error).strip().splitlines() or [type(error).__name__])[0][:200])
        sys.exit(3)
    problem.print_memory()  # of this way alone: the others may take more
    keep_memory()
    ways.append(measure("fused, memory kept", fused=True))
    if MODE == "eager":
        ways.append(measure("foreach, memory kept", foreach=True))
        ways.append(measure("fused, memory kept, channels last", fused=True, channels_last=True))
    seconds, losses = min(ways)
    print(f"step {MODE} {seconds:.9g} {problem.numbers(losses)}", flush=True)


main()
