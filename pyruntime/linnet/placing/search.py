"""A search for a better placement: local search by the predictions, a learnt policy, and at last runs on the machines."""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from linnet.placing.candidates import alone, candidates
from linnet.placing.costs import Costs, quiet
from linnet.placing.policy import learnt
from linnet.placing.schedule import Budget, fits, schedule

if TYPE_CHECKING:
    from linnet.placing.placement import Placement
    from linnet.placing.task import Task

LOCAL, LEARNT = 0.4, 0.2  # shares of the time; runs on the machines take the rest
MEASURED = 4  # placements that are measured, besides the first one and each machine alone


def improved(task: Task, first: Placement, seconds: float, seed: int) -> Placement:
    """The placement whose runs were fastest, among the first one, each machine alone, and the best that the search has found.
    Searches for about `seconds` seconds."""
    costs, rng = task.costs, np.random.default_rng(seed)
    found = {tuple(made): schedule(costs, made).ns for made in candidates(costs)}
    found[first.chosen] = schedule(costs, first.chosen).ns
    local(costs, found, Budget(seconds * LOCAL), rng)
    learnt(costs, found, Budget(seconds * LEARNT), rng)
    local(costs, found, Budget(seconds * LOCAL / 4), rng)  # from what the policy has found
    chosen = [first.chosen]
    chosen += [made for m in range(len(costs.machines)) if fits(costs, made := tuple(alone(costs, m)))]
    chosen += sorted(found, key=lambda made: found[made])[:MEASURED]
    return measured(task, list(dict.fromkeys(chosen)), first, seconds * (1 - LOCAL - LEARNT))


def local(costs: Costs, found: dict[tuple[int, ...], float], budget: Budget, rng: np.random.Generator) -> None:
    """Simulated annealing over placements: a move gives a range of nodes to one machine, or shifts the end of a range. What
    is better than all before is added to `found`."""
    count, machines = len(costs.nodes), len(costs.machines)
    if count < 2 or machines < 2:
        return
    best = min(found, key=lambda made: found[made])
    now, ns = list(best), found[best]
    least = ns
    while (left := budget.take()) > 0:
        heat = 0.05 * left
        at, machine = int(rng.integers(count)), int(rng.integers(machines))
        length = min(1 + int(rng.geometric(min(1.0, 4.0 / count))), count - at) if rng.random() < 0.7 else 1
        made = list(now)
        if rng.random() < 0.5 and 0 < at < count:  # shift the end of the range before, or the begin of the one behind
            machine = now[at - 1] if rng.random() < 0.5 else now[min(at + length, count - 1)]
        made[at : at + length] = [machine] * length
        made = [m if math.isfinite(node.ns[m]) else 0 for node, m in zip(costs.nodes, made, strict=True)]
        if made == now or not fits(costs, made):
            continue
        other = schedule(costs, made).ns
        if other <= ns or rng.random() < math.exp((ns - other) / max(heat * ns, 1e-9)):
            now, ns = made, other
        if other < least:
            least = other
            found[tuple(made)] = other


def measured(task: Task, chosen: Sequence[tuple[int, ...]], first: Placement, seconds: float) -> Placement:
    """Runs the placements in turn, and returns the one with the least median time. A cut that does not fit is left out."""
    from linnet.session.random_inputs import random_feeds
    from linnet.session.session import Session

    sessions: list[tuple[Placement, Session, list[float]]] = []
    feeds: dict[str, Any] = {}
    for each in chosen:
        placement = first if each == first.chosen else task.placement(each)
        if placement is None:
            continue
        options = dataclasses.replace(task.options, placement=placement.places)
        with quiet():
            session = Session(task.model, task.signature, **options.fields)
            feeds = feeds or random_feeds(session.inputs, task.shapes)
            session.run(feeds)
        sessions.append((placement, session, []))
    until = time.monotonic() + seconds
    while time.monotonic() < until or len(sessions[0][2]) < 3:
        for _, session, times in sessions:
            begin = time.perf_counter()
            session.run(feeds)
            times.append(time.perf_counter() - begin)
    medians = [1e3 * statistics.median(times) for _, _, times in sessions]
    least = int(np.argmin(medians))
    return dataclasses.replace(sessions[least][0], measured_ms=medians[least])
