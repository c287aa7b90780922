"""A server over sockets computes what the reference does in one process, bit for bit; what it keeps in its folder outlives it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from linnet import Adam, Momentum
from linnet.graph import Graph
from linnet.sync.server import Server
from linnet.sync.worker import Worker
from tests.sync_reference import Arrays, Cluster
from tests.test_sync_signatures import batches, build, dense, embedded, named, plain

STEPS = 5
MODELS: dict[str, Callable[[], Graph]] = {
    "plain": lambda: build(plain, lambda: Adam(0.05)),
    "averages": lambda: build(dense, lambda: Momentum(0.1)),
    "rows": lambda: build(embedded, lambda: Adam(0.05, lazy=True)),
    "remote": lambda: build(embedded, lambda: Adam(0.05, lazy=True), remote=True),
}


def together(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Runs work(0), work(1), ... in threads; raises what one raised."""
    results: list[Any] = [None] * count
    failures: list[BaseException] = []

    def run(k: int) -> None:
        try:
            results[k] = work(k)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


def feed(graph: Graph, step: int, worker: int, workers: int) -> Arrays:
    made = batches(8)
    return named(
        graph, made[(step * workers + worker) % len(made)], "grad" if "ids" not in graph.signatures else "train"
    )


def train(graph: Graph, address: str | Sequence[str], worker: int, workers: int, steps: int = STEPS) -> list[float]:
    data = graph.to_bytes()
    with Worker(data, address, number=worker, timeout=30) as made:
        losses = [float(made.step(feed(graph, i, worker, workers), weight=1.0)["loss"]) for i in range(steps)]
        assert made.info.applied == steps and made.info.step == steps
        return losses


def values(server: Server) -> Arrays:
    return {spec.name: server.store[spec.name] for spec in server.model.variables}


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_steps_are_those_of_the_reference(name: str, workers: int) -> None:
    graph = MODELS[name]()
    reference = Cluster(graph, [graph], workers)
    expected = [reference.step([feed(graph, i, k, workers) for k in range(workers)]) for i in range(STEPS)]
    with Server(graph, workers=workers) as server:
        losses = together(workers, lambda k: train(graph, server.address, k, workers))
        for k in range(workers):
            assert losses[k] == [step[k] for step in expected]
        for variable in reference.trained:
            np.testing.assert_array_equal(server.store[variable], reference.value(variable), err_msg=variable)
        status = server.status()
    assert status["version"] == STEPS and status["applied"] == STEPS * workers and status["late"] == 0
