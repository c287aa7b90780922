"""Measures how near a quantized graph's outputs are to the float graph's on some calibration samples, and defines what
is near enough: decisions must stay the same, and other values must stay near."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from linnet.facade import Graph
from linnet.ir.dtypes import has_floats
from linnet.quantization.agreement import KEEPS_HALVES
from linnet.quantization.observe import Batches

Array = npt.NDArray[Any]


class Target(NamedTuple):
    """The limits within which an output is near enough."""

    values: float  # squared error over the power of what changes in an output
    scores: float  # the same for scores between 0 and 1, of which the decision counts
    classes: float  # share of best classes that differ
    masks: float  # the same for single scores, which are above a half in either; it varies more from picture to picture


TARGETS = {
    "i8": Target(10**-2.6, 10**-1.5, 0.01, 0.006),
    "i16": Target(10**-4.0, 10**-3.0, 0.001, 0.0006),
    "f16": Target(10**-5.0, 10**-4.0, 0.001, 0.0006),
    "bf16": Target(10**-2.6, 10**-1.5, 0.01, 0.006),
}
_EACH = -1  # the axis of scores, each of which is a decision of its own
_TIE = 0.1  # two best scores that are nearer to each other than this decide nothing


class Nearness(NamedTuple):
    """How near a graph comes. `error`: the squared error divided by the power of what changes between samples. Each
    quotient is at most 1, and they are averaged over outputs and samples. `excess`: the geometric mean, over the
    outputs, of the error divided by the error that the target allows. Ratios below 1 count as 1, so 1 means near
    enough."""

    error: float
    excess: float


class Judge:
    """Compares graphs with the float graph on some of the calibration samples."""

    def __init__(self, graph: Graph, batches: Batches, samples: int, target: Target, threads: int | None) -> None:
        from linnet.session.session import Session

        self.threads, self.target = threads, target
        every = max(1, (batches.count or 1) // samples)
        self.samples = [feeds for i, feeds in enumerate(batches) if i % every == 0][:samples]
        session = Session(graph, threads=threads)
        runs = [session.run(feeds) for feeds in self.samples]
        self.wanted = {
            name: [np.asarray(run[name]) for run in runs]
            for name, value in (runs[0].items() if runs else ())
            if np.asarray(value).dtype.kind in "iu" or has_floats(np.asarray(value))
        }
        self.power = {name: _varying([w.astype(np.float64) for w in values]) for name, values in self.wanted.items()}
        self.axes = {name: _class_axis(values) for name, values in self.wanted.items()}

    def compare(self, graph: Graph, samples: int | None = None) -> Nearness:
        """Measures how near a graph comes. samples: if given, only this many samples are used, from the first one
        on."""
        from linnet.session.session import Session

        session = Session(graph, threads=self.threads, max_bytes=KEEPS_HALVES)
        runs = [session.run(feeds) for feeds in self.samples[:samples]]
        errors: list[float] = []
        ratios: list[float] = []
        for name, wanted in self.wanted.items():
            got = [np.asarray(run[name]) for run in runs]
            differ, count, distance = 0, 0, 0.0
            for a, b in zip(wanted, got, strict=False):
                changed, decided = _decisions(a, b, self.axes[name])
                differ, count = differ + changed, count + decided
                distance += _distance(a, b, self.power[name]) / len(got)
            errors.append(distance)
            axis, target = self.axes[name], self.target
            scores = not has_floats(wanted[0]) or axis is not None
            ratios.append(
                max(
                    1.0,
                    distance / (target.scores if scores else target.values),
                    differ / max(count, 1) / (target.masks if axis == _EACH else target.classes),
                )
            )
        return Nearness(float(np.mean(errors or [0.0])), float(np.exp(np.mean(np.log(ratios or [1.0])))))


def _class_axis(values: Sequence[Array]) -> int | None:
    """The axis along which scores of classes sum to 1; `_EACH` for other scores between 0 and 1; None for other values."""
    if any(not has_floats(v) or not v.size or v.min() < 0.0 or v.max() > 1.0 for v in values):
        return None
    for axis in range(values[0].ndim - 1, -1, -1):
        if values[0].shape[axis] > 1 and all(np.allclose(v.sum(axis, np.float64), 1.0, atol=0.02) for v in values):
            return axis
    return _EACH


def _decisions(want: Array, got: Array, axis: int | None) -> tuple[int, int]:
    """The number of decisions that differ, and the number of all decisions. Three things are decisions: a best class,
    an integer, and a score that is above a half in at least one of the two outputs."""
    if want.shape != got.shape:
        return 1, 1
    if not has_floats(want):
        return int((want != got).sum()), want.size
    if axis is None:
        return 0, 0
    if axis == _EACH:
        one, other = want > 0.5, got > 0.5
        return int((one ^ other).sum()), int((one | other).sum())
    best = np.partition(want, -2, axis=axis)
    clear = best.take(-1, axis) - best.take(-2, axis) >= _TIE
    return int((clear & (want.argmax(axis) != got.argmax(axis))).sum()), int(clear.sum())


def _varying(values: Sequence[npt.NDArray[np.float64]]) -> float:
    """The mean square of the differences of an output between samples. (If a coordinate is always near 100, only its
    last digits carry information.) With few samples, or if their shapes differ, it is the mean square of the output
    itself. It is never less than a thousandth of that mean square."""
    whole = float(np.mean([np.square(v).mean() for v in values if v.size] or [0.0]))
    if len(values) < 3 or any(v.shape != values[0].shape for v in values):
        return whole
    stacked = np.stack(values)
    return max(float(np.square(stacked - stacked.mean(axis=0)).mean()) if stacked.size else 0.0, whole / 1000)


def _distance(want: Array, got: Array, power: float) -> float:
    """The squared error over `power`, at most 1."""
    if want.shape != got.shape:
        return 1.0
    error = float(np.square(got.astype(np.float64) - want).mean()) if want.size else 0.0
    return min(1.0, error / power) if power > 0 and np.isfinite(error) else float(error != 0)
