"""Gradient rules, one per op: (node, gradients of its outputs, which inputs need one) -> gradients of its inputs.
RULES is the table. Some families of ops have files of their own (maps.py, copies.py, windows.py, indexing.py, ...)."""

from __future__ import annotations

from collections.abc import Callable

from linnet.autodiff import indexing, quantized, windows
from linnet.autodiff._tools import (
    FLOAT_DTYPES,
    constant_of,
    elementwise,
    expand_like,
    first,
    integers,
    operand,
    reshape_like,
    shape_of,
    unbroadcast,
)
from linnet.autodiff.control import call_gradient, if_gradient
from linnet.autodiff.copies import copy_gradient
from linnet.autodiff.loops import while_gradient
from linnet.autodiff.maps import map_gradient
from linnet.autodiff.recurrent import recurrent_gradient, second_gradient
from linnet.autodiff.sparse import Gradients, Rule, add_up
from linnet.autodiff.walk import through
from linnet.builder import ops
from linnet.builder.attention import ATTRIBUTES, attention_in_parts
from linnet.clib.errors import Error, GraphError
from linnet.ir.expr import Expr
from linnet.ir.function import Node, Tensor
from linnet.ir.operands import user_op_name
from linnet.ir.user_op import unpack


def _reduced_axes(node: Node, x: Tensor) -> list[int]:
    rank, given = len(shape_of(x)), operand(node, 1)
    axes = list(node.attribute("axes")) if given is None else constant_of(given, "axes")
    if not axes and not node.attribute("noop_with_empty_axes"):
        return list(range(rank))
    return sorted({a % rank for a in axes})


def _count(x: Tensor, axes: list[int]) -> Tensor:
    """Returns the number of elements that are reduced to one, as a scalar of x's dtype."""
    sizes = ops.gather(ops.shape(x), integers(x, axes))
    return ops.cast(ops.reduce(sizes, kind="prod", keep_dims=False), dtype=x.dtype)


def reduce_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """The gradient depends on the kind of reduction. Maxima and minima share the gradient equally among equal
    elements."""
    x, y, g = first(node, given)
    kind = node.attribute("kind")
    if kind == "sum" and node.attribute("keep_dims"):
        return [expand_like(g, x)]  # works for any axes, including computed ones
    axes = _reduced_axes(node, x)
    if not axes and kind in ("sum", "mean", "max", "min", "prod"):
        return [g]
    if not node.attribute("keep_dims") and axes:
        g, y = (ops.copy([t], kind="unsqueeze", axis=axes)[0] for t in (g, y))
    if kind == "sum":
        return [expand_like(g, x)]
    if kind == "mean":
        return [expand_like(ops.divide(g, _count(x, axes)), x)]
    if kind in ("max", "min"):
        hits = elementwise([x, y], lambda v, top: v.eq(top), "bool")
        ties = ops.reduce(ops.cast(hits, dtype=x.dtype), kind="sum", axis=axes, keep_dims=True)
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
    """Returns, for each element, the product of all other elements, computed axis by axis. This is correct even if
    elements are zero."""
    stages = [x]
    for axis in axes[:-1]:
        stages.append(ops.reduce(stages[-1], kind="prod", axis=[axis], keep_dims=True))
    for value, axis in zip(stages[::-1], axes[::-1], strict=True):
        along = integers(x, axis)
        before = ops.cumsum(value, along, exclusive=True, product=True)
        after = ops.cumsum(value, along, exclusive=True, product=True, reverse=True)
        g = elementwise([g, before, after], lambda d, a, b: d * a * b, x.dtype)
    return g


def matmul_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """The gradients are two matmuls, summed over broadcast batch dimensions, and a sum for the bias."""
    _, _, g = first(node, given)
    a, b = node.inputs[0], node.inputs[1]
    assert a is not None and b is not None
    bias, ta, tb = operand(node, 2), node.attribute("transpose_a"), node.attribute("transpose_b")
    result: list[Tensor | None] = [None, None, None]
    if bias is not None and needs[2]:
        result[2] = unbroadcast(g, bias)
    row, column = len(shape_of(a)) == 1, len(shape_of(b)) == 1
    left, right = a, b
    if row:
        left, ta = ops.copy([a], kind="unsqueeze", axis=[0])[0], False
        g = ops.copy([g], kind="unsqueeze", axis=[-1 if column else -2])[0]
    if column:
        right, tb = ops.copy([b], kind="unsqueeze", axis=[1])[0], False
        g = ops.copy([g], kind="unsqueeze", axis=[-1])[0]
    if needs[0]:
        if ta:
            made = ops.matmul(right, g, transpose_a=tb, transpose_b=True)
        else:
            made = ops.matmul(g, right, transpose_b=not tb)
        made = unbroadcast(made, left)
        result[0] = reshape_like(made, a) if row else made
    if needs[1]:
        if len(shape_of(right)) == 2 and len(shape_of(left)) > 2 and not ta:  # one matrix product over all batches
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
    """y * (g - sum(g * y)); for log-softmax: g - exp(y) * sum(g)."""
    _, y, g = first(node, given)
    axes = [node.attribute("axis")]
    if node.attribute("log"):
        if (single := _single(g, y, axes[0])) is not None:
            return [single]
        total = ops.reduce(g, kind="sum", axis=axes)
        return [elementwise([g, y, total], lambda d, v, s: d - v.unary("exp") * s, y.dtype)]
    total = ops.reduce(ops.multiply(g, y), kind="sum", axis=axes)
    return [elementwise([g, y, total], lambda d, v, s: v * (d - s), y.dtype)]


