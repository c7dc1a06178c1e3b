"""Data sets, and loaders that give batches of them."""
from __future__ import annotations

import ctypes
import math
import os

from . import _api, _context, _convert, _lib, _objects, _ops
from ._dtype import BY_CODE, BY_NAME, DType
from ._lib import C
from ._table import Table, TableEncoder, classes_as_json, table
from ._tensor import Tensor, as_tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Generator, Iterator


_U8 = BY_NAME["u8"]


class Field:
    """What a field of a data set is: its name, the shape of a sample (-1: sequences, each of its own length), the dtype it has in batches,
    and the number of classes, 0 where its values are no classes."""

    def __init__(self, field: _api.gd_field) -> None:
        self.name: str = field.name.decode()
        self.shape: tuple[int, ...] = tuple(field.shape.dim[:field.shape.rank])
        self.dtype: DType = BY_CODE[field.batch_dtype]
        self.classes: int = field.classes
        names = (ctypes.c_char_p * self.classes).from_address(field.class_names) if field.class_names else ()
        self.class_names: list[str] = [name.decode() for name in names]

    def __repr__(self) -> str:
        return f"Field({self.name!r}, {self.shape}, {self.dtype}" + (f", classes={self.classes})" if self.classes else ")")


class Dataset:
    """Samples in the library's memory: len(data), data[i], data[10:20], data.fields. A sample is a tuple of the fields' tensors, most
    often of an image or a row of numbers and of its label. data.shape is the first field's, data.classes the number of classes of the
    first field that has any. data.metadata is what a model's file keeps of the data for `gradus predict`; data.encoder what made the
    numbers of a table, or None."""

    def __init__(self, handle: _objects.Dataset, metadata: dict[str, str] | None = None) -> None:
        self._dataset = handle
        self.metadata: dict[str, str] = dict(metadata or {})
        self.origin: dict[str, Any] = {}  # where `gradus eval` finds what was kept for validation
        self.fields: list[Field] = [Field(_api.gd_field.from_address(C.gd_dataset_field(handle.handle, i)))
                                    for i in range(handle.field_count())]
        self.shape: tuple[int, ...] = self.fields[0].shape
        self.classes: int = next((field.classes for field in self.fields if field.classes), 0)

    @property
    def handle(self) -> int:
        return self._dataset.handle

    def __len__(self) -> int:
        return C.gd_dataset_count(self.handle)

    def fingerprint(self) -> int:
        """A number that tells data sets apart: the same fields and values give the same one in every process. Of more than 16 MiB a field
        some values are looked at, of files names and sizes."""
        return C.gd_dataset_fingerprint(self.handle)

    @property
    def encoder(self) -> TableEncoder | None:
        text = self.metadata.get("encoder")
        return None if text is None else TableEncoder.from_json(text)

    def _get(self, first: int, count: int) -> tuple[Tensor, ...]:
        tensors = (ctypes.c_void_p * self._dataset.tensor_count())()
        return tuple(_convert.run_list(tensors, C.gd_dataset_get, self.handle, first, count, tensors))

    def subset(self, indices: Any) -> Dataset:
        """The samples of these indices, in their order, as a data set of their own."""
        return Dataset(self._dataset.subset(indices.tolist() if isinstance(indices, Tensor) else indices), self.metadata)

    def split(self, share: float, *, seed: int = 0, shuffle: bool = True, stratify: str | None = None) -> tuple[Dataset, Dataset]:
        """Two data sets: that share of the samples, and the others. stratify: the name of a field of classes, of which both parts have
        as large a share each; shuffle=False: the first samples and the last."""
        return self._cut(C.gd_dataset_split_with, (share,), seed, shuffle, stratify)

    def fold(self, folds: int, fold: int, *, seed: int = 0, shuffle: bool = True, stratify: str | None = None) -> tuple[Dataset, Dataset]:
        """(train, test) of cross-validation: fold number `fold` of so many is the test."""
        return self._cut(C.gd_dataset_fold_with, (folds, fold), seed, shuffle, stratify)

    def _cut(self, function: Any, parts: tuple, seed: int, shuffle: bool, stratify: str | None) -> tuple[Dataset, Dataset]:
        options = _convert.options_of(_api.gd_dataset_split_options)
        options.seed, options.shuffle = seed, shuffle
        if stratify is not None:
            options.stratify = self._index(stratify)
        first, second = ctypes.c_void_p(), ctypes.c_void_p()
        _convert.run_status(function, self.handle, *parts, ctypes.byref(first), ctypes.byref(second), ctypes.byref(options))
        return tuple(Dataset(_objects.Dataset._made(part.value, (self._dataset,)), self.metadata) for part in (first, second))

    def class_weights(self, field: str = "label") -> list[float]:
        """For each class of a field count / (classes * its samples), 0 where it has none: weights for a loss."""
        return self._weights(C.gd_dataset_class_weights, field, self.fields[self._index(field)].classes)

    def sample_weights(self, field: str = "label") -> list[float]:
        """The weight of each sample's class: a DataLoader with these weights draws all classes as often."""
        return self._weights(C.gd_dataset_sample_weights, field, len(self))

    def _weights(self, function: Any, field: str, count: int) -> list[float]:
        weights = (ctypes.c_double * count)()
        _convert.run_status(function, self.handle, self._index(field), weights)
        return weights[:]

    def _index(self, field: str) -> int:
        names = [f.name for f in self.fields]
        if field not in names:
            raise _lib.InvalidError(f"there is no field {field!r}; there are {', '.join(names)}")
        return names.index(field)

    def __getitem__(self, i: Any) -> tuple[Tensor, ...]:
        """The tensors of a sample, of samples in a row, or of those of a list of indices."""
        if isinstance(i, (list, tuple)):
            return self.subset(i)._get(0, len(i))
        if isinstance(i, slice):
            start, stop, step = i.indices(len(self))
            if step != 1:
                raise IndexError("samples in a row alone")
            return self._get(start, max(0, stop - start))
        i = i.__index__()
        if i < -len(self) or i >= len(self):
            raise IndexError(f"sample {i} of {len(self)}")
        return tuple(t[0] for t in self._get(i % len(self), 1))


