"""Runs cases on a device and on the CPU. Many cases share one graph, because making a session takes longer than a small
step. If the whole graph fails, its halves are run, and so on, until the case that fails is found."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import re
from collections.abc import Iterator, Sequence
from typing import Any

from linnet.clib.errors import Error
from linnet.conformance.case import Array, Case, Placed, add
from linnet.conformance.compare import Difference, compared
from linnet.conformance.report import Result
from linnet.facade import Graph
from linnet.session.device import Device
from linnet.session.session import Session
from linnet.session.step import Step

_WHY = {
    "cannot": "its cost is negative",
    "refused": "its claim or offer refused the step",
    "cost": "the CPU is faster",
}


@dataclasses.dataclass(frozen=True)
class Batch:
    """A graph of independent cases, and the input values for a run of this graph."""

    graph: Graph
    feeds: dict[str, Array]
    cases: tuple[Placed, ...]


def batch_of(cases: Sequence[Case]) -> Batch:
    """Builds the cases into one graph."""
    graph, feeds = Graph(), dict[str, Array]()
    main = graph.function()
    placed = tuple(add(case, main, feeds, i) for i, case in enumerate(cases))
    graph.signature("infer", main)
    return Batch(graph, feeds, placed)


def session_on(device: Device, batch: Batch, **options: Any) -> Session:
    """A session that gives each step to the device, if it can run the step."""
    return Session(batch.graph, device=device, placement={"*": device.name}, **options)


def run_cases(device: Device, cases: Sequence[Case]) -> list[Result]:
    """The result of each case."""
    batch = batch_of(cases)
    want = Session(batch.graph, reference=True).run(batch.feeds)
    try:
        session = session_on(device, batch)
        steps = [step for step in session.steps if step.op != "transfer"]
        if not any(step.device == device.name for step in steps):
            return [_judged(device, placed, steps, want, want, want) for placed in batch.cases]
        got = session.run(batch.feeds)
        again = session.run(batch.feeds)
    except Error as error:
        if len(cases) > 1:
            middle = len(cases) // 2
            return run_cases(device, cases[:middle]) + run_cases(device, cases[middle:])
        case = cases[0]
        return [Result(case.id, case.op, case.dtype, case.about, "failed", why=" ".join(str(error).split()))]
    return [_judged(device, placed, steps, got, again, want) for placed in batch.cases]


def _judged(
    device: Device, placed: Placed, steps: Sequence[Step], got: dict[str, Array], again: dict[str, Array],
    want: dict[str, Array],
) -> Result:  # fmt: skip
    case = placed.case
    result = Result(case.id, case.op, case.dtype, case.about, "agrees")
    mine = [step for step in steps if placed.nodes[0] in (step.name, *re.split(r"[\s,]+", step.fused))]
    if placed.open and not any(step.device == device.name for step in mine):
        result.status, result.why = "refused", "its sizes depend on data, so no device is asked"
        return result
    if not mine:
        result.status = "no step"
    elif not any(step.device == device.name for step in mine):
        result.status, result.why = "refused", _WHY.get(mine[0].placed, mine[0].placed or "no device was asked")
        return result
    else:
        result.kernel = mine[0].kernel
    for i, (name, dtype) in enumerate(zip(placed.outputs, placed.dtypes, strict=True)):
        found = compared(case, dtype, got[name], want[name])
        result.worst = max(result.worst, found.worst)
        if found.wrong:
            _differs(result, found, i, len(placed.outputs))
        elif got[name].tobytes() != again[name].tobytes() and not result.why:
            result.status, result.why = "differs", "a second run gives other bits"
    return result


def _differs(result: Result, found: Difference, output: int, outputs: int) -> None:
    if result.status != "differs":
        result.status, result.where = "differs", found.where
        result.why = (f"output {output}: " if outputs > 1 else "") + found.text


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppresses linnet's messages about steps that run on the CPU: the report lists them."""
    logger = logging.getLogger("linnet")

    def wanted(record: logging.LogRecord) -> bool:
        return "on the CPU" not in record.getMessage()

    logger.addFilter(wanted)
    try:
        yield
    finally:
        logger.removeFilter(wanted)
