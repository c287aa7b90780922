"""Rules for comparisons, logic and selection.
Integers with the same quantization are compared as stored."""

from __future__ import annotations

from linnet.converters.tflite.operation import Operation, same_quantization
from linnet.converters.tflite.registry import rule
from linnet.ir.function import Tensor

COMPARISONS = {
    "LESS": "lt", "GREATER": "gt", "GREATER_EQUAL": "ge", "LESS_EQUAL": "le", "EQUAL": "eq", "NOT_EQUAL": "ne",
}  # fmt: skip


@rule(*COMPARISONS)
def compare(op: Operation) -> Tensor:
    a, b = op.input(0), op.input(1)
    if (
        a.quantization is not None
        and b.quantization is not None
        and not same_quantization(a.quantization, b.quantization)
    ):
        a, b = op.real(a), op.real(b)
    return op.map([a, b], lambda x, y: x.binary(COMPARISONS[op.spec.op], y), "bool")


@rule("LOGICAL_AND", "LOGICAL_OR")
def logical(op: Operation) -> Tensor:
    opcode = "and" if op.spec.op == "LOGICAL_AND" else "or"
    return op.map([op.input(0), op.input(1)], lambda x, y: x.binary(opcode, y), "bool")


@rule("LOGICAL_NOT")
def logical_not(op: Operation) -> Tensor:
    return op.map([op.input(0)], lambda x: x.eq(0), "bool")


@rule("SELECT", "SELECT_V2")
def select(op: Operation) -> Tensor:
    condition, yes, no = op.input(0), op.input(1), op.input(2)
    if op.spec.op == "SELECT" and condition.rank == 1 and yes.rank is not None and yes.rank > 1:
        condition = op.emit("copy", [condition], kind="unsqueeze", axes=list(range(1, yes.rank)))
    q = yes.quantization
    if q is not None and (no.quantization is None or not same_quantization(q, no.quantization)):
        return op.store(op.map([condition, op.real(yes), op.real(no)], lambda c, x, y: c.select(x, y), "f32"))
    return op.as_declared(op.map([condition, yes, no], lambda c, x, y: c.select(x, y), yes.dtype))
