"""Models as data: a graph of layers from JSON, as gd_model_load_json reads it."""
from __future__ import annotations

import json as _json

from .. import _convert, _objects
from .._lib import C
from .._tensor import Tensor, as_tensor
from ._module import Module, Parameter, current_seed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Model(Module):
    """A model of the library, which is a list of layers. Its parameters are made at once, under the names of C, from `seed`; None:
    the one gd.seed was given.

        model = nn.Model.from_json("examples/models/mnist_mlp.json")
    """

    def __init__(self, model: _objects.Model) -> None:
        super().__init__()
        self._take(model)

    def _take(self, model: _objects.Model) -> None:
        object.__setattr__(self, "_model", model)
        module = model.module()
        for i in range(module.count()):
            kind = self._parameters if module.is_parameter(i) else self._buffers
            kind[module.path(i) or ""] = Parameter._adopt(module.tensor(i)) if module.is_parameter(i) else module.tensor(i)

    @classmethod
    def from_json(cls, json: Any, seed: int | None = None) -> Model:
        """Of a file, or of JSON text, told by its first character."""
        return cls(_objects.Model.load_json(json, seed=current_seed() if seed is None else seed))

    @classmethod
    def from_file(cls, path: Any) -> Model:
        """What save() of one, or gd_model_save, wrote: the layers and the values of their parameters."""
        return cls(_objects.Model.load(path))

    def save(self, path: Any) -> None:
        """Write layers and values to one safetensors file; load() takes the values of such a file over."""
        self._model.save(path)

    def to_json(self) -> str:
        """The layers; not the values of their parameters."""
        return self._model.format_json()

    def forward(self, *inputs: Any) -> Any:
        """The outputs, in their order: a tensor, or a tuple of them where the model has several."""
        self._model.module().set_training(self.training)
        if self._model.input_count() == self._model.output_count() == len(inputs) == 1:
            return self._model.forward(inputs[0])
        tensors, outputs = [as_tensor(x) for x in inputs], (_convert.ctypes.c_void_p * self._model.output_count())()
        found = _convert.run_list(outputs, C.gd_model_forward_all, self._model.handle, len(tensors), _convert.handles(tensors),
                                  len(outputs), outputs)
        return found[0] if len(found) == 1 else tuple(found)

    def loss(self, outputs: Any, *targets: Any) -> Tensor:
        """The losses that the model names, each times its scale: of what forward() gave, and of the targets in the order of the losses.
        Cross entropy, unless it names any."""
        several = outputs if isinstance(outputs, (tuple, list)) else [outputs]
        if len(several) == len(targets) == 1:
            return self._model.loss(several[0], targets[0])
        return self._model.loss_all(several, list(targets))

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        """The shape of a sample of each input, by their names."""
        return {self._model.input_name(i) or "": self._model.input_shape(i) for i in range(self._model.input_count())}

    @property
    def outputs(self) -> list[str]:
        """The names of the layers whose results are given."""
        return [self._model.output_name(i) or "" for i in range(self._model.output_count())]

    @property
    def layers(self) -> list[dict[str, Any]]:
        """Each as it is described in JSON, and its "result", the shape, and "parameters", how many numbers."""
        model = self._model
        return [{**_json.loads(model.layer_format_json(i)), "result": (None, *model.layer_shape(i)[1:]),
                 "parameters": model.layer_parameter_count(i)} for i in range(model.layer_count())]

    def edit(self, seed: int | None = None) -> _objects.ModelBuilder:
        """For another model with layers put in, replaced or taken out, which shares the parameters of the others with this one:

            builder = model.edit()
            builder.replace({"name": "out", "type": "linear", "units": 3})
            other = nn.Model(builder.end())
        """
        return self._model.edit(current_seed() if seed is None else seed)

    def __getstate__(self) -> dict[str, Any]:
        return {"json": self.to_json(), "training": self._training,
                "values": {path: t.detach() for path, t in [*self.named_parameters(), *self.named_buffers()]}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Module.__init__(self)
        self._take(_objects.Model.load_json(state["json"]))
        self.load_state_dict(state["values"])
        self.train(state["training"])
