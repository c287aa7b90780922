"""A model that is to be placed: its costs, plans of its placements, and the best of the first ones."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from linnet.clib.errors import Error, GraphError
from linnet.placing.candidates import alone, candidates
from linnet.placing.costs import Costs, calibrate, observe, quiet
from linnet.placing.placement import Placement, Share, words
from linnet.placing.schedule import Schedule, fits, schedule
from linnet.session.cluster import HERE
from linnet.session.options import SessionOptions
from linnet.session.planner import Planner

# What a placement on several machines must gain over one machine: the predictions may be wrong by a part, and by the tens of
# microseconds for which threads that wait for each other sleep too long.
GAIN, GAIN_MS = 1.05, 0.05
CLOSE = 1.1  # placements whose times differ less are compared by their plans
SHARES = (1.0, 0.8, 0.6, 0.45, 0.3)  # of a machine's memory that weights may take: the plan says what else is needed


def needed(ms: float, chosen: Sequence[int]) -> float:
    """The milliseconds of a placement, and what it must gain besides if it uses several machines."""
    return ms * GAIN + GAIN_MS if len(set(chosen)) > 1 else ms


def better(one: Placement | None, other: Placement | None) -> Placement | None:
    """The placement that takes less time; a cut must gain more than the predictions may be wrong."""
    if one is None or other is None:
        return one or other
    times = [needed(each.ms, each.chosen) for each in (one, other)]
    return one if times[0] <= times[1] else other


class Task:
    """A model, its machines, and plans of placements."""

    def __init__(self, model: Any, signature: str, shapes: dict[str, Sequence[int]], options: SessionOptions) -> None:
        self.model, self.signature, self.shapes, self.options = model, signature, shapes, options
        self.costs = observe(model, signature, shapes, options)
        self.alone: list[float] = []

    def places(self, chosen: Sequence[int]) -> dict[str, str]:
        names = [machine.name for machine in self.costs.machines]
        return {node.name: names[at] for node, at in zip(self.costs.nodes, chosen, strict=True)}

    def plan(self, chosen: Sequence[int]) -> Planner | None:
        """The plan of a placement; None if a machine has too little memory for it."""
        options = dataclasses.replace(self.options, placement=self.places(chosen))
        planner = Planner(self.model, self.signature, **options.fields)
        try:
            with quiet():
                planner.plan({name: tuple(shape) for name, shape in self.shapes.items()})
        except Error as error:
            if error.code in (306, 401):  # a limit of this machine, or of a host
                return None
            raise
        return planner

    def judged(self, chosen: Sequence[int]) -> tuple[Schedule, Costs, Planner] | None:
        """The schedule of a placement by costs that its plan has corrected; None if it does not fit."""
        planner = self.plan(chosen)
        if planner is None:
            return None
        nodes = [dataclasses.replace(node, ns=list(node.ns)) for node in self.costs.nodes]
        costs = dataclasses.replace(self.costs, nodes=nodes)
        calibrate(costs, planner, chosen)
        return schedule(costs, chosen), costs, planner

    def calibrate_alone(self) -> None:
        """Corrects the costs of each machine by a plan in which it has every node, where that fits."""
        for m in range(len(self.costs.machines)):
            made = alone(self.costs, m)
            planner = self.plan(made) if fits(self.costs, made) else None
            if planner is not None:
                calibrate(self.costs, planner, made)
            self.alone.append(schedule(self.costs, made).ns / 1e6 if planner is not None else math.inf)

    def default(self) -> Placement:
        """The best of the first placements."""
        self.calibrate_alone()
        for share in SHARES:
            seen: dict[tuple[int, ...], float] = {}
            for first in candidates(self.costs, share):
                made = tuple(first)
                seen.setdefault(made, needed(schedule(self.costs, made).ns / 1e6, made))
            found: Placement | None = None
            for made in sorted(seen, key=lambda made: seen[made])[: 1 + len(self.costs.machines)]:
                if math.isfinite(seen[made]) and (found is None or seen[made] < CLOSE * found.ms):
                    found = better(found, self.placement(made))
            if found is not None:
                return found
        raise GraphError(
            "the model fits on none of the machines, and not on all of them together", code=306,
            got=", ".join(f"{machine.name} lends {machine.most_bytes or 'unknown'} bytes" for machine in self.costs.machines),
            hint="raise --max-bytes of the hosts, or name more of them",
        )  # fmt: skip

    def given(self) -> Placement:
        """The placement that the options give. Raises the errors of a plan if a machine has too little memory for it."""
        self.calibrate_alone()
        planner = Planner(self.model, self.signature, **self.options.fields)
        planner.plan({name: tuple(shape) for name, shape in self.shapes.items()})
        numbers, at = {machine.name: m for m, machine in enumerate(self.costs.machines)}, dict[str, int]()
        for step in planner.steps:
            if step.op != "transfer":
                at |= dict.fromkeys((step.name, *step.fused.split("+")), numbers.get(step.device, 0))
        chosen = list[int]()
        for node in self.costs.nodes:  # a view is no step: it stays with the node before it
            chosen.append(at.get(node.name, chosen[-1] if chosen else 0))
        found = self.placement(chosen, given=True)
        assert found is not None, "the plan above fits"
        return found

    def placement(self, chosen: Sequence[int], measured_ms: float = 0.0, given: bool = False) -> Placement | None:
        """The placement with everything that is said about it; None if it does not fit. given: it was not chosen here."""
        judged = self.judged(chosen)
        if judged is None:
            return None
        run, costs, planner = judged
        memory = {each.device: each.total for each in planner.device_memory}
        memory[HERE] = planner.memory["total"] - planner.memory["devices"]
        shares = []
        for m, machine in enumerate(costs.machines):
            weights = costs.weights(chosen, m)
            shares.append(Share(
                machine.name, sum(at == m for at in chosen), run.busy[m] / 1e6, weights,
                max(memory.get(machine.name, 0) - weights, 0), run.traffic[m], self.alone[m],
            ))  # fmt: skip
        return Placement(
            self.places(chosen),
            run.ns / 1e6,
            tuple(shares),
            words(costs, run, shares, given),
            run,
            costs,
            tuple(chosen),
            measured_ms,
        )
