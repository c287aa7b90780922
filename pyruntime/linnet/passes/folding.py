"""Constant folding: what only constants go into is computed now, by the C library's reference kernels.
`emit` folds small values while a graph is built; this pass folds what became constant later, and larger values on request."""

from __future__ import annotations

from linnet._ops import CONTROL_FLOW, evaluate_node, known_shape
from linnet.graph import FOLD_LIMIT, Function, Node, Tensor, numpy_dtype
from linnet.passes.rewrite import replace


def fold_constants(function: Function, limit: int = FOLD_LIMIT) -> bool:
    """Computes nodes of constants whose results have at most `limit` bytes. Returns whether there were any.

    Outputs of the function stay computed, so that they keep a node.
    """
    table: dict[Tensor, Tensor] = {}
    kept: list[Node] = []
    given = set(function.outputs)
    for node in function.nodes:
        node.inputs = [None if t is None else table.get(t, t) for t in node.inputs]
        values = None
        if node.op == "shape" and node.outputs[0] not in given:
            dims = known_shape(node.inputs[0], {name: node.attribute(name) for name in ("start", "end")})
            values = None if dims is None else [dims]
        elif _foldable(given, node, limit):
            values = evaluate_node(node, limit)
        size = sum(value.nbytes for value in values or ())
        if values is None or not function.graph.may_fold(size, limit):
            kept.append(node)
            continue
        function.graph.folded += size
        for old, value in zip(node.outputs, values, strict=True):
            table[old] = function.constant(value, old.name, old.dtype, old.quantization)
    function.nodes = kept
    replace(function, table)
    return bool(table)


def _foldable(given: set[Tensor], node: Node, limit: int) -> bool:
    if node.op in CONTROL_FLOW or node.op == "assign" or not node.inputs:
        return False
    if any(t is not None and t.data is None for t in node.inputs) or any(t in given for t in node.outputs):
        return False
    total = 0
    for t in node.outputs:
        shape = t.static_shape
        if shape is None:  # infer with the values at hand may know more
            continue
        count = 1
        for d in shape:
            count *= d
        total += count * numpy_dtype(t.dtype).itemsize
    return total <= limit
