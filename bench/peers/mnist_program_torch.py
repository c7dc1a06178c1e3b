"""examples/python/mnist.py as a program of PyTorch: the same network, batches, optimizer and epochs, from the files to the test's accuracy.

    python mnist_program_torch.py EPOCHS [loader]     loader: batches by torch.utils.data.DataLoader, as its tutorials do; else by indexing,
                                                      which is quicker
"""
import gzip
import pathlib
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

EPOCHS, BY_LOADER = int(sys.argv[1]), sys.argv[2:] == ["loader"]
DATA = pathlib.Path("data/mnist")


def read(name, offset):
    path = DATA / name
    block = path.read_bytes() if path.exists() else gzip.decompress(path.with_name(path.name + ".gz").read_bytes())
    return torch.from_numpy(np.frombuffer(block, np.uint8, offset=offset).copy())


def digits(kind):
    return read(f"{kind}-images-idx3-ubyte", 16).reshape(-1, 784).float() / 255, read(f"{kind}-labels-idx1-ubyte", 8).long()


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(784, 16), nn.Linear(16, 16), nn.Linear(16, 10)

    def forward(self, x):
        a = self.fc1(x).relu()
        b = self.fc2(a).relu()
        return self.fc3(a + b)


def batches(x, y, shuffle):
    if BY_LOADER:
        return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=50, shuffle=shuffle)
    order = torch.randperm(len(x)) if shuffle else torch.arange(len(x))
    return ((x[part], y[part]) for part in order.split(50))


torch.set_num_threads(1)
torch.manual_seed(1)
model = Network()
adam = torch.optim.Adam(model.parameters(), lr=2e-3)
train, unseen = digits("train"), digits("t10k")
for epoch in range(1, EPOCHS + 1):
    total = 0.0
    for x, y in batches(*train, shuffle=True):
        loss = F.cross_entropy(model(x), y)
        adam.zero_grad()
        loss.backward()
        adam.step()
        total += loss.item() * len(x)
    with torch.no_grad():
        correct = sum((model(x).argmax(1) == y).sum().item() for x, y in batches(*unseen, shuffle=False))
    print(f"epoch {epoch:2}  loss {total / len(train[0]):.4f}  test accuracy {100 * correct / len(unseen[0]):.2f} %", flush=True)
