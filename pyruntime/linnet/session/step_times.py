"""The median time of each step over several runs of a traced session. One interruption by another program changes a
mean, and then a step that takes little looks like the slowest one. It does not change a median."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence

from linnet.clib.library import library, new_struct
from linnet.session.session import Session
from linnet.session.step import Step

Totals = Sequence[tuple[int, int, int]]


def medians(readings: Sequence[Totals]) -> list[tuple[float, float]]:
    """Median nanoseconds of each step, and of its work on a device. readings: (runs, nanoseconds, nanoseconds on the
    device) of each step, summed over all runs so far, one reading per run. A step that a run left out has no time in that
    run."""
    found = []
    for step in zip(*readings, strict=True):
        before, times, device = (0, 0, 0), list[int](), list[int]()
        for now in step:
            if now[0] > before[0]:
                times.append(now[1] - before[1])
                device.append(now[2] - before[2])
            before = now
        found.append((statistics.median(times), statistics.median(device)) if times else (0.0, 0.0))
    return found


def timed_steps(session: Session, run: Callable[[], object], runs: int) -> list[Step]:
    """The steps of a Session(trace=True) that has not run yet, with median times of `runs` runs. run: runs the session
    once."""
    readings = []
    for _ in range(runs):
        run()
        readings.append(_totals(session))
    steps = session.steps
    readings = [reading for reading in readings if len(reading) == len(steps)]
    return [
        dataclasses.replace(step, ms=ns / 1e6, device_ms=device / 1e6)
        for step, (ns, device) in zip(steps, medians(readings), strict=True)
    ]


def _totals(session: Session) -> Totals:
    """What the session has measured so far."""
    handle, info, found = session._current(), new_struct("linnet_step_info"), []
    for i in range(session.plan_info["steps"]):
        library().linnet_session_get_step(handle.session, i, info)
        found.append((int(info.runs), int(info.total_ns), int(info.device_ns)))
    return found
