"""Where a loss that is not finite came from: the steps since the last good values are run again, counting NaN and
infinity behind every op, until one gives the first."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.graph import Graph
from linnet.model import Model, Store

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True)
class Finding:
    """The first op whose result was not finite. name: of the node; tensor: of its first output."""

    step: int
    name: str
    op: str
    not_a_number: int
    infinite: int


class _Probe:
    """A session that counts, over a store of its own."""

    def __init__(self, model: Model, signature: str) -> None:
        from linnet.session import Session

        self.store = Store(model)
        self.session = Session(model, signature, store=self.store, count_special=True)
        self.usual: set[int] = set()  # steps of the plan that give infinity while all is well, such as masks

    def run(self, feeds: Mapping[str, Array], values: Mapping[str, Array] | None = None) -> None:
        for name, value in (values or {}).items():
            self.store[name] = value
        self.session.run(feeds)

    def accept(self) -> None:
        """What is infinite now is usual, if nothing is NaN."""
        found = self.session.special
        if not any(c["not_a_number"] for c in found):
            self.usual = {i for i, c in enumerate(found) if c["infinite"]}

    def first(self, step: int) -> Finding | None:
        for i, (what, c) in enumerate(zip(self.session.steps, self.session.special, strict=True)):
            if c["not_a_number"] or (c["infinite"] and i not in self.usual):
                return Finding(step, what.name, what.op, c["not_a_number"], c["infinite"])
        return None


def find(
    model: Model,
    graph: Graph | None,
    signature: str,
    values: Mapping[str, Array],
    step: int,
    count: int,
    batches: Iterable[Mapping[str, Array]],
) -> Finding | None:
    """values: the variables before training step `step`; batches: the feeds of it and of those that follow, `count` in all.
    Steps are exact repetitions: all randomness is in the variables. graph: what the model was before it was simplified,
    whose nodes have the names that its author knows. None when every result was finite."""
    probe, start = _Probe(model, signature), dict(values)
    first: Mapping[str, Array] = {}
    for i, feeds in enumerate(itertools.islice(batches, count)):
        before = probe.store.as_dict() if i else start
        probe.run(feeds, None if i else start)
        if i == 0 and count > 1:
            probe.accept()
            first = feeds
        found = probe.first(step + i)
        if found is not None:
            if graph is None:
                return found
            named = _Probe(Model(graph), signature)
            if i:
                named.run(first, start)
                named.accept()
            named.run(feeds, before)
            return named.first(step + i) or found
    return None


def bad_feed(feeds: Mapping[str, Array]) -> str:
    """What is wrong with a batch itself; "" when it is finite."""
    for name, value in feeds.items():
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            row = int(np.argwhere(~np.isfinite(value))[0][0]) if value.ndim else 0
            return f"the data is not finite: input '{name}' holds {value[~np.isfinite(value)][0]} in example {row} of the batch"
    return ""
