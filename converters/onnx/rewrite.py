"""Rewrites after the rules: linnet's general passes, and those that exporters' habits call for.
Each makes a pattern of nodes into fewer; none changes what the graph computes beyond rounding."""

from __future__ import annotations

import numpy as np

from linnet import passes
from linnet._ops import evaluate_node
from linnet.converters.onnx.layer_norms import find_layer_norms
from linnet.converters.onnx.quantized import fuse_quantized
from linnet.errors import GraphError
from linnet.graph import FOLD_TOTAL, Function, Graph, Tensor
from linnet.passes.affine import absorb, normalizations_to_maps
from linnet.passes.weights import compute_weights

MOVES = frozenset({"identity", "reshape", "transpose", "slice", "squeeze", "unsqueeze"})  # copies that do not grow


def rewrite(graph: Graph, weights: bool = True) -> None:
    """All rewrites, in the order in which they open the way for one another. weights: False leaves weights as they are in the
    file, with no batch norm folded into them, so that they can be trained."""
    for function in graph.functions:
        passes.remove_identities(function)
        passes.remove_dead(function)
        fuse_quantized(function)
        if not weights:
            compute_weights(function)
        passes.fold_constants(function)
        passes.remove_dead(function)
        fold_weights(function)
        passes.remove_double(function)
        find_layer_norms(function)
        if weights:
            absorb(function)
            normalizations_to_maps(function)
    passes.run(graph)


def fold_weights(function: Function) -> None:
    """Moves the elements of constants of any size now: a transposed weight is a weight. A file that moves its weights again and
    again gets no more than twice their bytes (and FOLD_TOTAL); the rest is done while planning."""
    table: dict[Tensor, Tensor] = {}
    given = set(function.outputs)
    left = FOLD_TOTAL + 2 * sum(t.data.nbytes for t in function.tensors() if t.data is not None)
    for node in function.nodes:
        node.inputs = [table.get(t, t) if t is not None else None for t in node.inputs]
        moves = node.op == "copy" and node.attributes["kind"] in MOVES
        if not moves or node.outputs[0] in given:
            continue
        if any(t is None or t.data is None for t in node.inputs) or left < 0:
            continue
        try:
            values = evaluate_node(node)
        except GraphError:
            continue  # it fails while running as well, if it ever runs
        if values is not None:
            y = node.outputs[0]
            left -= values[0].nbytes
            table[y] = function.constant(np.asarray(values[0]), y.name, y.dtype, y.quantization)
