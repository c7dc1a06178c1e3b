"""Between Python's values and the library's: what the generated functions stand on.

run(f, …) calls f with the lock of its operands' context held, owns its result, and raises the library's error. A Tensor whose
handle is handed over is held by the caller's variables until f has returned.
"""
from __future__ import annotations

import ctypes
from ctypes import byref, create_string_buffer, sizeof

from . import _api, _context, _integers, _lib
from ._dtype import BY_CODE, BY_FORMAT, BY_NAME, DType, dtype
from ._context import _pending, drain, held, home_for, home_of
from ._integers import array_of
from ._lib import C, fail, thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol, Sequence, Union

    from ._tensor import Tensor

    class ArrayLike(Protocol):
        """What NumPy's arrays and numbers have."""

        @property
        def __array_interface__(self) -> Any: ...

    TensorLike = Union[Tensor, bool, int, float, Sequence[Any], memoryview, ArrayLike]
    ShapeLike = Union[int, Sequence[int]]
    AxisLike = Union[int, Sequence[int], None]
    DTypeLike = Union[DType, str, type[Any], None]
else:
    Tensor = None  # set by _tensor

NUMBERS = frozenset((int, float))
_new, _claim = object.__new__, C.gd_claim
_MAX_RANK = 8
_EXACT = 2 ** 53  # integers beyond it are not exact as a C double


# ---- calls

def wrap(h: int) -> Tensor:
    """A Tensor that owns h."""
    t = _new(Tensor)
    t._h = h
    return t


def run(function, *arguments) -> Tensor:
    home = _context.only or home_for(function, arguments)
    with home.lock:
        if _pending or home.waiting:
            drain(home)
        try:
            h = _claim(home.handle, function(*arguments))
        except ctypes.ArgumentError as error:
            raise _lib.argument_error(function, arguments, error) from None
    if h is None:
        fail()
    t = _new(Tensor)
    t._h = h
    return t


# An op and gd_claim in one call of C. No other thread runs during that call, since ctypes.PyDLL keeps the GIL; so a context needs no lock
# as long as no thread holds its lock. The extension has locks of its own kind, and these are its unusual cases.

def function_at(function) -> int:
    """The address of a function of the library."""
    return ctypes.cast(function, ctypes.c_void_p).value


def _one_call(claiming):
    def run_locked(at, x, *arguments) -> Tensor:
        home = home_of(x)
        with home.lock:
            if _pending or home.waiting:
                drain(home)
            h = claiming(at, x, *arguments)
        if h is None:
            fail()
        return wrap(h)
    return run_locked


_claim_of_one, _claim_of_two, _claim_axes, _claim_shape = C.gd_claim_of_one, C.gd_claim_of_two, C.gd_claim_along_axes, C.gd_claim_to_shape
_one_locked, _two_locked = _one_call(_claim_of_one), _one_call(_claim_of_two)
_axes_locked, _shape_locked = _one_call(_claim_axes), _one_call(_claim_shape)


def run_one(at, x) -> Tensor:
    if held or _pending:
        return _one_locked(at, x)
    h = _claim_of_one(at, x)
    if h is None:
        fail()
    t = _new(Tensor)
    t._h = h
    return t


def run_two(at, x, y) -> Tensor:
    if held or _pending:
        return _two_locked(at, x, y)
    h = _claim_of_two(at, x, y)
    if h is None:
        fail()
    t = _new(Tensor)
    t._h = h
    return t


def run_axes(at, x, axes, keep) -> Tensor:
    if held or _pending:
        return _axes_locked(at, x, axes, keep)
    h = _claim_axes(at, x, axes, keep)
    if h is None:
        fail()
    t = _new(Tensor)
    t._h = h
    return t


def run_shaped(at, x, shape) -> Tensor:
    if held or _pending:
        return _shape_locked(at, x, shape)
    h = _claim_shape(at, x, shape)
    if h is None:
        fail()
    t = _new(Tensor)
    t._h = h
    return t


