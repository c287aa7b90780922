"""The traits of ops, for passes and converters. The functions look them up in the op table, which schema/generate.py writes
from schema/ops/. schema/README.md explains each trait; tests/test_op_traits.py rejects sets of op names elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from linnet._generated.op_table import OPS


def having(trait: str, *values: Any) -> frozenset[str]:
    """The ops whose trait has one of these values (default True)."""
    return frozenset(name for name, row in OPS.items() if row[trait] in (values or (True,)))


def family(*names: str) -> frozenset[str]:
    """The ops of these families."""
    return having("family", *names)


def operands(op: str, key: str, value: Any = True) -> tuple[int, ...]:
    """The operands of the op whose operand trait has this value."""
    return tuple(i for i, operand in enumerate(OPS[op]["inputs"]) if operand.get(key) == value)


def functions(op: str) -> list[str]:
    """The attributes of the op that refer to functions of the file."""
    return [name for name, (_, kind, _, _) in OPS[op]["attributes"].items() if kind == "function"]


def output_axis(op: str) -> int | None:
    """The axis of a product's weights for its output channels. None if both operands are matrices."""
    axis: int | None = OPS[op]["inputs"][1].get("output_axis")
    return axis


def weight_axis(op: str, attributes: dict[str, Any], rank: int) -> int | None:
    """The axis of a product's weights along which there is one slice per output channel. None if groups share the
    channels, and for a stack of matrices."""
    axis = output_axis(op)
    if axis is not None:
        return None if axis and attributes.get("group", 1) != 1 else axis
    if rank != 2:
        return None
    return 0 if attributes.get("transpose_b", False) else 1


def decides(op: str, count: int) -> Sequence[int]:
    """The operands whose values may determine shapes. count: number of operands."""
    listed: list[int] = OPS[op]["decides"]
    several = len(OPS[op]["inputs"]) if OPS[op]["inputs"] and OPS[op]["inputs"][-1].get("variadic") else count
    return [*listed, *range(several, count)]


CONTROL = family("control")
COPIES = family("copy")
PRODUCTS = having("integers", "products")
MATRICES = frozenset(op for op in PRODUCTS if output_axis(op) is None)  # products of two operands of any kind
POINTWISE = having("pointwise")
DECODES = having("decodes")
ENCODES = having("encodes")
LOOKS_UP = frozenset(op for op in OPS if operands(op, "role", "table"))
CONVERTS = having("integers", "converts")
REGISTERED = having("registered")
