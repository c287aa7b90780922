"""Mixed precision, for networks that lose too much with 8 bits. Each part of the network is quantized alone to measure its
error. Then the parts that add the largest errors to the outputs get 16-bit activations, until the outputs are good enough."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from linnet.ir import traits
from linnet.ir.function import Node
from linnet.quantization.judge import Nearness
from linnet.quantization.scheme import INTEGER_OPS
from linnet.quantization.table import Row, Table, TensorRow

_PARTS = 24  # that are quantized alone
_GIVEN_BACK = 8  # of the parts that got more bits, and then of the layers: the costly ones are tried without
_FEW = 4  # samples to compare the parts by
_NEAR = 1.2  # times the smallest excess, which fewer layers may leave


def parts(names: list[str]) -> list[list[str]]:
    """The names of layers in at most `_PARTS` groups of neighbours."""
    size = -(-len(names) // _PARTS) or 1
    return [names[i : i + size] for i in range(0, len(names), size)]


def rows(names: Sequence[str], scheme: str) -> list[Row | TensorRow]:
    """A row with this scheme for each layer."""
    return [Row(_literal(name), scheme) for name in names]


def products(node: Node) -> float:
    """The number of multiplications of a layer with constant weights, as far as shapes are known. It is too high for a
    transposed convolution."""
    w = node.inputs[1] if node.op in INTEGER_OPS and len(node.inputs) > 1 else None
    shape = node.outputs[0].static_shape
    if w is None or w.data is None or shape is None:
        return 1.0
    axis = traits.weight_axis(node.op, node.attributes, w.data.ndim)
    return 1.0 if axis is None else float(math.prod(shape) * w.data.size / w.data.shape[axis])


def _literal(name: str) -> str:
    """The name as a pattern that matches it alone."""
    return "".join(f"[{c}]" if c in "[*?" else c for c in name)


class _Attempt(NamedTuple):
    chosen: list[list[str]]  # layers in parts
    scheme: str
    table: Table
    near: Nearness


def wider(
    layers: Mapping[Node, str],
    overrides: Table,
    narrow: str,
    wide: Sequence[str],
    compare: Callable[[Table, int | None], Nearness],
    least: Nearness,
) -> tuple[Table, Nearness] | None:
    """A table that brings the outputs near enough with few layers of a wide scheme. If none does, the table that comes
    nearest, provided that it halves the excess; else None. layers: nodes and their names. wide: the wide schemes; a
    later one is tried if an earlier one is not enough. compare: a function that measures how near the graph made with a
    table comes; if it gets a number as well, it uses only this many samples. least: how near the graph comes without a
    wide scheme."""
    found = parts(list(layers.values()))
    others = [Row("*", "f32")]
    alone = [compare(Table([*others, *rows(part, narrow), *overrides.rows]), _FEW).error for part in found]
    order = sorted(range(len(found)), key=lambda i: -alone[i])
    tried: list[_Attempt] = []

    def attempt(chosen: list[list[str]], scheme: str) -> _Attempt:
        table = Table([*rows([name for names in chosen for name in names], scheme), *overrides.rows])
        return _Attempt(chosen, scheme, table, compare(table, None))

    for scheme in wide:
        taken = 0
        while taken < len(found) and (not tried or tried[-1].near.excess > 1.0):
            taken = min(len(found), taken + max(1, taken // 2))
            tried.append(attempt([found[i] for i in sorted(order[:taken])], scheme))
    best = min((one.near.excess for one in tried), default=least.excess)
    enough = min(max(1.0, _NEAR * best), max(1.0, least.excess / 2))
    kept = next((one for one in tried if one.near.excess <= enough), None)
    if kept is None:
        return None
    enough = max(1.0, kept.near.excess)
    cost = {name: products(node) for node, name in layers.items()}
    for _ in ("parts", "single layers"):
        for part in sorted(kept.chosen, key=lambda names: -sum(cost[name] for name in names))[:_GIVEN_BACK]:
            rest = [names for names in kept.chosen if names is not part]
            if rest and (fewer := attempt(rest, kept.scheme)).near.excess <= enough:
                kept = fewer
        kept = kept._replace(chosen=[[name] for names in kept.chosen for name in names])
    return kept.table, kept.near
