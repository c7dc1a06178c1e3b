"""The work of bench_lstm in JAX, forward and backward as one jit-compiled call: inputs' products for all steps at once, then a
scan over time. See lstm_torch.py for what goes in and out. Exit status 3: there is no JAX.
"""
import os
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import problem

THREADS, SECONDS = int(sys.argv[1]), float(sys.argv[2])
BATCH, TIME, INPUT, WIDTH, LAYERS = map(int, sys.argv[3:8])
problem.use_processors(THREADS)  # before XLA counts them

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    sys.exit(3)


def sines(shape, phase, scale):
    count = 1
    for n in shape:
        count *= n
    return jnp.array(problem.sines(count, phase, scale).reshape(shape))


def layer(p, x):  # [TIME, BATCH, n] -> [TIME, BATCH, WIDTH]
    w, b, u, d = p

    def step(state, a):
        h, c = state
        i, f, g, o = jnp.split(a + h @ u, 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((BATCH, WIDTH), "float32")
    return jax.lax.scan(step, (zero, zero), x @ w + b + d)[1]


def lstm(p, x):
    x = x.transpose(1, 0, 2)
    for q in p:
        x = layer(q, x)
    return x.transpose(1, 0, 2)


@jax.jit
def step(p, x, g):
    y, back = jax.vjp(lstm, p, x)
    return y, back(g)


def main():
    print(f"name JAX {jax.__version__} jit")
    problem.start_jax(jax)
    p, phase = [], 0
    for k in range(LAYERS):
        shapes = [(INPUT if k == 0 else WIDTH, 4 * WIDTH), (4 * WIDTH,), (WIDTH, 4 * WIDTH), (4 * WIDTH,)]
        p.append([sines(shape, phase + i, 0.05) for i, shape in enumerate(shapes)])
        phase += 4
    x, g = sines((BATCH, TIME, INPUT), 50, 1.0), sines((BATCH, TIME, WIDTH), 51, 1.0)
    results = step(p, x, g)
    sums = [problem.weighted_sum(t) for t in (results[0], results[1][1])]

    problem.print_memory()
    problem.keep_memory()

    def one():
        nonlocal results
        results = step(p, x, g)

    sample = problem.chunk_of(one, lambda: jax.block_until_ready(results), 1)
    seconds, spread = problem.sampled(sample, SECONDS)
    print(f"spread {spread:.4g}")
    print(f"step jit {seconds:.9g} {problem.numbers(sums)}")
    problem.await_turns(sample)


main()
