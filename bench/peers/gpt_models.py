"""GPT-2's architecture in PyTorch, with the weights that bench/gpt.c writes. gpt_torch.py trains and runs it on the processor,
device_torch.py trains it on a device. Start at GPT.
"""
import json

import torch
import torch.nn.functional as F

LONGEST = 128  # a sequence that is generated starts anew at this length


def read_weights(path):
    """The tensors of a safetensors file of f32, under their names without "transformer."."""
    out = {}
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        for name, info in header.items():
            if name != "__metadata__":
                begin, end = info["data_offsets"]
                file.seek(8 + size + begin)
                data = torch.frombuffer(bytearray(file.read(end - begin)), dtype=torch.float32)
                out[name.removeprefix("transformer.")] = data.reshape(info["shape"])
    return out


class Block(torch.nn.Module):
    def __init__(self, w, prefix, heads):
        super().__init__()
        self.heads = heads
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
        """`past`: keys and values of the tokens before. A list grows by these; of a pair of tensors [1, heads, LONGEST, n],
        the places `at` are written, and `mask` tells which are to be seen."""
        b, t, c = x.shape
        q, k, v = self.dense[0](self.norms[0](x)).split(c, dim=2)
        q, k, v = (a.view(b, t, self.heads, c // self.heads).transpose(1, 2) for a in (q, k, v))
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
    def __init__(self, w, heads):
        super().__init__()
        layers = sum(name.endswith("ln_1.weight") for name in w)
        self.wte = torch.nn.Parameter(w["wte.weight"].clone())
        self.wpe = torch.nn.Parameter(w["wpe.weight"].clone())
        self.blocks = torch.nn.ModuleList(Block(w, f"h.{i}.", heads) for i in range(layers))
        self.norm = torch.nn.LayerNorm(self.wte.shape[1])
        with torch.no_grad():
            self.norm.weight.copy_(w["ln_f.weight"])
            self.norm.bias.copy_(w["ln_f.bias"])

    def forward(self, tokens, pasts=None, start=0):
        x = F.embedding(tokens, self.wte) + self.wpe[start : start + tokens.shape[1]]
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
    """Token number i of the text all sides see."""
    return (i * 7919 + i // 5 * 31) % vocabulary


def batch_of(vocabulary, batch, time):
    """x [batch, time] and the tokens after them [batch * time]."""
    numbers = torch.tensor([number(i, vocabulary) for i in range(batch * time + 1)])
    return numbers[:-1].reshape(batch, time), numbers[1:]
