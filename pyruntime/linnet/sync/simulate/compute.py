"""How long one worker computes a step: a typical time and how it scatters, or times that were measured.
A scatter is a factor around 1; a worker may also be slower than its peers for good (`spread`)."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from linnet.errors import FileError, UsageError

Floats = np.ndarray[Any, np.dtype[np.float64]]
_FORMS = "constant, lognormal:SIGMA, pareto:ALPHA, stragglers:SHARE,DELAY"
_BODY = 0.02  # SIGMA of steps that nothing disturbs
_FIELDS = ("seconds", "step_seconds", "step_time", "time")


@dataclasses.dataclass(frozen=True)
class Compute:
    """Seconds that a worker computes in a step.

    typical: seconds, the value around which a step scatters (the median where the scatter is log-normal).
    scatter: how a single step differs, as a factor on `typical`:
      constant                 1
      lognormal:SIGMA          exp(SIGMA z), z standard normal: median 1, mean exp(SIGMA**2 / 2)
      pareto:ALPHA             u**(-1/ALPHA), u uniform in (0, 1]: never below 1, a heavy tail (ALPHA > 1: a finite mean)
      stragglers:SHARE,DELAY   a log-normal body of SIGMA 0.03, and with probability SHARE an extra delay of DELAY * e,
                               e exponential with mean 1: a machine that now and then does something else
    measured: seconds of steps that were measured; a step draws one of them, and `typical` and `scatter` are not used.
    spread: SIGMA of a log-normal factor that each worker keeps: machines of different speed.
    """

    typical: float = 0.1
    scatter: str = "constant"
    measured: Sequence[float] = ()
    spread: float = 0.0

    def __post_init__(self) -> None:
        if not self.typical >= 0 or not self.spread >= 0:
            raise UsageError(
                "a step takes no negative time", code=101, got=f"typical {self.typical}, spread {self.spread}"
            )
        if len(self.measured) and not (np.isfinite(self.measured).all() and min(self.measured) >= 0):
            raise UsageError("measured step times are finite and not negative", code=101, got=str(min(self.measured)))
        self._parameters()

    def _parameters(self) -> tuple[str, tuple[float, ...]]:
        kind, _, rest = self.scatter.partition(":")
        counts = {"constant": 0, "lognormal": 1, "pareto": 1, "stragglers": 2}
        try:
            numbers = tuple(float(part) for part in rest.split(",")) if rest else ()
        except ValueError:
            numbers = (math.nan,)
        bad = (
            kind not in counts or len(numbers) != counts[kind] or not all(math.isfinite(n) and n >= 0 for n in numbers)
        )
        if bad or (kind == "pareto" and numbers[0] <= 1) or (kind == "stragglers" and numbers[0] > 1):
            hint = "ALPHA must be above 1 for a finite mean, SHARE is a probability"
            raise UsageError(f"{self.scatter!r} is no scatter of step times", code=101, expected=_FORMS, hint=hint)
        return kind, numbers

    def speeds(self, workers: int, rng: np.random.Generator) -> Floats:
        """The factor on its times that each worker keeps [workers]."""
        return np.exp(self.spread * rng.standard_normal(workers)) if self.spread else np.ones(workers)

    def draw(self, count: int, rng: np.random.Generator) -> Floats:
        """Seconds of one step of `count` workers of ordinary speed [count]."""
        if len(self.measured):
            return rng.choice(np.asarray(self.measured, np.float64), count)
        kind, numbers = self._parameters()
        if kind == "constant":
            factors = np.ones(count)
        elif kind == "lognormal":
            factors = np.exp(numbers[0] * rng.standard_normal(count))
        elif kind == "pareto":
            factors = (1.0 - rng.random(count)) ** (-1.0 / numbers[0])
        else:
            slow = rng.random(count) < numbers[0]
            factors = np.exp(_BODY * rng.standard_normal(count)) + slow * numbers[1] * rng.gamma(2.0, 0.5, count)
        return self.typical * factors

    @property
    def mean(self) -> float:
        """Mean seconds of a step of a worker of ordinary speed."""
        if len(self.measured):
            return float(np.mean(self.measured))
        kind, numbers = self._parameters()
        if kind == "lognormal":
            return self.typical * math.exp(numbers[0] ** 2 / 2)
        if kind == "pareto":
            return self.typical * numbers[0] / (numbers[0] - 1)
        return self.typical * (1.0 if kind == "constant" else math.exp(_BODY**2 / 2) + numbers[0] * numbers[1])


def read_times(path: str | Path) -> list[float]:
    """Step times in seconds from a file: .json (a list, or an object with a list), .jsonl (one object per step with a field
    "seconds", as `StepTimes` writes), or .csv (a column "seconds", or the only one). The first step, which plans, is left
    out where there are more than two. FileError when there are none."""
    path = Path(path)
    try:
        text = path.read_text()
    except OSError as error:
        raise FileError("cannot read the step times", code=201, tensor=str(path), got=str(error)) from None
    try:
        found = _times(path.suffix, text)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise FileError(
            "no step times could be read", code=206, tensor=str(path), got=f"{type(error).__name__}: {error}",
            hint='give a list of seconds (.json), objects with "seconds" (.jsonl) or a column "seconds" (.csv)',
        ) from None  # fmt: skip
    if not found or not all(math.isfinite(value) and value >= 0 for value in found):
        raise FileError(
            "there are no usable step times", code=206, tensor=str(path), expected="seconds, none negative",
            got=f"{len(found)} values",
        )  # fmt: skip
    return found[1:] if len(found) > 2 else found


def _times(suffix: str, text: str) -> list[float]:
    if suffix == ".csv":
        rows = [row for row in csv.reader(text.splitlines()) if row]
        names = [name.strip() for name in rows[0]]
        column = next((names.index(name) for name in _FIELDS if name in names), None)
        if column is None and len(names) > 1:
            raise KeyError(f"no column of {names} is one of {', '.join(_FIELDS)}")
        try:
            float(names[column or 0])
        except ValueError:
            rows = rows[1:]
        return [float(row[column or 0]) for row in rows]
    if suffix == ".jsonl":
        found = [_field(json.loads(line)) for line in text.splitlines() if line.strip()]
        return [value for value in found if value is not None]
    content = json.loads(text)
    if isinstance(content, dict):
        content = content[next((name for name in _FIELDS if name in content), _FIELDS[0])]
    return [float(value) for value in content]


def _field(row: dict[str, Any]) -> float | None:
    value = next((row[name] for name in _FIELDS if name in row), None)
    return None if value is None else float(value)
