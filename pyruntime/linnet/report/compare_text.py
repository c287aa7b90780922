"""A Comparison as tables of at most 80 columns, for terminals and pages."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from linnet.report.compare import Comparison
from linnet.report.tables import count, size, table

if TYPE_CHECKING:
    from rich.table import Table

WIDTH = 80
_NAME = 18  # columns of a name, which is folded
_FIGURES = 2  # of the evaluation beside the model; more get a table of their own


def tables(comparison: Comparison) -> list[Table]:
    """A table of the models, and one of their agreement with the first."""
    names = [_name(m.model, m.runtime) for m in comparison.models]
    figures = list(dict.fromkeys(name for m in comparison.models for name in m.accuracy))
    beside = figures if len(figures) <= _FIGURES else []
    made = _folding(1, table("Models", "model", "dtype", ">file", ">memory", ">ms", *(f">{name}" for name in beside)))
    for name, m in zip(names, comparison.models, strict=True):
        accuracy = [_accuracy(m.accuracy.get(f), f) for f in beside]
        memory = "" if m.memory is None else size(m.memory)
        made.add_row(name, m.dtype, size(m.bytes), memory, f"{m.latency_ms:.3f}", *accuracy)
    found = [made]
    if figures and not beside:
        rows = _folding(2, table("Evaluation", "model", "figure", ">value"))
        for name, m in zip(names, comparison.models, strict=True):
            for i, (figure, value) in enumerate(m.accuracy.items()):
                rows.add_row(name if i == 0 else "", figure, _accuracy(value, figure))
        found.append(rows)
    if len(comparison.models) > 1:
        equal = any(f["equal"] is not None for m in comparison.models for f in m.agreement.values())
        top = any(f["top1"] is not None for m in comparison.models for f in m.agreement.values())
        extra = [title for title, shown in (("top-1", top), ("equal", equal)) if shown]
        title = f"Agreement with {names[0]}"
        rows = _folding(
            2, table(title, "model", "output", *(f">{t}" for t in extra), ">SQNR dB", ">cosine", ">largest")
        )
        for name, m in zip(names[1:], comparison.models[1:], strict=True):
            for i, (output, f) in enumerate(m.agreement.items()):
                shares = [share(f[key], True) for key, shown in (("top1", top), ("equal", equal)) if shown]
                rows.add_row(
                    name if i == 0 else "",
                    output,
                    *shares,
                    db(f["sqnr_db"]),
                    *(
                        "" if f[key] is None else f"{f[key]:{form}}"
                        for key, form in (("cosine", ".5f"), ("largest", ".3g"))
                    ),
                )
        found.append(rows)
    return found


def lines(comparison: Comparison) -> list[str]:
    """The lines above the tables."""
    return [f"{count(comparison.samples, 'sample')}, {count(comparison.threads, 'thread')}", *comparison.remarks]


def _name(model: str, runtime: str) -> str:
    name = Path(model).name
    return name if runtime == "linnet" else f"{name} ({runtime})"


def _folding(names: int, made: Table) -> Table:
    """The table. Its first columns, which hold names, are made narrow enough for a terminal of 80 columns."""
    for i, column in enumerate(made.columns):
        column.no_wrap = i >= names
        column.max_width = _NAME if i < names else None
    return made


def _accuracy(value: float | None, name: str) -> str:
    return share(value, name.startswith("top-"))


def share(value: float | None, percent: bool) -> str:
    return "" if value is None else f"{100 * value:.1f}%" if percent else f"{value:.4g}"


def db(value: float | None) -> str:
    """A ratio in dB as text. Without noise, the ratio is infinite."""
    if value is None:
        return ""
    return f"{value:.1f}" if math.isfinite(value) else "exact" if value > 0 else "lost"
