"""What map nodes do to their input: limit it (the range of an integer output can have the same effect), keep its scale,
or take its logarithm."""

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


def takes_logarithm(node: Node) -> bool:
    """Whether a map takes a logarithm, so that small values matter as much as large ones."""
    words = node.attributes["program"] if node.op == "map" else []
    return any(_NAMES[words[i]] in ("log", "log1p") for i in range(0, len(words), 5))


def keeps_scale(node: Node) -> bool:
    """Whether scaling the first input by any s > 0 scales the result by s, as for ReLU and leaky ReLU. All other inputs
    must be constants."""
    if node.op != "map" or len(node.outputs) != 1 or any(t is None or t.data is None for t in node.inputs[1:]):
        return False
    words, floats = node.attributes["program"], list(node.attributes.get("floats", ()))
    powers: list[int | None] = []  # of the scale, in each register; None for zero, which has any
    for i in range(0, len(words), 5):
        opcode, _, *operands = words[i : i + 5]
        name = _NAMES[opcode]
        if name == "load":
            powers.append(1 if operands[0] == 0 else 0)
        elif name == "const":
            powers.append(None if floats and not floats[operands[0]] else 0)
        elif name == "store":
            return bool(powers[operands[0]] == 1)
        else:
            made = _power(name, [powers[r] for r in operands[: OPCODES[name][1]]])
            if made is None:
                return False
            powers.append(made[0])
    return False


def _power(name: str, given: list[int | None]) -> tuple[int | None] | None:
    """The exponent p if a result is proportional to s^p, where s is the scale of the first input, else None."""
    if name == "mul":
        return (None if None in given else sum(p for p in given if p is not None),)
    compares = name in ("lt", "le", "gt", "ge", "eq", "ne")
    if not compares and name not in ("add", "sub", "min", "max", "neg", "abs", "cast", "select"):
        return None
    if name == "select" and given[0] != 0:
        return None
    kinds = {p for p in (given[1:] if name == "select" else given) if p is not None}
    if len(kinds) > 1:
        return None
    return (0 if compares else kinds.pop() if kinds else None,)