def run_in_place(x: Tensor, function, *arguments) -> Tensor:
    """The result stands for x from now on, for all who hold it."""
    made = run(function, *arguments)
    x._h, made._h = made._h, x._h
    return x


def _called(function, arguments):
    try:
        return function(*arguments)
    except ctypes.ArgumentError as error:
        raise _lib.argument_error(function, arguments, error) from None


def _take(home, outs) -> list:
    """Own the tensors written to `outs`, and let the other temporaries go."""
    handles = [out if type(out) is int else getattr(out, "value", out) for out in outs]
    for h in handles:
        C.gd_retain(h)
    _claim(home.handle, None)
    return [None if h is None else wrap(h) for h in handles]


def run_outs(outs, function, *arguments) -> tuple:
    home = home_for(function, arguments)
    with home.lock:
        drain(home)
        h = _called(function, arguments)
        if h is None:
            _claim(home.handle, None)
            fail()
        return tuple(_take(home, [h, *outs]))


def run_list(outs, function, *arguments) -> list:
    home = home_for(function, arguments)
    with home.lock:
        drain(home)
        if _called(function, arguments) != 0:
            _claim(home.handle, None)
            fail()
        return _take(home, outs)


def run_status_outs(outs, function, *arguments) -> tuple:
    return tuple(run_list(outs, function, *arguments))


def run_status(function, *arguments) -> None:
    home = home_for(function, arguments)
    with home.lock:
        drain(home)
        status = _called(function, arguments)
        if home.handle:
            _claim(home.handle, None)
    if status:
        fail()


def run_value(function, *arguments):
    home = home_for(function, arguments)
    with home.lock:
        drain(home)
        value = _called(function, arguments)
        if C.gd_error_code():
            fail()
    return value


def run_handle(function, *arguments) -> int:
    home = home_for(function, arguments)
    with home.lock:
        drain(home)
        h = _called(function, arguments)
    if not h:
        fail()
    thread.last = home
    return h


def run_string(function, *arguments) -> str | None:
    text = run_value(function, *arguments)
    return None if text is None else text.decode("utf-8", "replace")


def run_text(function, *arguments) -> str:
    """Of functions that write text to (char *text, size_t size), as snprintf does."""
    buffer = create_string_buffer(4096)
    size = run_value(function, *arguments, buffer, len(buffer))
    if size >= len(buffer):
        buffer = create_string_buffer(size + 1)
        run_value(function, *arguments, buffer, len(buffer))
    return buffer.value.decode("utf-8", "replace")


def run_shape(function, *arguments) -> tuple[int, ...]:
    shape = run_value(function, *arguments)
    return tuple(shape.dim[:shape.rank])


# ---- arguments

_shapes: dict = {}
_axes: dict = {None: _api.gd_axes(-1)}


def shape_of(value: ShapeLike) -> _api.gd_shape:
    try:
        return _shapes[value]
    except (KeyError, TypeError):
        pass
    sizes = _whole(value, "a shape")
    if len(sizes) > _MAX_RANK:
        raise _lib.ShapeError(f"a shape has at most {_MAX_RANK} axes, and {sizes} has {len(sizes)}")
    _fitting(sizes, ctypes.c_int64, "a shape")
    shape = _api.gd_shape(len(sizes), (ctypes.c_int64 * _MAX_RANK)(*sizes))
    if len(_shapes) < 4096:
        shape = _shapes.setdefault(value if type(value) is int else sizes, shape)  # none is replaced: its address may be known
    return shape


def _whole(value, what: str) -> tuple[int, ...]:
    """Whole numbers: of one, or of a sequence."""
    try:
        if hasattr(value, "__index__") and not getattr(value, "shape", ()):
            return (value.__index__(),)
        return tuple(n.__index__() for n in value)
    except (AttributeError, TypeError):
        raise TypeError(f"{what}: a whole number or a sequence of them, not {value!r}") from None


def _fitting(numbers: tuple[int, ...], kind, what: str) -> None:
    try:
        _integers.check(numbers, kind)
    except ValueError as error:
        raise _lib.ShapeError(f"{what}: {error}") from None


