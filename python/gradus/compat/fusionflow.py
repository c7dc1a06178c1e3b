"""FusionFlow's names, orders of arguments and behaviour, so that its programs run unchanged but for the import:

    from gradus.compat.fusionflow import Linear, MSELoss, SGD, Tensor

What FusionFlow lacks works here as in Gradus: tensors divide by tensors, shapes broadcast as NumPy's, second derivatives. Errors of
shapes and dtypes are Gradus's. t.tensor is the gd.Tensor underneath, for programs that go on in Gradus. NumPy is needed.
"""
from __future__ import annotations

import ctypes
import warnings

import numpy as np

import gradus as gd

__all__ = ["FFDataType", "FFDevice", "Linear", "MSELoss", "Module", "Parameter", "SGD", "Tensor"]
__version__ = "0.1.0"


class FFDataType:
    FLOAT32, FLOAT64, INT32, INT64, BOOL = range(5)
    _names = ("float32", "float64", "int32", "int64", "bool")
    _ctypes = (ctypes.c_float, ctypes.c_double, ctypes.c_int32, ctypes.c_int64, ctypes.c_bool)

    @classmethod
    def to_string(cls, number):
        return cls._names[number] if number in range(5) else "unknown"

    @classmethod
    def to_numpy(cls, number):
        return np.dtype(cls._names[number]).type if number in range(5) else None

    @classmethod
    def to_ctype(cls, number):
        return cls._ctypes[number] if number in range(5) else None


class FFDevice:
    CPU, GPU_CUDA, GPU_ROCM = range(3)

    @classmethod
    def to_string(cls, number):
        return ("cpu", "cuda", "rocm")[number] if number in range(3) else "unknown"


def _dtype(number):
    if isinstance(number, bool) or number not in range(5):
        raise TypeError(f"{number!r} is no dtype; use FFDataType")
    return FFDataType._names[number]


def _new(cls, t, requires_grad, device=FFDevice.CPU):
    if device != FFDevice.CPU:
        raise RuntimeError(f"no device {FFDevice.to_string(device)}: FusionFlow's programs run on the CPU")
    return cls(t.requires_grad_() if requires_grad else t)


def _plain(value):
    return value.tensor if isinstance(value, Tensor) else value


def _operation(function, kinds=(int, float)):
    """A method that computes with Gradus's tensors; operands of other kinds are not understood."""
    def method(self, *others):
        if not all(isinstance(other, (Tensor, *kinds)) for other in others):
            return NotImplemented
        t = function(self.tensor, *map(_plain, others))
        return Tensor(t.retain_grad() if t.requires_grad else t)  # there results have gradients too
    return method


class Tensor:
    __slots__ = ("tensor",)

    def __init__(self, tensor):
        self.tensor = _plain(tensor)

    # ---- making and filling

    @classmethod
    def zeros(cls, shape, dtype=FFDataType.FLOAT32, device=FFDevice.CPU, requires_grad=False):
        return _new(cls, gd.zeros(shape, _dtype(dtype)), requires_grad, device)

    @classmethod
    def ones(cls, shape, dtype=FFDataType.FLOAT32, device=FFDevice.CPU, requires_grad=False):
        return _new(cls, gd.ones(shape, _dtype(dtype)), requires_grad, device)

    @classmethod
    def eye(cls, dim, dtype=FFDataType.FLOAT32, device=FFDevice.CPU, requires_grad=False):
        return _new(cls, gd.eye(dim, dtype=_dtype(dtype)), requires_grad, device)

    @classmethod
    def uniform(cls, low, high, shape, dtype=FFDataType.FLOAT32, device=FFDevice.CPU, requires_grad=False):
        return _new(cls, gd.uniform(shape, low, high, _dtype(dtype)), requires_grad, device)

    @classmethod
    def from_numpy(cls, np_array, device=FFDevice.CPU, requires_grad=False):
        if not isinstance(np_array, np.ndarray) or np_array.dtype.name not in FFDataType._names:
            raise TypeError(f"from_numpy takes arrays of {', '.join(FFDataType._names)}, not {getattr(np_array, 'dtype', type(np_array))}")
        return _new(cls, gd.from_numpy(np_array), requires_grad, device)

    def fill_(self, value):
        with gd.no_grad():
            self.tensor.fill_(float(value))
        return self

    def copy_from_numpy(self, np_array):
        if not isinstance(np_array, np.ndarray) or np_array.dtype != self.tensor.dtype.name:
            raise TypeError(f"an array of {self.tensor.dtype} is wanted, not {getattr(np_array, 'dtype', type(np_array))}")
        if np_array.shape != self.shape:
            raise ValueError(f"an array {np_array.shape} does not fit a tensor {self.shape}")
        with gd.no_grad():
            self.tensor.copy_(np_array)

    def copy(self):
        return _new(Tensor, gd.copy(self.tensor.detach()), self.requires_grad)

    def astype(self, dtype):
        return _operation(lambda t: gd.cast(t, _dtype(dtype)))(self)

    # ---- what it is

    shape, ndim, size = (property(lambda self, name=name: getattr(self.tensor, name)) for name in ("shape", "ndim", "size"))
    dtype = property(lambda self: FFDataType._names.index(self.tensor.dtype.name))
    device = property(lambda self: FFDevice.CPU)

    @property
    def requires_grad(self):
        return self.tensor.requires_grad

    @requires_grad.setter
    def requires_grad(self, value):
        if not isinstance(value, bool):
            raise TypeError("requires_grad is True or False")
        if not value and self.tensor.requires_grad:
            self.tensor.grad = None
        self.tensor.requires_grad = value

    @property
    def grad(self):
        g = self.tensor.grad if self.tensor.requires_grad else None
        return None if g is None else Tensor(g)

    @grad.setter
    def grad(self, value):
        if value is not None:
            if not self.requires_grad:
                raise RuntimeError("a tensor that requires no gradient has none")
            if not isinstance(value, Tensor) or (value.shape, value.dtype) != (self.shape, self.dtype):
                raise TypeError(f"the gradient is a Tensor {self.shape} of {self.tensor.dtype}, or None")
        if self.requires_grad:
            self.tensor.grad = _plain(value)

    @property
    def T(self):
        if self.ndim != 2:
            raise ValueError(f".T is of matrices, and this has {self.ndim} axes")
        return _operation(lambda t: t.T)(self)

    def numpy(self):
        return self.tensor.detach().numpy()

    def item(self):
        return self.tensor.item()

    def __repr__(self):
        data = f", data={self.item() if self.size == 1 else self.numpy()!r}" if 0 < self.size <= 10 else ", data=<...>" * (self.size > 10)
        grad = ", requires_grad=True" if self.requires_grad else ""
        return f"{type(self).__name__}({self.shape}{data}, dtype={self.tensor.dtype}, device='cpu'{grad})"

    # ---- operations

    __add__, __sub__, __mul__ = _operation(gd.add), _operation(gd.sub), _operation(gd.mul)
    __radd__, __rsub__, __rmul__ = __add__, _operation(lambda t, other: other - t), __mul__
    __truediv__, __rtruediv__ = _operation(gd.div), _operation(lambda t, other: other / t)
    __pow__, __matmul__ = _operation(gd.pow), _operation(gd.matmul, ())
    __gt__, __lt__ = _operation(gd.gt), _operation(gd.lt)
    mean, tanh, exp, sigmoid = _operation(gd.mean), _operation(gd.tanh), _operation(gd.exp), _operation(gd.sigmoid)
    relu, abs = _operation(gd.relu), _operation(gd.abs)

    def clip(self, min_val, max_val):
        return _operation(gd.clip)(self, min_val, max_val)

    def outer(self, other):
        if self.ndim != 1 or other.ndim != 1:
            raise ValueError("an outer product is of vectors")
        return _operation(lambda a, b: gd.unsqueeze(a, 1) * b, ())(self, other)

    def backward(self):
        if not self.requires_grad:
            warnings.warn("backward() of a tensor that requires no gradient does nothing", stacklevel=2)
            return
        self.tensor.backward()