def attention_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """Computes the attention weights again with ordinary ops, and walks back through the products, the map and the
    softmax."""
    attributes = {name: node.attribute(name) for name in ATTRIBUTES}
    return through(lambda *operands: attention_in_parts(operands, attributes), node.inputs, given, needs)


def _single(g: Tensor, y: Tensor, axis: int) -> Tensor | None:
    """The gradient of a log-softmax from which one element per row was taken, in one map. g consists of zeros with one
    scattered element per row (gather_gradient); the map does not need these zeros."""
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
    """x minus its mean (except with rms), divided by its standard deviation."""
    if not rms:
        x = ops.subtract(x, ops.reduce(x, kind="mean", axis=axes))
    square = ops.reduce(ops.multiply(x, x), kind="mean", axis=axes)
    return elementwise([x, square], lambda v, s: v / (s + epsilon).unary("sqrt"), x.dtype)


def _affine(x: Tensor, scale: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if scale is None else ops.multiply(x, scale)
    return x if bias is None else ops.add(x, bias)


def layer_norm_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """The gradients, expressed with means and maps."""
    x, epsilon, rms = node.inputs[0], node.attribute("epsilon"), node.attribute("rms")
    assert x is not None
    rank = len(shape_of(x))
    axes = list(range(node.attribute("axis") % rank, rank))

    def build(x: Tensor, scale: Tensor | None = None, bias: Tensor | None = None) -> list[Tensor]:
        made = [_affine(_normal(x, axes, epsilon, rms), scale, bias)]
        if any(g is not None for g in given[1:]):
            mean = ops.reduce(x, kind="mean", axis=axes)
            made.append(ops.scale(mean, 0.0) if rms else mean)
            rest = ops.subtract(x, made[1])
            square = ops.reduce(ops.multiply(rest, rest), kind="mean", axis=axes)
            made.append(elementwise([square], lambda s: 1.0 / (s + epsilon).unary("sqrt"), x.dtype))
        return made

    return through(build, node.inputs, given, needs)


def _along(t: Tensor, rank: int, axis: int) -> Tensor:
    """Reshapes a vector [channels] so that it broadcasts along the channel axis."""
    return ops.reshape(t, [-1 if i == axis % rank else 1 for i in range(rank)])


def _per_channel(t: Tensor | None, rank: int, channel_axis: int) -> Tensor | None:
    return None if t is None else _along(t, rank, channel_axis)


def batch_norm_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """The gradient for x is g * scale / deviation. Maps over channels compute the other gradients from two sums per
    channel: the sum of g and the sum of g * (x - mean). See Ioffe and Szegedy, "Batch normalization", 2015, section 3,
    where mean and variance have gradients of their own."""
    x, _, g = first(node, given)
    scale, mean, variance = node.inputs[1], node.inputs[3], node.inputs[4]
    assert scale is not None and mean is not None and variance is not None
    rank, epsilon, axis = len(shape_of(x)), float(node.attribute("epsilon")), node.attribute("channel_axis")
    result: list[Tensor | None] = [None] * 5
    if needs[0]:
        factor = elementwise([scale, variance], lambda s, v: s / (v + epsilon).unary("sqrt"), x.dtype)
        result[0] = ops.multiply(g, _along(factor, rank, axis))
    if any(needs[1:]):
        total, product = ops.moments(x, g, mean, kind="products", channel_axis=axis)
        bodies: list[Callable[..., Expr]] = [
            lambda a, b, s, v: b / (v + epsilon).unary("sqrt"),
            lambda a, b, s, v: a,
            lambda a, b, s, v: -a * s / (v + epsilon).unary("sqrt"),
            lambda a, b, s, v: b * s * -0.5 / ((v + epsilon) * (v + epsilon).unary("sqrt")),
        ]
        for i, body in enumerate(bodies, 1):
            if needs[i]:
                result[i] = total if i == 2 else elementwise([total, product, scale, variance], body, x.dtype)
    return result


def moments_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """For the kind `statistics`, the gradient is dmean / n + dvariance * 2 (x - mean) / n. The kind `products` is
    linear in g and in x, so maps compute its gradients."""
    x, first, second = node.inputs[0], *given
    assert x is not None
    rank, axis = len(shape_of(x)), node.attribute("channel_axis")
    if node.attribute("kind") == "statistics":
        parts: list[Tensor] = []
        count = _count(x, [i for i in range(rank) if i != axis % rank])
        if first is not None:
            parts.append(_along(ops.divide(first, count), rank, axis))
        if second is not None:
            slope = _along(elementwise([second, count], lambda d, n: d * 2.0 / n, x.dtype), rank, axis)
            middle = _along(node.outputs[0], rank, axis)
            parts.append(elementwise([x, middle, slope], lambda v, m, s: (v - m) * s, x.dtype))
        total = add_up(parts)
        return [total if shape_of(total) == shape_of(x) else expand_like(total, x)]
    g, mean = node.inputs[1], node.inputs[2]
    assert g is not None and mean is not None
    a, b = (None if t is None else _along(t, rank, axis) for t in (first, second))
    middle = _along(mean, rank, axis)
    for_g: list[Tensor] = []
    if a is not None:
        for_g.append(expand_like(a, g))
    if b is not None:
        for_g.append(elementwise([x, middle, b], lambda v, m, s: (v - m) * s, x.dtype))
    return [
        None if b is None else ops.multiply(g, b),
        add_up(for_g),
        None if second is None else elementwise([second, node.outputs[0]], lambda d, s: -d * s, x.dtype),
    ]


def group_norm_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """The gradients, expressed with a reshape to [batch, groups, the rest], means and maps."""
    x, _, g = first(node, given)
    rank, groups, last = (
        len(shape_of(x)),
        node.attribute("groups"),
        node.attribute("channel_axis") % len(shape_of(x)) != 1,
    )
    channels = shape_of(x)[-1 if last else 1]
    if not isinstance(channels, int):
        raise GraphError(
            "the gradient rule needs a fixed number of channels", code=304, got=str(x.shape), hint="use fixed sizes"
        )
    count = int(groups or channels)

    def build(x: Tensor, scale: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        first = ops.transpose(x, [0, rank - 1, *range(1, rank - 1)]) if last else x
        normal = _normal(ops.reshape(first, [0, count, -1]), [2], node.attribute("epsilon"), False)
        y = reshape_like(normal, first)
        y = ops.transpose(y, [0, *range(2, rank), 1]) if last else y
        axis = node.attribute("channel_axis")
        return _affine(y, _per_channel(scale, rank, axis), _per_channel(bias, rank, axis))

    return through(build, node.inputs, g, needs)


def cast_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """Between float types: a cast back."""
    x, _, g = first(node, given)
    return [ops.cast(g, dtype=x.dtype) if x.dtype in FLOAT_DTYPES else None]


def user_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """Returns the gradients that the op's own gradient function builds."""
    name = user_op_name(node.attributes)
    op = node.outputs[0].function.graph.user_ops.get(name)
    if op is None:
        raise GraphError(
            f"user op {name} was not given to the graph", code=301,
            hint="give the op when the graph is loaded: linnet.Graph.load(path, user_ops=[...])",
        )  # fmt: skip
    if op.gradient is None:
        raise GraphError(
            f"user op {name} has no gradient", code=301, hint="give it one: linnet.UserOp(..., gradient=function)"
        )
    try:
        made = op.gradient(list(node.inputs), list(node.outputs), given, **unpack(node.attributes))
    except Error:
        raise
    except Exception as error:
        raise GraphError(
            f"the gradient function of user op {name} raised {type(error).__name__}: {error}", code=307,
            op=node.name or node.op, tensor=node.outputs[0].name, hint="correct the function given as gradient= to linnet.UserOp",
        ) from error  # fmt: skip
    made = [made] if isinstance(made, Tensor) else made
    if not isinstance(made, list | tuple) or not all(isinstance(g, Tensor | None) for g in made):
        raise GraphError(
            f"the gradient function of user op {name} did not give tensors", code=307,
            expected="one tensor or None per input", got=repr(made)[:80],
        )  # fmt: skip
    if len(made) != len(needs):
        raise GraphError(
            f"the gradient function of user op {name} gave {len(made)} gradients for {len(needs)} inputs",
            code=303,
            expected="one tensor or None per input",
        )
    return [g if need else None for g, need in zip(made, needs, strict=True)]


RULES: dict[str, Rule] = {
    "map": map_gradient,
    "copy": copy_gradient,
    "reduce": reduce_gradient,
    "matmul": matmul_gradient,
    "softmax": softmax_gradient,
    "attention": attention_gradient,
    "layer_norm": layer_norm_gradient,
    "batch_norm": batch_norm_gradient,
    "moments": moments_gradient,
    "group_norm": group_norm_gradient,
    "cast": cast_gradient,
    "user": user_gradient,
    "recurrent": recurrent_gradient,
    "recurrent_gradient": second_gradient,
    "if": if_gradient,
    "while": while_gradient,
    "call": call_gradient,
    **indexing.RULES,
    **quantized.RULES,
    **windows.RULES,
}
"""The rule of each op. For any other op, GraphError is raised with the reason from the op table."""
