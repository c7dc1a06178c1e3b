#!/usr/bin/env python3
"""Writes tests/goldens/sequences.h and recurrent.h: outputs and gradients of PyTorch's attention, Transformer and recurrent
layers, for tests/test_sequence.c and tests/test_recurrent.c.

    python3 tests/goldens/make_sequences.py sequences > tests/goldens/sequences.h
    python3 tests/goldens/make_sequences.py recurrent > tests/goldens/recurrent.h

Needs torch. Computed in float64. Parameters are not stored: number j of the parameter at `path` is a sine of j and of the
bytes of the path (values(), and golden_fill() in tests/support/sequence_golden.h). Of each gradient a weighted sum is stored.
"""
import math
import sys

import torch
from torch import nn

torch.set_default_dtype(torch.float64)


def values(path, count, scale=0.3):
    base = sum(path.encode()) % 101
    return torch.tensor([scale * math.sin(0.7 * j + base) for j in range(count)]).float().double()


def tensor(name, *shape):
    return values(name, math.prod(shape), 1.0).reshape(shape).requires_grad_()


def weights(t):
    return torch.cos(0.3 * torch.arange(t.numel())).reshape(t.shape)


class Layer:
    """A torch module whose parameters are set from ours: (torch name, our path, how torch's tensor is made of ours)."""

    def __init__(self, module, table):
        self.module = module.train(False)
        self.ours = {}
        parameters = dict(module.named_parameters())
        taken = set()
        for path, shape, parts in table:  # parts: torch name -> function of ours
            mine = values(path, math.prod(shape)).reshape(shape)
            if ".norm" in path and path.endswith("weight"):
                mine = 1 + mine
            self.ours[path] = []
            for name, take in parts.items():
                with torch.no_grad():
                    parameters[name].copy_(take(mine))
                self.ours[path].append((name, take, shape))
                taken.add(name)
        assert taken == set(parameters), set(parameters) - taken

    def gradient_sums(self):
        parameters = dict(self.module.named_parameters())
        for path, parts in self.ours.items():
            total = 0.0
            for name, take, shape in parts:
                w = take(weights(torch.zeros(shape)))
                total += (parameters[name].grad * w).sum().item()
            yield path, total


def same(x):
    return x


def turned(x):
    return x.t()


def linear(ours, theirs, n_in, n_out):
    return [
        (f"{ours}.weight", (n_in, n_out), {f"{theirs}.weight": turned}),
        (f"{ours}.bias", (n_out,), {f"{theirs}.bias": same}),
    ]


def norm(ours, theirs, n):
    return [
        (f"{ours}.weight", (n,), {f"{theirs}.weight": same}),
        (f"{ours}.bias", (n,), {f"{theirs}.bias": same}),
    ]


def self_attention(ours, theirs, n):
    dot = f"{theirs}." if theirs else ""
    return [
        (f"{ours}.qkv.weight", (n, 3 * n), {f"{dot}in_proj_weight": turned}),
        (f"{ours}.qkv.bias", (3 * n,), {f"{dot}in_proj_bias": same}),
    ] + linear(f"{ours}.out", f"{dot}out_proj", n, n)


class SplitAttention(nn.Module):
    """Cross-attention with in_proj in two parameters, q and kv, as ours has it."""

    def __init__(self, n, heads):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(n, n)
        self.kv = nn.Linear(n, 2 * n)
        self.out_proj = nn.Linear(n, n)

    def forward(self, x, memory, **_):
        weight = torch.cat([self.q.weight, self.kv.weight])
        bias = torch.cat([self.q.bias, self.kv.bias])
        y, _ = nn.functional.multi_head_attention_forward(
            x.transpose(0, 1), memory.transpose(0, 1), memory.transpose(0, 1), x.shape[-1], self.heads, weight, bias,
            None, None, False, 0.0, self.out_proj.weight, self.out_proj.bias, training=False, need_weights=False)
        return y.transpose(0, 1), None


def cross_attention(ours, theirs, n):
    return (linear(f"{ours}.q", f"{theirs}.q", n, n) + linear(f"{ours}.kv", f"{theirs}.kv", n, 2 * n) +
            linear(f"{ours}.out", f"{theirs}.out_proj", n, n))


def feed_forward(ours, theirs, n, hidden):
    return linear(f"{ours}.up", f"{theirs}.linear1", n, hidden) + linear(f"{ours}.down", f"{theirs}.linear2", hidden, n)


def row(t):
    return ", ".join(f"{x:.9g}" for x in t.detach().flatten().tolist())


def emit(name, call, layer, outputs, inputs):
    loss = sum((o * weights(o)).sum() for o in outputs)
    loss.backward()
    print(f"/* {call} */")
    for i, o in enumerate(outputs):
        print(f"static const double {name}_output{i}[] = {{ {row(o)} }};")
    for i, x in enumerate(inputs):
        print(f"static const double {name}_gradient{i}[] = {{ {row(x.grad)} }};")
    sums = "".join(f'    {{ "{path}", {total:.9g} }},\n' for path, total in layer.gradient_sums())
    print(f"static const parameter_golden {name}_parameters[] = {{\n{sums}}};\n")


