"""gd.fit: a training loop for models of one input and one target. A loop of one's own around gd.compile is as fast."""
from __future__ import annotations

from . import _ops
from ._compile import compile
from ._progress import Progress
from ._tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable


def _classify(output: Tensor, y: Tensor) -> Tensor:
    """The loss unless another is given. Of a single class it is 0, and nothing would be learnt, in silence."""
    if output.shape[-1:] == (1,):
        raise ValueError("the model gives one number for a sample, of which cross entropy is always 0: give another loss, loss=gd.mse")
    return _ops.cross_entropy(output, y)


def evaluate(model: Callable[[Tensor], Tensor], loader: Any, loss: Callable[[Tensor, Tensor], Tensor] | None = None,
             metrics: dict[str, Callable[[Tensor, Tensor], Tensor]] | None = None) -> dict[str, float]:
    """Means over all samples of a loader: {"loss": …, and each metric}. The model is not in training meanwhile."""
    functions = {"loss": loss or _classify, **(metrics or {})}
    was_training = _switch(model, False)
    try:
        @compile(detached=True)
        def score(x, y):
            output = model(x)
            return [function(output, y) for function in functions.values()]
        sums, samples = [0.0] * len(functions), 0
        for x, y in loader:
            sums = [s + value.item() * len(x) for s, value in zip(sums, score(x, y))]
            samples += len(x)
    finally:
        _switch(model, was_training)
    return {name: s / max(1, samples) for name, s in zip(functions, sums)}


def _switch(model: Any, training: bool) -> bool:
    """Set the model's training flag; what it was."""
    if not hasattr(model, "train"):
        return False
    was = model._training
    model.train(training)
    return was


def fit(model: Callable[[Tensor], Tensor], optimizer: Any, loader: Any, epochs: int = 1, *, test: Any = None,
        loss: Callable[[Tensor, Tensor], Tensor] | None = None, metrics: dict[str, Callable[[Tensor, Tensor], Tensor]] | None = None,
        schedule: Callable[[int], float] | None = None, callback: Callable[[dict[str, Any]], bool | None] | None = None,
        progress: bool = True) -> list[dict[str, Any]]:
    """Train: for each batch (x, y) of the loader the loss of model(x) and y, gd.cross_entropy unless another is given, is minimised in
    one compiled call. Gives a list with a dict for each epoch: epoch, loss, test_loss, metrics (of `test`, as test_…), lr.

    schedule(step) gives the learning rate of a step. callback(record) is called after each epoch; training ends when it returns
    False. Ctrl-C ends training after the step: the records so far are given back, the last one with interrupted=True."""
    function = loss or _classify

    @compile
    def step(x, y):
        return optimizer.minimize(function(model(x), y))

    records: list[dict[str, Any]] = []
    count, shown = 0, Progress(len(loader), epochs)
    for epoch in range(1, epochs + 1):
        record: dict[str, Any] = {"epoch": epoch}
        records.append(record)
        shown.begin(epoch)
        sums, samples = 0.0, 0
        pending: list = []  # losses that have not been read
        try:
            for i, (x, y) in enumerate(loader, 1):
                if schedule is not None:
                    optimizer.lr = schedule(count)
                pending.append((step(x, y), len(x)))
                count += 1
                if len(pending) == 64 or progress and shown.due():
                    sums, samples = _read(pending, sums, samples)
                    if progress and shown.live:
                        shown.show(i, f"loss {sums / samples:.4f}")
        except KeyboardInterrupt:
            record["interrupted"] = True
        sums, samples = _read(pending, sums, samples)
        record.update(loss=sums / max(1, samples), lr=optimizer.lr)
        if test is not None and "interrupted" not in record:
            record.update({f"test_{name}": value for name, value in evaluate(model, test, loss, metrics).items()})
        if progress:
            shown.end("  ".join(f"{name} {value:.4f}" for name, value in record.items() if name not in ("epoch", "lr", "interrupted")))
        if "interrupted" in record or callback is not None and callback(record) is False:
            break
    return records


def _read(pending: list, sums: float, samples: int) -> tuple[float, int]:
    for value, size in pending:
        sums, samples = sums + value.item() * size, samples + size
    pending.clear()
    return sums, samples
