"""What the trace of a run over several machines says: how long each machine computed and waited, the critical path, and what
would shorten it. All of it is computed from the file that `linnet run --trace` or linnet.session.trace.Trace writes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from linnet.clib.errors import FileError, UsageError
from linnet.session.lanes import FORMAT

HERE = "this machine"
_SMALL = 0.05  # share of the path below which nothing is proposed


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of the critical path, in microseconds of the trace. machine: which computes, or from which bytes travel.
    to: where they travel; "": the machine computes. steps: (name, microseconds) of what it computes, the longest first.
    bytes: of the values that travel."""

    machine: str
    to: str
    begin: float
    end: float
    bytes: int
    steps: tuple[tuple[str, float], ...] = ()

    @property
    def us(self) -> float:
        return self.end - self.begin


@dataclasses.dataclass(frozen=True)
class Share:
    """What one machine did during the run. computed, waited: microseconds; waited is all the time that it did not
    compute. sent, received: bytes. error: its clock may be wrong by so many microseconds."""

    machine: str
    computed: float
    waited: float
    sent: int
    received: int
    error: float


@dataclasses.dataclass(frozen=True)
class Summary:
    """A run. us: how long it took. path: the critical path, from the beginning of the run to its end without gaps."""

    us: float
    shares: tuple[Share, ...]
    path: tuple[Part, ...]


@dataclasses.dataclass
class _Item:
    """A step of the plan, where and when it was executed."""

    number: int
    name: str
    machine: str
    begin: float
    end: float
    about: dict[str, Any]
    inner: list[tuple[str, float]] = dataclasses.field(default_factory=list)
    coming: list[tuple[int, int]] = dataclasses.field(default_factory=list)  # (number of the sender, bytes)

    @property
    def here(self) -> bool:
        return self.machine == HERE

    @property
    def kind(self) -> str:
        return str(self.about.get("kernel", "")) if self.about.get("op") == "transfer" else ""


def is_run(path: str | Path) -> bool:
    """Tells whether the file is the trace of a run, and not one of training workers. Raises FileError."""
    return bool(_content(path).get("format") == FORMAT)


