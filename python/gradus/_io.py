"""Tensors in safetensors files."""
from __future__ import annotations

import ctypes

from . import _api, _objects
from ._convert import as_tensor, as_text, run_status, strings_of
from ._lib import C
from ._tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def save(path: Any, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write tensors by name, and strings, to a safetensors file: the old file stands until the whole new one does."""
    tensors = {name: as_tensor(t) for name, t in tensors.items()}
    named = (_api.gd_named_tensor * max(1, len(tensors)))(*[(as_text(name), t._h) for name, t in tensors.items()])
    run_status(C.gd_tensors_save, as_text(path), len(tensors), named, len(metadata or ()), strings_of(metadata))


def load(path: Any) -> dict[str, Tensor]:
    """The tensors of a safetensors file by their names."""
    file, found = _objects.TensorFile.open(path), {}
    try:
        for i in range(file.count()):
            info = _api.gd_tensor_info()
            run_status(C.gd_tensor_file_info, file.handle, i, ctypes.byref(info))
            found[info.name.decode()] = file.read(i)
        return found
    finally:
        file.close()
