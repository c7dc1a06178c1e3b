"""Data sets, and loaders that give batches of them."""
from __future__ import annotations

import ctypes
import os

from . import _api, _convert, _lib, _objects, _ops
from ._lib import C
from ._tensor import Tensor, as_tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator


class Dataset:
    """Samples and their class labels in the library's memory: len(data), data[i], data[10:20], data.shape, data.classes."""

    def __init__(self, handle: _objects.Dataset) -> None:
        self._dataset = handle
        self.shape: tuple[int, ...] = handle.shape()
        self.classes: int = handle.classes()

    @property
    def handle(self) -> int:
        return self._dataset.handle

    def __len__(self) -> int:
        return C.gd_dataset_count(self.handle)

    def __getitem__(self, i: int | slice) -> tuple[Tensor, Tensor]:
        if isinstance(i, slice):
            start, stop, step = i.indices(len(self))
            if step != 1:
                raise IndexError("samples in a row alone")
            return self._dataset.get(start, max(0, stop - start))
        i = i.__index__()
        if i < -len(self) or i >= len(self):
            raise IndexError(f"sample {i} of {len(self)}")
        x, y = self._dataset.get(i % len(self), 1)
        return x[0], y[0]


def mnist(folder: Any = "data/mnist", train: bool = True, flatten: bool = True) -> Dataset:
    """Handwritten digits, pixels 0 … 1, from the four files as published: [784], or [28, 28] with flatten=False."""
    return Dataset(_ops.mnist(os.fspath(folder), test=not train, keep_shape=not flatten))


def cifar10(folder: Any, train: bool = True) -> Dataset:
    """Photographs [3, 32, 32] of ten classes."""
    return Dataset(_ops.cifar10(os.fspath(folder), test=not train))


def image_folder(folder: Any, height: int, width: int) -> Dataset:
    """JPEG images [3, height, width]; each folder in `folder` is a class."""
    return Dataset(_ops.image_folder(os.fspath(folder), height, width))


class ArrayDataset:
    """Tensors whose first axes belong together: samples and targets of any kind."""

    def __init__(self, *tensors: Any) -> None:
        self.tensors = [as_tensor(t) for t in tensors]
        if len({len(t) for t in self.tensors}) != 1:
            raise _lib.ShapeError("tensors of a data set have as many rows: " + ", ".join(str(t.shape) for t in self.tensors))

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitem__(self, i: Any) -> tuple[Tensor, ...]:
        return tuple(t[i] for t in self.tensors)


from_arrays = ArrayDataset


class DataLoader:
    """Batches of a data set, epoch after epoch: for x, y in loader. `dataset` is one of gd.data, or anything with len() and [i].

    shuffle: in a fresh order each epoch, which depends on seed and the number of the epoch alone. state_dict() after a batch
    says where to go on."""

    def __init__(self, dataset: Any, batch_size: int = 32, shuffle: bool = False, seed: int = 0, drop_last: bool = False,
                 prefetch: int = 0, collate: Callable[[list], Any] | None = None) -> None:
        if batch_size < 1:
            raise _lib.InvalidError("a batch has at least one sample")
        self.dataset, self.batch_size, self.shuffle, self.seed, self.drop_last = dataset, batch_size, shuffle, seed, drop_last
        self.prefetch, self.collate = prefetch, collate or _stack
        self.epoch, self.position = 0, 0  # of the next batch
        self._resumed, self._turn = False, 0  # whether the next loop goes on in the midst of an epoch; which loop is the last
        self._loader, self._at = None, (0, 0)  # the library's, and its next batch

    def __len__(self) -> int:
        full, rest = divmod(len(self.dataset), self.batch_size)
        return full + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[Any]:
        """The batches of an epoch. A loop that was left begins the next epoch, unless load_state_dict said where to go on."""
        if self.position and not self._resumed:
            self.epoch, self.position = self.epoch + 1, 0
        self._resumed, self._turn = False, self._turn + 1
        return self._batches(self._turn)

    def _batches(self, turn: int) -> Iterator[Any]:
        batch_of = self._seek() if isinstance(self.dataset, Dataset) else self._draw(self.epoch)
        for i in range(self.position, len(self)):
            if turn != self._turn:
                raise _lib.StateError("another loop over this loader has begun")
            batch = batch_of(i)
            self.position = i + 1
            yield batch
        self.epoch, self.position = self.epoch + 1, 0

    def _draw(self, epoch: int) -> Callable[[int], Any]:
        """Batch i of an epoch of a data set in Python."""
        import random
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed * 1_000_003 + epoch).shuffle(order)

        def batch_of(i: int) -> Any:
            chosen = order[i * self.batch_size:][:self.batch_size]
            return self.dataset[chosen] if isinstance(self.dataset, ArrayDataset) else self.collate([self.dataset[j] for j in chosen])
        return batch_of

    def _seek(self) -> Callable[[int], Any]:
        """Bring the library's loader to the next batch; it gives them in their order alone."""
        if self._loader is None or self._at > (self.epoch, self.position):
            self._loader = _objects.Loader.create(self.dataset, batch=self.batch_size, shuffle=self.shuffle, seed=self.seed,
                                                  drop_last=self.drop_last, prefetch=self.prefetch)
            self._at = (0, 0)
        batch = _api.gd_batch()

        def advance() -> bool:
            more = C.gd_loader_next(self._loader.handle, ctypes.byref(batch))
            if not more and C.gd_error_code():
                _lib.fail()
            self._at = (self._at[0], self._at[1] + 1) if more else (self._at[0] + 1, 0)
            return more

        def batch_of(i: int) -> tuple[Tensor, ...]:
            with _lib.lock:
                _lib.drain()
                advance()  # writes into the same tensors again: a batch that is kept has its own
                tensors = tuple(_own(batch.tensors[j]) for j in range(batch.count))
                if i + 1 == len(self):
                    advance()  # over the end of the epoch
            return tensors
        while self._at < (self.epoch, self.position):
            with _lib.lock:
                advance()
        return batch_of

    def state_dict(self) -> dict:
        """Which batch is the next."""
        return {"epoch": self.epoch, "position": self.position, "seed": self.seed}

    def load_state_dict(self, state: dict) -> None:
        """Let the next loop go on there."""
        if state["seed"] != self.seed:
            raise _lib.StateError(f"the state is of seed {state['seed']}, the loader's is {self.seed}")
        self.epoch, self.position, self._resumed = state["epoch"], state["position"], True
        if self.position >= len(self):
            self.epoch, self.position = self.epoch + 1, 0


def _own(h: int) -> Tensor:
    """A copy of one of the loader's tensors."""
    return _convert.run(C.gd_from_host, _lib.context(), C.gd_tensor_shape(h), C.gd_tensor_dtype(h), C.gd_tensor_data(h))


def _stack(samples: list) -> Any:
    """Samples, tuples of tensors or numbers, as a batch."""
    if isinstance(samples[0], (tuple, list)):
        return tuple(_ops.stack([as_tensor(s[i]) for s in samples]) for i in range(len(samples[0])))
    return _ops.stack([as_tensor(s) for s in samples])


__all__ = ["ArrayDataset", "DataLoader", "Dataset", "cifar10", "from_arrays", "image_folder", "mnist"]