def read(path: str | Path) -> Summary:
    """Raises FileError if the file is no trace of a run, UsageError if the trace has no step."""
    try:
        items, machines = _items(_content(path)["traceEvents"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _bad(path, error) from None
    if not any(item.here for item in items.values()):
        raise UsageError("the trace has no steps", tensor=str(path), hint="trace a session that has run")
    return _Walk(items, machines).summary()


def _content(path: str | Path) -> dict[str, Any]:
    try:
        content = json.loads(Path(path).read_text())
    except OSError as error:
        raise FileError("cannot read the trace", code=201, tensor=str(path), got=str(error)) from None
    except ValueError as error:
        raise _bad(path, error) from None
    if not isinstance(content, dict):
        raise _bad(path, TypeError("not a JSON object"))
    return content


def _bad(path: str | Path, error: Exception) -> FileError:
    got = f"{type(error).__name__}: {error}"
    return FileError("the file is not a trace written by linnet", code=203, tensor=str(path), expected=FORMAT, got=got)


def _items(events: Iterable[dict[str, Any]]) -> tuple[dict[int, _Item], list[str]]:
    events = list(events)
    names = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    names[0] = HERE
    found: dict[int, _Item] = {}
    for e in events:
        number = e["args"].get("number") if e["ph"] == "X" else None
        if number is not None and (e["pid"] != 0 or number not in found):
            begin = float(e["ts"])
            found[number] = _Item(number, e["name"], names[e["pid"]], begin, begin + float(e["dur"]), e["args"])
    for e in events:
        if e["ph"] == "X" and "piece" in e["args"]:
            found[e["args"]["piece"]].inner.append((e["name"], float(e["dur"])))
        elif e["ph"] == "f":
            found[e["args"]["to"]].coming.append((int(e["args"]["from"]), int(e["args"]["bytes"])))
    return found, [names[pid] for pid in sorted(names)]


class _Walk:
    """Goes back from the end of the run: each time to what ended last of all that had to come before."""

    def __init__(self, items: dict[int, _Item], machines: Sequence[str]) -> None:
        self.items, self.machines = items, machines
        self.order = [items[n] for n in sorted(items)]
        here = [item for item in self.order if item.here]
        self.begin, self.end = min(item.begin for item in here), max(item.end for item in here)
        self.path: list[Part] = []

    def summary(self) -> Summary:
        self._here(self.end)
        self.path.reverse()
        return Summary(self.end - self.begin, tuple(self._share(name) for name in self.machines), tuple(self.path))

    def _add(self, machine: str, to: str, begin: float, end: float, size: int, steps: Sequence[_Item]) -> float:
        """Adds a part before the parts so far. Clocks may disagree, so a part never begins after it ends."""
        end = self.path[-1].begin if self.path else end
        begin = max(min(begin, end), self.begin)
        each = [(name, us) for item in steps for name, us in item.inner or [(item.name, item.end - item.begin)]]
        if end > begin:
            longest = tuple(sorted(each, key=lambda step: -step[1]))
            self.path.append(Part(machine, to, begin, end, size, longest))
        return begin

    def _here(self, end: float) -> None:
        """What this machine did before `end`, down to the last time that it waited for a piece."""
        while end > self.begin:
            wait, piece = self._last_wait(end)
            since = wait.end if wait is not None else self.begin
            steps = [i for i in self.order if i.here and not i.kind and i.begin >= since and i.end <= end]
            end = self._add(HERE, "", min(since, end), end, 0, steps)
            if wait is None or piece is None:
                return
            size = sum(size for _, size in wait.coming)
            self._add(piece.machine, HERE, piece.end, end, size, ())
            end = self._pieces(piece)

    def _last_wait(self, end: float) -> tuple[_Item | None, _Item | None]:
        """The last wait that began before `end` and did wait for a piece, and this piece."""
        for at in range(len(self.order) - 1, -1, -1):
            wait = self.order[at]
            if wait.kind != "wait" or not wait.here or wait.begin >= end:
                continue
            before = self.order[at - 1] if at > 0 else wait  # what is submitted last takes the time to send it
            idle = before.begin if before.here and before.kind in ("upload", "download", "copy") else wait.begin
            for sender, _ in reversed(wait.coming):
                if self.items[sender].end > idle:
                    return wait, self.items[sender]
        return None, None

    def _pieces(self, piece: _Item) -> float:
        """Goes back over pieces of hosts. Returns when this machine sent what began them."""
        while True:
            begun, sources = float(piece.about["begun"]), [(self.items[n], size) for n, size in piece.coming]
            hosts = [(item, size) for item, size in sources if not item.here]
            last = max(hosts, key=lambda source: source[0].end, default=None)
            before = self._before(piece)
            if last is not None and last[0].end > max(begun, before.end if before is not None else begun):
                self._add(piece.machine, "", piece.begin, piece.end, 0, [piece])
                size = sum(size for item, size in hosts if item is last[0])
                self._add(last[0].machine, piece.machine, last[0].end, piece.begin, size, ())
                piece = last[0]
            elif before is not None and before.end > begun:
                self._add(piece.machine, "", before.end, piece.end, 0, [piece])
                piece = before
            else:
                self._add(piece.machine, "", begun, piece.end, 0, [piece])
                size = sum(size for item, size in sources if item.here)
                return self._add(HERE, piece.machine, min(float(piece.about["sent"]), begun), begun, size, ())

    def _before(self, piece: _Item) -> _Item | None:
        earlier = [i for i in self.order if i.machine == piece.machine and i.number < piece.number]
        return earlier[-1] if earlier else None

    def _share(self, machine: str) -> Share:
        own = [item for item in self.order if item.machine == machine and not item.kind and self._computes(item)]
        computed = sum(item.end - item.begin for item in own)
        sent = received = 0
        for item in self.order:
            for sender, size in item.coming:
                sent += size if self.items[sender].machine == machine else 0
                received += size if item.machine == machine else 0
        error = max((float(item.about.get("error", 0)) for item in own), default=0.0)
        return Share(machine, computed, max(self.end - self.begin - computed, 0.0), sent, received, error)

    @staticmethod
    def _computes(item: _Item) -> bool:
        return not item.here or item.about.get("device") == "cpu"


# ---- words -----------------------------------------------------------------------------------------------------------


def text(summary: Summary) -> str:
    """The summary as lines."""
    lines = [f"one run took {_ms(summary.us)}"]
    for share in summary.shares:
        part = share.computed / summary.us
        traffic = f"sent {_bytes(share.sent)}, received {_bytes(share.received)}"
        clock = f"; its clock is known to {_ms(share.error)}" if share.error else ""
        lines.append(
            f"  {share.machine}: computed {_ms(share.computed)} ({part:.0%}), waited {_ms(share.waited)}; {traffic}{clock}"
        )
    lines.append("critical path:")
    for part_of in summary.path:
        lines.append(f"  {_ms(part_of.us):>9} {part_of.us / summary.us:4.0%}  {_what(part_of)}")
    found = shorter(summary)
    return "\n".join([*lines, "what would shorten it:" if found else "nothing on the path stands out", *found])


def shorter(summary: Summary) -> list[str]:
    """Sentences about the three longest things on the path: steps, and ways between machines. Each says how much it
    would save at most, because another path may then be the longest."""
    found: list[tuple[float, str]] = []
    ways: dict[tuple[str, str], list[Part]] = {}
    for part in summary.path:
        if part.to:
            ways.setdefault((part.machine, part.to), []).append(part)
        elif part.steps:
            name, us = part.steps[0]
            us = min(us, part.us)
            found.append((us, f"half the time of {name} on {part.machine} would save up to {_ms(us / 2)}"))
    for (machine, to), parts in ways.items():
        us, size = sum(part.us for part in parts), sum(part.bytes for part in parts)
        times = "once" if len(parts) == 1 else f"{len(parts)} times"
        carried = f"{_bytes(size)} at {_bytes(size / us * 1e6)}/s" if size else "no bytes that a step needs"
        share = us / summary.us
        found.append((us, f"{share:.0%} of the path is the way from {machine} to {to}, {times}: {carried}"))
    found.sort(key=lambda item: -item[0])
    return [f"  {sentence}" for us, sentence in found[:3] if us >= _SMALL * summary.us]


def _what(part: Part) -> str:
    if part.to:
        return f"{part.machine} -> {part.to}: {_bytes(part.bytes)}"
    names = ", ".join(name for name, _ in part.steps[:3]) or "no step: it prepares, sends or waits"
    more = f" and {len(part.steps) - 3} more" if len(part.steps) > 3 else ""
    return f"{part.machine}: {names}{more}"


def _ms(us: float) -> str:
    return f"{us / 1e3:.3g} ms"


def _bytes(size: float) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size:.0f} B"
