"""Networks: modules, layers, losses. Weights of linear layers are [in, out]; names and files are those of models in C."""
from ._layers import (GELU, BatchNorm, BatchNorm1d, BatchNorm2d, BatchNorm3d, AvgPool1d, AvgPool2d, AvgPool3d, Conv1d, Conv2d, Conv3d,
                      ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, Dropout, ELU, Embedding, Flatten, GroupNorm, Identity,
                      InstanceNorm, Lambda, LayerNorm, LeakyReLU, Linear, LogSoftmax, MaxPool1d, MaxPool2d, MaxPool3d, Mish,
                      ModuleDict, ModuleList, ReLU, RMSNorm, Sequential, Sigmoid, SiLU, Softmax, Softplus, Tanh)
from ._losses import (BCELoss, BCEWithLogitsLoss, CrossEntropyLoss, HuberLoss, KLDivLoss, L1Loss, MSELoss, NLLLoss,
                      SmoothL1Loss)
from ._module import Module, Parameter, draw, seed
from ._sequence import (GRU, LSTM, RNN, DecoderOnly, EncoderOnly, FeedForward, MultiheadAttention, Transformer, TransformerDecoder,
                        TransformerDecoderLayer, TransformerEncoder, TransformerEncoderLayer)
from .._objects import Module as Net  # layers by name, as in C: net.linear("fc1", x, 16)

__all__ = [name for name in dir() if name[0].isupper()] + ["draw", "seed"]
