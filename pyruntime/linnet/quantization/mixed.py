"""Mixed precision where 8 bits lose too much: each part of the network is quantized alone, and the parts that add the largest
errors to the outputs get 16-bit activations until the rest is good enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from linnet.ir.function import Node
from linnet.quantization.scheme import row_name
from linnet.quantization.table import Row, Table, TensorRow

# Squared error of the outputs, over the power of what changes in them, that needs no more bits: 18 and 40 dB.
ENOUGH = {"i8": 10**-1.8, "i16": 10**-4.0}
_MOST = {"i8": 1 / 3, "i16": 1 / 4}  # of the layers that may get more bits: a slow model is not what was asked for
_PARTS = 24  # that are quantized alone
_NEAR = 1.5  # times the smallest error, which fewer layers may leave


def parts(layers: Sequence[Node]) -> list[list[str]]:
    """The names of the layers in at most `_PARTS` groups of neighbours."""
    names = [row_name(node) for node in layers]
    size = -(-len(names) // _PARTS) or 1
    return [names[i : i + size] for i in range(0, len(names), size)]


def rows(names: Sequence[str], scheme: str) -> list[Row | TensorRow]:
    """A row for each layer."""
    return [Row(_literal(name), scheme) for name in names]


def _literal(name: str) -> str:
    """The name as a pattern that matches it alone."""
    return "".join(f"[{c}]" if c in "[*?" else c for c in name)


def wider(
    layers: Sequence[Node],
    overrides: Table,
    narrow: str,
    wide: Sequence[str],
    error: Callable[[Table, bool], float],
    least: float,
) -> tuple[Table, float] | None:
    """The table with which the error of the outputs is at most ENOUGH[narrow], with few layers of a wide scheme; or the one with
    the smallest error, if that is at most half; None if there is none. At most _MOST of the layers are wide. wide: the schemes,
    of which a later one is tried if an earlier one is not enough. error: of the graph that a table gives, on few samples if the
    second argument says so. least: without this table's rows."""
    found = parts(layers)
    others = [Row("*", "f32")]
    alone = [error(Table([*others, *rows(part, narrow), *overrides.rows]), True) for part in found]
    order = sorted(range(len(found)), key=lambda i: -alone[i])
    tried: list[tuple[Table, float]] = []
    allowed = max(2, int(_MOST[narrow] * len(layers)))
    reach = sum(1 for i in range(len(order)) if sum(len(found[j]) for j in order[: i + 1]) <= allowed)
    for scheme in wide:
        taken = 0
        while taken < reach and (not tried or tried[-1][1] > ENOUGH[narrow]):
            taken = min(reach, taken + max(1, taken // 2))
            names = [name for i in sorted(order[:taken]) for name in found[i]]
            table = Table([*rows(names, scheme), *overrides.rows])
            tried.append((table, error(table, False)))
    best = min((made for _, made in tried), default=least)
    enough = max(ENOUGH[narrow], _NEAR * best)
    good = max(ENOUGH[narrow], least / 2)
    return next(((table, made) for table, made in tried if made <= enough and made <= good), None)
