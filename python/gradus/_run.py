"""gd.Run: a folder that a training is saved in, and goes on from, bit for bit."""
from __future__ import annotations

import ctypes
import json

from . import _api, _convert, _objects
from ._convert import run_status
from ._lib import C, StateError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._optimizer import Optimizer
    from .data import DataLoader
    from .nn import Module
    from .optim import EMA, Plateau

KEYS = ("loader", "state")  # of the strings in a file


class Run:
    """A folder one process trains in. save() writes parameters, buffers, the optimizer, the stream of random numbers, the place in a
    loader, and a state of your own (what JSON can say) to checkpoints/last.safetensors; load() goes on from there:

        with gd.Run("runs/1") as run:
            state = run.load(optimizer, loader=loader) or {"epoch": 0}
            ...
            run.save(optimizer, loader=loader, state={"epoch": epoch})

    A thread writes, so save() costs a copy; its error is that of the next save(), or of close(). It leaves `interval` seconds between
    one write and the next: of what is saved meanwhile the last and the best are written then, or by wait() and close(). Another process
    that opens the folder gets StateError. A damaged last checkpoint is passed over for the one before it."""

    def __init__(self, folder: Any, asynchronous: bool = True, interval: float = 1.0) -> None:
        options = _convert.options_of(_api.gd_run_options)
        options.asynchronous, options.interval = asynchronous, interval
        self._run: int | None = _convert.run_value(C.gd_run_open_with, _convert.as_text(folder), _convert.byref(options))

    @property
    def folder(self) -> str:
        return C.gd_run_folder(self._open()).decode()

    def _open(self) -> int:
        if not self._run:
            raise StateError("the run is closed")
        return self._run

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def close(self) -> None:
        """Wait for what is being written, and let go of the folder."""
        run, self._run = self._run, None
        if run:
            run_status(C.gd_run_close, run)

    def __del__(self) -> None:
        run, self._run = getattr(self, "_run", None), None
        if run:
            C.gd_run_close(run)

    def save(self, optimizer: Optimizer, *, model: Module | None = None, loader: DataLoader | None = None, ema: EMA | None = None,
             plateau: Plateau | None = None, best: bool = False, state: Any = None) -> None:
        """Save as the last checkpoint; best: as the best, too. model: whose buffers are saved, where the optimizer was given parameters."""
        strings = {"state": json.dumps(state)}
        if loader is not None:
            strings["loader"] = json.dumps(loader.state_dict())
        with _Training(optimizer, model, ema, plateau, strings) as training:
            run_status(C.gd_run_save, self._open(), training, best)

    def has_checkpoint(self) -> bool:
        """Whether there is one to go on from; one that is being written counts when it is done."""
        return bool(C.gd_run_has_checkpoint(self._open()))

    def wait(self) -> None:
        """Have all that was saved written, and tell of errors."""
        run_status(C.gd_run_wait, self._open())

    def load(self, optimizer: Optimizer, *, model: Module | None = None, loader: DataLoader | None = None, ema: EMA | None = None,
             plateau: Plateau | None = None) -> Any:
        """Go on from the last checkpoint, with the objects made as those that were saved (a model's parameters are there: call it once
        if its layers make theirs by the first input). Gives the state; None: there is no checkpoint yet."""
        if not self.has_checkpoint():
            return None
        path = ctypes.c_char_p()
        with _Training(optimizer, model, ema, plateau, {}) as training:
            run_status(C.gd_run_load, self._open(), training, _convert.byref(path))
        file = _objects.TensorFile.open((path.value or b"").decode())
        loaded, state = file.metadata(KEYS[0]), file.metadata(KEYS[1])
        file.close()
        if loader is not None and loaded:
            loader.load_state_dict(json.loads(loaded))
        return json.loads(state or "null")


class _Training:
    """A gd_training, as long as the library reads it."""

    def __init__(self, optimizer: Optimizer, model: Module | None, ema: EMA | None, plateau: Plateau | None,
                 strings: dict[str, str]) -> None:
        handle = optimizer.handle
        if not C.gd_module_count(optimizer._adopted.update().handle):
            raise StateError("the model has no parameters yet; call it once before")
        model = optimizer.model if model is None else model
        buffers = dict(model.named_buffers()) if model is not None else {}
        self.kept: list[Any] = [optimizer, ema, plateau, buffers]
        t = self.training = _convert.options_of(_api.gd_training)
        t.optimizer = handle
        if ema is not None:
            t.ema = ema._ema.handle
        if plateau is not None:
            t.plateau = ctypes.addressof(plateau._plateau)
        self.tensors = (_api.gd_named_tensor * max(1, len(buffers)))()
        for entry, (name, tensor) in zip(self.tensors, buffers.items()):
            entry.name, entry.tensor = self._text(name), tensor._h
        self.strings = (_api.gd_metadata * max(1, len(strings)))()
        for entry, (key, value) in zip(self.strings, strings.items()):
            entry.key, entry.value = self._text(key), self._text(value)
        t.tensor_count, t.tensors = len(buffers), ctypes.addressof(self.tensors)
        t.metadata_count, t.metadata = len(strings), ctypes.addressof(self.strings)

    def _text(self, text: str) -> bytes:
        self.kept.append(text.encode())
        return self.kept[-1]

    def __enter__(self) -> Any:
        return _convert.byref(self.training)

    def __exit__(self, *error: Any) -> None:
        pass
