"""Compiled functions: a training step as one call of the library.

The Python function runs between gd_trace_begin and gd_trace_end, not in a callback: its exceptions are Python's own.
"""
from __future__ import annotations

import ctypes
import functools
import warnings
import weakref

from . import _api, _convert, _lib, _ops, _tree
from ._convert import as_tensor, handles, wrap
from ._lib import C
from ._tensor import Tensor, tracing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable


class _Plan:
    """A function of the library for one form of the arguments: which tensors, which other values, which modules in training."""

    def __init__(self, owner: Function, tree: Any) -> None:
        self.tree, self.out_tree = tree, None
        self.reads: list = []  # the modules whose training flag the function has read, and what it was
        options = {**owner.options, "mode": "compiled"}  # lazily a function is traced at every call
        self.h = _ops.compile(0, 0, **options)
        self._finalizer = weakref.finalize(self, _lib.forget, (_lib.FIRST, C.gd_function_release, self.h))

    def fits(self) -> bool:
        return all(module() is not None and module()._training == flag for module, flag in self.reads)

    def trace(self, function: Callable, count: int, inputs: Any) -> bool:
        """Record the function on tensors without values. Whether its result has another form than before."""
        places = (ctypes.c_void_p * max(1, count))()
        if C.gd_trace_begin(self.h, count, inputs, places):
            _lib.fail()
        before, Function.reading = Function.reading, self.reads
        try:
            C.gd_scope_begin(_lib.context())  # what the calls of the function empty; gd_trace_end ends it
            leaves = [wrap(C.gd_retain(places[i])) for i in range(count)]
            args, kwargs = _tree.unflatten(self.tree, leaves)
            found, out_tree = _tree.flatten(function(*args, **kwargs))
            results = [as_tensor(t) for t in found] or [_ops.zeros(())]
        except BaseException:
            C.gd_trace_abandon(self.h)
            C.gd_error_clear()
            raise
        finally:
            Function.reading = before
        if C.gd_trace_end(self.h, len(results), handles(results)):
            _lib.fail()
        changed = self.out_tree is not None and not same(self.out_tree, out_tree)
        self.out_tree = out_tree
        return changed

    def call(self, function: Callable, leaves: list, every_time: bool) -> tuple[Any, bool]:
        """(the result, whether it has another form than for other shapes)"""
        count, inputs, changed = len(leaves), handles(leaves), False
        with _lib.lock:
            _lib.drain()
            if every_time or not C.gd_function_has_plan(self.h, count, inputs):
                changed = self.trace(function, count, inputs)
            h = _lib.claim(C.gd_call(self.h, count, inputs))
            if h is None:
                _lib.fail()
            results = [wrap(h)]
            for i in range(1, _tree.count(self.out_tree)):
                results.append(wrap(C.gd_retain(C.gd_function_result(self.h, i))))
        return _tree.unflatten(self.out_tree, results), changed


