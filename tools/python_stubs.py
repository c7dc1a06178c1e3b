"""The stubs of the generated modules, for type checkers and editors: what tools/gen-python made, without bodies, and with each alias
and each method of Tensor written out."""
import ast
import pathlib
import re

HEAD = "# Made by tools/gen-python from the public headers; do not edit.\n"
TYPES = ["from typing import Any", "from collections.abc import Sequence", "",
         "from ._convert import AxisLike as AxisLike, DTypeLike as DTypeLike, ShapeLike as ShapeLike, TensorLike as TensorLike",
         "from ._dtype import DType as DType", "from ._tensor import Tensor as Tensor"]


OPERATORS = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_div", "mod": "mod", "pow": "pow",
             "matmul": "matmul", "neg": "neg", "abs": "abs", "invert": "bitwise_not", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge",
             "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift"}


def signature(text):
    """(name, parameters, result) of the text of a definition."""
    name, parameters, result = re.match(r"def (\w+)\((.*)\) -> (.*):$", text.split("\n", 1)[0]).groups()
    return name, parameters, result


def without_first(parameters):
    """`x: TensorLike, axis: int` as `self, axis: int`: Tensor's methods."""
    first, comma, rest = parameters.partition(", ")
    return "self" + comma + rest


def written_methods(package):
    """{name: (parameters, result)} of the functions in _array_api.py that are methods of Tensor: its list _METHODS, and two operators."""
    path = pathlib.Path(package, "_array_api.py")
    if not path.is_file():
        return {}
    functions, names, other = {}, [], {}
    for module in (path, *pathlib.Path(package).glob("_creation.py")):
        for node in ast.parse(module.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                functions[node.name] = (ast.unparse(node.args), ast.unparse(node.returns) if node.returns else "Any")
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                if node.targets[0].id == "_METHODS":
                    names = ast.literal_eval(node.value).split()
                elif isinstance(node.value, ast.Name):
                    other.update({target.id: node.value.id for target in node.targets})
    names += [f"__{name}__" for name in ("pow", "divmod") if name in functions]
    names += [f"__r{name}__" for name in ("pow", "divmod") if name in functions]
    return {name: functions[other.get(bare, bare)] for name in names for bare in [re.sub("^__r?|__$", "", name)]}


def write_ops(emitted, aliases, methods, everything, package, out):
    lines = [HEAD, *TYPES, "", "from . import _api, _objects", ""]
    known = {name: signature(text) for name, text, _ in emitted.ops}
    for name, (_, parameters, result) in known.items():
        lines.append(f"def {name}({parameters}) -> {result}: ...")
    for alias, name in aliases.items():
        _, parameters, result = known[name]
        lines.append(f"def {alias}({parameters}) -> {result}: ...")
    lines += ["", "class TensorMethods:"]
    shown = {method: known[aliases.get(method, method)][1:] for method in methods}
    shown.update({f"__{operator}__": known[name][1:] for operator, name in OPERATORS.items()})
    shown.update(written_methods(package))
    for method, (parameters, result) in shown.items():
        lines.append(f"    def {method}({without_first(parameters)}) -> {result}: ...")
    lines += ["    def __hash__(self) -> int: ..."]
    lines += ["", f"__all__ = {everything!r}", ""]
    pathlib.Path(out, "_ops.pyi").write_text("\n".join(lines), encoding="utf-8")


def write_objects(emitted, classes, out):
    """`classes`: (type, name of its class) in their order."""
    lines = [HEAD, "import builtins", *TYPES, "", "from . import _api", "from ._context import Object", ""]
    for type, name in classes:
        lines += [f"class {name}(Object):"]
        for method, text, owner in emitted.methods[type]:
            _, parameters, result = signature(text)
            if method == "create" and not owner:
                parameters = ", ".join(["cls", parameters]) if parameters else "cls"
                lines += ["    @classmethod", f"    def create({parameters}) -> {result}: ...",
                          f"    def __new__({parameters}) -> {result}: ..."]
            else:
                lines += [] if owner else ["    @staticmethod"]
                lines.append(f"    def {method}({parameters}) -> {result}: ...")
        lines.append("")
    text = "\n".join(lines).replace("_objects.", "")
    text = re.sub(r"\bstr \| bytes\b", "builtins.str | builtins.bytes", text)  # a class has a method bytes
    pathlib.Path(out, "_objects.pyi").write_text(text, encoding="utf-8")


def member_type(api, numbers, type):
    if type.array is not None:
        return "Any"
    if type.stars == 1 and type.base == "char" and type.const:
        return "bytes | None"
    if type.stars or type.function or type.base in api.callbacks:
        return "int | None"
    if type.base in api.structs:
        return type.base
    return numbers.get(type.base, "int")


def write_api(api, numbers, out):
    lines = [HEAD, "from typing import Any", "", "from ._integers import Struct", "", "HASH: str", ""]
    for struct in api.structs.values():
        lines.append(f"class {struct.name}(Struct):")
        lines += [f"    {member.name}: {member_type(api, numbers, member.type)}" for member in struct.members]
        lines += ["    ..."] if not struct.members else []
        lines.append("")
    lines += ["DEFAULTS: dict[type[Struct], dict[str, Any]]", "KINDS: dict[type[Struct], dict[str, str]]",
              "ENUMS: dict[str, dict[str, int]]", "FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]]", "OWNERS: dict[str, str]", ""]
    pathlib.Path(out, "_api.pyi").write_text("\n".join(lines), encoding="utf-8")
