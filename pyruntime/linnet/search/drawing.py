"""The result of a search as a picture, and as one HTML page that needs no network: the Pareto front of the first two
objectives, or the best value by trial if there is one."""

from __future__ import annotations

import importlib.util
import io
import re
from pathlib import Path
from typing import Any

from linnet.clib.errors import FileError, UsageError
from linnet.file.atomic import write_atomic
from linnet.report.tables_page import page
from linnet.search import words
from linnet.search.result import Found, Row

_LOG = 20.0  # an axis is logarithmic if its largest value is this many times its smallest
FORMATS = ("png", "svg", "pdf")


def check(path: Path, what: str, endings: tuple[str, ...]) -> None:
    """Raises UsageError if a picture or page could not be written, before the search begins."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(
            "the package matplotlib, which draws, is not installed",
            code=201,
            hint="pip install 'linnet-runtime[search]'",
        )
    if path.suffix.lower().lstrip(".") not in endings:
        raise UsageError(
            f"the name of {what} has an unknown ending", code=101, tensor=str(path),
            expected=" or ".join(f".{ending}" for ending in endings), got=path.suffix or "none",
        )  # fmt: skip
    if not path.resolve().parent.is_dir():
        raise FileError(
            f"{what} cannot be written", code=207, tensor=str(path), got="no such folder", hint="make the folder first"
        )


def write_picture(found: Found, path: Path) -> None:
    """Writes the picture. Raises FileError."""
    write_atomic(path, iter([_drawn(found, path.suffix.lower().lstrip("."))]))


def write_page(found: Found, path: Path, title: str) -> None:
    """Writes the page: the picture, the tables of the terminal, and all trials. Raises FileError."""
    drawing = _drawn(found, "svg").decode()
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing[drawing.index("<svg") :], flags=re.DOTALL)
    lines = [words.goal(found.settings), words.summary(found)]
    text = page(title, lines, [*words.tables(found), words.every_trial(found)], f"<h2>{_title(found)}</h2>\n{drawing}")
    write_atomic(path, iter([text.encode()]))


def _title(found: Found) -> str:
    names = list(found.settings.directions)
    return "The Pareto front" if len(names) > 1 else f"The best {names[0]} so far, by trial"


def _drawn(found: Found, kind: str) -> bytes:
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "linnet"}):  # the same study gives the same bytes
        drawing = Figure(figsize=(7, 4.5), layout="constrained")
        axes = drawing.add_subplot()
        (_front if len(found.settings.directions) > 1 else _course)(found, axes)
        for axis, values in ((axes.xaxis, _values(axes, 0)), (axes.yaxis, _values(axes, 1))):
            if values and min(values) > 0 and max(values) / min(values) > _LOG and axis.get_label_text() != "trial":
                (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log")
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend()
        made = io.BytesIO()
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
        drawing.savefig(made, format=kind, dpi=130, metadata=metadata)
    return made.getvalue()


def _values(axes: Any, which: int) -> list[float]:
    return [float(point[which]) for dots in axes.collections for point in dots.get_offsets()]


def _front(found: Found, axes: Any) -> None:
    """The first two objectives. The colour of feasible trials is the third objective, if there is one."""
    settings = found.settings
    first, second, *more = settings.directions
    beyond = [row for row in found.rows if row.state == "infeasible"]
    good = [row for row in found.rows if row.state == "complete"]

    def at(rows: list[Row]) -> tuple[list[float], list[float]]:
        return [row.figures[second] for row in rows], [row.figures[first] for row in rows]

    if beyond:
        axes.scatter(*at(beyond), marker="x", color="tab:red", alpha=0.6, label="beyond a limit")
    if good:
        colour = {"c": [row.figures[more[0]] for row in good], "cmap": "viridis"} if more else {"color": "tab:blue"}
        dots = axes.scatter(*at(good), alpha=0.8, label="feasible", **colour)
        if more:
            axes.figure.colorbar(dots, label=_label(more[0]))
    front = sorted(found.front, key=lambda row: (row.figures[second], row.figures[first]))
    if front:
        style = "none" if more else "steps-post" if settings.directions[second] == "minimize" else "steps-pre"
        if more:  # of three objectives, the front is no line
            axes.scatter(*at(front), s=90, facecolors="none", edgecolors="black", label="Pareto front")
        else:
            axes.plot(*at(front), drawstyle=style, color="tab:blue", label="Pareto front")
    for name, mark in ((second, axes.axvline), (first, axes.axhline)):
        if name in settings.limits:
            mark(settings.limits[name], color="tab:red", linestyle=":", label=f"limit of {name}")
    axes.set_xlabel(_label(second))
    axes.set_ylabel(_label(first))


def _course(found: Found, axes: Any) -> None:
    """The only objective by trial, with the best feasible value so far."""
    [(name, direction)] = found.settings.directions.items()
    best = max if direction == "maximize" else min
    for state, mark, colour in (("infeasible", "x", "tab:red"), ("complete", "o", "tab:blue")):
        rows = [row for row in found.rows if row.state == state]
        if rows:
            label = "feasible" if state == "complete" else "beyond a limit"
            axes.scatter(
                [r.number for r in rows], [r.figures[name] for r in rows], marker=mark, color=colour, label=label
            )
    numbers: list[int] = []
    values: list[float] = []
    for row in found.rows:
        if row.state == "complete":
            numbers.append(row.number)
            values.append(best([row.figures[name], *values[-1:]]))
    if numbers:
        axes.plot(numbers, values, drawstyle="steps-post", color="tab:blue", label="best so far")
    axes.set_xlabel("trial")
    axes.set_ylabel(_label(name))


def _label(name: str) -> str:
    return {"bytes": "bytes of the file", "memory": "memory, bytes", "ms": "ms, median", "p95_ms": "ms, p95"}.get(
        name, name
    )
