"""Ownership, threads, processes, shutdown."""
import gc
import os
import subprocess
import sys
import threading

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
    with gd._lib.lock:
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
                 "print([m for m in ('numpy', 'typing', 'dataclasses', 'inspect', 'json', 're', 'pathlib') "
                 "if m in sys.modules and m not in before])")
    assert "Tensor([2. 2.]" in run.stdout, run.stderr
    assert "numpy" not in run.stdout and "inspect" not in run.stdout and "dataclasses" not in run.stdout, run.stdout


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

    class Owner(gd._lib.Object):
        __slots__ = ()
        _end = "owner"

    class Ends:
        owner = ended.append
    owner = Owner._made(1, ())
    user = Owner._made(2, (owner,))
    Owner.__del__(owner, _C=Ends)  # as the collector may do with a cycle: in any order
    Owner.__del__(user, _C=Ends)
    owner._h = user._h = 0
    with gd._lib.lock:
        gd._lib.drain()
    assert ended == [2, 1]
