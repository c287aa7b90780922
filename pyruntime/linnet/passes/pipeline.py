"""Runs the passes in order: `run` over a graph, `simplify` over one function."""

from __future__ import annotations

from typing import TypeVar

from linnet.ir.dtypes import FOLD_LIMIT
from linnet.ir.function import Function
from linnet.ir.graph import Graph
from linnet.passes.cleanup import remove_dead, remove_dead_functions, remove_double, remove_identities
from linnet.passes.folding import fold_constants
from linnet.passes.fusion import fuse_maps
from linnet.passes.gathers import look_up_first
from linnet.passes.norms import expand_batch_norm

G = TypeVar("G", bound=Graph)
_ROUNDS = 8


def run(graph: G, *, fold_limit: int = FOLD_LIMIT) -> G:
    """Simplifies the graph in place and returns it. Inputs, outputs, their names and the provenance are kept.

    fold_limit: a value computed from constants becomes a constant if it has at most this many bytes.
    """
    remove_dead_functions(graph)
    for function in graph.functions:
        simplify(function, fold_limit=fold_limit)
    remove_dead_functions(graph)
    return graph


def simplify(function: Function, *, fold_limit: int = FOLD_LIMIT) -> None:
    """Simplifies one function, but not the functions that its nodes refer to."""
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
