"""Rules of control flow. An If whose condition is known is replaced by the branch that is taken.
Loops and data-dependent branches are reported."""

from __future__ import annotations

from collections.abc import Sequence

from linnet.converters.onnx.operation import Operation
from linnet.converters.onnx.registry import rule
from linnet.graph import Tensor


@rule("If")
def if_(op: Operation) -> Sequence[Tensor | None]:
    condition = op.value(0)
    op.ignore("then_branch", "else_branch")
    if condition is None:
        raise op.unsupported(
            "the condition is not known before the model runs",
            "export without data-dependent control flow, or fix the input shapes",
        )
    taken = op.attribute("then_branch" if bool(condition.reshape(-1)[0]) else "else_branch")
    return op.importer.branch(taken, op.scope)


@rule("Loop", "Scan", "SequenceMap")
def loop(op: Operation) -> Tensor:
    raise op.unsupported(f"{op.node.op_type} is not supported yet", "unroll it when exporting")
