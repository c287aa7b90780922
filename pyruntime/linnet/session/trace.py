"""A Chrome trace of a run, which ui.perfetto.dev displays: the phases of the process, its steps with their kernels, and what
hosts did meanwhile.
runtime_c/tools/trace.c writes the same kind of trace for linnet-run."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from linnet.clib.library import library
from linnet.file.atomic import write_atomic
from linnet.session.lanes import FORMAT, lanes
from linnet.session.model import string_of
from linnet.session.step import Step

_PHASES, _STEPS = 0, 1


class Trace:
    """Spans of this process. The first phase begins when the Trace is made. Each later phase begins where the one
    before it ended."""

    def __init__(self) -> None:
        self._phases: list[tuple[str, int, int]] = []
        self._since = _now()

    def phase(self, name: str) -> None:
        """Ends the current phase and gives it this name."""
        now = _now()
        self._phases.append((name, self._since, now))
        self._since = now

    def events(self, title: str, steps: Iterable[Step]) -> list[dict[str, Any]]:
        """Trace events, in microseconds from the start of the first phase. steps: the steps of a Session(trace=True)
        after its run."""
        start, steps = self._phases[0][1], list(steps)
        branches = max((step.branch for step in steps), default=0)  # they run side by side: each is a track of its own
        tracks = {_PHASES: "phases", _STEPS: "steps"} | {_STEPS + b: f"branch {b}" for b in range(1, branches + 1)}
        found = [
            {"name": "process_name", "ph": "M", "pid": 0, "tid": _PHASES, "args": {"name": title}},
            *(
                {"name": "thread_name", "ph": "M", "pid": 0, "tid": track, "args": {"name": name}}
                for track, name in tracks.items()
            ),
        ]
        found += [_span(name, _PHASES, begin - start, end - begin, {}) for name, begin, end in self._phases]
        for number, step in enumerate(steps):
            if step.runs:
                about = {
                    key: getattr(step, key) for key in ("op", "kernel", "layout", "device", "fused", "bytes", "flops")
                }
                about["number"] = number
                found.append(_span(step.name, _STEPS + step.branch, step.start_ns - start, round(step.ms * 1e6), about))
        return found + lanes(steps, start)

    def write(self, path: str | Path, title: str, steps: Iterable[Step]) -> None:
        """Raises FileError if the file cannot be written."""
        about = {"version": string_of(library().linnet_version())}
        content = {
            "format": FORMAT,
            "displayTimeUnit": "ms",
            "otherData": about,
            "traceEvents": self.events(title, steps),
        }
        write_atomic(Path(path), iter([json.dumps(content).encode()]))


def _now() -> int:
    """The time by the monotonic clock, with which the library also times steps."""
    clock = getattr(time, "CLOCK_MONOTONIC", None)
    return time.monotonic_ns() if clock is None else time.clock_gettime_ns(clock)


def _span(name: str, track: int, begin: int, length: int, about: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name, "ph": "X", "pid": 0, "tid": track, "ts": begin / 1e3, "dur": length / 1e3, "args": about
    }  # fmt: skip
