"""Constant folding: if all inputs of a node are constants, the C library's reference kernels compute its outputs at
once. `emit` folds small values while a graph is built. This pass folds values that became constant later and, on
request, larger values."""

from __future__ import annotations

from linnet.ir import traits
from linnet.ir.dtypes import FOLD_LIMIT, bytes_of
from linnet.ir.function import Function, Node, Tensor
from linnet.ir.graph import graph_of
from linnet.ir.infer import evaluate_node, known_shape
from linnet.passes.rewrite import replace


def fold_constants(function: Function, limit: int = FOLD_LIMIT) -> bool:
    """Computes nodes with constant inputs if their results have at most `limit` bytes. Returns whether any were
    computed.

    Outputs of the function are not folded, so that they keep a node.
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
        if values is None or not graph_of(function).may_fold(size, limit):
            kept.append(node)
            continue
        function.graph.folded += size
        for old, value in zip(node.outputs, values, strict=True):
            table[old] = function.constant(value, old.name, old.dtype, old.quantization)
    function.nodes = kept
    replace(function, table)
    return bool(table)


def _foldable(given: set[Tensor], node: Node, limit: int) -> bool:
    if node.op in traits.CONTROL or node.op in traits.REGISTERED or node.op == "assign" or not node.inputs:
        return False
    if any(t is not None and t.data is None for t in node.inputs) or any(t in given for t in node.outputs):
        return False
    total = 0
    for t in node.outputs:
        shape = t.static_shape
        if shape is None:  # inference with the constant values may know more
            continue
        count = 1
        for d in shape:
            count *= d
        total += bytes_of(t.dtype, [count])
    return total <= limit
