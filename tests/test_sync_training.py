"""Workers in separate processes that are killed, on servers that are killed: training gives the same bits as in one process.
Several shards, remote tables, staleness, federated rounds; and a batch cut into pieces equals the whole batch."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import SGD, Adam, Momentum
from linnet.facade import Graph
from linnet.sync import Server, Worker, shard
from tests.native import ROOT
from tests.sync_reference import Arrays, Cluster
from tests.sync_worker_script import batch
from tests.test_sync_signatures import build, embedded, plain

Array = np.ndarray[Any, Any]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}


def feeds(graph: Graph, step: int, number: int) -> Arrays:
    inputs = graph.signatures["grad"].inputs + (graph.signatures["ids"].inputs if "ids" in graph.signatures else [])
    return {name: value for name, value in batch(step, number).items() if name in inputs}


def reference(worker: Graph, servers: Sequence[Graph], workers: int, steps: int) -> Cluster:
    """The same steps in one process."""
    cluster = Cluster(worker, servers, workers)
    for step in range(steps):
        cluster.step([feeds(worker, step, k) for k in range(workers)])
    return cluster


def start(model: Path, servers: Sequence[str], number: int, steps: int, pause: float = 0) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "tests.sync_worker_script",
        str(model),
        ",".join(servers),
        str(number),
        str(steps),
        str(pause),
    ]
    return subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)


@contextmanager
def ended(processes: list[subprocess.Popen[str]]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()


def finish(processes: Sequence[subprocess.Popen[str]], timeout: float = 120) -> None:
    for process in processes:
        assert process.wait(timeout) == 0


def threads(count: int, work: Callable[[int], None]) -> None:
    failures: list[BaseException] = []

    def run(k: int) -> None:
        try:
            work(k)
        except BaseException as failure:
            failures.append(failure)

    started = [threading.Thread(target=run, args=(k,)) for k in range(count)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join(120)
    if failures:
        raise failures[0]


def same(found: Any, cluster: Cluster, shard: int = 0) -> None:
    for name in found:
        np.testing.assert_array_equal(found[name], cluster.shards[shard][name], err_msg=name)


def test_killed_workers_change_nothing(tmp_path: Path) -> None:
    """kill -9 at random moments; a new process takes the number."""
    graph, steps, workers = build(plain, lambda: Adam(0.05)), 60, 3
    path = tmp_path / "model.lnt"
    graph.save(path)
    chance = random.Random(5)
    with Server(graph, workers=workers) as server:
        processes = [start(path, [server.address], k, steps, 0.01) for k in range(workers)]
        kills = 0
        with ended(processes):
            while server.status()["version"] < steps // 2 and kills < 6:
                time.sleep(chance.uniform(0.2, 0.7))
                k = chance.randrange(workers)
                processes[k].send_signal(signal.SIGKILL)
                processes[k].wait()
                processes[k] = start(path, [server.address], k, steps, 0.01)
                kills += 1
            finish(processes)
        assert kills >= 1 and server.status()["version"] == steps
        same(server.store, reference(graph, [graph], workers, steps))


def serve(model: Path, folder: Path, address: str, workers: int) -> tuple[subprocess.Popen[str], str]:
    command = [
        sys.executable, "-m", "linnet", "parameter-server", str(model), "--listen", address, "--workers", str(workers),
        "--folder", str(folder),
    ]  # fmt: skip
    process = subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    return process, process.stdout.readline().strip()


def test_a_killed_server_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    """The server is killed repeatedly and continues from its folder; workers find it at its address."""
    graph, steps, workers = build(plain, lambda: Adam(0.05)), 60, 2
    path, address = tmp_path / "model.lnt", f"unix:{tmp_path}/s"
    graph.save(path)
    chance = random.Random(3)
    server, _ = serve(path, tmp_path / "state", address, workers)
    processes = [server, *(start(path, [address], k, steps, 0.01) for k in range(workers))]
    with ended(processes):
        for _ in range(3):
            time.sleep(chance.uniform(0.3, 0.8))
            processes[0].send_signal(signal.SIGKILL)
            processes[0].wait()
            if processes[0].stdout:
                processes[0].stdout.close()
            processes[0], _ = serve(path, tmp_path / "state", address, workers)
        finish(processes[1:])
        processes[0].send_signal(signal.SIGTERM)
        assert processes[0].stdout and processes[0].stdout.read().strip() == f"stopped after {steps} updates"
        assert processes[0].wait(30) == 0
    with Server(path, folder=tmp_path / "state") as again:
        same(again.store, reference(graph, [graph], workers, steps))


@pytest.mark.parametrize("remote", [False, True])
def test_several_shards(remote: bool) -> None:
    """Groups on three servers, a table split by rows; in one case no worker has the table."""
    whole = build(embedded, lambda: Adam(0.05, lazy=True), remote=remote)
    parts, workers, steps = shard(whole, 3, split=["embedding/weight"]), 2, 6
    servers = [Server(graph, workers=workers) for graph in parts.servers]
    for server in servers:
        server.start()
    addresses = [server.address for server in servers]

    def work(k: int) -> None:
        order = addresses[k:] + addresses[:k]  # in any order
        with Worker(parts.worker.to_bytes(), order, number=k, timeout=60) as worker:
            assert ("embedding/weight" in worker.store) is not remote
            for step in range(steps):
                worker.step(feeds(parts.worker, step, k))

    try:
        threads(workers, work)
        cluster = reference(parts.worker, parts.servers, workers, steps)
        for number, server in enumerate(servers):
            assert server.status()["version"] == steps
            same(server.store, cluster, number)
    finally:
        for server in servers:
            server.stop()
            server.close()


def test_the_server_of_shard_0_gives_numbers() -> None:
    parts = shard(build(plain, lambda: Momentum(0.1)), 2)
    first, second = (Server(graph, workers=2) for graph in parts.servers)
    with (
        first,
        second,
        Worker(parts.worker, [second.address, first.address]) as a,
        Worker(parts.worker, [first.address, second.address]) as b,
    ):
        assert {a.info.worker, b.info.worker} == {0, 1}


def test_pieces_of_a_batch_are_the_whole_batch() -> None:
    """Four workers with a quarter each equal one process with the whole batch, within 1e-5."""
    graph, workers, steps = build(plain, lambda: Adam(0.01)), 4, 10
    with Server(graph, workers=workers) as server:

        def work(k: int) -> None:
            with Worker(graph.to_bytes(), server.address, number=k, timeout=60) as worker:
                for step in range(steps):
                    worker.step(feeds(graph, step, k))

        threads(workers, work)
        session = linnet.Session(graph, "train")
        for step in range(steps):
            parts = [feeds(graph, step, k) for k in range(workers)]
            session.run({name: np.concatenate([p[name] for p in parts]) for name in parts[0]})
        for name in server.store:
            np.testing.assert_allclose(server.store[name], session.variables[name], rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("staleness", [0, 2])
def test_bounded_staleness(staleness: int) -> None:
    """A worker is never more steps ahead of the slowest than allowed; all updates count."""
    graph, workers, steps = build(plain, lambda: SGD(0.01)), 3, 12
    ahead: list[int] = []
    done = [0] * workers
    with Server(graph, mode="asynchronous", workers=workers, staleness=staleness) as server:
        barrier = threading.Barrier(workers)

        def work(k: int) -> None:
            with Worker(graph.to_bytes(), server.address, number=k, timeout=60) as worker:
                while server.status()["members"] < workers:  # a worker that joins later starts at the others' step
                    time.sleep(0.002)
                barrier.wait(60)
                for step in range(steps):
                    ahead.append(step - min(done))
                    worker.step(feeds(graph, step, k))
                    done[k] = step + 1
                    if k == 0:
                        time.sleep(0.01)
                assert worker.info.applied == steps
                barrier.wait(60)

        threads(workers, work)
        assert server.status()["version"] == workers * steps
        # `done` of the slowest is written after its answer: one more step may be closed already.
        assert max(ahead) <= staleness + 1
        assert staleness == 0 or max(ahead) > 0


def test_federated_averaging() -> None:
    """Rounds of local steps, weighted by examples: the mean of the workers' results."""
    graph, workers, rounds = build(plain, lambda: SGD(1.0), local=SGD(0.1)), 2, 3
    sizes = [8, 4]

    def local(k: int, step: int) -> list[Arrays]:
        return [{n: v[: sizes[k]] for n, v in feeds(graph, 10 * step + i, k).items()} for i in range(2 + k)]

    with Server(graph, workers=workers) as server:

        def work(k: int) -> None:
            with Worker(graph.to_bytes(), server.address, number=k, keep_pulled=True, timeout=60) as worker:
                for step in range(rounds):
                    out = worker.round(local(k, step))
                    assert np.isfinite(out["loss"])

        threads(workers, work)
        model = linnet.Model(graph)
        value = {n: v for n, v in linnet.Store(model).as_dict().items() if n.startswith("dense")}
        weights = [16.0, 12.0]
        for step in range(rounds):
            came = []
            for k in range(workers):
                session = linnet.Session(model, "train")
                for name, v in value.items():
                    session.variables[name] = v
                for feed in local(k, step):
                    session.run(feed)
                came.append(session.variables.as_dict())
            value = {n: sum(w * c[n] for w, c in zip(weights, came, strict=True)) / sum(weights) for n in value}
        for name, v in value.items():
            np.testing.assert_allclose(server.store[name], v, rtol=1e-5, atol=1e-6, err_msg=name)
