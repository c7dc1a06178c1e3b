"""Layers. A size of the input that is None is taken from the first input."""
from __future__ import annotations

from .. import _ops
from .._tensor import Tensor
from ._module import Module, at_once, draw

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

    from ._module import Parameter


class Identity(Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


class Linear(Module):
    """x @ weight + bias, weight [in_features, out_features]. in_features None: taken from the first input."""

    out_features: int
    has_bias: bool
    init: str
    init_scale: float | None
    weight: Parameter
    bias: Parameter

    def __init__(self, in_features: int | None, out_features: int, bias: bool = True, init: str = "glorot_uniform",
                 init_scale: float | None = None) -> None:
        super().__init__()
        self.in_features, self.out_features, self.has_bias = in_features, out_features, bias
        self.init, self.init_scale = init, init_scale
        if in_features is not None:
            self._make(in_features)

    def _make(self, width: int) -> None:
        self.in_features = width
        self.weight = draw((width, self.out_features), self.init, self._dtype, init_scale=self.init_scale)
        if self.has_bias:
            self.bias = draw((self.out_features,), "zeros", self._dtype)

    def forward(self, x: Tensor) -> Tensor:
        if "weight" not in self._parameters:
            self._make(x.shape[-1])
        return _ops.linear(x, self.weight, self._parameters.get("bias"))

    def _prepare(self, state: dict[str, Tensor]) -> None:
        if "weight" not in self._parameters and "weight" in state:
            self._make(state["weight"].shape[0])

    def _of_torch(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: value.mT if name == "weight" and value.ndim == 2 else value for name, value in state.items()}

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.has_bias}"


def _sizes(value: Any, axes: int) -> tuple[int, ...]:
    return (value,) * axes if isinstance(value, int) else tuple(value)


class _Conv(Module):
    out_channels: int
    has_bias: bool
    groups: int
    kernel_size: tuple[int, ...]
    init: str
    init_scale: float | None
    options: dict[str, Any]
    weight: Parameter
    bias: Parameter

    _axes, _transposed = 2, False

    def __init__(self, in_channels: int | None, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
                 dilation: Any = 1, groups: int = 1, bias: bool = True, init: str = "glorot_uniform",
                 init_scale: float | None = None, **options: Any) -> None:
        super().__init__()
        self.in_channels, self.out_channels, self.has_bias, self.groups = in_channels, out_channels, bias, groups
        self.kernel_size = _sizes(kernel_size, self._axes)
        self.init, self.init_scale = init, init_scale
        self.options = dict(options, stride=_sizes(stride, self._axes), dilation=_sizes(dilation, self._axes), groups=groups)
        if padding == "same":
            self.options["same"] = True
        else:
            self.options["padding"] = _sizes(padding, self._axes)
        self._operation = getattr(_ops, f"conv{'_transpose' if self._transposed else ''}{self._axes}d")
        if in_channels is not None:
            self._make(in_channels)

    def _make(self, channels: int) -> None:
        self.in_channels, area = channels, 1
        for n in self.kernel_size:
            area *= n
        inside, outside = channels // self.groups, self.out_channels // self.groups
        shape = (channels, outside) if self._transposed else (self.out_channels, inside)
        self.weight = draw((*shape, *self.kernel_size), self.init, self._dtype, init_scale=self.init_scale, fan_in=inside * area,
                           fan_out=outside * area)
        if self.has_bias:
            self.bias = draw((self.out_channels,), "zeros", self._dtype)

    def forward(self, x: Tensor) -> Tensor:
        if "weight" not in self._parameters:
            self._make(x.shape[1])
        return self._operation(x, self.weight, self._parameters.get("bias"), **self.options)

    def _prepare(self, state: dict[str, Tensor]) -> None:
        if "weight" not in self._parameters and "weight" in state:
            shape = state["weight"].shape
            self._make(shape[0] if self._transposed else shape[1] * self.groups)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_operation"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._operation = getattr(_ops, f"conv{'_transpose' if self._transposed else ''}{self._axes}d")

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.options['stride']}"


class Conv1d(_Conv):
    """Convolution of [n, c, length]. padding: zeros at both ends, or "same"."""
    _axes = 1


class Conv2d(_Conv):
    """Convolution of [n, c, height, width]. padding: zeros at both ends, or "same"."""


class Conv3d(_Conv):
    """Convolution of [n, c, depth, height, width]."""
    _axes = 3


