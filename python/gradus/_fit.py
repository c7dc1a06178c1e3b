"""gd.fit: a training loop, which may have a run folder. A loop of one's own around gd.compile is as fast."""
from __future__ import annotations

import math
import signal
import threading

from . import _context, _lib, _ops
from ._autograd import no_grad
from ._compile import compile
from ._precision import autocast
from ._progress import Progress
from ._tensor import Tensor, as_tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

    from ._blame import Blame
    from ._dtype import DType
    from ._run import Run
    from .optim import EMA, Plateau

RISING = ("accuracy", "precision", "recall", "f1", "auc", "r2")  # more of these is better


def _classify(output: Tensor, y: Tensor) -> Tensor:
    """The loss unless another is given. Of a single class it is 0, and nothing would be learnt, in silence."""
    if output.shape[-1:] == (1,):
        raise ValueError("the model gives one number for a sample, of which cross entropy is always 0: give another loss, loss=gd.mse")
    return _ops.cross_entropy(output, y)


def _loss_of(model: Any, loss: Callable[[Any, Tensor], Tensor] | None) -> Callable[[Any, Tensor], Tensor]:
    from .nn._model import Model
    return loss or (model.loss if isinstance(model, Model) and model._model.loss_count() else _classify)


def _place_of(model: Any, optimizer: Any = None) -> _context.Home:
    """The context that an optimizer was made in, or that of a model's parameters."""
    if hasattr(optimizer, "_optimizer"):
        return optimizer._optimizer._home
    first = next(iter(model.parameters()), None) if hasattr(model, "parameters") else None
    return _context.home() if first is None else _context.home_of(first._h)


def _brought(loader: Any, place: _context.Home) -> Iterator[Any]:
    """The batches, in a context: copies, where they are of another."""
    for batch in loader:
        yield [_context.moved(t, place) if isinstance(t, Tensor) else t for t in batch]


class _Scores:
    """Means over the samples of a loader's epoch, by one function that is compiled once."""

    def __init__(self, model: Any, functions: dict[str, Callable[[Any, Tensor], Tensor]], precision: DType | str | None = None) -> None:
        self.model, self.names = model, list(functions)

        @compile(detached=True)
        @autocast(precision)
        def score(*batch):
            output = model(*batch[:-1])
            return [function(output, batch[-1]) for function in functions.values()]
        self.score = score

    def __call__(self, loader: Any) -> dict[str, float]:
        """Of a loader that says where it stands, of the first epoch; it stands there afterwards."""
        place = loader.state_dict() if hasattr(loader, "load_state_dict") else None
        flags = _flags(self.model)
        if flags:
            self.model.train(False)
        sums, samples = [0.0] * len(self.names), 0
        try:
            if place is not None:
                loader.load_state_dict({**place, "epoch": 0, "position": 0})
            for batch in _brought(loader, _place_of(self.model)):
                size = len(batch[-1])
                sums = [s + value.item() * size for s, value in zip(sums, self.score(*batch))]
                samples += size
        finally:
            for module, training in flags:
                module.__dict__["_training"] = training
            if place is not None:
                loader.load_state_dict(place)
        return {name: s / max(1, samples) for name, s in zip(self.names, sums)}


def _flags(model: Any) -> list[tuple[Any, bool]]:
    """The training flag of the model and of all modules in it: some may be frozen. None where it is a plain function."""
    return [(module, module._training) for module in model.modules()] if hasattr(model, "modules") else []


def _loader_of(samples: Any) -> Any:
    """A data set as a loader of large batches, or the loader itself."""
    from .data import DataLoader, Dataset
    return DataLoader(samples, batch_size=500) if isinstance(samples, Dataset) else samples


def evaluate(model: Callable[..., Any], loader: Any, loss: Callable[[Any, Tensor], Tensor] | None = None,
             metrics: dict[str, Callable[[Any, Tensor], Tensor]] | None = None) -> dict[str, float]:
    """Means over all samples of a data set, or of an epoch of a loader: {"loss": …, and each metric}. The model is not in training
    meanwhile. loss: as of gd.fit."""
    return _Scores(model, {"loss": _loss_of(model, loss), **(metrics or {})})(_loader_of(loader))


class _Interrupts:
    """Within it the first Ctrl-C is noted, so that a step is not left in its midst; the second is KeyboardInterrupt, as before."""

    def __enter__(self) -> _Interrupts:
        self.asked = False
        self.before = None
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self.before = signal.signal(signal.SIGINT, self._note)
        return self

    def _note(self, *what: Any) -> None:
        self.asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def __exit__(self, *what: Any) -> None:
        if self.before is not None:
            signal.signal(signal.SIGINT, self.before)


