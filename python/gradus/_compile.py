"""Compiled functions: a training step as one call of the library.

The Python function runs between gd_trace_begin and gd_trace_end, not in a callback: its exceptions are Python's own.
"""
from __future__ import annotations

import ctypes
import functools
import time
import warnings
import weakref

from . import _api, _context, _convert, _lib, _ops, _tree
from ._convert import as_tensor, handles, wrap
from ._lib import C, thread, tracing
from ._tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Generic, ParamSpec, TypeVar, overload

    from .data import DataLoader

    P = ParamSpec("P")
    R = TypeVar("R")

    class _Typed(Generic[P, R]):
        pass
else:
    class _Typed:  # what calls give is for type checkers alone
        def __class_getitem__(cls, types):
            return cls
    P = R = None


class _Plan:
    """A function of the library for one form of the arguments: which tensors, which other values, which modules in training."""

    def __init__(self, owner: Function, tree: Any, home: Any) -> None:
        self.tree, self.out_tree, self.home = tree, None, home
        self.results = 0  # how many tensors calls give
        self.count = 0  # how many arguments there are, where all are tensors
        self.reads: dict = {}  # by number, the modules whose training flag the function has read, and what it was
        with _context.within(home):
            self.h = _ops.compile(0, 0, **owner.options)
        _context.of_objects[self.h] = home
        self._finalizer = weakref.finalize(self, _context.forget, (_context.FIRST, C.gd_function_release, self.h, (), home))

    def fits(self) -> bool:
        return not self.reads or all(module() is not None and module()._training == flag for module, flag in self.reads.values())

    def trace(self, function: Callable[..., Any], count: int, inputs: Any) -> bool:
        """Record the function on tensors without values, within its context. Whether its result has another form than before."""
        places = (ctypes.c_void_p * max(1, count))()
        if C.gd_trace_begin(self.h, count, inputs, places):
            _lib.fail()
        before, thread.reading = thread.reading, self.reads
        thread.traces += 1
        try:
            C.gd_scope_begin(self.home.handle)  # what the calls of the function empty; gd_trace_end ends it
            leaves = [wrap(C.gd_retain(places[i])) for i in range(count)]
            args, kwargs = _tree.unflatten(self.tree, leaves)
            found, out_tree = _tree.flatten(function(*args, **kwargs))
            results = [as_tensor(t) for t in found] or [_ops.zeros(())]
        except BaseException:
            C.gd_trace_abandon(self.h)
            C.gd_error_clear()
            raise
        finally:
            thread.traces -= 1
            thread.reading = before
        if C.gd_trace_end(self.h, len(results), handles(results)):
            _lib.fail()
        changed = self.out_tree is not None and not same(self.out_tree, out_tree)
        self.out_tree, self.results = out_tree, len(results)
        return changed

    def prepare(self, owner: Function, leaves: list[Tensor], inputs: Any) -> bool:
        """See that there is a plan for these tensors. Whether its result has another form than before."""
        if owner.mode != "lazy" and C.gd_function_has_plan(self.h, len(leaves), inputs):
            return False
        changed = self.trace(owner.function, len(leaves), inputs)
        if owner.mode != "lazy":
            owner._compiled(self, leaves)
        return changed

    def call(self, owner: Function, leaves: list[Tensor]) -> tuple[Any, bool]:
        """(the result, whether it has another form than for other shapes)"""
        if owner.mode != "lazy" and self.out_tree is not None:
            results = _call(self.h, leaves, self.results)
            if results is not None:  # there was a plan
                return _tree.unflatten(self.out_tree, results), False
        count, inputs = len(leaves), handles(leaves)
        with _context.within(self.home):
            changed = self.prepare(owner, leaves, inputs)
            h = C.gd_claim(self.home.handle, C.gd_call(self.h, count, inputs))
            if h is None:
                _lib.fail()
            results = [wrap(h)]
            for i in range(1, _tree.count(self.out_tree)):
                results.append(wrap(C.gd_retain(C.gd_function_result(self.h, i))))
        return _tree.unflatten(self.out_tree, results), changed