def same(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except Exception:  # constants whose comparison fails
        return False


class Function:
    """A compiled function, see gd.compile."""

    reading: list | None = None  # the modules whose training flag the function being recorded has read

    def __init__(self, function: Callable, options: dict) -> None:
        functools.update_wrapper(self, function)
        self.function, self.options, self.mode = function, options, options["mode"]
        self._plans: dict[Any, list[_Plan]] = {}
        self._last: _Plan | None = None
        self._by_shape = False
        self._bound: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if tracing():
            return self.function(*args, **kwargs)
        if self.mode == "eager":
            return self.function(*args, **kwargs)
        leaves, tree = _tree.flatten((args, kwargs))
        leaves = [as_tensor(leaf) for leaf in leaves]
        plan = self._find(leaves, tree)
        result, changed = plan.call(self.function, leaves, self.mode == "lazy")
        self._last = plan
        if changed and self.mode == "compiled":
            self._by_shape = True  # its form depends on the shapes: from now on a plan for each
            self._plans.clear()
        return result

    def _find(self, leaves: list, tree: Any) -> _Plan:
        key = (tree, tuple((t.shape, t.dtype.code) for t in leaves)) if self._by_shape else tree
        try:
            plans = self._plans.setdefault(key, [])
        except TypeError:
            raise TypeError(f"{self.__name__}: arguments that are no tensors are constants of the plan, and have to be hashable; "
                            "pass a tuple instead of a list of such, or gd.tensor(...)") from None
        for plan in plans:
            if plan.fits():
                return plan
        plan = _Plan(self, tree)
        plans.append(plan)
        if len(self._plans) == 9 and not self._by_shape:
            warnings.warn(f"{self.__name__} has been compiled for 9 different constants; a number that changes from call to call "
                          "is passed as gd.tensor(number)", stacklevel=3)
        return plan

    def __get__(self, instance: Any, owner: Any) -> Any:
        if instance is None:
            return self
        bound = self._bound.get(instance)
        if bound is None:
            reference = weakref.ref(instance)
            method = functools.wraps(self.function)(lambda *args, **kwargs: self.function(reference(), *args, **kwargs))
            bound = self._bound[instance] = Function(method, self.options)
        return bound

    def __reduce__(self):
        return _made_again, (self.function, self.options)

    def _called(self) -> int:
        if self._last is None:
            raise _lib.StateError(f"{self.__name__} has not been called yet")
        return self._last.h

    def plan(self) -> str:
        """The plan used last: a line for each kernel."""
        return _ops.plan_format(self._called())

    def plan_dot(self) -> str:
        """The plan used last for Graphviz."""
        return _ops.plan_format_dot(self._called())

    @property
    def stats(self) -> Any:
        """Plans, calls, kernels and memory of the plan used last."""
        return _ops.function_stats(self._called())

    def profile(self, *args: Any, runs: int = 10, **kwargs: Any) -> str:
        """Call with these arguments, `runs` times with every kernel timed (effects happen each time): a table of the kernels."""
        self(*args, **kwargs)
        leaves = [as_tensor(leaf) for leaf in _tree.flatten((args, kwargs))[0]]
        capacity = max(1, self.stats.kernels)
        rows = (_api.gd_kernel_profile * capacity)()
        count = _convert.run_value(C.gd_function_profile, self._called(), len(leaves), handles(leaves), runs, capacity, rows)
        return _convert.run_text(C.gd_profile_format, min(count, capacity), rows, _api.gd_profile_bounds())

    def save_c(self, path: str, name: str = "step") -> None:
        """Write the plan used last as one file of C99 that needs no library."""
        libc = ctypes.CDLL(None)
        libc.fopen.restype, libc.fopen.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_char_p)
        libc.fclose.argtypes = (ctypes.c_void_p,)
        file = libc.fopen(_convert.as_text(path), b"w")
        if not file:
            raise FileNotFoundError(f"{path} cannot be written")
        try:
            _convert.run_status(C.gd_export_c, self._called(), name.encode(), file)
        finally:
            libc.fclose(file)

    def __repr__(self) -> str:
        return f"<compiled {self.__name__}>"


def _made_again(function, options):
    return Function(function, options)


def compile(function: Callable | None = None, *, mode: str = "compiled", cache_limit: int | None = None,
            memory_limit: int | None = None, detached: bool = False) -> Any:
    """Make of a function on tensors one call of the library. A decorator.

        @gd.compile
        def step(x, y):
            loss = gd.cross_entropy(model(x), y)
            return optimizer.minimize(loss)

    The first call with new shapes and dtypes runs the Python function, on tensors without values, and records what it computes;
    later calls run the plan made of it. Arguments and results are trees (tuples, lists, dicts) of tensors; other arguments are
    constants, and a plan is made for each of their values. Captured tensors, parameters and the state of optimizers are read
    and written at every call. What asks for a value (if x > 0, x.item()) raises TracingError: use gd.where, or mode="lazy".
    mode="eager" just runs the function, for debugging. The results are those of mode="eager", bit for bit.
    """
    options = {"mode": mode, "detached": detached}
    if mode not in _api.ENUMS["gd_mode"]:
        raise _lib.InvalidError(f"mode {mode!r}: expected one of {', '.join(_api.ENUMS['gd_mode'])}")
    options.update({name: value for name, value in (("cache_limit", cache_limit), ("memory_limit", memory_limit))
                    if value is not None})
    return Function(function, options) if function is not None else lambda f: Function(f, options)
