"""What may be done around training steps: the hooks, and early stopping. A callback with a state gives it as JSON values,
which every checkpoint keeps, so that a run that is resumed decides as it would have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from linnet.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from linnet.training.run import Run

Metrics = Mapping[str, float]


class Callback:
    """Hooks of a run; override what you need. Any may call `run.stop(reason)`."""

    def on_start(self, run: Run) -> None:
        """Before the first step; `run.step` is above 0 in a run that goes on."""

    def on_step(self, run: Run, metrics: Metrics) -> None:
        """After each step, with its scalar outputs."""

    def on_record(self, run: Run, record: Metrics) -> None:
        """After each epoch, or every `validate_every` steps: the means since the last record, and val_... if validated."""

    def on_end(self, run: Run) -> None:
        """After the last step, or when training fails."""

    def state(self) -> dict[str, Any]:
        """What must be known to go on, as JSON values."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Takes what `state` gave."""


def better(mode: str, value: float, than: float | None, by: float = 0.0) -> bool:
    """Whether a value improves on another (None: any number does) by more than `by`. NaN never does."""
    if than is None:
        return value == value
    return value < than - by if mode == "min" else value > than + by


def checked_mode(mode: str) -> str:
    if mode not in ("min", "max"):
        raise UsageError("unknown mode", code=101, expected="'min' or 'max'", got=repr(mode))
    return mode


def monitored(record: Metrics, name: str) -> float:
    """The metric of a record. UsageError when it has none of that name."""
    if name not in record:
        raise UsageError(
            f"there is no metric {name!r} to watch", code=102, tensor=name, expected=" or ".join(record) or "no metric",
            hint="metrics are the scalar outputs of the train signature, and with validation those of eval as val_...",
        )  # fmt: skip
    return float(record[name])


class EarlyStopping(Callback):
    """Stops when a metric has not improved for `patience` records.

    mode: "min" or "max". min_delta: smaller improvements do not count. restore_best: at the end, give the variables back the
    values of the best record.
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
            raise UsageError("patience makes no sense", code=101, expected="1 or more records", got=str(patience))
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
        if run.directory is not None:  # a run that goes on in another process needs it
            run.store.save(run.directory / "early_stopping.lnt", list(run.store), {"step": run.step})
        else:
            self._values = run.store.as_dict()

    def state(self) -> dict[str, Any]:
        return {"best": self.best, "best_step": self.best_step, "waited": self.waited}

    def restore(self, state: dict[str, Any]) -> None:
        self.best, self.best_step, self.waited = state["best"], state["best_step"], state["waited"]
