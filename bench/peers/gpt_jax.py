"""The training step of bench_char_gpt and bench_gpt2_124m in JAX: forward, backward and AdamW as one jit-compiled call (jit), or
several steps as one (scan).

    python3 gpt_jax.py jit|scan WEIGHTS THREADS SECONDS HEADS BATCH TIME PROMPT

See gpt_torch.py for what goes in and out. Parameters and moments are donated. Exit status 3: there is no JAX.
"""
import json
import os
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import problem

MODE, WEIGHTS = sys.argv[1], sys.argv[2]
THREADS, SECONDS, HEADS, BATCH, TIME = int(sys.argv[3]), float(sys.argv[4]), *map(int, sys.argv[5:8])
problem.use_processors(THREADS)  # before XLA counts them

try:
    import jax
    import jax.numpy as jnp
    import numpy as np
except ImportError:
    sys.exit(3)

CHECKED = 4
RATE, DECAY = 1e-4, 0.01


def read_weights(path):
    raw = np.memmap(path, np.uint8, "r")
    size = int(raw[:8].view(np.uint64)[0])
    out = {}
    for name, info in json.loads(bytes(raw[8 : 8 + size])).items():
        if name != "__metadata__":
            begin, end = info["data_offsets"]
            data = np.frombuffer(raw[8 + size + begin : 8 + size + end].tobytes(), np.float32)
            out[name.removeprefix("transformer.")] = jnp.array(data.reshape(info["shape"]))
    return out


def norm(p, name, x):
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * p[name + ".weight"] + p[name + ".bias"]


def dense(p, name, x):
    return x @ p[name + ".weight"] + p[name + ".bias"]


def loss_of(p, x, y):
    h = p["wte.weight"][x] + p["wpe.weight"][: x.shape[1]]
    for i in range(sum(name.endswith("ln_1.weight") for name in p)):
        block = f"h.{i}."
        qkv = dense(p, block + "attn.c_attn", norm(p, block + "ln_1", h)).reshape(*x.shape, 3, HEADS, -1)
        a = jax.nn.dot_product_attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], is_causal=True)
        h = h + dense(p, block + "attn.c_proj", a.reshape(h.shape))
        up = jax.nn.gelu(dense(p, block + "mlp.c_fc", norm(p, block + "ln_2", h)), approximate=True)
        h = h + dense(p, block + "mlp.c_proj", up)
    logits = norm(p, "ln_f", h) @ p["wte.weight"].T
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[..., None], axis=-1))


def train(state, x, y):
    p, m, v, t = state
    loss, g = jax.value_and_grad(loss_of)(p, x, y)
    t = t + 1  # AdamW (Loshchilov and Hutter 2019)
    m = {k: 0.9 * m[k] + 0.1 * g[k] for k in p}
    v = {k: 0.999 * v[k] + 0.001 * g[k] * g[k] for k in p}
    scale, root = RATE / (1 - 0.9**t), 1 / jnp.sqrt(1 - 0.999**t)
    p = {k: p[k] * (1 - RATE * DECAY) - scale * m[k] / (jnp.sqrt(v[k]) * root + 1e-8) for k in p}
    return (p, m, v, t), loss


def main():
    print(f"name JAX {jax.__version__} {MODE}")
    problem.start_jax(jax)
    p = read_weights(WEIGHTS)
    vocabulary = p["wte.weight"].shape[0]
    numbers = jnp.array([(i * 7919 + i // 5 * 31) % vocabulary for i in range(BATCH * TIME + 1)], "int32")
    x, y = numbers[:-1].reshape(BATCH, TIME), numbers[1:].reshape(BATCH, TIME)
    zeros = lambda: {k: jnp.zeros_like(q) for k, q in p.items()}
    state = (p, zeros(), zeros(), jnp.zeros((), "float32"))
    del p, zeros
    if MODE == "scan":
        scan = jax.jit(lambda s, x, y: jax.lax.scan(lambda s, _: train(s, x, y), s, None, 2), donate_argnums=0)
        problem.run_scan(lambda state: scan(state, x, y), state, CHECKED, 2, SECONDS)
        return
    step = jax.jit(train, donate_argnums=0)
    problem.run_training(MODE, lambda state: step(state, x, y), state, CHECKED, 1, SECONDS)


main()
