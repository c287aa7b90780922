"""Where the time of distributed steps goes: spans of workers and servers on one clock, as a Chrome trace (Perfetto,
chrome://tracing), and from them the ratio of computing to transfer and the speed-up that it predicts.

A worker's clock and a server's differ; heartbeats measure by how much (RFC 5905, section 8), and answers to pushes, which
bring the server's times of the step, bound it further. All times are put on the clock of shard 0's server, so that the files
of several workers may be joined."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.errors import FileError, UsageError
from linnet.training.callbacks import Callback, Metrics

if TYPE_CHECKING:
    from linnet.session import Session
    from linnet.sync.worker import LinkInfo, WorkerInfo
    from linnet.training.run import Run

FORMAT = "linnet timeline 1"
_FOREVER = 1 << 62  # ns
_SERVERS = 1_000_000  # process number of shard 0's server; workers have theirs


@dataclasses.dataclass(frozen=True)
class Summary:
    """Mean seconds of a step, and what follows. compute: the worker computes. transfer: bytes travel, either way. others: the
    slowest worker is waited for. update: from its push until servers have summed and applied. ratio: computing for each
    second of transfer and update. speedup: what so many workers give, each computing as long: workers * compute / step."""

    workers: int
    steps: int
    compute: float
    transfer: float
    others: float
    update: float

    @property
    def step(self) -> float:
        return self.compute + self.transfer + self.others + self.update

    @property
    def ratio(self) -> float:
        moved = self.transfer + self.update
        return self.compute / moved if moved else float("inf")

    @property
    def speedup(self) -> float:
        return self.workers * self.compute / self.step if self.step else float("nan")


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


class Timeline(Callback):
    """Records the steps of one worker: `record` after each step, `save` at the end. As a callback of linnet.fit(cluster=...) it
    does both by itself.

    name: of the machine, for people. path: where a run writes it; "{worker}" in it becomes the worker's number.
    """

    def __init__(self, name: str = "", path: str | Path | None = None) -> None:
        self.name, self.path = name, path
        self._steps: list[dict[str, Any]] = []
        self._clocks: dict[int, list[int]] = {}  # shard -> the least and the most that its clock is ahead of ours
        self._worker = 0

    def __len__(self) -> int:
        return len(self._steps)

    def record(self, info: WorkerInfo, session: Session | None = None) -> None:
        """Takes the step that has just ended. session: one with trace=True adds its ops inside the computing."""
        end = _ns(info.decided)
        self._worker = info.worker
        pushed = end - _ns(info.wait)
        computed = pushed - _ns(info.push)
        begun = computed - _ns(info.compute)
        # Values that came with the answer to a push are a part of the wait, and `pull` then spans push and wait.
        pulled = begun if abs(info.pull - info.push - info.wait) < 1e-4 else begun - _ns(info.pull)
        for link in info.links:
            self._bound(link, computed, end, info.outcome == "applied")
        ops = [] if session is None else [(s.name or s.op, s.op, round(s.ms * 1e6)) for s in session.steps]
        self._steps.append(
            {
                "step": info.step - 1, "outcome": info.outcome, "staleness": info.staleness,
                "times": [pulled, begun, computed, pushed, end], "ops": ops,
                "servers": {str(link.shard): [_ns(t) for t in link.clock] for link in info.links},
            }
        )  # fmt: skip

    def _bound(self, link: LinkInfo, begin: int, end: int, applied: bool) -> None:
        """What this step says of a server's clock: an exchange of heartbeats errs by half of its delay at most, and the answer
        to a push was given after the push began and before it came. The bounds of all steps hold together."""
        low, high = self._clocks.setdefault(link.shard, [-_FOREVER, _FOREVER])
        if link.delay is not None:
            offset, error = _ns(link.offset), _ns(link.delay / 2)
            low, high = max(low, offset - error), min(high, offset + error)
        if applied and link.clock[4]:
            answer = _ns(link.clock[4])
            low, high = max(low, answer - end), min(high, answer - begin)
        if low <= high:  # else a clock was set meanwhile: what was known stays
            self._clocks[link.shard] = [low, high]

    def on_step(self, run: Run, metrics: Metrics) -> None:
        worker = getattr(run, "worker", None)
        if worker is not None:
            self.record(worker.info)

    def on_end(self, run: Run) -> None:
        if self.path is not None and self._steps:  # alone there is nothing to see
            self.save(str(self.path).replace("{worker}", str(self._worker)))

    def save(self, path: str | Path) -> None:
        """Writes the trace, which also holds what `merge` needs. FileError where it cannot be written."""
        write([self._content()], path)

    def _content(self) -> dict[str, Any]:
        clocks = {
            str(k): (low + high) // 2 for k, (low, high) in self._clocks.items() if low > -_FOREVER < high < _FOREVER
        }
        return {"worker": self._worker, "name": self.name, "clocks": clocks, "steps": self._steps}


def read(paths: Iterable[str | Path]) -> list[dict[str, Any]]:
    """The workers in traces that `Timeline.save` or `write` wrote. FileError names the file that is none."""
    found: list[dict[str, Any]] = []
    for path in paths:
        try:
            content = json.loads(Path(path).read_text())
            if content["format"] != FORMAT:
                raise ValueError(f"format {content['format']!r}")
            found += content["workers"]
        except OSError as error:
            raise FileError("cannot read the trace", code=201, tensor=str(path), got=str(error)) from None
        except (ValueError, KeyError, TypeError) as error:
            raise FileError(
                "not a trace of linnet",
                code=203,
                tensor=str(path),
                expected=FORMAT,
                got=f"{type(error).__name__}: {error}",
            ) from None
    return found


def write(workers: Sequence[dict[str, Any]], path: str | Path) -> None:
    """One trace of all workers, for Perfetto. FileError where it cannot be written."""
    from linnet.file import write_atomic

    content = {"format": FORMAT, "displayTimeUnit": "ms", "traceEvents": events(workers), "workers": list(workers)}
    write_atomic(Path(path), iter([json.dumps(content).encode()]))


def _to_common(worker: dict[str, Any], time_ns: int, shard: str | None = None) -> int:
    """A time of the worker (shard None), or of a server, on the clock of shard 0's server; a shard whose clock was never
    measured is taken to be that of the worker."""
    clocks = worker["clocks"]
    local = time_ns if shard is None else time_ns - clocks.get(shard, 0)
    return int(local + clocks.get("0", 0))


def _waits(worker: dict[str, Any], entry: dict[str, Any]) -> tuple[int, int]:
    """What the wait of a step was for, as two moments within it on the common clock: the last push that counted had come to
    the last server, and the last update was made. 0 and 0 where no server has answered."""
    pushed, end = (_to_common(worker, t) for t in entry["times"][3:])
    clocks = [(_to_common(worker, c[1], s), _to_common(worker, c[3], s)) for s, c in entry["servers"].items() if c[4]]
    if not clocks:
        return 0, 0
    gathered = min(max(pushed, *(last for last, _ in clocks)), end)
    return gathered, min(max(gathered, *(updated for _, updated in clocks)), end)


def events(workers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Chrome trace events of the workers' steps and of their servers, each server's step once; times in us from the first."""
    spans: list[dict[str, Any]] = []
    names: dict[int, str] = {}
    servers: dict[tuple[str, int, int], int] = {}  # (shard, step, when it began): its answer
    for worker in workers:
        number = int(worker["worker"])
        names[number] = f"worker {number}" + (f" {worker['name']}" if worker["name"] else "")
        for entry in worker["steps"]:
            times = [_to_common(worker, t) for t in entry["times"]]
            about = {"step": entry["step"], "outcome": entry["outcome"], "staleness": entry["staleness"]}
            for name, begin, end in zip(("pull", "compute", "push", "wait"), times, times[1:], strict=False):
                if end > begin:
                    spans.append(_span(name, number, 0, begin, end, about))
            gathered, updated = _waits(worker, entry)
            for name, begin, end in (
                ("others", times[3], gathered),
                ("update", gathered, updated),
                ("values", updated, times[4]),
            ):
                if gathered and end > begin:
                    spans.append(_span(name, number, 0, begin, end, about))
            at = times[1]
            for name, op, length in entry["ops"]:
                spans.append(_span(name, number, 1, at, at + length, {"op": op}))
                at += length
            for shard, clock in entry["servers"].items():
                first, last, begin, end, answer = (_to_common(worker, t, shard) for t in clock)
                process = _SERVERS + int(shard)
                names[process] = f"server {shard}"
                if not clock[4]:
                    continue  # no answer of this server yet
                key = shard, int(entry["step"]), clock[2]
                flow = f"{shard}/{number}/{entry['step']}"
                if key not in servers:
                    servers[key] = answer
                    about = {"step": entry["step"]}
                    if last > first:
                        spans.append(_span("collect", process, 0, first, last, about))
                    spans.append(_span("update", process, 0, begin, max(end, begin), about))
                if entry["outcome"] == "applied":
                    spans.append(_flow("s", flow, number, times[3]))
                    spans.append(_flow("f", flow, process, begin))
    start = min((span["ts"] for span in spans), default=0)
    for span in spans:
        span["ts"] = (span["ts"] - start) / 1e3
    spans.sort(key=lambda span: span["ts"])
    titles = [
        {"name": word, "ph": "M", "pid": pid, "tid": 0, "args": value}
        for pid, name in sorted(names.items())
        for word, value in (("process_name", {"name": name}), ("process_sort_index", {"sort_index": pid}))
    ]
    return titles + spans


