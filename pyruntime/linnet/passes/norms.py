"""If the statistics of a batch normalization are computed, as in training, it becomes maps, which fuse with their
neighbours. If they are constants or variables, as in inference, the node is kept: it has its own kernel or is folded
into the op before it."""

from __future__ import annotations

from linnet.builder import ops
from linnet.builder.mapping import pointwise
from linnet.ir.function import Function, Node, Tensor
from linnet.passes.kept_types import rewrites
from linnet.passes.rewrite import put_in_place, splice


@rewrites("batch_norm")
def expand_batch_norm(function: Function) -> bool:
    """batch_norm(x, scale, bias, mean, variance) becomes (x - mean) * factor + bias, with the factor scale / deviation
    computed per channel. Returns whether anything changed."""
    found = [n for n in function.nodes if n.op == "batch_norm" and _computed(n)]
    places: dict[Node, list[Node]] = {}
    for node in found:
        before = len(function.nodes)
        put_in_place(places, node, _maps(node), before, node.source)
    splice(function, places)
    return bool(found)


def _computed(node: Node) -> bool:
    x = node.inputs[0]
    statistics = [t for t in node.inputs[3:5] if t is not None]
    return x is not None and (x.rank or 0) > 1 and all(t.node is not None for t in statistics)


def _maps(node: Node) -> Tensor:
    x, scale, bias, mean, variance = node.inputs
    assert x is not None and x.shape is not None and scale is not None and variance is not None
    rank, axis, epsilon = len(x.shape), node.attribute("channel_axis"), float(node.attribute("epsilon"))
    shape = [-1 if i == axis % rank else 1 for i in range(rank)]
    factor = pointwise([scale, variance], lambda s, v: s / (v + epsilon).unary("sqrt"), x.dtype)
    assert isinstance(factor, Tensor)
    channels = [ops.reshape(t, shape) for t in (mean, factor, bias) if t is not None]
    made = pointwise([x, *channels], lambda v, m, f, b: (v - m) * f + b, x.dtype)
    assert isinstance(made, Tensor)
    return made
