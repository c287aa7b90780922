"""Gradient rules, one per op: (node, gradients of its outputs, which inputs need one) -> gradients of its inputs.
RULES is the table; maps.py has that of `map`, copies.py that of `copy`, windows.py those of conv, pool and resize."""

from __future__ import annotations

from linnet import ops
from linnet.autodiff import windows
from linnet.autodiff._tools import (
    FLOAT_DTYPES,
    Gradients,
    Rule,
    constant_of,
    elementwise,
    expand_like,
    filled,
    integers,
    operand,
    reshape_like,
    shape_of,
    through,
    unbroadcast,
)
from linnet.autodiff.control import call_gradient, if_gradient
from linnet.autodiff.copies import copy_gradient
from linnet.autodiff.loops import while_gradient
from linnet.autodiff.maps import map_gradient
from linnet.autodiff.recurrent import recurrent_gradient
from linnet.autodiff.sparse import rows_of
from linnet.errors import GraphError
from linnet.graph import Node, Tensor
from linnet.mapping import Expr


def _first(node: Node, given: list[Tensor | None]) -> tuple[Tensor, Tensor, Tensor]:
    """Input 0, output 0 and its gradient."""
    x, g = node.inputs[0], given[0]
    if x is None or g is None or any(extra is not None for extra in given[1:]):
        raise GraphError("only its first output has a gradient", code=301)
    return x, node.outputs[0], g


def _reduced_axes(node: Node, x: Tensor) -> list[int]:
    rank, given = len(shape_of(x)), operand(node, 1)
    axes = list(node.attribute("axes")) if given is None else constant_of(given, "axes")
    if not axes and not node.attribute("noop_with_empty_axes"):
        return list(range(rank))
    return sorted({a % rank for a in axes})


def _count(x: Tensor, axes: list[int]) -> Tensor:
    """How many elements are reduced to one, as a scalar of x's dtype."""
    sizes = ops.gather(ops.shape(x), integers(x, axes))
    return ops.cast(ops.reduce(sizes, kind="prod", keep_dims=False), dtype=x.dtype)


def reduce_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """By kind; maxima and minima share the gradient evenly among equal elements."""
    x, y, g = _first(node, given)
    kind = node.attribute("kind")
    if kind == "sum" and node.attribute("keep_dims"):
        return [expand_like(g, x)]  # whatever the axes are, which may be computed
    axes = _reduced_axes(node, x)
    if not axes and kind in ("sum", "mean", "max", "min", "prod"):
        return [g]
    if not node.attribute("keep_dims") and axes:
        g, y = (ops.copy([t], kind="unsqueeze", axes=axes)[0] for t in (g, y))
    if kind == "sum":
        return [expand_like(g, x)]
    if kind == "mean":
        return [expand_like(ops.divide(g, _count(x, axes)), x)]
    if kind in ("max", "min"):
        hits = elementwise([x, y], lambda v, top: v.eq(top), "bool")
        ties = ops.reduce(ops.cast(hits, dtype=x.dtype), kind="sum", axes=axes, keep_dims=True)
        return [elementwise([hits, g, ties], lambda h, d, n: h.select(d / n, 0.0), x.dtype)]
    if kind == "prod":
        return [_prod(x, axes, g)]
    return [elementwise([x, y, g], _REDUCE[kind], x.dtype)]


_REDUCE = {
    "l1": lambda v, y, g: g * v.unary("sign"),
    "l2": lambda v, y, g: y.eq(0.0).select(0.0, g * v / y),
    "sum_square": lambda v, y, g: g * v * 2.0,
    "log_sum": lambda v, y, g: g / y.unary("exp"),
    "log_sum_exp": lambda v, y, g: g * (v - y).unary("exp"),
}


def _prod(x: Tensor, axes: list[int], g: Tensor) -> Tensor:
    """Products of all the others, axis after axis: right where elements are zero."""
    stages = [x]
    for axis in axes[:-1]:
        stages.append(ops.reduce(stages[-1], kind="prod", axes=[axis], keep_dims=True))
    for value, axis in zip(stages[::-1], axes[::-1], strict=True):
        along = integers(x, axis)
        before = ops.cumsum(value, along, exclusive=True, product=True)
        after = ops.cumsum(value, along, exclusive=True, product=True, reverse=True)
        g = elementwise([g, before, after], lambda d, a, b: d * a * b, x.dtype)
    return g