def axes_of(value: AxisLike) -> _api.gd_axes:
    try:
        return _axes[value]
    except (KeyError, TypeError):
        pass
    axes = _whole(value, "axes")
    if len(axes) > _MAX_RANK:
        raise _lib.ShapeError(f"a tensor has at most {_MAX_RANK} axes")
    _fitting(axes, ctypes.c_int, "axes")
    made = _api.gd_axes(len(axes), (ctypes.c_int * _MAX_RANK)(*axes))
    if len(_axes) < 4096:
        made = _axes.setdefault(value if type(value) is int else axes, made)  # none is replaced: its address may be known
    return made


_shapes_at: dict = {}
_axes_at: dict = {}


def shape_at(value: ShapeLike) -> Any:
    """The address of a gd_shape."""
    try:
        return _shapes_at[value]
    except (KeyError, TypeError):
        return _address(shape_of(value), _shapes, _shapes_at, value)


def axes_at(value: AxisLike) -> Any:
    """The address of a gd_axes."""
    try:
        return _axes_at[value]
    except (KeyError, TypeError):
        return _address(axes_of(value), _axes, _axes_at, value)


def _address(struct, kept: dict, addresses: dict, value) -> Any:
    """Of one that is kept for ever, a number, which is quicker to hand over; of another, what keeps it for the call."""
    try:
        if kept.get(value) is struct:
            addresses[value] = ctypes.addressof(struct)
    except TypeError:  # a list
        pass
    return byref(struct)


def dtype_code(value: DTypeLike) -> int:
    return 0 if value is None else dtype(value).code


def dtype_of(code: int) -> DType:
    return BY_CODE[code]


def promoted(a: DType, b: DType) -> DType:
    """The dtype that two operands are computed in."""
    return BY_CODE[C.gd_dtype_promote(a.code, b.code)]


def as_enum(name: str, value) -> int:
    """The number of a constant, "lstm" or 2."""
    constants = _api.ENUMS[name]
    if value in constants:
        return constants[value]
    if type(value) is int:
        return value
    raise _lib.InvalidError(f"{value!r}: expected one of {', '.join(constants)}")


def as_text(value) -> bytes | None:
    """For C, where text ends at its first zero byte: one with more behind it would be another text, or another file."""
    text = as_bytes(value)
    if text is not None and b"\0" in text:
        raise ValueError(f"text with a zero character in it: {value!r}")
    return text


def as_bytes(value) -> bytes | None:
    """For C functions that are given the number of bytes."""
    if value is None or type(value) is bytes:
        return value
    if hasattr(value, "__fspath__"):
        value = value.__fspath__()
    if type(value) is not str:
        raise TypeError(f"expected text, not {type(value).__name__}")
    return value.encode("utf-8")


def strings_of(texts: dict[str, str] | None):
    """(gd_metadata *) of texts by name."""
    return (_api.gd_metadata * max(1, len(texts or ())))(*[(as_text(key), as_text(text)) for key, text in (texts or {}).items()])


def as_handle(value):
    if value is None:
        return None
    try:
        return value.handle
    except AttributeError:
        raise TypeError(f"expected an object of the library, not {type(value).__name__}") from None


def handles(tensors):
    """(gd_tensor *[]) of tensors, of which some may be None."""
    return (ctypes.c_void_p * len(tensors))(*[None if t is None else t._h for t in tensors])


def options_of(struct, _sizeof=sizeof):
    """A struct of options with its defaults."""
    options = struct()
    if struct._fields_[0][0] == "size":
        options.size = _sizeof(struct)
    for name, value in _api.DEFAULTS.get(struct, {}).items():
        setattr(options, name, value)
    return options


