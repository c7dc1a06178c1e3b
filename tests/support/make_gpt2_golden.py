"""Makes tests/support/gpt2_golden.h: a tiny random GPT-2, its logits, loss and gradients, by PyTorch.

    python make_gpt2_golden.py >gpt2_golden.h

The forward pass is written out with torch.nn.functional, after Radford et al. 2019 and the published weights' names.
Weights are not stored: element i of the tensor number t is a hash of (t, i), which the test computes too.
"""
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
V, T, L, H, C = 11, 8, 2, 2, 12
shapes = {"wte.weight": (V, C), "wpe.weight": (T, C)}
for i in range(L):
    shapes |= {f"h.{i}.ln_1.weight": (C,), f"h.{i}.ln_1.bias": (C,), f"h.{i}.attn.c_attn.weight": (C, 3 * C),
               f"h.{i}.attn.c_attn.bias": (3 * C,), f"h.{i}.attn.c_proj.weight": (C, C), f"h.{i}.attn.c_proj.bias": (C,),
               f"h.{i}.ln_2.weight": (C,), f"h.{i}.ln_2.bias": (C,), f"h.{i}.mlp.c_fc.weight": (C, 4 * C),
               f"h.{i}.mlp.c_fc.bias": (4 * C,), f"h.{i}.mlp.c_proj.weight": (4 * C, C), f"h.{i}.mlp.c_proj.bias": (C,)}
shapes |= {"ln_f.weight": (C,), "ln_f.bias": (C,)}


def values(number, count):
    out = []
    for i in range(count):
        h = (number * 1000003 + i) * 2654435761 % 2**32
        h = (h ^ h >> 15) * 2246822519 % 2**32
        out.append(((h ^ h >> 13) % 4001 - 2000) / 4000)  # -0.5 … 0.5
    return out


p = {}
for number, (name, shape) in enumerate(shapes.items()):
    t = torch.tensor(values(number, torch.Size(shape).numel())).reshape(shape)
    p[name] = (t + 1 if len(shape) == 1 and name.endswith("weight") else t).float().double().requires_grad_()

x = torch.tensor([[1, 4, 10, 0, 3], [7, 7, 2, 9, 5]])
y = torch.tensor([[4, 10, 0, 3, 8], [7, 2, 9, 5, 6]])
B, N = x.shape
h = p["wte.weight"][x] + p["wpe.weight"][:N]
for i in range(L):
    g = lambda name: p[f"h.{i}.{name}"]
    n = F.layer_norm(h, (C,), g("ln_1.weight"), g("ln_1.bias"), 1e-5)
    q, k, v = (n @ g("attn.c_attn.weight") + g("attn.c_attn.bias")).split(C, dim=2)
    q, k, v = (a.view(B, N, H, C // H).transpose(1, 2) for a in (q, k, v))
    a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, N, C)
    h = h + a @ g("attn.c_proj.weight") + g("attn.c_proj.bias")
    n = F.layer_norm(h, (C,), g("ln_2.weight"), g("ln_2.bias"), 1e-5)
    f = F.gelu(n @ g("mlp.c_fc.weight") + g("mlp.c_fc.bias"), approximate="tanh")
    h = h + f @ g("mlp.c_proj.weight") + g("mlp.c_proj.bias")
h = F.layer_norm(h, (C,), p["ln_f.weight"], p["ln_f.bias"], 1e-5)
logits = h @ p["wte.weight"].T
loss = F.cross_entropy(logits.reshape(-1, V), y.reshape(-1))
loss.backward()


def row(numbers):
    text, line = "", "   "
    for number in numbers:
        item = f" {number:.9g},"
        if len(line) + len(item) > 100:
            text, line = text + line + "\n", "   "
        line += item
    return text + line


print("/* Made by tests/support/make_gpt2_golden.py with PyTorch", torch.__version__.split("+")[0] + ", in f64. */")
print("/* clang-format off */")
print(f"enum {{ GPT2_VOCABULARY = {V}, GPT2_LENGTH = {T}, GPT2_LAYERS = {L}, GPT2_HEADS = {H}, GPT2_WIDTH = {C}, GPT2_TENSORS = {len(shapes)} }};")
print("static const char *const gpt2_names[] = {")
print("\n".join(f'    "{name}",' for name in shapes))
print("};")
print(f"static const int64_t gpt2_x[] = {{ {', '.join(map(str, x.flatten().tolist()))} }};")
print(f"static const int64_t gpt2_y[] = {{ {', '.join(map(str, y.flatten().tolist()))} }};")
print("static const double gpt2_logits[] = {\n" + row(logits.flatten().tolist()) + "\n};")
print(f"static const double gpt2_loss = {loss.item():.12g};")
print("/* Of each tensor's gradient: the sum of squares, and the sum of i+1 times element i. */")
print("static const double gpt2_gradients[][2] = {")
for name in shapes:
    g = p[name].grad.flatten()
    print(f"    {{ {(g * g).sum().item():.9g}, {(g * torch.arange(1, g.numel() + 1)).sum().item():.9g} }}, /* {name} */")
print("};")
