"""Classes of layers, losses and optimizers, one for each function of the library that makes one: their options are arguments of
__init__, their tensors those of forward(). Which functions, and the names that PyTorch gives them, stands in python_names.py."""
import pathlib

IMPORTS = ["from __future__ import annotations", "", "TYPE_CHECKING = False", "if TYPE_CHECKING:", "    from typing import Any, Sequence", ""]
TYPES = "AxisLike, DTypeLike, ShapeLike, TensorLike"


def documentation(text):
    """The docstring of a generated function."""
    return '    """' + text.split('"""')[1] + '"""'


def is_tensor(argument):
    return argument.annotation.startswith(("TensorLike", "Sequence[TensorLike]", "_objects."))


def parameters(arguments):
    """The text of parameters: positional ones, then those with keywords."""
    positional = [str(a) for a in arguments if not a.keyword]
    keyword = [str(a) for a in arguments if a.keyword]
    return ", ".join(["self", *positional, *(["*", *keyword] if keyword else [])])


def class_of(name, base, text, attributes, chosen, asked, call):
    """A class whose __init__ takes `chosen` and whose forward takes `asked`. call: the expression that forward gives."""
    defaults = ", ".join(f"{a.name!r}: {a.default}" for a in chosen if a.default is not None)
    named = ", ".join(f"{a.name}={a.name}" for a in chosen)
    lines = [f"class {name}({base}):", documentation(text), "", *[f"    {line}" for line in attributes],
             f"    _defaults = {{{defaults}}}", ""]
    if chosen:
        lines += [f"    def __init__({parameters(chosen)}) -> None:", f"        super().__init__({named})", ""]
    return lines + [f"    def forward({parameters(asked)}) -> {call[0]}:", f"        return {call[1]}", "", ""]


def of_function(name, function, text, plan):
    """A class for a function of tensors: nn.CrossEntropyLoss for gd.cross_entropy."""
    given = [a for a in plan.arguments if is_tensor(a) and not a.keyword and a.default is None]
    chosen = [a for a in plan.arguments if a not in given]
    passed = ", ".join([a.name for a in given] + (["**self.options"] if chosen else []))
    return class_of(name, "Operation", text, [], chosen, given, ("Tensor", f"_ops.{function}({passed})"))


def of_layer(name, method, text, plan, at_call, config_members):
    """A class for a layer of the library over a module of its own: nn.LSTM for net.lstm."""
    arguments = plan.arguments[2:]  # without the module and the name
    outs = {o[1:] for o in plan.outs}
    config = next((a for a in arguments if a.annotation.startswith("_api.gd_transformer_config")), None)
    asked = [a for a in arguments if is_tensor(a) or a.name in outs or a.name in at_call or config and a is not config]
    chosen = [a for a in arguments if a not in asked and a is not config]
    if config:
        chosen = config_members
    given = [a.name for a in asked if not a.keyword]
    options = ", ".join(f"{a.name!r}: {a.name}" for a in asked if a.keyword)
    attributes = [f'_method = "{method}"', *(['_configured = True'] if config else []), *(['_name = ""'] if method in ("decoder_only", "encoder_only") else [])]
    inputs = "(" + "".join(f"{n}, " for n in given).rstrip() + ")"
    return class_of(name, "Named", text, attributes, chosen, asked,
                    ("Tensor | Any" if outs else "Tensor", f"self._call({inputs}, {{{options}}})"))


def write_layers(names, emitted, config_members, out):
    functions = {name: (text, plan) for name, text, plan in emitted.ops}
    lines = ['"""Layers and losses of the library. Made by tools/gen-python from the public headers; do not edit."""', *IMPORTS,
             f"    from .._convert import {TYPES}", "    from .. import _api, _objects", "",
             "from .. import _ops", "from .._tensor import Tensor", "from ._named import Named", "from ._operation import Operation", "", ""]
    made = []
    for name, function in names.LAYERS.items():
        lines += of_function(name, function, *functions[function])
        made.append(name)
    plans = {method: (text, plan) for method, text, plan in emitted.module_methods}
    for name, method in names.MODULE_LAYERS.items():
        lines += of_layer(name, method, *plans[method], names.AT_CALL, config_members)
        made.append(name)
    lines += [f"__all__ = {made!r}", ""]
    pathlib.Path(out, "nn").mkdir(exist_ok=True)
    pathlib.Path(out, "nn", "_generated.py").write_text("\n".join(lines), encoding="utf-8")


def write_optimizers(names, emitted, out):
    """A class for each function that makes an optimizer of a module."""
    lines = ['"""Optimizers of the library. Made by tools/gen-python from the public headers; do not edit."""', *IMPORTS,
             f"    from ._convert import {TYPES}", "    from ._optimizer import Parameters", "",
             "from . import _ops", "from ._optimizer import Optimizer", "", ""]
    made = []
    for function, text, plan in emitted.ops:
        if plan.function.result.base != "gd_optimizer":
            continue
        name, options = names.OPTIMIZERS.get(function, function.capitalize()), plan.arguments[1:]
        lines += [f"class {name}(Optimizer):", documentation(text), "",
                  f"    def __init__({parameters(options).replace('self', 'self, parameters: Parameters', 1)}) -> None:",
                  f"        super().__init__(parameters, _ops.{function}, " + ", ".join(f"{a.name}={a.name}" for a in options) + ")", "", ""]
        made.append(name)
    lines += [f"__all__ = {made!r}", ""]
    pathlib.Path(out, "_optimizers.py").write_text("\n".join(lines), encoding="utf-8")
