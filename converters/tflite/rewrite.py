"""Rewrites that run after the rules: linnet's general passes, and the folding of constants of any size.
They do not change what the graph computes."""

from __future__ import annotations

from linnet import passes
from linnet.converters.onnx.rewrite import fold_weights
from linnet.facade import Graph
from linnet.passes.attention import find_attention
from linnet.passes.kept_types import keeping_types


def rewrite(graph: Graph, weights: bool = True) -> None:
    """Runs all rewrites. They are ordered so that each enables the next. weights: False keeps equal weights apart, so that
    they can be trained."""
    for function in graph.functions:
        for step in (passes.remove_identities, passes.remove_dead, fold_weights):
            keeping_types(function, step)
    passes.run(graph, share=weights)
    if weights:
        for function in graph.functions:
            keeping_types(function, find_attention)
