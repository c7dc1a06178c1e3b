#!/usr/bin/env python3
"""Makes tests/data/gguf/golden.gguf with the Python package gguf (0.19.0; numpy 2.4.6), for tests/test_gguf.c:

    python3 tests/goldens/make_gguf.py tests/data/gguf

For each type T there is a tensor "T" of blocks of any bits (their scales are ordinary numbers), and "T.read", what gguf.dequantize reads of it; for
types that are written "T.written", what gguf.quantize makes of "numbers". The metadata has a value of every kind.
"""
import pathlib
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFValueType as Kind

# Where the f16 of a block are, in bytes.
HALVES = {Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.Q8_0: [0], Type.Q2_K: [80, 82], Type.Q3_K: [108],
          Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208], Type.F16: [0], Type.BF16: [], Type.F32: []}
WRITTEN = [Type.F16, Type.BF16, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0]


def blocks(random, kind, rows, columns):
    """Random bytes; of halves a few are subnormal, the others of magnitude 2^-8 to 2^4."""
    count, size = gguf.GGML_QUANT_SIZES[kind]
    data = random.integers(0, 256, (rows, columns // count, size), dtype=np.uint8)
    for at in HALVES[kind]:
        scale = np.exp2(random.uniform(-8, 4, data.shape[:2])) * random.choice([-1, 1], data.shape[:2])
        scale[0, 0] = 3e-7
        data[..., at:at + 2] = scale.astype(np.float16)[..., None].view(np.uint8)
    if kind in (Type.F32, Type.BF16):
        data[...] = gguf.quantize(random.standard_normal((rows, columns)).astype(np.float32), kind).reshape(data.shape[0], -1).view(
            np.uint8).reshape(data.shape)
    return data.reshape(rows, -1)


def main(folder):
    random = np.random.default_rng(20)
    writer = gguf.GGUFWriter(pathlib.Path(folder) / "golden.gguf", "golden")
    writer.add_name("of every kind")
    numbers = {"u8": (200, Kind.UINT8), "i8": (-100, Kind.INT8), "u16": (60000, Kind.UINT16), "i16": (-30000, Kind.INT16),
               "u32": (4000000000, Kind.UINT32), "i32": (-2000000000, Kind.INT32), "f32": (0.15625, Kind.FLOAT32), "bool": (True, Kind.BOOL),
               "u64": (1 << 52, Kind.UINT64), "i64": (-(1 << 52), Kind.INT64), "f64": (1 / 3, Kind.FLOAT64)}
    for name, (value, kind) in numbers.items():
        writer.add_key_value("kinds." + name, value, kind)
    writer.add_string("kinds.text", "tokens \u2581 and bytes")
    writer.add_array("kinds.numbers", [3, -1, 4])
    writer.add_array("kinds.reals", [0.5, -2.25])
    writer.add_array("kinds.texts", ["", "one", "zwölf"])
    x = random.standard_normal((4, 64)).astype(np.float32)
    x[0] *= 1000
    x[1, :32] = 0
    x[1, 32:] = -1
    x[2, 5] = x[2, :32].min() - 1
    x[2, 9] = -x[2, 5]  # the largest magnitude twice, with both signs
    x[3] *= np.float32(1e-6)
    writer.add_tensor("numbers", x)
    for kind in HALVES:
        k_quant = kind.name.endswith("_K")
        data = blocks(random, kind, 2, 256 if k_quant else 64)
        raw = data.view({Type.F32: np.float32, Type.F16: np.float16}.get(kind, np.uint8))
        writer.add_tensor(kind.name, raw, raw_dtype=kind)
        writer.add_tensor(kind.name + ".read", gguf.dequantize(raw, kind))
    for kind in WRITTEN:
        writer.add_tensor(kind.name + ".written", gguf.quantize(x, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


main(sys.argv[1])
