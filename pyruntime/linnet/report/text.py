"""A Report as tables for people. `linnet convert --check` prints them, and a failed conversion prints the problems.
Long lists are cut at MOST_ROWS; the JSON and HTML forms of the report are complete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from linnet.clib.errors import Problem
from linnet.report.contents import Contents
from linnet.report.tables import count, region, size, table

if TYPE_CHECKING:
    from rich.table import Table

MOST_ROWS = 40  # per table; --json has all rows
MOST_STEPS = 20


def problem_table(problems: Sequence[Problem]) -> Table:
    """A table of the problems. Nodes with the same problem share one row."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for problem in problems:
        rows.setdefault((problem.op, problem.reason, problem.hint), []).append(problem.node)
    made = table("Problems", "op", "node", "problem", "what to do")
    for (op, reason, hint), nodes in list(rows.items())[:MOST_ROWS]:
        made.add_row(op, _names(nodes), reason, hint)
    _more(made, len(rows))
    return made


def tables(report: Contents) -> list[Table]:
    """All tables that are not empty."""
    made = []
    if report.problems:
        made.append(problem_table(report.problems))
    if report.concerns:
        rows = table("Precision", "kind", "node", "constant", "concern", "what to do")
        for concern in report.concerns[:MOST_ROWS]:
            rows.add_row(concern.kind, concern.node, concern.tensor, concern.text, concern.hint)
        _more(rows, len(report.concerns))
        made.append(rows)
    made += _dynamic(report)
    if report.memory.regions:
        rows = table("Memory", "region", ">bytes")
        for name, held in report.memory.regions.items():
            # There is no file to map yet, and nothing trains.
            if name in ("mapped", "snapshot", "committed", "loop_values"):
                continue
            rows.add_row(region(name), f"{held:,}")
        made.append(rows)
    timed = [step for step in report.steps if step.runs]
    if timed:
        whole = sum(step.ms for step in timed) or 1.0
        rows = table("Timings of the slowest steps", "step", "op", "=kernel", ">ms", ">share")
        for step in sorted(timed, key=lambda step: -step.ms)[:MOST_STEPS]:
            rows.add_row(step.name, step.op, step.kernel, f"{step.ms:.4f}", f"{step.ms / whole:.1%}")
        _more(rows, len(timed), MOST_STEPS)
        made.append(rows)
    if report.operations:
        rows = table("Operations", "op", ">steps", ">MFLOP", ">MMAC", ">MB read and written")
        for row in report.operations:
            macs = f"{row.macs / 1e6:,.2f}" if row.macs else ""
            rows.add_row(row.op, str(row.steps), f"{row.flops / 1e6:,.2f}", macs, f"{row.bytes / 1e6:,.2f}")
        made.append(rows)
        rows = table("Placement", "device", "op", "kernel", ">steps")
        for place in report.placement:
            note = " (scalar reference)" if place.reference else ""
            rows.add_row(place.device, place.op, place.kernel + note, str(place.steps))
        made.append(rows)
    return made


def lines(report: Contents) -> list[str]:
    """The summary lines above the tables."""
    facts = ", ".join(f"{key} {value}" for key, value in report.outline.facts.items())
    text = [
        str(report),
        f"{report.model}: {report.outline.format}, {report.nodes} nodes" + (f", {facts}" if facts else ""),
    ]
    memory = report.memory
    if memory.total is not None and memory.lower_bound is not None:
        flops = sum(row.flops for row in report.operations)
        shapes = " ".join(f"{name}={','.join(map(str, shape)) or 'scalar'}" for name, shape in memory.inputs.items())
        text.append(
            f"{report.dtype}: {flops / 1e6:,.1f} MFLOP, {size(memory.total)} at run time (activations need at least "
            f"{size(memory.lower_bound)}), weights {size(memory.weights)}" + (f"; sizes {shapes}" if shapes else "")
        )
        steps = sum(p.steps for p in report.placement)
        reference = sum(p.steps for p in report.placement if p.reference)
        devices = ", ".join(sorted({p.device for p in report.placement}))
        text.append(f"{count(steps, 'step')} on {devices}; {reference or 'none'} with a scalar reference kernel")
    timings = report.timings
    if timings is not None and timings.median_ms is not None:
        text.append(
            f"median {timings.median_ms:.3f} ms, min {timings.min_ms:.3f} over {count(timings.runs, 'run')} on random input; "
            f"{count(timings.threads, 'thread')}, {timings.isa}; the medians of the steps add up to "
            f"{sum(step.ms for step in report.steps):.3f} ms"
        )
    elif timings is not None:
        text.append(f"timings: {timings.note}")
    if memory.note:
        text.append(f"estimates: {memory.note}")
    return text


def _dynamic(report: Contents) -> list[Table]:
    made = []
    if report.dynamic.dims:
        rows = table("Open dimensions", "name", "where", ">assumed")
        for dim in report.dynamic.dims:
            rows.add_row(dim.name or "?", " ".join(dim.where), "" if dim.assumed is None else str(dim.assumed))
        made.append(rows)
    parts = [*report.dynamic.data_dependent, *report.dynamic.loops]
    if parts:
        rows = table("Data-dependent nodes", "op", "node", "what")
        for part in parts[:MOST_ROWS]:
            rows.add_row(part.op, part.node, part.text)
        _more(rows, len(parts))
        made.append(rows)
    return made


def _names(nodes: Sequence[str]) -> str:
    shown = ", ".join(nodes[:3])
    return shown if len(nodes) <= 3 else f"{shown} and {len(nodes) - 3} more"


def _more(made: Table, rows: int, most: int = MOST_ROWS) -> None:
    if rows > most:
        made.add_row("...", f"and {rows - most} more (--json lists all)")
