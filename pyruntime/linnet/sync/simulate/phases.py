"""Modes whose steps follow one another strictly, computed phase by phase with arrays: sync, tree and ring.
`sync_steps` is a second, independent account of what the event engine does for sync; the tests hold one against the other."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from linnet.sync.simulate.compute import Draws, Floats
from linnet.sync.simulate.links import fair_departures
from linnet.sync.simulate.setting import Hardware, Setting, Shard


def _draws(setting: Setting, seed: int) -> Iterator[Floats]:
    """Seconds that each worker computes [workers], step by step."""
    draws = Draws(setting.compute, setting.hardware.workers, setting.mode.local_steps, seed)
    for k in itertools.count():
        yield np.asarray(draws.row(k))


def _departures(arrivals: Floats, size: float, rate: float, cap: float, sharing: str) -> Floats:
    """When the transfers of a step, which begin at `arrivals` (ascending), are done (ascending)."""
    if sharing == "fair":
        return np.asarray(fair_departures(arrivals.tolist(), size, rate, cap))
    each = (
        size / rate
    )  # the k-th is done after all before it, after its own port, and at the earliest `each` after it came
    index = np.arange(len(arrivals))
    after_all = np.maximum.accumulate(np.maximum(arrivals + size / cap, arrivals + each) - index * each) + index * each
    return np.asarray(after_all, np.float64)


def _served(arrivals: Floats, seconds: float) -> Floats:
    """When one thread that takes `seconds` for each is done with what comes at `arrivals` (ascending): Lindley's recursion."""
    index = np.arange(len(arrivals))
    return np.asarray(np.maximum.accumulate(arrivals - index * seconds) + (index + 1) * seconds, np.float64)


def _down(shard: Shard, sharing: str, start: float, count: int) -> Floats:
    """When the replies that a server begins at `start` are at their `count` receivers."""
    leaves = start + shard.reply * np.arange(1, count + 1, dtype=np.float64)
    return _departures(np.asarray(leaves), shard.down, shard.rate_out, shard.cap, sharing) + shard.way_down


def _up(shard: Shard, sharing: str, sends: Floats) -> float:
    """When a server has taken in what workers send at `sends`."""
    arrivals = np.sort(sends) + shard.way_up
    return float(_served(_departures(arrivals, shard.up, shard.rate_in, shard.cap, sharing), shard.handle)[-1])


def sync_steps(setting: Setting, steps: int, seed: int = 0) -> Floats:
    """Seconds of each synchronous step, without overlap [steps]."""
    shard, hardware = setting.shard(), setting.hardware
    found = []
    order = np.arange(hardware.workers)  # replies go out in the order in which pushes came
    for seconds in itertools.islice(_draws(setting, seed), steps):
        sends = _down(shard, hardware.sharing, 0.0, hardware.workers) + seconds[order] + hardware.overhead
        order = order[np.argsort(sends, kind="stable")]
        found.append(_up(shard, hardware.sharing, sends) + shard.apply)
    return np.asarray(found)


def tree_steps(setting: Setting, steps: int, seed: int = 0) -> Floats:
    """Seconds of each synchronous step where `fan_in` workers share an aggregator, which adds their gradients up and speaks
    to the servers as one worker; an aggregator has a server's port and thread [steps]."""
    hardware, fan_in = setting.hardware, setting.mode.fan_in
    count = -(-hardware.workers // fan_in)
    sizes = [hardware.workers // count + (i < hardware.workers % count) for i in range(count)]
    ends = np.cumsum(sizes)
    root = dataclasses.replace(
        setting, hardware=dataclasses.replace(hardware, workers=count, worker_rate=hardware.server_rate)
    ).shard()
    leaf = dataclasses.replace(setting, hardware=dataclasses.replace(hardware, servers=1, apply=0.0)).shard()
    found = []
    for seconds in itertools.islice(_draws(setting, seed), steps):
        at_leaves = _down(root, hardware.sharing, 0.0, count)
        sums = []
        for size, end, begin in zip(sizes, ends, at_leaves, strict=True):
            sends = _down(leaf, hardware.sharing, float(begin), size) + seconds[end - size : end] + hardware.overhead
            sums.append(_up(leaf, hardware.sharing, sends))
        found.append(_up(root, hardware.sharing, np.asarray(sums)) + root.apply)
    return np.asarray(found)


def ring_round(hardware: Hardware, size: float) -> float:
    """Seconds of one of the 2 (n - 1) rounds of a ring all-reduce of `size` bytes: a part of 1/n of them to the neighbour,
    and half of the rounds add what came."""
    part = size / hardware.workers
    rate = min(hardware.worker_rate, 1 / max(hardware.receive, hardware.send, 1e-15))
    return hardware.latency + 2 * hardware.worker_message + part / rate + part * hardware.aggregate / 2


def ring_steps(setting: Setting, steps: int, seed: int = 0) -> Floats:
    """Seconds of each step of a ring all-reduce [steps]. The last worker to be ready decides: after n - 1 rounds each part
    has waited for everybody, and the rounds take the same for all. Every worker applies the whole update by itself."""
    hardware, traffic = setting.hardware, setting.traffic
    rounds = (
        2 * (hardware.workers - 1) * ring_round(hardware, traffic.push * traffic.push_ratio)
        if hardware.workers > 1
        else 0
    )
    ready: Sequence[float] = [float(seconds.max()) for seconds in itertools.islice(_draws(setting, seed), steps)]
    return np.asarray(ready) + hardware.overhead + rounds + traffic.push * hardware.apply
