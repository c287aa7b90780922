"""Programs of map nodes in quantized graphs. What only moves a result by less than the rounding to integers is replaced by
what is faster."""

from __future__ import annotations

import numpy as np

from linnet._generated.op_table import OPCODES

_OPCODE = {name: row[0] for name, row in OPCODES.items()}
_NAMES = {number: name for name, number in _OPCODE.items()}


def reciprocals(program: list[int], floats: list[float]) -> tuple[list[int], list[float]]:
    """The program and its constants, with each division by a constant replaced by a multiplication, which is faster.
    The small difference does not matter, because the result is rounded to integers."""
    made: list[int] = []
    for i in range(0, len(program), 5):
        opcode, kind, a, b, c = program[i : i + 5]
        # Kind 1 is f32. The constants of integer kinds are in another list.
        by_constant = opcode == _OPCODE["div"] and kind == 1 and program[5 * b : 5 * b + 2] == [_OPCODE["const"], 1]
        value = floats[program[5 * b + 2]] if by_constant else 0.0
        if not value or not np.isfinite(np.float32(1 / value)):
            made += [opcode, kind, a, b, c]
            continue
        # The new constant comes first of all, so that the number of each other register grows by one.
        rest = [*made, _OPCODE["mul"], 1, a, -1, 0, *program[i + 5 :]]
        floats = [*floats, float(np.float32(1 / value))]
        moved = [_OPCODE["const"], 1, len(floats) - 1, 0, 0]
        for k in range(0, len(rest), 5):
            name = _NAMES[rest[k]]
            read = 1 if name.startswith("store") else OPCODES[name][1]
            moved += [*rest[k : k + 2], *(v + 1 if n < read else v for n, v in enumerate(rest[k + 2 : k + 5]))]
        return reciprocals(moved, floats)
    return made, floats
