"""The work of bench_lenet, bench_simple_cnn, bench_resnet20 and bench_cats_dogs in JAX: the whole step as one jit-compiled call (jit), or
many steps as one (scan).

    python3 cnn_jax.py lenet|simple_cnn|resnet20|cats_dogs jit|scan PROBLEM THREADS SECONDS CHUNK RATE

See cnn_torch.py for what goes in and out. Parameters and moments are donated. Exit status 3: there is no JAX, or it has no way that
would tell anything: a step of resnet20 in a scan takes minutes.
"""
import os
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import problem

SUITE, MODE, PATH = sys.argv[1:4]
THREADS, SECONDS, CHUNK, RATE = int(sys.argv[4]), float(sys.argv[5]), int(sys.argv[6]), float(sys.argv[7])
problem.use_processors(THREADS)  # before XLA counts them
if SUITE == "resnet20" and MODE == "scan":
    sys.exit(3)

try:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax
except ImportError:
    sys.exit(3)

CHECKED = 4
# of weights, each with a bias behind it, and of the batch
SHAPES = {
    "lenet": ([(6, 1, 5, 5), (16, 6, 5, 5), (400, 120), (120, 84), (84, 10)], (64, 1, 28, 28)),
    "simple_cnn": ([(8, 3, 3, 3), (8, 2)], (32, 3, 32, 32)),
    "cats_dogs": ([(16, 3, 3, 3), (32, 16, 3, 3), (64, 32, 3, 3), (64 * 64 * 64, 128), (128, 2)], (16, 3, 64, 64)),
    "resnet20": (None, (64, 3, 32, 32)),
}
WIDTHS = [16] * 4 + [32] * 3 + [64] * 3
SGD = SUITE in ("simple_cnn", "resnet20")


def shapes_of_resnet():
    """Of convolutions, and behind each the mean, the variance, the weight and the bias of its normalisation."""
    convolutions = [(16, 3, 3, 3)]
    for a, b in zip(WIDTHS, WIDTHS[1:]):
        convolutions += [(b, a, 3, 3), (b, b, 3, 3)] + ([(b, a, 1, 1)] if a < b else [])
    return [dims for c in convolutions for dims in (c, *[c[:1]] * 4)] + [(64, 10), (10,)]


def shapes_of(weights):
    return shapes_of_resnet() if weights is None else [
        dims for w in weights for dims in (w, w[:1] if len(w) == 4 else w[1:])]


def read_problem():
    weights, shape = SHAPES[SUITE]
    with open(PATH, "rb") as file:
        take = lambda dtype, dims: np.fromfile(file, dtype, int(np.prod(dims))).reshape(dims)
        parameters = [jnp.array(take("<f4", dims)) for dims in shapes_of(weights)]
        x, y = take("<f4", shape), take("<i8", shape[:1])
        assert not file.read(1), "not a problem of this network"
    return parameters, jnp.array(x), jnp.array(y.astype("int32"))


def conv(x, w, b, pad):
    return jax.nn.relu(lax.conv_general_dilated(x, w, (1, 1), [(pad, pad)] * 2) + b[:, None, None])


def largest(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def normalized(p, x, stride=1):
    """A convolution and batch normalisation. Running statistics, which no loss needs, are not kept."""
    w, _, _, scale, bias = p
    pad = w.shape[-1] // 2
    x = lax.conv_general_dilated(x, w, (stride, stride), [(pad, pad)] * 2)
    c = x - x.mean((0, 2, 3), keepdims=True)
    s = lax.rsqrt((c * c).mean((0, 2, 3)) + 1e-5) * scale
    return c * s[:, None, None] + bias[:, None, None]


def resnet(p, x):
    layers = iter([p[i:i + 5] for i in range(0, len(p) - 2, 5)])
    x = jax.nn.relu(normalized(next(layers), x))
    for a, b in zip(WIDTHS, WIDTHS[1:]):
        y = jax.nn.relu(normalized(next(layers), x, b // a))
        y = normalized(next(layers), y)
        x = jax.nn.relu(y + (normalized(next(layers), x, b // a) if a < b else x))
    return x.mean((2, 3))


def logits_of(p, x):
    if SUITE == "resnet20":
        x = resnet(p, x)
    elif SUITE == "lenet":
        x = largest(conv(x, p[0], p[1], 2))
        x = largest(conv(x, p[2], p[3], 0)).reshape(x.shape[0], -1)
        x = jax.nn.relu(x @ p[4] + p[5])
        x = jax.nn.relu(x @ p[6] + p[7])
    elif SUITE == "simple_cnn":
        x = conv(x, p[0], p[1], 1).mean((2, 3))
    else:
        x = conv(conv(conv(x, p[0], p[1], 1), p[2], p[3], 1), p[4], p[5], 1).reshape(x.shape[0], -1)
        x = jax.nn.relu(x @ p[6] + p[7])
    return x @ p[-2] + p[-1]


def loss_of(p, x, y):
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits_of(p, x)), y[:, None], axis=1))


def train(state, x, y):
    p, m, v, t = state
    loss, g = jax.value_and_grad(loss_of)(p, x, y)
    if SGD:
        return ([q - RATE * d for q, d in zip(p, g)], m, v, t), loss
    t = t + 1  # Adam (Kingma and Ba 2015)
    m = [0.9 * a + 0.1 * d for a, d in zip(m, g)]
    v = [0.999 * a + 0.001 * d * d for a, d in zip(v, g)]
    scale, root = RATE / (1 - 0.9**t), 1 / jnp.sqrt(1 - 0.999**t)
    return ([q - scale * a / (jnp.sqrt(b) * root + 1e-8) for q, a, b in zip(p, m, v)], m, v, t), loss


def main():
    print(f"name JAX {jax.__version__} {MODE}")
    problem.start_jax(jax)
    p, x, y = read_problem()
    moments = (lambda: []) if SGD else (lambda: [jnp.zeros_like(q) for q in p])
    state = (p, moments(), moments(), jnp.zeros((), "float32"))
    del p
    if MODE == "scan":
        length = max(CHUNK, CHECKED)
        scan = jax.jit(lambda state, x, y: lax.scan(lambda s, _: train(s, x, y), state, None, length), donate_argnums=0)
        problem.run_scan(lambda state: scan(state, x, y), state, CHECKED, length, SECONDS)
        return
    step = jax.jit(train, donate_argnums=0)
    problem.run_training(MODE, lambda state: step(state, x, y), state, CHECKED, CHUNK, SECONDS)


main()
