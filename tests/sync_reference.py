"""A reference for workers and servers in plain NumPy: how rows add up, how pushes become one gradient, and a step of several
workers and one server, as sessions in one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import linnet
from linnet.sync import contract

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]


def summed(ids: Array, rows: Array) -> tuple[Array, Array]:
    """Adds rows with the same number in their order, from zero; the numbers ascend."""
    unique, place = np.unique(ids, return_inverse=True)
    total = np.zeros((len(unique), *rows.shape[1:]), rows.dtype)
    for i, row in zip(place.reshape(-1), rows, strict=True):
        total[i] += row
    return unique, total


def as_pulled(value: Array, compression: str, elements: int | None = None) -> Array:
    """What a worker has after a pull as "f16" or "bf16". elements: of the whole tensor, if `value` is a part of it."""
    if compression == "none" or value.dtype != np.float32 or not value.ndim or (elements or value.size) < 1024:
        return value
    if compression == "f16":
        return np.clip(value, -65504, 65504).astype(np.float16).astype(np.float32)
    bits = value.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def ready(outputs: Mapping[str, Array]) -> Arrays:
    """A worker's push, from the outputs of `grad`: gradients, with repeated rows added up."""
    pushed = {name: value for name, value in outputs.items() if name.startswith(contract.GRADIENT)}
    for name in [name for name in pushed if name.endswith("/ids")]:
        rows = name.removesuffix("/ids") + "/rows"
        pushed[name], pushed[rows] = summed(pushed[name], pushed[rows])
    return pushed


def aggregated(pushes: Sequence[Mapping[str, Array]], weights: Sequence[float] | None = None) -> Arrays:
    """A server's feeds for `update/all`: the mean of the pushes, in the order of workers.

    weights: number of examples of each push; equal weights are left out of the arithmetic."""
    if weights is not None and len(set(weights)) == 1:
        weights = None
    made: Arrays = {}

    def mean(total: Array) -> Array:
        divisor = len(pushes) if weights is None else sum(weights)
        return np.asarray(total / total.dtype.type(divisor))

    def share(k: int, value: Array) -> Array:
        return value if weights is None else np.asarray(value.dtype.type(weights[k]) * value)

    for name in pushes[0]:
        if name.endswith("/ids"):
            rows = name.removesuffix("/ids") + "/rows"
            ids = np.concatenate([p[name] for p in pushes])
            made[name], total = summed(ids, np.concatenate([share(k, p[rows]) for k, p in enumerate(pushes)]))
            made[rows] = mean(total)
        elif not name.endswith("/rows"):
            total = np.zeros_like(pushes[0][name])
            for k, push in enumerate(pushes):
                total = total + share(k, push[name])
            made[name] = mean(total)
    return made


class Cluster:
    """Workers and one server in one process, with a store each and reference steps. `servers`: one server file each.
    pull_as: how values reach the workers."""

    def __init__(
        self, worker: linnet.Graph, servers: Sequence[linnet.Graph], workers: int = 1, pull_as: str = "none"
    ) -> None:
        self.metadata, self.pull_as = worker.metadata, pull_as
        model = linnet.Model(worker)
        self.stores = [linnet.Store(model) for _ in range(workers)]
        self.grads = [linnet.Session(model, contract.GRAD, store=store) for store in self.stores]
        self.ids = (
            linnet.Session(model, contract.IDS, store=self.stores[0]) if contract.IDS in model.signatures else None
        )
        self.models = [linnet.Model(graph) for graph in servers]
        self.shards = [linnet.Store(m) for m in self.models]
        self.updates = [
            linnet.Session(m, contract.UPDATE, store=s) if contract.UPDATE in m.signatures else None
            for m, s in zip(self.models, self.shards, strict=True)
        ]
        self.metadatas = [graph.metadata for graph in servers]
        gradients = [o.name for o in self.grads[0].outputs if o.name.startswith(contract.GRADIENT)]
        self.trained = list(dict.fromkeys(contract.variable_of(name) for name in gradients))
        self.remote = contract.names_in(self.metadata, contract.REMOTE)

    def value(self, name: str) -> Array:
        """The value of a variable, from the stores of its servers."""
        holders = [(m, s[name]) for m, s in zip(self.metadatas, self.shards, strict=True) if name in s]
        if contract.FIRST_ROW + name in holders[0][0]:
            return np.concatenate([v for _, v in sorted(holders, key=lambda h: int(h[0][contract.FIRST_ROW + name]))])
        assert all((value == holders[0][1]).all() for _, value in holders), f"servers differ in {name}"
        return holders[0][1]

    def step(self, batches: Sequence[Mapping[str, Array]], weights: Sequence[float] | None = None) -> list[float]:
        """Runs one synchronous step, with a batch per worker. Returns their losses."""
        averaged = contract.names_in(self.metadata, contract.AVERAGE)
        pulled = [*self.trained, *averaged, *contract.names_in(self.metadata, contract.READ)]
        values = {name: self.value(name) for name in pulled if name not in self.remote}
        values |= {name: as_pulled(values[name], self.pull_as) for name in self.trained if name in values}
        pushes, averages, losses = [], [], []
        for store, grad, batch in zip(self.stores, self.grads, batches, strict=True):
            for name, value in values.items():
                store[name] = value
            feeds = dict(batch)
            if self.ids is not None:
                wanted = self.ids.run({spec.name: batch[spec.name] for spec in self.ids.inputs})
                for name, ids in wanted.items():
                    table = name.removesuffix("/ids")
                    whole = self.value(table.removeprefix(contract.ROWS))
                    feeds[table] = as_pulled(whole[ids], self.pull_as, whole.size)
            outputs = grad.run(feeds)
            losses.append(float(outputs["loss"]))
            pushes.append(ready(outputs))
            averages.append({name: store[name] for name in averaged})
        total = aggregated(pushes, weights)
        for session, store, metadata in zip(self.updates, self.shards, self.metadatas, strict=True):
            if session is not None:
                session.run(_part(total, session, store, metadata))
        for name, value in (aggregated(averages, weights) if averaged else {}).items():
            for store in self.shards:
                if name in store:
                    store[name] = value
        return losses


def _part(total: Mapping[str, Array], session: Any, store: Any, metadata: Mapping[str, str]) -> Arrays:
    """The gradients for a server's file, with only its own rows of split tables."""
    feeds: Arrays = {}
    for spec in session.inputs:
        name, value = spec.name, total[spec.name]
        variable = contract.variable_of(name)
        first = metadata.get(contract.FIRST_ROW + variable)
        if first is not None:
            start, count = int(first), len(store[variable])
            if name.endswith(("/ids", "/rows")):
                ids = total[f"{contract.GRADIENT}{variable}/ids"]
                own = (ids >= start) & (ids < start + count)
                value = ids[own] - start if name.endswith("/ids") else value[own]
            else:
                value = value[start : start + count]
        feeds[name] = value
    return feeds
