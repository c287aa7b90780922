"""Rewrites that run after the rules: linnet's general passes, and the folding of constants of any size.
They do not change what the graph computes."""

from __future__ import annotations

from linnet import passes
from linnet.converters.onnx.rewrite import fold_weights
from linnet.facade import Graph


def rewrite(graph: Graph) -> None:
    """Runs all rewrites. They are ordered so that each enables the next."""
    for function in graph.functions:
        passes.remove_identities(function)
        passes.remove_dead(function)
        fold_weights(function)
    passes.run(graph)
