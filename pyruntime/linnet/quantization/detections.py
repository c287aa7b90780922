"""Outputs of detectors: a score for each of many candidates, and boxes or points of each. Few candidates are objects, and no
one reads the boxes of the others. So only candidates with high scores are compared."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.ir.dtypes import has_floats
from linnet.quantization.goal import Target

Array = npt.NDArray[Any]
_LEAST = 64  # candidates of a detector
_RARE = 0.05  # of the candidates are objects at most
_OBJECT = 0.5  # the score of an object
_TIE = 0.1  # a score that is nearer to that of an object than this decides nothing
_POSSIBLE = 0.25  # the score of a candidate that a lower threshold would take
_BEST = 4  # candidates of each sample that are compared whatever their scores are
_LARGEST = 100.0  # logits beyond this have the same probability
_SPREAD = 0.2  # of the range of a coordinate, which its deviation exceeds: objects may be anywhere
_BOXES = 2.5  # times the limit of values: a box that is moved by a few percent of its size is still the same box


@dataclasses.dataclass(frozen=True)
class Candidates:
    """An output that says something of each candidate. wanted: f64 [candidates, numbers] of each sample, scores as
    probabilities. counted: bool [candidates], which are compared. form: "sigmoid" for logits, "scores" for probabilities,
    "" if the numbers are no scores."""

    wanted: Sequence[Array]
    counted: Sequence[Array]
    form: str

    @functools.cached_property
    def power(self) -> float:
        """The mean square of what is compared; of values, the mean square of their differences from the mean."""
        held = np.concatenate([value[which] for value, which in zip(self.wanted, self.counted, strict=True)])
        centre = 0.0 if self.form else held.mean(axis=0)
        return max(float(np.square(held - centre).mean()), float(np.square(held).mean()) / 1000)

    def limit(self, target: Target) -> float:
        """The error that the output may have, over its power."""
        return target.scores if self.form else target.values * _BOXES

    def distance(self, sample: int, got: Array) -> float:
        """The squared error over the power, at most 1."""
        value = _rows(got, self.form)
        if value.shape != self.wanted[sample].shape:
            return 1.0
        which = self.counted[sample]
        error = float(np.square(value[which] - self.wanted[sample][which]).mean())
        return min(1.0, error / self.power) if self.power > 0 and np.isfinite(error) else float(error != 0)

    def decisions(self, sample: int, got: Array) -> tuple[int, int]:
        """How many candidates are objects in one of the two outputs only, although f32 is sure, and how many are in at least
        one."""
        value = _rows(got, self.form)
        if not self.form or value.shape != self.wanted[sample].shape:
            return (0, 0) if not self.form else (1, 1)
        one, other = self.wanted[sample] > _OBJECT, value > _OBJECT
        clear = np.abs(self.wanted[sample] - _OBJECT) >= _TIE
        return int((clear & (one ^ other)).sum()), int((one | other).sum())


@dataclasses.dataclass(frozen=True)
class Joined:
    """An output that holds boxes and scores of each candidate in one array, as YOLO's do: [1, numbers, candidates], or
    [1, candidates, numbers]. across: whether candidates are its last axis. scores: bool [numbers], which are scores."""

    across: bool
    scores: Array

    def parts(self, name: str, value: Array) -> dict[str, Array]:
        """The boxes and the scores as outputs of their own: [1, candidates, numbers]."""
        rows = np.swapaxes(value, 1, 2) if self.across else value
        return {f"{name} (boxes)": rows[..., ~self.scores], f"{name} (scores)": rows[..., self.scores]}


def joined_of(outputs: Mapping[str, Sequence[Array]]) -> dict[str, Joined]:
    """The outputs that hold both boxes and scores, by name. outputs: the values of all samples. The first four numbers of
    each candidate are its box, and those of the others that are always between 0 and 1 are its scores."""
    found: dict[str, Joined] = {}
    for name, values in outputs.items():
        first = values[0]
        if first.ndim != 3 or first.shape[0] != 1 or not all(has_floats(v) and v.shape == first.shape for v in values):
            continue
        one = Joined(first.shape[2] > first.shape[1], np.zeros(0, bool))
        rows = np.concatenate([np.swapaxes(v, 1, 2)[0] if one.across else v[0] for v in values]).astype(np.float64)
        if len(rows) < _LEAST * len(values) or rows.shape[1] < 5 or not np.isfinite(rows).all():
            continue
        ranges = np.ptp(rows[:, :2], axis=0)
        scores = (rows.min(axis=0) >= 0.0) & (rows.max(axis=0) <= 1.0) & (np.arange(rows.shape[1]) >= 4)
        if scores.any() and bool((rows[:, :2].std(axis=0) > _SPREAD * ranges).all()) and ranges.min() > 0:
            made = dataclasses.replace(one, scores=scores)
            apart = [made.parts(name, v) for v in values]
            if candidates_of({part: [v[part] for v in apart] for part in apart[0]}):
                found[name] = made
    return found


def candidates_of(outputs: Mapping[str, Sequence[Array]]) -> dict[str, Candidates]:
    """The outputs that belong to detections, by name. outputs: the values of all samples. Outputs with as many rows belong
    together if the scores of one, or the first of them, are high in few rows, and another says more of each."""
    groups: dict[int, list[str]] = {}
    for name, values in outputs.items():
        if all(has_floats(v) and v.shape == values[0].shape and np.isfinite(v).all() for v in values):
            rows = _shape(values[0])
            if rows[0] >= _LEAST:
                groups.setdefault(rows[0], []).append(name)
    found: dict[str, Candidates] = {}
    for names in groups.values():
        forms = {name: _form(outputs[name]) for name in names}
        levels = {name: _levels(outputs[name], forms[name]) for name in names if forms[name]}
        shares = {name: float(np.mean([(v > _OBJECT).mean() for v in found])) for name, found in levels.items()}
        scores = [name for name, share in shares.items() if 0 < share <= _RARE]
        boxes = [name for name in names if name not in scores and _shape(outputs[name][0])[1] >= 4]
        if not scores or not boxes:
            continue
        high = levels[min(scores, key=lambda name: shares[name])]
        counted = [(v > _POSSIBLE) | (v >= np.partition(v, -_BEST)[-_BEST]) for v in high]
        for name in names:
            form = forms[name] if name in scores else ""
            found[name] = Candidates([_rows(v, form) for v in outputs[name]], counted, form)
    return found


def _shape(value: Array) -> tuple[int, int]:
    """(candidates, numbers of each): [n], [n, k] and [1, n, k]."""
    shape = value.shape[1:] if value.ndim > 1 and value.shape[0] == 1 else value.shape
    return (shape[0], shape[1] if len(shape) == 2 else 1) if 1 <= len(shape) <= 2 else (0, 0)


def _rows(value: Array, form: str) -> Array:
    """f64 [candidates, numbers]; logits as probabilities."""
    rows = np.asarray(value, np.float64).reshape(_shape(value))
    return 1.0 / (1.0 + np.exp(-np.clip(rows, -_LARGEST, _LARGEST))) if form == "sigmoid" else rows


def _form(values: Sequence[Array]) -> str:
    """The form: "scores" if the values are probabilities, "sigmoid" if they can be logits, "" otherwise."""
    low, high = min(float(v.min()) for v in values), max(float(v.max()) for v in values)
    if low >= 0.0 and high <= 1.0:
        return "scores"
    return "sigmoid" if low < 0.0 else ""


def _levels(values: Sequence[Array], form: str) -> list[Array]:
    """f64 [candidates] of each sample: the highest score, of any class. If many candidates have a high one, the first number:
    classes may say what an object would be, and the first number whether there is one."""
    rows = [_rows(v, form) for v in values]
    highest = [v.max(axis=1) for v in rows]
    rare = np.mean([(v > _OBJECT).mean() for v in highest]) <= _RARE
    return highest if rare or form != "scores" else [v[:, 0] for v in rows]
