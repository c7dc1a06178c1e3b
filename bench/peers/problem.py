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
    spread MODE X, how MODE TEXT   how far samples of the step lie apart; the setting that was fastest
    imagespread, imagehow          the same of the image
    memory MIB BEFORE              the most memory the process had, and what it had once its libraries were loaded
    note TEXT                      for people
"""
import ctypes
import os
import subprocess
import sys
import time

try:
    import numpy
except ImportError:
    sys.exit(3)  # nor is there what needs it

QUICK = os.environ.get("BENCH_QUICK", "0") not in ("", "0")
ONLY_MEMORY = os.environ.get("GD_PEER_ONLY_MEMORY") == "1"  # see print_memory_of_a_child()
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
        self.batches = self.count // BATCH

    def pixels_f32(self):
        """The pixels as numbers; four times the memory."""
        return self.pixels.astype(numpy.float32) * numpy.float32(1 / 255)


clock = time.perf_counter


def use_processors(count):
    """Run on no more processors than the row says: pools that size themselves by the machine follow it. On one, the clock is the
    processor time of this process, all its threads together, so that what other programs do in between does not count."""
    global clock
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-count:])
    clock = time.process_time if count == 1 else time.perf_counter


AGREEMENT, WARM_UP_SECONDS, LEAST_SAMPLES, SPREAD = 0.05, 1.0, 5, 0.1  # as in bench/measure.c


def sampled(sample, seconds):
    """(median, spread) of sample(), which returns seconds, taken for so long: as gd_bench_time() does. After a warm-up until two
    samples agree; where the samples do not, once more, and the better agreement counts. The spread is the distance of the quartiles
    over the median."""
    best = None
    for _ in range(2):
        end, last = time.perf_counter() + WARM_UP_SECONDS, sample()
        while time.perf_counter() < end:
            this = sample()
            agreed = abs(this - last) <= AGREEMENT * this
            last = this
            if agreed:
                break
        samples, end = [], time.perf_counter() + seconds
        while len(samples) < LEAST_SAMPLES or time.perf_counter() < end:
            samples.append(sample())
        samples.sort()
        middle = samples[len(samples) // 2]
        spread = (samples[3 * (len(samples) - 1) // 4] - samples[(len(samples) - 1) // 4]) / middle if middle > 0 else 0.0
        if best is None or spread < best[1]:
            best = middle, spread
        if spread <= SPREAD:
            break
    return best


def median_seconds(step, wait, chunk, seconds):
    """(median, spread) of the seconds of step() over chunks. wait() until all is done."""
    return sampled(chunk_of(step, wait, chunk), seconds)


def await_turns(sample):
    """The end of a side that others wait for, as gd_bench_await_turns() in bench/side.c: a line on stdin is a turn, in which sample() is
    taken for a quarter of a second. sample(): seconds of one run."""
    if "BENCH_TURNS" not in os.environ or ONLY_MEMORY:
        return
    print("ready", flush=True)
    for _ in sys.stdin:
        sample()
        samples, end = [], time.perf_counter() + 0.25
        while not samples or time.perf_counter() < end:
            samples.append(sample())
        print(f"sample {sum(samples) / len(samples):.9g}", flush=True)


def chunk_of(step, wait, chunk):
    """A function that returns the seconds of a step() over a chunk of them. wait() until all is done."""
    def sample():
        start = clock()
        for _ in range(chunk):
            step()
        wait()
        return (clock() - start) / chunk

    return sample


def measure(step, wait, batches, seconds):
    """The same of step(i), which trains on batch i."""
    at = 0

    def next_step():
        nonlocal at
        step(at % batches)
        at += 1

    return median_seconds(next_step, wait, CHUNK, seconds)


def run_training(mode, step, state, checked, chunk, seconds):
    """Losses of the first steps, seconds a step and this process's memory, printed. step(state): the next state and a loss, of JAX."""
    losses, loss = [], None

    def one():
        nonlocal state, loss
        state, loss = step(state)

    for _ in range(checked):
        one()
        losses.append(loss)
    loss.block_until_ready()
    print_memory()
    keep_memory()
    sample = chunk_of(one, lambda: loss.block_until_ready(), chunk)
    spent, spread = sampled(sample, seconds)
    print(f"spread {spread:.4g}\nstep {mode} {spent:.9g} {numbers(losses)}")
    await_turns(sample)


