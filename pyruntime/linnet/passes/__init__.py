"""Rewriting of graphs in Python, the same for every target: what is dead, double, constant, or one pointwise chain goes.
`run` applies all of them; each pass is also a function of its own, over one linnet.Function, and says whether it did anything."""

from __future__ import annotations

from linnet.graph import FOLD_LIMIT, Function, Graph
from linnet.passes.cleanup import remove_dead, remove_dead_functions, remove_double, remove_identities
from linnet.passes.folding import fold_constants
from linnet.passes.fusion import fuse_maps
from linnet.passes.gathers import look_up_first
from linnet.passes.heads import replace_head
from linnet.passes.norms import expand_batch_norm
from linnet.passes.statistics import reestimate
from linnet.passes.weights import freeze, trainable

_ROUNDS = 8


def run(graph: Graph, *, fold_limit: int = FOLD_LIMIT) -> Graph:
    """Simplifies the graph in place and returns it. Inputs, outputs, their names, and provenance stay.

    fold_limit: bytes up to which a value computed from constants becomes a constant itself.
    """
    remove_dead_functions(graph)
    for function in graph.functions:
        simplify(function, fold_limit=fold_limit)
    remove_dead_functions(graph)
    return graph


def simplify(function: Function, *, fold_limit: int = FOLD_LIMIT) -> None:
    """The same for one function, without those that its nodes name."""
    expand_batch_norm(function)
    for _ in range(_ROUNDS):
        changed = remove_identities(function)
        changed |= fold_constants(function, fold_limit)
        changed |= look_up_first(function)
        changed |= remove_double(function)
        changed |= fuse_maps(function)
        changed |= remove_dead(function)
        if not changed:
            break


__all__ = [
    "expand_batch_norm",
    "fold_constants",
    "freeze",
    "fuse_maps",
    "look_up_first",
    "reestimate",
    "remove_dead",
    "remove_dead_functions",
    "remove_double",
    "remove_identities",
    "replace_head",
    "run",
    "simplify",
    "trainable",
]  # fmt: skip
