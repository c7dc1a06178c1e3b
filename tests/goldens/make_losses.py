#!/usr/bin/env python3
"""Writes tests/goldens/losses.h: losses and their gradients as PyTorch computes them, for tests/test_losses.c.

    python3 tests/goldens/make_losses.py > tests/goldens/losses.h

Needs torch and numpy. Each row names the call that gave it.
"""
import sys

import numpy as np
import torch
import torch.nn.functional as F

draw = np.random.RandomState(1)


def numbers(*shape, low=-2.0, high=2.0):
    return torch.tensor(np.round(draw.uniform(low, high, shape), 3), dtype=torch.float32)


# The operands, by the names they have in the calls.
x = numbers(4, 5)  # logits, or anything
y = numbers(4, 5)
z = numbers(4, 5)
p = numbers(4, 5, low=0.05, high=0.95)  # probabilities
q = torch.softmax(y, 1)  # rows that add up to one
w = numbers(5, low=0.5, high=2.0)
t = torch.tensor([3, 0, 4, 1])
s = torch.tensor([1.0, -1.0, -1.0, 1.0])
signs = torch.sign(z)
c = numbers(7, 3, 5)  # time, batch, classes
labels = torch.tensor([[1, 2, 2, 4], [3, 1, 0, 0], [2, 2, 2, 2]])
times = torch.tensor([7, 5, 6])
lengths = torch.tensor([4, 2, 3])

# name, what the gradient is taken by, call
ROWS = [
    ("cross_entropy", "x", "F.cross_entropy(x, t)"),
    ("cross_entropy_sum", "x", "F.cross_entropy(x, t, reduction='sum')"),
    ("cross_entropy_weight", "x", "F.cross_entropy(x, t, weight=w)"),
    ("cross_entropy_ignore", "x", "F.cross_entropy(x, t, weight=w, ignore_index=4)"),
    ("cross_entropy_smooth", "x", "F.cross_entropy(x, t, label_smoothing=0.1)"),
    ("cross_entropy_all", "x", "F.cross_entropy(x, t, weight=w, ignore_index=0, label_smoothing=0.2)"),
    ("cross_entropy_soft", "x", "F.cross_entropy(x, q)"),
    ("cross_entropy_soft_all", "x", "F.cross_entropy(x, q, weight=w, label_smoothing=0.2)"),
    ("cross_entropy_rows", "x", "F.cross_entropy(x.reshape(2, 2, 5).permute(0, 2, 1), t.reshape(2, 2))"),
    ("nll", "x", "F.nll_loss(x, t, weight=w, ignore_index=1)"),
    ("bce", "p", "F.binary_cross_entropy(p, q, reduction='sum')"),
    ("bce_weight", "p", "F.binary_cross_entropy(p, q, weight=w.expand(4, 5))"),
    ("bce_with_logits", "x", "F.binary_cross_entropy_with_logits(x, q)"),
    ("bce_with_logits_all", "x", "F.binary_cross_entropy_with_logits(x, q, weight=w.expand(4, 5), pos_weight=w)"),
    ("kl_div", "x", "F.kl_div(x, q, reduction='batchmean')"),
    ("kl_div_mean", "x", "F.kl_div(x, q)"),
    ("kl_div_log", "x", "F.kl_div(x, y, log_target=True)"),
    ("mse", "x", "F.mse_loss(x, y)"),
    ("mae", "x", "F.l1_loss(x, y)"),
    ("huber", "x", "F.huber_loss(x, y, delta=0.75)"),
    ("smooth_l1", "x", "F.smooth_l1_loss(x, y)"),
    ("smooth_l1_beta", "x", "F.smooth_l1_loss(x, y, beta=0.5, reduction='sum')"),
    ("hinge", "x", "torch.clamp(1 - x * signs, min=0).mean()"),
    ("hinge_embedding", "x", "F.hinge_embedding_loss(x, signs, margin=1.5)"),
    ("focal", "x", "sigmoid_focal_loss(x, q, 0.25, 2).mean()"),
    ("focal_other", "x", "sigmoid_focal_loss(x, q, -1, 1.5).sum()"),
    ("cosine_similarity", "x", "F.cosine_similarity(x, y, dim=0).sum()"),
    ("cosine_embedding", "x", "F.cosine_embedding_loss(x, y, s, margin=-0.5)"),
    ("triplet_margin", "x", "F.triplet_margin_loss(x, y, z)"),
    ("triplet_margin_all", "x", "F.triplet_margin_loss(x, y, z, margin=2.0, p=3, swap=True, reduction='sum')"),
    ("ctc", "c", "F.ctc_loss(torch.log_softmax(c, 2), labels, times, lengths)"),
    ("ctc_sum", "c", "F.ctc_loss(torch.log_softmax(c, 2), labels, times, lengths, blank=3, reduction='sum')"),
    ("ctc_infinite", "c",
     "F.ctc_loss(torch.log_softmax(c, 2), labels, torch.tensor([4, 5, 6]), lengths, reduction='sum', zero_infinity=True)"),
]


def sigmoid_focal_loss(inputs, targets, alpha, gamma):
    """torchvision.ops.sigmoid_focal_loss, its arithmetic."""
    prob = torch.sigmoid(inputs)
    ce = F.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
    p_t = prob * targets + (1 - prob) * (1 - targets)
    loss = ce * ((1 - p_t) ** gamma)
    if alpha >= 0:
        loss = (alpha * targets + (1 - alpha) * (1 - targets)) * loss
    return loss


def floats(tensor, form="{:.9g}"):
    return ", ".join(form.format(v) for v in tensor.flatten().tolist())


def main():
    print("/* tests/goldens/losses.h: made by tests/goldens/make_losses.py with PyTorch "
          f"{torch.__version__.split('+')[0]}. */")
    print("// clang-format off")
    for name in ("x", "y", "z", "p", "q", "w", "s", "signs", "c"):
        print(f"static const float operand_{name}[] = {{ {floats(globals()[name], '{:#.9g}f')} }};")
    for name in ("t", "labels", "times", "lengths"):
        print(f"static const int64_t operand_{name}[] = {{ {floats(globals()[name])} }};")
    print("static const golden goldens[] = {")
    for name, by, call in ROWS:
        leaf = globals()[by].clone().requires_grad_(True)
        value = eval(call, {**globals(), by: leaf})
        value.backward()
        print(f'    {{ "{name}", "{call}", \'{by}\', {value.item():.9g},\n      {{ {floats(leaf.grad)} }} }},')
    print("};\n// clang-format on")


if __name__ == "__main__":
    sys.exit(main())
