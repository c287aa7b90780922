"""Finds where a non-finite loss came from. It repeats the steps since the last good values and counts NaN and infinity
after every op, until an op produces the first one."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import Error
from linnet.facade import Graph
from linnet.ir.dtypes import has_floats
from linnet.ir.function import functions_of
from linnet.ir.graph import nodes_behind
from linnet.session.model import Model, Store

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True)
class Finding:
    """The first op with a non-finite result. name: name of the node. tensor: its first output."""

    step: int
    name: str
    op: str
    not_a_number: int
    infinite: int


class _Probe:
    """A session with its own store, which counts non-finite values."""

    def __init__(self, model: Model, signature: str) -> None:
        from linnet.session.session import Session

        self.store = Store(model)
        self.session = Session(model, signature, store=self.store, count_special=True)
        self.usual: set[int] = set()  # steps of the plan that produce infinity in normal operation, such as masks

    def run(self, feeds: Mapping[str, Array], values: Mapping[str, Array] | None = None) -> None:
        for name, value in (values or {}).items():
            self.store[name] = value
        self.session.run(feeds)

    def accept(self) -> None:
        """Treats the current infinities as normal from now on, unless there is a NaN."""
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
    """values: the variables before training step `step`. batches: the feeds of that step and the following ones,
    `count` in all. The repeated steps are exactly the same, because all randomness comes from variables. graph: the
    graph of the model before fusion. Returns None if every result is finite."""
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
            exact = _unfused(graph, signature, found.name) if graph is not None else None
            if exact is None:
                return found
            if i:
                exact.run(first, start)
                exact.accept()
            exact.run(feeds, before)
            return exact.first(step + i) or found
    return None


def _unfused(graph: Graph, signature: str, name: str) -> _Probe | None:
    """A probe that runs the unfused nodes on which a node of the signature depends. The graph's `main` function still
    has all of them."""
    main, entry = graph.main, graph.signatures[signature]
    node = next((n for n in main.nodes if name in (n.name, n.outputs[0].name)), None)
    names = {t.name: name for t, name in zip(entry.function.inputs, entry.inputs, strict=True)}
    inputs = [t for t in main.inputs if t.name in names]
    if node is None:
        return None
    try:
        scratch = Graph()
        scratch.user_ops = graph.user_ops
        scratch.variables = {n: dataclasses.replace(v, graph=scratch) for n, v in graph.variables.items()}
        function = scratch.function("part")
        function.fill(main, None, inputs, node.outputs[:1], nodes_behind(main, inputs, node.outputs[:1], "part"))
        if list(functions_of(function)):  # loops keep their own nodes
            return None
        scratch.signature("part", function, [names[t.name] for t in inputs])
        return _Probe(Model(scratch), "part")
    except Error:
        return None


def bad_feed(feeds: Mapping[str, Array]) -> str:
    """Describes what is wrong with the batch. Returns "" if all its values are finite."""
    for name, value in feeds.items():
        if has_floats(value) and not np.isfinite(value).all():
            row = int(np.argwhere(~np.isfinite(value))[0][0]) if value.ndim else 0
            return (
                f"the data is not finite: input '{name}' contains {value[~np.isfinite(value)][0]} in example "
                f"{row} of the batch"
            )
    return ""
