"""How Python calls a function of the library: from a prototype and its comment to a signature, the lines before the call, and what comes of it."""
import math
import re

import python_names as names
from python_api import camel, CTYPES, KEYWORDS, literal, NUMBERS, short_names, Unsupported

QUICK = {  # parameters, and the function of _convert.py that calls with those
    "gd_tensor*": "run_one", "gd_tensor* gd_tensor*": "run_two", "gd_tensor* gd_axes bool": "run_axes", "gd_tensor* gd_shape": "run_shaped"}
ARRAYS = ("int64_t", "int32_t", "double")  # of numbers, behind their count
STRINGS = "gd_metadata"  # by name, behind their count
EXCEPTIONS = {"SHAPE": "ShapeError", "DTYPE": "TypeError", "MEMORY": "MemoryError", "IO": "OSError",
              "UNSUPPORTED": "NotImplementedError", "STATE": "StateError"}


class Argument:
    """A parameter of the Python function: its name, its default (None: none is given), its annotation."""

    def __init__(self, name, annotation, default=None, keyword=False):
        self.name, self.annotation, self.default, self.keyword = name, annotation, default, keyword

    def __str__(self):
        return f"{self.name}: {self.annotation}" + (f" = {self.default}" if self.default is not None else "")


class Plan:
    """How a function is called: the signature, lines before the call, what is handed to C, further results."""

    def __init__(self, function):
        self.function, self.arguments, self.before, self.handed, self.outs, self.objects = function, [], [], [], [], []
        self.text = False  # writes text to (char *text, size_t size)
        self.array_out = None
        self.raw = False  # takes addresses: for hand-written code alone


def parameter_name(p):
    name = names.PARAMETERS.get(p.name, p.name) if p.type.base in ("gd_axes", "bool") or p.name not in names.PARAMETERS else p.name
    return KEYWORDS.get(name, name)


def is_object(api, type):
    return type.stars == 1 and type.base in api.opaque and type.base != "gd_tensor" and type.base != "gd_context"


def take(api, plan, p, key):
    """Plan one parameter; what is handed over is an expression."""
    function, type, name = plan.function, p.type, parameter_name(p)
    default = names.DEFAULTS.get((function.name, p.name), "none")
    shown = None if default == "none" else literal(default)
    if type.base == "gd_context" and type.stars == 1:
        plan.handed.append("_context.current()")
    elif type.base == "gd_tensor" and type.stars == 1:
        if shown == "None" or may_be_null(function, p.name):
            plan.arguments.append(Argument(name, "TensorLike | None", "None"))
            plan.before.append(f"if {name} is not None and type({name}) is not Tensor: {name} = as_tensor({name})")
            plan.handed.append(f"None if {name} is None else {name}._h")
        else:
            plan.arguments.append(Argument(name, "TensorLike", shown))
            plan.before.append(f"if type({name}) is not Tensor: {name} = as_tensor({name})")
            plan.handed.append(f"{name}._h")
    elif type.base == "gd_tensor" and type.stars == 2 and type.const:
        nullable = may_be_null(function, p.name)
        plan.arguments.append(Argument(name, "Sequence[TensorLike] | None" if nullable else "Sequence[TensorLike]",
                                       "None" if nullable else None))
        test = f"if {name} is not None: " if nullable else ""
        plan.before.append(f"{test}{name} = [None if t is None else as_tensor(t) for t in {name}]")
        plan.handed.append(f"None if {name} is None else handles({name})" if nullable else f"handles({name})")
    elif type.base == "gd_tensor" and type.stars == 2:
        plan.outs.append(name)
        plan.handed.append(f"_out_{name}")
    elif is_object(api, type):
        plan.arguments.append(Argument(name, f"_objects.{camel(type.base)}" if type.base not in names.NO_CLASS else "int"))
        plan.handed.append(f"as_handle({name})" if type.base not in names.NO_CLASS else name)
        plan.objects.append(name)
    elif type.stars == 1 and type.base == "char" and type.const:
        plan.arguments.append(Argument(name, "str | None" if shown == "None" else "str", shown))
        plan.handed.append(f"as_text({name})")
    elif type.stars == 2 and type.base == "char" and type.const:
        plan.arguments.append(Argument(name, "Sequence[str]"))
        plan.before.append(f"{name} = [as_text(t) for t in {name}]")
        plan.handed.append(f"(c_char_p * len({name}))(*{name})")
    elif type.stars == 1 and type.base in ARRAYS and type.const and has_count(function):
        plan.arguments.append(Argument(name, f"Sequence[{NUMBERS[type.base]}]"))
        plan.before.append(f"{name} = tuple({name})")
        plan.handed.append(f"array_of({CTYPES[type.base]}, {name})")
    elif type.stars == 0:
        take_value(api, plan, p, name, shown)
    elif type.stars == 1 and type.base in api.structs and type.const:
        plan.arguments.append(Argument(name, f"_api.{type.base} | dict[str, Any]"))
        plan.before.append(f"{name} = as_struct(_api.{type.base}, {name})")
        plan.handed.append(f"byref({name})")
    elif type.stars == 1 and type.base == "void" and p.name == "user":
        plan.raw = True
        plan.arguments.append(Argument(name, "int"))
        plan.handed.append(name)
    else:
        raise Unsupported(f"{type!r} {p.name}")


