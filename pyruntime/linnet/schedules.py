"""Learning rates that change over time, as graphs of the step: `linnet.Adam(linnet.schedules.cosine(1e-3, 10_000))`.
The step is 0 in the first run. The schedules mean the same as PyTorch's schedulers that are stepped once per run. A
function of your own can be used instead."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from linnet.autodiff._tools import elementwise
from linnet.clib.arguments import check_all
from linnet.clib.errors import UsageError
from linnet.ir.expr import Expr
from linnet.ir.function import Tensor
from linnet.ir.graph import Graph
from linnet.optimizers._step import number

__all__ = [
    "Schedule",
    "constant",
    "cosine",
    "cosine_restarts",
    "exponential",
    "hold",
    "linear",
    "multi_step",
    "one_cycle",
    "piecewise",
    "polynomial",
    "step",
    "warm_up",
]


class Schedule:
    """A learning rate as a function of the step. rule: returns the rate's expression for the step's expression, both
    f64."""

    def __init__(self, rule: Callable[[Any], Any]) -> None:
        self.rule = rule

    def __call__(self, step: Tensor) -> Tensor:
        """The rate at a step, as an f64 scalar tensor."""
        return elementwise([step.cast("f64")], lambda n: n.lift(self.rule(n)), "f64")

    def at(self, step: int) -> float:
        """The rate at a step as a number, for plots and logs."""
        value = self(Graph().constant(np.float64(step))).data  # a constant, by folding
        assert value is not None
        return float(value)


Rate = float | Schedule


def constant(rate: float) -> Schedule:
    """The same rate at every step."""
    value = number("rate", rate, least=0.0)
    return Schedule(lambda n: value)


def step(rate: float, every: int, factor: float = 0.1) -> Schedule:
    """rate * factor ** (n // every), like PyTorch's StepLR."""
    count = _steps("every", every)
    return Schedule(lambda n: rate * n.lift(factor) ** (n / count).floor())


def multi_step(rate: float, milestones: Sequence[int], factor: float = 0.1) -> Schedule:
    """The rate is multiplied by `factor` at each milestone, like PyTorch's MultiStepLR."""
    return piecewise([rate * factor**i for i in range(len(milestones) + 1)], sorted(milestones))


def piecewise(rates: Sequence[float], boundaries: Sequence[int]) -> Schedule:
    """rates[0] before step boundaries[0], then rates[1] before boundaries[1], ...; then the last rate."""
    if len(rates) != len(boundaries) + 1 or list(boundaries) != sorted(boundaries):
        raise UsageError(
            "rates and boundaries do not match", code=101, tensor="boundaries",
            expected=f"{len(rates) - 1} increasing steps", got=repr(list(boundaries)),
        )  # fmt: skip

    def rule(n: Expr) -> Expr:
        value = n.lift(rates[-1])
        for rate, end in reversed(list(zip(rates, boundaries, strict=False))):
            value = (n < end).select(n.lift(rate), value)
        return value

    return Schedule(rule)


def exponential(rate: float, factor: float) -> Schedule:
    """rate * factor ** n, like PyTorch's ExponentialLR."""
    return Schedule(lambda n: rate * n.lift(factor) ** n)


def linear(rate: float, steps: int, start: float = 1.0 / 3.0, end: float = 1.0) -> Schedule:
    """Changes linearly from start * rate to end * rate over `steps`, then stays constant, like PyTorch's LinearLR."""
    count = _steps("steps", steps)
    return Schedule(lambda n: rate * (start + (end - start) * (n / count).min(1.0)))


def polynomial(rate: float, steps: int, power: float = 1.0) -> Schedule:
    """rate * (1 - n / steps) ** power, then 0, like PyTorch's PolynomialLR."""
    count = _steps("steps", steps)
    return Schedule(lambda n: rate * (1.0 - (n / count).min(1.0)) ** power)


def cosine(rate: float, steps: int, least: float = 0.0) -> Schedule:
    """Falls from `rate` to `least` along half a cosine over `steps` (Loshchilov and Hutter 2017), then rises again,
    like PyTorch's CosineAnnealingLR."""
    count = _steps("steps", steps)
    return Schedule(lambda n: least + (rate - least) * _half_cosine(n / count))


def cosine_restarts(rate: float, first: int, factor: int = 1, least: float = 0.0) -> Schedule:
    """Like cosine, but starts again at `rate` after `first` steps. Each later cycle is `factor` times as long as
    the one before, like PyTorch's CosineAnnealingWarmRestarts."""
    count = _steps("first", first)

    def rule(n: Expr) -> Expr:
        if factor == 1:
            return least + (rate - least) * _half_cosine(n % count / count)
        # Cycle c begins at first * (factor ** c - 1) / (factor - 1). The small term keeps a logarithm that should be an
        # integer from falling just below it.
        cycle = ((n * ((factor - 1) / count) + 1.0).log() / math.log(factor) + 1e-9).floor()
        length = n.lift(float(factor)) ** cycle
        begin = (length - 1.0) * (count / (factor - 1))
        return least + (rate - least) * _half_cosine((n - begin) / (length * count))

    return Schedule(rule)


def one_cycle(
    rate: float,
    steps: int,
    *,
    rise: float = 0.3,
    start: float = 25.0,
    end: float = 1e4,
    cosine: bool = True,
    three_phases: bool = False,
) -> Schedule:
    """The rate rises from rate / start to rate in the first part (`rise`) of `steps`, then falls to rate / start / end
    (Smith and Topin 2018), like PyTorch's OneCycleLR. three_phases: it falls to rate / start in as many steps as it
    rose, then to the end value.
    cosine: it rises and falls along cosines instead of straight lines."""
    for name, divisor in (("start", start), ("end", end)):
        if divisor <= 0:
            raise UsageError(f"'{name}' divides the rate", code=101, expected="more than 0", got=str(divisor))
    count, low = _steps("steps", steps), rate / start
    points: list[tuple[float, float]] = [(0.0, low), (rise * count - 1, rate)]
    if three_phases:
        points.append((2 * rise * count - 2, low))
    points.append((count - 1.0, low / end))

    def rule(n: Expr) -> Expr:
        n, value = n.min(count - 1.0), n.lift(low / end)
        for (begin, a), (stop, b) in reversed(list(itertools.pairwise(points))):
            part = (n - begin) / (stop - begin)
            inside = b + (a - b) * _half_cosine(part) if cosine else a + (b - a) * part
            value = (n <= stop).select(inside, value)
        return value

    return Schedule(rule)


def warm_up(schedule: Rate, steps: int, start: float = 0.0) -> Schedule:
    """The rate rises linearly from `start` times the schedule's first rate to the schedule's first rate. Then it
    follows the schedule. In PyTorch, this is a SequentialLR of LinearLR and the schedule."""
    count = _steps("steps", steps)
    rule = schedule.rule if isinstance(schedule, Schedule) else constant(schedule).rule

    def both(n: Expr) -> Expr:
        first = rule(n.lift(0.0))
        return (n < count).select(first * (start + (1.0 - start) * (n / count)), n.lift(rule((n - count).max(0.0))))

    return Schedule(both)


def hold(schedule: Schedule, steps: int) -> Schedule:
    """The schedule at n // steps. If an epoch has `steps` steps, this is a schedule of epochs."""
    count = _steps("steps", steps)
    return Schedule(lambda n: schedule.rule((n / count).floor()))


def _half_cosine(part: Expr) -> Expr:
    """Falls along half a cosine, from 1 at 0 to 0 at 1."""
    return 0.5 + 0.5 * (part * math.pi).cos()


def _steps(name: str, value: int) -> float:
    return number(name, value, least=1.0)


check_all(globals(), __all__, strict=True)