def mnist(folder: Any = "data/mnist", train: bool = True, flatten: bool = True) -> Dataset:
    """Handwritten digits, pixels 0 … 1, from the four files as published: [784], or [28, 28] with flatten=False."""
    return Dataset(_ops.mnist(os.fspath(folder), test=not train, keep_shape=not flatten), {"task": "mnist"})


def cifar10(folder: Any, train: bool = True, *, dtype: Any = "float32") -> Dataset:
    """Photographs [3, 32, 32] of ten classes; dtype as image_folder has it."""
    return Dataset(_ops.cifar10(os.fspath(folder), test=not train, batch_dtype=dtype))


def idx(samples: Any, labels: Any, flatten: bool = True, scale: float | None = None, shift: float = 0.0) -> Dataset:
    """Samples and their labels from two IDX files, plain or compressed, as MNIST's are; a sample is value * scale + shift, pixels 0 … 1
    unless a scale is given."""
    return Dataset(_objects.Dataset.load_idx(os.fspath(samples), os.fspath(labels), keep_shape=not flatten, scale=scale, shift=shift))


def read_idx(path: Any) -> Tensor:
    """The array of an IDX file, plain or compressed, with the dtype it has there."""
    array = _api.gd_idx()
    with _context.within(_context.home()):
        if C.gd_idx_read(_convert.as_text(path), ctypes.byref(array)):
            _lib.fail()
        try:
            return _convert.run(C.gd_from_host, _context.current(), _convert.shape_of(tuple(array.dims[:array.rank])),
                                C.gd_idx_dtype(array.type), array.data)
        finally:
            C.gd_idx_free(ctypes.byref(array))


def read_image(path: Any, height: int | None = None, width: int | None = None) -> Tensor:
    """A JPEG or PNG file as uint8 [3, height, width], resized where a height and a width are given."""
    if (height is None) is not (width is None):
        raise _lib.InvalidError("read_image: a height and a width, or neither")
    read, image = _api.gd_image(), _api.gd_image()
    with _context.within(_context.home()):
        try:
            if (C.gd_image_read(_convert.as_text(path), ctypes.byref(read)) if height is None else
                    C.gd_image_read_reduced(_convert.as_text(path), height, width, ctypes.byref(read))):
                _lib.fail()
            if height is not None and C.gd_image_resize(ctypes.byref(read), height, width, ctypes.byref(image)):
                _lib.fail()
            found = read if height is None else image
            rows = _convert.run(C.gd_from_host, _context.current(), _convert.shape_of((found.height, found.width, found.channels)),
                                _U8.code, found.pixels)
        finally:
            C.gd_image_free(ctypes.byref(read))
            C.gd_image_free(ctypes.byref(image))
    return _ops.contiguous(_ops.permute(rows, (2, 0, 1)))


