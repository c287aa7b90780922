"""Measures what a linnet server costs on this machine, over loopback. The results are the figures of `Hardware` for
simulations."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from linnet.builder import ops
from linnet.facade import Graph
from linnet.optimizers import SGD
from linnet.sync.contract import signatures
from linnet.sync.server import Server
from linnet.sync.worker import Worker, WorkerInfo

_SMALL, _LARGE = 1 << 22, 1 << 25  # bytes of the variable; costs per byte are the slope between these two sizes


def costs(steps: int = 30) -> dict[str, float]:
    """The costs in seconds that Hardware takes: message, receive, send, aggregate, apply (SGD) and row of a server's
    thread, and worker_message. Each is the median of `steps` steps. One or two workers run in this process. Bytes pass
    through loopback, and both sides share the machine's cores, so receive and send include the worker's side."""
    tiny = _times(_dense(64), 1, steps)
    small, large = (_times(_dense(size), 1, steps) for size in (_SMALL, _LARGE))
    pair = [_times(_dense(size), 2, steps) for size in (_SMALL, _LARGE)]
    few, many = (_times(_sparse(count), 1, steps) for count in (64, 4096))

    def slope(of: Callable[[dict[str, float]], float]) -> float:
        return max(of(large) - of(small), 0.0) / (_LARGE - _SMALL)

    one = slope(lambda t: t["update"])
    both = max(pair[1]["update"] - pair[0]["update"], 0.0) / (_LARGE - _SMALL)
    aggregate = max(both - one, 0.0)
    row = max(many["step"] - few["step"], 0.0) / (4096 - 64)
    return {
        "message": tiny["step"] / 4,  # two messages at the server and two at the worker, at equal cost
        "worker_message": tiny["step"] / 4,
        "receive": slope(lambda t: t["push"]),
        "send": slope(lambda t: t["rest"]),
        "aggregate": aggregate,
        "apply": max(one - aggregate, 0.0),
        "row": row / 2,  # once when it is updated, once when it is looked up
    }


def _dense(size: int) -> Graph:
    graph = Graph()
    x = graph.placeholder("x", (1,))
    w = graph.variable("w", np.zeros(size // 4, np.float32), copy=False)
    signatures(graph, (w.tensor(x) * x).sum(), SGD(0.1), {"x": x})
    return graph


def _sparse(rows: int) -> Graph:
    graph = Graph()
    x = graph.placeholder("x", (rows,), "i64")
    table = graph.variable("table", np.zeros((1 << 16, 16), np.float32), copy=False)
    loss = ops.gather(table.tensor(x), x).sum()
    signatures(graph, loss, SGD(0.1), {"x": x}, remote=[table])
    return graph


def _feeds(graph: Graph) -> dict[str, Any]:
    spec = graph.signatures["grad"].function.inputs[0]
    count = int(spec.shape[0] or 1) if spec.shape else 1
    if spec.dtype == "i64":
        return {"x": np.random.default_rng(0).permutation(1 << 16)[:count].astype(np.int64)}
    return {"x": np.ones(count, np.float32)}


def _times(graph: Graph, workers: int, steps: int) -> dict[str, float]:
    """Median seconds of a step of worker 0, without computing: the whole step (step), the time until its last byte was
    sent (push), the update on the server (update), and the rest of the wait (rest)."""
    found: list[WorkerInfo] = []
    feeds = _feeds(graph)

    def work(number: int) -> None:
        with Worker(graph, server.address, number=number, timeout=60) as worker:
            for _ in range(steps + 2):
                worker.step(feeds)
                if number == 0:
                    found.append(worker.info)

    with Server(graph, workers=workers) as server:
        others = [threading.Thread(target=work, args=(k,)) for k in range(1, workers)]
        for thread in others:
            thread.start()
        work(0)
        for thread in others:
            thread.join()
    steady = found[2:]
    update = [info.links[0].clock[3] - info.links[0].clock[2] for info in steady]
    return {
        "step": float(np.median([info.push + info.wait for info in steady])),
        "push": float(np.median([info.push for info in steady])),
        "update": float(np.median(update)),
        "rest": float(np.median([info.wait - u for info, u in zip(steady, update, strict=True)])),
    }