def _call_over_ctypes(function: int, leaves: Any, results: int) -> list[Tensor] | None:
    """The results; None: not all are tensors, there is no plan for them, or a trace goes on."""
    for leaf in leaves:
        if type(leaf) is not Tensor:
            return None
    count = len(leaves)
    inputs = (ctypes.c_void_p * count)(*[leaf._h for leaf in leaves])  # ctypes keeps array types
    home = _context.only or _context.of_objects[function]
    with home.lock:
        if _context._pending or home.waiting:
            _context.drain(home)
        h = C.gd_claim_call(function, count, inputs)
        if h is None:
            if C.gd_error_code():
                _lib.fail()
            return None
        made = [wrap(h)]
        for i in range(1, results):
            made.append(wrap(C.gd_retain(C.gd_function_result(function, i))))
    return made


_call = _call_over_ctypes if _lib.fast is None else _lib.fast.call


def same(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except Exception:  # constants whose comparison fails
        return False


class Function(_Typed[P, R]):
    """A compiled function, see gd.compile."""

    function: Callable[P, R]
    options: dict[str, Any]
    mode: str

    def __init__(self, function: Callable[P, R], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.function, self.options, self.mode = function, options, options["mode"]
        self._plans: dict[Any, list[_Plan]] = {}
        self._last: _Plan | None = None
        self._by_shape = False
        self._quick: dict[Any, _Plan] = {}  # by context, the plan used last, for arguments that are tensors alone
        self._made_for: list[tuple] = []  # what plans have been made for, in their order
        self._bound: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        quick = self._quick.get(_context.only or args and type(args[0]) is Tensor and _context.home_of(args[0]._h))
        if quick is not None and not kwargs and len(args) == quick.count and quick.fits():
            results = _call(quick.h, args, quick.results)
            if results is not None:  # they are tensors, there is a plan for them, and no trace is going on
                self._last = quick
                return results[0] if quick.out_tree is _tree.LEAF else _tree.unflatten(quick.out_tree, results)
        if tracing():
            return self.function(*args, **kwargs)
        if self.mode == "eager":
            return self.function(*args, **kwargs)
        leaves, tree = _tree.flatten((args, kwargs))
        leaves = [as_tensor(leaf) for leaf in leaves]
        plan = self._find(leaves, tree)
        result, changed = plan.call(self, leaves)
        self._last = plan
        if changed and self.mode == "compiled":
            self._by_shape = True  # its form depends on the shapes: from now on a plan for each
            self._plans.clear()
        if self.mode == "compiled":
            plan.count = len(args)
            if not kwargs and not self._by_shape and args and all(type(a) is Tensor for a in args):
                self._quick[plan.home] = plan
            else:
                self._quick.pop(plan.home, None)
        return result

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Compile for arguments like these, without running anything: what a first call makes, as an optimizer's state, is there then."""
        leaves, tree = _tree.flatten((args, kwargs))
        leaves = [as_tensor(leaf) for leaf in leaves]
        plan = self._find(leaves, tree)
        with _context.within(plan.home):
            plan.prepare(self, leaves, handles(leaves))

    def _find(self, leaves: list, tree: Any) -> _Plan:
        home = _context.home_of(leaves[0]._h) if leaves else _context.home()
        key = (home, tree, tuple((t.shape, t.dtype.code) for t in leaves)) if self._by_shape else (home, tree)
        try:
            plans = self._plans.setdefault(key, [])
        except TypeError:
            raise TypeError(f"{self.__name__}: arguments that are no tensors are constants of the plan, and have to be hashable; "
                            "pass a tuple instead of a list of such, or gd.tensor(...)") from None
        for plan in plans:
            if plan.fits():
                return plan
        plan = _Plan(self, tree, home)
        plans.append(plan)
        if len(self._plans) == 9 and not self._by_shape:
            warnings.warn(f"{self.__name__} has been compiled for 9 different constants; a number that changes from call to call "
                          f"is passed as gd.tensor(number). {self.explain()}", stacklevel=3)
        return plan

    def _compiled(self, plan: _Plan, leaves: list[Tensor]) -> None:
        """A plan has been made."""
        self._made_for.append((plan.tree, [(t.shape, t.dtype, t.requires_grad) for t in leaves],
                               [(type(module()).__name__, flag) for module, flag in plan.reads.values()]))

    def explain(self) -> str:
        """Why the function has been compiled as often as it was: a line for each time, with what differs from the time before."""
        lines, before = [], None
        for i, now in enumerate(self._made_for, 1):
            shapes = ", ".join(f"{dtype} {shape}" for shape, dtype, _ in now[1]) or "no tensors"
            reason = f"{shapes}: the first call" if before is None else _difference(self.function, before, now)
            lines.append(f"{i}. {reason}")
            before = now
        return f"{self.__name__} has been compiled {len(lines)} times:\n" + "\n".join(lines)

    def run(self, loader: Any, steps: int | None = None) -> list[float]:
        """Many steps in one call of the library: what the function gives, a number as a loss is, of each of the next `steps` batches; None:
        of the rest of an epoch. Other Python threads run meanwhile, and Ctrl-C ends it after a step.

        For a gd.data.DataLoader over a data set of the library, whose batches are (x, y); with other loaders it is a loop."""
        steps = len(loader) - getattr(loader, "position", 0) if steps is None else steps
        plan = self._plan_of_batches(loader)
        if plan is None:
            return [float(self(*batch)) for _, batch in zip(range(steps), _endless(loader))]
        found: list[float] = []
        chunk = 1
        while len(found) < steps:
            begun = time.perf_counter()
            found += self._run(plan, loader, min(chunk, steps - len(found)))
            if time.perf_counter() - begun < 0.05:  # Ctrl-C is seen between chunks
                chunk *= 2
        return found

    def _plan_of_batches(self, loader: Any) -> _Plan | None:
        """The plan for all batches of a loader, full ones and a smaller last one, if the library can bring both together."""
        if self.mode != "compiled" or not hasattr(loader, "library_batches") or tracing():
            return None
        plans = set()
        for batch in loader.library_batches():
            leaves, tree = _tree.flatten((batch, {}))
            plan = self._find(leaves, tree)
            with _context.within(plan.home):
                plan.prepare(self, leaves, handles(leaves))
            plans.add(plan if plan.out_tree is _tree.LEAF else None)
        return plans.pop() if len(plans) == 1 else None

    def _run(self, plan: _Plan, loader: DataLoader, steps: int) -> list[float]:
        results = (ctypes.c_double * steps)()
        with _context.within(plan.home):
            done = C.gd_function_run(plan.h, loader.library_loader(), steps, results)
            loader.advance(done)
            self._last = plan
            if done < steps:
                _lib.fail()
        return results[:]

    def __get__(self, instance: Any, owner: Any) -> Any:
        if instance is None:
            return self
        bound = self._bound.get(instance)
        if bound is None:
            reference = weakref.ref(instance)
            method = functools.wraps(self.function)(lambda *args, **kwargs: self.function(reference(), *args, **kwargs))
            method._drops_self = 1
            bound = self._bound[instance] = Function(method, self.options)
        return bound

    def __reduce__(self) -> tuple[Any, ...]:
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

    def _profiled(self, args: tuple, kwargs: dict, runs: int) -> Any:
        self(*args, **kwargs)
        leaves = [as_tensor(leaf) for leaf in _tree.flatten((args, kwargs))[0]]
        rows = (_api.gd_kernel_profile * max(1, self.stats.kernels))()
        count = _convert.run_value(C.gd_function_profile, self._called(), len(leaves), handles(leaves), runs, len(rows), rows)
        return rows, min(count, len(rows))

    def profile(self, *args: Any, runs: int = 10, trace: Any = None, **kwargs: Any) -> str:
        """Call with these arguments, `runs` times with every kernel timed (effects happen each time): a table of the kernels. trace: the
        path of a file to write besides, for chrome://tracing or ui.perfetto.dev."""
        rows, count = self._profiled(args, kwargs, runs)
        if trace is not None:
            with open(trace, "w", encoding="utf-8") as file:
                file.write(_convert.run_text(C.gd_profile_format_trace, count, rows))
        return _convert.run_text(C.gd_profile_format, count, rows, _api.gd_profile_bounds())

    def kernels(self, *args: Any, runs: int = 10, **kwargs: Any) -> list[dict[str, Any]]:
        """The kernels that profile() tells of, in their order: op, what (dtype, shape and place of the result), seconds, start, flops
        and bytes of each."""
        rows, count = self._profiled(args, kwargs, runs)
        return [{"op": row.op.decode(), "what": row.what.decode(), "seconds": row.seconds, "start": row.start, "flops": row.flops,
                 "bytes": row.bytes} for row in rows[:count]]

    def save_c(self, path: Any, name: str = "step") -> None:
        """Write the plan used last as one file of C99 that needs no library. On an error an old file stands."""
        _ops.export_c_path(self._called(), name, path)

    def __repr__(self) -> str:
        return f"<compiled {self.__name__}>"


def _endless(loader: Any) -> Any:
    """The batches that come, over the ends of epochs."""
    if hasattr(loader, "endless"):
        yield from loader.endless()
    while True:
        yield from loader


def _made_again(function: Callable[..., Any], options: dict[str, Any]) -> Function[..., Any]:
    return Function(function, options)


def _difference(function: Callable[..., Any], before: tuple, now: tuple) -> str:
    """What a plan was made for, against the one before."""
    if not same(before[0], now[0]):
        constants = [_describe(function, path, a, b) for path, a, b in _tree.differences(before[0], now[0])]
        return "constants differ: " + "; ".join(constants)
    for path, (shape, dtype, requires), (shape_now, dtype_now, requires_now) in zip(_tree.paths(now[0]), before[1], now[1]):
        name = named(function, path)
        if (shape, dtype) != (shape_now, dtype_now):
            return f"{name} is {dtype_now} {shape_now}, was {dtype} {shape}"
        if requires != requires_now:
            return f"{name} {'requires a gradient now' if requires_now else 'requires no gradient any more'}"
    for (kind, flag), (kind_now, flag_now) in zip(before[2], now[2]):
        if (kind, flag) != (kind_now, flag_now):
            return f"{kind_now} is {'in training' if flag_now else 'in use'} now"
    return "the layout of an argument, gd.no_grad() or another setting differs, or the plan had made room for others (cache_limit)"


def _describe(function: Callable[..., Any], path: tuple, before: Any, now: Any) -> str:
    return f"{named(function, path)} is {now}, was {before}"


def named(function: Callable[..., Any], path: tuple) -> str:
    """The argument at a path of the tree (args, kwargs), as it is called in the function: "batch['x']"."""
    if len(path) < 2:
        return "the arguments"
    kind, first, *rest = path
    names = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    place = first + getattr(function, "_drops_self", 0) if kind == 0 else 0
    if kind == 0 and names is not None and place < names.co_argcount:
        first = names.co_varnames[place]
    elif kind == 0:
        first = f"argument {place + 1}"
    return f"{first}" + "".join(f"[{key!r}]" for key in rest)


if TYPE_CHECKING:
    @overload
    def compile(function: Callable[P, R]) -> Function[P, R]: ...

    @overload
    def compile(function: Callable[P, R], *, mode: str = "compiled", cache_limit: int | None = None, memory_limit: int | None = None,
                detached: bool = False, frozen: bool = False) -> Function[P, R]: ...

    @overload
    def compile(*, mode: str = "compiled", cache_limit: int | None = None, memory_limit: int | None = None,
                detached: bool = False, frozen: bool = False) -> Callable[[Callable[P, R]], Function[P, R]]: ...


def compile(function: Any = None, *, mode: str = "compiled", cache_limit: int | None = None,
            memory_limit: int | None = None, detached: bool = False, frozen: bool = False) -> Any:
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

    frozen=True is for inference: captured tensors that the function does not assign to stay as they are, and weights of matrix
    products are packed once, where that is faster. Ops in place, optimizers and loading are noticed, and weights packed anew;
    NOT noticed is what NumPy or others write into a tensor's memory, by its address or DLPack.
    """
    options = {"mode": mode, "detached": detached, "frozen": frozen}
    if mode not in _api.ENUMS["gd_mode"]:
        raise _lib.InvalidError(f"mode {mode!r}: expected one of {', '.join(_api.ENUMS['gd_mode'])}")
    options.update({name: value for name, value in (("cache_limit", cache_limit), ("memory_limit", memory_limit))
                    if value is not None})
    return Function(function, options) if function is not None else lambda f: Function(f, options)
