"""The time that one worker takes to compute a step: a typical value and a distribution around it, or measured times.
A distribution (scatter) is a factor around 1. A worker may also be permanently slower than others (`spread`)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from linnet.clib.errors import UsageError

Floats = np.ndarray[Any, np.dtype[np.float64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]
_FORMS = "constant, lognormal:SIGMA, pareto:ALPHA, stragglers:SHARE,DELAY[,STEPS]"
_BLOCK = 64  # workers
_BODY = 0.03  # SIGMA of steps without a disturbance


@dataclasses.dataclass(frozen=True)
class Compute:
    """Seconds that a worker computes in a step.

    typical: the value in seconds around which steps vary (the median for a log-normal distribution).
    scatter: how single steps differ, as a factor on `typical`:
      constant                 1
      lognormal:SIGMA          exp(SIGMA z), z standard normal: median 1, mean exp(SIGMA**2 / 2)
      pareto:ALPHA             u**(-1/ALPHA), u uniform in (0, 1]: at least 1, heavy tail  (ALPHA > 1: finite mean)
      stragglers:SHARE,DELAY[,STEPS]  1 + DELAY in a fraction SHARE of the steps, else 1, times a log-normal
                               factor with SIGMA 0.03:  a machine that also does other work, for STEPS
                               consecutive steps on average  (default 1)
    measured: measured step times in seconds. Each step draws one of them; `typical` and `scatter` are not used.
    spread: SIGMA of a constant log-normal factor per worker, for machines of different speed. balanced: whether workers
    get examples according to their speed, as from a server with `batch`. Then all take the same time, and the total
    number of examples stays the same.
    """

    typical: float = 0.1
    scatter: str = "constant"
    measured: Sequence[float] = ()
    spread: float = 0.0
    balanced: bool = False

    def __post_init__(self) -> None:
        if not self.typical >= 0 or not self.spread >= 0:
            raise UsageError(
                "a step time cannot be negative", code=101, got=f"typical {self.typical}, spread {self.spread}"
            )
        if len(self.measured) and not (np.isfinite(self.measured).all() and min(self.measured) >= 0):
            raise UsageError(
                "measured step times must be finite and not negative", code=101, got=str(min(self.measured))
            )
        self._parameters()

    def _parameters(self) -> tuple[str, tuple[float, ...]]:
        kind, _, rest = self.scatter.partition(":")
        counts = {"constant": (0,), "lognormal": (1,), "pareto": (1,), "stragglers": (2, 3)}
        try:
            numbers = tuple(float(part) for part in rest.split(",")) if rest else ()
        except ValueError:
            numbers = (math.nan,)
        bad = len(numbers) not in counts.get(kind, ()) or not all(math.isfinite(n) and n >= 0 for n in numbers)
        if not bad and kind == "stragglers":
            share, _, steps = numbers = (*numbers, 1.0)[:3]
            # The probability that an undisturbed worker becomes slow cannot exceed 1.
            bad = share >= 1 or steps < 1 or share > (1 - share) * steps
        if bad or (kind == "pareto" and numbers[0] <= 1):
            hint = "ALPHA must be above 1 for a finite mean, SHARE must be a probability, and STEPS at least 1"
            raise UsageError(
                f"{self.scatter!r} is not a valid distribution of step times", code=101, expected=_FORMS, hint=hint
            )
        return kind, numbers

    def speeds(self, workers: int, rng: np.random.Generator) -> Floats:
        """The constant factor on each worker's times [workers]."""
        return np.exp(self.spread * rng.standard_normal(workers)) if self.spread else np.ones(workers)

    def draw(self, count: int, rng: np.random.Generator, slow: Bools | None = None) -> Floats:
        """Seconds of one step for `count` workers of ordinary speed [count]. slow: which of them were disturbed in the
        previous step [count], changed in place. None: this is drawn anew."""
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
            share, delay, steps = numbers
            chance = rng.random(count)
            if slow is None:
                slow = chance < share
            else:  # a Markov chain in which `share` of the workers are slow; steps = 1: every step is drawn anew
                stays = 1 - 1 / steps if steps > 1 else share
                begins = share / (1 - share) * (1 - stays)
                slow[:] = np.where(slow, chance < stays, chance < begins)
            factors = np.exp(_BODY * rng.standard_normal(count)) * (1 + slow * delay)
        return self.typical * factors

    @property
    def disturbed(self) -> float:
        """Fraction of the steps in which a worker is slowed down (stragglers), else 0."""
        kind, numbers = self._parameters()
        return numbers[0] if kind == "stragglers" and not len(self.measured) else 0.0

    @property
    def mean(self) -> float:
        """Mean step time in seconds of a worker of ordinary speed."""
        if len(self.measured):
            return float(np.mean(self.measured))
        kind, numbers = self._parameters()
        if kind == "lognormal":
            return self.typical * math.exp(numbers[0] ** 2 / 2)
        if kind == "pareto":
            return self.typical * numbers[0] / (numbers[0] - 1)
        return self.typical * (1.0 if kind == "constant" else math.exp(_BODY**2 / 2) * (1 + numbers[0] * numbers[1]))


class Draws:
    """Seconds of step k of each worker. Step k of worker i takes the same time in every mode and for any number of
    workers, so that comparisons are fair. Workers draw in blocks, each with its own generator."""

    def __init__(self, compute: Compute, workers: int, local_steps: int, seed: int) -> None:
        self._compute, self._workers, self._local = compute, workers, local_steps
        self._blocks = [np.random.default_rng([seed, block]) for block in range(-(-workers // _BLOCK))]
        self._speeds = np.concatenate([compute.speeds(_BLOCK, rng) for rng in self._blocks])[:workers]
        if compute.balanced:
            self._speeds[:] = workers / (1 / self._speeds).sum()
        self._slow = [rng.random(_BLOCK) < compute.disturbed for rng in self._blocks]
        self._rows: list[list[float]] = []

    def row(self, k: int) -> list[float]:
        """The seconds of step k for all workers. For a federated round, the sum over its local steps."""
        while k >= len(self._rows):
            drawn = [self._step() for _ in range(self._local)]
            self._rows.append((np.sum(drawn, axis=0)[: self._workers] * self._speeds).tolist())
        return self._rows[k]

    def _step(self) -> Floats:
        blocks = zip(self._blocks, self._slow, strict=True)
        return np.concatenate([self._compute.draw(_BLOCK, rng, slow) for rng, slow in blocks])