def as_struct(struct, value):
    """`value` as that struct: one already, or a dict of its members."""
    if isinstance(value, struct):
        return value
    made, types, kinds = options_of(struct), dict(struct._fields_), _api.KINDS.get(struct, {})
    for name, member in dict(value).items():
        if name not in types:
            raise TypeError(f"{struct.__name__} has no {name}: {', '.join(n for n in types if n != 'size')}")
        kind = kinds.get(name)
        if kind == "gd_dtype":
            member = dtype_code(member)
        elif kind:
            member = as_enum(kind, member)
        elif types[name] is _api.gd_shape:
            member = shape_of(member)
        elif types[name] is ctypes.c_char_p:
            member = as_text(member)
        elif isinstance(member, (list, tuple)) and getattr(types[name], "_type_", None) is ctypes.c_char_p:
            member = types[name](*[as_text(text) for text in member])
        elif name in _api.TENSORS.get(struct, ()):
            member = as_tensor(member)
            made.kept = [*getattr(made, "kept", ()), member]
            member = member._h
        setattr(made, name, member)
    return made


# ---- tensors of what Python has

def as_tensor(value, dtype_: DType | None = None) -> Tensor:
    """`value` itself where it is a Tensor, else a tensor of it: a number, nested lists, an array."""
    if isinstance(value, Tensor):
        return value
    kind = type(value)
    if kind is float or kind is int or kind is bool:
        return from_number(value, dtype_ or (BY_NAME["f32"] if kind is float else BY_NAME["bool"] if kind is bool else BY_NAME["i64"]))
    if kind is list or kind is tuple:
        return from_nested(value, dtype_)
    if hasattr(value, "__array_interface__"):
        return from_array(value)
    if hasattr(value, "__index__"):
        return from_number(value.__index__(), dtype_ or BY_NAME["i64"])
    if hasattr(value, "__float__") and not hasattr(value, "__len__"):
        return from_number(float(value), dtype_ or BY_NAME["f32"])
    try:
        return from_buffer(memoryview(value))
    except TypeError:
        raise TypeError(f"cannot make a tensor of {kind.__name__}") from None


def from_number(value, dtype_: DType) -> Tensor:
    if type(value) is int and dtype_.kind in "iu" and not -_EXACT <= value <= _EXACT:
        try:
            block = value.to_bytes(dtype_.itemsize, "little", signed=dtype_.kind == "i")
        except OverflowError:
            raise _lib.InvalidError(f"{value} is no {dtype_.name}") from None
        return from_bytes(block, (), dtype_)
    return run(C.gd_scalar, _context.current(), value, dtype_.code)


def from_bytes(block, shape, dtype_: DType) -> Tensor:
    """A tensor of row-major bytes, which are copied."""
    return run(C.gd_from_host, _context.current(), shape_of(shape), dtype_.code, block)


def from_buffer(view: memoryview) -> Tensor:
    d = BY_FORMAT.get(view.format.lstrip("<=@"))
    if d is None:
        raise TypeError(f"the format {view.format!r} is no dtype of Gradus")
    return from_bytes(view.tobytes(), view.shape, d)


def from_array(value) -> Tensor:
    """A copy of what has NumPy's __array_interface__."""
    interface = value.__array_interface__
    kind = interface["typestr"]
    d = next((d for d in BY_CODE.values() if d.format and d.typestr[1:] == kind[1:]), None)
    if d is None or kind[0] == ">":
        raise TypeError(f"an array of {getattr(value, 'dtype', kind)} has no dtype of Gradus; convert it first")
    if interface.get("strides") is None and interface.get("data"):
        return from_bytes(interface["data"][0], interface["shape"], d)
    return from_bytes(memoryview(value).tobytes(), interface["shape"], d)


