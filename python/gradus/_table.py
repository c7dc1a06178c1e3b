"""Tables: files of rows and columns, what makes tensors of them, and data sets."""
from __future__ import annotations

import ctypes
import json
import os

from . import _api, _context, _convert, _lib, _objects, _ops
from ._lib import C
from ._tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

    from .data import Dataset


class Table:
    """Rows and columns. len(table) is the number of rows, table["age"] the cells of a column: numbers (NaN: missing), booleans, texts,
    and None where one is missing; of times seconds since 1970."""

    def __init__(self, handle: _objects.Table, path: str | None = None) -> None:
        self._table = handle
        self.path: str | None = path
        self.columns: list[str] = [handle.column_name(i) or "" for i in range(handle.columns())]

    @property
    def handle(self) -> int:
        return self._table.handle

    def __len__(self) -> int:
        return self._table.rows()

    def __repr__(self) -> str:
        return f"Table({len(self)} rows; " + ", ".join(f"{name}: {kind}" for name, kind in self.kinds.items()) + ")"

    @property
    def kinds(self) -> dict[str, str]:
        """What the cells of each column are: "number", "boolean", "category", "time" or "text"."""
        return {name: C.gd_column_kind_name(self._table.column_kind(i)).decode() for i, name in enumerate(self.columns)}

    def set_kind(self, column: str, kind: str) -> None:
        """Read a column as of another kind: a code as a "category", not as a number."""
        self._table.set_column_kind(self._index(column), kind)

    def missing(self, column: str) -> int:
        """How many cells of a column are missing."""
        return self._table.column_missing(self._index(column))

    def __getitem__(self, column: str) -> list[Any]:
        index, kind = self._index(column), self.kinds[column]
        if kind == "boolean":
            return [None if n != n else bool(n) for n in (self._table.number(row, index) for row in range(len(self)))]
        if kind in ("number", "time"):
            return [self._table.number(row, index) for row in range(len(self))]
        return [self._table.text(row, index) for row in range(len(self))]

    def _index(self, column: str) -> int:
        if column not in self.columns:
            raise _lib.InvalidError(f"there is no column {column!r}; there are {', '.join(self.columns)}")
        return self.columns.index(column)

    def known_rows(self, column: str) -> list[int]:
        """The rows whose cell of a column is not missing."""
        rows = (ctypes.c_int64 * max(1, len(self)))()
        return rows[:_convert.run_value(C.gd_table_known_rows, self.handle, self._index(column), rows)]

    def encoder(self, target: str | None = None, *, task: str | None = None, ignore: Iterable[str] = (), max_categories: int = 32,
                rows: Iterable[int] | None = None) -> TableEncoder:
        """Learn what makes numbers of rows: standardised numbers, a feature for each category, those of times. target: the column that
        is to be predicted, a class or a number; task="classification" or "regression" where that is not to be found out; ignore: columns
        that are left out; rows: those to learn from, all unless given."""
        for name in [*ignore, *([] if target is None else [target])]:
            self._index(name)
        options = _convert.options_of(_api.gd_table_encoder_options)
        texts = [_convert.as_text(name) for name in ignore]
        names, numbers = (ctypes.c_char_p * max(1, len(texts)))(*texts), _indices(rows)
        options.target, options.task = _convert.as_text(target), _convert.as_enum("gd_task", task or "default")
        options.ignore_count, options.ignore = len(texts), ctypes.addressof(names)
        options.max_categories = max_categories
        if numbers is not None:
            options.row_count, options.rows = len(numbers), ctypes.addressof(numbers)
        h = _convert.run_handle(C.gd_table_encoder_create_with, self.handle, ctypes.byref(options))
        return TableEncoder(_objects.TableEncoder._made(h, ()))

    def split(self, target: str, validation: float = 0.15, *, seed: int = 1, task: str | None = None, ignore: Iterable[str] = (),
              max_categories: int = 32) -> tuple[Dataset, Dataset]:
        """(train, validation): two data sets, "x" and "y", of the rows whose target is known. Of the training rows alone is learnt what
        makes numbers of them, train.encoder; each class has the same share in both. `gradus train` splits a file in the same way."""
        from .data import from_arrays
        ignore = list(ignore)
        rows, given = self.known_rows(target), {"task": task, "ignore": ignore, "max_categories": max_categories}
        whole = self.encoder(target, rows=rows, **given)
        arrays: dict[str, Any] = {"row": Tensor(rows, dtype="int64")}
        if whole.classes:
            arrays["class"] = whole.encode(self, rows)[1]
        numbers = from_arrays(classes={"class": -1} if whole.classes else None, **arrays)
        parts = numbers.split(1.0 - validation, seed=seed, stratify="class" if whole.classes else None)
        chosen = [part[:len(part)][0].tolist() for part in parts]
        encoder = self.encoder(target, rows=chosen[0], **given)
        train, kept = (encoder.dataset(self, part) for part in chosen)
        if self.path is not None:
            train.origin = {"data": os.path.abspath(self.path), "target": target, "validation": validation, "seed": seed}
            train.origin.update({name: text for name, text in (("task", task), ("ignore", ",".join(ignore))) if text})
        return train, kept


