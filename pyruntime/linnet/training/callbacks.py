"""Hooks around training steps, and early stopping. A callback that has a state returns it as JSON values. Every
checkpoint stores them, so that a resumed run makes the same decisions as an uninterrupted one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from linnet.clib.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from linnet.session.model import Model, Store
    from linnet.session.session import Session
    from linnet.training.feeding import Feed
    from linnet.training.history import History, MetricsFile

Metrics = Mapping[str, float]


@runtime_checkable
class Run(Protocol):
    """The state of a run, as callbacks see it. step, epoch: the numbers of completed steps and epochs. batch: how many
    batches of this epoch are completed.
    total: total number of steps, or None if only the data determines it. store: the variables. history: the metrics so
        far. directory: where the run keeps its files, or None.
    failed: whether training ended with an error."""

    model: Model
    store: Store
    signature: str
    session: Session
    accumulate: int
    feed: Feed
    callbacks: list[Callback]
    directory: Path | None
    step: int
    epoch: int
    batch: int
    total: int | None
    failed: bool
    stopping: str
    history: History
    metrics: MetricsFile
    validate: tuple[Session, Feed] | None
    log_every: int
    known: list[str]

    @property
    def unrecorded(self) -> bool:
        """Whether there have been steps since the last record."""

    def stop(self, reason: str) -> None:
        """Ends training after this step. reason: the value for History.stopped."""

    def record(self, scheduled: bool = True) -> dict[str, float]:
        """Records the means of the outputs since the last record, and of validation. Returns them."""

    def save(self, path: Path) -> None:
        """Writes all variables, and the state needed to resume, to one file."""

    def load(self, path: Path) -> None:
        """Loads variables and position from a checkpoint. Raises FileError, UsageError."""

    def checkpoint(self) -> Path | None:
        """The latest checkpoint in the run's directory."""


class Callback:
    """Hooks of a run. Override the ones you need. Each of them may call `run.stop(reason)`."""

    def on_start(self, run: Run) -> None:
        """Called before the first step. `run.step` is above 0 in a resumed run."""

    def on_step(self, run: Run, metrics: Metrics) -> None:
        """Called after each step with its scalar outputs."""

    def on_record(self, run: Run, record: Metrics) -> None:
        """Called after each epoch, or every `validate_every` steps, with the means since the last record. After a
        validation, its metrics are included as val_..."""

    def on_end(self, run: Run) -> None:
        """Called after the last step, or when training fails."""

    def state(self) -> dict[str, Any]:
        """The state needed to resume, as JSON values."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Restores the state that `state` returned."""


def better(mode: str, value: float, than: float | None, by: float = 0.0) -> bool:
    """Whether `value` is better than `than` by more than `by`. If `than` is None, any number is better. NaN is never
    better."""
    if than is None:
        return value == value
    return value < than - by if mode == "min" else value > than + by


def checked_mode(mode: str) -> str:
    if mode not in ("min", "max"):
        raise UsageError("unknown mode", code=101, expected="'min' or 'max'", got=repr(mode))
    return mode


def monitored(record: Metrics, name: str) -> float:
    """The metric with this name in a record. Raises UsageError if there is none."""
    if name not in record:
        raise UsageError(
            f"there is no metric named {name!r} to monitor",
            code=102,
            tensor=name,
            expected=" or ".join(record) or "a run with metrics",
            hint="metrics are the scalar outputs of the train signature, and after a validation those of eval as "
            "val_...",
        )
    return float(record[name])


class EarlyStopping(Callback):
    """Stops when a metric has not improved for `patience` records.

    mode: "min" or "max". min_delta: smaller improvements do not count. restore_best: at the end, set the variables to
    their values at the best record.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        mode: str = "min",
        *,
        patience: int = 3,
        min_delta: float = 0.0,
        restore_best: bool = False,
    ) -> None:
        if patience < 1:
            raise UsageError("patience is out of range", code=101, expected="1 or more records", got=str(patience))
        self.monitor, self.mode, self.patience, self.min_delta = monitor, checked_mode(mode), patience, abs(min_delta)
        self.restore_best = restore_best
        self.best: float | None = None
        self.best_step, self.waited = 0, 0
        self._values: dict[str, npt.NDArray[np.generic]] | None = None

    def on_record(self, run: Run, record: Metrics) -> None:
        value = monitored(record, self.monitor)
        if better(self.mode, value, self.best, self.min_delta):
            self.best, self.best_step, self.waited = value, run.step, 0
            if self.restore_best:
                self._keep(run)
            return
        self.waited += 1
        if self.waited >= self.patience:
            run.stop(f"{self.monitor} has not improved since step {self.best_step}")

    def on_end(self, run: Run) -> None:
        if not self.restore_best or self.best is None or run.failed:
            return
        if run.directory is not None:
            run.store.load(run.directory / "early_stopping.lnt")
        elif self._values is not None:
            for name, value in self._values.items():
                run.store[name] = value

    def _keep(self, run: Run) -> None:
        if run.directory is not None:  # needed if the run is resumed in another process
            run.store.save(run.directory / "early_stopping.lnt", list(run.store), {"step": run.step})
        else:
            self._values = run.store.as_dict()

    def state(self) -> dict[str, Any]:
        return {"best": self.best, "best_step": self.best_step, "waited": self.waited}

    def restore(self, state: dict[str, Any]) -> None:
        self.best, self.best_step, self.waited = state["best"], state["best_step"], state["waited"]
