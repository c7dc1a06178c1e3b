"""A training step in PyTorch on a device, in every way PyTorch has, for tools/gpu_models.py.

    python3 device_torch.py SUITE f32|tf32 PROBLEM DEVICE UNTIL SECONDS

PROBLEM is the file that the bench of the suite writes (--problem FILE). What is compiled is compiled first, as far as that is done at the
time UNTIL (of the clock CLOCK_MONOTONIC; inf: however long it takes). Then it prints "ready", waits for a line on stdin, and makes and times
one way after another for SECONDS each: the median over batches of steps that end in a wait for the device. No loss is read meanwhile. A line of
results is

    step WAY SECONDS SPREAD LOSSES...

and "note ..." says what did not run. Ways:

    eager                  fused optimizer, cudnn.benchmark
    graph                  a whole step of that captured in one CUDA graph
    graph-channels-last    the same with images of that layout, for the convolutional networks
    compile                torch.compile of the forward pass and the loss, and so of the backward pass
    compile-graph          a whole step of that captured in one CUDA graph
    reduce-overhead        torch.compile(mode="reduce-overhead"): CUDA graphs of Inductor's own

cuDNN chooses algorithms by measuring them (cudnn.benchmark) only while this process has the device for itself: so in all but the last, whose
graphs are recorded before. In f32 TF32 is off for products and convolutions, in tf32 on for both. Exit status 3: there is no PyTorch, or not
with this device. Nothing but PyTorch is needed.
"""
import copy
import os
import signal
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    print("note there is no PyTorch")
    sys.exit(3)

import cnn_models
import gpt_models

SUITE, PRECISION, PROBLEM, DEVICE = sys.argv[1:5]
UNTIL, SECONDS = float(sys.argv[5]), float(sys.argv[6])
IS_CUDA = DEVICE.startswith("cuda")
GPTS = {"char_gpt": (6, 8, 256), "gpt2_124m": (12, 4, 64)}  # heads, batch, time: bench/bench_char_gpt.c, bench_gpt2_124m.c
CHECKED = 4
BATCH_SECONDS, WARM_UP_SECONDS, LEAST_SAMPLES = 0.05, 0.15, 5
WAY_SECONDS = 15  # that making a way may take once this process has the device for itself


def synchronize():
    if IS_CUDA:
        torch.cuda.synchronize()


# ---- the step ----


def read_trainee():
    """(network, loss of its results and the labels, optimizer of parameters, batch, labels), on the processor."""
    if SUITE in GPTS:
        heads, batch, length = GPTS[SUITE]
        net = gpt_models.GPT(gpt_models.read_weights(PROBLEM), heads)
        x, y = gpt_models.batch_of(net.wte.shape[0], batch, length)
        optimizer = lambda parameters: torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.01, fused=True, capturable=IS_CUDA)
        return net, lambda scores, labels: F.cross_entropy(scores.flatten(0, 1), labels), optimizer, x, y
    net, x, y = cnn_models.read_problem(SUITE, PROBLEM)
    capturable = {} if SUITE == "simple_cnn" else {"capturable": IS_CUDA}  # SGD has no such argument, nor needs it
    rate = cnn_models.NETWORKS[SUITE][2]
    return net, F.cross_entropy, lambda p: cnn_models.make_optimizer(SUITE, p, rate, fused=True, **capturable), x, y


