"""The work of bench_lenet, bench_simple_cnn and bench_cats_dogs in PyTorch.

    python3 cnn_torch.py lenet|simple_cnn|cats_dogs eager|compile|eager-bf16|compile-bf16 PROBLEM THREADS SECONDS CHUNK RATE

PROBLEM is the file that bench/cnn.c writes: weight and bias of each layer (f32; dense weights [in, out]), the batch (f32), its labels
(i64). Prints the lines of bench/side.h: the step over chunks of CHUNK steps with the losses of the first, and the memory. Where
PyTorch has several good ways to do the same, all are tried and the fastest counts. Exit status 3: there is no PyTorch.
"""
import sys

import torch_peer
import torch
import torch.nn.functional as F
from torch import nn

import numpy as np

SUITE, NAME, PATH = sys.argv[1:4]
MODE, precision = torch_peer.precision(NAME)
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


def make_step(compile_options=None, channels_last=False, **options):
    net, x, y = read_problem()
    if channels_last:
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    optimizer = (torch.optim.SGD if SUITE == "simple_cnn" else torch.optim.Adam)(net.parameters(), lr=RATE, **options)

    def loss_of():
        with precision():
            return F.cross_entropy(net(x), y)

    if compile_options is not None:
        loss_of = torch.compile(loss_of, **compile_options)

    def step():
        loss = loss_of()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def ways():
    if MODE == "eager":
        return {
            "fused": lambda: make_step(fused=True),
            "foreach": lambda: make_step(foreach=True),
            "fused, channels last": lambda: make_step(fused=True, channels_last=True),
        }
    small = SUITE != "cats_dogs"
    out = {f"{name}, fused": lambda o=o: make_step(o, fused=True) for name, o in torch_peer.compile_ways(small=small).items()}
    if not (torch_peer.QUICK and small):
        out["default, fused, channels last"] = lambda: make_step({}, channels_last=True, fused=True)
    return out


def main():
    torch_peer.start(THREADS, compiles=MODE == "compile")
    print("name PyTorch", torch_peer.version(), NAME.replace("-", " "), flush=True)
    torch_peer.run_training(NAME, ways(), CHECKED, CHUNK, SECONDS)


main()
