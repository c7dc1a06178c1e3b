"""Networks: modules, layers, losses. Weights of linear layers are [in, out]; names and files are those of models in C."""
from .._objects import Module as Net  # layers by name, as in C: net.linear("fc1", x, 16)
from . import _generated
from ._generated import *  # noqa: F403  layers and losses of the library
from ._layers import (AvgPool1d, AvgPool2d, AvgPool3d, BatchNorm, BatchNorm1d, BatchNorm2d, BatchNorm3d, Conv1d, Conv2d, Conv3d,
                      ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, Dropout, Embedding, Flatten, GroupNorm, Identity, InstanceNorm,
                      Lambda, Last, LayerNorm, Linear, MaxPool1d, MaxPool2d, MaxPool3d, ModuleDict, ModuleList, RMSNorm,
                      ScaledDotProductAttention, Sequential, SinusoidalPosition)
from ._model import Model
from ._module import Module, Parameter, draw, seed

__all__ = ["AvgPool1d", "AvgPool2d", "AvgPool3d", "BatchNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Conv1d", "Conv2d", "Conv3d",
           "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Dropout", "Embedding", "Flatten", "GroupNorm", "Identity",
           "InstanceNorm", "Lambda", "Last", "LayerNorm", "Linear", "MaxPool1d", "MaxPool2d", "MaxPool3d", "Model", "Module", "ModuleDict",
           "ModuleList", "Net", "Parameter", "RMSNorm", "ScaledDotProductAttention", "Sequential", "SinusoidalPosition", "draw", "seed"]
__all__ += _generated.__all__
