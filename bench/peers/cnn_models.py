"""The networks of bench_lenet, bench_simple_cnn, bench_cats_dogs, bench_resnet20 and device_mnist_mlp in PyTorch, with the weights and the batch that
bench/cnn.c writes. cnn_torch.py trains them on the processor, device_torch.py on a device.

    network, x, y = read_problem("lenet", path)
    adam = make_optimizer("lenet", network.parameters(), rate)
"""
import math

import torch
from torch import nn


class Perceptron(nn.Module):
    """examples/models/mnist_mlp.json. Layers are in the order of their weights in the file."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(784, 16), nn.Linear(16, 16), nn.Linear(16, 10)])

    def forward(self, x):
        first = torch.relu(self.layers[0](x.flatten(1)))
        return self.layers[2](first + torch.relu(self.layers[1](first)))


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


def convolution(inputs, width, size, stride):
    return nn.Sequential(nn.Conv2d(inputs, width, size, stride=stride, padding=size // 2, bias=False), nn.BatchNorm2d(width))


class Block(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.first, self.second = convolution(inputs, width, 3, stride), convolution(width, width, 3, 1)
        self.shortcut = convolution(inputs, width, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x):
        return torch.relu(self.second(torch.relu(self.first(x))) + self.shortcut(x))


def resnet20():
    widths = [16] * 4 + [32] * 3 + [64] * 3
    blocks = [Block(a, b, b // a) for a, b in zip(widths, widths[1:])]
    return nn.Sequential(convolution(3, 16, 3, 1), nn.ReLU(), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


# Networks with the shapes of their batches, and the learning rates of the benches.
NETWORKS = {
    "mnist_mlp": (Perceptron, (50, 1, 28, 28), 1e-3), "lenet": (lenet, (64, 1, 28, 28), 1e-4),
    "simple_cnn": (simple_cnn, (32, 3, 32, 32), 0.1), "cats_dogs": (cats_dogs, (16, 3, 64, 64), 1e-5),
    "resnet20": (resnet20, (64, 3, 32, 32), 0.01)}
SGD = ("simple_cnn", "resnet20")


def take(file, dtype, shape):
    """The next numbers of a file."""
    count = math.prod(shape)
    return torch.frombuffer(bytearray(file.read(count * dtype.itemsize)), dtype=dtype, count=count).reshape(shape)


def read_problem(suite, path):
    """The network with its weights, the batch, and its labels. Weight and bias of each layer (f32; dense weights [in, out]), of batch
    normalisation its mean and variance before them, the batch (f32), its labels (i64)."""
    make, shape, _ = NETWORKS[suite]
    net = make()
    with open(path, "rb") as file, torch.no_grad():
        for layer in net.modules():
            if isinstance(layer, nn.Conv2d):
                layer.weight.copy_(take(file, torch.float32, layer.weight.shape))
            elif isinstance(layer, nn.Linear):
                layer.weight.copy_(take(file, torch.float32, (layer.in_features, layer.out_features)).T)
            elif isinstance(layer, nn.BatchNorm2d):
                for to in (layer.running_mean, layer.running_var, layer.weight):
                    to.copy_(take(file, torch.float32, to.shape))
            else:
                continue
            if layer.bias is not None:
                layer.bias.copy_(take(file, torch.float32, layer.bias.shape))
        x, y = take(file, torch.float32, shape), take(file, torch.int64, shape[:1])
        assert not file.read(1), "not a problem of this network"
    return net, x, y


def make_optimizer(suite, parameters, rate, **options):
    return (torch.optim.SGD if suite in SGD else torch.optim.Adam)(parameters, lr=rate, **options)
