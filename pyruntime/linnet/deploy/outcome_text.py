"""The results of a deployment as tables, as JSON and as a picture."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.clib.errors import FileError, UsageError
from linnet.deploy.deployment import Outcome
from linnet.deploy.verify import Compared
from linnet.report.tables import count, size, table

if TYPE_CHECKING:
    from rich.table import Table

_ABSENT = "-"


def tables(outcome: Outcome, emulated: bool = False) -> list[Table]:
    """Tables of the comparisons, of the measurements, and of the machine's state during the measurements. A step that
    was not done has no table. Each table fits into 80 columns. emulated: whether times and memory are those of an
    emulator."""
    found = []
    if outcome.compared:
        found.append(_verified(outcome))
    if outcome.results:
        found.append(_measured(outcome, emulated))
        if not emulated and any(change(row, key) != _ABSENT for row in outcome.results for key in ("celsius", "mhz")):
            found.append(_state(outcome))
    return found


def _verified(outcome: Outcome) -> Table:
    sample = "random input" if outcome.drawn else "the first calibration sample"
    made = table(
        f"Results on {sample}, compared with this machine", "dtype", "output", "=agree", ">worst difference", ">allowed",
        ">from f32",
    )  # fmt: skip
    for row in outcome.compared:
        agree = "all bits" if row.equal else "yes" if row.good else "no"
        made.add_row(
            row.dtype, row.output, agree, f"{row.worst:.2g}", f"{row.tolerance:g}",
            _ABSENT if row.from_f32 is None else f"{row.from_f32:.2g}",
        )  # fmt: skip
    return made


def _measured(outcome: Outcome, emulated: bool) -> Table:
    title = "Times" if outcome.timed == "infer" else f"Times of the signature {outcome.timed}"
    title += " under emulation, which say nothing about the real CPU" if emulated else ""
    columns = [
        "dtype",
        ">threads",
        ">median ms",
        ">p95 ms",
        ">plan memory",
        ">file",
        *([] if emulated else [">peak RSS"]),
    ]
    made = table(title, *columns)
    for row in _sorted(outcome):
        memory = (row.get("memory") or {}).get("total")
        made.add_row(
            row["dtype"], str(row["threads"]), number(row.get("median_ms")), number(row.get("p95_ms")),
            bytes_of(memory), bytes_of(row.get("file_bytes")), *([] if emulated else [bytes_of(row.get("peak_rss"))]),
        )  # fmt: skip
    return made


def _state(outcome: Outcome) -> Table:
    made = table("Before and after each measurement", "dtype", ">threads", "=°C", "=MHz")
    for row in _sorted(outcome):
        made.add_row(row["dtype"], str(row["threads"]), change(row, "celsius"), change(row, "mhz"))
    return made


def _sorted(outcome: Outcome) -> list[dict[str, Any]]:
    return sorted(outcome.results, key=lambda r: (r["dtype"] != "f32", r["dtype"], r["threads"]))


def machine_line(outcome: Outcome, emulated: bool) -> str:
    """The machine as linnet-bench describes it: board, processor, cores, memory, system. If there are no results of
    linnet-bench, or if they describe the host, the line shows what the target's shell says."""
    from linnet.session.machine import machine_text

    if outcome.results and not emulated:
        return machine_text(outcome.results[0]["machine"])
    return outcome.machine.words if outcome.machine is not None else ""


def throttled(outcome: Outcome) -> list[str]:
    """A line for each measurement during which the machine was throttled."""
    lines = []
    for row in outcome.results:
        texts = [(row.get(when) or {}).get("throttled") for when in ("before", "after")]
        if text := next((t for t in reversed(texts) if t), None):
            where = f"{row['dtype']} on {count(row['threads'], 'thread')}"
            lines.append(f"{where}: the machine was throttled ({text}); cool it and measure again")
    return lines


def as_json(outcome: Outcome, name: str, model: Path, error: str = "") -> dict[str, Any]:
    """Returns the outcome as one JSON object. error: why the deployment ended early, if it did."""
    machine = None if outcome.machine is None else dataclasses.asdict(outcome.machine)
    return {
        "target": name, "model": str(model), "machine": machine, "files": outcome.files, "results": outcome.results,
        "verified": [_row(row) for row in outcome.compared], "random_sample": outcome.drawn,
        "kept": outcome.kept or None, "commands": outcome.commands, "left": outcome.left or None, "error": error or None,
    }  # fmt: skip


def _row(row: Compared) -> dict[str, Any]:
    """Replaces NaN and infinity by None, because JSON has neither."""
    values = {**dataclasses.asdict(row), "good": row.good}
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}


def check_plot() -> None:
    """Raises UsageError if pictures cannot be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(
            "--plot needs the package matplotlib, which is not installed",
            code=201,
            hint="run pip install 'linnet-runtime[train]'",
        )


def plot(outcome: Outcome, name: str, file: Path) -> None:
    """Draws the medians, with p95, as bars. Raises FileError."""
    from matplotlib.figure import Figure

    rows = outcome.results
    figure = Figure(figsize=(1.5 + 1.1 * max(3, len(rows)), 4), layout="constrained")
    axes = figure.add_subplot()
    medians = [row["median_ms"] for row in rows]
    above = [max(0.0, row.get("p95_ms", m) - m) for row, m in zip(rows, medians, strict=True)]
    bars = axes.bar(range(len(rows)), medians, yerr=[[0.0] * len(rows), above], capsize=4)
    axes.bar_label(bars, fmt="%.3g")
    axes.set_xticks(range(len(rows)), [f"{row['dtype']}\n{row['threads']} thr." for row in rows])
    axes.set_ylabel("median ms (line: p95)")
    axes.set_title(name)
    try:
        figure.savefig(file)
    except (OSError, ValueError) as error:
        raise FileError(
            "cannot write the picture", code=207, tensor=str(file), got=str(error), hint="give a path such as times.png"
        ) from None


def number(value: float | None) -> str:
    """Milliseconds as text."""
    return _ABSENT if value is None else f"{value:.3f}"


def bytes_of(value: int | None) -> str:
    """A size as text, or "-" if it is not known."""
    return _ABSENT if value is None else size(value)


def change(row: Mapping[str, Any], key: str) -> str:
    """The value before and after, such as "41 -> 63". If a value is a list, its largest number is shown."""
    values = [(row.get(when) or {}).get(key) for when in ("before", "after")]
    values = [max(v, default=None) if isinstance(v, list) else v for v in values]
    if all(v is None for v in values):
        return _ABSENT
    return " -> ".join(_ABSENT if v is None else f"{v:.0f}" for v in values)
