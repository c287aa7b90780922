"""The table of rules: which function converts which TFLite op.
A rule takes an `Operation` and returns its outputs: one tensor, or a list in the order of the operator's outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linnet.converters.tflite.operation import Operation
    from linnet.ir.function import Tensor

Rule = Callable[["Operation"], "Tensor | Sequence[Tensor]"]
RULES: dict[str, Rule] = {}


def rule(*ops: str) -> Callable[[Rule], Rule]:
    """Registers a function as the rule of the named TFLite ops."""

    def register(function: Rule) -> Rule:
        for op in ops:
            if op in RULES:
                raise ValueError(f"{op} already has a rule")
            RULES[op] = function
        return function

    return register
