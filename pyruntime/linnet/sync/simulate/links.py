"""A network port shared by many transfers: fairly, as TCP connections do, or first come, first served.
`FairLink` and `FifoLink` are for the event engine. `fair_departures` does the same arithmetic for a whole step at once.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence


class FairLink:
    """Transfers of equal size over a shared port. Each gets an equal share, but no more than its own port allows
    (egalitarian processor sharing with a cap). Because all transfers have the same size, they finish in the order of
    arrival, and all advance at the same rate min(cap, rate / n). So one number describes them all (virtual time): the
    bytes received by a transfer that began when the port was last idle.

    size: bytes of a transfer. rate: the rate of the shared port. cap: the highest rate of one transfer. Both are in
    bytes per second. next: when the first current transfer will be done; inf if there is none.
    """

    __slots__ = ("_goals", "_served", "_then", "busy", "cap", "next", "rate", "size")

    def __init__(self, size: float, rate: float, cap: float) -> None:
        self.size, self.rate, self.cap = size, rate, cap
        self._goals: deque[tuple[float, int]] = deque()  # (service at which it is done, worker)
        self._served = 0.0  # bytes received by a transfer that began when the port was last idle
        self._then = 0.0
        self.busy = 0.0  # bytes carried
        self.next = math.inf

    def _advance(self, time: float) -> None:
        if self._goals:
            self._served += (time - self._then) * min(self.cap, self.rate / len(self._goals))
        else:
            self._served = 0.0
        self._then = time

    def arrive(self, time: float, who: int) -> None:
        """A transfer begins. Times passed to arrive and leave must not decrease."""
        self._advance(time)
        self._goals.append((self._served + self.size, who))
        self.busy += self.size
        self._plan()

    def leave(self) -> list[int]:
        """The workers whose transfers are done at `next`, in order of arrival; at least one."""
        time, goals = self.next, self._goals
        self._served, self._then = goals[0][0], time
        limit = self._served + 1e-9 * self.size
        done = []
        while goals and goals[0][0] <= limit:
            done.append(goals.popleft()[1])
        self._plan()
        return done

    def _plan(self) -> None:
        goals = self._goals
        if goals:
            rate = self.rate / len(goals)
            self.next = self._then + (goals[0][0] - self._served) / (rate if rate < self.cap else self.cap)
        else:
            self.next = math.inf


class FifoLink:
    """A port that serves one transfer after another. If a transfer's own port is slower than the shared one, its bytes
    pass through as they arrive (cut-through). The transfer is done when both ports have carried all its bytes."""

    __slots__ = ("_done", "_free", "busy", "cap", "next", "rate", "size")

    def __init__(self, size: float, rate: float, cap: float) -> None:
        self.size, self.rate, self.cap = size, rate, cap
        self._done: deque[tuple[float, int]] = deque()
        self._free = 0.0
        self.busy = 0.0
        self.next = math.inf

    def arrive(self, time: float, who: int) -> None:
        self._free = max(time + self.size / self.cap, max(time, self._free) + self.size / self.rate)
        self.busy += self.size
        self._done.append((self._free, who))
        self.next = self._done[0][0]

    def leave(self) -> list[int]:
        done = [self._done.popleft()[1]]
        self.next = self._done[0][0] if self._done else math.inf
        return done


Link = FairLink | FifoLink


def fair_departures(arrivals: Sequence[float], size: float, rate: float, cap: float) -> list[float]:
    """When transfers of `size` bytes that begin at `arrivals` (ascending, in seconds) are done. All share a port of
    `rate` fairly, each limited to `cap` bytes per second. The result is the same as that of `FairLink`, but is computed
    by merging two sorted lists."""
    done: list[float] = []
    served, then, i, n = 0.0, 0.0, 0, len(arrivals)
    goals: list[float] = []
    while len(done) < n:
        under_way = len(goals) - len(done)
        speed = min(cap, rate / under_way) if under_way else 0.0
        finish = then + (goals[len(done)] - served) / speed if under_way else math.inf
        if i < n and arrivals[i] <= finish:
            served += (arrivals[i] - then) * speed
            then = arrivals[i]
            goals.append(served + size)
            i += 1
        else:
            served, then = goals[len(done)], finish
            done.append(finish)
    return done