def take_value(api, plan, p, name, shown):
    base = p.type.base
    if base in NUMBERS and not p.type.function:
        if shown is None and base == "bool" and p.name in names.OFF:
            shown = "False"
        plan.arguments.append(Argument(name, NUMBERS[base], shown))
        plan.handed.append(name)
    elif base == "gd_shape":
        plan.arguments.append(Argument(name, "ShapeLike", shown))
        plan.handed.append(f"shape_of({name})")
    elif base == "gd_axes":
        plan.arguments.append(Argument(name, "AxisLike", "None" if p.name == "axes" else None))
        plan.handed.append(f"axes_of({name})")
    elif base == "gd_dtype":
        plan.arguments.append(Argument(name, "DTypeLike", "None"))
        plan.handed.append(f"dtype_code({name})")
    elif base in api.enums:
        plan.arguments.append(Argument(name, "str", shown))
        plan.handed.append(f"as_enum({base!r}, {name})")
    elif base in api.callbacks:
        plan.raw = True
        plan.arguments.append(Argument(name, "int"))
        plan.handed.append(name)
    elif base in api.structs:
        plan.arguments.append(Argument(name, f"_api.{base} | dict[str, Any]"))
        plan.handed.append(f"as_struct(_api.{base}, {name})")
    else:
        raise Unsupported(f"{p.type!r} {p.name}")


def may_be_null(function, name):
    """Whether the comment says that the tensor may be left out."""
    return bool(re.search(rf"\b{name}\b[^.;:]* (may be NULL|or NULL|be NULL)\b", function.doc.replace("\n", " ")))


def has_count(function):
    return any(p.name == "count" for p in function.parameters)


