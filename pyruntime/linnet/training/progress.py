"""The progress bar of a run (by the package rich), or one line per record if there is no terminal."""

from __future__ import annotations

import time
from typing import Any

from linnet.training.callbacks import Callback, Metrics, Run


def left_text(seconds: float) -> str:
    """A time for a person: "8 s", "3 min" or "2.5 h"."""
    return (
        f"{seconds:.0f} s"
        if seconds < 100
        else f"{seconds / 60:.0f} min"
        if seconds < 6000
        else f"{seconds / 3600:.1f} h"
    )


def text(metrics: Metrics) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())


class ProgressBar(Callback):
    """Shows the progress. always: if there is no terminal, print one line per record, without control characters."""

    def __init__(self, always: bool = False) -> None:
        from rich.console import Console

        self._console = Console()
        self._always, self._last = always, ""
        self._bar: Any = None
        self._task: Any = None
        self._begun = 0.0, 0

    def on_start(self, run: Run) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.table import Column

        self._begun = time.monotonic(), run.step
        if not self._console.is_terminal:
            if self._always and run.step:
                self._line(f"continues after epoch {run.epoch}, step {run.step}")
            return
        bar = Progress(
            TextColumn("epoch {task.fields[epoch]}"), BarColumn(20), MofNCompleteColumn(), TimeRemainingColumn(),
            TextColumn("{task.fields[metrics]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
            console=self._console, expand=True,
        )  # fmt: skip
        self._bar = bar
        self._task = bar.add_task("", total=run.total, completed=run.step, epoch=run.epoch, metrics="")
        bar.start()

    def on_step(self, run: Run, metrics: Metrics) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=run.step, epoch=run.epoch, metrics=f"{text(metrics)}  {self._last}")

    def on_record(self, run: Run, record: Metrics) -> None:
        self._last = text({name: value for name, value in record.items() if name.startswith("val_")})
        if self._bar is None and self._always:
            whole = "" if run.total is None else f" of {run.total}"
            self._line(f"epoch {run.epoch}  step {run.step}{whole}  {text(record)}{self._left(run)}")

    def _left(self, run: Run) -> str:
        """The time that the remaining steps will take at the speed of this process so far."""
        begun, step = self._begun
        if run.total is None or run.step <= step or run.step >= run.total:
            return ""
        return f"  {left_text((time.monotonic() - begun) / (run.step - step) * (run.total - run.step))} left"

    def _line(self, line: str) -> None:
        print(line, file=self._console.file, flush=True)

    def on_end(self, run: Run) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def progress_bar(progress: bool | None) -> list[Callback]:
    """The progress bar for the argument `progress` of `fit`. None: a bar on a terminal, otherwise nothing."""
    return [] if progress is False else [ProgressBar(always=progress is True)]
