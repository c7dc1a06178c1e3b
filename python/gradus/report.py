"""What is told of a training run. RunLog writes into a run's folder what is known of each step, as JSON lines, CSV, TensorBoard's event
files and Prometheus' text format; History reads such a folder. Chart draws curves, histograms, confusion matrices, ROC and
precision-recall curves as SVG and as text."""
from __future__ import annotations

import ctypes

from ._convert import as_handle, run_value
from ._lib import C
from ._objects import Chart, History, RunLog

__all__ = ["Chart", "History", "RunLog", "metrics", "options"]


def metrics(run: History) -> dict[str, tuple[list[float], list[float], list[float]]]:
    """{name: (steps, times, values)}; times are seconds since the run began."""
    def read(function: str, index: int, count: int) -> list[float]:
        return list((ctypes.c_double * count).from_address(run_value(getattr(C, function), as_handle(run), index)))
    found = {}
    for index in range(run.metric_count()):
        count = run.metric_points(index)
        found[run.metric_name(index) or ""] = (read("gd_history_metric_steps", index, count), read("gd_history_metric_times", index, count),
                                               read("gd_history_metric_values", index, count))
    return found


def options(run: History) -> dict[str, str]:
    """{path: text} of the run's config.json, {"optimizer.lr": "0.001"}."""
    names = [run.option_name(index) or "" for index in range(run.option_count())]
    return {name: run.option(name) or "" for name in names}