def take_member(api, plan, member, struct):
    """Plan an option as a keyword argument. None leaves it at its default."""
    type, name = member.type, KEYWORDS.get(member.name, member.name)
    target = f"options.{member.name}"
    default = member.default
    if type.array is not None:
        plan.arguments.append(Argument(name, "Sequence[int] | None", "None", True))
        plan.before.append(f"if {name} is not None: {target}[:len({name})] = {name}")
        return
    if type.base == "gd_tensor" and type.stars == 1:
        plan.arguments.append(Argument(name, "TensorLike | None", "None", True))
        plan.before.append(f"if {name} is not None: {name} = as_tensor({name}); {target} = {name}._h")
        return
    if type.base == "gd_tensor" and type.stars == 2:  # a further result, given when it is asked for
        plan.arguments.append(Argument(name, "bool", "False", True))
        plan.before.append(f"_out_{name} = c_void_p()")
        plan.before.append(f"if {name}: {target} = addressof(_out_{name})")
        plan.outs.append(f"?{name}")
        return
    if is_object(api, type):
        plan.arguments.append(Argument(name, f"_objects.{camel(type.base)} | None", "None", True))
        plan.before.append(f"if {name} is not None: {target} = as_handle({name})")
        plan.objects.append(name)
        return
    if type.stars == 1 and type.base == "char" and type.const:
        plan.arguments.append(Argument(name, "str | None", "None", True))
        plan.before.append(f"if {name} is not None: {target} = as_text({name})")
        return
    if type.stars == 0 and type.base in NUMBERS:
        if default is None:
            default = False if type.base == "bool" else 0.0 if NUMBERS[type.base] == "float" else 0
        if isinstance(default, float) and math.isnan(default):
            plan.arguments.append(Argument(name, f"{NUMBERS[type.base]} | None", "None", True))
            plan.before.append(f"if {name} is not None: {target} = {name}")
        else:
            if NUMBERS[type.base] == "float":
                default = float(default)
            elif NUMBERS[type.base] == "bool":
                default = bool(default)
            shown = "float('inf')" if default == math.inf else repr(default)
            plan.arguments.append(Argument(name, NUMBERS[type.base], shown, True))
            plan.before.append(f"{target} = {name}")
        return
    if type.stars == 0 and type.base in api.enums and type.base != "gd_dtype":
        constants = short_names(api.enums[type.base])
        shown = next((n for n, number in constants.items() if number == (default or 0)), None)
        plan.arguments.append(Argument(name, "str", repr(shown), True))
        plan.before.append(f"{target} = as_enum({type.base!r}, {name})")
        return
    if type.stars == 0 and type.base in ("gd_shape", "gd_axes", "gd_dtype"):
        convert = {"gd_shape": "shape_of", "gd_axes": "axes_of", "gd_dtype": "dtype_code"}[type.base]
        note = {"gd_shape": "ShapeLike | None", "gd_axes": "AxisLike", "gd_dtype": "DTypeLike"}[type.base]
        plan.arguments.append(Argument(name, note, "None", True))
        plan.before.append(f"if {name} is not None: {target} = {convert}({name})")
        return
    if type.stars == 1 and type.base in api.structs and type.const:
        plan.arguments.append(Argument(name, f"_api.{type.base} | dict[str, Any] | None", "None", True))
        plan.before.append(f"if {name} is not None: {name} = as_struct(_api.{type.base}, {name}); {target} = addressof({name})")
        return
    if type.base in api.callbacks or type.base == "void" or type.stars:  # addresses, which hand-written code fills in
        plan.raw = plan.raw or type.base in api.callbacks
        plan.arguments.append(Argument(name, "int", "0", True))
        plan.before.append(f"{target} = {name}")
        return
    raise Unsupported(f"{struct.name}.{member.name}: {type!r}")


def take_options(api, plan, p):
    """A struct of options: its members become keyword arguments."""
    struct = api.structs[p.type.base]
    plan.before.append(f"options = options_of(_api.{struct.name})")
    for member in struct.members:
        if member.name != "size":
            take_member(api, plan, member, struct)
    plan.handed.append("byref(options)")


def bytes_before(parameters, size):
    """The parameter whose bytes `size` counts."""
    before = parameters[parameters.index(size) - 1]
    return before.name if before.name in ("text", "bytes") and before.type.const else None


def is_options(api, type):
    return type.base in api.structs and type.base.endswith("_options") and type.stars == 1 and type.const


