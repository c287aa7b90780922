"""Checkpoints of a run: the latest few, and the best by a metric. Each is written completely or not at all
(Store.save)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from linnet.clib.errors import UsageError
from linnet.training.callbacks import Callback, Metrics, Run, better, checked_mode, monitored

BEST = "best.lnt"


class Saver(Callback):
    """Saves checkpoint-STEP.lnt and best.lnt in the run's directory.

    every: steps between checkpoints, or "epoch". The last step of a run is always saved. minutes: also save when this
    many minutes have passed since the last checkpoint. keep: how many of the latest to keep (None: all). keep_hours:
    also keep the last checkpoint of each period of this many hours (1: one per hour). best: (metric, "max" or "min"),
    for example ("val_accuracy", "max"): also keep the checkpoint of the best record as best.lnt.
    """

    def __init__(
        self, every: int | str = "epoch", keep: int | None = 3, best: tuple[str, str] | None = None, *,
        minutes: float | None = None, keep_hours: float | None = None,
    ) -> None:  # fmt: skip
        if every != "epoch" and (not isinstance(every, int) or every < 1):
            raise UsageError(
                "invalid interval between checkpoints",
                code=101,
                tensor="every",
                expected="a number of steps or 'epoch'",
                got=repr(every),
            )
        if keep is not None and keep < 1:
            raise UsageError(
                "keep must be at least 1, or None for all", code=101, tensor="keep", expected="1 or more", got=str(keep)
            )
        for name, value in (("minutes", minutes), ("keep_hours", keep_hours)):
            if value is not None and not value > 0:
                raise UsageError(
                    f"{name} must be above 0, or None",
                    code=101,
                    tensor=name,
                    expected="a number above 0",
                    got=str(value),
                )
        self.every, self.keep, self.best = every, keep, best
        self.minutes, self.keep_hours = minutes, keep_hours
        self._saved = time.monotonic()
        if best is not None:
            checked_mode(best[1])
        self.best_value: float | None = None
        self.best_step = 0

    def on_record(self, run: Run, record: Metrics) -> None:
        if self.best is None:
            return
        name, mode = self.best
        value = monitored(record, name)
        if better(mode, value, self.best_value):
            self.best_value, self.best_step = value, run.step
            if run.directory is not None:
                run.save(run.directory / BEST)

    def after_step(self, run: Run, epoch_ended: bool) -> None:
        """Called after all other callbacks."""
        due = epoch_ended if self.every == "epoch" else run.step % int(self.every) == 0
        if due or (self.minutes is not None and time.monotonic() - self._saved >= 60 * self.minutes):
            self.save(run)

    def on_start(self, run: Run) -> None:
        self._saved = time.monotonic()

    def save(self, run: Run) -> None:
        """Writes a checkpoint of this step and deletes those that are no longer kept. Without a directory, it does
        nothing."""
        if run.directory is None:
            return
        run.save(run.directory / f"checkpoint-{run.step:08d}.lnt")
        self._saved = time.monotonic()
        if self.keep is not None:
            older = checkpoints(run.directory)[: -self.keep]
            for path in set(older) - self._of_periods(older):
                path.unlink(missing_ok=True)

    def _of_periods(self, paths: list[Path]) -> set[Path]:
        """The last checkpoint of each period, by the times of the files. The last checkpoint so far of the current
        period is kept too."""
        if self.keep_hours is None:
            return set()
        return set({int(path.stat().st_mtime // (3600 * self.keep_hours)): path for path in paths}.values())

    def state(self) -> dict[str, Any]:
        return {"best": self.best_value, "best_step": self.best_step}

    def restore(self, state: dict[str, Any]) -> None:
        self.best_value, self.best_step = state["best"], state["best_step"]


def checkpoints(directory: Path) -> list[Path]:
    """The checkpoints of a run, ordered by step."""
    return sorted(directory.glob("checkpoint-*.lnt"), key=lambda path: int(path.stem.rpartition("-")[2]))