class ConvTranspose1d(_Conv):
    """Transposed convolution of [n, c, length]; weight [c, out / groups, kernel]."""
    _axes, _transposed = 1, True


class ConvTranspose2d(_Conv):
    """Transposed convolution of [n, c, height, width]."""
    _transposed = True


class ConvTranspose3d(_Conv):
    """Transposed convolution of [n, c, depth, height, width]."""
    _axes, _transposed = 3, True


class _Pool(Module):
    options: dict[str, Any]

    _operation = staticmethod(_ops.max_pool2d)

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, **options: Any) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.options = dict(options, padding=padding)
        if stride is not None:
            self.options["stride"] = stride

    def forward(self, x: Tensor) -> Tensor:
        return self._operation(x, self.kernel_size, **self.options)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}"


class MaxPool1d(_Pool):
    """The largest element of each window of [n, c, length]; stride: the kernel's size. Options: those of gd.max_pool1d."""
    _operation = staticmethod(_ops.max_pool1d)


class MaxPool2d(_Pool):
    """The largest element of each window of [n, c, height, width]; stride: the kernel's size. Options: those of gd.max_pool2d."""
    _operation = staticmethod(_ops.max_pool2d)


class MaxPool3d(_Pool):
    """The largest element of each window of [n, c, depth, height, width]; stride: the kernel's size. Options: those of gd.max_pool3d."""
    _operation = staticmethod(_ops.max_pool3d)


class AvgPool1d(_Pool):
    """The mean of each window of [n, c, length]; stride: the kernel's size. Options: those of gd.avg_pool1d."""
    _operation = staticmethod(_ops.avg_pool1d)


class AvgPool2d(_Pool):
    """The mean of each window of [n, c, height, width]; stride: the kernel's size. Options: those of gd.avg_pool2d."""
    _operation = staticmethod(_ops.avg_pool2d)


class AvgPool3d(_Pool):
    """The mean of each window of [n, c, depth, height, width]; stride: the kernel's size. Options: those of gd.avg_pool3d."""
    _operation = staticmethod(_ops.avg_pool3d)


# ---- normalisation

class _Norm(Module):
    weight: Parameter
    bias: Parameter

    def _affine(self, shape: Any, weight: bool = True, bias: bool = True) -> None:
        if weight:
            self.weight = draw(shape, "ones", self._dtype)
        if bias:
            self.bias = draw(shape, "zeros", self._dtype)

    @property
    def _weights(self) -> tuple:
        return self._parameters.get("weight"), self._parameters.get("bias")


