"""One step of a plan, as Session.steps gives it.
It has a module of its own, because a program that only runs models does not need it."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Span:
    """Work that a device did inside of a step in the last traced run. The first span of a step is the whole, the next
    ones are steps within it. start_ns: when it began, by this machine's monotonic clock; 0: it did not run. error_ns:
    start_ns may be wrong by so much, because another machine's clock was read. ms: how long it took.
    Only of the first span: begun_ns: when the device began the message that brought the work. waited_ms: how long it
    waited for values of other devices between begun_ns and start_ns. waited_bytes: bytes of these values."""

    name: str
    op: str
    kernel: str
    start_ns: int
    ms: float
    error_ns: int = 0
    begun_ns: int = 0
    waited_ms: float = 0.0
    waited_bytes: int = 0


@dataclasses.dataclass(frozen=True)
class Step:
    """One step of a plan. ms: mean time over the traced runs (Session(trace=True)), 0 without trace. bytes: how many
    bytes the step reads and writes. flops: number of operations; a multiply and an add count as two. fused: names of
    the nodes that became part of this step.
    placed: why the step runs where it does: "" (there are no devices), "cannot" (no device can run it), "cost", "hint",
    "scope" (the graph's device scope), "chosen" or "refused" (by its device). device_ms: mean time on the device, if it
    measures its steps; `ms` is then the time to submit the step.
    start_ns: when the step began in the last traced run, by the system's monotonic clock.
    modelled_ms: the time that the cost model predicts (docs/tuning.md). For a step on a device and for a transfer, the
        device's own model predicts it.
    fork: number of the fork that the step belongs to, from 1 on: the branches of a fork run side by side, each on one
    thread; 0: the step runs alone. branch: number of its branch in the fork, from 1 on; 0: none.
    source: for a copy between devices, the device from which the value comes; otherwise "".
    spans: what the device did inside of the step in the last traced run, if it measures that, as a host does."""

    name: str
    op: str
    kernel: str
    layout: str
    device: str
    fused: str
    bytes: int
    flops: int
    runs: int
    ms: float
    placed: str = ""
    device_ms: float = 0.0
    start_ns: int = 0
    modelled_ms: float = 0.0
    fork: int = 0
    branch: int = 0
    source: str = ""
    spans: tuple[Span, ...] = ()
