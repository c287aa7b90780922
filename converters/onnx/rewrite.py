"""Rewrites that run after the rules: linnet's general passes, and passes for patterns that exporters write. Each
rewrite replaces a pattern of nodes with fewer nodes. Results change only by rounding."""

from __future__ import annotations

import numpy as np

from linnet import passes
from linnet.clib.errors import GraphError
from linnet.converters.onnx.blocks import keep_blocks_narrow
from linnet.converters.onnx.layer_norms import find_layer_norms
from linnet.converters.onnx.quantized import fuse_quantized
from linnet.converters.onnx.tied import read_transposed
from linnet.converters.onnx.unsigned import sign_activations
from linnet.facade import Graph
from linnet.ir.function import Function, Tensor
from linnet.ir.graph import FOLD_TOTAL
from linnet.ir.infer import evaluate_node
from linnet.passes.affine import absorb, normalizations_to_maps
from linnet.passes.attention import find_attention
from linnet.passes.kept_types import keeping_types
from linnet.passes.weights import compute_weights

MOVES = frozenset(
    {"identity", "reshape", "transpose", "slice", "squeeze", "unsqueeze"}
)  # copies that do not enlarge a tensor


def rewrite(graph: Graph, weights: bool = True) -> None:
    """Runs all rewrites. They are ordered so that each enables the next.

    weights: False keeps weights as they are in the file, with no batch norm folded into them and no two of them merged, so
    that they can be trained."""
    for function in graph.functions:
        for step in (
            passes.remove_identities, passes.remove_dead, *((read_transposed,) if weights else ()), sign_activations,
            fuse_quantized,
            keep_blocks_narrow if weights else compute_weights,
            passes.fold_constants, passes.remove_dead, fold_weights, passes.remove_double, find_layer_norms,
            *((absorb, normalizations_to_maps) if weights else ()),
        ):  # fmt: skip
            keeping_types(function, step, *((weights,) if step is passes.remove_double else ()))
    passes.run(graph, share=weights)
    if weights:
        for function in graph.functions:
            keeping_types(function, find_attention)


def fold_weights(function: Function) -> None:
    """Moves elements of constants (for example to transpose a weight) during conversion, whatever their size.

    If a file moves its weights repeatedly, the new constants have at most twice the bytes of the weights plus
    FOLD_TOTAL; the rest is done during planning."""
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
            continue  # it would fail at run time too
        if values is not None:
            y = node.outputs[0]
            left -= values[0].nbytes
            table[y] = function.constant(np.asarray(values[0]), y.name, y.dtype, y.quantization)
