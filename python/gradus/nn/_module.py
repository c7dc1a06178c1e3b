"""Module and Parameter: networks as objects, after PyTorch. Parameters' names are the paths of attributes, "fc1.weight"."""
from __future__ import annotations

from .. import _context, _convert, _io, _lib, _objects, _ops
from .._dtype import dtype as as_dtype
from .._tensor import Tensor, as_tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._convert import DTypeLike
    from typing import Any, Callable, Iterator, Mapping

version = 0  # of all modules: it grows when one gets a parameter, a buffer or a module


class _Initial:
    """A context's stream of initial values."""

    def __init__(self, value: int) -> None:
        self.seed, self.layers = value, 0
        self.source = _objects.Module.create(seed=value)  # the library's module that they are drawn from


def seed(value: int) -> None:
    """Restart the current context's stream of initial values. Values depend on it and on the order in which parameters are made, and equal
    those of a model in C that is made with the same seed in the same order."""
    _context.home().initial = _Initial(value)


def _initial() -> _Initial:
    home = _context.home()
    if home.initial is None:
        seed(0)
    return home.initial


def current_seed() -> int:
    """What seed() was given last."""
    return _initial().seed


def seed_of_a_layer() -> int:
    """Of a layer whose parameters the library makes: each has a stream of its own."""
    initial = _initial()
    initial.layers += 1
    return initial.seed * 1_000_003 + initial.layers


def draw(shape: Any, init: str = "glorot_uniform", dtype: DTypeLike = None, **options: Any) -> Parameter:
    """A parameter with initial values: "zeros", "ones", "glorot_uniform", "he_normal", "normal", … (gd_init)."""
    with _context.within(_context.home()), at_once():
        made = Parameter._adopt(_initial().source.draw(shape, init=init, **options))
        if dtype is None or made.dtype is as_dtype(dtype):
            return made
        return Parameter._adopt(made.detach().to(dtype)).requires_grad_()


class at_once:
    """What is made within is made now, and not recorded by a function that is being compiled: parameters and buffers at first use."""

    def __enter__(self) -> None:
        self.home = _context.home()
        _lib.C.gd_trace_pause(self.home.handle)

    def __exit__(self, *what: Any) -> None:
        _lib.C.gd_trace_resume(self.home.handle)


def grow() -> None:
    global version
    version += 1


class Parameter(Tensor):
    """A tensor that a Module counts among its parameters and that gradients are taken by."""

    __slots__ = ()

    def __init__(self, data: Any, requires_grad: bool = True) -> None:
        super().__init__(data, requires_grad=requires_grad)

    @classmethod
    def _adopt(cls, t: Tensor) -> Parameter:
        made = object.__new__(cls)
        made._h, t._h = t._h, None
        return made


