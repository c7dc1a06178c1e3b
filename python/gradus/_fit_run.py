"""The run folder of gd.fit: config.json, model.json, metrics.jsonl, checkpoints, pictures and model.safetensors, as `gradus train` makes
them."""
from __future__ import annotations

import json
import os
import time

from . import _api, _convert, _io, _lib
from ._autograd import no_grad
from ._fit import make_parameters
from ._lib import C
from ._objects import Chart, History, RunLog
from ._run import Run
from .data import Dataset

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._fit import Fit

LOG_SECONDS = 10.0


class FitRun:
    """What is kept of a training in a folder."""

    def __init__(self, run: Any, fit: Fit, resume: bool, epochs: int, checkpoint_seconds: float, checkpoint_steps: int | None) -> None:
        if not hasattr(fit.loader, "load_state_dict"):
            raise _lib.InvalidError("run=: the loader is no gd.data.DataLoader, and does not say where it stands")
        self.fit, self.seconds, self.each = fit, checkpoint_seconds, checkpoint_steps
        self.own, self.data = not isinstance(run, Run), self._data()
        self.run = Run(run) if self.own else run
        try:
            self.log = self._begin(resume, epochs)
        except BaseException:
            self.close()
            raise
        self.saved = self.logged = time.monotonic()

    def close(self) -> None:
        if self.own:
            self.run.close()

    # ---- the beginning

    def _begin(self, resume: bool, epochs: int) -> RunLog:
        folder, there = self.run.folder, self.run.has_checkpoint()
        if there and not resume:
            raise _lib.StateError(f"{folder} has a training in it: resume=True goes on with it, another run= begins anew")
        if there:
            self._restore()
        logged = os.path.exists(self._path("metrics.jsonl"))
        if logged and not there and not resume:
            raise _lib.StateError(f"{folder} has a log in it: resume=True begins it anew, another run= leaves it alone")
        log = RunLog.open(folder, resume_step=self.fit.steps if logged else -1)
        if not os.path.exists(self._path("config.json")):
            self._write_config(epochs)
        return log

    def _path(self, name: str) -> str:
        return os.path.join(self.run.folder, name)

    def _metadata(self) -> dict[str, str]:
        return getattr(getattr(self.fit.loader, "dataset", None), "metadata", {})

    def _data(self) -> dict[str, str]:
        """What a checkpoint keeps of the data, so that it goes on with no others. What a data set in Python has, nobody knows."""
        samples = getattr(self.fit.loader, "dataset", None)
        return {**self._metadata(), **({"contents": f"{samples.fingerprint():016x}"} if isinstance(samples, Dataset) else {})}

    def _restore(self) -> None:
        fit = self.fit
        if hasattr(fit.model, "named_parameters"):
            make_parameters(self.fit.model, self.fit.loader.first())
        place = fit.loader.state_dict()
        state = self.run.load(fit.optimizer, model=fit.buffered, loader=fit.loader, ema=fit.ema, plateau=fit.plateau)
        if not isinstance(state, dict) or "fit" not in state:
            fit.loader.load_state_dict(place)
            raise _lib.StateError(f"{self.run.folder}: its training was not begun by gd.fit, which cannot go on with it")
        if state["data"] != self.data:
            raise _lib.StateError("the data has changed since the run began: begin another run")
        fit.restore(state["fit"])

    def _write_config(self, epochs: int) -> None:
        """What it was begun with, under `gradus train`'s names: for `gradus compare`, and for `gradus eval`, which finds the data so."""
        fit, to_json, loader = self.fit, getattr(self.fit.model, "to_json", None), self.fit.loader
        options = {"program": "gd.fit", "epochs": epochs,
                   "batch": getattr(loader, "batch_size", None), "seed": getattr(loader, "seed", None),
                   "optimizer": {"name": type(fit.optimizer).__name__.lower(), "lr": fit.optimizer.lr}}
        options.update(getattr(getattr(loader, "dataset", None), "origin", {}))
        if to_json is not None:
            self._write("model.json", to_json())
        self._write("config.json", json.dumps({name: value for name, value in options.items() if value is not None}, indent=4) + "\n")

    def _write(self, name: str, text: str) -> None:
        """A whole file or none, whatever ends the process."""
        block = text.encode()
        _convert.run_status(C.gd_file_write, _convert.as_text(self._path(name)), block, len(block))

    # ---- as it goes on

    def after_step(self) -> None:
        now, fit = time.monotonic(), self.fit
        if now - self.logged >= LOG_SECONDS:
            fit.read()
            self._tell({"loss": fit.loss, "lr": fit.optimizer.lr}, len(fit.records) + 1)
        if now - self.saved >= self.seconds or self.each and fit.steps % self.each == 0:
            self._save(False)

    def after_epoch(self, record: dict[str, Any], improved: bool) -> None:
        self._tell(record, record["epoch"])
        self._save(improved)

    def _tell(self, record: dict[str, Any], epoch: int) -> None:
        names = {name: "lr" if name == "lr" else "train/loss" if name == "loss" else name.replace("validation_", "validation/", 1)
                 for name in record if name != "epoch"}
        self.log.scalars(self.fit.steps, epoch, list(names.values()), [record[name] for name in names])
        self.logged = time.monotonic()

    def _save(self, best: bool) -> None:
        fit = self.fit
        state = {"fit": fit.state(), "data": self.data}
        self.run.save(fit.optimizer, model=fit.buffered, loader=fit.loader, ema=fit.ema, plateau=fit.plateau, best=best, state=state)
        self.saved = time.monotonic()

    # ---- the end

    def finish(self, interrupted: bool) -> None:
        if interrupted:
            self._save(False)
        self.run.wait()
        best = self._path("checkpoints/best.safetensors")
        if os.path.exists(best):
            self._take(best)
        elif self.fit.ema is not None:
            self.fit.ema.swap()
        self._write_model()
        self._draw()

    def _take(self, path: str) -> None:
        """Parameters, or the averages where there are any, and buffers of a checkpoint."""
        found, model = _io.load(path), self.fit.model
        own = list(model.named_parameters()) + list(model.named_buffers()) if hasattr(model, "named_parameters") else []
        for name, tensor in own:
            value = found.get(f"checkpoint/average/{name}") if self.fit.ema is not None else None
            value = found.get(name) if value is None else value
            if value is None:  # a buffer of a Python module stands among what is not the library's
                value = next((t for key, t in found.items() if key.endswith(f"tensors/{name}")), None)
            if value is not None:
                with no_grad():
                    tensor.detach().copy_(value)

    def _write_model(self) -> None:
        """With what is known of the data: of an nn.Model layers, too, so that the tool takes it."""
        model, path, metadata = self.fit.model, self._path("model.safetensors"), self._metadata()
        if hasattr(model, "to_json"):
            kept = [(key.encode(), value.encode()) for key, value in metadata.items()]
            training = _convert.options_of(_api.gd_training)
            strings = (_api.gd_metadata * max(1, len(kept)))(*kept)
            training.model, training.metadata_count, training.metadata = model._model.handle, len(kept), _convert.ctypes.addressof(strings)
            _convert.run_status(C.gd_training_save, _convert.byref(training), _convert.as_text(path))
        elif hasattr(model, "state_dict"):
            _io.save(path, model.state_dict(), metadata)

    def _draw(self) -> None:
        """The losses of the whole log."""
        from .report import metrics
        history = History.load(self.run.folder)
        chart = Chart.create(title=os.path.basename(self.run.folder.rstrip("/")), x_label="step")
        drawn = 0
        for name, (steps, _, values) in metrics(history).items():
            if name != "lr":
                chart.line(name, steps, values, dashed=not name.endswith("/loss"))
                drawn += 1
        if drawn:
            os.makedirs(self._path("pictures"), exist_ok=True)
            chart.save(self._path("pictures/curves.svg"))


__all__ = ["FitRun"]
