"""Converts operands of nodes from opsets below 7 to today's form. In those opsets, the attribute `axis` gave the
position of the second operand's dimensions. Today, these dimensions are always aligned at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from linnet.converters.onnx.operation import rank_of

if TYPE_CHECKING:
    from linnet.converters.onnx.operation import Operation

NUMPY_SINCE = 7  # the opset that introduced NumPy's broadcasting
BINARY = frozenset({"Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less"})


def enter(op: Operation) -> None:
    """Called before a rule runs."""
    if op.opset >= NUMPY_SINCE or op.node.domain not in ("", "ai.onnx"):
        return
    if op.node.op_type == "Gemm":
        op.ignore("broadcast")  # the third operand follows NumPy's broadcasting
    elif op.node.op_type == "PRelu":
        _shift(op, 1)
    elif op.node.op_type in BINARY:
        axis = op.attribute("axis")
        if op.attribute("broadcast") and axis is not None:
            _shift(op, axis)


def _shift(op: Operation, axis: int) -> None:
    """Aligns the dimensions of operand 1 with operand 0 from `axis` on. A single number needs no alignment."""
    a, b = op.input(0), op.input(1)
    rank, own = rank_of(a, "input 0"), rank_of(b, "input 1")
    behind = rank - own - (axis + rank if axis < 0 else axis)
    if behind > 0 and b.static_shape != (1,):
        op.inputs[1] = op.unsqueeze(b, list(range(own, own + behind)))