class TableEncoder:
    """Makes the numbers of a table's rows that a model was trained with. It belongs to the model: kept beside it (save, or in the file
    that gd.fit writes), it gives the same numbers for the same row ever after."""

    def __init__(self, handle: _objects.TableEncoder) -> None:
        self._encoder = handle
        self.features: list[str] = [handle.format_feature(i) for i in range(handle.features())]
        self.target: str | None = handle.target()
        self.classes: list[str] = [handle.class_name(i) or "" for i in range(handle.classes())]

    @property
    def handle(self) -> int:
        return self._encoder.handle

    def __repr__(self) -> str:
        what = f"{len(self.classes)} classes" if self.classes else "a number"
        return f"TableEncoder({len(self.features)} features" + (f"; {self.target}: {what})" if self.target is not None else ")")

    def encode(self, table: Table, rows: Iterable[int] | None = None, *, target: bool | None = None) -> tuple[Tensor, Tensor | None]:
        """(x, y) of rows of a table, of all unless given: x is [rows, features], y [rows] classes or [rows, 1] standardised numbers; None
        where the encoder has no target, the table no such column, or target=False."""
        numbers = _indices(rows)
        count = len(table) if numbers is None else len(numbers)
        if target is None:
            target = self.target in table.columns
        x = (ctypes.c_float * max(1, count * len(self.features)))()
        y = ((ctypes.c_int64 if self.classes else ctypes.c_float) * max(1, count))() if target else None
        _convert.run_status(C.gd_table_encode, self.handle, table.handle, count, numbers, x, y)
        f32 = _convert.BY_NAME["f32"]
        made = _convert.from_bytes(ctypes.addressof(x), (count, len(self.features)), f32)
        if y is None:
            return made, None
        return made, _convert.from_bytes(ctypes.addressof(y), *((count,), _convert.BY_NAME["i64"]) if self.classes else ((count, 1), f32))

    def dataset(self, table: Table, rows: Iterable[int] | None = None) -> Dataset:
        """The same as a data set: "x", and "y" where there is a target."""
        from .data import Dataset
        numbers = _indices(rows)
        count = len(table) if numbers is None else len(numbers)
        h = _convert.run_handle(C.gd_table_dataset, _context.current(), self.handle, table.handle, count, numbers)
        return Dataset(_objects.Dataset._made(h, ()), {"task": "table", "encoder": self.to_json()})

    def decode(self, values: Any) -> Any:
        """What a model gives, in the target's own words: of rows of logits, or of class indices, the names of the classes, of
        standardised numbers those in the target's unit."""
        values = _convert.as_tensor(values).detach()
        if not self.classes:
            numbers = values.reshape((-1,)).tolist()
            return [self._encoder.decode(value) for value in numbers]
        if values.dtype.is_float:
            values = _ops.argmax(values, -1)
        return [self.classes[index] for index in values.reshape((-1,)).tolist()]

    def to_json(self) -> str:
        return self._encoder.format_json()

    @classmethod
    def from_json(cls, text: str) -> TableEncoder:
        """What to_json() gave."""
        return cls(_objects.TableEncoder.create_json(text))

    def save(self, path: Any) -> None:
        """Write it to a file, as JSON."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.to_json())

    @classmethod
    def load(cls, path: Any) -> TableEncoder:
        """Read what save() wrote, or take it out of a model's file, or of the folder, that gd.fit or `gradus train` made."""
        path = os.fspath(path)
        if os.path.isdir(path):
            path = os.path.join(path, "model.safetensors")
        if not path.endswith(".safetensors"):
            with open(path, encoding="utf-8") as file:
                return cls.from_json(file.read())
        kept = _objects.TensorFile.open(path)
        text = kept.metadata("encoder")
        kept.close()
        if text is None:
            raise _lib.FormatError(f"{path}: there is no encoder of tables in this model's file")
        return cls.from_json(text)