def matmul_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """Two matmuls, summed over broadcast batch dimensions; bias: a sum."""
    _, _, g = _first(node, given)
    a, b = node.inputs[0], node.inputs[1]
    assert a is not None and b is not None
    bias, ta, tb = operand(node, 2), node.attribute("transpose_a"), node.attribute("transpose_b")
    result: list[Tensor | None] = [None, None, None]
    if bias is not None and needs[2]:
        result[2] = unbroadcast(g, bias)
    row, column = len(shape_of(a)) == 1, len(shape_of(b)) == 1
    left, right = a, b
    if row:
        left, ta = ops.copy([a], kind="unsqueeze", axes=[0])[0], False
        g = ops.copy([g], kind="unsqueeze", axes=[-1 if column else -2])[0]
    if column:
        right, tb = ops.copy([b], kind="unsqueeze", axes=[1])[0], False
        g = ops.copy([g], kind="unsqueeze", axes=[-1])[0]
    if needs[0]:
        if ta:
            made = ops.matmul(right, g, transpose_a=tb, transpose_b=True)
        else:
            made = ops.matmul(g, right, transpose_b=not tb)
        made = unbroadcast(made, left)
        result[0] = reshape_like(made, a) if row else made
    if needs[1]:
        if len(shape_of(right)) == 2 and len(shape_of(left)) > 2 and not ta:  # one product over all batches
            k, n = shape_of(left)[-1], shape_of(g)[-1]
            if isinstance(k, int) and isinstance(n, int):
                left, g = ops.reshape(left, [-1, k]), ops.reshape(g, [-1, n])
        if tb:
            made = ops.matmul(g, left, transpose_a=True, transpose_b=ta)
        else:
            made = ops.matmul(left, g, transpose_a=not ta)
        made = unbroadcast(made, right)
        result[1] = reshape_like(made, b) if column else made
    return result


def softmax_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """y * (g - sum(g * y)); of the logarithm: g - exp(y) * sum(g)."""
    _, y, g = _first(node, given)
    axes = [node.attribute("axis")]
    if node.attribute("log"):
        if (single := _single(g, y, axes[0])) is not None:
            return [single]
        total = ops.reduce(g, kind="sum", axes=axes)
        return [elementwise([g, y, total], lambda d, v, s: d - v.unary("exp") * s, y.dtype)]
    total = ops.reduce(ops.multiply(g, y), kind="sum", axes=axes)
    return [elementwise([g, y, total], lambda d, v, s: v * (d - s), y.dtype)]


def _single(g: Tensor, y: Tensor, axis: int) -> Tensor | None:
    """The gradient of a log-softmax of which one element per line was taken, in one map: g is zeros with one element per line
    scattered into them (gather_gradient), which are then not needed."""
    node, shape = g.node, shape_of(y)
    axis %= len(shape)
    if node is None or node.op != "scatter" or node.attribute("kind") != "elements":
        return None
    zeros, indices, picked = node.inputs
    assert zeros is not None and indices is not None and picked is not None
    source = zeros.node.inputs[0] if zeros.node is not None and zeros.node.op == "copy" else zeros
    empty = source is not None and source.data is not None and not source.data.any()
    size, wanted = shape[axis], tuple(1 if i == axis else d for i, d in enumerate(shape))
    if not empty or node.attribute("axis") % len(shape) != axis or shape_of(indices) != wanted or None in wanted:
        return None
    if not isinstance(size, int) or size >= 2**31:
        return None

    own = elementwise([indices], lambda i: (i < 0).select(i + size, i), "i32")
    return elementwise(
        [picked, y, own], lambda d, v, i: v.iota(axis, "i32").eq(i).select(d, 0.0) - v.unary("exp") * d, y.dtype
    )


def _normal(x: Tensor, axes: list[int], epsilon: float, rms: bool) -> Tensor:
    """x without its mean (unless rms), divided by its deviation."""
    if not rms:
        x = ops.subtract(x, ops.reduce(x, kind="mean", axes=axes))
    square = ops.reduce(ops.multiply(x, x), kind="mean", axes=axes)
    return elementwise([x, square], lambda v, s: v / (s + epsilon).unary("sqrt"), x.dtype)