def _span(name: str, pid: int, tid: int, begin: int, end: int, about: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "X", "pid": pid, "tid": tid, "ts": begin, "dur": (end - begin) / 1e3, "args": about}


def _flow(phase: str, name: str, pid: int, at: int) -> dict[str, Any]:
    made = {"name": "push", "cat": "sync", "ph": phase, "id": name, "pid": pid, "tid": 0, "ts": at}
    return made | ({"bp": "e"} if phase == "f" else {})


def summary(workers: Sequence[dict[str, Any]], skip: int = 1) -> Summary:
    """Where the steps of these workers went, on average; the first `skip` of each, which plan, are left out. UsageError where
    nothing is left."""
    totals = [0, 0, 0, 0]
    count = 0
    for worker in workers:
        for entry in worker["steps"][skip:]:
            begin, begun, computed, pushed, end = entry["times"]
            gathered, updated = _waits(worker, entry)
            others = gathered - _to_common(worker, pushed) if gathered else 0
            update = updated - gathered
            totals[0] += computed - begun
            totals[1] += (begun - begin) + (pushed - computed) + (end - pushed) - others - update
            totals[2] += others
            totals[3] += update
            count += 1
    if not count:
        raise UsageError("there are no steps in the trace", code=101, hint="record more than one step of each worker")
    return Summary(len(workers), count, *(total / count / 1e9 for total in totals))
