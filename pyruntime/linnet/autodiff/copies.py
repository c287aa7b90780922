"""Adjoints of the op copy. Gradients move back to where the elements came from. If an element was copied several times,
its gradients are summed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from linnet.autodiff._tools import (
    constant_of,
    expand_like,
    integers,
    number,
    numbers_of,
    operand,
    put_back,
    reshape_like,
    shape_of,
    unbroadcast,
)
from linnet.autodiff.sparse import Gradients
from linnet.builder import ops
from linnet.clib.errors import GraphError
from linnet.ir.function import Node, Tensor, emit


def copy_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """Gradients of a copy's inputs, by its kind."""
    kind = node.attribute("kind")
    x = node.inputs[0]
    assert x is not None
    if kind == "split":
        like = next(g for g in given if g is not None)
        parts = [
            expand_like(number(like, 0.0), y) if g is None else g for g, y in zip(given, node.outputs, strict=True)
        ]
        return [ops.concat(parts, node.attribute("axis"))]
    g = given[0]
    assert g is not None
    if kind == "concat":
        return _concat(node, g)
    if any(needs[1:]):
        raise GraphError("the fill value of pad has no gradient", code=301, hint="make the fill value a constant")
    if kind not in _KINDS:
        raise GraphError(f"copy of kind {kind} has no gradient", code=301)
    return [_KINDS[kind](node, x, g)]


def _concat(node: Node, g: Tensor) -> Gradients:
    axis = node.attribute("axis") % len(shape_of(node.outputs[0]))
    inputs = [t for t in node.inputs if t is not None]
    if len(inputs) == 1:
        return [g]
    sizes = [shape_of(t)[axis] for t in inputs]
    if all(isinstance(s, int) for s in sizes):
        return ops.copy(
            [g], kind="split", axis=axis, shape=[int(s) for s in sizes if s is not None], outputs=len(inputs)
        )
    counts = ops.concat([ops.shape(t, start=axis, end=axis + 1) for t in inputs], 0)
    return ops.copy([g, counts], kind="split", axis=axis, outputs=len(inputs))


def _transpose(node: Node, x: Tensor, g: Tensor) -> Tensor:
    rank = len(shape_of(x))
    perm = [p % rank for p in node.attribute("perm")] or list(range(rank))[::-1]
    return ops.transpose(g, [perm.index(i) for i in range(rank)])


def _values(node: Node, attribute: str, index: int, what: str) -> list[int]:
    given = operand(node, index)
    return list(node.attribute(attribute)) if given is None else constant_of(given, what)


def _slice(node: Node, x: Tensor, g: Tensor) -> Tensor:
    """The gradient of a slice. With steps of 1, it pads the gradient with zeros; with other steps, it scatters the
    gradient."""
    rank = len(shape_of(x))
    starts = _values(node, "starts", 1, "starts")
    axes = [a % rank for a in _values(node, "axes", 3, "axes")] or list(range(len(starts)))
    steps = _values(node, "steps", 4, "steps") or [1] * len(axes)
    if (
        steps == [-1] and starts == [-1] and _values(node, "ends", 2, "ends")[0] <= -(1 << 62)
    ):  # the whole axis, reversed
        return ops.copy([g], kind="slice", starts=[-1], ends=[-(1 << 63)], axis=axes, steps=[-1])[0]
    if any(s != 1 for s in steps):
        return _scattered(node, x, g)
    before, sizes = [0] * rank, shape_of(x)
    for axis, start in zip(axes, starts, strict=True):
        size = sizes[axis]
        if not isinstance(size, int):
            if start < 0:
                return _scattered(node, x, g)
            before[axis] = start  # a start past the end selects no elements; the pad below then crops to nothing
        else:
            before[axis] = min(max(start + size if start < 0 else start, 0), size)
    if x.static_shape is not None and g.static_shape is not None:
        after = [n - b - m for n, b, m in zip(x.static_shape, before, g.static_shape, strict=True)]
        return ops.copy([g], kind="pad", pads=[*before, *after])[0]
    begin = integers(g, before)
    end = ops.subtract(ops.subtract(ops.shape(x), begin), ops.shape(g))
    return ops.copy([g, ops.concat([begin, end], 0)], kind="pad")[0]


def _pad(node: Node, x: Tensor, g: Tensor) -> Tensor:
    """The gradient of a pad. For mode "constant", it is a pad with the opposite sizes. For "reflect", "edge" and
    "wrap", the gradient is scattered."""
    if node.attribute("pad_mode") != "constant":
        return _scattered(node, x, g)
    pads, axes = operand(node, 1), operand(node, 3)
    opposite: list[Tensor | None] = [g]
    attributes: dict[str, Any] = {"kind": "pad", "axes": tuple(node.attribute("axes"))}
    if pads is None:
        attributes["pads"] = [-p for p in node.attribute("pads")]
    else:
        opposite.append(ops.subtract(integers(g, 0), pads))
    if axes is not None:
        attributes["axes"] = constant_of(axes, "axes")
    return emit("copy", opposite, attributes)[0]


def _tile(node: Node, x: Tensor, g: Tensor) -> Tensor:
    repeats, sizes = _values(node, "shape", 1, "repeats"), shape_of(x)
    if all(r == 1 for r in repeats):
        return g
    if sum(not isinstance(s, int) for s in sizes) > 1:
        columns = [ops.copy([t], kind="unsqueeze", axis=[1])[0] for t in (integers(x, repeats), ops.shape(x))]
        spread = ops.copy([g, ops.reshape(ops.concat(columns, 1), [-1])], kind="reshape", allow_zero=True)[0]
    else:
        apart = [n for r, s in zip(repeats, sizes, strict=True) for n in (r, s if isinstance(s, int) else -1)]
        spread = ops.copy([g], kind="reshape", shape=apart, allow_zero=True)[0]
    return ops.reduce(spread, kind="sum", axis=range(0, 2 * len(sizes), 2), keep_dims=False)


def _blocks(node: Node, x: Tensor, g: Tensor) -> Tensor:
    if node.attribute("depth_mode") != "dcr":
        return _scattered(node, x, g)
    other = "space_to_depth" if node.attribute("kind") == "depth_to_space" else "depth_to_space"
    return ops.copy([g], kind=other, block=node.attribute("block"), axis=node.attribute("axis"))[0]


def _scattered(node: Node, x: Tensor, g: Tensor) -> Tensor:
    """The gradient of any kind of copy. Applying the same copy to the indices of elements shows where each element came
    from."""
    return put_back(x, emit("copy", [numbers_of(x), *node.inputs[1:]], node.attributes)[0], g)


_KINDS: dict[str, Callable[[Node, Tensor, Tensor], Tensor]] = {
    "identity": lambda node, x, g: g,
    "reshape": lambda node, x, g: reshape_like(g, x),
    "squeeze": lambda node, x, g: reshape_like(g, x),
    "unsqueeze": lambda node, x, g: reshape_like(g, x),
    "expand": lambda node, x, g: unbroadcast(g, x),
    "transpose": _transpose,
    "slice": _slice,
    "pad": _pad,
    "tile": _tile,
    "depth_to_space": _blocks,
    "space_to_depth": _blocks,
}
