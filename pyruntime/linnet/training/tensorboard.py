"""Writes TensorBoard event files with tensorboardX (`pip install 'linnet-runtime[train]'`)."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from linnet.clib.errors import UsageError
from linnet.training.callbacks import Callback, Metrics, Run


class TensorBoard(Callback):
    """Writes scalars for `tensorboard --logdir`: the metrics of every `every`-th step, and all records.

    directory: default: `events` in the run's directory.
    """

    def __init__(self, directory: str | Path | None = None, every: int = 10) -> None:
        if importlib.util.find_spec("tensorboardX") is None:
            raise UsageError(
                "the package tensorboardX is not installed", code=101, hint="pip install 'linnet-runtime[train]'"
            )
        self.directory, self.every = directory, every
        self._writer: Any = None

    def on_start(self, run: Run) -> None:
        from tensorboardX import SummaryWriter

        if self.directory is None and run.directory is None:
            raise UsageError("TensorBoard has no directory to write to", code=101, hint="pass fit a directory")
        place = Path(self.directory) if self.directory is not None else (run.directory or Path()) / "events"
        self._writer = SummaryWriter(str(place), purge_step=run.step + 1 if run.step else None)

    def on_step(self, run: Run, metrics: Metrics) -> None:
        if run.step % self.every == 0:
            for name, value in metrics.items():
                self._writer.add_scalar(f"step/{name}", value, run.step)

    def on_record(self, run: Run, record: Metrics) -> None:
        for name, value in record.items():
            self._writer.add_scalar(name.replace("val_", "validation/", 1), value, run.step)

    def on_end(self, run: Run) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
