"""Measured step times: records them while linnet.fit trains, and reads them from several file formats."""

from __future__ import annotations

import csv
import json
import math
import time
from pathlib import Path
from typing import Any, TextIO

from linnet.clib.errors import FileError
from linnet.training.callbacks import Callback, Metrics, Run

_FIELDS = ("seconds", "step_seconds", "step_time", "time")


class StepTimes(Callback):
    """A callback of linnet.fit that writes the seconds of each step, including the preparation of the batch, to a
    JSON-lines file for `read_times` and `linnet simulate --times`. Time between steps (validation, records) is not
    counted."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file: TextIO | None = None
        self._then = 0.0

    def on_start(self, run: Run) -> None:
        try:
            self._file = self.path.open("w")
        except OSError as error:
            raise FileError("cannot write step times", code=207, tensor=str(self.path), got=str(error)) from None
        self._then = time.perf_counter()

    def on_step(self, run: Run, metrics: Metrics) -> None:
        assert self._file is not None
        now = time.perf_counter()
        self._file.write(json.dumps({"step": run.step, "seconds": now - self._then}) + "\n")
        self._then = time.perf_counter()

    def on_record(self, run: Run, record: Metrics) -> None:
        self._then = time.perf_counter()

    def on_end(self, run: Run) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def read_times(path: str | Path) -> list[float]:
    """Reads step times in seconds from a file: .json (a list, or an object with a list), .jsonl (one object per step
    with a field "seconds", as `StepTimes` writes), or .csv (a column "seconds", or a single column). If there are more
    than two times, the first is left out, because it includes planning. Raises FileError if the file has no step
    times."""
    path = Path(path)
    try:
        text = path.read_text()
    except OSError as error:
        raise FileError("cannot read the step times", code=201, tensor=str(path), got=str(error)) from None
    try:
        found = _times(path.suffix, text)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise FileError(
            "the file of step times is invalid", code=206, tensor=str(path), got=f"{type(error).__name__}: {error}",
            hint='give a list of seconds (.json), objects with "seconds" (.jsonl) or a column "seconds" (.csv)',
        ) from None  # fmt: skip
    if not found or not all(math.isfinite(value) and value >= 0 for value in found):
        raise FileError(
            "the file has no usable step times", code=206, tensor=str(path), expected="finite, non-negative seconds",
            got=f"{len(found)} values",
        )  # fmt: skip
    return found[1:] if len(found) > 2 else found


def _times(suffix: str, text: str) -> list[float]:
    if suffix == ".csv":
        rows = [row for row in csv.reader(text.splitlines()) if row]
        names = [name.strip() for name in rows[0]]
        column = next((names.index(name) for name in _FIELDS if name in names), None)
        if column is None and len(names) > 1:
            raise KeyError(f"no column is named {', '.join(_FIELDS)}; the columns are {names}")
        try:
            float(names[column or 0])
        except ValueError:
            rows = rows[1:]
        return [float(row[column or 0]) for row in rows]
    if suffix == ".jsonl":
        found = [_field(json.loads(line)) for line in text.splitlines() if line.strip()]
        return [value for value in found if value is not None]
    content = json.loads(text)
    if isinstance(content, dict):
        content = content[next((name for name in _FIELDS if name in content), _FIELDS[0])]
    return [float(value) for value in content]


def _field(row: dict[str, Any]) -> float | None:
    value = next((row[name] for name in _FIELDS if name in row), None)
    return None if value is None else float(value)
