"""Draws training curves as one picture (matplotlib, without a display), and defines the options that all examples share."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

Curve = Sequence[float] | tuple[Sequence[float], Sequence[float]]  # values by step, or (steps, values)


def options(doc: str | None, name: str, **integers: int) -> argparse.ArgumentParser:
    """Returns a parser with --out, --seed and one integer option per keyword, with its value as default."""
    parser = argparse.ArgumentParser(prog=f"python -m examples.training.{name}", description=doc)
    parser.add_argument("--out", type=Path, default=Path(f"{name}.png"), help="the picture to write (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights, order and noise (%(default)s)")
    for option, value in integers.items():
        parser.add_argument(f"--{option.replace('_', '-')}", type=int, default=value, help="(%(default)s)")
    return parser


def smooth(values: Sequence[float], window: int = 25) -> np.ndarray:
    """Returns the means of the last `window` values; the result has the same length."""
    total = np.cumsum(np.insert(np.asarray(values, np.float64), 0, 0.0))
    ends = np.arange(1, len(total))
    starts = np.maximum(ends - window, 0)
    return (total[ends] - total[starts]) / (ends - starts)


def draw(path: Path, title: str, panels: Mapping[str, Mapping[str, Curve]], step: str = "step") -> None:
    """Draws one panel per item of `panels`, side by side: {label of the y axis: {label of the curve: curve}}. step: x axis."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5 * len(panels), 3.8), dpi=120, layout="constrained")
    figure.suptitle(title)
    for axes, (label, curves) in zip(np.atleast_1d(figure.subplots(1, len(panels))), panels.items(), strict=True):
        for name, curve in curves.items():
            steps, values = curve if isinstance(curve, tuple) else (range(1, len(curve) + 1), curve)
            dots = "." if len(values) < 40 else None  # a curve of one point is visible, too
            axes.plot(steps, values, label=name, linewidth=1.2, marker=dots)
        axes.set(xlabel=step, ylabel=label)
        axes.grid(alpha=0.3)
        if len(curves) > 1:
            axes.legend()
    figure.savefig(path)
