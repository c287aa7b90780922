"""The table of rules: which function lowers which ONNX op, from which opset version on.
A rule takes an `Operation` and returns its outputs: one tensor, or a list in the order of the ONNX op's outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linnet.converters.onnx.operation import Operation
    from linnet.graph import Tensor

Result = "Tensor | Sequence[Tensor | None]"
Rule = Callable[["Operation"], "Tensor | Sequence[Tensor | None]"]

RULES: dict[str, list[tuple[int, Rule]]] = {}  # op type: (since, rule), newest first
NEWEST_OPSET = 28


def rule(*op_types: str, since: int = 1) -> Callable[[Rule], Rule]:
    """Registers a function as the rule of the named ai.onnx ops, from opset `since` until the next newer rule."""

    def register(function: Rule) -> Rule:
        for op_type in op_types:
            versions = RULES.setdefault(op_type, [])
            if any(version == since for version, _ in versions):
                raise ValueError(f"{op_type} has a rule for opset {since} already")
            versions.append((since, function))
            versions.sort(key=lambda entry: -entry[0])
        return function

    return register


def find(op_type: str, opset: int) -> Rule | None:
    """The newest rule of an op that is not newer than the opset; None when there is none."""
    for since, function in RULES.get(op_type, ()):
        if since <= opset:
            return function
    return None