class LayerNorm(_Norm):
    """Over the last axes, whose sizes are normalized_shape."""

    normalized_shape: tuple[int, ...]
    eps: float

    def __init__(self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True) -> None:
        super().__init__()
        self.normalized_shape, self.eps = _sizes(normalized_shape, 1), eps
        if elementwise_affine:
            self._affine(self.normalized_shape, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return _ops.layer_norm(x, *self._weights, axes=len(self.normalized_shape), epsilon=self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}"


class RMSNorm(_Norm):
    """Root mean square over the last axes; a weight alone."""

    normalized_shape: tuple[int, ...]
    eps: float

    def __init__(self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True) -> None:
        super().__init__()
        self.normalized_shape, self.eps = _sizes(normalized_shape, 1), eps
        if elementwise_affine:
            self._affine(self.normalized_shape, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return _ops.rms_norm(x, self._weights[0], axes=len(self.normalized_shape), epsilon=self.eps)


class GroupNorm(_Norm):
    """Over groups of channels of each sample."""

    num_groups: int
    eps: float

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__()
        self.num_groups, self.eps = num_groups, eps
        if affine:
            self._affine((num_channels,))

    def forward(self, x: Tensor) -> Tensor:
        return _ops.group_norm(x, self.num_groups, *self._weights, epsilon=self.eps)


class InstanceNorm(_Norm):
    """Each channel of each sample by itself."""

    def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = False) -> None:
        super().__init__()
        self.eps = eps
        if affine:
            self._affine((num_features,))

    def forward(self, x: Tensor) -> Tensor:
        return _ops.instance_norm(x, *self._weights, epsilon=self.eps)


class BatchNorm(_Norm):
    """Each channel over the batch; in use with the running statistics, which training updates."""

    eps: float
    momentum: float
    affine: bool

    def __init__(self, num_features: int | None = None, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True) -> None:
        super().__init__()
        self.eps, self.momentum, self.affine = eps, momentum, affine
        if num_features is not None:
            self._make(num_features)

    def _make(self, channels: int) -> None:
        if self.affine:
            self._affine((channels,))
        with at_once():
            self.register_buffer("running_mean", _ops.zeros((channels,), self._dtype))
            self.register_buffer("running_var", _ops.ones((channels,), self._dtype))

    def forward(self, x: Tensor) -> Tensor:
        if "running_mean" not in self._buffers:
            self._make(x.shape[1])
        return _ops.batch_norm(x, *self._weights, self.running_mean, self.running_var, training=self.training,
                               momentum=self.momentum, epsilon=self.eps)

    def _prepare(self, state: dict[str, Tensor]) -> None:
        if "running_mean" not in self._buffers and "running_mean" in state:
            self._make(state["running_mean"].shape[0])

    def _of_torch(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: value for name, value in state.items() if name != "num_batches_tracked"}


class BatchNorm1d(BatchNorm):
    """Of [n, c] or [n, c, length]."""


class BatchNorm2d(BatchNorm):
    """Of [n, c, height, width]."""


class BatchNorm3d(BatchNorm):
    """Of [n, c, depth, height, width]."""


# ---- dropping, tables, shapes

class Dropout(Module):
    """In training each element with probability p set to 0, the others times 1 / (1 - p)."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return _ops.dropout(x, self.p) if self.training and self.p else x

    def extra_repr(self) -> str:
        return f"p={self.p}"


class Embedding(Module):
    """Rows of a table [num_embeddings, embedding_dim] by whole numbers."""

    weight: Parameter

    def __init__(self, num_embeddings: int, embedding_dim: int) -> None:
        super().__init__()
        self.weight = draw((num_embeddings, embedding_dim), "normal", init_scale=1.0)

    def forward(self, index: Tensor) -> Tensor:
        return _ops.embedding(index, self.weight)


class SinusoidalPosition(Module):
    """x [batch, time, width] with its positions added, as sines and cosines."""

    def forward(self, x: Tensor) -> Tensor:
        return x + _ops.sinusoidal_positions(x.shape[-2], x.shape[-1], dtype=x.dtype)


class ScaledDotProductAttention(Module):
    """softmax(q k^T / sqrt(d)) v; in training attention weights are dropped with probability `dropout`."""

    dropout: float
    causal: bool

    def __init__(self, dropout: float = 0.0, causal: bool = False) -> None:
        super().__init__()
        self.dropout, self.causal = dropout, causal

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        return _ops.attention(q, k, v, mask=mask, causal=self.causal, dropout=self.dropout if self.training else 0.0)


class Last(Module):
    """The last step of sequences: [batch, time, width] -> [batch, width]."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, -1]


class Flatten(Module):
    """[batch, ..] -> [batch, n]."""

    def __init__(self, start_dim: int = 1) -> None:
        super().__init__()
        self.start_dim = start_dim

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(self.start_dim)


class Lambda(Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


# ---- containers

class Sequential(Module):
    """Modules, or functions, one after another."""

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        for i, module in enumerate(modules):
            setattr(self, str(i), module if isinstance(module, Module) else Lambda(module))

    def forward(self, x: Any) -> Any:
        for module in self._modules.values():
            x = module(x)
        return x

    def __len__(self) -> int:
        return len(self._modules)

    def __getitem__(self, i: Any) -> Any:
        found = list(self._modules.values())[i]
        return type(self)(*found) if isinstance(i, slice) else found

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())


class ModuleList(Module):
    """A list of modules."""

    def __init__(self, modules: Any = ()) -> None:
        super().__init__()
        for module in modules:
            self.append(module)

    def append(self, module: Module) -> ModuleList:
        setattr(self, str(len(self._modules)), module)
        return self

    def __len__(self) -> int:
        return len(self._modules)

    def __getitem__(self, i: Any) -> Any:
        return list(self._modules.values())[i]

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())


class ModuleDict(Module):
    """Modules by names."""

    def __init__(self, modules: dict[str, Module] | None = None) -> None:
        super().__init__()
        for name, module in (modules or {}).items():
            setattr(self, name, module)

    def __getitem__(self, name: str) -> Module:
        return self._modules[name]

    def __setitem__(self, name: str, module: Module) -> None:
        setattr(self, name, module)

    def __len__(self) -> int:
        return len(self._modules)

    def __contains__(self, name: str) -> bool:
        return name in self._modules

    def keys(self) -> Any:
        return self._modules.keys()

    def items(self) -> Any:
        return self._modules.items()

    def values(self) -> Any:
        return self._modules.values()
