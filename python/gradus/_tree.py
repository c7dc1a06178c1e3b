"""Trees of tensors: tuples, lists, dicts and named tuples, taken apart and put together again."""
from __future__ import annotations

from ._tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

LEAF = object()  # stands in a tree where a tensor was


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """(its tensors, what is left: hashable where all its other values are)"""
    leaves: list = []
    return leaves, _strip(tree, leaves)


def _strip(tree, leaves: list):
    if isinstance(tree, Tensor) or hasattr(tree, "__array_interface__"):
        leaves.append(tree)
        return LEAF
    kind = type(tree)
    if kind in (list, tuple) or isinstance(tree, tuple):
        return kind, tuple(_strip(item, leaves) for item in tree)
    if kind is dict:
        return kind, tuple(tree), tuple(_strip(item, leaves) for item in tree.values())
    return None, kind, tree  # kind: 1, 1.0 and True are equal, and different


def unflatten(tree: Any, leaves: Iterable[Any]) -> Any:
    """The tree with other tensors in the places of its own."""
    return _build(tree, iter(leaves))


def _build(tree, leaves):
    if tree is LEAF:
        return next(leaves)
    kind = tree[0]
    if kind is None:
        return tree[2]
    if kind is dict:
        return dict(zip(tree[1], [_build(item, leaves) for item in tree[2]]))
    items = [_build(item, leaves) for item in tree[1]]
    return kind(*items) if hasattr(kind, "_fields") else kind(items)


def count(tree) -> int:
    """How many tensors it has."""
    if tree is LEAF:
        return 1
    return 0 if tree[0] is None else sum(count(item) for item in tree[-1])


def paths(tree, path=()):
    """The path of each tensor, in their order: the numbers and keys that lead to it."""
    if tree is LEAF:
        return [path]
    if tree[0] is None:
        return []
    keys = tree[1] if tree[0] is dict else range(len(tree[-1]))
    return [found for key, item in zip(keys, tree[-1]) for found in paths(item, (*path, key))]


def differences(a, b, path=()):
    """[(path, what a has there, what b has)] where two trees differ."""
    if a is LEAF or b is LEAF or a[0] is not b[0] or a[0] is None or a[0] is dict and a[1] != b[1] or len(a[-1]) != len(b[-1]):
        try:
            equal = bool(a == b)
        except Exception:  # constants whose comparison fails
            equal = False
        return [] if equal else [(path, _shown(a), _shown(b))]
    keys = a[1] if a[0] is dict else range(len(a[-1]))
    return [found for key, x, y in zip(keys, a[-1], b[-1]) for found in differences(x, y, (*path, key))]


def _shown(tree):
    if tree is LEAF:
        return "a tensor"
    return repr(tree[2]) if tree[0] is None else f"{tree[0].__name__} of {len(tree[-1])}"
