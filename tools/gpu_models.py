"""Part `models` of tools/gpu-check: training steps of whole networks on a device, ours beside PyTorch's on the same one.

    gpu_models.run(check, suites, ways, seconds, profile_peers)

Sides are processes: ours (bench/cnn.c, bench/gpt.c with BENCH_DEVICE) in each class of numbers and as one kernel, and one of PyTorch
for each network with TF32 off and on (bench/peers/device_torch.py), which has several ways. What takes long, starting and compiling, is
done by many of them at a time (Side.prepare); then each waits, and they are timed one after another (Side.take_turn), the sides of a network
next to each other. All losses of the first steps are compared. Nothing waits without a limit. Start at run().
"""
import collections
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Networks: our program in the build, and whether a way as one kernel is tried.
Network = collections.namedtuple("Network", "program small")
NETWORKS = {
    "gpt2_124m": Network("bench/bench_gpt2_124m", False), "char_gpt": Network("bench/bench_char_gpt", False),
    "cats_dogs": Network("bench/bench_cats_dogs", False), "lenet": Network("bench/bench_lenet", True),
    "simple_cnn": Network("bench/bench_simple_cnn", True), "mnist_mlp": Network("bench/devices/device_mnist_mlp", True)}
TARGETS = tuple(network.program.rsplit("/", 1)[1] for network in NETWORKS.values())

# Our ways: settings, and PyTorch's precision of the same class.
OURS = {
    "exact": ({"GRADUS_NUMBERS": "exact", "GRADUS_ONE_KERNEL": "never"}, "f32"),
    "one-kernel": ({"GRADUS_NUMBERS": "exact", "GRADUS_ONE_KERNEL": "always"}, "f32"),
    "library": ({"GRADUS_NUMBERS": "library", "GRADUS_ONE_KERNEL": "never"}, "f32"),
    "tf32": ({"GRADUS_NUMBERS": "tf32", "GRADUS_ONE_KERNEL": "never"}, "tf32")}
TOLERANCE = {"f32": 1e-3, "tf32": 1e-2}  # of losses
LATE = ("not prepared in its time", "not timed in its time")
NOT_WRONG = (*LATE, "cuBLASLt cannot be loaded", "cuDNN cannot be loaded")
GRACE = 10  # seconds that a side may overrun what it was told
KERNELS = 15  # of a profile
PROFILE_LINE = re.compile(r" *([\d.]+) us (.* GB/s)  (.*)")  # of gd_bench_print_profile()


class Side:
    """A process that prepares itself, prints "ready", waits for a line, and then prints what it measured. Its files are NAME.log and
    NAME.err in the folder of results."""

    def __init__(self, name, command, out, **settings):
        self.name, self.command, self.out, self.settings = name, [str(word) for word in command], out, settings
        self.process, self.lines, self.is_ready = None, [], threading.Event()
        self.trouble = ""

    def start(self):
        self.out.mkdir(parents=True, exist_ok=True)
        with (self.out / f"{self.name}.err").open("w") as errors:
            try:
                self.process = subprocess.Popen(
                    self.command, cwd=ROOT, env={**os.environ, **self.settings}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                    text=True, start_new_session=True)
            except OSError as error:
                self.trouble = str(error)
                self.is_ready.set()
                return
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        with (self.out / f"{self.name}.log").open("w") as log:
            for line in self.process.stdout:
                log.write(line)
                log.flush()
                self.lines.append(line.split())
                if line.startswith("ready"):
                    self.is_ready.set()
        self.is_ready.set()  # or it ended

    def prepare(self, deadline):
        """Until it is ready, or has ended."""
        self.start()
        if not self.is_ready.wait(max(1.0, deadline - time.monotonic())):
            self.end(LATE[0])

    def take_turn(self, limit):
        """Until it ends."""
        if self.process is None:
            return
        try:
            self.process.stdin.write("go\n")
            self.process.stdin.close()
        except OSError:
            pass  # it has ended, which wait() tells
        try:
            status = self.process.wait(limit)
            self.reader.join(GRACE)
            if status and not self.trouble:
                self.trouble = self.last_words(status)
        except subprocess.TimeoutExpired:
            self.end(LATE[1])

    def end(self, trouble=""):
        self.trouble = self.trouble or trouble
        if self.process is not None and self.process.poll() is None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process.wait()

    def last_words(self, status):
        """Why it ended: its last note where there is no PyTorch (status 3), else the last line of what it said on stderr."""
        notes = [" ".join(words) for words in self.of_kind("note")] if status == 3 else []
        lines = (self.out / f"{self.name}.err").read_text(errors="replace").strip().splitlines()
        return (notes or lines or [f"exit status {status}"])[-1][:160]

    def of_kind(self, kind):
        return [words[1:] for words in self.lines if words[:1] == [kind]]


Timing = collections.namedtuple("Timing", "seconds spread losses")


