"""What a search looks for and how: objectives with their directions, limits, the space, boards, and the number of trials.
Everything that decides which trials are made is noted in the journal, so that a study cannot be resumed as another one."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import numbers
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from linnet.clib.errors import UsageError, nearest
from linnet.deploy.address import target_of
from linnet.search import space

DIRECTIONS: Final = ("maximize", "minimize")
MEASURED: Final = ("bytes", "macs", "memory", "ms", "p95_ms")
"""The figures that linnet measures of a model. A function may give them, too; then they are not measured."""
ON_BOARD: Final = ("ms", "p95_ms")
_KNOWN: Final = {
    **dict.fromkeys(("accuracy", "f1", "precision", "recall"), "maximize"),
    **dict.fromkeys((*MEASURED, "loss", "error"), "minimize"),
}
SAMPLERS: Final = ("tpe", "random")


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of a search. Raises UsageError if they do not fit together.

    objectives: names of figures, or {name: "maximize" or "minimize"}. The direction of accuracy, f1, precision, recall, loss,
        error and of measured figures is known. Measured are: bytes (of the .lnt file), macs (multiply-accumulates), memory
        (bytes of the plan, on the first board that measures, or on this machine), ms and p95_ms (the median, and the time
        that 95 % of the runs stay below, in milliseconds on a board). The function gives all others.
    limits: {figure: limit}: the largest value, or the smallest one for figures that are maximized. A trial beyond a limit is
        infeasible.
    trials: how many trials the study has in the end, over all processes and resumed runs.
    seed: the same study with the same seed makes the same trials.
    journal: the file that keeps the study. Processes that are started with the same file share its trials. None: the study is
        only in memory.
    name: a journal may keep several studies under different names.
    space: parameters that are suggested before the function is called, {name: {"low": 8, "high": 64, "step": 8, "log": False}}
        or {name: {"choices": [3, 5]}}. The function may suggest others.
    boards: addresses as `linnet deploy` takes them. Each measurement takes a board that is free.
    threads, seconds: of each measurement on a board.
    dtype, calibration, effort: quantize the model before it is measured: as in linnet.quantize; calibration may be a path, too.
        Without calibration, random inputs are taken, which serves bytes and times but not accuracy.
    evaluate: a function that gets run(feeds) of the model that is measured, and returns its accuracy or {figure: number}.
    sampler: "tpe" (Optuna's default), "random", or a function that makes an optuna sampler from a seed.
    pruner: an optuna pruner for functions that use linnet.search.Pruning; None: optuna.pruners.MedianPruner. It
        knows only the trials within the limits.
    """

    objectives: Mapping[str, str] | Sequence[str]
    limits: Mapping[str, float] = dataclasses.field(default_factory=dict)
    trials: int = 20
    seed: int = 0
    journal: str | Path | None = None
    name: str = "search"
    space: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    boards: Sequence[str] = ()
    threads: int = 1
    seconds: float = 1.0
    dtype: str | None = None
    calibration: Iterable[Mapping[str, Any]] | str | Path | None = None
    effort: str = "fast"
    evaluate: Callable[[Callable[[Mapping[str, Any]], Any]], Any] | None = None
    sampler: str | Callable[[int], Any] = "tpe"
    pruner: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "objectives", _directed(self.objectives))
        object.__setattr__(self, "space", {name: dict(value) for name, value in self.space.items()})
        space.distributions(self.space)
        if isinstance(self.calibration, Iterator):  # each trial reads it
            object.__setattr__(self, "calibration", list(self.calibration))
        for name, limit in self.limits.items():
            if not isinstance(limit, numbers.Real) or isinstance(limit, bool) or not math.isfinite(limit):
                raise _wrong("limits", f"a finite number for {name}", repr(limit))
        for name, value, least in (("trials", self.trials, 1), ("threads", self.threads, 1), ("seed", self.seed, 0)):
            if not isinstance(value, int) or value < least:
                raise _wrong(name, f"an integer of at least {least}", repr(value))
        if not (isinstance(self.seconds, int | float) and 0 < self.seconds < math.inf):
            raise _wrong("seconds", "a number above 0", repr(self.seconds))
        if isinstance(self.sampler, str) and self.sampler not in SAMPLERS:
            raise _wrong("sampler", f"{nearest(self.sampler, SAMPLERS)}, or a function in Python", repr(self.sampler))
        if self.dtype not in (None, "f32", "f16", "bf16", "i16", "i8", "auto"):
            raise _wrong("dtype", "f32, f16, bf16, i16, i8 or auto", repr(self.dtype))
        if isinstance(self.boards, str):
            raise _wrong("boards", "a list of addresses", repr(self.boards))
        for address in self.boards:
            target_of(address)
        timed = [name for name in (*self.directions, *self.limits) if name in ON_BOARD]
        emulated = [address for address in self.boards if address.startswith("emulate:")]
        if timed and emulated:
            raise UsageError(
                f"{timed[0]} cannot be measured on an emulated board: its times are not those of the processor", code=101,
                tensor="boards", expected="a board, or no objective in milliseconds", got=emulated[0],
                hint="count instructions in your function instead, as examples/search/keywords.py does",
            )  # fmt: skip

    @property
    def directions(self) -> dict[str, str]:
        """The direction of each objective."""
        return dict(self.objectives)  # type: ignore[arg-type]

    def at_least(self, figure: str) -> bool:
        """Whether the limit of a figure is the smallest value."""
        return (self.directions.get(figure) or _KNOWN.get(figure)) == "maximize"

    def excess(self, figure: str, value: float) -> float:
        """How far a figure is beyond its limit, as a share of the limit: above 0 if the trial is infeasible."""
        limit = float(self.limits[figure])
        beyond = limit - value if self.at_least(figure) else value - limit
        return beyond / abs(limit) if limit else beyond

    def words(self) -> dict[str, Any]:
        """What decides which trials are made, and what their figures mean, as JSON values."""
        sampler = self.sampler if isinstance(self.sampler, str) else getattr(self.sampler, "__name__", "function")
        return {
            "objectives": self.directions, "limits": {name: float(limit) for name, limit in self.limits.items()},
            "seed": self.seed, "space": self.space, "dtype": self.dtype, "effort": self.effort,
            "threads": self.threads, "sampler": sampler,
        }  # fmt: skip


def _directed(objectives: Mapping[str, str] | Sequence[str]) -> dict[str, str]:
    if isinstance(objectives, str) or not objectives:
        raise _wrong("objectives", "at least one name, such as ['accuracy', 'bytes']", repr(objectives))
    found = dict(objectives) if isinstance(objectives, Mapping) else {name: _KNOWN.get(name, "") for name in objectives}
    for name, direction in found.items():
        if direction not in DIRECTIONS:
            raise UsageError(
                f"the direction of the objective {name!r} is not known", code=101, tensor="objectives",
                expected="maximize or minimize", got=repr(direction) if direction else "none",
                hint=f"give {{{name!r}: 'minimize'}}; linnet knows the directions of {', '.join(_KNOWN)}",
            )  # fmt: skip
    return found


def _wrong(name: str, expected: str, got: str) -> UsageError:
    return UsageError(f"the setting {name!r} of a search is wrong", code=101, tensor=name, expected=expected, got=got)


def seed_of(*parts: int | str) -> int:
    """A seed of 32 bits that depends on all parts and on nothing else."""
    return int.from_bytes(hashlib.sha256(json.dumps(parts).encode()).digest()[:4], "little")
