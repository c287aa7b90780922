"""How long a run of a placement takes by the costs of its nodes: machines work side by side, each on one node at a time, and
values travel between them."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence

from linnet.placing.costs import Costs, Machine


class Budget:
    """How long a search may go on: for some seconds, or for some steps."""

    def __init__(self, seconds: float = math.inf, steps: int = 0) -> None:
        self.seconds, self.steps, self._begin, self._done = seconds, steps, time.monotonic(), 0

    def take(self) -> float:
        """Takes one step. Returns the share of the budget that was left before it; 0: it is used up."""
        self._done += 1
        left = 1 - (time.monotonic() - self._begin) / self.seconds if self.seconds > 0 else 0.0
        if self.steps:
            left = min(left, 1 - (self._done - 1) / self.steps)
        return max(left, 0.0)


@dataclasses.dataclass
class Schedule:
    """ns: nanoseconds of a run. busy: nanoseconds that each machine computes. traffic: bytes that each machine sends and
    receives. starts, ends: of each node. moves: (value, from, to, start, end) of each transfer."""

    ns: float
    busy: list[float]
    traffic: list[int]
    starts: list[float]
    ends: list[float]
    moves: list[tuple[int, int, int, float, float]]

    @property
    def crossing(self) -> int:
        """Bytes that cross between machines in a run; what goes between two of them counts once."""
        return sum(self.traffic) // 2


def way(a: Machine, b: Machine) -> tuple[float, float]:
    """Nanoseconds before the first byte, and bytes a microsecond (0: no limit), from one machine to another. Two devices
    are assumed to be as far from each other as the farther one is from here."""
    rates = [rate for rate in (a.rate, b.rate) if rate > 0]
    return max(a.latency_ns, b.latency_ns), min(rates, default=0.0)


def schedule(costs: Costs, chosen: Sequence[int]) -> Schedule:
    """The schedule of a placement: chosen[i] is the machine of node i. Infinite if a machine cannot run a node."""
    machines, count = costs.machines, len(costs.machines)
    free, link = [0.0] * count, [0.0] * count  # when a machine, and its way to the others, is free again
    busy, traffic = [0.0] * count, [0] * count
    ready: dict[int, dict[int, float]] = {}  # per value: when each machine has it
    home: dict[int, int] = {}
    starts, ends, moves = list[float](), list[float](), list[tuple[int, int, int, float, float]]()

    def arrive(value: int, machine: int) -> float:
        there = ready.setdefault(value, {0: 0.0})
        if machine in there:
            return there[machine]
        source = home.get(value, 0)
        latency, rate = way(machines[source], machines[machine])
        bytes_ = costs.sizes.get(value, 0)
        begin = max(there[source], *(link[m] for m in (source, machine) if m))
        end = begin + (1000 * bytes_ / rate if rate > 0 else 0.0)
        for m in (source, machine):
            link[m] = end if m else 0.0
            traffic[m] += bytes_
        there[machine] = end + latency
        moves.append((value, source, machine, begin, end + latency))
        return there[machine]

    for node, machine in zip(costs.nodes, chosen, strict=True):
        ns = node.ns[machine]
        if not math.isfinite(ns):
            return Schedule(math.inf, busy, traffic, starts, ends, moves)
        begin = max([free[machine], *(arrive(value, machine) for value in node.reads)])
        free[machine] = begin + ns
        busy[machine] += ns
        starts.append(begin)
        ends.append(free[machine])
        for value in node.writes:
            ready[value], home[value] = {machine: free[machine]}, machine
    end = max([0.0, *free, *(arrive(value, 0) for value in costs.results)])
    return Schedule(end, busy, traffic, starts, ends, moves)


def fits(costs: Costs, chosen: Sequence[int], share: float = 1.0) -> bool:
    """Whether the weights of each machine, and its largest node, fit into this share of what it lends."""
    for m, machine in enumerate(costs.machines):
        if machine.most_bytes and costs.weights(chosen, m) + _largest(costs, chosen, m) > share * machine.most_bytes:
            return False
    return True


def _largest(costs: Costs, chosen: Sequence[int], machine: int) -> int:
    """Bytes of the operands of the largest node on a machine."""
    return max(
        (
            sum(costs.sizes.get(value, 0) for value in (*node.reads, *node.writes))
            for node, at in zip(costs.nodes, chosen, strict=True)
            if at == machine
        ),
        default=0,
    )
