"""The cases of bench_compile, for its peers: shapes, and the same numbers (see numbers() in bench_compile.c)."""
import os
import statistics
import time

import numpy as np

if hasattr(os, "sched_setaffinity"):  # pools that size themselves by the machine, such as XLA's, then have one thread, as we have
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])

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


def microseconds(run, seconds=0.5):
    """Median processor time of run(), all threads together, after a warm-up."""
    samples, end = [], time.process_time() + seconds
    for _ in range(3):
        run()
    while time.process_time() < end or len(samples) < 5:
        begin = time.process_time_ns()
        run()
        samples.append(time.process_time_ns() - begin)
    return statistics.median(samples) * 1e-3
