"""The work of bench_char_gpt and bench_gpt2_124m in PyTorch.

    python3 gpt_torch.py eager|compile|eager-bf16|compile-bf16|generate|compile_generate WEIGHTS THREADS SECONDS HEADS BATCH TIME PROMPT

WEIGHTS is the safetensors file we wrote; sizes come from its shapes. Prints the lines of bench/side.h: "step" with the first losses to
compare, or "token" with the first logits. Where PyTorch has several good ways to do the same, all are tried and the fastest counts: a
token eagerly with a cache that grows (cat) or has its full length from the start (static), compiled with the latter. Exit status 3:
there is no PyTorch.
"""
import json
import sys

import torch_peer
import torch
import torch.nn.functional as F

import numpy as np
import problem

NAME, WEIGHTS = sys.argv[1], sys.argv[2]
MODE, precision = torch_peer.precision(NAME)
THREADS, SECONDS, HEADS, BATCH, TIME, PROMPT = int(sys.argv[3]), float(sys.argv[4]), *map(int, sys.argv[5:9])
LONGEST = 128  # a sequence starts anew at this length


def read_weights(path):
    raw = np.memmap(path, np.uint8, "r")
    size = int(raw[:8].view(np.uint64)[0])
    header = json.loads(bytes(raw[8 : 8 + size]))
    out = {}
    for name, info in header.items():
        if name != "__metadata__":
            begin, end = info["data_offsets"]
            data = np.frombuffer(raw[8 + size + begin : 8 + size + end].tobytes(), np.float32)
            out[name.removeprefix("transformer.")] = torch.from_numpy(data.reshape(info["shape"]).copy())
    return out


