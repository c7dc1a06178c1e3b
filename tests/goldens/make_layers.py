#!/usr/bin/env python3
"""Writes tests/goldens/layers.h: layers as PyTorch computes them, for tests/test_layers.c.

    python3 tests/goldens/make_layers.py > tests/goldens/layers.h

Needs torch. Each row names the call that gave it. The input and every parameter is fill(shape, kind); the test fills a
module's parameters in the same way, by the last part of their path.
"""
import json
import math

import torch
import torch.nn.functional as F


def fill(kind, *shape):
    i = torch.arange(math.prod(shape), dtype=torch.float64)
    value = {
        "input": torch.sin(i * 1.3) * 2,
        "weight": torch.sin(i * 0.7 + 0.5) * 0.5,
        "bias": torch.cos(i) * 0.25,
        "running_mean": torch.sin(i + 1) * 0.1,
        "running_var": 1 + 0.5 * torch.cos(i),
        "slope": 0.1 + 0.05 * i,
    }[kind]
    return value.reshape(shape)


def w(*shape):
    return fill("weight", *shape)


def b(n):
    return fill("bias", n)


def m(n):
    return fill("running_mean", n)


def v(n):
    return fill("running_var", n)


def slope(n):
    return fill("slope", n)


# layer, shape of a batch, call, numbers in parameters, in training
ROWS = [
    ({"type": "linear", "units": 3}, (2, 4), "F.linear(x, w(4, 3).T, b(3))", 15, False),
    ({"type": "linear", "units": 3, "bias": False}, (2, 4), "F.linear(x, w(4, 3).T)", 12, False),
    ({"type": "conv1d", "channels": 3, "kernel": 3, "padding": 1}, (2, 2, 5), "F.conv1d(x, w(3, 2, 3), b(3), padding=1)", 21, False),
    ({"type": "conv2d", "channels": 4, "kernel": [3, 2], "stride": [2, 1], "padding": [1, 0], "groups": 2}, (1, 4, 5, 4),
     "F.conv2d(x, w(4, 2, 3, 2), b(4), stride=(2, 1), padding=(1, 0), groups=2)", 52, False),
    ({"type": "conv2d", "channels": 2, "kernel": 3, "dilation": 2, "bias": False}, (1, 1, 6, 6),
     "F.conv2d(x, w(2, 1, 3, 3), dilation=2)", 18, False),
    ({"type": "conv2d", "channels": 2, "kernel": 3, "padding": "same", "activation": "relu"}, (1, 2, 3, 4),
     "F.relu(F.conv2d(x, w(2, 2, 3, 3), b(2), padding='same'))", 38, False),
    ({"type": "conv3d", "channels": 2, "kernel": 2}, (1, 1, 3, 3, 2), "F.conv3d(x, w(2, 1, 2, 2, 2), b(2))", 18, False),
    ({"type": "conv_transpose1d", "channels": 2, "kernel": 3, "stride": 2}, (1, 2, 3),
     "F.conv_transpose1d(x, w(2, 2, 3), b(2), stride=2)", 14, False),
    ({"type": "conv_transpose2d", "channels": 2, "kernel": 3, "stride": 2, "padding": 1, "output_padding": 1, "groups": 2},
     (1, 2, 3, 2), "F.conv_transpose2d(x, w(2, 1, 3, 3), b(2), stride=2, padding=1, output_padding=1, groups=2)", 20, False),
    ({"type": "conv_transpose3d", "channels": 1, "kernel": 2}, (1, 2, 2, 2, 2),
     "F.conv_transpose3d(x, w(2, 1, 2, 2, 2), b(1))", 17, False),
    ({"type": "max_pool1d", "kernel": 2}, (1, 2, 5), "F.max_pool1d(x, 2)", 0, False),
    ({"type": "max_pool2d", "kernel": 3, "stride": 2, "padding": 1}, (1, 2, 4, 5), "F.max_pool2d(x, 3, 2, 1)", 0, False),
    ({"type": "max_pool2d", "kernel": 2, "ceil_mode": True}, (1, 1, 3, 3), "F.max_pool2d(x, 2, ceil_mode=True)", 0, False),
    ({"type": "max_pool3d", "kernel": 2}, (1, 1, 2, 4, 2), "F.max_pool3d(x, 2)", 0, False),
    ({"type": "avg_pool1d", "kernel": 3, "stride": 1}, (1, 1, 5), "F.avg_pool1d(x, 3, 1)", 0, False),
    ({"type": "avg_pool2d", "kernel": 2, "padding": 1, "count_padding": False}, (1, 1, 3, 4),
     "F.avg_pool2d(x, 2, padding=1, count_include_pad=False)", 0, False),
    ({"type": "avg_pool3d", "kernel": [1, 2, 2]}, (1, 1, 2, 2, 4), "F.avg_pool3d(x, (1, 2, 2))", 0, False),
    ({"type": "adaptive_avg_pool", "shape": [2, 3]}, (1, 1, 5, 4), "F.adaptive_avg_pool2d(x, (2, 3))", 0, False),
    ({"type": "adaptive_max_pool", "shape": [3]}, (1, 2, 5), "F.adaptive_max_pool1d(x, 3)", 0, False),
    ({"type": "global_avg_pool"}, (2, 3, 2, 2), "x.mean((2, 3))", 0, False),
    ({"type": "global_max_pool"}, (2, 3, 2, 2), "x.amax((2, 3))", 0, False),
    ({"type": "batch_norm"}, (2, 3, 4), "F.batch_norm(x, m(3), v(3), w(3), b(3), False)", 6, False),
    ({"type": "batch_norm"}, (2, 3, 4), "F.batch_norm(x, m(3), v(3), w(3), b(3), True)", 6, True),
    ({"type": "batch_norm", "affine": False, "epsilon": 0.5}, (4, 3), "F.batch_norm(x, m(3), v(3), eps=0.5, training=True)", 0, True),
    ({"type": "layer_norm"}, (2, 3, 4), "F.layer_norm(x, [4], w(4), b(4))", 8, True),
    ({"type": "layer_norm", "axes": 2, "bias": False}, (2, 3, 4), "F.layer_norm(x, [3, 4], w(3, 4))", 12, False),
    ({"type": "rms_norm", "epsilon": 0.001}, (2, 3, 4), "F.rms_norm(x, [4], w(4), 0.001)", 4, False),
    ({"type": "group_norm", "groups": 2}, (2, 4, 3), "F.group_norm(x, 2, w(4), b(4))", 8, True),
    ({"type": "instance_norm"}, (2, 3, 4), "F.instance_norm(x, weight=w(3), bias=b(3))", 6, False),
    ({"type": "instance_norm", "affine": False}, (2, 3, 4), "F.instance_norm(x)", 0, True),
    ({"type": "embedding", "vocabulary": 7, "units": 2}, (2, 3), "F.embedding(torch.tensor([[0, 1, 2], [3, 4, 5]]), w(7, 2))", 14, False),
    ({"type": "prelu"}, (2, 4), "F.prelu(x, slope(1))", 1, False),
    ({"type": "prelu", "per_channel": True}, (2, 3, 2), "F.prelu(x, slope(3))", 3, False),
    ({"type": "dropout", "dropout": 0.5}, (2, 4), "F.dropout(x, 0.5, training=False)", 0, False),
    ({"type": "drop_connect", "units": 3, "dropout": 0.5}, (2, 4), "F.linear(x, w(4, 3).T, b(3))", 15, False),
    ({"type": "relu"}, (2, 4), "F.relu(x)", 0, False),
    ({"type": "leaky_relu"}, (2, 4), "F.leaky_relu(x)", 0, False),
    ({"type": "leaky_relu", "alpha": 0.3}, (2, 4), "F.leaky_relu(x, 0.3)", 0, False),
    ({"type": "elu"}, (2, 4), "F.elu(x)", 0, False),
    ({"type": "elu", "alpha": 0.5}, (2, 4), "F.elu(x, 0.5)", 0, False),
    ({"type": "selu"}, (2, 4), "F.selu(x)", 0, False),
    ({"type": "gelu"}, (2, 4), "F.gelu(x)", 0, False),
    ({"type": "gelu_tanh"}, (2, 4), "F.gelu(x, approximate='tanh')", 0, False),
    ({"type": "silu"}, (2, 4), "F.silu(x)", 0, False),
    ({"type": "mish"}, (2, 4), "F.mish(x)", 0, False),
    ({"type": "sigmoid"}, (2, 4), "torch.sigmoid(x)", 0, False),
    ({"type": "tanh"}, (2, 4), "torch.tanh(x)", 0, False),
    ({"type": "softplus"}, (2, 4), "F.softplus(x)", 0, False),
    ({"type": "relu6"}, (2, 4), "F.relu6(x)", 0, False),
    ({"type": "hard_sigmoid"}, (2, 4), "F.hardsigmoid(x)", 0, False),
    ({"type": "hard_swish"}, (2, 4), "F.hardswish(x)", 0, False),
    ({"type": "softmax"}, (2, 4), "F.softmax(x, -1)", 0, False),
    ({"type": "log_softmax", "axis": 1}, (2, 3, 2), "F.log_softmax(x, 1)", 0, False),
    ({"type": "add", "inputs": ["input", "input"]}, (2, 4), "x + x", 0, False),
    ({"type": "multiply", "inputs": ["input", "input"]}, (2, 4), "x * x", 0, False),
    ({"type": "concat", "inputs": ["input", "input"], "axis": 1}, (1, 2, 3), "torch.cat([x, x], 1)", 0, False),
    ({"type": "flatten"}, (2, 3, 2), "x.flatten(1)", 0, False),
    ({"type": "reshape", "shape": [2, -1]}, (2, 3, 2), "x.reshape(2, 2, 3)", 0, False),
]


def main():
    print(f"/* tests/goldens/layers.h: made by tests/goldens/make_layers.py with PyTorch {torch.__version__.split('+')[0]}. */")
    print("// clang-format off")
    values = []
    rows = []
    for layer, shape, call, count, training in ROWS:
        x = torch.arange(6.0).reshape(shape) if layer["type"] == "embedding" else fill("input", *shape)
        y = eval(call)
        layer = {"name": "layer", **layer}
        model = json.dumps({"input": list(shape[1:]), "layers": [layer]}).replace('"', '\\"')
        rows.append(f'    {{ "{model}",\n      "{call}", {shape[0]}, {count}, {str(training).lower()}, SHAPE({", ".join(map(str, y.shape))}), {len(values)} }},')
        values += y.flatten().tolist()
    print("static const double layer_values[] = {")
    for i in range(0, len(values), 12):
        print("    " + ", ".join("%.9g" % t for t in values[i:i + 12]) + ",")
    print("};")
    print("static const layer_golden layer_goldens[] = {")
    print("\n".join(rows))
    print("};")


main()