def plan_function(api, function, fixed=None):
    """How Python calls a function; `fixed` are parameters with a value ({"axes": 2} for conv2d)."""
    plan = Plan(function)
    parameters = function.parameters
    if len(parameters) >= 2 and parameters[-1].name == "size" and parameters[-2].type.base == "char" and \
            not parameters[-2].type.const:
        plan.text, parameters = True, parameters[:-2]
    counted = next((q.name for q in parameters if q.type.stars and q.type.const and
                    (q.type.stars == 2 or q.type.base in ARRAYS)), None)
    further = [parameter_name(q) for q in parameters if q.name != counted and q.type.stars and q.type.const and
               (q.type.stars == 2 or q.type.base in ARRAYS)] if counted and has_count(function) else []
    for p in parameters:
        if fixed and p.name in fixed:
            plan.handed.append(str(fixed[p.name]))
        elif p.name == "size" and bytes_before(parameters, p):
            plan.handed.append(f"len({bytes_before(parameters, p)})")
        elif p.name in ("text", "bytes") and p.type.stars == 1 and any(q.name == "size" for q in parameters):
            plan.arguments.append(Argument(p.name, "str | bytes"))
            plan.before.append(f"{p.name} = as_bytes({p.name})")
            plan.handed.append(p.name)
        elif any(p.name == q.name[:-1] + "_count" and q.type.base == "gd_tensor" and q.type.stars == 2 and not q.type.const
                 for q in parameters):
            raise Unsupported("as many results as the object says")
        elif p.name.endswith("_count") and p.name[:-6] + "s" in [q.name for q in parameters]:
            plan.handed.append(f"len({p.name[:-6]}s)")
        elif any(p.name == f"{q.name}_count" and q.type.base == STRINGS for q in parameters):
            plan.handed.append(f"len({p.name[:-6]} or ())")
        elif p.type.base == STRINGS and p.type.stars == 1 and any(q.name == f"{p.name}_count" for q in parameters):
            plan.arguments.append(Argument(p.name, "dict[str, str] | None", "None"))
            plan.handed.append(f"strings_of({p.name})")
        elif p.name == "count" and counted and p.type.base in ("int", "int64_t", "size_t"):
            plan.handed.append(f"len({parameter_name(next(q for q in parameters if q.name == counted))})")
        elif is_options(api, p.type):
            take_options(api, plan, p)
        else:
            take(api, plan, p, p.name)
    for name in further:  # one count for all of them
        first = parameter_name(next(q for q in parameters if q.name == counted))
        plan.before.append(f"if len({name}) != len({first}): raise ValueError('{first} and {name} differ in length')")
    if len(plan.outs) == 1 and function.result.base == "gd_status":
        plan.array_out = next((h for h in reversed(plan.handed) if h.startswith("len(") or h == "count"), None)
    order = names.ORDER.get(function.name)
    if order:
        rank = {names.PARAMETERS.get(n, n): i for i, n in enumerate(order.split())}
        plan.arguments.sort(key=lambda a: rank.get(a.name, 99))
    positional = [a for a in plan.arguments if not a.keyword]
    plan.arguments = [a for a in positional if a.default is None] + [a for a in positional if a.default is not None] + \
        [a for a in plan.arguments if a.keyword]
    return plan


# ---- what a call gives, in Python

def documentation(function, own):
    text = function.doc or "See the header."
    text = re.sub(r"\bgd_(\w+?)(_with)?\b", r"\1", text).replace("\\", "\\\\").replace('"""', "'''")
    text = re.sub(r"\bGD_ERR_(\w+)", lambda m: EXCEPTIONS.get(m[1], "ValueError"), text)
    return "    " + f'"""{text}\n\nC: {own}, gradus/{function.header}"""'.replace("\n", "\n    ").replace("\n    \n", "\n\n")


def quick_call(function, plan):
    """The call in one with gd_claim, of functions that have the form of one in foreign.h; else None."""
    form = " ".join(p.type.base + "*" * p.type.stars for p in function.parameters)
    if form not in QUICK:
        return None
    handed = [re.sub(r"^(axes|shape)_of\(", r"\1_at(", h) for h in plan.handed]
    return f"return {QUICK[form]}(_at_{function.name[3:]}, {', '.join(handed)})"