def make_step(trainee, channels_last, options):
    first, loss_function, make_optimizer, x, y = trainee
    layout = torch.channels_last if channels_last else torch.preserve_format
    net = copy.deepcopy(first).to(DEVICE, memory_format=layout)
    x, y = x.to(DEVICE, memory_format=layout), y.to(DEVICE)
    optimizer = make_optimizer(net.parameters())
    loss_of = lambda: loss_function(net(x), y)
    if options is not None:
        loss_of = torch.compile(loss_of, **options)
    marks = options is not None and options.get("mode") == "reduce-overhead"

    def step():
        if marks:
            torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def captured(step):
    """(a replay of the whole step, the losses of steps before and of the first replay). All on one stream, warmed up there."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        losses = [float(step()) for _ in range(CHECKED - 1)]
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        loss = step()

    def replay():
        graph.replay()
        return loss

    return replay, [*losses, float(replay())]


# ---- the ways ----


class OutOfTime(BaseException):
    """Raised by the alarm, wherever the compiler is."""


def raise_out_of_time(*_):
    raise OutOfTime("not done in its time")


def attempt(name, make, until):
    """What make() returns; None when it fails, as a compiler or CUDA may, or takes longer: the reason is printed."""
    left = min(until - time.monotonic(), 1e6)
    if left <= 0:
        print(f"note {name}: no time left", flush=True)
        return None
    signal.setitimer(signal.ITIMER_REAL, left)
    try:
        return make()
    except (Exception, OutOfTime) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        print(f"note {name}: {reason[:160]}", flush=True)
        return None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def run_first(step):
    return step, [float(step()) for _ in range(CHECKED)]


def compiled(trainee):
    """name -> (step, losses) of what torch.compile made in time."""
    ways = {"compile": {}, "reduce-overhead": {"mode": "reduce-overhead"}} if IS_CUDA else {"compile": {}}
    out = {}
    for name, options in ways.items():
        begin = time.monotonic()
        made = attempt(name, lambda options=options: run_first(make_step(trainee, False, options)), UNTIL)
        if made:
            out[name] = made
            print(f"prepared {name} {time.monotonic() - begin:.1f}", flush=True)
    return out


def ways(trainee, prepared):
    """(name, a function that makes a step and the losses of the first), in the order in which they are timed."""
    yield "eager", lambda: run_first(make_step(trainee, False, None))
    if IS_CUDA:
        yield "graph", lambda: captured(make_step(trainee, False, None))
        if SUITE in cnn_models.NETWORKS and SUITE != "mnist_mlp":
            yield "graph-channels-last", lambda: captured(make_step(trainee, True, None))
    if "compile" in prepared:
        step, losses = prepared["compile"]
        yield "compile", lambda: (step, losses)
        if IS_CUDA:
            yield "compile-graph", lambda: (captured(step)[0], losses)  # trains on where compile stopped
    if "reduce-overhead" in prepared:
        yield "reduce-overhead", lambda: prepared["reduce-overhead"]


# ---- timing ----


def batch_seconds(step, count):
    synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        step()
    synchronize()
    return (time.perf_counter() - begin) / count


def measure(step):
    """(median, spread) of the seconds of a step; the spread is the distance of the quartiles over the median."""
    batch_seconds(step, 3)
    count = max(1, min(5000, int(BATCH_SECONDS / batch_seconds(step, 3))))
    end = time.monotonic() + WARM_UP_SECONDS
    while time.monotonic() < end:
        batch_seconds(step, count)
    samples, end = [], time.monotonic() + SECONDS
    while len(samples) < LEAST_SAMPLES or time.monotonic() < end:
        samples.append(batch_seconds(step, count))
    samples.sort()
    middle = samples[len(samples) // 2]
    return middle, (samples[3 * (len(samples) - 1) // 4] - samples[(len(samples) - 1) // 4]) / middle


def print_profile(step):
    """The kernels that take longest, on stderr, in microseconds a step."""
    from torch.profiler import ProfilerActivity, profile

    steps = 5
    with profile(activities=[ProfilerActivity.CUDA if IS_CUDA else ProfilerActivity.CPU]) as measured:
        batch_seconds(step, steps)
    times = {}
    for event in measured.events():
        on_device = "CUDA" in str(event.device_type)
        if on_device == IS_CUDA:
            spent = event.self_device_time_total if IS_CUDA else event.self_cpu_time_total
            times[event.name] = times.get(event.name, 0) + spent / steps
    rows = sorted(times.items(), key=lambda row: -row[1])
    total = sum(times.values()) or 1
    print(f"{total:10.2f} us, {len(rows)} kernels", file=sys.stderr)
    for name, spent in rows[:15]:
        print(f"{spent:10.2f} us {100 * spent / total:5.1f} %  {name[:120]}", file=sys.stderr, flush=True)


def time_way(name, make):
    """(seconds, step), printed; None: it failed."""
    made = attempt(name, make, time.monotonic() + WAY_SECONDS)
    if made is None:
        return None
    step, losses = made
    timing = attempt(name, lambda: measure(step), time.monotonic() + WAY_SECONDS + 3 * SECONDS)
    if timing is None:
        return None
    print(f"step {name} {timing[0]:.9g} {timing[1]:.3g}", *(f"{loss:.9g}" for loss in losses), flush=True)
    return timing[0], step


def main():
    if IS_CUDA and not torch.cuda.is_available():
        print("note PyTorch sees no device of CUDA")
        sys.exit(3)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = PRECISION == "tf32"
    if IS_CUDA:
        torch.cuda.set_device(DEVICE)
    print("name PyTorch", torch.__version__, flush=True)
    signal.signal(signal.SIGALRM, raise_out_of_time)
    trainee = read_trainee()
    prepared = compiled(trainee)
    print("ready", flush=True)
    if not sys.stdin.readline():
        return
    torch.backends.cudnn.benchmark = True
    best = None
    for name, make in ways(trainee, prepared):
        timed = time_way(name, make)
        if timed and (best is None or timed[0] < best[0]):
            best = timed
    if os.environ.get("BENCH_PROFILE") and best:
        attempt("profile", lambda: print_profile(best[1]), time.monotonic() + WAY_SECONDS)


main()
