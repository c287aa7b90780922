"""A placement, and what is said about it: what each machine has of it, and the answer in words."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path

from linnet.placing.costs import Costs, title
from linnet.placing.schedule import Schedule


@dataclasses.dataclass(frozen=True)
class Share:
    """What one machine has of a placement. nodes: number of nodes. ms: its time to compute in a run. weights, other: bytes
    of weights, and of everything else that the plan needs there. traffic: bytes that it sends and receives in a run.
    alone_ms: milliseconds of a run if it had every node that it can run; infinity: that does not fit there."""

    machine: str
    nodes: int
    ms: float
    weights: int
    other: int
    traffic: int
    alone_ms: float


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where the nodes of a model run. places: node name -> device name, or "cpu", for Session(placement=). ms: predicted
    milliseconds of a run. machines: one Share per machine, this one first. why: the answer in words. measured_ms: the
    median of runs on the real machines, if a search has measured it; otherwise 0."""

    places: dict[str, str]
    ms: float
    machines: tuple[Share, ...]
    why: str
    schedule: Schedule
    costs: Costs
    chosen: tuple[int, ...]
    measured_ms: float = 0.0

    def save(self, path: str | Path) -> None:
        """Writes `places` as JSON, for placement= and --placement."""
        Path(path).write_text(json.dumps(self.places, indent=0) + "\n")

    def picture(self) -> str:
        """An SVG file of one run by the predictions: the machines as lanes over time, with lines for values that travel."""
        from linnet.placing.picture import draw

        return draw(self.costs, self.chosen, self.schedule, self.why)


def words(costs: Costs, run: Schedule, shares: Sequence[Share], given: bool) -> str:
    """The answer in words: what is best, and why the others are not. given: the placement was not chosen by its costs."""
    from linnet.report.tables import size

    ms = run.ns / 1e6
    used = [share for share in shares if share.nodes and share.ms > 0]
    singles = {share.machine: share.alone_ms for share in shares if math.isfinite(share.alone_ms)}
    texts = [f"{title(name)} alone: {alone_ms:.3g} ms" for name, alone_ms in singles.items()]
    names = " and ".join(title(share.machine) for share in used)
    if len(used) == 1:
        texts.append(f"{'given' if given else 'best'}: {names} alone")
        slowest = min((machine for machine in costs.machines[1:]), key=lambda machine: machine.rate or math.inf)
        if len(costs.machines) > 1 and slowest.rate and not given:
            texts.append(
                f"a cut costs more than it gains: values cross at {slowest.rate:.3g} MB/s, {slowest.latency_ns / 1e3:.3g} us each"
            )
    else:
        texts.append(f"{names} together: {ms:.3g} ms, of which {size(run.crossing)} cross in each run")
        texts += [f"{share.machine} alone: does not fit" for share in shares if not math.isfinite(share.alone_ms)]
    return "; ".join(texts)
