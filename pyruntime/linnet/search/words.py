"""The result of a search in words: figures with their units, a line for each trial, and tables for the terminal and for the
page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from linnet.report.tables import count, size, table
from linnet.search.result import Found, Row
from linnet.search.settings import ON_BOARD, Settings

if TYPE_CHECKING:
    from rich.table import Table

_BEST = 10  # rows of a study with one objective that the terminal shows


def figure(name: str, value: float) -> str:
    """A figure with its unit, if linnet knows it."""
    if name in ("bytes", "memory"):
        return size(round(value))
    if name in ON_BOARD:
        return f"{value:.3f} ms"
    return f"{value:,.0f}" if value == round(value) and abs(value) >= 1000 else f"{value:.5g}"


def beyond(row: Row, settings: Settings) -> str:
    """Which limits a trial is beyond, such as "bytes 124.0 kB > 100.0 kB"."""
    words = []
    for name in row.beyond:
        sign = "<" if settings.at_least(name) else ">"
        words.append(f"{name} {figure(name, row.figures[name])} {sign} {figure(name, settings.limits[name])}")
    return ", ".join(words)


def line(row: Row, settings: Settings) -> str:
    """A finished trial in one line."""
    params = ", ".join(f"{name} {_value(value)}" for name, value in row.params.items())
    if row.state in ("failed", "pruned"):
        about = f"{row.state}: {row.error}" if row.error else row.state
    else:
        about = ", ".join(f"{name} {figure(name, row.figures[name])}" for name in shown(settings))
        if row.beyond:
            about += f"; beyond a limit: {beyond(row, settings)}"
    return f"trial {row.number} ({params}): {about}"


def shown(settings: Settings) -> list[str]:
    """The figures that tables show: objectives, and then those with limits."""
    return list(dict.fromkeys((*settings.directions, *settings.limits)))


def summary(found: Found) -> str:
    """How many trials ended in which way."""
    states = Counter(row.state for row in found.rows)
    order = ("complete", "infeasible", "pruned", "failed", "running")
    text = ", ".join(f"{states[state]} {state}" for state in order if states[state])
    missing = found.settings.trials - len(found.rows)
    return f"{count(len(found.rows), 'trial')}: {text or 'none'}" + (f"; {missing} to come" if missing > 0 else "")


def goal(settings: Settings) -> str:
    """Objectives and limits in one line."""
    words = [f"{name} ({direction})" for name, direction in settings.directions.items()]
    limits = [
        f"{name} at {'least' if settings.at_least(name) else 'most'} {figure(name, limit)}"
        for name, limit in settings.limits.items()
    ]
    return ", ".join(words) + (f"; {', '.join(limits)}" if limits else "")


def tables(found: Found) -> list[Table]:
    """Tables of the best trials or of the front, of trials beyond a limit, and of those that failed."""
    settings, several = found.settings, len(found.settings.directions) > 1
    good = [row for row in found.rows if row.state == "complete"]
    if several:
        best = _distinct(found.front)
        title = f"Pareto front: {len(found.front)} of {count(len(good), 'feasible trial')}"
    else:
        [(name, direction)] = settings.directions.items()
        best = sorted(good, key=lambda row: (row.figures[name] * (-1 if direction == "maximize" else 1), row.number))
        title = f"The best of {count(len(good), 'feasible trial')}"
        best = _distinct(best)[:_BEST]
    if len(best) < len(found.front):
        title += "; trials with the same parameters and figures stand here once"
    made = [_rows(title, best, found)] if best else []
    if others := [row for row in found.rows if row.state == "infeasible"]:
        made.append(_rows("Beyond a limit", others, found, "beyond"))
    if others := [row for row in found.rows if row.state in ("failed", "pruned")]:
        made.append(_rows("Failed or pruned", others, found, "reason"))
    return made


def _distinct(rows: Sequence[Row]) -> list[Row]:
    """The rows without those that repeat the parameters and figures of an earlier one, as samplers do now and then."""
    return [
        row for i, row in enumerate(rows) if all((r.params, r.figures) != (row.params, row.figures) for r in rows[:i])
    ]


def every_trial(found: Found) -> Table:
    """A table of all trials, for the page."""
    return _rows("All trials", found.rows, found, "state")


def _rows(title: str, rows: Sequence[Row], found: Found, last: str = "") -> Table:
    names = list(dict.fromkeys(name for row in found.rows for name in row.params))
    figures = [] if last == "reason" else shown(found.settings)
    boards = not last and any(row.board for row in rows)
    columns = [">trial", *(f">{name}" for name in names), *(f">{name}" for name in figures)]
    made = table(title, *columns, *(["board"] if boards else []), *([last] if last else []))
    for row in rows:
        cells = [str(row.number), *(_value(row.params.get(name, "-")) for name in names)]
        cells += [figure(name, row.figures[name]) if name in row.figures else "-" for name in figures]
        words = {"beyond": beyond(row, found.settings), "reason": f"{row.state}: {row.error}".removesuffix(": ")}
        words["state"] = f"{row.state}{', on the front' if row.front else ''}"
        cells += ([row.board] if boards else []) + ([words[last]] if last else [])
        made.add_row(*cells)
    return made


def _value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