def write_image(path: Any, image: Any, low: float | None = None, high: float | None = None) -> None:
    """Write a tensor [height, width] or [channels, height, width] as a picture, .png, .ppm or .pgm: `low` is black, `high` white. Of
    integers 0 and 255 unless given, of others 0 and 1."""
    image = as_tensor(image)
    picture = _api.gd_image()
    whole = not image.dtype.is_float
    with _context.home_of(image._h).lock:
        try:
            if C.gd_image_from_tensor(image._h, 0.0 if low is None else low, (255.0 if whole else 1.0) if high is None else high,
                                      ctypes.byref(picture)) or C.gd_image_write(_convert.as_text(path), ctypes.byref(picture)):
                _lib.fail()
        finally:
            C.gd_image_free(ctypes.byref(picture))


def image_folder(folder: Any, height: int, width: int, *, crop: bool = False, cache: int = 1 << 30, dtype: Any = "float32") -> Dataset:
    """JPEG and PNG images [3, height, width]; each folder in `folder` is a class. Images are read when they are asked for, by the workers
    of a loader, and kept in `cache` bytes of memory. crop: cut to the ratio of the result, not stretched. dtype: of batches; floats are
    0 … 1, "uint8" what gd.augment takes."""
    made = Dataset(_ops.image_folder(os.fspath(folder), height, width, crop=crop, cache=cache, batch_dtype=dtype))
    if height == width and not crop:  # as gradus predict reads photographs
        made.metadata = {"task": "images", "image": str(height), "classes": classes_as_json(made.fields[1].class_names)}
    return made


def image_list(path: Any, height: int, width: int, *, crop: bool = False, cache: int = 1 << 30, dtype: Any = "float32") -> Dataset:
    """The same of images that a text file names, one a line: path, comma or tab, class."""
    return Dataset(_ops.image_list(os.fspath(path), height, width, crop=crop, cache=cache, batch_dtype=dtype))


def audio_folder(folder: Any, length: int = 0, *, channels: int = 1, rate: int = 0) -> Dataset:
    """Sounds [channels, length] of files (read_audio); each folder in `folder` is a class. Of longer sounds the middle is taken, around
    shorter ones is silence; length 0: the first file's. channels 1: the mean of a file's. All have one rate, in frames a second."""
    made = Dataset(_ops.audio_folder(os.fspath(folder), length, channels=channels, rate=rate))
    if channels == 1:  # as gradus predict reads sounds
        made.metadata = {"task": "audio", "length": str(made.shape[1]), "classes": classes_as_json(made.fields[1].class_names)}
    return made


def read_audio(path: Any) -> tuple[Tensor, int]:
    """A sound file as float32 [channels, frames] in -1 … 1, and its rate in frames a second: WAV, and with libsndfile on the machine
    FLAC, Ogg, Opus, MP3, AIFF and others."""
    audio = _api.gd_audio()
    with _context.within(_context.home()):
        if C.gd_audio_read(_convert.as_text(path), ctypes.byref(audio)):
            _lib.fail()
        try:
            return _convert.run(C.gd_from_host, _context.current(), _convert.shape_of((audio.channels, audio.frames)), BY_NAME["f32"].code,
                                audio.samples), audio.rate
        finally:
            C.gd_audio_free(ctypes.byref(audio))


