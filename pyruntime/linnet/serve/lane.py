"""A lane: the queue of one signature of one model, and the thread that runs it. Requests that wait while the model runs share
the next run, where the model's rows do not depend on each other."""

from __future__ import annotations

import asyncio
import dataclasses
import queue
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import Cancelled, DeadlineExceeded, Error
from linnet.session.session import Session

Array = npt.NDArray[Any]
_AT_ONCE = 0.005  # seconds


@dataclasses.dataclass(slots=True, eq=False)
class Work:
    """One request. rows: its size of the batch. key: requests with the same key may share a run. deadline: by
    time.monotonic. answer: a future of `loop`, which gets a Done. dropped: nobody waits for the answer any longer."""

    feeds: dict[str, Array]
    rows: int
    key: Any
    deadline: float
    answer: asyncio.Future[Done]
    loop: asyncio.AbstractEventLoop
    arrived: int = 0
    dropped: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Done:
    """The outputs of a request, or its error. batch: the rows of the run; requests: how many shared it. queue_ns, run_ns:
    how long the request waited, and how long the run took. first: whether this request counts the run."""

    outputs: dict[str, Array] | None
    error: BaseException | None
    batch: int
    requests: int
    queue_ns: int
    run_ns: int
    first: bool


class Lane:
    """Runs a session's requests in a thread of its own, one run at a time.

    batches: numbers of rows that requests may be put together to; () if each request runs alone. wait: seconds that a
    request may wait for others. on_idle: called in the thread when nothing waits."""

    def __init__(self, session: Session, batches: Sequence[int], wait: float) -> None:
        self.session, self.wait = session, wait
        self._batches, self._most = frozenset(batches), max(batches, default=1)
        self._arriving: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._waiting: deque[Work] = deque()  # only the thread uses it
        self._lock = threading.Lock()
        self._running: list[Work] = []
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="linnet-lane", daemon=True)
        self._thread.start()

    def submit(self, work: Work) -> None:
        """Puts a request into the queue. Its future gets a Done."""
        work.arrived = time.perf_counter_ns()
        self._arriving.put(work)

    def at_once(self, work: Work) -> Done | None:
        """Runs a request in the calling thread, while the lane has nothing to do: for runs that take less time than two
        threads need to hand them over. None: it took much longer than that, and the lane must do it."""
        started = time.perf_counter_ns()
        try:
            outputs, error = self.session.run(work.feeds, timeout=_AT_ONCE), None
        except DeadlineExceeded:
            return None
        except Error as failure:
            outputs, error = None, failure
        return Done(outputs, error, work.rows, 1, 0, time.perf_counter_ns() - started, True)

    def drop(self, work: Work) -> None:
        """Nobody waits for this request any longer. If nobody waits for the current run, it ends."""
        work.dropped = True
        with self._lock:
            if self._running and all(each.dropped for each in self._running):
                self.session.cancel()

    def close(self) -> None:
        """Answers what waits, ends the thread and frees the session. Blocks until this is done."""
        self._arriving.put(None)
        self._thread.join()
        self.session.close()

    def _work(self) -> None:
        while True:
            if not self._waiting:
                if self._closing:
                    return
                self._take(self._arriving.get())
            self._gather()
            batch = self._next()
            if batch:
                self._run(batch)

    def _take(self, work: Work | None) -> None:
        if work is None:
            self._closing = True
        else:
            self._waiting.append(work)

    def _gather(self) -> None:
        """Takes what has arrived. If the oldest request may wait, takes what arrives meanwhile, until a run is full."""
        while True:
            try:
                while True:
                    self._take(self._arriving.get_nowait())
            except queue.Empty:
                pass
            if not self.wait or self._closing or not self._waiting or not self._batches:
                return
            left = self.wait - (time.perf_counter_ns() - self._waiting[0].arrived) / 1e9
            if left <= 0 or sum(work.rows for work in self._waiting) >= self._most:
                return
            try:
                self._take(self._arriving.get(timeout=left))
            except queue.Empty:
                return

    def _next(self) -> list[Work]:
        """The requests of the next run: the oldest, and those with the same key that came next, as many as give a number of
        rows that is planned for. Answers requests whose deadline has passed."""
        now = time.monotonic()
        while self._waiting and (self._waiting[0].dropped or self._waiting[0].deadline <= now):
            self._late(self._waiting.popleft())
        if not self._waiting:
            return []
        first = self._waiting.popleft()
        if not self._batches or first.rows >= self._most:
            return [first]
        rows, best, found = first.rows, 1, [first]
        for work in self._waiting:
            if work.dropped or work.key != first.key:
                continue
            rows += work.rows
            if rows > self._most:
                break
            found.append(work)
            if rows in self._batches:
                best = len(found)
        chosen = found[:best]
        if best > 1:
            others = set(map(id, chosen))
            self._waiting = deque(work for work in self._waiting if id(work) not in others)
        return chosen

    def _late(self, work: Work) -> None:
        if not work.dropped:
            waited = (time.perf_counter_ns() - work.arrived) / 1e9
            error = DeadlineExceeded(
                f"the request waited {waited:.3f} s for its turn, longer than it may", code=702,
                hint="send fewer requests at once, or allow more time",
            )  # fmt: skip
            _give([(work, Done(None, error, 0, 0, int(waited * 1e9), 0, False))])

    def _run(self, batch: list[Work]) -> None:
        started = time.perf_counter_ns()
        with self._lock:
            self._running = batch
        try:
            outputs: list[dict[str, Array]] | BaseException = self._outputs(batch)
        except Cancelled as error:
            kept = [work for work in batch if not work.dropped]
            outputs = error
            if kept:  # the cancellation was meant for an earlier run
                self._waiting.extendleft(reversed(kept))
                return
        except Error as error:
            outputs = error
            if len(batch) > 1:  # one of them is at fault: each gets its own answer
                for work in batch:
                    self._run([work])
                return
        except BaseException as error:
            outputs = error
        finally:
            with self._lock:
                self._running = []
        took = time.perf_counter_ns() - started
        rows, results = sum(work.rows for work in batch), []
        for i, work in enumerate(batch):
            mine = None if isinstance(outputs, BaseException) else outputs[i]
            failed = outputs if isinstance(outputs, BaseException) else None
            results.append(
                (work, Done(mine, failed, rows, len(batch), started - work.arrived, took, i == 0))
            )  # fmt: skip
        _give(results)

    def _outputs(self, batch: list[Work]) -> list[dict[str, Array]]:
        """Runs, and returns the outputs of each request."""
        left = max(work.deadline for work in batch) - time.monotonic()
        first = batch[0]
        feeds = first.feeds
        if len(batch) > 1:
            feeds = {name: np.concatenate([work.feeds[name] for work in batch]) for name in first.feeds}
        outputs = self.session.run(feeds, timeout=max(left, 1e-3))
        if len(batch) == 1:
            return [outputs]
        made, at = [], 0
        for work in batch:
            made.append({name: value[at : at + work.rows] for name, value in outputs.items()})
            at += work.rows
        return made


def _give(results: list[tuple[Work, Done]]) -> None:
    """Hands the answers to the event loops that wait for them, with one call for all of one loop."""
    loops: dict[Any, list[tuple[Work, Done]]] = {}
    for result in results:
        loops.setdefault(result[0].loop, []).append(result)
    for loop, mine in loops.items():
        try:
            loop.call_soon_threadsafe(_set, mine)
        except RuntimeError:  # the loop is closed: nobody waits
            continue


def _set(results: list[tuple[Work, Done]]) -> None:
    for work, done in results:
        if not work.answer.done():
            work.answer.set_result(done)
