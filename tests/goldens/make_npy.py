#!/usr/bin/env python3
"""Writes tests/data/npy/: the same numbers as numpy.save, savez and savez_compressed write them, for tests/test_npy.c.

    python3 tests/goldens/make_npy.py

Needs numpy. Element i, in row-major order, of each array is i - 3, of unsigned ones i, of bools i % 2.
"""
import pathlib

import numpy as np
from numpy.lib import format as npy

OUT = pathlib.Path(__file__).resolve().parent.parent / "data/npy"
SHAPE = (2, 3, 4)


def numbers(descr, shape=SHAPE):
    i = np.arange(int(np.prod(shape)))
    kind = np.dtype(descr).kind
    values = i % 2 if kind == "b" else i if kind == "u" else i - 3
    return values.astype(descr).reshape(shape)


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    for descr in ("b1", "u1", "i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8"):
        np.save(OUT / f"{descr.lstrip('<')}.npy", numbers(descr))
    for descr in (">u2", ">i4", ">i8", ">f2", ">f4", ">f8"):
        np.save(OUT / f"big_{descr[1:]}.npy", numbers(descr))
    np.save(OUT / "fortran.npy", np.asfortranarray(numbers("<f4")))
    np.save(OUT / "big_fortran.npy", np.asfortranarray(numbers(">f8")))
    for version in ((2, 0), (3, 0)):
        with open(OUT / f"version{version[0]}.npy", "wb") as file:
            npy.write_array(file, numbers("<i4"), version)
    np.save(OUT / "scalar.npy", numbers("<f4", ()))
    np.save(OUT / "vector.npy", numbers("<f4", (5,)))
    np.save(OUT / "empty.npy", numbers("<f4", (3, 0)))
    np.save(OUT / "complex.npy", np.ones(2, "c8"))
    np.save(OUT / "text.npy", np.array(["a", "b"]))
    np.save(OUT / "records.npy", np.zeros(2, [("x", "<f4"), ("y", "<i4")]))
    arrays = {"x": numbers("<f4"), "labels": numbers("<i8", (6,)), "long": np.zeros((100, 100), "<f4")}
    np.savez(OUT / "stored.npz", x=arrays["x"], labels=arrays["labels"])
    np.savez_compressed(OUT / "deflated.npz", **arrays)


main()
