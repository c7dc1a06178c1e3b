"""The base of layers whose parameters the library makes, and whose classes are generated: nn.LSTM, nn.TransformerEncoder."""
from __future__ import annotations

from .. import _convert, _lib, _objects
from .._tensor import Tensor, as_tensor
from . import _module
from ._module import Module, Parameter
from ._operation import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Named(Module):
    """A layer of the library over a module of its own. Parameters are made by the first input, and have the names of C."""

    _method, _name = "", "layer"
    _configured = False  # whether its options are a gd_transformer_config
    _defaults: dict[str, Any] = {}

    def __init__(self, **options: Any) -> None:
        super().__init__()
        object.__setattr__(self, "options", options)
        object.__setattr__(self, "_net", None)

    def _open(self) -> _objects.Module:
        if self._net is None:
            net = _objects.Module.create(seed=_module.seed_of_a_layer(), dtype=self._dtype)
            for kind, is_parameter in ((self._parameters, True), (self._buffers, False)):
                for path, t in kind.items():
                    _convert.run_status(_lib.C.gd_module_put, net.handle, self._path(path).encode(), t._h, is_parameter)
            object.__setattr__(self, "_net", net)
        return self._net

    def _path(self, path: str) -> str:
        return f"{self._name}.{path}" if self._name else path

    def _call(self, inputs: tuple, options: dict[str, Any]) -> Any:
        """The layer of `inputs`; `options` are those that a call is given."""
        net = self._open()
        net.set_training(self.training)
        layer = getattr(net, self._method)
        given = tuple(as_tensor(t) for t in inputs)
        if self._configured:
            result = layer(self._name, *given, self.options, **options)
        else:
            result = layer(self._name, *given, **self.options, **options)
        known = len(self._parameters) + len(self._buffers)
        for i in range(known, net.count()):
            path = (net.path(i) or "").removeprefix(f"{self._name}." if self._name else "")
            if net.is_parameter(i):
                self._parameters[path] = Parameter._adopt(net.tensor(i))
            else:
                self._buffers[path] = net.tensor(i)
            _module.grow()
        return result

    def _prepare(self, state: dict[str, Tensor]) -> None:
        if not self._parameters and self._net is None:
            for path, value in state.items():
                self._parameters[path] = Parameter(value)
            _module.grow()

    def _converted(self) -> None:
        object.__setattr__(self, "_net", None)

    def _of_torch(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        return _torch.sequence(self._method, state)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_net": None}

    def extra_repr(self) -> str:
        return shown(self.options, self._defaults)


from . import _torch  # noqa: E402