def call_lines(api, plan):
    """The lines that call C and give the result, and the annotation of it."""
    function = plan.function
    c, arguments, result = f"_C.{function.name}", ", ".join(plan.handed), function.result
    call = f"{c}, {arguments}" if arguments else c
    before = [f"_out_{o} = c_void_p()" for o in plan.outs if not plan.array_out and o[0] != "?"]
    if plan.text:
        return [f"return run_text({call})"], "str"
    if plan.array_out:
        out = plan.outs[0]
        return [f"_out_{out} = (c_void_p * {plan.array_out})()", f"return run_list(_out_{out}, {call})"], "list[Tensor]"
    if result.base == "gd_tensor" and result.stars:
        outs = [o for o in plan.outs if o[0] != "?"]
        if outs:
            call = call.replace(*[f"_out_{outs[0]}", f"byref(_out_{outs[0]})"]) if len(outs) == 1 else \
                re.sub(r"\b(_out_\w+)", r"byref(\1)", call)
            return before + [f"return run_outs(({', '.join(f'_out_{o}' for o in outs)},), {call})"], "tuple[Tensor, ...]"
        asked = [o[1:] for o in plan.outs]
        if asked:
            return [f"_outs = [o for o, wanted in ({', '.join(f'(_out_{o}, {o})' for o in asked)},) if wanted]",
                    f"return run_outs(_outs, {call}) if _outs else run({call})"], "Tensor | Any"
        first = plan.arguments[0].name if plan.arguments else ""
        if function.name.endswith("_"):
            return [f"return run_in_place({first}, {call})"], "Tensor"
        returned = re.search(r"Returns (\w+)\.", function.doc)
        if returned and returned.group(1) in [a.name for a in plan.arguments]:
            return [f"run({call})", f"return {returned.group(1)}"], "Tensor"
        return [quick_call(function, plan) or f"return run({call})"], "Tensor"
    if result.base == "gd_status" and result.stars == 0:
        if plan.outs:
            outs = [o for o in plan.outs]
            call = re.sub(r"\b(_out_\w+)", r"byref(\1)", call)
            return before + [f"return run_status_outs(({', '.join(f'_out_{o}' for o in outs)},), {call})"], "tuple[Tensor, ...]"
        return [f"run_status({call})"], "None"
    if is_object(api, result):
        if result.base in names.NO_CLASS:
            return [f"return run_handle({call})"], "int"
        cls = f"_objects.{camel(result.base)}"
        if function.name in names.BORROWED:
            return [f"return {cls}._borrowed(run_handle({call}), {plan.objects[0]})"], cls
        return [f"return {cls}._made(run_handle({call}), ({', '.join(plan.objects)}{',' if plan.objects else ''}))"], cls
    if result.base == "gd_context" and result.stars:
        return [f"return run_handle({call})"], "int"
    if result.base == "char" and result.stars and result.const:
        return [f"return run_string({call})"], "str | None"
    if result.base == "void" and not result.stars:
        return [f"run_value({call})"], "None"
    if result.stars == 1 and result.const and result.base in api.structs:
        return [f"return _api.{result.base}.from_buffer_copy(_api.{result.base}.from_address(run_handle({call})))"], f"_api.{result.base}"
    if result.stars:
        raise Unsupported(f"gives {result!r}")
    if result.base == "gd_shape":
        return [f"return run_shape({call})"], "tuple[int, ...]"
    if result.base == "gd_dtype":
        return [f"return dtype_of(run_value({call}))"], "DType"
    return [f"return run_value({call})"], NUMBERS.get(result.base, f"_api.{result.base}" if result.base in api.structs else "int")


def definition(api, plan, name, first=None):
    """The text of a function; `first` is the name its first parameter gets in a method."""
    lines, note = call_lines(api, plan)
    arguments = [str(a) for a in plan.arguments if not a.keyword]
    keyword = [str(a) for a in plan.arguments if a.keyword]
    signature = ", ".join(arguments + (["*", *keyword] if keyword else []))
    body = [*plan.before, *lines]
    if first:
        signature = ", ".join(["self", *signature.split(", ")[1:]]) if signature else "self"
        body.insert(0, f"{first} = self")
    text = [f"def {name}({signature}) -> {note}:", documentation(plan.function, plan.function.name)]
    return "\n".join(text + ["    " + line for line in body])


def scalar_form(api, plan):
    """The lines by which x + 2.0 and 2.0 + x take the forms with a C number."""
    name = plan.function.name
    parameters = plan.function.parameters
    if len(parameters) != 2 or not all(p.type.base == "gd_tensor" and p.type.stars == 1 for p in parameters):
        return None
    x, y = (a.name for a in plan.arguments[:2])
    lines = [f"if type({x}) is not Tensor or type({y}) is not Tensor:"]
    right, left = f"{name}_scalar", f"gd_r{name[3:]}_scalar"
    if right in api.functions:
        lines.append(f"    if type({y}) in NUMBERS and type({x}) is Tensor: return scalar_op(_C.{right}, {x}, {y})")
        if left in api.functions:
            lines.append(f"    if type({x}) in NUMBERS and type({y}) is Tensor: return scalar_op(_C.{left}, {y}, {x})")
        elif name in ("gd_add", "gd_mul"):
            lines.append(f"    if type({x}) in NUMBERS and type({y}) is Tensor: return scalar_op(_C.{right}, {y}, {x})")
    lines.append(f"    {x}, {y} = operands({x}, {y})")
    return lines
