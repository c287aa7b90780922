"""Complex numbers between RFFT2D and the ops that return real numbers. They are f32 tensors with a last dimension of 2
for the two parts. Ops that only move or add numbers are applied to each part."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

from linnet.converters.tflite.problems import Unsupported
from linnet.ir.function import Tensor

if TYPE_CHECKING:
    from linnet.converters.tflite.operation import Operation
    from linnet.converters.tflite.registry import Rule

COMPLEX = "COMPLEX64"
OWN = frozenset({"CAST", "REAL", "IMAG", "COMPLEX_ABS"})  # ops whose rules handle complex numbers
BY_PARTS = frozenset({
    "ADD", "BROADCAST_TO", "CONCATENATION", "EXPAND_DIMS", "GATHER", "NEG", "PACK", "PAD", "RESHAPE", "REVERSE_V2", "SLICE",
    "SPLIT", "SPLIT_V", "SQUEEZE", "STRIDED_SLICE", "SUB", "TILE", "TRANSPOSE", "UNPACK",
})  # fmt: skip


def run(rule: Rule, op: Operation) -> list[Tensor]:
    """Runs a rule and returns its results. Raises Unsupported for complex operands of a rule that expects real numbers."""
    tensors = op.scope.subgraph.tensors
    places = [i for i, index in enumerate(op.spec.inputs) if index >= 0 and tensors[index].type_name == COMPLEX]
    if not places or op.spec.op in OWN:
        return _listed(rule(op))
    if op.spec.op not in BY_PARTS:
        raise Unsupported(
            "it does not support complex operands", "take their parts first, with tf.math.real and tf.math.imag"
        )
    halves = []
    for part in (0, 1):
        half = copy.copy(op)
        half.inputs = list(op.inputs)
        for i in places:
            x = op.input(i)
            axis = (x.rank or 1) - 1
            half.inputs[i] = op.copy([op.slice(x, axis, part, part + 1)], kind="squeeze", axes=[axis])
        halves.append(_listed(rule(half)))
    made = []
    for real, imaginary in zip(*halves, strict=True):
        axis = real.rank or 0
        pair = [op.copy([t], kind="unsqueeze", axes=[axis]) for t in (real, imaginary)]
        made.append(op.copy(pair, kind="concat", axis=axis))
    return made


def _listed(made: Tensor | Sequence[Tensor]) -> list[Tensor]:
    return [made] if isinstance(made, Tensor) else list(made)
