"""Mixed precision where 8 bits lose too much: each part of the network is quantized alone, and the parts that add the largest
errors to the outputs get 16-bit activations until the rest is good enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from linnet.ir.function import Node
from linnet.quantization.table import Row, Table, TensorRow

# Squared error of the outputs over their squares that needs no more bits: 23 and 45 dB.
ENOUGH = {"i8": 10**-2.3, "i16": 10**-4.5}
_PARTS = 32  # that are quantized alone
_MOST = 0.3  # of the layers that may get 16 bits


def parts(layers: Sequence[Node]) -> list[list[str]]:
    """The names of the layers in at most `_PARTS` groups of neighbours."""
    names = [node.name or node.outputs[0].name for node in layers]
    size = -(-len(names) // _PARTS) or 1
    return [names[i : i + size] for i in range(0, len(names), size)]


def rows(names: Sequence[str], scheme: str) -> list[Row | TensorRow]:
    """A row for each layer."""
    return [Row(_literal(name), scheme) for name in names]


def _literal(name: str) -> str:
    """The name as a pattern that matches it alone."""
    return "".join(f"[{c}]" if c in "[*?" else c for c in name)


def wider(
    layers: Sequence[Node], overrides: Table, narrow: str, wide: str, error: Callable[[Table], float], least: float
) -> tuple[Table, float] | None:
    """The table with which the error of the outputs is at most ENOUGH[narrow], or falls to half, with as few layers of the wide
    scheme as possible; None if there is none. error: of the graph that a table gives. least: without this table's rows."""
    found = parts(layers)
    if len(found) < 2:
        return None
    others = [Row("*", "f32")]
    alone = [error(Table([*others, *rows(part, narrow), *overrides.rows])) for part in found]
    order = sorted(range(len(found)), key=lambda i: -alone[i])
    best: tuple[Table, float] | None = None
    taken = 0
    while taken < len(order) and sum(len(found[i]) for i in order[: taken + 1]) <= max(1.0, _MOST * len(layers)):
        taken += max(1, taken // 2)
        names = [name for i in sorted(order[:taken]) for name in found[i]]
        table = Table([*rows(names, wide), *overrides.rows])
        made = error(table)
        if best is None or made < best[1] * 0.8:
            best = (table, made)
        if made <= ENOUGH[narrow]:
            break
    if best is None or best[1] > max(ENOUGH[narrow], least / 2):
        return None
    return best
