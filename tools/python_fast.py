"""Writes gradus._fast's generated part (python/fast/fast.h): a C function for each op whose parameters it can read, and Tensor's
methods that are such ops. tools/gen-python calls it; what is not written here stays Python's."""
import ast
import inspect
import math
import pathlib
import re
import textwrap

from python_api import KEYWORDS, short_names
from python_calls import documentation, scalar_form

HAND_WRITTEN = pathlib.Path(__file__).resolve().parent.parent / "python/fast"
MOST_TENSORS = 64
CONVERSIONS = {"int": "fast_int", "int64_t": "fast_int64", "double": "fast_double", "bool": "fast_bool"}
HEAD = "/* {}. Made by tools/gen-python from the public headers; do not edit. */\n"


class LeftOut(Exception):
    """The function stays Python's."""


def literal(value):
    """A Python literal in C."""
    value = ast.literal_eval(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    if isinstance(value, (int, float)):
        return f"INT64_C({value})" if isinstance(value, int) and abs(value) >= 2 ** 31 else repr(value)
    raise LeftOut(f"the default {value!r}")


class Body:
    """The function that reads v[] and calls C: declarations, conditions, what is handed over."""

    def __init__(self, api, plan):
        self.api, self.plan = api, plan
        self.places = {a.name: i for i, a in enumerate(plan.arguments)}
        self.lines, self.conditions, self.handed = [], [], []

    def argument(self, name):
        """(v[i], a name for it in C, its default or None)"""
        place = self.places[name]
        return f"v[{place}]", f"a{place}", self.plan.arguments[place].default

    def need(self, declaration, condition, handed):
        self.lines.append(declaration)
        self.conditions.append(condition)
        self.handed.append(handed)

    def take(self, p, handed):
        """Plan a parameter that Python hands over by this expression."""
        tensors = re.fullmatch(r"handles\((\w+)\)", handed)
        counted = re.fullmatch(r"len\((\w+)\)", handed)
        tensor = re.fullmatch(r"(?:None if \w+ is None else )?(\w+)\._h", handed)
        converted = re.fullmatch(r"(shape_of|axes_of|dtype_code)\((\w+)\)", handed)
        enum = re.fullmatch(r"as_enum\('(\w+)', (\w+)\)", handed)
        if handed == "_context.current()":
            self.conditions.append("fast_context()")
            self.handed.append("fast_context()")
        elif handed.isdigit():
            self.handed.append(handed)
        elif handed == "byref(options)":
            self.options(self.api.structs[p.type.base])
        elif tensors:
            v, name, _ = self.argument(tensors[1])
            self.need(f"gd_tensor *{name}[{MOST_TENSORS}]; int n{name} = 0;", f"fast_tensors({v}, {MOST_TENSORS}, {name}, &n{name})", name)
        elif counted and f"handles({counted[1]})" in self.plan.handed:
            self.handed.append(f"n{self.argument(counted[1])[1]}")
        elif tensor:
            v, name, default = self.argument(tensor[1])
            if default not in (None, "None"):
                raise LeftOut(f"the default {default}")
            self.need(f"gd_tensor *{name} = NULL;", f"fast_tensor_{'or_none' if default else 'of'}({v}, &{name})", name)
        elif converted:
            self.converted(converted[1], *self.argument(converted[2]))
        elif enum:
            v, _, default = self.argument(enum[2])
            if default is None:
                raise LeftOut("a constant by its name")
            constants = short_names(self.api.enums[enum[1]])
            self.conditions.append(f"!{v}")
            self.handed.append(str(constants[ast.literal_eval(default)]))
        elif handed in self.places and p.type.stars == 0 and p.type.base in CONVERSIONS:
            v, name, default = self.argument(handed)
            if default == "None":
                raise LeftOut("a number that may be left out")
            start = "0" if default is None else literal(default)
            self.need(f"{p.type.base} {name} = {start};", f"{CONVERSIONS[p.type.base]}({v}, &{name})", name)
        else:
            raise LeftOut(f"{handed} of {p.type!r}")

    def converted(self, how, v, name, default):
        if default not in (None, "None"):
            raise LeftOut(f"the default {default}")
        type, start = {"shape_of": ("gd_shape", "{ 0 }"), "axes_of": ("gd_axes", "GD_ALL_AXES"), "dtype_code": ("gd_dtype", "GD_F32")}[how]
        self.need(f"{type} {name} = {start};", f"fast_{type[3:]}({v}, &{name})", name)

    def options(self, struct):
        defaults = f"GD_{struct.name.removeprefix('gd_').removesuffix('_options').upper()}_DEFAULTS"
        if defaults not in self.api.macros:
            raise LeftOut(f"no {defaults}")
        self.lines.append(f"{struct.name} options = {{ {defaults} }};")
        for member in struct.members:
            if member.name != "size":
                self.member(member)
        self.handed.append("&options")

    def member(self, member):
        type, target = member.type, f"options.{member.name}"
        v, _, default = self.argument(KEYWORDS.get(member.name, member.name))
        plain = type.stars == 0 and type.array is None
        if type.base == "gd_tensor" and type.stars == 1 and not type.const:
            self.conditions.append(f"fast_tensor_or_none({v}, &{target})")
        elif plain and type.base in CONVERSIONS:
            given = f"{CONVERSIONS[type.base]}({v}, &{target})"
            self.conditions.append(f"({v} == Py_None || {given})" if default == "None" else given)
        elif plain and type.base in ("gd_shape", "gd_axes", "gd_dtype"):
            self.conditions.append(f"({v} == Py_None || fast_{type.base[3:]}({v}, &{target}))")
        elif default in ("None", "False"):
            self.conditions.append(f"fast_absent({v})")
        else:
            self.conditions.append(f"!{v}")

    def text(self):
        function = self.plan.function
        if len(self.plan.handed) != len(function.parameters):
            raise LeftOut("text")
        for p, handed in zip(function.parameters, self.plan.handed):
            self.take(p, handed)
        call = f"lib.{function.name}({', '.join(self.handed)})"
        conditions = " && ".join(self.conditions) or "true"
        return [*self.lines, f"if (!({conditions}))", "    return 0;", f"*result = fast_finish({call});", "return 1;"]


def scalar_body(api, plan):
    """Of two operands, one of which may be a number."""
    name = plan.function.name
    right, left = f"{name}_scalar", f"gd_r{name[3:]}_scalar"
    if left not in api.functions and name in ("gd_add", "gd_mul"):
        left = right
    lines = ["gd_tensor *x, *y;", "bool is_x = fast_tensor_of(v[0], &x), is_y = fast_tensor_of(v[1], &y);",
             "if (is_x && is_y) {", f"    *result = fast_finish(lib.{name}(x, y));", "    return 1;", "}"]
    if right in api.functions:
        lines += ["double number;", "if (is_x && fast_number(v[1], x, &number)) {",
                  f"    *result = fast_finish(lib.{right}(x, number));", "    return 1;", "}"]
        if left in api.functions:
            lines += ["if (is_y && fast_number(v[0], y, &number)) {",
                      f"    *result = fast_finish(lib.{left}(y, number));", "    return 1;", "}"]
    return [*lines, "return 0;"]


def body(api, plan):
    function = plan.function
    if function.result.base != "gd_tensor" or function.result.stars != 1:
        raise LeftOut("no tensor comes of it")
    if plan.text or plan.array_out or plan.raw or any(o[0] != "?" for o in plan.outs) or function.name.endswith("_"):
        raise LeftOut("several results, or in place")
    returned = re.search(r"Returns (\w+)\.", function.doc)
    if returned and returned.group(1) in [a.name for a in plan.arguments]:
        raise LeftOut("it gives its argument back")
    return scalar_body(api, plan) if scalar_form(api, plan) else Body(api, plan).text()


def quoted(text):
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("?", "\\?")
    return '"' + escaped.replace("\n", '\\n"\n    "') + '"'


def signature(plan, name, is_method):
    """As inspect reads it in a docstring's first line."""
    shown = [a.name + (f"={a.default}".replace("float('inf')", "1e999") if a.default is not None else "") for a in plan.arguments]
    keyword = [text for a, text in zip(plan.arguments, shown) if a.keyword]
    positional = [text for a, text in zip(plan.arguments, shown) if not a.keyword]
    if is_method:
        positional[0] = "$self"
    return f"{name}({', '.join(positional + (['*', *keyword] if keyword else []))})\n--\n\n"


def write(api, emitted, methods, out):
    """`methods` are (name in Tensor, name of the op)."""
    texts, found = [], {}
    for name, _, plan in emitted.ops:
        try:
            lines = body(api, plan)
        except LeftOut:
            continue
        found[name] = (len(found), plan)
        texts += [f"static int run_{name}(PyObject *const *v, PyObject **result)", "{", *("    " + line for line in lines), "}", "",
                  f"static PyObject *f_{name}(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names)", "{",
                  "    (void)self;", f"    return fast_run({found[name][0]}, NULL, args, n, names);", "}", ""]
    kept = [(method, op) for method, op in methods if op in found]
    for op in dict.fromkeys(op for _, op in kept):
        texts += [f"static PyObject *m_{op}(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names)", "{",
                  f"    return fast_run({found[op][0]}, self, args, n, names);", "}", ""]
    for name, (_, plan) in found.items():
        parameters = ", ".join(f'"{a.name}"' for a in plan.arguments)
        texts.append(f"static const char *const parameters_{name}[] = {{ {parameters or 'NULL'} }};")
    texts += ["", "const fast_op fast_ops[] = {"]
    for name, (_, plan) in found.items():
        own = [a for a in plan.arguments if not a.keyword]
        required = sum(a.default is None for a in own)
        doc = inspect.cleandoc(ast.literal_eval(textwrap.dedent(documentation(plan.function, plan.function.name))))
        texts.append(f'    {{ "{name}", parameters_{name}, {len(plan.arguments)}, {len(own)}, {required}, run_{name},\n    '
                     f"{quoted(signature(plan, name, False) + doc)}, f_{name} }},")
    texts += ["};", f"const int fast_op_count = {len(found)};", "", "PyMethodDef fast_methods[] = {"]
    for method, op in kept:
        texts.append(f'    {{ "{method}", (PyCFunction)(void (*)(void))m_{op}, METH_FASTCALL | METH_KEYWORDS,\n    '
                     f'{quoted(signature(found[op][1], method, True) + f"As gd.{op}.")} }},')
    texts += ["    { 0 },", "};", f"const int fast_method_count = {len(kept)};", f'const char fast_api_hash[] = "{api.hash}";', ""]
    generated = "\n".join(texts)
    used = set(re.findall(r"\blib\.(gd_\w+)", generated + "".join(p.read_text(encoding="utf-8") for p in HAND_WRITTEN.glob("*.[ch]"))))
    head = HEAD.format("A function for each op") + '#include "fast.h"\n\n#include <math.h>\n\n' \
        "#pragma GCC diagnostic ignored \"-Woverlength-strings\"\n\n"
    pathlib.Path(out, "fast_ops.c").write_text(head + generated, encoding="utf-8")
    pathlib.Path(out, "fast_functions.def").write_text(
        HEAD.format("The functions of the library that gradus._fast calls") + "".join(f"FAST_POINTER({name})\n" for name in sorted(used)),
        encoding="utf-8")
