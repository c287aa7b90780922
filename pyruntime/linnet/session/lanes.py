"""The lanes of other machines in the trace of a run: what each host did, on this machine's clock, and arrows for the values
that travelled. A queue works in order, so a value leaves a host after the last piece that was submitted there before it,
and arrives before the next one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from linnet.session.step import Step

FORMAT = "linnet run 1"
_HERE, _STEPS = 0, 1  # the process of this machine, and its track of steps
_PIECES, _INNER = 0, 1  # tracks of a host


@dataclasses.dataclass
class _Arrow:
    """From a step to a step of the plan. A piece is at its host; all other steps are here."""

    name: str
    sender: int
    receiver: int
    bytes: int


def _arrows(steps: Sequence[Step]) -> list[_Arrow]:
    found: list[_Arrow] = []
    last: dict[str, int] = {}  # per device: its last piece
    coming: dict[str, list[_Arrow]] = {}  # per device: values that its next piece follows
    leaving: dict[str, list[_Arrow]] = {}  # per device: values that the next wait for it brings
    for number, step in enumerate(steps):
        if step.spans:
            for arrow in coming.pop(step.device, []):
                found.append(dataclasses.replace(arrow, receiver=number))
            last[step.device] = number
        elif step.kernel == "upload" and step.op == "transfer" and step.runs:
            coming.setdefault(step.device, []).append(_Arrow(step.name, number, -1, step.bytes))
        elif step.kernel == "copy" and step.source in last:
            coming.setdefault(step.device, []).append(_Arrow(step.name, last[step.source], -1, step.bytes))
        elif step.kernel == "download" and step.device in last:
            leaving.setdefault(step.device, []).append(_Arrow(step.name, last[step.device], -1, step.bytes))
        elif step.kernel == "wait":
            for arrow in leaving.pop(step.device, []):
                found.append(dataclasses.replace(arrow, receiver=number))
    return found


def lanes(steps: Sequence[Step], start: int) -> list[dict[str, Any]]:
    """The events of hosts and the arrows, in microseconds from `start` (nanoseconds of the monotonic clock)."""
    hosts = list(dict.fromkeys(step.device for step in steps if step.spans))
    found: list[dict[str, Any]] = []
    for process, host in enumerate(hosts, 1):
        found.append(_title("process_name", process, _PIECES, host))
        found.append(_title("thread_name", process, _PIECES, "pieces"))
        found.append(_title("thread_name", process, _INNER, "steps"))
    for number, step in enumerate(steps):
        if step.spans:
            found += _piece(steps, number, hosts.index(step.device) + 1, start)
    for i, arrow in enumerate(_arrows(steps), 1):
        about = {"bytes": arrow.bytes, "from": arrow.sender, "to": arrow.receiver}
        for phase, number in (("s", arrow.sender), ("f", arrow.receiver)):
            step = steps[number]
            here = not step.spans
            begin = step.start_ns if here else step.spans[0].start_ns
            # An arrow leaves a piece at its end, and arrives here at the end of the wait.
            late = (phase == "s") != here
            at = begin + (round((step.ms if here else step.spans[0].ms) * 1e6) if late else 0)
            found.append(
                {
                    "name": arrow.name, "cat": "value", "ph": phase, "id": i, "ts": (at - start) / 1e3, "args": about,
                    "pid": _HERE if here else hosts.index(step.device) + 1,
                    "tid": _STEPS + step.branch if here else _PIECES,
                } | ({"bp": "e"} if phase == "f" else {})
            )  # fmt: skip
    return found


def _piece(steps: Sequence[Step], number: int, process: int, start: int) -> list[dict[str, Any]]:
    """A piece, how long it waited before, and the steps in it."""
    step = steps[number]
    whole, *inner = step.spans
    sent = steps[_sender(steps, number)].start_ns
    about = {
        "number": number, "begun": (whole.begun_ns - start) / 1e3, "sent": (sent - start) / 1e3,
        "waited": whole.waited_ms * 1e3, "waited_bytes": whole.waited_bytes, "error": whole.error_ns / 1e3,
    }  # fmt: skip
    begin = (whole.start_ns - start) / 1e3
    found = [_event(step.name, process, _PIECES, begin, whole.ms * 1e3, about)]
    if whole.waited_ms > 0:
        length = whole.waited_ms * 1e3
        found.append(_event("wait for values", process, _PIECES, begin - length, length, {}))
    for span in inner:
        if span.start_ns:
            texts = {"op": span.op, "kernel": span.kernel, "piece": number}
            found.append(_event(span.name, process, _INNER, (span.start_ns - start) / 1e3, span.ms * 1e3, texts))
    return found


def _sender(steps: Sequence[Step], number: int) -> int:
    """The step that began to send the message of a piece. Of submissions that follow each other, the first upload to the
    host is sent at once if it is large. The message ends with the last of them."""
    first = last = number
    while first > 0 and _submits(steps[first - 1]):
        first -= 1
    for other in range(first, number):
        if steps[other].kernel == "upload" and steps[other].device == steps[number].device and steps[other].runs:
            return other
    while last + 1 < len(steps) and _submits(steps[last + 1]):
        last += 1
    return last


def _submits(step: Step) -> bool:
    return bool(step.spans) or (step.op == "transfer" and step.kernel != "wait")


def _event(name: str, process: int, track: int, begin: float, length: float, about: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "X", "pid": process, "tid": track, "ts": begin, "dur": length, "args": about}


def _title(what: str, process: int, track: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": track, "args": {"name": name}}
