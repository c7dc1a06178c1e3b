"""The work of bench_char_gpt and bench_gpt2_124m in PyTorch.

    python3 gpt_torch.py eager|compile|generate WEIGHTS THREADS SECONDS HEADS BATCH TIME PROMPT

WEIGHTS is the safetensors file we wrote; sizes come from its shapes. Prints "name", then "step" or "token" with the median
seconds and, to compare, the first losses or logits, then "memory" in MiB. Exit status 3: there is no PyTorch.
"""
import json
import os
import statistics
import sys
import tempfile
import time

cache = tempfile.TemporaryDirectory()
os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache.name
try:
    import numpy as np
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit(3)

MODE, WEIGHTS = sys.argv[1], sys.argv[2]
THREADS, SECONDS, HEADS, BATCH, TIME, PROMPT = int(sys.argv[3]), float(sys.argv[4]), *map(int, sys.argv[5:9])
torch.set_num_threads(THREADS)
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])


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

    def forward(self, x, past=None):
        b, t, c = x.shape
        q, k, v = self.dense[0](self.norms[0](x)).split(c, dim=2)
        q, k, v = (a.view(b, t, HEADS, c // HEADS).transpose(1, 2) for a in (q, k, v))
        if past is not None:
            if past:
                k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
            past[:] = [k, v]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1)
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


def median_seconds(run):
    times, end = [], time.perf_counter() + SECONDS
    run()
    while len(times) < 5 or time.perf_counter() < end:
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def train(model, vocabulary):
    numbers = torch.tensor([(i * 7919 + i // 5 * 31) % vocabulary for i in range(BATCH * TIME + 1)])
    x, y = numbers[:-1].reshape(BATCH, TIME), numbers[1:]
    loss_of = lambda: F.cross_entropy(model(x).reshape(-1, vocabulary), y)
    if MODE == "compile":
        loss_of = torch.compile(loss_of)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)

    def step():
        loss = loss_of()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.item()

    losses = [step() for _ in range(4)]
    print("step", MODE, f"{median_seconds(step):.9g}", *(f"{v:.9g}" for v in losses), flush=True)


@torch.inference_mode()
def generate(model, vocabulary):
    number = lambda i: (i * 7919 + i // 5 * 31) % vocabulary
    state = {}

    def begin():
        state["pasts"], state["length"] = [[] for _ in model.blocks], PROMPT
        return model(torch.tensor([[number(i) for i in range(PROMPT)]]), state["pasts"])

    def step():
        if state["length"] >= 128:
            begin()
        model(torch.tensor([[number(state["length"])]]), state["pasts"], state["length"])
        state["length"] += 1

    logits = begin()[0, -1, :8].tolist()
    print("token", MODE, f"{median_seconds(step):.9g}", *(f"{v:.9g}" for v in logits), flush=True)


names = {"eager": "eager", "compile": "compile", "generate": "eager"}
print("name PyTorch", torch.__version__.split("+")[0], names[MODE], flush=True)
weights = read_weights(WEIGHTS)
model = GPT(weights)
vocabulary = weights["wte.weight"].shape[0]
del weights
try:
    (generate if MODE == "generate" else train)(model, vocabulary)
except Exception as error:  # torch.compile needs a C++ compiler
    print("note PyTorch", MODE, (str(error).strip().splitlines() or [type(error).__name__])[0][:200])
    sys.exit(3)
with open("/proc/self/status", encoding="ascii") as file:
    print("memory", MODE, next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) / 1024, flush=True)
