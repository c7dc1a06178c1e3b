"""The README's program: a network learns the sine from 64 points."""
import gradus as gd
from gradus import nn, optim

gd.seed(1)
model = nn.Sequential(nn.Linear(1, 32), gd.tanh, nn.Linear(32, 1))
adam = optim.Adam(model, lr=0.01)


@gd.compile
def step(x, y):
    return adam.minimize(gd.mse(model(x), y))


x = gd.linspace(-3, 3, 64).reshape(64, 1)
for i in range(1, 1001):
    loss = step(x, gd.sin(x))
    if i == 1 or i % 250 == 0:
        print(f"step {i:4}  loss {loss:.6f}")
