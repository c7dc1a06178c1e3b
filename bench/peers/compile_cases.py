"""The cases of bench_compile, for its peers: shapes, and the same numbers (see numbers() in bench_compile.c)."""
import numpy as np

import problem

BATCH = 50
NETWORKS = {"mnist_mlp": ((784, 16, 16, 10), True), "mlp_512": ((784, 512, 512, 10), False), "mlp_256": ((64, 256, 256, 8), False)}


def numbers(shape, seed, scale):
    i = np.arange(int(np.prod(shape)), dtype=np.int64)
    return ((((i * 7919 + seed * 104729) % 2001) / 1000 - 1) * scale).astype(np.float32).reshape(shape)


def parameters(sizes):
    out = []
    for k in range(3):
        out += [numbers(sizes[k : k + 2], 2 * k + 1, 1 / np.sqrt(sizes[k])), numbers(sizes[k + 1 : k + 2], 2 * k + 2, 0)]
    return out


def labels(classes):
    return np.arange(BATCH) % classes


def timing(run, seconds=0.5):
    """(median, spread) of the seconds of run()."""
    return problem.median_seconds(run, lambda: None, 1, seconds)
