"""The work of bench_lenet, bench_simple_cnn, bench_resnet20 and bench_cats_dogs in PyTorch.

    python3 cnn_torch.py lenet|simple_cnn|resnet20|cats_dogs eager|compile|eager-bf16|compile-bf16 PROBLEM THREADS SECONDS CHUNK RATE

PROBLEM is the file that bench/cnn.c writes; cnn_models.py has the networks. Prints the lines of bench/side.h: the step over chunks of CHUNK steps with the losses of the first, and the memory. Where
PyTorch has several good ways to do the same, all are tried and the fastest counts. Exit status 3: there is no PyTorch.
"""
import sys

import torch_peer
import torch
import torch.nn.functional as F

import cnn_models

SUITE, NAME, PATH = sys.argv[1:4]
MODE, precision = torch_peer.precision(NAME)
THREADS, SECONDS, CHUNK, RATE = int(sys.argv[4]), float(sys.argv[5]), int(sys.argv[6]), float(sys.argv[7])
CHECKED = 4


def make_step(compile_options=None, channels_last=False, **options):
    net, x, y = cnn_models.read_problem(SUITE, PATH)
    if channels_last:
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    optimizer = cnn_models.make_optimizer(SUITE, net.parameters(), RATE, **options)

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
