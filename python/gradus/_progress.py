"""A line of progress for gd.fit, in a terminal or a notebook."""
from __future__ import annotations

import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO


def in_notebook() -> bool:
    """Whether a notebook's kernel runs this code; that its packages are imported does not say so."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


class Progress:
    """One line that is written over: epoch, share, loss, speed."""

    def __init__(self, steps: int, epochs: int, out: TextIO | None = None, interval: float = 0.1) -> None:
        self.steps, self.epochs, self.interval = max(1, steps), epochs, interval
        self.out = sys.stderr if out is None else out
        self.live = self.out.isatty() or in_notebook()
        self.shown = 0.0

    def begin(self, epoch: int) -> None:
        self.epoch, self.started = epoch, time.perf_counter()

    def due(self) -> bool:
        """Whether it is time to show again: reading a loss waits for the step."""
        return self.live and time.perf_counter() - self.shown >= self.interval

    def show(self, step: int, values: str) -> None:
        self.shown = time.perf_counter()
        done = int(20 * step / self.steps)
        rate = step / max(1e-9, self.shown - self.started)
        self.out.write(f"\repoch {self.epoch}/{self.epochs} [{'=' * done}{' ' * (20 - done)}] {step}/{self.steps}  {values}  "
                       f"{rate:.0f} steps/s  ")
        self.out.flush()

    def end(self, values: str) -> None:
        seconds = time.perf_counter() - self.started
        over, rest = ("\r", " " * 30) if self.live else ("", "")
        self.out.write(f"{over}epoch {self.epoch}/{self.epochs}  {values}  {seconds:.1f} s{rest}\n")
        self.out.flush()
