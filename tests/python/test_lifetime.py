"""Ownership, threads, processes, shutdown."""
import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

import gradus as gd
from conftest import environment


def python(code, **options):
    return subprocess.run([sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, timeout=120,
                          env=environment(), **options)


def test_cycles_are_collected():
    class Node:
        pass
    before = gd.memory().live_tensors
    for _ in range(10):
        node = Node()
        node.self, node.t = node, gd.ones(10) + 1
    del node
    gc.collect()
    assert gd.memory().live_tensors == before


def test_threads_share_the_context():
    step = gd.compile(lambda x: (x @ x).sum())
    expected = step(gd.ones((40, 40))).item()
    errors = []

    def work():
        try:
            for i in range(60):
                assert (gd.full(5, float(i)) + 1 * gd.ones(5)).tolist() == [i + 1.0] * 5
                assert step(gd.ones((40, 40))).item() == expected
        except BaseException as error:
            errors.append(error)
    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not errors


def test_tensors_may_go_on_another_thread():
    box = [gd.ones(1000) for _ in range(50)]
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()


@pytest.mark.parametrize("code", [
    "import gradus as gd; x = gd.ones(3); y = (x * 2).requires_grad",
    "import gradus as gd, builtins, sys; builtins.t = gd.ones(3); sys.modules['t'] = gd.ones(2)",
    "import gradus as gd\nclass C: pass\nc = C(); c.c = c; c.t = gd.ones(3)\nf = gd.compile(lambda x: x + c.t); f(c.t)",
    "import gradus as gd, threading, time\ndef work():\n  while True: gd.ones(10) + 1\n"
    "threading.Thread(target=work, daemon=True).start(); time.sleep(0.2)",
    "import gradus as gd\nm = gd.nn.Linear(2, 3); o = gd.optim.Adam(m); w = gd.ones(2).requires_grad_(); l = (w * w).sum(); l.backward()"])
def test_shutdown_is_quiet(code):
    run = python(code)
    assert run.returncode == 0 and run.stderr == "", run.stderr


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes(method, tmp_path):
    script = tmp_path / "pool.py"
    script.write_text(f"""
import multiprocessing
import gradus as gd

def square(t):
    return (t @ t).sum()

if __name__ == "__main__":
    x = gd.ones((50, 50)); x @ x
    with multiprocessing.get_context({method!r}).Pool(2) as pool:
        print([t.item() for t in pool.map(square, [x * i for i in range(4)])])
""")
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, env=environment())
    assert run.stdout == "[0.0, 125000.0, 500000.0, 1125000.0]\n", run.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_does_not_wait_for_a_thread_that_stayed_behind():
    run = python("""
import os, threading, time
import gradus as gd
gd.ones(2) + 1
held = threading.Event()
def hold():
    with gd._context.home().lock:
        held.set()
        time.sleep(5)
threading.Thread(target=hold, daemon=True).start()
held.wait()
pid = os.fork()
if pid == 0:
    os._exit(int((gd.ones(2) + 1).sum().item()))
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
os._exit(0)
""".replace("print(os", "import sys; sys.stdout.write(str(os").replace("[1]))\nos", "[1]))); sys.stdout.flush()\nos"))
    assert run.stdout == "4", run.stderr


def test_import_brings_neither_numpy_nor_much_else():
    run = python("import sys; before = set(sys.modules); import gradus as gd; print(gd.ones(2) + 1)\n"
                 "print([m for m in ('numpy', 'typing', 'dataclasses', 'inspect', 'tempfile', 'linecache', 'json', 're', 'pathlib') "
                 "if m in sys.modules and m not in before])")
    assert "Tensor([2. 2.]" in run.stdout, run.stderr
    assert not any(name in run.stdout for name in ("numpy", "inspect", "dataclasses", "tempfile", "linecache")), run.stdout


def test_in_place_and_views_own_what_they_show():
    x = gd.ones(6)
    view = x.reshape(2, 3)[1]
    del x
    gd.zeros(6) + 1
    assert view.tolist() == [1, 1, 1]


def test_objects_end_before_what_they_were_made_from():
    for _ in range(3):
        optimizer = gd.optim.Adam(gd.nn.Linear(4, 3))
        optimizer.minimize(optimizer.model(gd.ones((2, 4))).sum())
        model = gd._objects.LanguageModel.create(vocabulary=7, max_length=8, layers=1, heads=2, width=8)
        generator = gd._objects.Generator.create(model)
        del optimizer, model, generator
        gc.collect()
    assert gd.memory().live_tensors >= 0


def test_what_was_made_from_another_ends_before_it():
    ended = []

    class Owner(gd._context.Object):
        __slots__ = ()
        _end = "owner"

    class Ends:
        owner = ended.append
    owner = Owner._made(1, ())
    user = Owner._made(2, (owner,))
    Owner.__del__(owner, _C=Ends)  # as the collector may do with a cycle: in any order
    Owner.__del__(user, _C=Ends)
    owner._h = user._h = 0
    with gd._context.within(gd._context.home()):
        pass
    assert ended == [2, 1]


