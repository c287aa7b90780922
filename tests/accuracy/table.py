"""The table of the measurement as plain text: a line per network, then who misses which bar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.accuracy.ort import WAYS

Row = dict[str, Any]
BARS = {"f16": 0.1, "bf16": 1.0, "i16": 0.1, "i8": 1.0}  # points of 100 that may be lost


def best(row: Row) -> tuple[float, str] | None:
    """ONNX Runtime's best points and the way that gave them."""
    found = [(v, k) for k, v in row.get("ort", {}).items() if k in WAYS and isinstance(v, (int, float))]
    return max(found) if found else None


def points(row: Row, dtype: str) -> float | None:
    """The points of a dtype; None after an error."""
    value = row.get("dtypes", {}).get(dtype, {}).get("points")
    return None if value is None else float(value)


def _cell(row: Row, dtype: str) -> str:
    cell = row.get("dtypes", {}).get(dtype, {})
    value = points(row, dtype)
    if value is None:
        return "error" if cell else "-"
    mark = "!" if cell["nan"] else " " if value >= 100 - BARS[dtype] else "*"
    return f"{value:.2f}{mark}"


def shown(rows: Sequence[Row], dtypes: Sequence[str], head: bool = False) -> str:
    """The rows as lines; errors follow below their row."""
    lines = []
    if head:
        columns = "".join(f"{d:>9}" for d in dtypes)
        lines.append(
            f"{'network':<22}{'sure':>6}{columns}{'ORT i8':>9} {'way':<10}{'quantize s':>16}{'kept':>5}{'total s':>8}  measure"
        )
    for row in rows:
        if "error" in row:
            lines.append(f"{row['name']:<22} {row['error']}")
            continue
        share = "" if row["share"] is None else f"{100 * row['share']:.0f}%"
        top = best(row)
        ort = f"{top[0]:.2f}" if top else "-"
        seconds = "/".join(f"{row['dtypes'].get(d, {}).get('seconds', 0):.1f}" for d in dtypes)
        kept = next((str(c["kept"]) for c in reversed(list(row["dtypes"].values())) if c.get("kept") is not None), "")
        cells = "".join(f"{_cell(row, d):>9}" for d in dtypes)
        lines.append(
            f"{row['name']:<22}{share:>6}{cells}{ort:>9} {top[1] if top else '':<10}{seconds:>16}{kept:>5}"
            f"{row.get('total_seconds', 0):>8}  {row['measure']}"
        )
        lines += [f"    {d}: {row['dtypes'][d]['error']}" for d in dtypes if "error" in row["dtypes"].get(d, {})]
        if not top and row["ort"]:
            lines.append(f"    ORT: {row['ort']}"[:400])
        if row["self"] != 100:
            lines.append(f"    f32 with itself gives {row['self']} points: the measure is wrong")
    return "\n".join(lines)


def summary(rows: Sequence[Row], dtypes: Sequence[str]) -> str:
    """How many networks miss a bar, and how i8 stands to ONNX Runtime."""
    lines = ["* below the bar, ! NaN or infinity; sure: share of f32's results that count; kept: layers in f32 (table)"]
    measured = [row for row in rows if "error" not in row]
    lines.append(f"{len(measured)} networks measured, {len(rows) - len(measured)} with an error")
    for dtype in dtypes:
        found = {row["name"]: points(row, dtype) for row in measured if row["dtypes"]}
        missed = [n for n, p in found.items() if p is not None and p < 100 - BARS[dtype]]
        errors = [n for n, p in found.items() if p is None]
        unusual = [row["name"] for row in measured if row["dtypes"].get(dtype, {}).get("nan")]
        good = [p for p in found.values() if p is not None]
        mean = sum(good) / len(good) if good else 0
        lines.append(
            f"{dtype}: mean {mean:.2f}; {len(missed)} of {len(found)} miss {BARS[dtype]} points ({', '.join(missed)})"
            + (f"; errors: {', '.join(errors)}" if errors else "") + (f"; NaN: {', '.join(unusual)}" if unusual else "")
        )  # fmt: skip
    pairs = [(row["name"], points(row, "i8"), best(row)) for row in measured]
    compared = {name: mine - theirs[0] for name, mine, theirs in pairs if mine is not None and theirs is not None}
    if compared:
        behind = [f"{name} {gap:+.2f}" for name, gap in compared.items() if gap < 0]
        lines.append(
            f"i8 against ONNX Runtime's best: {len(compared)} compared, mean {sum(compared.values()) / len(compared):+.2f}, "
            f"{len(behind)} behind ({', '.join(behind)})"
        )
    return "\n".join(lines)