def from_arrays(*arrays: Any, classes: dict[str, int] | None = None, **named: Any) -> Dataset:
    """A data set of arrays whose first axes belong together, samples and targets of any kind: from_arrays(x, y), fields "x" and "y", or
    from_arrays(image=…, label=…). Tensors that are contiguous and NumPy's arrays share their memory with it, numpy.memmap's files too;
    others are copied. classes: how many classes the values of a field are, -1 to count them: from_arrays(x, y, classes={"y": -1})."""
    names = ["x", "y", *(f"field{i}" for i in range(2, len(arrays)))][:len(arrays)]
    values = [_shared(value) for value in (*arrays, *named.values())]
    names += named
    if any(not shape for _, shape, _, _ in values) or len({shape[0] for _, shape, _, _ in values}) != 1:
        raise _lib.ShapeError("arrays of a data set have as many rows: " + ", ".join(str(shape) for _, shape, _, _ in values))
    unknown = set(classes or ()) - set(names)
    if unknown:
        raise _lib.InvalidError(f"there is no field {unknown.pop()!r}; there are {', '.join(names)}")
    fields = (_api.gd_field * len(values))()
    for i, (name, (_, shape, dtype, _)) in enumerate(zip(names, values)):
        fields[i] = _convert.options_of(_api.gd_field)
        fields[i].name, fields[i].shape, fields[i].dtype = name.encode(), _convert.shape_of(shape[1:]), dtype.code
        fields[i].classes = (classes or {}).get(name, 0)
    options = _convert.options_of(_api.gd_dataset_from_arrays_options)
    options.copy = False
    addresses = (ctypes.c_void_p * len(values))(*(address for address, _, _, _ in values))
    h = _convert.run_handle(C.gd_dataset_from_arrays_with, _context.current(), values[0][1][0], len(values), fields, addresses,
                            ctypes.byref(options))
    return _described(Dataset(_objects.Dataset._made(h, tuple(owner for _, _, _, owner in values))))


def _described(samples: Dataset) -> Dataset:
    """With what `gradus predict` needs to know of arrays: of samples and one target each, the samples floats, as they are."""
    if len(samples.fields) == 2 and samples.fields[0].dtype.is_float:
        y = samples.fields[1]
        if y.classes:
            samples.metadata = {"task": "arrays", "outputs": str(y.classes)}
        elif y.dtype.is_float:
            samples.metadata = {"task": "arrays", "outputs": str(math.prod(y.shape)), "target": "0 1"}
    return samples


def _shared(value: Any) -> tuple[int, tuple[int, ...], DType, Any]:
    """(address, shape, dtype, what owns the memory) of an array or of a tensor of it."""
    interface = None if isinstance(value, Tensor) else getattr(value, "__array_interface__", None)
    if interface and interface.get("strides") is None and interface.get("data"):
        known = next((d for d in BY_CODE.values() if d.format and d.typestr == interface["typestr"]), None)
        if known is not None:
            return interface["data"][0], tuple(interface["shape"]), known, value
    t = as_tensor(value).detach().contiguous()
    return t._address, t.shape, t.dtype, t


