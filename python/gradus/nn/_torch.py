"""Values of a PyTorch model for load_state_dict(state, layout="torch"): its names and the layout of its weights."""
from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._tensor import Tensor

_CELLS = {"lstm", "gru", "rnn"}


def sequence(method: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a recurrent or an attention layer of PyTorch under the names of the library's."""
    if method in _CELLS:
        return {_recurrent(name): t.mT if t.ndim == 2 else t for name, t in state.items()}
    if method == "multi_head_attention":
        return dict(_attention(name, t) for name, t in state.items())
    return state


def _recurrent(name: str) -> str:
    """"weight_hh_l1_reverse" is "1.backward.hidden.weight"."""
    parts = re.fullmatch(r"(weight|bias)_(ih|hh)_l(\d+)(_reverse)?", name)
    if parts is None:
        return name
    kind, side, layer, backward = parts.groups()
    return f"{layer}.{'backward' if backward else 'forward'}.{'input' if side == 'ih' else 'hidden'}.{kind}"


def _attention(name: str, t: Tensor) -> tuple[str, Tensor]:
    names = {"in_proj_weight": "qkv.weight", "in_proj_bias": "qkv.bias", "out_proj.weight": "out.weight", "out_proj.bias": "out.bias"}
    return names.get(name, name), t.mT if t.ndim == 2 else t
