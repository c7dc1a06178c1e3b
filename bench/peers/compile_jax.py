"""The cases of bench_compile in JAX, jit-compiled with donated state: lines "name NAME" and "us CASE US SPREAD VALUE". A
training step is timed as one call, and as one of STEPS in a call (scan).

    python3 compile_jax.py

Exit status 3: there is no JAX.
"""
import os
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
try:
    import jax
    import jax.numpy as jnp
except ImportError:
    sys.exit(3)
import compile_cases as cases
import problem

STEPS = 50


def network(sizes, residual, scan=False):
    p = [jnp.asarray(v) for v in cases.parameters(sizes)]
    x, y = jnp.asarray(cases.numbers((cases.BATCH, sizes[0]), 17, 1)), jnp.asarray(cases.labels(sizes[-1]))

    def loss_of(p, x, y):
        a = jax.nn.relu(x @ p[0] + p[1])
        b = jax.nn.relu(a @ p[2] + p[3])
        logits = (a + b if residual else b) @ p[4] + p[5]
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1))

    def train(state, x, y):
        p, m, v, count = state
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        count = count + 1
        m = [0.9 * a + 0.1 * b for a, b in zip(m, g)]
        v = [0.999 * a + 0.001 * b * b for a, b in zip(v, g)]
        c1, c2 = 1 - 0.9**count, 1 - 0.999**count
        p = [q - 1e-3 * (a / c1) / (jnp.sqrt(b / c2) + 1e-8) for q, a, b in zip(p, m, v)]
        return (p, m, v, count), loss

    def many(state, x, y):
        return jax.lax.scan(lambda s, _: train(s, x, y), state, None, STEPS)

    compiled = jax.jit(many if scan else train, donate_argnums=0)
    state = (p, [jnp.zeros_like(q) for q in p], [jnp.zeros_like(q) for q in p], jnp.zeros(()))

    def step():
        nonlocal state
        state, loss = compiled(state, x, y)
        return loss.block_until_ready()

    return step


def block():
    x, w = jnp.asarray(cases.numbers((256, 256), 1, 1)), jnp.asarray(cases.numbers((256, 256), 17, 1))

    def loss_of(x, w):
        centred = x - x.mean(-1, keepdims=True)
        y = centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)
        y = y * 0.5 * (jax.lax.erf(y * 0.70710678) + 1)
        e = jnp.exp(y - jax.lax.stop_gradient(y.max(-1, keepdims=True)))
        return (e / e.sum(-1, keepdims=True) * w).sum()

    compiled = jax.jit(jax.value_and_grad(loss_of))
    return lambda: jax.block_until_ready(compiled(x, w))[0]


def chain():
    x = jnp.asarray(cases.numbers((1 << 24,), 17, 1))
    compiled = jax.jit(lambda x: jax.nn.relu(jnp.abs((x * 1.01 + 0.5) * x - 0.25) * 0.5 + x))
    return lambda: compiled(x).block_until_ready()


def print_case(case, step, steps):
    first = step()
    value = float(first if first.ndim == 0 else first[12345] if first.size > STEPS else first[0])
    seconds, spread = cases.timing(step)
    print(f"us {case} {seconds / steps * 1e6:.2f} {spread:.4g} {value:.7g}", flush=True)


def main():
    problem.use_processors(1)
    problem.keep_memory()
    print(f"name JAX jit {jax.__version__}")
    makers = {key: (lambda v=v: network(*v)) for key, v in cases.NETWORKS.items()} | {"block": block, "chain": chain}
    for case, maker in makers.items():
        print_case(case, maker(), 1)
    print(f"name JAX scan {jax.__version__}")
    for case, sizes in cases.NETWORKS.items():
        print(f"how {case} {STEPS} steps a call")
        print_case(case, network(*sizes, scan=True), STEPS)


main()
