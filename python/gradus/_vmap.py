"""gd.vmap: a function of one element, applied to all elements of a batch at once."""
from __future__ import annotations

import ctypes
import functools

from . import _context, _lib, _ops, _tree
from ._compile import named
from ._convert import as_tensor, handles, wrap
from ._lib import C, thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ._tensor import Tensor


def vmap(function: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
    """A function that applies `function`, which is of one element, to all elements of a batch.

        gd.vmap(gd.dot)(x, y)                                     # of each pair of rows
        gd.vmap(gd.grad(loss), in_axes=(None, 0, 0))(w, x, y)     # the gradient by w of each example

    in_axes says along which axis an argument has its elements, None: it is the same for all; a number for all arguments, or a tuple with
    an entry for each, which may be a tree like the argument. Keyword arguments have theirs along axis 0; what is no tensor is the same for
    all, modules too. out_axes says where the results have that axis.

    The function is run once, on tensors without values, and what it did is done for the whole batch: most ops as one op with a further
    axis, recurrent layers and CTC element by element. It works eagerly, in a compiled function and in another vmap; gradients pass through.
    Random numbers are drawn for each element. What is no tensor among the results is given as it is. What asks for a value (if x > 0,
    x.item()) raises TracingError, and StateError what would change something outside for each element: backward(), an optimizer, the
    running statistics of a BatchNorm in training."""
    @functools.wraps(function)
    def mapped(*args, **kwargs):
        leaves, tree = _tree.flatten((args, kwargs))
        axes = _spread(in_axes, tree[1][0], function) + [0] * _tree.count(tree[1][1])
        leaves = [as_tensor(leaf) for leaf in leaves]
        _check(function, leaves, axes, _tree.paths(tree))
        moved = [t if not axis else _moved(t, axis, 0) for t, axis in zip(leaves, axes)]
        results, out_tree = _run(function, moved, [axis is not None for axis in axes], tree)
        places = _spread(out_axes, out_tree, function)
        return _tree.unflatten(out_tree, [t if not axis else _moved(t, 0, axis) for t, axis in zip(results, places)])
    return mapped


def _run(function, leaves, batched, tree):
    count = len(leaves)
    places = (ctypes.c_void_p * count)()
    with _context.within(_context.home_of(leaves[0]._h)) as home:
        m = C.gd_vmap_begin(count, handles(leaves), (ctypes.c_bool * count)(*batched), places)
        if not m:
            _lib.fail()
        thread.traces += 1
        try:
            C.gd_scope_begin(home.handle)  # what the calls of the function empty; gd_vmap_end ends it
            args, kwargs = _tree.unflatten(tree, [wrap(C.gd_retain(place)) for place in places])
            found, out_tree = _tree.flatten(function(*args, **kwargs))
            outputs = [as_tensor(t) for t in found] or [_ops.zeros(())]
        except BaseException:
            C.gd_vmap_abandon(m)
            C.gd_error_clear()
            raise
        finally:
            thread.traces -= 1
        results = (ctypes.c_void_p * len(outputs))()
        if C.gd_vmap_end(m, len(outputs), handles(outputs), results):
            _lib.fail()
        made = [wrap(C.gd_retain(h)) for h in results]
        C.gd_claim(home.handle, None)
    return made[:len(found)], out_tree


def _moved(t: Tensor, source: int, target: int) -> Tensor:
    return _ops.movedim(t, source, target)


def _spread(axes: Any, tree: Any, function: Callable[..., Any]) -> list:
    """The axis of each tensor of a tree: `axes` is a number or None for all of it, or has an entry for each of its items."""
    if tree is _tree.LEAF:
        if axes is not None and type(axes) is not int:
            raise TypeError(f"vmap of {_name(function)}: an axis is a whole number or None, not {axes!r}")
        return [axes]
    if tree[0] is None:
        return []
    items = tree[-1]
    if axes is None or type(axes) is int:
        each = [axes] * len(items)
    elif tree[0] is dict and isinstance(axes, dict) and set(axes) == set(tree[1]):
        each = [axes[key] for key in tree[1]]
    elif tree[0] is not dict and isinstance(axes, (tuple, list)) and len(axes) == len(items):
        each = list(axes)
    else:
        raise ValueError(f"vmap of {_name(function)}: axes {axes!r} for a {tree[0].__name__} of {len(items)}")
    return [axis for entry, item in zip(each, items) for axis in _spread(entry, item, function)]


def _check(function, leaves, axes, paths) -> None:
    """All that are batched have as many elements; said with the arguments' names."""
    first = None
    for t, axis, path in zip(leaves, axes, paths):
        if axis is None:
            continue
        if not -t.ndim <= axis < t.ndim:
            raise _lib.ShapeError(f"vmap of {_name(function)}: {named(function, path)} has shape {t.shape}, and no axis {axis}; "
                                  "in_axes=None for what is the same for all elements")
        size = t.shape[axis]
        if first is None:
            first = size, path
        elif size != first[0]:
            raise _lib.ShapeError(f"vmap of {_name(function)}: {named(function, path)} has {size} elements along axis {axis}, "
                                  f"{named(function, first[1])} has {first[0]}")
    if first is None:
        raise _lib.InvalidError(f"vmap of {_name(function)}: no tensor among the arguments has an axis to map over")


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", repr(function))
