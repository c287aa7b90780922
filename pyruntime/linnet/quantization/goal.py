"""What a quantized graph must reach: how near its outputs must come to those of the float graph, and what it may cost. It
follows from the dtype, or from what the user asks for."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from linnet.clib.errors import UsageError

if TYPE_CHECKING:
    from linnet.facade import Graph


class Target(NamedTuple):
    """The limits within which an output is near enough."""

    values: float  # squared error divided by the power of the changes of an output between samples
    scores: float  # the same for scores between 0 and 1, of which the decision counts
    classes: float  # share of best classes that differ
    masks: float  # the same for single scores, which are above a half in either; it varies more from picture to picture


TARGETS = {
    "i8": Target(10**-3.0, 10**-1.5, 0.01, 0.006),
    "i16": Target(10**-4.0, 10**-3.0, 0.001, 0.0006),
    "f16": Target(10**-5.0, 10**-4.0, 0.001, 0.0006),
    "bf16": Target(10**-2.6, 10**-1.5, 0.01, 0.006),
}
NARROW = 0.6  # of the products of an i8 graph stay in 8 bits, unless a target is given


def parsed(text: str) -> Target:
    """The target that a text names. "99.5%": so many of the decisions stay the same, and the error of values is below
    0.5 % of the power of their changes. "40dB": the error of every output is so far below its power. Raises
    UsageError."""
    words = text.strip().lower().replace(" ", "")
    try:
        if words.endswith("%"):
            share = 1.0 - float(words[:-1]) / 100
            if 0 < share < 1:
                return Target(share, share, share, share)
        if words.endswith("db"):
            decibels = float(words[:-2])
            if 0 < decibels < math.inf:
                error = 10 ** (-decibels / 10)
                return Target(error, error, math.inf, math.inf)
    except ValueError:
        pass
    raise UsageError(
        "the target of quantization cannot be read", code=101, got=repr(text),
        expected="a share of equal results such as 99.5%, or decibels such as 40dB",
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Goal:
    """target: "99.5%" or "40dB" (`parsed`); None for the limits of the dtype.
    score: a figure of a graph, higher is better, with which the user's own metric judges; max_loss: what of it may be lost,
        as a fraction of the float graph's figure.
    max_ms: the most milliseconds of a run, by the model of time. max_bytes: the most bytes of the file. With either, the
        most exact graph within them is taken, unless a target or max_loss ends the search before.
    machine: for which processor times are modelled; see `Costs`."""

    target: str | None = None
    score: Callable[[Graph], float] | None = None
    max_loss: float | None = None
    max_ms: float | None = None
    max_bytes: int | None = None
    machine: str | None = None

    def __post_init__(self) -> None:
        if self.target is not None:
            parsed(self.target)
        if (self.score is None) != (self.max_loss is None):
            raise UsageError(
                "a largest loss needs a metric, and a metric needs a largest loss", code=101,
                expected="both, or neither", got="one of them", hint="give max_loss= with evaluate=, or --max-loss with --eval",
            )  # fmt: skip
        for name, value in (("max_loss", self.max_loss), ("max_ms", self.max_ms), ("max_bytes", self.max_bytes)):
            if value is not None and not 0 < value < math.inf:
                raise UsageError(f"{name} is out of range", code=101, expected="a number above 0", got=str(value))

    @property
    def asked(self) -> bool:
        """Whether the user says what must be reached."""
        return self.target is not None or self.max_loss is not None

    @property
    def bounded(self) -> bool:
        """Whether the user says what it may cost."""
        return self.max_ms is not None or self.max_bytes is not None

    def limits(self, dtype: str) -> Target:
        """The limits of outputs."""
        return TARGETS[dtype] if self.target is None else parsed(self.target)