class Steps:
    """The compiled functions of a training: steps(batches) is one update, of the mean loss over all samples of the batches."""

    def __init__(self, model: Any, optimizer: Any, objective: Callable[[Any, Tensor], Tensor], accumulate: int, ema: EMA | None,
                 precision: DType | str | None = None) -> None:
        self.accumulate = accumulate
        self.precision = autocast(precision).dtype
        if self.precision == "float16" and not optimizer._scales_losses:
            optimizer.scale_losses()

        @autocast(precision)
        def loss_of(batch: Any) -> Tensor:
            return objective(model(*batch[:-1]), batch[-1])

        def follow() -> None:
            if ema is not None:
                ema.update()

        @compile
        def step(*batch):
            loss = optimizer.minimize(loss_of(batch))
            follow()
            return loss

        @compile
        def part(share, *batch):
            loss = loss_of(batch)
            optimizer.scale_loss(loss * share).backward()
            return loss

        @compile
        def update(share):
            optimizer.step()
            optimizer.zero_grad()
            follow()
            return share + 0.0
        self._step, self._part, self._update, self.loss_of = step, part, update, loss_of

    def prepare(self, batches: list[Any]) -> None:
        """Make what the optimizer keeps of parameters, before the first step."""
        if self.accumulate == 1:
            self._step.prepare(*batches[0])
        else:
            self._part.prepare(as_tensor(1.0), *batches[0])
            self._update.prepare(as_tensor(0.0))

    def __call__(self, batches: list[Any]) -> list[tuple[Tensor, int]]:
        """The loss and the samples of each batch."""
        sizes = [len(batch[-1]) for batch in batches]
        if self.accumulate == 1:
            return [(self._step(*batches[0]), sizes[0])]
        losses = [self._part(as_tensor(size / sum(sizes)), *batch) for size, batch in zip(sizes, batches)]
        self._update(as_tensor(0.0))
        return list(zip(losses, sizes))

    def groups(self, loader: Any) -> Iterator[list[Any]]:
        """The batches of an epoch, so many together as make an update."""
        group = []
        for batch in _brought(loader, _context.home()):
            group.append(batch)
            if len(group) == self.accumulate:
                yield group
                group = []
        if group:
            yield group


def make_parameters(model: Any, batch: Any) -> None:
    """Those that layers make by their first input."""
    flags = _flags(model)
    model.train(False)
    try:
        with no_grad():
            model(*batch[:-1])
    finally:
        for module, training in flags:
            module.__dict__["_training"] = training