def attention():
    n = 8
    layer = Layer(nn.MultiheadAttention(n, 2, batch_first=True), self_attention("attn", "", n))
    x = tensor("x", 2, 5, n)
    mask = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
    y, _ = layer.module(x, x, x, attn_mask=mask, need_weights=False)
    emit("attention", "nn.MultiheadAttention(8, 2, batch_first=True)(x, x, x, attn_mask=causal)", layer, [y], [x])


def transformer():
    n, hidden = 8, 12
    module = nn.Transformer(n, 2, 2, 2, hidden, dropout=0.0, batch_first=True)
    table = []
    for i in range(2):
        a, b = f"net.encoder.{i}", f"encoder.layers.{i}"
        table += self_attention(f"{a}.self", f"{b}.self_attn", n) + feed_forward(f"{a}.ff", b, n, hidden)
        table += norm(f"{a}.norm1", f"{b}.norm1", n) + norm(f"{a}.norm2", f"{b}.norm2", n)
    table += norm("net.encoder.norm", "encoder.norm", n)
    for i in range(2):
        a, b = f"net.decoder.{i}", f"decoder.layers.{i}"
        module.decoder.layers[i].multihead_attn = SplitAttention(n, 2)
        module.decoder.layers[i]._mha_block = (
            lambda x, memory, *_args, layer=module.decoder.layers[i], **_kw: layer.multihead_attn(x, memory)[0])
        table += self_attention(f"{a}.self", f"{b}.self_attn", n) + cross_attention(f"{a}.cross", f"{b}.multihead_attn", n)
        table += feed_forward(f"{a}.ff", b, n, hidden)
        for k in (1, 2, 3):
            table += norm(f"{a}.norm{k}", f"{b}.norm{k}", n)
    table += norm("net.decoder.norm", "decoder.norm", n)
    layer = Layer(module, table)
    source, target = tensor("source", 2, 5, n), tensor("target", 2, 4, n)
    mask = nn.Transformer.generate_square_subsequent_mask(4)
    y = module(source, target, tgt_mask=mask)
    emit("transformer", "nn.Transformer(8, 2, 2, 2, 12, dropout=0, batch_first=True)(source, target, tgt_mask=causal)",
         layer, [y], [source, target])
    full = sum(p.numel() for p in nn.Transformer().parameters())
    print(f"/* sum(p.numel() for p in nn.Transformer().parameters()) */\nenum {{ BASE_TRANSFORMER_PARAMETERS = {full} }};\n")


def encoder_layer():
    n, hidden = 8, 12
    module = nn.TransformerEncoderLayer(n, 4, hidden, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
    table = self_attention("0.self", "self_attn", n)
    table += linear("0.ff.up", "linear1", n, hidden) + linear("0.ff.down", "linear2", hidden, n)
    table += norm("0.norm1", "norm1", n) + norm("0.norm2", "norm2", n)
    layer = Layer(module, table)
    x = tensor("x", 2, 5, n)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    y = module(x, src_key_padding_mask=padding)
    emit("encoder_layer", "nn.TransformerEncoderLayer(8, 4, 12, dropout=0, activation='gelu', norm_first=True)"
         "(x, src_key_padding_mask=[.., last two of row 1])", layer, [y], [x])


def recurrent(kind, module, gates):
    n, h = module.input_size, module.hidden_size
    table = []
    for k in range(2):
        for way, suffix in (("forward", ""), ("backward", "_reverse")):
            width = n if k == 0 else 2 * h
            ours = f"net.{k}.{way}"
            table += [
                (f"{ours}.input.weight", (width, gates * h), {f"weight_ih_l{k}{suffix}": turned}),
                (f"{ours}.input.bias", (gates * h,), {f"bias_ih_l{k}{suffix}": same}),
                (f"{ours}.hidden.weight", (h, gates * h), {f"weight_hh_l{k}{suffix}": turned}),
                (f"{ours}.hidden.bias", (gates * h,), {f"bias_hh_l{k}{suffix}": same}),
            ]
    layer = Layer(module, table)
    x = tensor("x", 3, 6, n)
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([6, 2, 4]), batch_first=True, enforce_sorted=False)
    y, final = module(packed)
    y, _ = nn.utils.rnn.pad_packed_sequence(y, batch_first=True)
    finals = list(final) if isinstance(final, tuple) else [final]
    emit(kind, f"nn.{kind.upper()}({n}, {h}, 2, batch_first=True, bidirectional=True)(packed x, lengths 6, 2, 4)", layer,
         [y] + finals, [x])


def main():
    what = sys.argv[1]
    print(f"/* tests/goldens/{what}.h: made by tests/goldens/make_sequences.py {what} with PyTorch {torch.__version__}. */")
    print("// clang-format off")
    if what == "sequences":
        attention()
        encoder_layer()
        transformer()
    else:
        options = dict(batch_first=True, bidirectional=True)
        recurrent("lstm", nn.LSTM(5, 4, 2, **options), 4)
        recurrent("gru", nn.GRU(5, 4, 2, **options), 3)
        recurrent("rnn", nn.RNN(5, 4, 2, **options), 1)
    print("// clang-format on")


main()