def from_nested(value, dtype_: DType | None) -> Tensor:
    """A tensor of nested lists of numbers or of tensors."""
    shape, leaves = [], [value]
    while leaves and isinstance(leaves[0], (list, tuple)):
        size = len(leaves[0])
        if any(not isinstance(leaf, (list, tuple)) or len(leaf) != size for leaf in leaves):
            raise _lib.ShapeError("nested lists of different lengths are no tensor")
        shape.append(size)
        leaves = [item for leaf in leaves for item in leaf]
        if size == 0:
            break
    if leaves and not all(type(leaf) in (int, float, bool) for leaf in leaves):
        if any(isinstance(leaf, (list, tuple)) for leaf in leaves):
            raise _lib.ShapeError("nested lists of different depths are no tensor")
        from . import _ops
        parts = [as_tensor(leaf, dtype_) for leaf in leaves]
        stacked = _ops.stack(parts)
        return _ops.reshape(stacked, (*shape, *parts[0].shape))
    kinds = {type(leaf) for leaf in leaves}
    d = dtype_ or BY_NAME["f32" if float in kinds or not kinds else "i64" if int in kinds else "bool"]
    through = d if d.format and d.format != "e" else BY_NAME["f32"]
    if through.kind in "iu":
        low = -(1 << 8 * through.itemsize - 1) if through.kind == "i" else 0
        high = low + (1 << 8 * through.itemsize) - 1
        wrong = next((n for n in leaves if not low <= n <= high or n % 1), None)
        if wrong is not None:  # ctypes would cut it off
            raise _lib.InvalidError(f"{wrong} is no {d.name}")
        leaves = [int(leaf) for leaf in leaves]
    elif through.kind == "b":
        leaves = [bool(leaf) for leaf in leaves]
    block = (_CELLS[through.short] * max(1, len(leaves)))(*leaves)
    made = from_bytes(ctypes.addressof(block), shape, through)
    return made if through is d else run(C.gd_cast, made._h, d.code)


_CELLS = {"f32": ctypes.c_float, "f64": ctypes.c_double, "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32,
          "i64": ctypes.c_int64, "u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64,
          "bool": ctypes.c_bool}


# ---- Python's numbers beside tensors: they take the tensor's dtype, and do not change it but for 1.5 beside integers

def beside(number, t: Tensor) -> Tensor:
    """`number` as a tensor of the dtype it has beside t."""
    d = t.dtype
    if type(number) is float and not d.is_float:
        d = BY_NAME["f32"]
    elif type(number) is int and d.kind == "b":
        d = BY_NAME["i64"]
    return near(t, from_number, number, d)


def near(t: Tensor, make, *arguments) -> Tensor:
    """make(*arguments) in t's context."""
    home = home_of(t._h)
    if home is _context.only or home is _context.home():
        return make(*arguments)
    before = _context.enter(home)
    try:
        return make(*arguments)
    finally:
        _context.enter(before)


def operands(x, y) -> tuple:
    if isinstance(x, Tensor):
        return x, beside(y, x) if type(y) in (int, float, bool) else near(x, as_tensor, y)
    y = as_tensor(y)
    return beside(x, y) if type(x) in (int, float, bool) else near(y, as_tensor, x), y


def scalar_op(function, t: Tensor, number) -> Tensor:
    """t with a C number. Where C and NumPy disagree (a float beside integers, integers beyond 2^53), Python's meaning."""
    if type(number) is float:
        if C.gd_tensor_dtype(t._h) in _INTEGERS:
            t = run(C.gd_cast, t._h, BY_NAME["f32"].code)
    elif not -_EXACT <= number <= _EXACT:
        if function.__name__ in _COMPARISONS and not t.dtype.holds(number):
            return run(function, t._h, float("inf") if number > 0 else -float("inf"))
        y = near(t, from_number, number, t.dtype)
        name = function.__name__.removesuffix("_scalar")
        if name.removeprefix("gd_")[0] == "r" and f"gd_{name[4:]}" in _api.FUNCTIONS and name not in _api.FUNCTIONS:
            return run(getattr(C, f"gd_{name[4:]}"), y._h, t._h)
        return run(getattr(C, name), t._h, y._h)
    if held or _pending:
        return run(function, t._h, number)
    h = _claim_number(function.at, t._h, number)
    if h is None:
        fail()
    return wrap(h)


_claim_number = C.gd_claim_with_number
for _name, (_result, _parameters) in _api.FUNCTIONS.items():
    if _name.endswith("_scalar") and _parameters == (ctypes.c_void_p, ctypes.c_double):
        getattr(C, _name).at = function_at(getattr(C, _name))


_COMPARISONS = frozenset(f"gd_{name}_scalar" for name in ("eq", "ne", "lt", "le", "gt", "ge"))
_INTEGERS = frozenset(d.code for d in BY_CODE.values() if not d.is_float)