class Block(torch.nn.Module):
    def __init__(self, w, prefix):
        super().__init__()
        width = w[prefix + "ln_1.weight"].numel()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        names = ["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"]
        self.dense = torch.nn.ModuleList(torch.nn.Linear(*w[prefix + n + ".weight"].shape) for n in names)
        with torch.no_grad():
            for layer, name in zip(self.norms, ["ln_1", "ln_2"]):
                layer.weight.copy_(w[prefix + name + ".weight"])
                layer.bias.copy_(w[prefix + name + ".bias"])
            for layer, name in zip(self.dense, names):
                layer.weight.copy_(w[prefix + name + ".weight"].T)
                layer.bias.copy_(w[prefix + name + ".bias"])

    def forward(self, x, past=None, at=None, mask=None):
        """`past`: keys and values of the tokens before. A list grows by these; of a pair of tensors [1, HEADS, LONGEST, n],
        the places `at` are written, and `mask` tells which are to be seen."""
        b, t, c = x.shape
        q, k, v = self.dense[0](self.norms[0](x)).split(c, dim=2)
        q, k, v = (a.view(b, t, HEADS, c // HEADS).transpose(1, 2) for a in (q, k, v))
        if isinstance(past, list):
            if past:
                k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
            past[:] = [k, v]
        elif past is not None:
            k, v = past[0].index_copy_(2, at, k), past[1].index_copy_(2, at, v)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None and t > 1)
        x = x + self.dense[1](y.transpose(1, 2).reshape(b, t, c))
        return x + self.dense[3](F.gelu(self.dense[2](self.norms[1](x)), approximate="tanh"))


class GPT(torch.nn.Module):
    def __init__(self, w):
        super().__init__()
        layers = sum(name.endswith("ln_1.weight") for name in w)
        self.wte = torch.nn.Parameter(w["wte.weight"].clone())
        self.wpe = torch.nn.Parameter(w["wpe.weight"].clone())
        self.blocks = torch.nn.ModuleList(Block(w, f"h.{i}.") for i in range(layers))
        self.norm = torch.nn.LayerNorm(self.wte.shape[1])
        with torch.no_grad():
            self.norm.weight.copy_(w["ln_f.weight"])
            self.norm.bias.copy_(w["ln_f.bias"])

    def forward(self, tokens, pasts=None, start=0):
        x = self.wte[tokens] + self.wpe[start : start + tokens.shape[1]]
        for i, block in enumerate(self.blocks):
            x = block(x, pasts[i] if pasts is not None else None)
        if pasts is not None:
            x = x[:, -1:]
        return self.norm(x) @ self.wte.T

    def static(self, tokens, caches, at):
        """The tokens at the places `at`, with caches of the full length."""
        mask = torch.arange(LONGEST) <= at[:, None]
        x = self.wte[tokens] + self.wpe[at]
        for block, cache in zip(self.blocks, caches):
            x = block(x, cache, at, mask)
        return self.norm(x[:, -1:]) @ self.wte.T


def number(i, vocabulary):
    return (i * 7919 + i // 5 * 31) % vocabulary


# ---- training ----


def make_step(weights, options=None, **optimizer_options):
    model = GPT(weights)
    vocabulary = model.wte.shape[0]
    numbers = torch.tensor([number(i, vocabulary) for i in range(BATCH * TIME + 1)])
    x, y = numbers[:-1].reshape(BATCH, TIME), numbers[1:]

    def loss_of():
        with precision():
            return F.cross_entropy(model(x).reshape(-1, vocabulary), y)

    if options is not None:
        loss_of = torch.compile(loss_of, **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, **optimizer_options)

    def step():
        loss = loss_of()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def train(weights):
    if MODE == "eager":
        ways = {"fused": lambda: make_step(weights, fused=True)}
    else:
        ways = {f"{name}, fused": lambda o=o: make_step(weights, o, fused=True) for name, o in torch_peer.compile_ways().items()}
    torch_peer.run_training(NAME, ways, 4, 1, SECONDS)


# ---- generating ----


def growing(model, vocabulary):
    """A function for the next token, and the logits after the prompt."""
    state = {}

    def begin():
        state["pasts"], state["length"] = [[] for _ in model.blocks], PROMPT
        return model(torch.tensor([[number(i, vocabulary) for i in range(PROMPT)]]), state["pasts"])

    def step():
        if state["length"] >= LONGEST:
            begin()
        model(torch.tensor([[number(state["length"], vocabulary)]]), state["pasts"], state["length"])
        state["length"] += 1

    return step, begin()[0, -1, :8].tolist()


def static(model, vocabulary, options=None):
    width = model.wte.shape[1]
    cache = lambda: torch.zeros(1, HEADS, LONGEST, width // HEADS)
    caches = [(cache(), cache()) for _ in model.blocks]
    next_token = model.static if options is None else torch.compile(model.static, **options)
    prompt = torch.tensor([[number(i, vocabulary) for i in range(PROMPT)]])
    first = model.static(prompt, caches, torch.arange(PROMPT))[0, -1, :8].tolist()
    length = PROMPT

    def step():
        nonlocal length
        if length >= LONGEST:
            model.static(prompt, caches, torch.arange(PROMPT))
            length = PROMPT
        next_token(torch.tensor([[number(length, vocabulary)]]), caches, torch.tensor([length]))
        length += 1

    return step, first


def generate(weights):
    model = GPT(weights).eval()
    with torch.inference_mode() if MODE == "generate" else torch.no_grad():
        print_token(model)


def print_token(model):
    vocabulary = model.wte.shape[0]
    if MODE == "generate":
        ways = {"cache grows": lambda: growing(model, vocabulary), "static cache": lambda: static(model, vocabulary)}
    else:
        options = torch_peer.compile_ways(inference=True)
        ways = {f"static cache, {name}": lambda o=o: static(model, vocabulary, o) for name, o in options.items()}

    def time_of(made):
        step, first = made
        return (*problem.median_seconds(step, lambda: None, 8, SECONDS), first)

    best = torch_peer.fastest(ways, time_of, MODE)
    if best is None:
        sys.exit(3)
    name, (seconds, spread, first), _ = best
    print(f"how {name}\nspread {spread:.4g}\ntoken {MODE[:15]} {seconds:.9g}", *(f"{v:.9g}" for v in first), flush=True)


compiles = MODE.startswith("compile")
torch_peer.start(THREADS, compiles)
print("name PyTorch", torch_peer.version(), "compile" if compiles else "eager", *NAME.split("-")[1:], flush=True)
(generate if MODE.endswith("generate") else train)(read_weights(WEIGHTS))
