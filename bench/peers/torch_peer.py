"""What the peers in PyTorch share, so that each has its fastest setting.

    import torch_peer                      before torch: sets what PyTorch reads when it starts; exits with 3 where there is no PyTorch
    torch_peer.start(threads)
    way = torch_peer.fastest(ways, ...)    the fastest of several ways to do the same

Settings for all of it: huge pages for tensors (THP_MEM_ALLOC_ENABLE; Gradus asks for them too), and a malloc that keeps what is freed
(problem.keep_memory()). The memory of a step is measured in a process of its own, with neither.
"""
import importlib
import os
import sys
import time

import problem
from problem import ONLY_MEMORY, QUICK

if not ONLY_MEMORY:
    os.environ["THP_MEM_ALLOC_ENABLE"] = "1"
try:
    import torch
except ImportError:
    sys.exit(3)

# Options of torch.compile.
COMPILE_WAYS = {"default": {}, "max-autotune": {"mode": "max-autotune-no-cudagraphs"}, "cpp_wrapper": {"options": {"cpp_wrapper": True}}}
INFERENCE_WAYS = {
    "default": {}, "max-autotune, freezing": {"options": {"max_autotune": True, "freezing": True}},
    "cpp_wrapper, freezing": {"options": {"cpp_wrapper": True, "freezing": True}}}


def start(threads, compiles=False):
    """Before any tensor. `compiles`: torch.compile's modules are loaded too, so that they count as libraries."""
    problem.use_processors(threads)
    torch.set_num_threads(threads)
    if compiles:
        importlib.import_module("torch._dynamo")
        importlib.import_module("torch._inductor.compile_fx")
    if ONLY_MEMORY:
        touch_libraries()
    else:
        problem.keep_memory()
    problem.libraries_loaded()


def touch_libraries():
    """A step of the smallest networks, so that the pages of the libraries which a step needs count as libraries."""
    x = torch.ones(2, 2, 8, 8, requires_grad=True)
    parts = [torch.nn.Conv2d(2, 2, 3), torch.nn.Linear(6, 4), torch.nn.LayerNorm(4), torch.nn.LSTM(4, 4)]
    y = parts[2](parts[1](torch.relu(parts[0](x)))).flatten(0, 1)
    y = torch.nn.functional.scaled_dot_product_attention(y, y, y) + parts[3](y)[0]
    torch.nn.functional.cross_entropy(y.flatten(0, 1), torch.zeros(24, dtype=torch.int64)).backward()
    torch.optim.AdamW([p for part in parts for p in part.parameters()], fused=True).step()


def precision(mode):
    """("eager" or "compile", a context for the forward pass): that of autocast for a mode that ends with "-bf16"."""
    half = mode.endswith("-bf16")
    return mode.removesuffix("-bf16"), lambda: torch.autocast("cpu", torch.bfloat16, enabled=half)


def version():
    return torch.__version__.split("+")[0]


def compile_ways(inference=False, small=False):
    """The ways of torch.compile that this run tries. `small`: work whose calls from Python count. A quick run tries two at most."""
    ways = INFERENCE_WAYS if inference else COMPILE_WAYS
    if QUICK:
        quick = ["default", "max-autotune, freezing"] if inference else ["default", "cpp_wrapper"] if small else ["default"]
        ways = {name: ways[name] for name in quick}
    return ways


def fastest(ways, time_of, mode):
    """`ways`: name -> function that makes what time_of() takes. time_of(made): a tuple that begins with seconds and spread.
    Returns (name, that tuple, made) of the fastest; None when all failed, as torch.compile does without a C++ compiler."""
    best = None
    for name, make in ways.items():
        try:
            begin = time.perf_counter()
            made = make()
            timed = time_of(made)
        except Exception as error:
            print(f"note PyTorch {mode}, {name}: {(str(error).strip().splitlines() or [type(error).__name__])[0][:200]}", flush=True)
            continue
        print(f"note PyTorch {mode}, {name}: {timed[0] * 1e3:.4g} ms; {time.perf_counter() - begin:.0f} s with compiling", flush=True)
        if best is None or timed[0] < best[1][0]:
            best = name, timed, made
    return best


def run_training(mode, ways, checked, chunk, seconds):
    """The fastest of several ways to train: its losses, seconds a step, and the memory of the first way, printed."""
    def time_of(step):
        losses = [float(step()) for _ in range(checked)]
        return (*problem.median_seconds(step, lambda: None, chunk, seconds), losses)

    if ONLY_MEMORY:
        step = next(iter(ways.values()))()
        for _ in range(checked):
            step()
        problem.print_memory()
        return
    best = fastest(ways, time_of, mode)
    if best is None:
        sys.exit(3)
    name, (spent, spread, losses), step = best
    print(f"how {name}\nspread {spread:.4g}\nstep {mode} {spent:.9g} {problem.numbers(losses)}", flush=True)
    if not QUICK or torch.get_num_threads() > 1:
        problem.print_memory_of_a_child()
    problem.await_turns(problem.chunk_of(step, lambda: None, chunk))
