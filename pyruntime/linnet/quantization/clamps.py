"""Clamps: maps that only limit their input, whose effect the range of an integer output can have."""

from __future__ import annotations

import numpy as np

from linnet._generated.op_table import OPCODES
from linnet.ir.function import Node

_NAMES = {row[0]: name for name, row in OPCODES.items()}


def clamp_limits(node: Node) -> tuple[float, float] | None:
    """(low, high) of a map min(max(x, low), high) from one f32 input to f32. None for any other map."""
    if node.op != "map" or len(node.inputs) != 1 or len(node.outputs) != 1 or node.outputs[0].dtype != "f32":
        return None
    words = node.attributes["program"]
    floats = list(node.attributes.get("floats", ()))
    program = [tuple(words[i : i + 5]) for i in range(0, len(words), 5)]
    clamped: dict[int, tuple[float, float]] = {}  # from a register to the clamp of the input that it holds
    for index, (opcode, kind, a, b, _) in enumerate(program):
        name = _NAMES[opcode]
        if name == "load" and kind == 1:
            clamped[index] = (-np.inf, np.inf)
        elif name == "store":
            return clamped.get(a)
        elif name in ("min", "max"):
            value, other = (a, b) if a in clamped else (b, a)
            if value not in clamped or _NAMES[program[other][0]] != "const":
                return None
            low, high = clamped[value]
            limit = floats[program[other][2]]
            clamped[index] = (
                (max(low, limit), max(high, limit)) if name == "max" else (min(low, limit), min(high, limit))
            )
        elif name != "const" or kind != 1:
            return None
    return None
