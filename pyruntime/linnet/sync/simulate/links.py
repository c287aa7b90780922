"""A network port that many transfers share: fairly, as TCP connections do, or first come, first served.
`FairLink` and `FifoLink` serve the event engine; `fair_departures` is the same arithmetic over a whole step at once."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence


class FairLink:
    """Transfers of one size over a port, each with an equal share of it and none faster than its own port: egalitarian
    processor sharing with a cap. As all are of one size, they leave in the order in which they came, and all advance at one
    rate min(cap, rate / n): one number, the service that each has had (virtual time), describes them all.

    size: bytes of a transfer. rate: of the shared port, cap: of one transfer, both in bytes per second.
    next: when the first of those under way will be done, inf when there is none.
    """

    __slots__ = ("_goals", "_served", "_then", "busy", "cap", "next", "rate", "size")

    def __init__(self, size: float, rate: float, cap: float) -> None:
        self.size, self.rate, self.cap = size, rate, cap
        self._goals: deque[tuple[float, int]] = deque()  # (service at which it is done, who)
        self._served = 0.0  # bytes that a transfer would have had that came when the port was last idle
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
        """A transfer begins. Times of arrive and leave must not decrease."""
        self._advance(time)
        self._goals.append((self._served + self.size, who))
        self.busy += self.size
        self._plan()

    def leave(self) -> list[int]:
        """Who is done at `next`, in the order in which they came; at least one."""
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
    """The same port when it serves one transfer after the other. A transfer whose own port is slower than the shared one
    passes through it as it comes (cut-through): it is done when both have carried all of it."""

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
    """When transfers of `size` bytes that begin at `arrivals` (ascending, seconds) are done, all sharing a port of `rate`
    fairly, each at most `cap` bytes per second. The same as `FairLink`, written as a merge of two sorted lists."""
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
