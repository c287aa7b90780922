"""Computes modes whose steps do not overlap (sync, tree and ring), phase by phase with arrays.
`sync_steps` calculates independently what the event engine simulates for sync. Tests compare the two."""

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
    """Times at which a step's transfers are done (ascending). The transfers begin at `arrivals` (ascending)."""
    if sharing == "fair":
        return np.asarray(fair_departures(arrivals.tolist(), size, rate, cap))
    each = size / rate  # done after earlier transfers and its own port, and at least `each` after it arrived
    index = np.arange(len(arrivals))
    after_all = np.maximum.accumulate(np.maximum(arrivals + size / cap, arrivals + each) - index * each) + index * each
    return np.asarray(after_all, np.float64)


def _served(arrivals: Floats, seconds: float) -> Floats:
    """Times at which a single thread finishes items that arrive at `arrivals` (ascending) and take `seconds` each. This
    is Lindley's recursion."""
    index = np.arange(len(arrivals))
    return np.asarray(np.maximum.accumulate(arrivals - index * seconds) + (index + 1) * seconds, np.float64)


def _down(shard: Shard, sharing: str, start: float, count: int) -> Floats:
    """Times at which the replies that a server begins to send at `start` have reached their `count` receivers."""
    leaves = start + shard.reply * np.arange(1, count + 1, dtype=np.float64)
    return _departures(np.asarray(leaves), shard.down, shard.rate_out, shard.cap, sharing) + shard.way_down


def _up(shard: Shard, sharing: str, sends: Floats) -> float:
    """Times at which a server has received the pushes that workers send at `sends`."""
    arrivals = np.sort(sends) + shard.way_up
    return float(_served(_departures(arrivals, shard.up, shard.rate_in, shard.cap, sharing), shard.handle)[-1])


def sync_steps(setting: Setting, steps: int, seed: int = 0) -> Floats:
    """The time of each synchronous step in seconds [steps], if computation and transfers do not overlap."""
    shard, hardware = setting.shard(), setting.hardware
    found = []
    order = np.arange(hardware.workers)  # replies are sent in the order in which pushes arrived
    for seconds in itertools.islice(_draws(setting, seed), steps):
        sends = _down(shard, hardware.sharing, 0.0, hardware.workers) + seconds[order] + hardware.overhead
        order = order[np.argsort(sends, kind="stable")]
        found.append(_up(shard, hardware.sharing, sends) + shard.apply)
    return np.asarray(found)


def tree_steps(setting: Setting, steps: int, seed: int = 0) -> Floats:
    """Seconds of each synchronous step [steps] if `fan_in` workers share an aggregator. It adds up their gradients and
    acts as one worker towards the servers. An aggregator has a port and a thread like a server's."""
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
    """Seconds of one of the 2 (n - 1) rounds of a ring all-reduce of `size` bytes. In a round, each worker sends 1/n of
    the bytes to its neighbour. In half of the rounds, it also adds the received bytes."""
    part = size / hardware.workers
    rate = min(hardware.worker_rate, 1 / max(hardware.receive, hardware.send, 1e-15))
    return hardware.latency + 2 * hardware.worker_message + part / rate + part * hardware.aggregate / 2


def ring_steps(setting: Setting, steps: int, seed: int = 0) -> Floats:
    """The time of each training step in seconds [steps], if the workers sum their gradients by a ring all-reduce. The
    last worker that is ready determines the start, because after n - 1 rounds each part has waited for all workers. All
    rounds take the same time for all workers. Every worker applies the whole update itself."""
    hardware, traffic = setting.hardware, setting.traffic
    rounds = (
        2 * (hardware.workers - 1) * ring_round(hardware, traffic.push * traffic.push_ratio)
        if hardware.workers > 1
        else 0
    )
    ready: Sequence[float] = [float(seconds.max()) for seconds in itertools.islice(_draws(setting, seed), steps)]
    return np.asarray(ready) + hardware.overhead + rounds + traffic.push * hardware.apply
