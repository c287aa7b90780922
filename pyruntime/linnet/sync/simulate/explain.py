"""Explains the figures of simulations in sentences: where the time of a step goes, and what backup workers gain."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from linnet.sync.simulate.compute import Compute
from linnet.sync.simulate.run import Result, run
from linnet.sync.simulate.units import duration_text, size_text

_STEPS = 10  # of a simulation in which all workers are equally fast


class Parts(NamedTuple):
    """Shares of the mean step time. computing: a worker computes. transfers: transfers and the servers' work, if all
    workers were equally fast. waiting: the rest, which is waiting for slower workers."""

    computing: float
    transfers: float
    waiting: float


def parts_of(result: Result) -> Parts:
    """Finds the shares by simulating the setting once more with workers that are all equally fast."""
    setting, mean = result.setting, result.mean
    if not mean:
        return Parts(0.0, 0.0, 0.0)
    even = run(dataclasses.replace(setting, compute=Compute(setting.compute.mean)), steps=_STEPS, seed=result.seed)
    computing = min(1.0, setting.compute.mean * setting.mode.local_steps / mean)
    waiting = min(max(0.0, 1.0 - even.mean / mean), 1.0 - computing)
    return Parts(computing, 1.0 - computing - waiting, waiting)


def lines(found: Mapping[str, Sequence[Result]], parts: Mapping[str, Sequence[Parts]]) -> list[str]:
    """The sentences below the tables. found: {label of a mode: its results}. All modes have results for the same
    numbers of workers."""
    text = ["Speed-up: against one worker that computes alone. Efficiency: speed-up per worker."]
    results = [r for several in found.values() for r in several]
    plain = {r.setting.mode.kind: several for several in found.values() for r in several if not r.setting.mode.backup}
    backups = [r for r in results if r.setting.mode.backup]
    for several in found.values():
        last = several[-1]
        mode, total = last.setting.mode, last.setting.hardware.workers
        if not mode.backup or mode.kind not in plain:
            continue
        before = plain[mode.kind][-1]
        gain = last.examples_per_second / before.examples_per_second - 1
        text.append(
            f"{mode.backup} backup workers: a step takes the first {total - mode.backup} gradients of {total}, and on average "
            f"{duration_text(last.mean)} instead of {duration_text(before.mean)}. {abs(gain):.0%} "
            f"{'more' if gain >= 0 else 'fewer'} examples per second; {last.dropped:.1%} of the gradients are dropped."
        )
    compute = results[0].setting.compute
    if backups and compute.scatter == "constant" and not compute.spread and not len(compute.measured):
        text.append(
            "All workers are equally fast here, so backup workers cannot help: give --scatter stragglers:SHARE,DELAY, or --times."
        )
    elif backups and not plain:
        text.append("Without backup workers for comparison: --backup 0," + str(backups[0].setting.mode.backup) + ".")
    for label, several in found.items():
        last, share = several[-1], parts[label][-1].transfers
        if share > 0.5 and last.busy:
            servers = last.setting.hardware.servers
            text.append(
                f"{label}: {share:.0%} of a step are transfers: {size_text(last.bytes_per_step)} to and from "
                f"{servers} server{'s' if servers > 1 else ''}. More --servers, --compression or more --examples per step help."
            )
    return text
