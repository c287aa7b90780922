"""The result of debugging a quantization as lines and tables of at most 80 columns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from linnet.quantization.debug_report import DebugReport, Fix, Layer
from linnet.report.compare_text import db
from linnet.report.tables import count, shortened, size, table

if TYPE_CHECKING:
    from rich.table import Table

MOST = 12  # layers in the tables of a terminal
_ANSWER = 4  # rows of the fix in the first lines
_NAME = 21  # columns of a name
_IN_ROWS = 40  # columns at most of a name in a row of the quantization table


def lines(report: DebugReport) -> list[str]:
    """The result in sentences, the answer first."""
    text = [] if report.fix is None else _answer(report.fix)
    text += [
        f"{report.dtype} against float on {count(report.samples, 'sample')}: SQNR of the outputs {_db(report.output_db)}"
    ]
    worst = report.ranked[0] if report.layers else None
    if worst is not None and worst.output_db is not None and worst.hurt:
        share = worst.hurt / report.hurt if math.isfinite(report.hurt) else 1.0
        text.append(
            f"worst layer: {worst.layer}, alone {_db(worst.output_db)}, {share:.0%} of the noise; {_cause(worst)}"
        )
    if (broken := sum(layer.broken > 0 for layer in report.layers)) > 0:
        text.append(f"{count(broken, 'tensor')} with values that are infinite or NaN only in the quantized model")
    if report.fix is not None and report.fix.note:
        text.append(report.fix.note)
    return text


def _answer(fix: Fix) -> list[str]:
    """What to change, what that gives, and what it costs."""
    tried = f"tried {count(fix.quantizations, 'table')}"
    if not fix.rows:
        return [f"fix: nothing to change, the outputs stay at {_db(fix.before)} ({tried})"]
    cost = ""
    if fix.time is not None and fix.bytes is not None:
        cost = f"; {fix.time:.2f} of the time, {'+' if fix.bytes >= 0 else '-'}{size(abs(fix.bytes))}"
    text = [f"fix: {_db(fix.before)} -> {_db(fix.after)} with {count(len(fix.rows), 'row')}{cost} ({tried})"]
    shown = list(fix.rows.items())
    text += [f"  {name} {scheme}" for name, scheme in shown[:_ANSWER]]
    text += [f"  ... and {len(shown) - _ANSWER} more rows"] if len(shown) > _ANSWER else []
    if not fix.reached:
        text.append(f"the target of {fix.target:.1f} dB is not reached; the best is {_db(fix.best)}")
    return text


def _cause(layer: Layer) -> str:
    if layer.broken:
        return "its values become infinite or NaN"
    if layer.saturated > 0.001:
        return f"{layer.saturated:.1%} of its values lie beyond the range of {layer.dtype}"
    if layer.range is not None and layer.storage >= 0.5:
        return f"{layer.storage:.0%} of its error is from storing its result as {layer.dtype}"
    return "most of its error is from its weights, or from rounding its input"


def tables(report: DebugReport, most: int = MOST, letters: int = _NAME) -> list[Table]:
    """Tables of the layers that hurt the outputs most, of their ranges, of the fix, and of the layers that stayed in
    floats. most: the largest number of rows of each table. letters: the length to which names are shortened."""
    ranked = report.ranked
    hurting = table(
        "Layers that hurt, worst first", "layer", "as", ">alone dB", ">local dB", ">SQNR dB", ">cosine", ">stored"
    )
    ranges = table("Ranges", "tensor", ">seen", ">can hold", ">beyond", ">zeros")
    names = labels(report)
    short = shortened(_names(report, names), letters)
    in_rows = shortened(short, min(letters, _IN_ROWS))
    for layer in ranked[:most]:
        stored = f"{layer.storage:.0%}" if layer.range is not None else ""
        hurting.add_row(
            short[names[layer.name]],
            layer.dtype,
            db(layer.output_db) or "?",
            db(layer.local_db),
            db(layer.sqnr_db),
            f"{layer.cosine:.4f}",
            stored,
        )
        if layer.range is not None:
            zeros = f"{100 * layer.zeros[0]:.0f} / {100 * layer.zeros[1]:.0f}%"
            ranges.add_row(short[layer.name], _span(layer.seen), _span(layer.range), f"{layer.saturated:.2%}", zeros)
    if len(ranked) > most:
        hurting.add_row(f"... and {len(ranked) - most} more")
    made = [hurting, *([ranges] if ranges.row_count else [])]
    if report.fix is not None and report.fix.tries:
        rows = table("Tried, each beside those before", "layer", "rows of the table", ">outputs dB")
        for t in report.fix.tries[: 2 * most]:
            rows.add_row(
                short[names.get(t.name, t.layer)],
                "\n".join(f"{_key(n, in_rows)} {d}" for n, d in t.rows.items()),
                db(t.output_db) or "refused",
            )
        rows.columns[1].max_width = 36
        made.append(rows)
    if report.left:
        rows = table("Products left in float", "layer", "op", "as", "why")
        for left in report.left[:most]:
            rows.add_row(short[left.layer], left.op, left.dtype, left.why)
        if len(report.left) > most:
            rows.add_row(f"... and {len(report.left) - most} more")
        rows.columns[3].max_width = 30
        made.append(rows)
    if report.special:
        rows = table("Values at the limits of their type", "op", ">saturated", ">infinite", ">NaN", "most in")
        for entry in report.special[:most]:
            figures = (f"{entry[key]:,}" for key in ("saturated", "infinite", "not_a_number"))
            rows.add_row(entry["op"], *figures, short[entry["most_in"]])
        made.append(rows)
    for rows in made:
        for i, column in enumerate(rows.columns):
            column.no_wrap = i == 0 or column.justify == "right"
    return made


def labels(report: DebugReport) -> dict[str, str]:
    """The name of each tensor's layer in tables: its step, followed by the tensor if the step has several."""
    often = Counter(layer.layer for layer in report.layers)
    return {o.name: o.layer if often[o.layer] == 1 else f"{o.layer}: {o.name}" for o in report.layers}


def _names(report: DebugReport, names: dict[str, str]) -> list[str]:
    """All names in the tables."""
    found = [name for layer in report.layers for name in (layer.name, names[layer.name])]
    for t in report.fix.tries if report.fix is not None else ():
        found += [names.get(t.name, t.layer), *(row.partition(" ")[2] for row in t.rows)]
    return [*found, *(left.layer for left in report.left), *(entry["most_in"] for entry in report.special)]


def _key(row: str, short: Mapping[str, str]) -> str:
    """The kind of a row of the quantization table, and its name."""
    kind, _, name = row.partition(" ")
    return f"{kind} {short[name]}"


def _db(value: float) -> str:
    text = db(value)
    return text if text in ("exact", "lost") else f"{text} dB"


def _span(pair: tuple[float, float]) -> str:
    return f"{pair[0]:.3g} .. {pair[1]:.3g}"
