"""The work of bench_mnist_mlp in JAX: a jit-compiled step, and a whole epoch in one call.

    python3 mnist_mlp_jax.py PROBLEM THREADS SECONDS

See problem.py for what goes in and out. The step is given the number of the batch only: pixels, labels, order and parameters stay on
the device, parameters are donated. Exit status 3: there is no JAX.
"""
import os
import sys
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import problem

THREADS, SECONDS = int(sys.argv[2]), float(sys.argv[3])
problem.use_processors(THREADS)  # before XLA counts them

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    sys.exit(3)


def logits_of(p, x):
    a = jax.nn.relu(x @ p[0] + p[1])
    b = jax.nn.relu(a @ p[2] + p[3])
    return (a + b) @ p[4] + p[5]


def loss_of(p, x, y):
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits_of(p, x)), y[:, None], axis=1, mode="promise_in_bounds")
    return -jnp.mean(chosen)


def train(p, pixels, labels, index):
    x = pixels.at[index].get(mode="promise_in_bounds")
    y = labels.at[index].get(mode="promise_in_bounds")
    loss, gradients = jax.value_and_grad(loss_of)(p, x, y)
    return [q - problem.LR * g for q, g in zip(p, gradients)], loss


def main():
    data = problem.Problem(sys.argv[1])
    pixels, labels = jnp.asarray(data.pixels), jnp.asarray(data.labels.astype("int32"))
    order = jnp.asarray(data.order[: data.batches * problem.BATCH].astype("int32").reshape(data.batches, problem.BATCH))
    print(f"name JAX {jax.__version__}")

    # pixels, labels and order are arguments: as constants of the compiled function they would be copied into it.
    def numbered(state, pixels, labels, order):
        p, i = state
        p, loss = train(p, pixels, labels, order[i])
        return (p, jnp.where(i + 1 == order.shape[0], 0, i + 1)), loss

    step = jax.jit(numbered, donate_argnums=0)

    def fresh():
        return [jnp.array(value) for value in data.parameters], jnp.zeros((), "int32")

    state, losses = fresh(), []
    begin = time.perf_counter()
    state, loss = step(state, pixels, labels, order)
    loss.block_until_ready()
    first = time.perf_counter() - begin
    problem.print_start()
    losses.append(loss)
    for _ in range(problem.CHECKED - 1):
        state, loss = step(state, pixels, labels, order)
        losses.append(loss)
    for _ in range(data.batches - problem.CHECKED):
        state, loss = step(state, pixels, labels, order)
    loss.block_until_ready()
    problem.print_memory()

    def one(_):
        nonlocal state, loss
        state, loss = step(state, pixels, labels, order)

    def wait():
        loss.block_until_ready()

    seconds = problem.measure(one, wait, data.batches, SECONDS)
    problem.print_step("jit", losses, seconds, problem.measure_epoch(one, wait, data.batches, seconds))
    print(f"compile jit {first:.3f}")

    @jax.jit
    def epoch(p, pixels, labels, order):
        return jax.lax.scan(lambda q, index: train(q, pixels, labels, index), p, order)

    p, losses = epoch(fresh()[0], pixels, labels, order)
    losses.block_until_ready()
    samples = []
    begin = time.perf_counter()
    while len(samples) < 3 or time.perf_counter() - begin < SECONDS:
        start = problem.clock()
        p, later = epoch(p, pixels, labels, order)
        later.block_until_ready()
        samples.append(problem.clock() - start)
    seconds = sorted(samples)[len(samples) // 2]
    problem.print_step("scan", losses[: problem.CHECKED], seconds / data.batches, seconds)

    if THREADS == 1:
        predict = jax.jit(lambda p, x: jax.nn.softmax(logits_of(p, x)))
        p, x = fresh()[0], pixels[:1]
        probabilities = predict(p, x)[0]
        seconds = problem.measure_call(lambda: predict(p, x).block_until_ready())
        print(f"image jit {seconds * 1e6:.3f} {problem.numbers(probabilities)}", flush=True)


main()
