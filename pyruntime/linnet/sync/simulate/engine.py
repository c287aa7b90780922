"""The event engine: simulates the workers and the server with the most bytes, message by message, for all modes with a
server. One rule covers all modes, as in linnet's server: each worker belongs to a barrier, and a barrier closes when
its quorum is reached."""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections import deque

import numpy as np

from linnet.clib.errors import UsageError
from linnet.sync.simulate.compute import Draws, Floats
from linnet.sync.simulate.links import FairLink, FifoLink, Link
from linnet.sync.simulate.setting import Setting


@dataclasses.dataclass
class Trace:
    """What happened in a simulation, after the warm-up unless stated otherwise.

    step_seconds: one number for each closing of a barrier, in the order in which they closed: the time since the
    previous closing of the same barrier.
    seconds: simulated time.
    accepted: pushes that counted.
    dropped: pushes that came too late.
    staleness: entry s is the number of accepted pushes for which s updates were applied between their pull and their
        push.
    ahead: the largest lead of a barrier over the slowest one.
    sent, handled, in_flight: pushes that workers sent, that the server handled, and that were in transit at the end.
        These count the whole run.
    busy: fraction of the time that a server's input port, its thread and its output port were in use.
    computing: fraction of the time that workers computed.
    """

    step_seconds: Floats
    seconds: float
    accepted: int
    dropped: int
    staleness: list[int]
    ahead: int
    sent: int
    handled: int
    in_flight: int
    busy: dict[str, float]
    computing: float


def _link(size: float, rate: float, cap: float, sharing: str) -> Link:
    return FairLink(size, rate, cap) if sharing == "fair" else FifoLink(size, rate, cap)


