"""What ctypes is told of the library: structs, enums, prototypes, as _api.py has them; and the names that all generated modules share."""
import math
import pathlib
import re

import python_names as names

CTYPES = {"int": "c_int", "int32_t": "c_int32", "int64_t": "c_int64", "uint64_t": "c_uint64", "size_t": "c_size_t",
          "double": "c_double", "float": "c_float", "bool": "c_bool", "uint32_t": "c_uint32", "char": "c_char",
          "unsigned char": "c_ubyte"}
NUMBERS = {"int": "int", "int32_t": "int", "int64_t": "int", "uint64_t": "int", "size_t": "int", "double": "float",
           "float": "float", "bool": "bool"}
KEYWORDS = {"class": "of_class", "lambda": "lambd", "from": "source", "in": "input", "is": "same", "global": "whole"}
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
HEAD = '"""{}. Made by tools/gen-python from the public headers; do not edit."""\n'


class Unsupported(Exception):
    """A type that cannot be handed over by rule; the function is written by hand or explained."""


def camel(name):
    return "".join(word.capitalize() for word in name.removeprefix("gd_").split("_"))


def bare(name):
    if name in names.RENAMED:
        return names.RENAMED[name]
    name = name.removeprefix("gd_").removesuffix("_with")
    return KEYWORDS.get(name, name)


def ctype(api, type):
    """The ctypes type of a parameter, a result or a member."""
    if type.stars or type.function or type.base in api.callbacks:
        text = "c_char_p" if type.stars == 1 and type.base == "char" and type.const else "c_void_p"
    elif type.base in CTYPES:
        text = CTYPES[type.base]
    elif type.base in api.enums:
        text = "c_int"
    elif type.base in api.structs:
        text = type.base
    elif type.base == "void":
        return "None"
    else:
        raise Unsupported(f"the type {type!r}")
    if type.array is not None:
        count = api.constants[type.array] if not type.array.isdigit() else int(type.array)
        text += f" * {count}"
    return text


def literal(value):
    if isinstance(value, float) and not math.isfinite(value):
        return "_NAN" if math.isnan(value) else "_INFINITY" if value > 0 else "-_INFINITY"
    return repr(value)


def write_api(api, out):
    lines = [HEAD.format("What the library declares, for ctypes"),
             "from ctypes import (c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t,",
             "                    c_ubyte, c_uint32, c_uint64, c_void_p)", "",
             "from ._integers import Struct", "",
             f'HASH = "{api.hash}"', '_NAN, _INFINITY = float("nan"), float("inf")', "", ""]
    for struct in api.structs.values():
        lines.append(f"class {struct.name}(Struct):")
        lines.append(f"    _fields_ = {field_list(api, struct)}")
        lines += ["", ""]
    lines.append("DEFAULTS = {  # members whose default is not 0")
    for struct in api.structs.values():
        given = {m.name: m.default for m in struct.members if m.default is not None and m.default != "sizeof"}
        if given:
            values = ", ".join(f"{n!r}: {struct_value(api, struct, n, v)}" for n, v in given.items())
            lines.append(f"    {struct.name}: {{{values}}},")
    lines += ["}", "", "KINDS = {  # members that are enums"]
    for struct in api.structs.values():
        kinds = {m.name: m.type.base for m in struct.members if not m.type.stars and m.type.base in api.enums}
        if kinds:
            lines.append(f"    {struct.name}: {kinds!r},")
    lines += ["}", "", "TENSORS = {  # members that are tensors"]
    for struct in api.structs.values():
        tensors = [m.name for m in struct.members if m.type.stars == 1 and m.type.base == "gd_tensor"]
        if tensors:
            lines.append(f"    {struct.name}: {tensors!r},")
    lines += ["}", "", "ENUMS = {"]
    for name, constants in api.enums.items():
        lines.append(f"    {name!r}: {short_names(constants)!r},")
    lines += ["}", "", "FUNCTIONS = {  # name: (result, parameters)"]
    for function in api.functions.values():
        result = "c_void_p" if function.result.stars and function.result.base == "char" and not function.result.const else \
            ctype(api, function.result)
        parameters = ", ".join(ctype(api, p.type) for p in function.parameters)
        lines.append(f"    {function.name!r}: ({result}, ({parameters}{',' if parameters else ''})),")
    lines += ["}", "", "OWNERS = {  # name: the parameters, by kind and place (base 36), whose context a function works in"]
    lines += [f"    {function.name!r}: {found!r}," for function in api.functions.values() for found in [owners(api, function)] if found]
    lines += ["}", ""]
    pathlib.Path(out, "_api.py").write_text("\n".join(lines), encoding="utf-8")


def owners(api, function):
    """"t0a2": tensor 0 and the array of tensors 2; c: a context, o: another object."""
    found = ""
    for place, p in enumerate(function.parameters):
        base, stars = p.type.base, p.type.stars
        if base == "gd_context" and stars == 1:
            found = f"c{DIGITS[place]}" + found  # it has the first word
        elif base == "gd_tensor" and stars == 1:
            found += f"t{DIGITS[place]}"
        elif base == "gd_tensor" and stars == 2 and p.type.const:
            found += f"a{DIGITS[place]}"
        elif base in api.opaque and stars == 1:
            found += f"o{DIGITS[place]}"
    return found


def field_list(api, struct):
    return "[" + ", ".join(f"({m.name!r}, {ctype(api, m.type)})" for m in struct.members) + "]"


def struct_value(api, struct, member, value):
    """A default as the member's type takes it."""
    type = next(m.type for m in struct.members if m.name == member)
    if isinstance(value, str):
        axes = re.fullmatch(r"GD_AXES\((.*)\)|GD_ALL_AXES", value)
        shape = re.fullmatch(r"GD_SHAPE\((.*)\)", value)
        if axes:
            numbers = [int(n) for n in (axes.group(1) or "").split(",") if n.strip()]
            return f"gd_axes({len(numbers) if axes.group(1) else -1}, (c_int * 8)({', '.join(map(str, numbers))}))"
        if shape:
            numbers = [int(n) for n in shape.group(1).split(",")]
            return f"gd_shape({len(numbers)}, (c_int64 * 8)({', '.join(map(str, numbers))}))"
        if type.base == "char" and type.stars == 1:
            return repr(value.encode())
        raise Unsupported(f"{struct.name}.{member} = {value}")
    if type.base in NUMBERS and NUMBERS[type.base] == "float":
        return literal(float(value))
    return literal(value)


def short_names(constants):
    """{"rnn": 0, "lstm": 2} of GD_CELL_RNN, GD_CELL_LSTM."""
    constants = {name: number for name, number in constants.items() if not name.endswith("_COUNT")}
    words = [name.split("_") for name in constants]
    shared = 0
    while all(len(w) > shared + 1 for w in words) and len({w[shared] for w in words}) == 1:
        shared += 1
    return {"_".join(w[shared:]).lower(): number for w, number in zip(words, constants.values())}
