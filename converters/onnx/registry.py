"""The table of rules: which function converts which ONNX op, and from which opset version on.
A rule takes an `Operation` and returns its outputs: one tensor, or a list in the order of the ONNX op's outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linnet.converters.onnx.operation import Operation
    from linnet.converters.onnx.values import Value

Rule = Callable[["Operation"], "Value | Sequence[Value]"]

RULES: dict[str, list[tuple[int, Rule]]] = {}  # op type: (since, rule), newest first; "domain:type" outside ai.onnx
LIKE: dict[str, str] = {}  # "domain:type": the ai.onnx op with the same attributes and defaults
NEWEST_OPSET = 28
MICROSOFT = "com.microsoft"


def key_of(op_type: str, domain: str = "") -> str:
    """The key of an op in these tables."""
    return f"{domain}:{op_type}" if domain else op_type


def rule(*op_types: str, since: int = 1, domain: str = "", like: str = "") -> Callable[[Rule], Rule]:
    """Registers a function as the rule of the named ops, from opset `since` until the next newer rule.

    domain: a domain other than ai.onnx, whose ops have no schema here. like: the ai.onnx op that supplies attribute defaults.
    """

    def register(function: Rule) -> Rule:
        for op_type in op_types:
            name = key_of(op_type, domain)
            versions = RULES.setdefault(name, [])
            if any(version == since for version, _ in versions):
                raise ValueError(f"{name} already has a rule for opset {since}")
            versions.append((since, function))
            versions.sort(key=lambda entry: -entry[0])
            if like:
                LIKE[name] = like
        return function

    return register


def find(op_type: str, opset: int, domain: str = "") -> Rule | None:
    """The newest rule of an op that is not newer than the opset, or None."""
    for since, function in RULES.get(key_of(op_type, domain), ()):
        if since <= opset:
            return function
    return None
