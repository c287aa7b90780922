"""Whether a machine is idle enough to measure: how much of its cores other processes use, and which ones.
Linux only; elsewhere the load of others cannot be seen, and only the share that a worker got is judged."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from examples.load import Meter, busy_ticks

LEAST_SHARE = 0.9  # of the processor time that a measuring process asked for
MOST_LOAD = 0.1  # cores that others use before the measurement starts


class Busy(Exception):
    """Others use the machine; the text says who, and what to do."""


@dataclass(frozen=True)
class Load:
    """Cores that others use, and for the busiest processes their names and the cores that they use."""

    cores: float
    processes: tuple[tuple[str, float], ...] = ()

    def __str__(self) -> str:
        names = ", ".join(f"{name} ({cores:.2f})" for name, cores in self.processes[:5])
        return f"other processes use {self.cores:.2f} of {os.cpu_count()} cores" + (f": {names}" if names else "")


def of_others(seconds: float = 1.0) -> Load:
    """What others use within the next seconds, including the time that a hypervisor takes."""
    before, start = _processes(), time.monotonic()
    total = busy_ticks()
    time.sleep(seconds)
    tick = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
    passed = (time.monotonic() - start) * tick
    after, used = _processes(), busy_ticks() - total
    own = str(os.getpid())
    rates = {
        pid: (name, (ticks - before.get(pid, (name, 0))[1]) / passed)
        for pid, (name, ticks) in after.items()
        if pid != own
    }
    busiest = sorted(rates.values(), key=lambda rate: -rate[1])
    mine = after.get(own, ("", 0))[1] - before.get(own, ("", 0))[1]
    return Load(max(0.0, (used - mine) / passed), tuple(rate for rate in busiest if rate[1] >= 0.02))


def refuse(load: Load) -> None:
    """Raises Busy if others use more than MOST_LOAD cores."""
    if load.cores > MOST_LOAD:
        raise Busy(f"The machine is busy: {load}. Figures would be wrong; wait, or measure nevertheless with --busy.")


def disturbed(found: Mapping[str, float]) -> bool:
    """Whether others kept a worker from the processor: its threads waited for it, and not only for each other."""
    return found["share"] < LEAST_SHARE and found["others"] > MOST_LOAD


def refuse_disturbed(what: str, found: Mapping[str, float], load: Load) -> None:
    """Raises Busy if a worker got less than LEAST_SHARE of the processor time that it asked for, because of others."""
    if disturbed(found):
        raise Busy(
            f"The machine is busy: {what} got {found['share']:.2f} of the processor time that it asked for"
            f" (at least {LEAST_SHARE}); {load}. Wait, or measure nevertheless with --busy."
        )


def _processes() -> Mapping[str, tuple[str, int]]:
    """Name and ticks of each process."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue  # it ended
        name, rest = text[text.index("(") + 1 :].rsplit(")", 1)
        fields = rest.split()
        found[path.parent.name] = (name, int(fields[11]) + int(fields[12]))
    return found


__all__ = ["LEAST_SHARE", "MOST_LOAD", "Busy", "Load", "Meter", "disturbed", "of_others", "refuse", "refuse_disturbed"]