class Fit:
    """A training as it goes on: what is saved of it is state()."""

    def __init__(self, model: Any, optimizer: Any, loader: Any, steps: Steps, ema: EMA | None, plateau: Plateau | None) -> None:
        self.model, self.optimizer, self.loader, self.run_step, self.ema, self.plateau = model, optimizer, loader, steps, ema, plateau
        self.batches = len(loader)
        self.updates = -(-self.batches // steps.accumulate)  # of an epoch
        self.records: list[dict[str, Any]] = []  # of whole epochs
        self.steps, self.done = 0, 0  # in all, and in this epoch
        self.sums, self.samples = 0.0, 0  # of this epoch
        self.pending: list[tuple[int, int, Tensor, int]] = []  # steps and their batches, of which losses have not been read
        self.blame: Blame | None = None
        self.best, self.since_best = math.nan, 0  # of the monitored metric; epochs without an improvement

    SAVED = ("records", "steps", "done", "sums", "samples", "best", "since_best")

    def state(self) -> dict[str, Any]:
        self.read()
        return {"batches": self.batches, "accumulate": self.run_step.accumulate, "precision": self.run_step.precision.name,
                **{name: getattr(self, name) for name in self.SAVED}}

    def restore(self, state: dict[str, Any]) -> None:
        if state["batches"] != self.batches:
            raise _lib.StateError(f"the run's epochs have {state['batches']} batches, the loader's {self.batches}: "
                                  "it goes on with the same data")
        if state["accumulate"] != self.run_step.accumulate:
            raise _lib.StateError(f"the run was begun with accumulate={state['accumulate']}, and goes on with the same")
        if state.get("precision", "float32") != self.run_step.precision.name:
            raise _lib.StateError(f"the run was begun with precision={state.get('precision', 'float32')}, and goes on with the same")
        for name in self.SAVED:
            setattr(self, name, state[name])

    def read(self) -> None:
        """Losses of steps that are over."""
        pending, self.pending = self.pending, []
        for step, part, value, size in pending:
            loss = value.item()
            if not math.isfinite(loss):
                told = f"the loss is {loss} in epoch {len(self.records) + 1}, at step {step}"
                raise _lib.StateError(f"{told}: {self.blame.tell(step, part)}" if self.blame is not None else
                                      f"{told}; gd.fit(blame=True) finds the op that made it so. A smaller learning rate, clipped "
                                      "gradients (optimizer.clip_norm), or other data may help")
            self.sums, self.samples = self.sums + loss * size, self.samples + size

    @property
    def loss(self) -> float:
        return self.sums / max(1, self.samples)

    @property
    def buffered(self) -> Any:
        """The model, if it has buffers, which are saved with the optimizer's parameters."""
        return self.model if hasattr(self.model, "named_buffers") else None

    def make_state(self, batches: list[Any]) -> None:
        """What the first step would make: parameters of layers that take their sizes from it, and what the optimizer keeps of each."""
        if hasattr(self.model, "named_parameters"):
            make_parameters(self.model, batches[0])
        self.run_step.prepare(batches)

    def epoch(self, schedule: Callable[[int], float] | None, shown: Progress | None, after: Callable[[], bool]) -> bool:
        """The steps that the epoch has left. after() is called after each but the last, and ends it by False: then False is returned."""
        for group in self.run_step.groups(self.loader):
            if schedule is not None:
                self.optimizer.lr = schedule(self.steps)
            if self.blame is not None:
                self.blame.before(group)
            losses = self.run_step(group)
            self.steps, self.done = self.steps + 1, self.done + 1
            self.pending += [(self.steps, part, loss, size) for part, (loss, size) in enumerate(losses)]
            if len(self.pending) >= 64 or shown is not None and shown.due():
                self.read()
                if shown is not None and shown.live:
                    shown.show(self.done, f"loss {self.loss:.4f}")
            if self.done < self.updates and not after():
                self.read()
                return False
        self.read()
        return True

    def measure(self, score: _Scores, samples: Any) -> dict[str, float]:
        """Of the averages, where there are any."""
        if self.ema is None:
            return score(samples)
        self.ema.swap()
        try:
            return score(samples)
        finally:
            self.ema.swap()

    def judge(self, value: float, rising: bool, least: float) -> bool:
        """Whether the monitored metric has improved."""
        improved = not math.isnan(value) and (math.isnan(self.best) or (value - self.best if rising else self.best - value) > least)
        self.best, self.since_best = (value, 0) if improved else (self.best, self.since_best + 1)
        return improved

    def end_epoch(self, record: dict[str, Any]) -> None:
        self.records.append(record)
        self.done, self.sums, self.samples = 0, 0.0, 0


def fit(model: Callable[..., Any], optimizer: Any, loader: Any, epochs: int = 1, *, validation: Any = None,
        loss: Callable[[Any, Tensor], Tensor] | None = None, metrics: dict[str, Callable[[Any, Tensor], Tensor]] | None = None,
        schedule: Callable[[int], float] | None = None, plateau: Plateau | None = None, accumulate: int = 1, ema: EMA | None = None,
        precision: DType | str | None = None, blame: bool = False, monitor: str = "loss", rising: bool | None = None,
        patience: int | None = None, min_improvement: float = 0.0, run: str | Run | Any = None, resume: bool = False,
        checkpoint_seconds: float = 60.0, checkpoint_steps: int | None = None,
        callback: Callable[[dict[str, Any]], bool | None] | None = None, progress: bool = True) -> list[dict[str, Any]]:
    """Train: for each batch (x, y) of the loader loss(model(x), y) is minimised in one compiled call. Of batches of more tensors the last
    is the target, the others are the model's inputs. loss: gd.cross_entropy unless given; of an nn.Model that names its losses these.
    Gives a list with a dict for each epoch: epoch, loss, lr, and where there is a `validation` data set or loader, validation_loss and
    the metrics of it, validation_accuracy.

    schedule(step) gives the learning rate of a step, as optim.cosine(1e-3, steps, warmup=100) does; plateau, an optim.Plateau, lowers it
    after an epoch whose monitored metric, of the training loss without a validation, has stopped improving. Gradients are clipped by the
    optimizer (optimizer.clip_norm). accumulate: so many batches make a step, as one batch of all their samples would. ema, an optim.EMA of
    the model, is updated after each step, and validation is of its averages. precision, gd.bfloat16 or gd.float16: the model and its
    loss are computed within gd.autocast, with float16 the loss is scaled. callback(record) is called after each epoch; training ends
    when it returns False.
    patience: training ends after so many epochs in which the monitored metric of the validation has not improved by more than
    min_improvement; rising: more of it is better, known of accuracy and the like.

    A loss that is not finite is a StateError, which tells the step. blame: and the op, what numbers it was given, and the line of your
    code: the step is put back and done again op by op, for which a copy of parameters and optimizer is taken at each 32nd step, into
    the folder for temporary files, and the batches since are kept. Parameters and optimizer are then as they were before the step.

    Ctrl-C ends training after the step: the records so far are given back, the last one with interrupted=True; a second one ends it at
    once.

    Each batch is brought to the context, and so to the device, that the optimizer was made in: model.to("opencl:0") before it moves a
    model.

    run: a folder for all that comes of it, as `gradus train` makes it: checkpoints after each epoch, each checkpoint_seconds and
    each checkpoint_steps steps, the log, curves, and in the end model.safetensors: the parameters as they were best on the validation,
    else the last ones, or their averages with ema, which the model then has, too. Of an nn.Model `gradus predict`, `eval` and `compare`
    take it. resume=True goes on from the run's last checkpoint, if it has one, to the same bits as if it had not been stopped, however
    it was: a script may always say so. It is for loaders that say where they stand; what is a callback's own is not saved."""
    metrics, objective = dict(metrics or {}), _loss_of(model, loss)
    if monitor != "loss" and monitor not in metrics:
        raise _lib.InvalidError(f"monitor: there is no metric {monitor!r}; there are {', '.join(['loss', *metrics])}")
    if validation is None and (patience is not None or monitor != "loss"):
        raise _lib.InvalidError("patience and monitor are of a validation, which is not there")
    if resume and run is None:
        raise _lib.InvalidError("resume=True: run= says of which folder")
    if accumulate < 1 or (plateau is not None and schedule is not None):
        raise _lib.InvalidError("accumulate is at least 1, and a plateau does not go with a schedule")
    fitted = Fit(model, optimizer, loader, Steps(model, optimizer, objective, accumulate, ema, precision), ema, plateau)
    score = None if validation is None else _Scores(model, {"loss": objective, **metrics}, precision)
    held_out = None if validation is None else _loader_of(validation)
    rising = monitor in RISING if rising is None else rising
    shown = Progress(fitted.updates, epochs) if progress else None
    folder = None
    if run is not None:
        from ._fit_run import FitRun
        folder = FitRun(run, fitted, resume, epochs, checkpoint_seconds, checkpoint_steps)
    interrupted, ended, partial = False, False, {}
    before = _context.enter(_place_of(model, optimizer))
    try:
        if blame:
            from ._blame import Blame
            fitted.blame = Blame(fitted)
        with _Interrupts() as interrupts:
            def after() -> bool:
                if folder is not None and not interrupts.asked:
                    folder.after_step()
                return not interrupts.asked

            while len(fitted.records) < epochs and not ended and (patience is None or fitted.since_best < patience):
                record: dict[str, Any] = {"epoch": len(fitted.records) + 1}
                if shown is not None:
                    shown.begin(record["epoch"])
                interrupted = not fitted.epoch(schedule, shown, after)
                record.update(loss=fitted.loss, lr=optimizer.lr)
                if interrupted:
                    partial = {**record, "interrupted": True}
                    break
                improved, monitored = False, fitted.loss
                if score is not None:
                    scores = fitted.measure(score, held_out)
                    record.update({f"validation_{name}": value for name, value in scores.items()})
                    monitored = scores[monitor]
                    improved = fitted.judge(monitored, rising, min_improvement)
                if plateau is not None:
                    optimizer.lr = plateau(optimizer.lr, monitored)
                fitted.end_epoch(record)
                if folder is not None:
                    folder.after_epoch(record, improved)
                if shown is not None:
                    shown.end("  ".join(f"{name} {value:.4f}" for name, value in record.items() if name not in ("epoch", "lr")))
                ended = callback is not None and callback(dict(record)) is False or interrupts.asked
            if folder is not None:
                folder.finish(interrupted)
    finally:
        _context.enter(before)
        if fitted.blame is not None:
            fitted.blame.close()
        if folder is not None:
            folder.close()
    if interrupted:
        if shown is not None:
            shown.end(f"loss {partial['loss']:.4f}  interrupted")
        return [*fitted.records, partial]
    if ended and interrupts.asked:
        fitted.records[-1]["interrupted"] = True
    return fitted.records
