"""Rewrites after the rules: linnet's general passes, and constants of any size computed now.
None changes what the graph computes."""

from __future__ import annotations

from linnet import passes
from linnet.converters.onnx.rewrite import fold_weights
from linnet.graph import Graph


def rewrite(graph: Graph) -> None:
    """All rewrites, in the order in which they open the way for one another."""
    for function in graph.functions:
        passes.remove_identities(function)
        passes.remove_dead(function)
        fold_weights(function)
    passes.run(graph)
