"""What the elements of a tensor are: gd.float32 and its kin."""
from __future__ import annotations

from ._api import ENUMS

# The library's name: (name, size in bytes, kind, format of struct and memoryview or None, letter of __array_interface__)
_KNOWN = {
    "f32": ("float32", 4, "f", "f"), "f64": ("float64", 8, "f", "d"), "f16": ("float16", 2, "f", "e"),
    "bf16": ("bfloat16", 2, "f", None), "i8": ("int8", 1, "i", "b"), "i16": ("int16", 2, "i", "h"),
    "i32": ("int32", 4, "i", "i"), "i64": ("int64", 8, "i", "q"), "u8": ("uint8", 1, "u", "B"),
    "u16": ("uint16", 2, "u", "H"), "u32": ("uint32", 4, "u", "I"), "u64": ("uint64", 8, "u", "Q"),
    "bool": ("bool", 1, "b", "?"),
}


class DType:
    """A dtype. Equal to its name, to the library's name ("f32"), and to NumPy's dtype of that name."""

    __slots__ = ("name", "short", "itemsize", "kind", "format", "code")

    name: str
    short: str  # the library's name
    itemsize: int
    kind: str  # "f", "i", "u", "b"
    format: str | None  # as struct and memoryview say it
    code: int

    def __init__(self, short: str, code: int) -> None:
        self.short, self.code = short, code
        self.name, self.itemsize, self.kind, self.format = _KNOWN[short]

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    def holds(self, number: int) -> bool:
        """Whether an integer is one of the dtype's numbers; those of floats all are."""
        bits = 8 * self.itemsize
        ranges = {"i": (-(1 << bits - 1), (1 << bits - 1) - 1), "u": (0, (1 << bits) - 1), "b": (0, 1)}
        least, most = ranges.get(self.kind, (number, number))
        return least <= number <= most

    @property
    def typestr(self) -> str:
        """As NumPy's __array_interface__ has it, "<f4"; bfloat16 has none."""
        if self.format is None:
            raise TypeError(f"NumPy has no {self.name}; cast to float32 first")
        return f"{'|' if self.itemsize == 1 else '<'}{self.kind}{self.itemsize}"

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        try:
            return self is dtype(other)
        except TypeError:
            return NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"gradus.{self.name}"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return dtype, (self.name,)


BY_CODE = {code: DType(short, code) for short, code in ENUMS["gd_dtype"].items() if short in _KNOWN}
BY_NAME = {name: d for d in BY_CODE.values() for name in (d.name, d.short)}
BY_NAME.update({"half": BY_NAME["f16"], "float": BY_NAME["f32"], "double": BY_NAME["f64"], "int": BY_NAME["i32"],
                "long": BY_NAME["i64"]})
BY_FORMAT = {d.format: d for d in BY_CODE.values() if d.format}
BY_FORMAT["l"] = BY_NAME["i64"]
_BY_TYPE = {float: BY_NAME["f32"], int: BY_NAME["i64"], bool: BY_NAME["bool"]}


def dtype(value: object) -> DType:
    """The dtype that a name, a NumPy dtype, or Python's float, int or bool says."""
    if type(value) is DType:
        return value
    if type(value) is type:
        found = _BY_TYPE.get(value) or BY_NAME.get(value.__name__)  # numpy.float32 is a type
    else:
        name = value if type(value) is str else getattr(value, "name", None) or str(value).rpartition(".")[2]
        found = BY_NAME.get(name)
    if found is None:
        raise TypeError(f"{value!r} is no dtype of Gradus; there are {', '.join(d.name for d in BY_CODE.values())}")
    return found