def run_scan(scan, state, checked, length, seconds):
    """The same of scan(state): `length` steps in one call, returns the next state and all losses."""
    state, losses = scan(state)
    first = [float(loss) for loss in losses[:checked]]
    while len(first) < checked:
        state, losses = scan(state)
        first += [float(loss) for loss in losses[: checked - len(first)]]

    print_memory()
    keep_memory()

    def one():
        nonlocal state, losses
        state, losses = scan(state)

    call = chunk_of(one, lambda: losses.block_until_ready(), 1)
    sample = lambda: call() / length
    spent, spread = sampled(sample, seconds)
    print(f"how {length} steps a call\nspread {spread:.4g}\nstep scan {spent:.9g} {numbers(first)}")
    await_turns(sample)


def measure_epoch(step, wait, batches, expected):
    """Seconds for all batches, of which one is expected to take so long: where that is slow, of as many as 10 seconds allow, scaled."""
    count = max(1, min(batches, int(10 / expected)))
    start = clock()
    for i in range(count):
        step(i)
    wait()
    return (clock() - start) / count * batches


def measure_call(call, seconds=0.5):
    """(median, spread) of the seconds of call() over chunks of 100."""
    return median_seconds(call, lambda: None, 100, seconds)


def numbers(values):
    return " ".join(f"{float(value):.7g}" for value in values)


def print_step(mode, how, losses, timing, epoch):
    """`timing`: seconds a step and their spread; `epoch`: seconds."""
    if how:
        print(f"how {mode} {how}")
    print(f"spread {mode} {timing[1]:.4g}\nstep {mode} {timing[0] * 1e6:.3f} {numbers(losses)}")
    print(f"epoch {mode} {epoch:.4f}", flush=True)


def memory_mib(field):
    with open("/proc/self/status", encoding="ascii") as file:  # getrusage() begins with what the parent had
        return next(int(line.split()[1]) for line in file if line.startswith(field)) / 1024


def keep_memory():
    """glibc's malloc keeps what is freed, instead of giving large blocks back to the system after each step."""
    M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_MAX, 0)
    libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def print_memory_of_a_child():
    """Run this program once more, with malloc as it comes, for its "memory" line."""
    child = subprocess.run([sys.executable, *sys.argv], env={**os.environ, "GD_PEER_ONLY_MEMORY": "1"}, stdout=subprocess.PIPE, text=True,
                           check=False)
    for line in child.stdout.splitlines():
        if line.startswith("memory"):
            print(line, flush=True)


def start_jax(jax):
    """JAX and its compiler, used once: what they need themselves counts as libraries."""
    x = jax.numpy.ones((4, 4))
    jax.jit(jax.value_and_grad(lambda x: (x @ x).sum()))(x)[0].block_until_ready()
    libraries_loaded()


resident_before = 0.0


def libraries_loaded():
    """What is resident now is the interpreter's and the libraries'."""
    global resident_before
    resident_before = memory_mib("VmRSS:")


def print_memory():
    print(f"memory {memory_mib('VmHWM:'):.1f} {resident_before:.1f}", flush=True)


def sines(count, phase, scale):
    """As gd_bench_sines()."""
    return (scale * numpy.sin(numpy.arange(count, dtype=numpy.float64) * 0.7 + phase)).astype(numpy.float32)


def weighted_sum(values):
    """As gd_bench_weighted_sum()."""
    flat = numpy.asarray(values, dtype=numpy.float64).ravel()
    return float(flat @ numpy.cos(numpy.arange(flat.size) * 0.3))