def table(source: Any, *, separator: str | None = None, header: bool | None = None, decimal_comma: bool = False) -> Table:
    """A CSV or TSV file, plain or compressed with gzip; a file of Parquet, Feather or Arrow (.parquet, .feather, .arrow, .arrows, .ipc),
    which pyarrow reads; or a table of another library that has __arrow_c_stream__: of pandas, Polars, pyarrow, DuckDB, whose columns'
    kinds are its own.

    Of text files columns' kinds are found out from all of their cells; so are the separator, and whether the first line has names
    (header), unless they are given. decimal_comma: numbers are written 3,14."""
    if hasattr(source, "__arrow_c_stream__"):
        return _of_arrow(source)
    path = os.fspath(source)
    if path.lower().endswith((".parquet", ".feather", *_IPC)):
        return _of_arrow(_read_with_pyarrow(path))
    return Table(_objects.Table.load(path, separator=separator, header=-1 if header is None else int(header), decimal_comma=decimal_comma),
                 path)


def _of_arrow(source: Any) -> Table:
    """The library moves the stream out of the capsule, and releases it."""
    capsule = source.__arrow_c_stream__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    h = _convert.run_handle(C.gd_table_create_arrow, pointer(capsule, b"arrow_array_stream"))
    return Table(_objects.Table._made(h, ()))


_IPC = (".arrow", ".arrows", ".ipc")  # Arrow's own format, as a file or as a stream


def _read_with_pyarrow(path: str) -> Any:
    try:
        import pyarrow
        from pyarrow import feather, parquet
    except ImportError:
        raise _lib.UnsupportedError(f"{path}: pyarrow reads such files, and is not installed: pip install pyarrow") from None
    try:
        if path.lower().endswith(_IPC):
            return _read_ipc(pyarrow, path)
        return parquet.read_table(path) if path.lower().endswith(".parquet") else feather.read_table(path)
    except pyarrow.ArrowInvalid as error:
        raise _lib.FormatError(f"{path}: {error}") from None


def _read_ipc(pyarrow: Any, path: str) -> Any:
    """What writes .arrow files agrees on no one of the two formats: a file of it begins with "ARROW1"."""
    with pyarrow.OSFile(path) as source:
        is_file = source.read(6) == b"ARROW1"
        source.seek(0)
        with (pyarrow.ipc.open_file if is_file else pyarrow.ipc.open_stream)(source) as reader:
            return reader.read_all()


def _indices(rows: Any) -> Any:
    if rows is None:
        return None
    rows = rows.tolist() if hasattr(rows, "tolist") else list(rows)
    return _convert.array_of(ctypes.c_int64, rows)


def classes_as_json(names: list[str]) -> str:
    """As `gradus train` writes the names of classes into a model's file."""
    return json.dumps(names, ensure_ascii=False)
