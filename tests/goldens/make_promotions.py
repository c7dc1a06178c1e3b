#!/usr/bin/env python3
"""Writes tests/goldens/promotions.h: the dtype two dtypes are promoted to, for tests/test_layout.c.

    python3 tests/goldens/make_promotions.py > tests/goldens/promotions.h

Bools and integers as NumPy promotes them, floats as PyTorch does (NumPy has no bfloat16); of an integer or bool with a float the float,
as PyTorch does. Needs numpy and torch.
"""
import numpy as np
import torch

NUMPY = {"BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "U16": np.uint16, "I16": np.int16, "U32": np.uint32, "I32": np.int32,
         "U64": np.uint64, "I64": np.int64, "F64": np.float64}
TORCH = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64}
SIGNED = {"I8": torch.int8, "I16": torch.int16, "I32": torch.int32, "I64": torch.int64, "U8": torch.uint8, "BOOL": torch.bool}
ORDER = ["BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64", "F16", "BF16", "F32", "F64"]


def name_of(dtype, names):
    return next(name for name, other in names.items() if other == dtype)


def promoted(a, b):
    if a in TORCH and b in TORCH:
        return name_of(torch.promote_types(TORCH[a], TORCH[b]), TORCH)
    if a in TORCH or b in TORCH:
        real, other = (a, b) if a in TORCH else (b, a)
        if other in SIGNED:  # the wider unsigned ones PyTorch does not promote
            assert torch.promote_types(TORCH[real], SIGNED[other]) == TORCH[real]
        return real
    return name_of(np.promote_types(NUMPY[a], NUMPY[b]), NUMPY)


print(f"""/* Written by tests/goldens/make_promotions.py with NumPy {np.__version__} and PyTorch {torch.__version__.split('+')[0]}. */
static const struct {{
    gd_dtype a, b, promoted;
}} promotions[] = {{""")
for a in ORDER:
    for b in ORDER:
        print(f"    {{ GD_{a}, GD_{b}, GD_{promoted(a, b)} }},")
print("};")
