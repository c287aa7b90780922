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
from linnet.passes.kept_types import keeping_types
from linnet.passes.norms import expand_batch_norm

G = TypeVar("G", bound=Graph)
_ROUNDS = 8


def run(graph: G, *, fold_limit: int = FOLD_LIMIT, share: bool = True) -> G:
    """Simplifies the graph in place and returns it. Inputs, outputs, their names and the provenance are kept.

    fold_limit: a value computed from constants becomes a constant if it has at most this many bytes. share: whether equal
    constants become one; see remove_double.
    """
    remove_dead_functions(graph)
    for function in graph.functions:
        simplify(function, fold_limit=fold_limit, share=share)
    remove_dead_functions(graph)
    return graph


def simplify(function: Function, *, fold_limit: int = FOLD_LIMIT, share: bool = True) -> None:
    """Simplifies one function, but not the functions that its nodes refer to."""
    keeping_types(function, expand_batch_norm)
    for _ in range(_ROUNDS):
        changed = keeping_types(function, remove_identities)
        changed |= keeping_types(function, fold_constants, fold_limit)
        changed |= keeping_types(function, look_up_first)
        changed |= keeping_types(function, remove_double, share)
        changed |= keeping_types(function, fuse_maps)
        changed |= keeping_types(function, remove_dead)
        if not changed:
            break
