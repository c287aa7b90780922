"""Gradients of ops that select elements by index (gather, scatter, top_k) and of cumulative sums and products."""

from __future__ import annotations

from linnet.autodiff._tools import constant_of, elementwise, filled, first, numbers_of, put_back, shape_of
from linnet.autodiff.sparse import Gradients, Rule, rows_of
from linnet.builder import ops
from linnet.builder.control import scan
from linnet.ir.function import Node, Tensor


def gather_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """Returns zeros, to which the gradient is added at the indices. If whole rows of a variable were gathered, the
    result has only these rows."""
    x, _, g = first(node, given)
    indices, kind = node.inputs[1], node.attribute("kind")
    assert indices is not None
    if kind == "elements":
        return [ops.scatter(filled(x, 0.0), indices, g, axis=node.attribute("axis"), reduction="add")]
    if node.attribute("batch_dims"):  # the same gather applied to element indices shows where each element came from
        batch_dims = node.attribute("batch_dims")
        came = ops.gather(numbers_of(x), indices, kind=kind, axis=node.attribute("axis"), batch_dims=batch_dims)
        return [put_back(x, came, g)]
    if kind == "nd":
        return [ops.scatter(filled(x, 0.0), indices, g, kind="nd", reduction="add")]
    rank, count = len(shape_of(x)), len(shape_of(indices))
    axis = node.attribute("axis") % rank
    if axis == 0 and x.variable is not None and x.static_shape is not None:
        return [rows_of(x, indices, g, node.attribute("from_end"))]
    rows = ops.copy([indices], kind="unsqueeze", axis=[count])[0]
    if axis == 0:
        return [ops.scatter(filled(x, 0.0), rows, g, kind="nd", reduction="add")]
    # Move the gathered axis to the front on both sides.
    there = [axis, *(i for i in range(rank) if i != axis)]
    moved = ops.transpose(g, [*range(axis, axis + count), *range(axis), *range(axis + count, rank - 1 + count)])
    made = ops.scatter(ops.transpose(filled(x, 0.0), there), rows, moved, kind="nd", reduction="add")
    return [ops.transpose(made, [there.index(i) for i in range(rank)])]


def scatter_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """The gradients for the data and for the updates depend on the reduction. none: the data get zeros at the written
    places, and the updates get a gather (indices must not repeat). add: the data get the whole gradient, and the
    updates get a gather. mul: each factor gets the gradient times the product of the other factors. max, min: the
    gradient is shared equally among the elements that equal the result."""
    x, y, g = first(node, given)
    indices, updates = node.inputs[1], node.inputs[2]
    assert indices is not None and updates is not None
    kind, axis, reduction = node.attribute("kind"), node.attribute("axis"), node.attribute("reduction")

    def put(into: Tensor, values: Tensor, how: str) -> Tensor:
        return ops.scatter(into, indices, values, kind=kind, axis=axis, reduction=how)

    def at(t: Tensor) -> Tensor:
        return ops.gather(t, indices, kind=kind, axis=axis if kind == "elements" else 0)

    if reduction in ("none", "add"):
        kept = put(g, filled(updates, 0.0), "none") if reduction == "none" and needs[0] else g
        return [kept, None, at(g) if needs[2] else None]
    if reduction == "mul":
        # The product of all other updates of an element: the product of those that are not 0, or 0 if another one is 0.
        others = elementwise([updates], lambda u: u.eq(0.0).select(1.0, u), x.dtype)
        zeros = elementwise([updates], lambda u: u.eq(0.0).select(1.0, 0.0), x.dtype)
        product, count = put(filled(x, 1.0), others, "mul"), put(filled(x, 0.0), zeros, "add")
        rest = elementwise(
            [at(product), others, at(count), zeros], lambda p, u, n, z: (n > z).select(0.0, p / u), x.dtype
        )
        by_x = elementwise([g, product, count], lambda g, p, n: (n > 0.0).select(0.0, g * p), x.dtype)
        return [by_x, None, elementwise([at(g), at(x), rest], lambda g, v, r: g * v * r, x.dtype)]
    own = elementwise([x, y], lambda a, b: a.eq(b).select(1.0, 0.0), x.dtype)
    theirs = elementwise([updates, at(y)], lambda a, b: a.eq(b).select(1.0, 0.0), x.dtype)
    share = elementwise([g, put(own, theirs, "add")], lambda g, n: g / n, x.dtype)
    return [ops.multiply(own, share), None, ops.multiply(theirs, at(share))]


def cumsum_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """For a sum, the gradient is a cumsum in the opposite direction. For a product, it is the product of all earlier
    elements times a scan from the end. This is also correct for elements that are 0."""
    x, _, g = first(node, given)
    axis, exclusive, reverse = node.inputs[1], node.attribute("exclusive"), node.attribute("reverse")
    assert axis is not None
    if not node.attribute("product"):
        return [ops.cumsum(g, axis, exclusive=exclusive, reverse=not reverse)]
    rank = len(shape_of(x))
    along = constant_of(axis, "axis")[0] % rank
    order = [along, *(i for i in range(rank) if i != along)]
    back = [order.index(i) for i in range(rank)]
    before = ops.cumsum(x, axis, exclusive=True, reverse=reverse, product=True)

    def step(carry: Tensor, row: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        value, slope = row
        if exclusive:
            return elementwise([carry, value, slope], lambda c, v, s: s + v * c, x.dtype), carry
        here = ops.add(slope, carry)
        return ops.multiply(value, here), here

    moved = [ops.transpose(t, order) for t in (x, g)]
    none = ops.scale(ops.reduce(moved[0], kind="sum", axis=[0], keep_dims=False), 0.0)
    _, after = scan(step, none, (moved[0], moved[1]), reverse=not reverse)
    return [ops.multiply(before, ops.transpose(after, back))]


def top_k_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """Returns zeros, with the gradient of the values at their indices."""
    x, _, g = first(node, given)
    axis = node.attribute("axis") % len(shape_of(x))
    return [ops.scatter(filled(x, 0.0), node.outputs[1], g, axis=axis, reduction="add")]


RULES: dict[str, Rule] = {
    "gather": gather_gradient,
    "scatter": scatter_gradient,
    "cumsum": cumsum_gradient,
    "top_k": top_k_gradient,
}
