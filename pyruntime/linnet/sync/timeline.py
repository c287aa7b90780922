"""Shows how the time of distributed steps is spent. Spans of workers and servers are put on one clock, as a Chrome
trace (Perfetto, chrome://tracing). From them follow the ratio of computation to transfer and the predicted speed-up.

The clocks of a worker and a server differ. Heartbeats measure the difference (RFC 5905, section 8). Replies to pushes
contain the server's times of the step and narrow the difference further. All times are converted to the clock of shard
0's server, so that the files of several workers can be merged."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.clib.errors import FileError, UsageError
from linnet.training.callbacks import Callback, Metrics, Run

if TYPE_CHECKING:
    from linnet.session.session import Session
    from linnet.sync.worker import LinkInfo, WorkerInfo

FORMAT = "linnet timeline 1"
_FOREVER = 1 << 62  # ns
_SERVERS = 1_000_000  # process number of shard 0's server; workers use their own numbers


@dataclasses.dataclass(frozen=True)
class Summary:
    """Mean seconds of a step, and derived figures. compute: the worker computes. transfer: bytes travel in either
    direction. others: the worker waits for the slowest worker. update: from the slowest worker's push until servers
    have summed and applied the gradients. ratio: seconds of computation per second of transfer and update. speedup: the
    predicted speed-up over one worker, workers * compute / step, if all workers compute for the same time."""

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
    """Records the steps of one worker: call `record` after each step and `save` at the end. As a callback of
    linnet.fit(cluster=...), a Timeline does both without a call.

    name: name of the machine, for display. path: where a run writes the trace; "{worker}" in it is replaced by the
    worker's number.
    """

    def __init__(self, name: str = "", path: str | Path | None = None) -> None:
        self.name, self.path = name, path
        self._steps: list[dict[str, Any]] = []
        self._clocks: dict[int, list[int]] = {}  # by shard: lower and upper bound of its clock minus ours
        self._worker = 0

    def __len__(self) -> int:
        return len(self._steps)

    def record(self, info: WorkerInfo, session: Session | None = None) -> None:
        """Records the step that has just ended. session: if it has trace=True, the trace also shows its ops, within the
        computation of the step."""
        end = _ns(info.decided)
        self._worker = info.worker
        pushed = end - _ns(info.wait)
        computed = pushed - _ns(info.push)
        begun = computed - _ns(info.compute)
        # If values came with the reply to a push, they are part of the wait; `pull` then spans push and wait.
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
        """Narrows the bounds of a server's clock with this step. The clock difference from an exchange of heartbeats is
        wrong by at most half of its delay. A reply to a push was sent after the push began and before the reply
        arrived. The bounds of all steps are combined."""
        low, high = self._clocks.setdefault(link.shard, [-_FOREVER, _FOREVER])
        if link.delay is not None:
            offset, error = _ns(link.offset), _ns(link.delay / 2)
            low, high = max(low, offset - error), min(high, offset + error)
        if applied and link.clock[4]:
            answer = _ns(link.clock[4])
            low, high = max(low, answer - end), min(high, answer - begin)
        if low <= high:  # otherwise a clock was set in the meantime; keep the earlier bounds
            self._clocks[link.shard] = [low, high]

    def on_step(self, run: Run, metrics: Metrics) -> None:
        worker = getattr(run, "worker", None)
        if worker is not None:
            self.record(worker.info)

    def on_end(self, run: Run) -> None:
        if self.path is not None and self._steps:  # in a job with one process there is nothing to record
            self.save(str(self.path).replace("{worker}", str(self._worker)))

    def save(self, path: str | Path) -> None:
        """Writes the trace, including what `merge` needs. Raises FileError if it cannot be written."""
        write([self._content()], path)

    def _content(self) -> dict[str, Any]:
        clocks = {
            str(k): (low + high) // 2 for k, (low, high) in self._clocks.items() if low > -_FOREVER < high < _FOREVER
        }
        return {"worker": self._worker, "name": self.name, "clocks": clocks, "steps": self._steps}


def read(paths: Iterable[str | Path]) -> list[dict[str, Any]]:
    """The workers in traces written by `Timeline.save` or `write`. Raises FileError with the name of a file that is not
    a trace."""
    found: list[dict[str, Any]] = []
    for path in paths:
        try:
            content = json.loads(Path(path).read_text())
            if content["format"] != FORMAT:
                raise ValueError(f"unknown format {content['format']!r}")
            found += content["workers"]
        except OSError as error:
            raise FileError("cannot read the trace", code=201, tensor=str(path), got=str(error)) from None
        except (ValueError, KeyError, TypeError) as error:
            raise FileError(
                "the file is not a trace written by linnet",
                code=203,
                tensor=str(path),
                expected=FORMAT,
                got=f"{type(error).__name__}: {error}",
            ) from None
    return found


def write(workers: Sequence[dict[str, Any]], path: str | Path) -> None:
    """Writes one trace of all workers for Perfetto. Raises FileError if it cannot be written."""
    from linnet.file.atomic import write_atomic

    content = {"format": FORMAT, "displayTimeUnit": "ms", "traceEvents": events(workers), "workers": list(workers)}
    write_atomic(Path(path), iter([json.dumps(content).encode()]))


def _to_common(worker: dict[str, Any], time_ns: int, shard: str | None = None) -> int:
    """Converts a time of the worker (shard None) or of a server to the clock of shard 0's server. A shard whose clock
    was never measured is assumed to have the worker's clock."""
    clocks = worker["clocks"]
    local = time_ns if shard is None else time_ns - clocks.get(shard, 0)
    return int(local + clocks.get("0", 0))


def _waits(worker: dict[str, Any], entry: dict[str, Any]) -> tuple[int, int]:
    """Two moments on the common clock at which the wait of a step is split: when the last push that counted had reached
    all servers, and when the last update was made. Both are 0 if no server has replied."""
    pushed, end = (_to_common(worker, t) for t in entry["times"][3:])
    clocks = [(_to_common(worker, c[1], s), _to_common(worker, c[3], s)) for s, c in entry["servers"].items() if c[4]]
    if not clocks:
        return 0, 0
    gathered = min(max(pushed, *(last for last, _ in clocks)), end)
    return gathered, min(max(gathered, *(updated for _, updated in clocks)), end)


def events(workers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Chrome trace events of the workers' steps and of their servers. Each step of a server occurs only once. Times are
    in us from the first event."""
    spans: list[dict[str, Any]] = []
    names: dict[int, str] = {}
    servers: dict[tuple[str, int, int], int] = {}  # from (shard, step, start time) to the reply
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
                    continue  # no reply of this server yet
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
    """How the workers' step time is spent, on average. The first `skip` steps of each worker, which include planning,
    are left out. Raises UsageError if no step is left."""
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
        raise UsageError(
            "the traces have no steps to average", code=101, hint="record more steps of each worker, or lower skip"
        )
    return Summary(len(workers), count, *(total / count / 1e9 for total in totals))
