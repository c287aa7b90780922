"""Plots of simulations with matplotlib (the extra `train`): curves of one setting over the number of workers, and
comparisons with published results."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from linnet.clib.errors import FileError, UsageError
from linnet.sync.simulate.published import Comparison
from linnet.sync.simulate.run import Result


def figure(columns: int, rows: int = 1) -> Any:
    """An empty matplotlib figure for this many plots. Raises UsageError if matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(
            "the package matplotlib is not installed", code=101, hint="pip install 'linnet-runtime[train]'"
        )
    from matplotlib.figure import Figure

    return Figure(figsize=(5.5 * columns, 4.6 * rows), layout="constrained")


def write(made: Any, path: str | Path) -> None:
    """Writes a figure as .png, .svg or .pdf, chosen by the path's suffix. Raises FileError if it cannot be written."""
    try:
        made.savefig(str(path), dpi=120)
    except (OSError, ValueError) as error:
        raise FileError("cannot write the plot", code=207, tensor=str(path), got=str(error)) from None


def comparisons(found: Sequence[Comparison], path: str | Path | None = None) -> Any:
    """Draws one plot per published result. Lines are simulated values, crosses are published values."""
    columns = min(len(found), 3)
    made = figure(columns, -(-len(found) // columns))
    for i, comparison in enumerate(found):
        axes = made.add_subplot(
            -(-len(found) // columns), columns, i + 1, title=comparison.title, xlabel=comparison.x_label,
            ylabel=comparison.y_label,
        )  # fmt: skip
        for j, series in enumerate(comparison.series):
            other = comparison.name == "backup" and j == 1  # a percentage next to seconds
            where = axes.twinx() if other else axes
            color = f"C{j}"
            style = {"color": "0.7", "linestyle": ":"} if series.label == "linear" else {"color": color, "marker": "."}
            where.plot(series.x, series.simulated, label=series.label, **style)
            printed = [(x, y) for x, y in zip(series.x, series.published, strict=True) if y is not None]
            if printed:
                where.plot(*zip(*printed, strict=True), "x", color=color, markersize=9, markeredgewidth=2)
            if other:
                where.set_ylabel(series.label, color=color)
                axes.set_ylabel(comparison.series[0].label, color="C0")
        _scale(axes, comparison.log)
        if comparison.name != "backup":
            _legend(axes)
    if path is not None:
        write(made, path)
    return made


def curves(found: Mapping[str, Sequence[Result]], path: str | Path | None = None) -> Any:
    """Speed-up and median step time over the number of workers, with one line per label. If there is only one number of
    workers, plots the distribution of step times instead."""
    counts = {result.setting.hardware.workers for results in found.values() for result in results}
    single = len(counts) == 1
    made = figure(1 if single else 2)
    if single:
        axes = made.add_subplot(1, 1, 1, xlabel="step, s", ylabel="fraction of steps that are shorter")
        for label, results in found.items():
            for result in results:
                steps = np.sort(result.step_seconds)
                axes.plot(steps, (np.arange(len(steps)) + 1) / len(steps), label=label)
        axes.set_xlim(left=0.0)  # if all steps are equal, show one edge and not rounding noise
    else:
        speed = made.add_subplot(1, 2, 1, xlabel="workers", ylabel="speed-up")
        step = made.add_subplot(1, 2, 2, xlabel="workers", ylabel="step, s (median)")
        for label, results in found.items():
            x = [result.setting.hardware.workers for result in results]
            speed.plot(x, [result.speedup for result in results], marker=".", label=label)
            step.plot(x, [result.median for result in results], marker=".", label=label)
        speed.plot(sorted(counts), sorted(counts), color="0.7", linestyle=":", label="linear")
        wide = max(counts) >= 20 * min(counts)
        for axes in (speed, step):
            _scale(axes, (wide, wide))
        axes = speed
    _legend(axes)
    if path is not None:
        write(made, path)
    return made


def _legend(axes: Any) -> None:
    """Places the legend below the plot, where it hides no curve."""
    axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)


def _scale(axes: Any, log: tuple[bool, bool]) -> None:
    if log[0]:
        axes.set_xscale("log")
    if log[1]:
        axes.set_yscale("log")
    axes.grid(alpha=0.3, which="both" if log[0] and log[1] else "major")