def timings(side):
    """way -> Timing of the lines of a side: "step WAY SECONDS SPREAD LOSSES" of PyTorch, "spread X" and "step ours SECONDS LOSSES" of ours."""
    out = {}
    spread = next((float(words[0]) for words in side.of_kind("spread")), None)
    for words in side.of_kind("step"):
        numbers = [float(word) for word in words[1:]]
        out[words[0]] = Timing(numbers[0], spread, numbers[1:]) if words[0] == "ours" else Timing(numbers[0], numbers[1], numbers[2:])
    return out


def difference(a, b):
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


# ---- the sides of a run ----


class Models:
    def __init__(self, check, suites, ways, seconds, prepare_seconds, profile_peers):
        self.check, self.built, self.suites, self.ways, self.seconds = check, check.built, suites, ways, seconds
        self.device, self.out = check.device, check.out / "models"
        self.begin = time.monotonic()
        self.deadline = self.begin + prepare_seconds
        self.profile_peers = profile_peers
        self.problems = pathlib.Path(tempfile.mkdtemp(prefix="gpu-models-"))
        self.python = os.environ.get("BENCH_PEERS_PYTHON", sys.executable)
        self.sides, self.wrong, self.results = {}, 0, {}

    def write_problems(self):
        writers = [Side(f"{suite}-problem", [self.built / NETWORKS[suite].program, "--problem", self.problems / suite], self.out,
                        BENCH_SOURCE=str(ROOT), BENCH_DEVICE="") for suite in self.suites]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.take_turn(60)
            if writer.trouble:
                self.complain(f"{writer.name}: {writer.trouble}")

    def ours(self, suite, way, **settings):
        words = ["2"] if "gpt" not in suite else []
        return Side(f"{suite}-{way}", [self.built / NETWORKS[suite].program, "--compiled", *words, self.problems / suite], self.out,
                    BENCH_SOURCE=str(ROOT), **settings)

    def make_sides(self):
        profile = {"BENCH_PROFILE": "1"}
        for suite in self.suites:
            for precision in ("f32", "tf32"):
                self.sides[suite, "torch", precision] = Side(
                    f"{suite}-torch-{precision}", [
                        self.python, ROOT / "bench/peers/device_torch.py", suite, precision, self.problems / suite,
                        self.device if self.device.startswith("cuda") else "cpu", self.deadline, self.seconds], self.out,
                    TORCHINDUCTOR_COMPILE_THREADS="2", **(profile if self.profile_peers else {}))
        for suite in self.suites:
            for way, (settings, _) in OURS.items():
                if way in self.ways and (way != "one-kernel" or NETWORKS[suite].small):
                    self.sides[suite, "ours", way] = self.ours(suite, way, BENCH_DEVICE=self.device, BENCH_SECONDS=str(self.seconds), BENCH_WAIT="1",
                                                               **settings, **profile)
            self.sides[suite, "ours", "cpu"] = self.ours(suite, "cpu", BENCH_DEVICE="", BENCH_SECONDS="0", GRADUS_NUMBERS="exact")

    def prepare(self):
        """PyTorch's compilers on three quarters of the processors, ours on the others. PyTorch's sides know their time themselves, and get
        some grace."""
        processors = len(os.sched_getaffinity(0))
        workers = []
        for kind, count in (("torch", 3 * processors // 4), ("ours", processors // 4)):
            waiting = collections.deque(side for key, side in self.sides.items() if key[1] == kind)
            workers += [threading.Thread(target=self.prepare_all, args=(waiting,), daemon=True) for _ in range(max(1, count))]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def prepare_all(self, waiting):
        while True:
            try:
                side = waiting.popleft()
            except IndexError:
                return
            side.prepare(self.deadline + GRACE)

    def take_turns(self):
        for suite in self.suites:
            for (of, kind, way), side in self.sides.items():
                if of == suite:
                    ways = 1 if kind == "ours" else 6
                    side.take_turn(min(self.check.left(), ways * (4 * self.seconds + 4) + GRACE))

    # ---- what they say ----

    def complain(self, text):
        self.wrong += 1
        print(f"WRONG: {text}", flush=True)

    def losses(self, suite, way, mine, cpu, peers):
        """A word about the losses of our side."""
        if way in ("exact", "one-kernel"):
            if cpu is None:
                return "no CPU's"
            if mine.losses != cpu.losses:
                self.complain(f"{suite} {way}: losses {mine.losses} are not the CPU's {cpu.losses}")
                return "OTHER BITS than the CPU"
            word = "CPU's bits"
        else:
            word = "no CPU's"
            if cpu is not None:
                word = f"{difference(mine.losses, cpu.losses):.0e} from CPU"
        precision = OURS[way][1]
        for name, peer in peers.items():
            if not difference(mine.losses, peer.losses) <= TOLERANCE[precision]:
                self.complain(f"{suite} {way}: losses {mine.losses}, PyTorch's {name} {peer.losses}")
                return word + ", NOT PyTorch's"
        return word

    def report_suite(self, suite):
        peers = {precision: timings(self.sides[suite, "torch", precision]) for precision in ("f32", "tf32")}
        best = {precision: min(((timing.seconds, way) for way, timing in ways.items()), default=None) for precision, ways in peers.items()}
        cpu = timings(self.sides[suite, "ours", "cpu"]).get("ours")
        if cpu is None and self.sides[suite, "ours", "cpu"].trouble not in LATE:
            self.complain(f"{suite} cpu: {self.sides[suite, 'ours', 'cpu'].trouble}")
        rows = self.results[suite] = {}
        text = []
        for way, (_, precision) in OURS.items():
            side = self.sides.get((suite, "ours", way))
            if side is None:
                continue
            mine = timings(side).get("ours")
            if mine is None:
                if not any(word in side.trouble for word in NOT_WRONG):
                    self.complain(f"{suite} {way}: {side.trouble}")
                rows[way] = {"not run": side.trouble}
                text.append(f"{suite:10} {way:10} not run: {side.trouble}")
                continue
            ratio = best[precision][0] / mine.seconds if best[precision] else None
            word = self.losses(suite, way, mine, cpu, peers[precision])
            rows[way] = {"seconds": mine.seconds, "spread": mine.spread, "losses": mine.losses, "ratio": ratio, "against": best[precision], "compared": word}
            beside = f"{ratio:5.2f} x PyTorch {precision}" if ratio else f"no PyTorch {precision}"
            text.append(f"{suite:10} {way:10} {microseconds(mine.seconds)} {1 / mine.seconds:9.1f}/s  {beside}  {word}"
                        + ("" if mine.spread < 0.1 else f"  spread {mine.spread:.0%}"))
            self.write_profile(suite, way, side)
        for precision, ways in peers.items():
            side = self.sides[suite, "torch", precision]
            notes = [" ".join(words) for words in side.of_kind("note")]
            rows[f"torch {precision}"] = {
                "ways": {way: timing._asdict() for way, timing in ways.items()}, "not run": notes + ([side.trouble] if side.trouble and side.trouble not in notes else []),
                "prepared": {words[0]: float(words[1]) for words in side.of_kind("prepared")}, "version": " ".join(sum(side.of_kind("name"), []))}
            told = " ".join(f"{way}{'*' if best[precision][1] == way else ''} {microseconds(timing.seconds).strip()}" for way, timing in ways.items())
            text.append(f"{suite:10} torch-{precision:4} {told}" + "".join(f"; {note[:70]}" for note in rows[f"torch {precision}"]["not run"]))
        return text

    def write_profile(self, suite, way, side):
        """The kernels of our step that take longest, of the lines of gd_bench_print_profile()."""
        lines = (self.out / f"{side.name}.err").read_text(errors="replace").splitlines()
        rows = [(float(match[1]), match[2], match[3]) for match in (PROFILE_LINE.match(line) for line in lines) if match]
        if not rows:
            return
        times = [spent for spent, _, _ in rows]
        base, total = min(times), sum(times)
        above = (total - base * len(rows)) or 1
        kinds = collections.Counter()
        for spent, _, what in rows:
            kinds[what.split("  ")[0]] += spent - base
        with (self.out / f"profile-{suite}-{way}.txt").open("w") as file:
            print(f"{suite} {way} on {self.device}: {len(rows)} kernels, each launched alone and waited for: {total:.1f} us together.\n"
                  f"The shortest, {base:.2f} us, is taken for what a launch and a wait cost; shares are of the time above it, {above:.1f} us.\n", file=file)
            for spent, rates, what in sorted(rows, reverse=True)[:KERNELS]:
                print(f"{spent - base:10.2f} us {100 * (spent - base) / above:5.1f} %  {rates}  {what}", file=file)
            print("\nBy op:", file=file)
            for op, spent in kinds.most_common(KERNELS):
                print(f"{spent:10.2f} us {100 * spent / above:5.1f} %  {op}", file=file)

    def clean(self):
        for side in self.sides.values():
            side.end()
        for file in self.problems.iterdir():
            file.unlink()
        self.problems.rmdir()


def microseconds(seconds):
    return f"{seconds * 1e6:9.1f} us" if seconds < 1e-2 else f"{seconds * 1e3:9.2f} ms"


def run(check, suites, ways, seconds, profile_peers):
    """All of it; results in check.results["models"], a table on stdout and in models/table.txt. About 60 % of the time left is for
    preparing."""
    models = Models(check, suites, ways, seconds, check.left(0.6), profile_peers)
    try:
        models.write_problems()
        models.make_sides()
        models.prepare()
        prepared = time.monotonic() - models.begin
        models.take_turns()
        text = [line for suite in suites for line in models.report_suite(suite)]
    finally:
        models.clean()
    text.append(f"models: {prepared:.0f} s to prepare, {time.monotonic() - models.begin - prepared:.0f} s of turns. Above 1 x ours is faster; * PyTorch's fastest")
    check.results["models"] = models.results
    check.wrong += models.wrong
    (models.out / "table.txt").write_text("\n".join(text) + "\n")
    print("\n".join(text), flush=True)
