"""The progress bar of a run (rich), or one line per record if there is no terminal."""

from __future__ import annotations

from typing import Any

from linnet.training.callbacks import Callback, Metrics, Run


def text(metrics: Metrics) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())


class ProgressBar(Callback):
    """always: print also without a terminal, one line per record."""

    def __init__(self, always: bool = False) -> None:
        from rich.console import Console

        self._console = Console()
        self._always, self._last = always, ""
        self._bar: Any = None
        self._task: Any = None

    def on_start(self, run: Run) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.table import Column

        if not self._console.is_terminal:
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
            self._console.print(f"epoch {run.epoch}  step {run.step}  {text(record)}", highlight=False)

    def on_end(self, run: Run) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def progress_bar(progress: bool | None) -> list[Callback]:
    """None: a progress bar on a terminal, otherwise nothing."""
    return [] if progress is False else [ProgressBar(always=progress is True)]
