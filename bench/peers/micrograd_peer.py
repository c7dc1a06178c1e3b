"""The work of bench_scalar in micrograd (PyPI), the Python engine the scalar engine descends from.

    python3 micrograd_peer.py FILE

FILE holds a line "weights w..." and lines "point x0 x1 target". Prints the version, the number of Value objects made, the
median processor time a node of forward, backward and letting go with the spread of its samples, the loss, and the gradients of the
weights. Exit status 3: there is no micrograd.
"""
import importlib.metadata
import sys
import time

import problem

try:
    from micrograd.engine import Value
    from micrograd.nn import MLP
except ImportError:
    sys.exit(3)

SECONDS = 5


def read(path):
    """The weights, and the points as ([x0, x1], target)."""
    weights, points = [], []
    with open(path, encoding="ascii") as file:
        for line in file:
            kind, *numbers = line.split()
            numbers = [float(number) for number in numbers]
            if kind == "weights":
                weights = numbers
            else:
                points.append(([Value(numbers[0]), Value(numbers[1])], Value(numbers[2])))
    return weights, points


def work(model, points):
    """The squared errors of all points, added up."""
    loss = Value(0.0)
    for x, target in points:
        error = model(x) - target
        loss = loss + error * error
    loss.backward()
    return loss


def count_nodes(model, points):
    """How many Value objects the work makes."""
    made = 0
    original = Value.__init__

    def counting(self, *arguments, **keywords):
        nonlocal made
        made += 1
        original(self, *arguments, **keywords)

    Value.__init__ = counting
    work(model, points)
    Value.__init__ = original
    return made


def main(path):
    weights, points = read(path)
    model = MLP(2, [16, 16, 1])
    parameters = model.parameters()
    assert len(parameters) == len(weights)

    # micrograd lists a neuron's weights and then its bias, as we do.
    for parameter, weight in zip(parameters, weights):
        parameter.data = weight
    nodes = count_nodes(model, points)

    result = None

    def sample():
        nonlocal result
        model.zero_grad()
        start = time.process_time()
        loss = work(model, points)
        result = loss.data
        del loss
        return time.process_time() - start

    seconds, spread = problem.sampled(sample, SECONDS)
    print("version", importlib.metadata.version("micrograd"))
    print("nodes", nodes)
    print("ns", seconds * 1e9 / nodes, spread)
    print("loss", repr(result))
    for i in range(0, len(parameters), 16):
        print("gradients", *(repr(parameter.grad) for parameter in parameters[i : i + 16]))


main(sys.argv[1])
