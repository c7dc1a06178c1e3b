"""The network of examples/mnist.c learns handwritten digits: the same numbers, from Python. Run it from the top of the source:
make python, or python examples/python/mnist.py where the package is installed."""
import sys

import gradus as gd
from gradus import data, nn, optim

EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 10


class Network(nn.Module):
    """[batch, 784] -> logits [batch, 10]."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(784, 16), nn.Linear(16, 16), nn.Linear(16, 10)

    def forward(self, x):
        a = self.fc1(x).relu()
        b = self.fc2(a).relu()
        return self.fc3(a + b)


gd.seed(1)
model = Network()
adam = optim.Adam(model, lr=2e-3)


@gd.compile
def step(x, y):
    """Forward, backward and update: one call of the library."""
    return adam.minimize(gd.cross_entropy(model(x), y))


@gd.compile
def score(x, y):
    return gd.accuracy(model(x), y)


digits = data.DataLoader(data.mnist("data/mnist"), batch_size=50, shuffle=True)
unseen = data.DataLoader(data.mnist("data/mnist", train=False), batch_size=50)
for epoch in range(1, EPOCHS + 1):
    loss = sum(step(x, y).item() * len(x) for x, y in digits) / len(digits.dataset)
    correct = sum(score(x, y).item() * len(x) for x, y in unseen) / len(unseen.dataset)
    print(f"epoch {epoch:2}  loss {loss:.4f}  test accuracy {100 * correct:.2f} %", flush=True)
model.save("mnist_mlp.safetensors")
