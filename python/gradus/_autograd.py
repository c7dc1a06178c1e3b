"""Gradients as functions: gd.grad, gd.value_and_grad, gd.no_grad."""
from __future__ import annotations

import functools

from . import _context, _lib, _ops, _tree
from ._convert import as_tensor, run_status
from ._lib import C
from ._tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Sequence, overload


class no_grad:
    """Operations within it, in the context that is the thread's current one, record no history. A context manager and a decorator;
    nests."""

    def __enter__(self) -> no_grad:
        self.home: _context.Home = _context.home()
        run_status(C.gd_no_grad_begin, self.home.handle)
        self.home.no_grad_depth += 1
        return self

    def __exit__(self, *what: Any) -> None:
        self.home.no_grad_depth -= 1
        run_status(C.gd_no_grad_end, self.home.handle)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def without(*args, **kwargs):
            with no_grad():
                return function(*args, **kwargs)
        return without


if TYPE_CHECKING:
    @overload
    def grad(outputs: Tensor | Sequence[Tensor], inputs: Any, seeds: Sequence[Tensor | None] | None = None) -> Any: ...

    @overload
    def grad(outputs: Callable[..., Any], *, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]: ...


def grad(outputs: Any, inputs: Any = None, seeds: Any = None, *, argnums: Any = 0, has_aux: bool = False) -> Any:
    """d(sum of outputs)/d(inputs), in the form of `inputs`: a tensor, or a tree of tensors. The gradients can be differentiated
    again. An input that no output depends on gets zeros. `seeds` weigh the outputs' elements.

    gd.grad(function, argnums=0) is a function: the gradients of `function` by its arguments of these numbers, as gd.value_and_grad
    gives them without the value; has_aux: function gives (value, anything), and this one (gradients, anything)."""
    if callable(outputs) and not isinstance(outputs, Tensor):
        if inputs is not None or seeds is not None:
            raise TypeError("gd.grad(function) takes argnums and has_aux")
        both = value_and_grad(outputs, argnums, has_aux)

        @functools.wraps(outputs)
        def gradients(*args, **kwargs):
            result, found = both(*args, **kwargs)
            return (found, result[1]) if has_aux else found
        return gradients
    if inputs is None:
        raise TypeError("gd.grad(outputs, inputs): by what?")
    outputs = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    leaves, tree = _tree.flatten(inputs)
    return _tree.unflatten(tree, _ops.grad(outputs=outputs, seeds=seeds, inputs=leaves))


def value_and_grad(function: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that gives (value, gradients of the value by the arguments of these numbers). Arguments are trees of tensors;
    a gd.nn.Module counts as the dict of its parameters. has_aux: function gives (value, anything)."""
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @functools.wraps(function)
    def both(*args, **kwargs):
        args, wanted = list(args), []
        for n in numbers:
            if hasattr(args[n], "named_parameters"):
                wanted.append(dict(args[n].named_parameters()))
                continue
            leaves, tree = _tree.flatten(args[n])
            args[n] = _tree.unflatten(tree, [_point(as_tensor(leaf)) for leaf in leaves])
            wanted.append(args[n])
        result = function(*args, **kwargs)
        value = result[0] if has_aux else result
        gradients = grad(value, wanted)
        return result, gradients[0] if isinstance(argnums, int) else tuple(gradients)
    return both


def _point(x: Tensor) -> Tensor:
    """x as something to differentiate by, apart from other uses of x. What x depends on, the gradients depend on."""
    return _ops.reshape(x, x.shape) if x.requires_grad else x.detach().requires_grad_()


def jvp(function: Callable[..., Any], primals: Sequence[Tensor], tangents: Sequence[Tensor]) -> tuple[Any, Any]:
    """(function(*primals), its derivative in the direction of `tangents`), in the form of the function's result: a tensor, or a tree of
    tensors. The library has gradients alone, and this is a gradient of a gradient: it costs two backward passes."""
    if len(primals) != len(tangents) or any(as_tensor(x).shape != as_tensor(v).shape for x, v in zip(primals, tangents)):
        raise _lib.ShapeError("jvp: a tangent of the shape of each primal")
    points = [as_tensor(x).detach().requires_grad_() for x in primals]
    results, tree = _tree.flatten(function(*points))
    weights = [_ops.zeros(y.shape, y.dtype).requires_grad_() for y in results]
    gradients = _ops.grad(outputs=results, seeds=weights, inputs=points)  # linear in the weights
    slopes = _ops.grad(outputs=gradients, seeds=[as_tensor(v).to(g.dtype) for v, g in zip(tangents, gradients)], inputs=weights)
    return _tree.unflatten(tree, [y.detach() for y in results]), _tree.unflatten(tree, [s.detach() for s in slopes])
