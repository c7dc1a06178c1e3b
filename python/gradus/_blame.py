"""gd.fit(blame=True): what made a loss NaN or infinite. The step is put back and done again op by op."""
from __future__ import annotations

import ctypes
import linecache
import math
import sys
import tempfile

from . import _context, _ops
from ._autograd import no_grad
from ._convert import wrap
from ._lib import C
from ._run import Run
from ._tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ._fit import Fit

STEPS = 32  # from one copy of what they change to the next


class Blame:
    """A copy of all that steps change, and what the steps since were given, so that they can be done again."""

    def __init__(self, fit: Fit) -> None:
        self.fit = fit
        self.first = 0  # the steps before the copy
        self.since: list[tuple[float, list[Any]]] = []  # learning rate and batches of each step
        self.folder = tempfile.TemporaryDirectory(prefix="gradus-blame-")
        self.run = Run(self.folder.name, asynchronous=False)

    def close(self) -> None:
        self.run.close()
        self.folder.cleanup()

    def before(self, batches: list[Any]) -> None:
        """Before a step."""
        fit = self.fit
        if not self.since:
            fit.make_state(batches)
        if not self.since or len(self.since) == STEPS:
            fit.read()  # so that what is kept is finite
            self.run.save(fit.optimizer, model=fit.buffered, ema=fit.ema)
            self.first, self.since = fit.steps, []
        self.since.append((fit.optimizer.lr, batches))

    def tell(self, step: int, part: int) -> str:
        """What made the loss of batch `part` of that step so. All is then as before the step, but for the loader's place."""
        steps, batches = self.since[:step - 1 - self.first], self.since[step - 1 - self.first][1]
        self._again(steps)
        for batch in batches[:part]:
            self.fit.run_step.loss_of(batch)
        why = self._search(batches[part])
        self._again(steps)
        return why

    def _again(self, steps: list[tuple[float, list[Any]]]) -> None:
        fit = self.fit
        self.run.load(fit.optimizer, model=fit.buffered, ema=fit.ema)
        fit.optimizer.zero_grad()
        for lr, batches in steps:
            fit.optimizer.lr = lr
            fit.run_step(batches)

    def _search(self, batch: Any) -> str:
        model = self.fit.model
        names = {p._h: name for name, p in model.named_parameters()} if hasattr(model, "named_parameters") else {}
        for name, parameter in model.named_parameters() if names else ():
            if _bad(parameter):
                return f"{name} was not finite before it: the step before went too far, or its gradient was not finite"
        for i, t in enumerate(batch):
            if isinstance(t, Tensor) and _bad(t):
                return f"tensor {i} of the batch is not finite"
        lines = _Lines()
        loss = lines.watch(self.fit.run_step.loss_of, batch)
        return (_first_op(loss, names) or "done again op by op, it is finite") + lines.found


# ---- values

def _look(t: Tensor) -> tuple[float, float, float]:
    """The least and the largest finite number, and the first that is not finite (0: none)."""
    if not t.dtype.is_float or not t.size:
        return math.inf, -math.inf, 0.0
    with no_grad():
        t = t.detach()
        finite = _ops.isfinite(t)
        if finite.all().item():
            return t.min().item(), t.max().item(), 0.0
        numbers, bad = t[finite], t[~finite]
        return (*((numbers.min().item(), numbers.max().item()) if numbers.size else (math.inf, -math.inf)), bad[0].item())


def _bad(t: Tensor) -> bool:
    return _look(t)[2] != 0.0


# ---- ops

def _order(loss: Tensor) -> list[Tensor]:
    """The graph behind it, inputs first."""
    with _context.within(_context.home_of(loss._h)):
        count = C.gd_graph_order(loss._h, None, 0)
        handles = (ctypes.c_void_p * count)()
        C.gd_graph_order(loss._h, handles, count)
        return [wrap(C.gd_retain(h)) for h in handles]


def _first_op(loss: Tensor, names: dict[int, str]) -> str:
    """'"log" of [50, 10] makes nan of numbers in 0 … 1, behind fc1.weight', the parameter that was read last before."""
    behind = ""
    for t in _order(loss):
        behind = names.get(t._h, behind)
        bad, op = _look(t)[2], _ops.tensor_op(t)
        if bad != 0.0 and op:
            read = [_look(_ops.tensor_input(t, i)) for i in range(_ops.tensor_input_count(t))]
            told = " and ".join(f"numbers in {least:.6g} … {largest:.6g}" for least, largest, _ in read if least <= largest)
            return (f'"{op}" of {list(t.shape)} makes {bad}{" of " if told else ""}{told}'
                    f'{", behind " if behind else ""}{behind}')
        if bad != 0.0:
            return f"it is in a tensor {list(t.shape)} that no op with a history made"
    return ""


# ---- lines of Python

class _Lines:
    """Finds the first line, outside of this package, that a tensor which is not finite came from."""

    def __init__(self) -> None:
        self.found = ""
        self.seen: dict[int, Tensor] = {}

    def watch(self, function: Callable[..., Tensor], *arguments: Any) -> Tensor:
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            return function(*arguments)
        finally:
            sys.settrace(before)

    def _enter(self, frame: Any, event: str, argument: Any) -> Any:
        if self.found or frame.f_globals.get("__name__", "").partition(".")[0] == "gradus":
            return None
        last = frame.f_lineno

        def follow(frame: Any, event: str, argument: Any) -> Any:
            nonlocal last
            if not self.found and event in ("line", "return"):
                self._look_at([*frame.f_locals.values(), argument], frame.f_code, last)
            last = frame.f_lineno
            return follow
        return follow

    def _look_at(self, values: list[Any], code: Any, line: int) -> None:
        for t in values:
            if isinstance(t, Tensor) and t._h not in self.seen:
                self.seen[t._h] = t
                if _bad(t):
                    text = linecache.getline(code.co_filename, line).strip()
                    self.found = f'\n  File "{code.co_filename}", line {line}, in {code.co_name}' + (f"\n    {text}" if text else "")
                    return


__all__ = ["Blame"]
