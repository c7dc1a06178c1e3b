"""Layers for sequences [batch, time, width]: those of the library, whose options they take and whose parameters' names they have."""
from __future__ import annotations

from .. import _convert, _lib, _objects
from .._tensor import Tensor, as_tensor
from . import _module
from ._module import Module, Parameter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_made = 0


class _Named(Module):
    """A layer of the library over a module of its own. Parameters are made by the first input."""

    _method, _name = "", "layer"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__()
        object.__setattr__(self, "arguments", arguments)
        object.__setattr__(self, "options", options)
        object.__setattr__(self, "_net", None)

    def _open(self) -> _objects.Module:
        if self._net is None:
            global _made
            _made += 1
            net = _objects.Module.create(seed=_module.current_seed() * 1_000_003 + _made)
            for kind, is_parameter in ((self._parameters, True), (self._buffers, False)):
                for path, t in kind.items():
                    _convert.run_status(_lib.C.gd_module_put, net.handle, self._path(path).encode(), t._h, is_parameter)
            object.__setattr__(self, "_net", net)
        return self._net

    def _path(self, path: str) -> str:
        return f"{self._name}.{path}" if self._name else path

    def _call(self, inputs: tuple, options: dict) -> Any:
        net = self._open()
        net.set_training(self.training)
        result = getattr(net, self._method)(self._name, *inputs, *self.arguments, **self.options, **options)
        known = len(self._parameters) + len(self._buffers)
        for i in range(known, net.count()):
            path = net.path(i).removeprefix(f"{self._name}." if self._name else "")
            if net.is_parameter(i):
                self._parameters[path] = Parameter._adopt(net.tensor(i))
            else:
                self._buffers[path] = net.tensor(i)
            _module.grow()
        return result

    def forward(self, *inputs: Any, **options: Any) -> Any:
        return self._call(tuple(as_tensor(t) for t in inputs), options)

    def __getstate__(self) -> dict:
        return {**super().__getstate__(), "_net": None}

    def extra_repr(self) -> str:
        return ", ".join([*map(repr, self.arguments), *(f"{name}={value!r}" for name, value in self.options.items())])


class LSTM(_Named):
    """LSTM(units, layers=1, bidirectional=False, dropout=0.0): [batch, time, any] -> [batch, time, units]."""
    _method = "lstm"


class GRU(_Named):
    """GRU(units, layers=1, bidirectional=False, dropout=0.0)."""
    _method = "gru"


class RNN(_Named):
    """RNN(units, layers=1, bidirectional=False, relu=False)."""
    _method = "rnn"


class MultiheadAttention(_Named):
    """MultiheadAttention(heads, causal=False, dropout=0.0): self-attention of x, or with memory= to another sequence."""
    _method = "multi_head_attention"


class FeedForward(_Named):
    """FeedForward(hidden, activation="gelu", dropout=0.0)."""
    _method = "feed_forward"


class _Configured(_Named):
    """A layer that a gd_transformer_config describes, whose members are the keyword arguments."""

    def __init__(self, **config: Any) -> None:
        super().__init__(config)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.arguments[0].items())


class TransformerEncoderLayer(_Configured):
    """TransformerEncoderLayer(heads=8, hidden=2048, dropout=0.1)(x, causal=False, mask=None)."""
    _method = "encoder_layer"


class TransformerEncoder(_Configured):
    """TransformerEncoder(heads=8, layers=6)(x)."""
    _method = "encoder"


class TransformerDecoderLayer(_Configured):
    """TransformerDecoderLayer(heads=8)(x, memory)."""
    _method = "decoder_layer"


class TransformerDecoder(_Configured):
    """TransformerDecoder(heads=8, layers=6)(x, memory)."""
    _method = "decoder"


class Transformer(_Configured):
    """Transformer(heads=8, layers=6)(source, target)."""
    _method = "transformer"


class DecoderOnly(_Configured):
    """DecoderOnly(vocabulary=65, width=384, heads=6, layers=6, max_length=256)(tokens) -> logits: GPT-2's or Llama's architecture."""
    _method, _name = "decoder_only", ""


class EncoderOnly(_Configured):
    """EncoderOnly(vocabulary=…, width=…, heads=…, layers=…)(tokens) -> [batch, time, width]."""
    _method, _name = "encoder_only", ""
