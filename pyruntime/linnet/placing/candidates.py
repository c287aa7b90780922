"""Placements to begin with: every node on one machine, the best cut of the order of nodes into ranges, and list scheduling
(Topcuoglu, Hariri, Wu: Performance-effective and low-complexity task scheduling for heterogeneous computing, 2002)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from linnet.placing.costs import Costs, finite
from linnet.placing.schedule import fits, way

MOST_MACHINES = 8  # that the cut into ranges considers, because it tries each subset of them
MOST_NODES = 4000  # more nodes are cut at some of their borders


def alone(costs: Costs, machine: int) -> list[int]:
    """Every node on one machine; those that it cannot run stay here."""
    return [machine if math.isfinite(node.ns[machine]) else 0 for node in costs.nodes]


def ranges(costs: Costs, share: float = 1.0) -> list[int] | None:
    """The best placement in which each machine runs at most one range of the order, by dynamic programming over the borders
    between ranges. A range fits if its weights fit into `share` of what its machine lends. None: no such placement fits."""
    count, machines = len(costs.nodes), min(len(costs.machines), MOST_MACHINES)
    ns = finite(costs)[:, :machines]
    sums = np.concatenate([np.zeros((1, machines)), np.cumsum(np.where(np.isfinite(ns), ns, 0.0), axis=0)])
    bars = np.concatenate([np.zeros((1, machines), int), np.cumsum(~np.isfinite(ns), axis=0)])  # nodes that cannot run
    seen: dict[int, int] = {}
    for node in costs.nodes:
        seen |= node.weights
    own = [
        sum(size for value, size in node.weights.items() if seen.pop(value, None) is not None) for node in costs.nodes
    ]
    weights = np.concatenate([[0], np.cumsum(own)])
    live = _live(costs)
    borders = np.unique(np.linspace(0, count, min(count, MOST_NODES) + 1).astype(int))
    # best[(used, last)][k]: nanoseconds until border k, and where the last range began and on what it followed
    best: dict[tuple[int, int], np.ndarray] = {}
    come: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for used in range(1, 1 << machines):
        for last in range(machines):
            if not used >> last & 1:
                continue
            rest = used & ~(1 << last)
            froms = [m for m in range(machines) if rest >> m & 1] or [-1]
            times, steps = np.full(len(borders), math.inf), [(-1, -1)] * len(borders)
            enter = [_enter(costs, best, rest, m, last, borders, live) for m in froms]
            for k in range(1, len(borders)):
                j = borders[:k]
                inside = sums[borders[k], last] - sums[j, last]
                cap = share * costs.machines[last].most_bytes
                bad = (bars[borders[k], last] > bars[j, last]) | (
                    (weights[borders[k]] - weights[j] > cap) if cap else np.zeros(k, bool)
                )
                for m, entered in zip(froms, enter, strict=True):
                    total = np.where(bad, math.inf, entered[:k] + inside)
                    at = int(np.argmin(total))
                    if total[at] < times[k]:
                        times[k], steps[k] = total[at], (at, m)
            best[used, last], come[used, last] = times, steps
    ends = {
        key: times[-1]
        + (_cross(costs, 0, key[1], sum(costs.sizes.get(v, 0) for v in costs.results)) if key[1] else 0.0)
        for key, times in best.items()
    }
    key = min(ends, key=lambda key: ends[key], default=None)
    if key is None or not math.isfinite(ends[key]):
        return None
    chosen, k = [0] * count, len(borders) - 1
    used, last = key
    while last >= 0 and k > 0:
        at, before = come[used, last][k]
        chosen[borders[at] : borders[k]] = [last] * (borders[k] - borders[at])
        used, last, k = used & ~(1 << last), before, at
    return chosen


def _cross(costs: Costs, a: int, b: int, size: float) -> float:
    latency, rate = way(costs.machines[a], costs.machines[b])
    return latency + (1000 * size / rate if rate > 0 else 0.0)


def _enter(
    costs: Costs, best: dict[tuple[int, int], np.ndarray], rest: int, before: int, last: int, borders: np.ndarray,
    live: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Nanoseconds until a range of `last` can begin at each border, after one of `before` (-1: nothing)."""
    if before < 0:
        first = np.full(len(borders), math.inf)
        first[0] = _cross(costs, 0, last, float(live[0])) if last else 0.0
        return first
    latency, rate = way(costs.machines[before], costs.machines[last])
    moved = latency + (1000 * live[borders] / rate if rate > 0 else 0.0)
    return np.asarray(best[rest, before] + moved)


def _live(costs: Costs) -> np.ndarray:
    """For each border of the order: bytes of the values that nodes behind it read and that exist before it."""
    made, count = costs.makers, len(costs.nodes)
    until: dict[int, int] = {}
    for i, node in enumerate(costs.nodes):
        for value in node.reads:
            until[value] = i
    change = np.zeros(count + 2)
    for value, last in until.items():
        change[made.get(value, -1) + 1] += costs.sizes.get(value, 0)
        change[last + 1] -= costs.sizes.get(value, 0)
    return np.cumsum(change)[: count + 1]


def listed(costs: Costs) -> list[int]:
    """List scheduling: nodes in the order of their longest way to the end, each on the machine where it ends first. Machines
    whose memory is full get no further weights."""
    count, machines = len(costs.nodes), len(costs.machines)
    ns, made = finite(costs), costs.makers
    mean = np.nanmean(np.where(np.isfinite(ns), ns, np.nan), axis=1) if count else np.zeros(0)
    readers: dict[int, list[int]] = {}
    for i, node in enumerate(costs.nodes):
        for value in node.reads:
            readers.setdefault(value, []).append(i)
    far = [way(costs.machines[0], machine) for machine in costs.machines[1:]]

    def travel(value: int) -> float:
        size = costs.sizes.get(value, 0)
        return sum(t + (1000 * size / r if r else 0.0) for t, r in far) / max(len(far), 1)

    rank = np.zeros(count)
    for i in range(count - 1, -1, -1):
        after = [travel(v) + rank[j] for v in costs.nodes[i].writes for j in readers.get(v, ())]
        rank[i] = mean[i] + max(after, default=0.0)
    chosen, ends, free = [0] * count, [0.0] * count, [0.0] * machines
    kept: list[dict[int, int]] = [{} for _ in range(machines)]

    def end_on(i: int, m: int) -> float:
        room = costs.machines[m].most_bytes
        if not math.isfinite(ns[i, m]) or (room and sum({**kept[m], **costs.nodes[i].weights}.values()) > room):
            return math.inf
        begin = free[m]
        for value in costs.nodes[i].reads:
            j = made.get(value, -1)
            at, source = (ends[j], chosen[j]) if j >= 0 else (0.0, 0)
            begin = max(begin, at + (_cross(costs, source, m, costs.sizes.get(value, 0)) if source != m else 0.0))
        return float(begin + ns[i, m])

    for i in sorted(range(count), key=lambda i: (-rank[i], i)):
        times = [end_on(i, m) for m in range(machines)]
        m = int(np.argmin(times))
        chosen[i] = m
        ends[i] = free[m] = times[m] if math.isfinite(times[m]) else free[m]
        kept[m].update(costs.nodes[i].weights)
    return chosen


def candidates(costs: Costs, share: float = 1.0) -> Iterator[list[int]]:
    """Placements whose weights fit, each of them at least as good as what it began with."""
    for machine in range(len(costs.machines)):
        made = alone(costs, machine)
        if fits(costs, made, share):
            yield made
    cut = ranges(costs, share)
    if cut is not None and fits(costs, cut, share):
        yield cut
    made = listed(costs)
    if fits(costs, made, share):
        yield made
