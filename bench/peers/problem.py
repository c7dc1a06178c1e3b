"""What the peers of bench_mnist_mlp share: reading the problem, and timing. Those of other networks time with it too.

The bench writes a file: b"GDMNIST1", the number n of examples (int32), weight and bias of the layers 784-16, 16-16 and 16-10
(float32; weights [in, out]), an order of the examples (int32 [n]), labels (uint8 [n]) and pixels (uint8 [n, 784]); all
little-endian. A peer trains CHECKED steps on the first batches of that order, for their losses, and is timed over more of them.

A peer prints lines, which the bench reads:

    name NAME VERSION              who this is
    start S                        seconds from the start of the process to the first trained step
    step MODE US LOSS…             microseconds a step, and the losses of the first steps
    epoch MODE S                   seconds an epoch; scaled from a part of it where it is long
    image MODE US P…               microseconds for the probabilities of one image, and these
    compile MODE S                 seconds the first call took
    memory MIB                     the most memory the process had
    note TEXT                      for people
"""
import os
import statistics
import sys
import time

try:
    import numpy
except ImportError:
    sys.exit(3)  # nor is there what needs it

BATCH, CHECKED, LR = 50, 20, 0.01
CHUNK = 24  # steps timed together
SHAPES = [(784, 16), (16,), (16, 16), (16,), (16, 10), (10,)]


def process_start():
    """When this process began, on the clock of time.monotonic()."""
    with open("/proc/self/stat", encoding="ascii") as file:
        ticks = int(file.read().rsplit(")", 1)[1].split()[19])
    return ticks / os.sysconf("SC_CLK_TCK")  # since boot: CLOCK_BOOTTIME, which is CLOCK_MONOTONIC but for suspensions


def print_start():
    print(f"start {time.clock_gettime(time.CLOCK_BOOTTIME) - process_start():.3f}")


class Problem:
    def __init__(self, path):
        with open(path, "rb") as file:
            assert file.read(8) == b"GDMNIST1", "not a problem file"
            self.count = int(numpy.fromfile(file, "<i4", 1)[0])
            self.parameters = [numpy.fromfile(file, "<f4", int(numpy.prod(shape))).reshape(shape) for shape in SHAPES]
            self.order = numpy.fromfile(file, "<i4", self.count).astype(numpy.int64)
            self.labels = numpy.fromfile(file, "u1", self.count).astype(numpy.int64)
            self.pixels = numpy.fromfile(file, "u1", self.count * 784).reshape(self.count, 784)
        self.pixels = self.pixels.astype(numpy.float32) * numpy.float32(1 / 255)
        self.batches = self.count // BATCH


clock = time.perf_counter


def use_processors(count):
    """Run on no more processors than the row says: pools that size themselves by the machine follow it. On one, the clock is the
    processor time of this process, all its threads together, so that what other programs do in between does not count."""
    global clock
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-count:])
    clock = time.process_time if count == 1 else time.perf_counter


def measure(step, wait, batches, seconds):
    """Median seconds a step, over chunks of CHUNK. step(i) trains on batch i, wait() until all is done."""
    samples, at, begin = [], 0, time.perf_counter()
    while len(samples) < 5 or time.perf_counter() - begin < seconds:
        start = clock()
        for _ in range(CHUNK):
            step(at % batches)
            at += 1
        wait()
        samples.append((clock() - start) / CHUNK)
    return statistics.median(samples)


def median_seconds(step, wait, chunk, seconds):
    """Median seconds of step() over chunks, after a tenth of the time to warm up. wait() until all is done."""
    samples, begin = [], time.perf_counter()
    while time.perf_counter() - begin < seconds / 10:
        step()
    wait()
    begin = time.perf_counter()
    while len(samples) < 5 or time.perf_counter() - begin < seconds:
        start = clock()
        for _ in range(chunk):
            step()
        wait()
        samples.append((clock() - start) / chunk)
    return statistics.median(samples)


def run_training(mode, step, state, checked, chunk, seconds):
    """Losses of the first steps, seconds a step and this process's memory, printed. step(state): the next state and a loss, of JAX."""
    losses, loss = [], None

    def one():
        nonlocal state, loss
        state, loss = step(state)

    for _ in range(checked):
        one()
        losses.append(loss)
    spent = median_seconds(one, lambda: loss.block_until_ready(), chunk, seconds)
    print(f"step {mode} {spent:.9g} {numbers(losses)}")
    print_memory()


def measure_epoch(step, wait, batches, expected):
    """Seconds for all batches, of which one is expected to take so long: where that is slow, of as many as 10 seconds allow, scaled."""
    count = max(1, min(batches, int(10 / expected)))
    start = clock()
    for i in range(count):
        step(i)
    wait()
    return (clock() - start) / count * batches


def measure_call(call, seconds=0.5):
    """Median seconds of call() over chunks of 100."""
    samples, begin = [], time.perf_counter()
    while len(samples) < 5 or time.perf_counter() - begin < seconds:
        start = clock()
        for _ in range(100):
            call()
        samples.append((clock() - start) / 100)
    return statistics.median(samples)


def numbers(values):
    return " ".join(f"{float(value):.7g}" for value in values)


def print_step(mode, losses, step, epoch):
    """Of seconds a step and an epoch."""
    print(f"step {mode} {step * 1e6:.3f} {numbers(losses)}")
    print(f"epoch {mode} {epoch:.4f}", flush=True)


def print_memory():
    with open("/proc/self/status", encoding="ascii") as file:  # getrusage() begins with what the parent had
        kib = next(int(line.split()[1]) for line in file if line.startswith("VmHWM:"))
    print(f"memory {kib / 1024:.1f}", flush=True)


def sines(count, phase, scale):
    """As gd_bench_sines()."""
    return (scale * numpy.sin(numpy.arange(count, dtype=numpy.float64) * 0.7 + phase)).astype(numpy.float32)


def weighted_sum(values):
    """As gd_bench_weighted_sum()."""
    flat = numpy.asarray(values, dtype=numpy.float64).ravel()
    return float(flat @ numpy.cos(numpy.arange(flat.size) * 0.3))
