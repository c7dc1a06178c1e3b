"""Models as data: a graph of layers from JSON, as gd_model_load_json reads it."""
from __future__ import annotations

from .. import _objects
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

    def to_json(self) -> str:
        """The layers; not the values of their parameters."""
        return self._model.format_json()

    def forward(self, *inputs: Tensor) -> Tensor:
        self._model.module().set_training(self.training)
        return self._model.forward(*[as_tensor(x) for x in inputs])

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The loss that the model names, cross entropy unless it does."""
        return self._model.loss(output, target)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of one sample."""
        return self._model.input_shape()

    def __getstate__(self) -> dict[str, Any]:
        return {"json": self.to_json(), "training": self._training,
                "values": {path: t.detach() for path, t in [*self.named_parameters(), *self.named_buffers()]}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Module.__init__(self)
        self._take(_objects.Model.load_json(state["json"]))
        self.load_state_dict(state["values"])
        self.train(state["training"])
