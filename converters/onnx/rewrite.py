"""Rewrites after the rules: linnet's general passes, and those that exporters' habits call for.
Each makes a pattern of nodes into fewer; none changes what the graph computes beyond rounding."""

from __future__ import annotations

from linnet.graph import Graph


def rewrite(graph: Graph) -> None:
    """All rewrites, in the order in which they open the way for one another."""
    from linnet import passes

    passes.optimize(graph)