class DataLoader:
    """Batches of a data set, epoch after epoch: for x, y in loader. `dataset` is one of gd.data, or anything with len() and [i].

    shuffle: in a fresh order each epoch, which depends on seed and the number of the epoch alone. with_replacement: samples are drawn at
    random, each anew; weights: drawn so, as often as these numbers say, one for each sample; batches_per_epoch: where an epoch ends.
    state_dict() after a batch says where to go on.

    workers: threads that make batches ahead, `prefetch` of them; 0: they are made when they are asked for. Batches are the same with any
    number. Of a data set in Python they call its [i]: threads of Python, so what they gain is what that does without the interpreter
    (decoding with Pillow, NumPy on large arrays, files). collate makes a batch of its samples, in the thread that asks for it.

    Of the library's data sets (Dataset), besides: length_window: batches of samples of about one length, sorted within so many batches;
    draws: so many random numbers for each sample, as the last tensor of a batch."""

    dataset: Any
    batch_size: int
    shuffle: bool
    seed: int
    drop_last: bool
    workers: int
    prefetch: int
    collate: Callable[[list[Any]], Any]
    epoch: int
    position: int

    def __init__(self, dataset: Any, batch_size: int = 32, shuffle: bool = False, seed: int = 0, drop_last: bool = False,
                 workers: int = 0, prefetch: int = 2, collate: Callable[[list], Any] | None = None, *, with_replacement: bool = False,
                 weights: Any = None, batches_per_epoch: int | None = None, length_window: int = 0, draws: int = 0) -> None:
        if batch_size < 1:
            raise _lib.InvalidError("a batch has at least one sample")
        given = {"with_replacement": with_replacement, "length_window": length_window, "draws": draws}
        if batches_per_epoch is not None:
            given["batches_per_epoch"] = batches_per_epoch
        if not isinstance(dataset, Dataset) and (length_window or draws):
            raise _lib.InvalidError("length_window and draws are for the library's data sets")
        if isinstance(dataset, Dataset) and collate is not None:
            raise _lib.InvalidError("batches of the library's data sets are made by the library: collate is for others")
        self._options, self._weights = given, weights
        self.dataset, self.batch_size, self.shuffle, self.seed, self.drop_last = dataset, batch_size, shuffle, seed, drop_last
        self.workers, self.prefetch, self.collate = workers, prefetch, collate or _stack
        self.epoch, self.position = 0, 0  # of the next batch
        self._resumed, self._turn = False, 0  # whether the next loop goes on in the midst of an epoch; which loop is the last
        self._loader: _objects.Loader | None = None  # the library's

    def __len__(self) -> int:
        return self._library().batches()

    def _library(self) -> _objects.Loader:
        if self._loader is None:
            weights, options = self._weights, dict(self._options)
            if weights is not None:
                if len(weights) != len(self.dataset):
                    raise _lib.ShapeError(f"{len(weights)} weights of {len(self.dataset)} samples")
                numbers = (ctypes.c_double * len(weights))(*(weights.tolist() if hasattr(weights, "tolist") else weights))
                options["weights"] = ctypes.addressof(numbers)
            samples, workers = self.dataset, self.workers
            if not isinstance(samples, Dataset):  # the library says which they are
                if not len(samples):
                    raise _lib.ShapeError("a data set without samples")
                samples, workers = from_arrays(index=_ops.arange(0, len(samples), 1, dtype="int64")), 0
            self._loader = _objects.Loader.create(samples, batch=self.batch_size, shuffle=self.shuffle, seed=self.seed,
                                                  drop_last=self.drop_last, workers=workers, prefetch=self.prefetch, **options)
        return self._loader

    def __iter__(self) -> Iterator[Any]:
        """The batches of an epoch. A loop that was left begins the next epoch, unless load_state_dict said where to go on."""
        if self.position and not self._resumed:
            self.epoch, self.position = self.epoch + 1, 0
        self._resumed, self._turn = False, self._turn + 1
        return self._batches(self._turn)

    def _batches(self, turn: int) -> Iterator[Any]:
        count = len(self) - self.position
        batches = self._made(count) if isinstance(self.dataset, Dataset) else self._collated(count)
        try:
            for _ in range(count):
                if turn != self._turn:
                    raise _lib.StateError("another loop over this loader has begun")
                batch = next(batches)
                self.position += 1
                yield batch
        finally:
            batches.close()
        self.epoch, self.position = self.epoch + 1, 0

    def _seek(self) -> _objects.Loader:
        """The library's loader, brought to the next batch."""
        loader, number = self._library(), self.epoch * len(self) + self.position
        if loader.position() != number:
            loader.seek(number)
        return loader

    def _next(self, read: Callable[[Any], Any]) -> Any:
        """What `read` makes of the library's next batch."""
        loader, batch = self._library(), _api.gd_batch()
        with _context.within(loader._home):
            for _ in range(2):  # the first may tell of the end of an epoch
                if C.gd_loader_next(loader.handle, ctypes.byref(batch)):
                    return read(batch)  # the next batch is written there, too
                if C.gd_error_code():
                    break
        _lib.fail()

    def _made(self, count: int) -> Generator[tuple[Tensor, ...], None, None]:
        """The next batches of a data set of the library."""
        self._seek()
        for _ in range(count):
            yield self._next(lambda batch: tuple(_own(batch.tensors[j]) for j in range(batch.count)))

    def _collated(self, count: int) -> Generator[Any, None, None]:
        """The next batches of a data set in Python."""
        self._seek()
        chosen = (self._next(lambda batch: (ctypes.c_int64 * batch.size).from_address(batch.indices)[:]) for _ in range(count))
        if self.workers < 1:
            for indices in chosen:
                yield self.collate([_sample(self.dataset, i) for i in indices])
            return
        from collections import deque
        from concurrent.futures import ThreadPoolExecutor
        ahead: deque = deque()
        pool = ThreadPoolExecutor(self.workers, "gradus-loader")
        try:
            for indices in chosen:
                ahead.append([pool.submit(_sample, self.dataset, i) for i in indices])
                if len(ahead) > self.prefetch:
                    yield self.collate([sample.result() for sample in ahead.popleft()])
            while ahead:
                yield self.collate([sample.result() for sample in ahead.popleft()])
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def first(self) -> Any:
        """A batch of the data set's first sample alone, of the form that all batches have."""
        if not isinstance(self.dataset, Dataset):
            return self.collate([_sample(self.dataset, 0)])
        draws = self._options["draws"]
        return (*self.dataset[0:1], *([_ops.zeros((1, draws), "float32")] if draws else []))

    # ---- for step.run()

    def endless(self) -> Iterator[Any]:
        """The batches that come, over the ends of epochs."""
        while True:
            self._resumed = True  # go on in the epoch
            yield from self

    def library_batches(self) -> list[tuple[Tensor, ...]]:
        """Tensors of the shapes that batches have; none where the data set is not the library's, or they vary."""
        if not isinstance(self.dataset, Dataset) or any(-1 in field.shape for field in self.dataset.fields):
            return []
        loader = self._library()
        full, rest = divmod(loader.samples(), self.batch_size) if loader.batches() < 1 << 32 else (1, 0)
        shapes = [(field.shape, field.dtype) for field in self.dataset.fields]
        if self._options["draws"]:
            shapes.append(((self._options["draws"],), "float32"))
        return [tuple(_ops.zeros((size, *shape), dtype) for shape, dtype in shapes)
                for size in [self.batch_size] * (full > 0) + [rest] * (rest > 0)]

    def library_loader(self) -> int:
        """The library's loader, whose next batch is this one's."""
        self._turn += 1  # a loop that is under way is over
        return self._seek().handle

    def advance(self, batches: int) -> None:
        """Count batches that were taken from the library's loader."""
        epochs, self.position = divmod(self.position + batches, len(self))
        self.epoch += epochs

    def state_dict(self) -> dict[str, Any]:
        """Which batch is the next."""
        return {"epoch": self.epoch, "position": self.position, "seed": self.seed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next loop go on there."""
        if state["seed"] != self.seed:
            raise _lib.StateError(f"the state is of seed {state['seed']}, the loader's is {self.seed}")
        self.epoch, self.position, self._resumed = state["epoch"], state["position"], True
        if self.position >= len(self):
            self.epoch, self.position = self.epoch + 1, 0


def tokens(tokens: Any, length: int = 256, *, stride: int | None = None, first: int = 0, count: int | None = None) -> Dataset:
    """Sequences (x, y) of `length` tokens for language models, y being the token after each of x. `tokens` is the path of a token file
    (write_tokens), or a sequence of tokens; first, count: the part of them to use. One sequence begins where the last one ends, or
    `stride` tokens after it began. Sequences from anywhere: DataLoader(tokens(…, stride=1), with_replacement=True)."""
    is_path = isinstance(tokens, str) or hasattr(tokens, "__fspath__")
    data = (_objects.TokenData.open(os.fspath(tokens)) if is_path else
            _objects.TokenData.create(tokens.tolist() if isinstance(tokens, Tensor) else tokens))
    part = {} if count is None else {"count": count}
    return Dataset(_ops.token_dataset(data, length=length, stride=length if stride is None else stride, first=first, **part))


def write_tokens(path: Any, tokens: Any, vocabulary: int) -> None:
    """Write tokens to a file as llm.c does, for tokens(); 16 bits each where the vocabulary allows it."""
    _ops.token_file_write(path, tokens.tolist() if isinstance(tokens, Tensor) else tokens, vocabulary)


def _own(h: int) -> Tensor:
    """A copy of one of the loader's tensors."""
    return _convert.run(C.gd_from_host, _context.current(), C.gd_tensor_shape(h), C.gd_tensor_dtype(h), C.gd_tensor_data(h))


def _sample(dataset: Any, index: int) -> Any:
    """Sample number `index`. Errors say which it was, where Python can (3.11)."""
    try:
        return dataset[index]
    except Exception as error:
        if hasattr(error, "add_note"):
            error.add_note(f"in sample {index} of {type(dataset).__name__}")
        raise


def _stack(samples: list) -> Any:
    """Samples, tuples of tensors or numbers, as a batch."""
    if isinstance(samples[0], (tuple, list)):
        return tuple(_ops.stack([as_tensor(s[i]) for s in samples]) for i in range(len(samples[0])))
    return _ops.stack([as_tensor(s) for s in samples])


__all__ = ["DataLoader", "Dataset", "Field", "Table", "TableEncoder", "audio_folder", "cifar10", "from_arrays", "idx", "image_folder",
           "image_list", "mnist", "read_audio", "read_idx", "read_image", "table", "tokens", "write_image", "write_tokens"]
