"""The work of bench_mnist_mlp in JAX: a jit-compiled step, and a whole epoch in one call.

    python3 mnist_mlp_jax.py PROBLEM THREADS SECONDS

See problem.py for what goes in and out. The step is given the number of the batch only: pixels, labels, order and parameters stay on
the device, parameters are donated. The digits are resident as they come (u8, turned into numbers batch by batch) or as numbers (f32);
the faster counts. Exit status 3: there is no JAX.
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
    x = x.astype("float32") * jnp.float32(1 / 255) if x.dtype == "uint8" else x
    y = labels.at[index].get(mode="promise_in_bounds")
    loss, gradients = jax.value_and_grad(loss_of)(p, x, y)
    return [q - problem.LR * g for q, g in zip(p, gradients)], loss


def numbered(state, pixels, labels, order):
    p, i = state
    p, loss = train(p, pixels, labels, order[i])
    return (p, jnp.where(i + 1 == order.shape[0], 0, i + 1)), loss


# Pixels, labels and order are arguments: as constants of the compiled function they would be copied into it.
one_step = jax.jit(numbered, donate_argnums=0)


@jax.jit
def epoch(p, pixels, labels, order):
    return jax.lax.scan(lambda q, index: train(q, pixels, labels, index), p, order)


def jit_step(data, labels, order):
    """What problem.print_step() takes, of one call a step, and what makes it run."""
    def run(pixels):
        state, losses = (data.fresh(), jnp.zeros((), "int32")), []
        for _ in range(problem.CHECKED):
            state, loss = one_step(state, pixels, labels, order)
            losses.append(loss)

        def one(_):
            nonlocal state, loss
            state, loss = one_step(state, pixels, labels, order)

        wait = lambda: loss.block_until_ready()
        timing = problem.measure(one, wait, data.batches, SECONDS)
        return losses, timing, problem.measure_epoch(one, wait, data.batches, timing[0])

    return run


def scan_step(data, labels, order):
    """The same of a whole epoch in one call."""
    def run(pixels):
        p, losses = epoch(data.fresh(), pixels, labels, order)

        def one():
            nonlocal p
            p, later = epoch(p, pixels, labels, order)
            later.block_until_ready()

        seconds, spread = problem.median_seconds(one, lambda: None, 1, SECONDS)
        return losses[: problem.CHECKED], (seconds / data.batches, spread), seconds

    return run


def print_faster(mode, run, kinds):
    results = {name: run(pixels) for name, pixels in kinds.items()}
    for name, (_, (seconds, _), _) in results.items():
        print(f"note JAX {mode}, {name} digits: {seconds * 1e6:.1f} us a step")
    name = min(results, key=lambda n: results[n][1][0])
    losses, timing, whole = results[name]
    problem.print_step(mode, f"{name} digits", losses, timing, whole)


def main():
    if problem.ONLY_MEMORY:
        problem.start_jax(jax)
    data = problem.Problem(sys.argv[1])
    data.fresh = lambda: [jnp.array(value) for value in data.parameters]
    pixels, labels = jnp.asarray(data.pixels), jnp.asarray(data.labels.astype("int32"))
    order = jnp.asarray(data.order[: data.batches * problem.BATCH].astype("int32").reshape(data.batches, problem.BATCH))
    print(f"name JAX {jax.__version__}")

    state = (data.fresh(), jnp.zeros((), "int32"))
    begin = time.perf_counter()
    state, loss = one_step(state, pixels, labels, order)
    loss.block_until_ready()
    first = time.perf_counter() - begin
    if problem.ONLY_MEMORY:
        for _ in range(data.batches - 1):
            state, loss = one_step(state, pixels, labels, order)
        loss.block_until_ready()
        problem.print_memory()
        return
    problem.print_start()
    if THREADS == 1:
        problem.print_memory_of_a_child()
    problem.keep_memory()

    kinds = {"u8": pixels, "f32": jnp.asarray(data.pixels_f32())}
    print_faster("jit", jit_step(data, labels, order), kinds)
    print(f"compile jit {first:.3f}")
    print_faster("scan", scan_step(data, labels, order), kinds)

    if THREADS == 1:
        predict = jax.jit(lambda p, x: jax.nn.softmax(logits_of(p, x)))
        p, x = data.fresh(), kinds["f32"][:1]
        probabilities = predict(p, x)[0]
        seconds, spread = problem.measure_call(lambda: predict(p, x).block_until_ready())
        print(f"imagespread jit {spread:.4g}\nimage jit {seconds * 1e6:.3f} {problem.numbers(probabilities)}", flush=True)


main()