class Engine:
    """One simulation. `run(steps)` takes each worker through about this many steps."""

    def __init__(self, setting: Setting, seed: int = 0) -> None:
        if setting.mode.kind in ("ring", "tree"):
            raise UsageError(
                f"mode {setting.mode.kind} has no single server and cannot run in the event engine",
                code=101,
                hint="use linnet.sync.simulate.run",
            )
        hardware, mode = setting.hardware, setting.mode
        self.setting, self.shard = setting, setting.shard()
        self.workers = hardware.workers
        sizes = mode.members(hardware.workers)
        self.barrier_of = [b for b, size in enumerate(sizes) for _ in range(size)]
        self.members: list[list[int]] = [[] for _ in sizes]
        for worker, barrier in enumerate(self.barrier_of):
            self.members[barrier].append(worker)
        self.quorum = [size - mode.backup for size in sizes]
        self.tau = math.inf if mode.staleness is None else mode.staleness
        self.draws = Draws(setting.compute, hardware.workers, mode.local_steps, seed)
        self.port_in = _link(self.shard.up, self.shard.rate_in, self.shard.cap, hardware.sharing)
        self.port_out = _link(self.shard.down, self.shard.rate_out, self.shard.cap, hardware.sharing)
        # for each worker: the step of its barrier, the server version it pulled, the number of steps it computed
        self.tag = [0] * self.workers
        self.pulled = [0] * self.workers
        self.computed = [0] * self.workers
        self.ready = [0.0] * self.workers  # when its gradient is complete
        self.began = [0.0] * self.workers  # when its reply begins to arrive
        # for each barrier: its step, and the workers whose pushes it has
        self.step = [0] * len(sizes)
        self.arrived: list[list[int]] = [[] for _ in sizes]
        self.closed_at = [0.0] * len(sizes)
        self.skips = mode.late == "skip"
        self.waiting: dict[int, list[int]] = {}  # barriers that are too far ahead, with their workers
        self.at_step = {0: len(sizes)}
        self.slowest = 0
        self.version = 0
        self.thread_free = 0.0
        self.thread_busy = 0.0
        self.computing = 0.0
        self.replies: deque[tuple[float, int]] = deque()
        self.heap: list[
            tuple[float, int]
        ] = []  # (time, worker): its push begins to arrive; (time, -1 - worker): its last byte is produced
        self.closings: list[float] = []
        self.closed_by: list[int] = []
        self.stale: list[int] = []
        self.counted = [0, 0]  # accepted, dropped
        self.sent = self.handled = self.furthest = 0

    def run(self, steps: int, warm: int) -> Trace:
        """Simulates until the barriers have closed `warm + steps` times on average. The first `warm` steps are not
        counted."""
        barriers = len(self.quorum)
        last, first = (warm + steps) * barriers, warm * barriers
        for worker in range(self.workers):
            self._release(worker, 0.0)
        heap, port_in, port_out, replies = self.heap, self.port_in, self.port_out, self.replies
        start = time = 0.0
        if first == 0:
            self._count_from_here()
        mark = first
        while len(self.closings) < last:
            t_heap = heap[0][0] if heap else math.inf
            t_reply = replies[0][0] if replies else math.inf
            if port_in.next <= t_heap and port_in.next <= t_reply and port_in.next <= port_out.next:
                time = port_in.next
                for worker in port_in.leave():
                    if self.ready[worker] > time:  # overlapped: more bytes of the push will be sent later
                        heapq.heappush(heap, (self.ready[worker], -1 - worker))
                    else:
                        self._handle(worker, time)
            elif port_out.next <= t_heap and port_out.next <= t_reply:
                time = port_out.next
                for worker in port_out.leave():
                    self._compute(worker, time)
            elif t_reply <= t_heap:
                time, worker = replies.popleft()
                self.began[worker] = time
                port_out.arrive(time, worker)
            else:
                time, worker = heapq.heappop(heap)
                if worker >= 0 and not self._has_heard(worker, time):
                    self.sent += 1
                    port_in.arrive(time, worker)
                elif worker >= 0:  # only announces that it is back
                    self.sent += 1
                    self._handle(worker, time)
                else:
                    self._handle(-1 - worker, time)
            if mark and len(self.closings) >= mark:
                mark, start = 0, self.closings[first - 1]
                self._count_from_here()
        return self._trace(start, first)

    def _count_from_here(self) -> None:
        self.counted, self.stale, self.furthest, self.computing = [0, 0], [], 0, 0.0
        self.port_in.busy = self.port_out.busy = self.thread_busy = 0.0

    def _has_heard(self, worker: int, time: float) -> bool:
        """Whether the worker already knew that its step was closed when it sent the push that would begin to arrive
        now."""
        barrier = self.barrier_of[worker]
        if not self.skips or self.tag[worker] == self.step[barrier]:
            return False
        return self.closed_at[barrier] + self.setting.hardware.latency <= time - self.shard.way_up

    def _compute(self, worker: int, time: float) -> None:
        """The reply has arrived: the worker computes, and later its push begins to arrive at the server."""
        hardware, shard = self.setting.hardware, self.shard
        k = self.computed[worker]
        self.computed[worker] = k + 1
        seconds = self.draws.row(k)[worker]
        self.computing += seconds
        got, overlap = time + shard.way_down, hardware.overlap
        done = got + seconds
        if overlap:
            forward = overlap * seconds / 3
            done = max(self.began[worker] + shard.way_down + seconds, done - forward)
        done += hardware.overhead
        self.ready[worker] = done + shard.way_up
        heapq.heappush(self.heap, (done + shard.way_up - overlap * seconds * 2 / 3, worker))

    def _handle(self, worker: int, time: float) -> None:
        """A push is complete at the server: the thread receives it, drops or counts it, and possibly closes the
        barrier."""
        self.handled += 1
        barrier, shard = self.barrier_of[worker], self.shard
        late = self.tag[worker] != self.step[barrier]
        self._work(time, shard.drop if late else shard.handle)
        if late:
            self.counted[1] += 1
            self._release(worker, self.thread_free)
            return
        self.counted[0] += 1
        self.stale.append(self.version - self.pulled[worker])
        arrived = self.arrived[barrier]
        arrived.append(worker)
        if len(arrived) == self.quorum[barrier]:
            self._close(barrier)

    def _close(self, barrier: int) -> None:
        self._work(self.thread_free, self.shard.apply)
        self.closings.append(self.thread_free)
        self.closed_at[barrier] = self.thread_free
        self.closed_by.append(barrier)
        self.version += 1
        step = self.step[barrier] = self.step[barrier] + 1
        workers, self.arrived[barrier] = self.arrived[barrier], []
        counts = self.at_step
        counts[step - 1] -= 1
        counts[step] = counts.get(step, 0) + 1
        moved = False
        while not counts[self.slowest]:
            del counts[self.slowest]
            self.slowest += 1
            moved = True
        self.furthest = max(self.furthest, step - self.slowest)
        if step - self.slowest > self.tau:
            self.waiting[barrier] = workers
        else:
            for worker in workers:
                self._release(worker, self.thread_free)
        if moved and self.waiting:
            for held in [b for b in self.waiting if self.step[b] - self.slowest <= self.tau]:
                for worker in self.waiting.pop(held):
                    self._release(worker, self.thread_free)

    def _release(self, worker: int, time: float) -> None:
        """Sends the current parameters to the worker, which then works for the current step of its barrier."""
        self.tag[worker] = self.step[self.barrier_of[worker]]
        self.pulled[worker] = self.version
        self._work(time, self.shard.reply)
        self.replies.append((self.thread_free, worker))

    def _work(self, time: float, seconds: float) -> None:
        """Adds work to the server's single thread, after the work that is already queued."""
        self.thread_free = (self.thread_free if self.thread_free > time else time) + seconds
        self.thread_busy += seconds

    def _trace(self, start: float, first: int) -> Trace:
        closings = np.asarray(self.closings)
        seconds = float(closings[-1] - start)
        own: dict[int, float] = {}
        between = []
        for i, (time, barrier) in enumerate(zip(self.closings, self.closed_by, strict=True)):
            if i >= first:
                between.append(time - own.get(barrier, 0.0))
            own[barrier] = time
        hardware = self.setting.hardware
        thread = self.thread_busy
        if self.setting.mode.kind not in (
            "asynchronous",
            "groups",
        ):  # in those modes, handling a push includes this work
            thread += self.port_in.busy * hardware.receive + self.port_out.busy * hardware.send
        return Trace(
            step_seconds=np.asarray(between),
            seconds=seconds,
            accepted=self.counted[0],
            dropped=self.counted[1],
            staleness=np.bincount(self.stale).tolist() if self.stale else [],
            ahead=self.furthest,
            sent=self.sent,
            handled=self.handled,
            in_flight=self.sent - self.handled,
            busy={
                "in": self.port_in.busy / hardware.server_rate / seconds,
                "thread": thread / seconds,
                "out": self.port_out.busy / hardware.server_rate / seconds,
            },
            computing=self.computing / seconds / self.workers,
        )