class Parameter(Tensor):
    def __init__(self, tensor):
        super().__init__(tensor)
        self.tensor.requires_grad_()

    @classmethod
    def from_numpy(cls, np_array, device=FFDevice.CPU):
        return super().from_numpy(np_array, device)

    @classmethod
    def from_random(cls, shape, dtype=FFDataType.FLOAT32, device=FFDevice.CPU):
        """Uniform, up to sqrt(6 / shape[1]): drawn by NumPy, as FusionFlow does, so that np.random.seed gives the same numbers."""
        fan = 1 if len(shape) == 0 else shape[min(1, len(shape) - 1)]
        limit = (6.0 / fan) ** 0.5 if fan > 0 else 0.0
        return cls.from_numpy(np.asarray(np.random.uniform(-limit, limit, size=shape)).astype(_dtype(dtype)), device)

    @classmethod
    def zeros(cls, shape, dtype=FFDataType.FLOAT32, device=FFDevice.CPU):
        return super().zeros(shape, dtype, device)


class Module:
    def __init__(self):
        self.__dict__.update(_parameters={}, _modules={})

    def _complete_init(self):
        """FusionFlow's modules say that they are complete; here nothing depends on it."""

    def __setattr__(self, name, value):
        self._parameters.pop(name, None)
        self._modules.pop(name, None)
        if isinstance(value, (Parameter, Module)):
            (self._parameters if isinstance(value, Parameter) else self._modules)[name] = value
        object.__setattr__(self, name, value)

    def parameters(self, recurse=True):
        yield from self._parameters.values()
        for module in self._modules.values() if recurse else ():
            yield from module.parameters()

    def zero_grad(self):
        for p in self.parameters():
            p.grad = None

    def __call__(self, *args, **kwargs):
        return self.forward(*args, **kwargs)

    def forward(self, *args, **kwargs):
        raise NotImplementedError(f"{type(self).__name__} has no forward()")


class Linear(Module):
    def __init__(self, in_features, out_features, bias=True):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter.from_random((in_features, out_features))
        self.bias = Parameter.zeros((out_features,)) if bias else None

    def forward(self, input_tensor):
        output = input_tensor @ self.weight
        return output if self.bias is None else output + self.bias


class MSELoss(Module):
    def forward(self, input_tensor, target_tensor):
        return ((input_tensor - target_tensor) ** 2).mean()


class SGD:
    def __init__(self, params, lr=0.01):
        self.params, self.lr = list(params), lr

    def step(self):
        with gd.no_grad():
            for p in self.params:
                if p.requires_grad and p.tensor.grad is not None:
                    gd.assign(p.tensor, p.tensor - self.lr * p.tensor.grad)

    def zero_grad(self):
        for p in self.params:
            p.grad = None