class Module:
    """The base of all networks and layers. Assign parameters and modules to attributes in __init__, after super().__init__(), and
    write forward()."""

    def __init__(self) -> None:
        self.__dict__.update(_parameters={}, _buffers={}, _modules={}, _training=True, _library=None, _dtype=None)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no forward()")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    # ---- attributes

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        if "_parameters" not in own:
            raise AttributeError(f"{type(self).__name__}.__init__ calls super().__init__() before it sets .{name}")
        for kind in ("_parameters", "_buffers", "_modules"):
            if name in own[kind] and not (value is None and kind == "_parameters"):
                del own[kind][name]
        if isinstance(value, Parameter):
            own["_parameters"][name] = value
        elif isinstance(value, Module):
            own["_modules"][name] = value
        else:
            object.__setattr__(self, name, value)
            return
        own.pop(name, None)
        grow()

    def __getattr__(self, name: str) -> Any:
        for kind in ("_parameters", "_buffers", "_modules"):
            found = self.__dict__.get(kind, {}).get(name)
            if found is not None:
                return found
        raise AttributeError(f"{type(self).__name__} has no {name!r}")

    def __delattr__(self, name: str) -> None:
        for kind in ("_parameters", "_buffers", "_modules"):
            if self.__dict__[kind].pop(name, None) is not None:
                grow()
                return
        object.__delattr__(self, name)

    def register_buffer(self, name: str, value: Tensor) -> None:
        """A tensor that is saved with the module but not trained."""
        self._buffers[name] = as_tensor(value)
        grow()

    def register_parameter(self, name: str, value: Parameter | None) -> None:
        setattr(self, name, value)

    def add_module(self, name: str, module: Module) -> None:
        setattr(self, name, module)

    # ---- walking

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        yield prefix, self
        for name, module in self._modules.items():
            yield from module.named_modules(f"{prefix}.{name}" if prefix else name)

    def modules(self) -> Iterator[Module]:
        return (module for _, module in self.named_modules())

    def children(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def _named(self, kind: str) -> Iterator[tuple[str, Tensor]]:
        seen: set[int] = set()
        for path, module in self.named_modules():
            for name, t in getattr(module, kind).items():
                if id(t) not in seen:  # a parameter that is used in two places counts once
                    seen.add(id(t))
                    yield f"{path}.{name}" if path else name, t

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        return self._named("_parameters")

    def parameters(self) -> Iterator[Tensor]:
        return (p for _, p in self._named("_parameters"))

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        return self._named("_buffers")

    def buffers(self) -> Iterator[Tensor]:
        return (b for _, b in self._named("_buffers"))

    def apply(self, function: Callable[[Module], Any]) -> Module:
        """Call function with every module, children first."""
        for module in self._modules.values():
            module.apply(function)
        function(self)
        return self

    # ---- training

    @property
    def training(self) -> bool:
        """Whether layers behave as in training. What a compiled function reads here it is compiled for."""
        reading = _lib.thread.reading
        if reading is not None:
            from weakref import ref
            reading[id(self)] = ref(self), self._training
        return self._training

    def train(self, training: bool = True) -> Module:
        for module in self.modules():
            module.__dict__["_training"] = bool(training)
        return self

    def eval(self) -> Module:
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Module:
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self) -> None:
        for p in self.parameters():
            p.zero_grad()

    def to(self, where: Any) -> Module:
        """Parameters and float buffers in another dtype, float64, float32 or bfloat16; or all in another context, model.to(gd.Context()), or on a
        device, model.to("opencl:0"). They are other tensors then: before optimizers are made."""
        place = _context.place_of(where) if _context.is_place(where) else None
        wanted = None if place else as_dtype(where)
        moved: dict[int, tuple[Tensor, Tensor]] = {}  # by id: one that modules share stays one
        for module in self.modules():
            for kind in (module._parameters, module._buffers):
                for name, t in kind.items():
                    if _context.home_of(t._h) is not place if place else t.dtype.is_float and t.dtype is not wanted:
                        if id(t) not in moved:
                            made = t.detach()._moved(place) if place else t.detach().to(wanted)
                            is_parameter = isinstance(t, Parameter)
                            moved[id(t)] = t, Parameter._adopt(made).requires_grad_(t.requires_grad) if is_parameter else made
                        kind[name] = moved[id(t)][1]
            module.__dict__.update(_dtype=wanted or module._dtype, _library=None)
            module._converted()
        grow()
        return self

    def _converted(self) -> None:
        """The dtype has been set."""

    # ---- values

    def state_dict(self) -> dict[str, Tensor]:
        """All parameters and buffers by their paths, which share their memory."""
        return {path: t.detach() for path, t in [*self.named_parameters(), *self.named_buffers()]}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True, layout: str = "gradus") -> None:
        """Take values over by paths. strict: exactly these paths. Layers whose sizes are not known yet get them. Nothing is changed when
        a path or a shape does not fit. layout "torch": of a PyTorch model with the same paths, whose weights lie the other way round."""
        if layout not in ("gradus", "torch"):
            raise _lib.InvalidError(f"layout {layout!r}: expected gradus or torch")
        given = {path: as_tensor(value) for path, value in state.items()}
        for path, module in reversed(list(self.named_modules())):
            prefix = f"{path}." if path else ""
            part = {name[len(prefix):]: value for name, value in given.items() if name.startswith(prefix)}
            if layout == "torch":
                given = {name: value for name, value in given.items() if not name.startswith(prefix)}
                part = module._of_torch(part)
                given.update({prefix + name: value for name, value in part.items()})
            module._prepare(part)
        own = self.state_dict()
        missing, unknown = [p for p in own if p not in given], [p for p in given if p not in own]
        if strict and (missing or unknown):
            raise _lib.FormatError(f"missing: {', '.join(missing) or 'none'}; not in the model: {', '.join(unknown) or 'none'}")
        values = {path: value for path, value in given.items() if path in own}
        for path, value in values.items():
            if value.shape != own[path].shape:
                raise _lib.ShapeError(f"{path} is {own[path].shape}, the value {value.shape}")
        for path, value in values.items():
            own[path].copy_(value)

    def _prepare(self, state: dict[str, Tensor]) -> None:
        """Make the parameters that are still to be made, of the sizes that values say which are to be loaded."""

    def _of_torch(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """The values for this layer and those in it, from a PyTorch model's."""
        return state

    def save(self, path: Any) -> None:
        """Write parameters and buffers to a safetensors file, as a model in C does."""
        _io.save(path, self.state_dict())

    def load(self, path: Any) -> None:
        self.load_state_dict(_io.load(path))

    def library_module(self) -> _objects.Module:
        """The same parameters and buffers as a module of the library, which optimizers take."""
        if self._library is None:
            self.__dict__["_library"] = Adopted(self)
        return self._library.update()

    def parameter_count(self) -> int:
        return sum(p.size for p in self.parameters())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_library": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        grow()

    def extra_repr(self) -> str:
        """What stands in the brackets of repr()."""
        return ""

    def __repr__(self) -> str:
        lines = [f"({name}): {module!r}".replace("\n", "\n  ") for name, module in self._modules.items()]
        inside = "\n  " + "\n  ".join(lines) + "\n" if lines else ""
        return f"{type(self).__name__}({self.extra_repr()}{inside})"


class Adopted:
    """A module of the library with the tensors of a Module, or of a list of (path, parameter)."""

    def __init__(self, owner: Any) -> None:
        from weakref import ref
        self.owner = ref(owner) if isinstance(owner, Module) else None
        self.entries = None if self.owner else list(owner)
        self.module = None
        self.version, self.taken = -1, {}

    def update(self) -> _objects.Module:
        """Take in what has been made since."""
        if self.version != version:
            owner = self.owner() if self.owner else None
            named = list(owner.named_parameters()) if owner is not None else self.entries or []
            if self.module is None:
                first = next((p.dtype for _, p in named), "float32")
                with _context.within(_context.home_of(named[0][1]._h) if named else _context.home()):
                    self.module = _objects.Module.create(dtype=first)
            for path, p in named:
                before = self.taken.get(path)
                if before is None:
                    _convert.run_status(_lib.C.gd_module_put, self.module.handle, path.encode(), p._h, True)
                    self.taken[path] = p
                elif before is not p:
                    raise _lib.StateError(f"{path} has become another parameter since the optimizer was made")
            self.version = version
        return self.module