def test_what_an_import_takes_is_told(pytestconfig):
    run = python("import os, resource, time\n"
                 "def resident(): return int(open('/proc/self/statm').read().split()[1]) * resource.getpagesize() / 1e6\n"
                 "before, start = resident(), time.process_time()\n"
                 "import gradus as gd\nimported = time.process_time() - start\ngd.ones(2) + 1\n"
                 "print(imported * 1e3, resident() - before)")
    if run.returncode:
        pytest.skip("no /proc: " + run.stderr.splitlines()[-1])
    milliseconds, megabytes = map(float, run.stdout.split())
    pytestconfig.told = [f"import gradus: {milliseconds:.0f} ms of processor time, {megabytes:.1f} MB resident with the first tensor"]
    assert 0 < megabytes < 100  # not a limit on time: a context that takes a hundred megabytes would be a mistake


@pytest.mark.parametrize("kind", ["fit", "run", "step"])
def test_ctrl_c_from_outside(kind, tmp_path):
    """SIGINT of the operating system, at any moment: KeyboardInterrupt, or an end in order, and a library that goes on."""
    script = tmp_path / "train.py"
    script.write_text(f"""
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell begins in the background ignores it
import gradus as gd
from gradus import data, nn, optim
gd.seed(1)
x, y = gd.randn(4000, 30), gd.randint(0, 3, 4000)
model = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 3))
adam = optim.Adam(model)
step = gd.compile(lambda x, y: adam.minimize(gd.cross_entropy(model(x), y)))
loader = data.DataLoader(data.from_arrays(x, y), batch_size=50)
step(x, y)
print("begun", flush=True)
try:
    if {kind!r} == "fit":
        records = gd.fit(model, adam, loader, 10 ** 6, progress=False)
        assert records[-1]["interrupted"]
    elif {kind!r} == "run":
        step.run(loader, 10 ** 9)
    else:
        while True:
            step(x, y)
except KeyboardInterrupt:
    assert {kind!r} != "fit"
assert step(x, y).item() > 0 and (gd.ones(2) + 1).tolist() == [2, 2]
print("ended in order")
""")
    process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    assert process.stdout.readline() == "begun\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    try:
        out, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert out == "ended in order\n", errors


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize("version, gil, locks", [((3, 12), True, False), ((3, 10), True, True), ((3, 13), False, True)])
def test_ops_go_without_a_lock_only_where_no_thread_can_come_between(version, gil, locks):
    """Python 3.9 and 3.10 switch threads between two of any instructions: looking whether a lock is held and calling then is no one step."""
    run = python(f"""
import os, sys, threading, ctypes
sys.version_info = {version}
sys._is_gil_enabled = lambda: {gil}
os.environ["GRADUS_PYTHON"] = "ctypes"
import gradus as gd
from gradus import _context
def locks():
    gd.ones(2) + 1
    return bool(_context.held)
said = [locks()]
if os.fork() == 0:
    os._exit(int(locks()))
print([*said, bool(os.waitstatus_to_exitcode(os.wait()[1]))])
""")
    assert run.stdout == f"[{locks}, {locks}]\n", run.stderr


def test_another_python_is_told():
    run = python("import ctypes; del ctypes.PyDLL; import gradus")
    assert "ImportError: gradus is for CPython, and this is" in run.stderr


def test_an_exception_in_a_trace_leaves_nothing_open():
    def wrong(x):
        y = gd.relu(x @ x)
        raise ZeroDivisionError(y.shape)
    for _ in range(20):
        with pytest.raises(ZeroDivisionError):
            gd.compile(wrong)(gd.ones((3, 3)))
    assert gd.compile(lambda x: x * 2)(gd.ones(2)).tolist() == [2, 2]
    errors = []

    def work():  # while another thread traces
        try:
            for _ in range(30):
                with pytest.raises(ZeroDivisionError):
                    gd.compile(wrong)(gd.ones((3, 3)))
        except BaseException as error:
            errors.append(error)
    threads = [threading.Thread(target=work) for _ in range(3)]
    [t.start() for t in threads]
    for _ in range(60):
        assert (gd.ones(3) + 1).tolist() == [2] * 3
    [t.join() for t in threads]
    assert not errors


def test_a_library_of_a_newer_system_is_told(tmp_path):
    """One that asks for a glibc that is not there, made with a stand-in for it."""
    if not shutil.which("gcc") or sys.platform != "linux":
        pytest.skip("no gcc")
    (tmp_path / "stub.c").write_text("int of_tomorrow(void) { return 0; }")
    (tmp_path / "map").write_text("GLIBC_9.87 { of_tomorrow; };")
    (tmp_path / "use.c").write_text("int of_tomorrow(void); int use(void) { return of_tomorrow(); }")
    for words in (["-Wl,-soname,libc.so.6", "-Wl,--version-script=map", "-o", "stub.so", "stub.c"], ["-o", "future.so", "use.c", "stub.so"]):
        subprocess.run(["gcc", "-shared", "-fPIC", "-nostdlib", *words], cwd=tmp_path, check=True)
    run = subprocess.run([sys.executable, "-c", "import gradus"], capture_output=True, text=True, timeout=60,
                         env={**environment(), "GRADUS_LIBRARY": str(tmp_path / "future.so")})
    assert "ImportError: libgradus cannot be loaded" in run.stderr and "built for glibc 9.87 or newer, and this system has " in run.stderr, run.stderr
    assert "another C library" in gd._lib._reason("Error loading shared library ld-linux-x86-64.so.2: No such file or directory")
    assert gd._lib._reason("no such file") == ""