def _affine(x: Tensor, scale: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if scale is None else ops.multiply(x, scale)
    return x if bias is None else ops.add(x, bias)


def layer_norm_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """Through means and maps."""
    x, _, g = _first(node, given)
    rank = len(shape_of(x))
    axes = list(range(node.attribute("axis") % rank, rank))

    def build(x: Tensor, scale: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        return _affine(_normal(x, axes, node.attribute("epsilon"), node.attribute("rms")), scale, bias)

    return through(build, node.inputs, g, needs)


def _per_channel(t: Tensor | None, rank: int, channel_axis: int) -> Tensor | None:
    if t is None:
        return None
    return ops.reshape(t, [-1 if i == channel_axis % rank else 1 for i in range(rank)])


def batch_norm_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """Through one map, with the statistics as operands like the others."""
    x, _, g = _first(node, given)
    rank, epsilon = len(shape_of(x)), float(node.attribute("epsilon"))

    def build(x: Tensor, *channels: Tensor) -> Tensor:
        wide = [_per_channel(t, rank, node.attribute("channel_axis")) for t in channels]

        def body(v: Expr, s: Expr, b: Expr, m: Expr, w: Expr) -> Expr:
            deviation = (w + epsilon).unary("sqrt")
            return (v - m) / deviation * s + b

        return elementwise([x, *(t for t in wide if t is not None)], body, x.dtype)

    return through(build, node.inputs, g, needs)


def group_norm_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """Through a reshape to [batch, groups, the rest], means and maps."""
    x, _, g = _first(node, given)
    rank, groups, last = (
        len(shape_of(x)),
        node.attribute("groups"),
        node.attribute("channel_axis") % len(shape_of(x)) != 1,
    )
    channels = shape_of(x)[-1 if last else 1]
    if not isinstance(channels, int):
        raise GraphError("its rule needs a fixed number of channels", code=304)
    count = int(groups or channels)

    def build(x: Tensor, scale: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        first = ops.transpose(x, [0, rank - 1, *range(1, rank - 1)]) if last else x
        normal = _normal(ops.reshape(first, [0, count, -1]), [2], node.attribute("epsilon"), False)
        y = reshape_like(normal, first)
        y = ops.transpose(y, [0, *range(2, rank), 1]) if last else y
        axis = node.attribute("channel_axis")
        return _affine(y, _per_channel(scale, rank, axis), _per_channel(bias, rank, axis))

    return through(build, node.inputs, g, needs)


def gather_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """Zeros, with the gradient added at the indices; of whole rows of a variable: these rows."""
    x, _, g = _first(node, given)
    indices, kind = node.inputs[1], node.attribute("kind")
    assert indices is not None
    rank = len(shape_of(x))
    if kind == "elements":
        return [ops.scatter(filled(x, 0.0), indices, g, axis=node.attribute("axis"), reduction="add")]
    if kind == "nd":
        if node.attribute("batch_dims"):
            raise GraphError("gather nd with batch_dims has no gradient rule", code=301)
        return [ops.scatter(filled(x, 0.0), indices, g, kind="nd", reduction="add")]
    axis, count = node.attribute("axis") % rank, len(shape_of(indices))
    if node.attribute("batch_dims"):
        raise GraphError("gather with batch_dims has no gradient rule", code=301)
    if axis == 0 and x.variable is not None and x.static_shape is not None:
        return [rows_of(x, indices, g, node.attribute("from_end"))]
    rows = ops.copy([indices], kind="unsqueeze", axes=[count])[0]
    if axis == 0:
        return [ops.scatter(filled(x, 0.0), rows, g, kind="nd", reduction="add")]
    # The gathered axis goes first, on both sides.
    there = [axis, *(i for i in range(rank) if i != axis)]
    moved = ops.transpose(g, [*range(axis, axis + count), *range(axis), *range(axis + count, rank - 1 + count)])
    made = ops.scatter(ops.transpose(filled(x, 0.0), there), rows, moved, kind="nd", reduction="add")
    return [ops.transpose(made, [there.index(i) for i in range(rank)])]


def scatter_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """none: zeros where it was written, and a gather (indices must not repeat); add: all of it, and a gather."""
    _, _, g = _first(node, given)
    indices, updates = node.inputs[1], node.inputs[2]
    assert indices is not None and updates is not None
    kind, axis, reduction = node.attribute("kind"), node.attribute("axis"), node.attribute("reduction")
    if reduction not in ("none", "add"):
        raise GraphError(f"scatter with reduction {reduction} has no gradient rule", code=301)
    x_gradient: Tensor | None = None
    if needs[0]:
        x_gradient = g
        if reduction == "none":
            x_gradient = ops.scatter(g, indices, filled(updates, 0.0), kind=kind, axis=axis)
    return [
        x_gradient,
        None,
        ops.gather(g, indices, kind=kind, axis=axis if kind == "elements" else 0) if needs[2] else None,
    ]


def cumsum_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """cumsum the other way; of a running product (of elements that are not 0): the sum of g * y, divided by x."""
    x, y, g = _first(node, given)
    axis = node.inputs[1]
    assert axis is not None
    product = node.attribute("product")
    back = ops.cumsum(
        ops.multiply(g, y) if product else g, axis,
        exclusive=node.attribute("exclusive"), reverse=not node.attribute("reverse"),
    )  # fmt: skip
    return [ops.divide(back, x) if product else back]


def top_k_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """Zeros, with the gradient of the values at their indices."""
    x, _, g = _first(node, given)
    return [
        ops.scatter(filled(x, 0.0), node.outputs[1], g, axis=node.attribute("axis") % len(shape_of(x)), reduction="add")
    ]


def cast_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """Between floats: a cast back."""
    x, _, g = _first(node, given)
    return [ops.cast(g, dtype=x.dtype) if x.dtype in FLOAT_DTYPES else None]


RULES: dict[str, Rule] = {
    "map": map_gradient,
    "copy": copy_gradient,
    "reduce": reduce_gradient,
    "matmul": matmul_gradient,
    "softmax": softmax_gradient,
    "layer_norm": layer_norm_gradient,
    "batch_norm": batch_norm_gradient,
    "group_norm": group_norm_gradient,
    "gather": gather_gradient,
    "scatter": scatter_gradient,
    "cumsum": cumsum_gradient,
    "top_k": top_k_gradient,
    "cast": cast_gradient,
    "recurrent": recurrent_gradient,
    "if": if_gradient,
    "while": while_gradient,
    "call": call_gradient,
    **windows.RULES,
}
"""Op: its rule. What is not here raises GraphError with the reason of the op table."""
