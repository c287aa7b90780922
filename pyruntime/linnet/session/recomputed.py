"""Finds the steps of a plan whose results are the same in every run, because they depend only on constants. Planning computes
most of these values once, but not those that would take too much memory (runtime_c/plan/graph/fold.c)."""

from __future__ import annotations

from collections.abc import Sequence

from linnet.ir import traits
from linnet.ir.function import Function, Tensor
from linnet.ir.node_names import step_names
from linnet.session.step import Step


def recomputed(function: Function, steps: Sequence[Step]) -> list[str]:
    """Returns the names of the steps of a plan of `function` that compute the same result in every run, the longest first
    by the model of time. Values that depend on the shape of an input count as constants, because a plan has one shape."""
    known: set[Tensor] = set()
    skipped = {*traits.CONTROL, *traits.REGISTERED, "assign"}
    names = set()
    for node, name in step_names(function).items():
        fixed = node.op == "shape" or all(t is None or t.data is not None or t in known for t in node.inputs)
        if not fixed or node.op in skipped:
            continue
        known.update(node.outputs)
        names.add(name)
    found = [step for step in steps if step.name in names]
    return [step.name for step in sorted(found, key=lambda step: -step.modelled_ms)]
