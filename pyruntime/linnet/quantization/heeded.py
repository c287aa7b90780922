"""Rows of a quantization table that no layer can follow. A row that changes nothing is an error, because the person who wrote
it counts on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np

from linnet.clib.errors import UsageError
from linnet.ir import traits
from linnet.ir.function import Node
from linnet.quantization.decisions import EXACT, Decisions
from linnet.quantization.embeddings import STORED, Embedding, embeddings
from linnet.quantization.scheme import FLOATS_KEPT, HALVES, INTEGER_OPS, LIMITS, NARROW_WEIGHTS, RECURRENT
from linnet.quantization.table import Row, Table, matches

_MOVED = traits.having("integers", "maps", "moves", "averages", "sums")  # they store or read integers where this helps


@dataclasses.dataclass(frozen=True)
class _Miss:
    layer: str
    op: str
    got: str
    why: str
    possible: str


def check_effect(functions: Iterable[Decisions], table: Table) -> None:
    """Raises UsageError for a row that no layer follows: it names a layer, says what was asked and what the layer gets, and what
    is possible. A row that is overridden by a later one is not looked at."""
    misses: dict[int, list[_Miss]] = {}
    heeded: set[int] = set()
    for made in functions:
        tables = embeddings(made)
        for node in made.old.nodes:
            names = [made.steps[node], *made.aliases[node]]
            at = _row_of(table, names)
            if at is None:
                continue
            row = table.rows[at]
            assert isinstance(row, Row)
            miss = _miss(made, node, row.dtype, tables.get(node))
            if miss is None:
                heeded.add(at)
            else:
                misses.setdefault(at, []).append(miss)
    for at, found in misses.items():
        if at in heeded:
            continue
        row, first = table.rows[at], found[0]
        assert isinstance(row, Row)
        others = f", like {len(found) - 1} other layers of this row" if len(found) > 1 else ""
        raise UsageError(
            "a row of the quantization table has no effect", code=102, tensor=first.layer, expected=first.possible,
            got=f"{row.dtype} for the {first.op} {first.layer!r}, which stays {first.got}{others}: {first.why}",
            hint=f"remove the row `{row.text(0).strip()}` or change it",
        )  # fmt: skip


def follows(node: Node) -> bool:
    """Whether rows of integer dtypes can change how a node computes or stores its results."""
    return node.op in INTEGER_OPS or node.op in RECURRENT or node.op in _MOVED


def _row_of(table: Table, names: list[str]) -> int | None:
    """The place of the last row that matches a layer."""
    for at in reversed(range(len(table.rows))):
        row = table.rows[at]
        if isinstance(row, Row) and any(matches(row.pattern, name) for name in names):
            return at
    return None


def _miss(made: Decisions, node: Node, asked: str, embedding: Embedding | None) -> _Miss | None:
    """None if the layer follows the row."""
    if asked == "f32":
        return None
    name, mode = made.steps[node], made.modes[node]
    if embedding is not None:
        if embedding.stored in (asked, STORED.get(asked)):
            return None
        why = embedding.why if asked not in HALVES else f"its values do not fit {asked}"
        return _Miss(name, "embedding", embedding.stored, why, "a row f32")
    if any(part.startswith(EXACT) for part in node.source.split("+")):
        return _Miss(name, node.op, "f32", "it is a step before or after the network", "no row for this layer")
    if any(t in made.fixed for t in node.outputs):
        return _Miss(
            name, node.op, "as it is", "its result is computed from shapes or constants", "no row for this layer"
        )
    if node.op in RECURRENT:
        why = "its weights are not constant, or they do not fit"
        return None if node in made.schemes else _Miss(name, node.op, "f32", why, "a row f32")
    if node.op in FLOATS_KEPT:
        return _Miss(name, node.op, "as it is", "this op keeps the dtypes of its operands", "no row for this layer")
    if asked in HALVES:
        if mode == asked or node.op == "map":
            return None
        return _Miss(name, node.op, "f32", f"values that it reads or gives do not fit {asked}", "a row f32")
    if node.op not in INTEGER_OPS:
        if node.op in _MOVED and asked not in NARROW_WEIGHTS:
            return None
        why = "it has no weights that can be stored so" if asked in NARROW_WEIGHTS else "this op has no integer form"
        return _Miss(name, node.op, mode if mode in HALVES else "f32", why, "a row f32 or f16")
    return _product(made, node, asked)


def _product(made: Decisions, node: Node, asked: str) -> _Miss | None:
    name, mode = made.steps[node], made.modes[node]
    x, w, *rest = [*node.inputs, None, None][:3]
    if asked in NARROW_WEIGHTS:
        if w is None or w.data is None or w.dtype != "f32":
            return _Miss(name, node.op, "f32", "its weights are not a constant of floats", "a row f32 or f16")
        if asked == "w16" and node not in made.schemes:
            return _Miss(name, node.op, "f32", "its weights do not fit f16", "a row f32 or w8")
        if asked == "w4" and made.schemes.get(node) != "w4":
            why = "only matrices and embeddings have weights of 4 bits"
            return _Miss(name, node.op, made.schemes.get(node, mode), why, "a row w8")
        return None
    if mode in LIMITS:
        return None
    if x is not None and x.dtype in ("i8", "u8", "i16"):
        why = "it is quantized already"
    elif x is not None and x.data is not None:
        why = "its first operand is a constant"
    elif rest and rest[0] is not None and rest[0].data is None:
        why = "its bias is computed in the run"
    elif w is not None and w.data is not None and not np.isfinite(w.data).all():
        why = "its weights are not all finite"
    elif w is not None and w.data is None:
        why = "its weights are computed in the run"
    else:
        why = "a row of a tensor that it reads keeps this tensor in floats"
    return _Miss(name, node.op, "f32", why, "a row f32 or f16")
