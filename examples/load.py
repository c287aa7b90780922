"""How much of the machine other processes use while something is measured. Linux only: elsewhere the load of others is not seen,
and counts as 0."""

from __future__ import annotations

import os
import time
from pathlib import Path


class Meter:
    """The cores that others use from its making to `others()`: all work of the machine, less that of this process and of
    those that it started and waited for. 0 where the system does not say."""

    def __init__(self) -> None:
        self._start, self._ticks, self._own = time.monotonic(), busy_ticks(), _own_seconds()

    def others(self) -> float:
        """The mean number of cores that others used since then."""
        tick = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
        used = (busy_ticks() - self._ticks) / tick - (_own_seconds() - self._own)
        return max(0.0, used / max(time.monotonic() - self._start, 1e-9))


def busy_ticks() -> int:
    """User, nice, system, interrupts and stolen time of all cores."""
    try:
        words = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    except OSError:
        return 0
    user, nice, system, _idle, _iowait, *rest = map(int, words[:8])
    return user + nice + system + sum(rest)


def _own_seconds() -> float:
    return sum(os.times()[:4])
