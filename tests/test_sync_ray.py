"""linnet.ray on a real Ray cluster on this machine: placement, restarts of killed workers and servers, adding and removing
workers, and hosts."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet.sync import Cluster
from tests.test_remote import on, same, small

ray = pytest.importorskip("ray", reason="needs pip install 'linnet-runtime[ray]'")
pytestmark = pytest.mark.soak

SHARE = {"cpus": 0.25, "server_cpus": 0.25}


@pytest.fixture(scope="module", autouse=True)
def ray_cluster() -> Iterator[None]:
    os.environ["RAY_AUTH_MODE"] = "disabled"
    ray.init(
        num_cpus=2, include_dashboard=False, object_store_memory=80 << 20, log_to_driver=False, configure_logging=False,
        runtime_env={"env_vars": {"LINNET_HOST": "127.0.0.1"}},
    )  # fmt: skip
    yield
    ray.shutdown()


def run(function: Any, **settings: Any) -> list[Any]:
    import linnet.ray

    return linnet.ray.run(function, timeout=120, **{**SHARE, **settings})


def where(cluster: Cluster) -> tuple[Any, ...]:
    return cluster.role, cluster.rank, cluster.world_size, cluster.servers, cluster.address, cluster.key_file != ""


def test_places() -> None:
    found = run(where, workers=3, servers=2)
    assert [f[:3] for f in found] == [("worker", r, 3) for r in range(3)]
    assert len({f[3] for f in found}) == 1 and len(found[0][3]) == 2 and all(a.startswith("unix:") for a in found[0][3])
    assert [f[4] for f in found] == [None] * 3 and not any(f[5] for f in found)
    hosted = run(where, workers=2)
    assert hosted[0][4] == hosted[0][3][0] == hosted[1][3][0] and hosted[1][4] is None
    spread = run(where, workers=2, servers=1, local=False)  # as between machines
    assert all(f[3][0].startswith("127.0.0.1:") and f[5] for f in spread)


def test_what_is_refused() -> None:
    with pytest.raises(linnet.ResourceError, match="5 CPUs"):
        run(where, workers=5, cpus=1, room_within=1)
    for wrong in ({"workers": 0}, {"workers": 1, "placement": "NEAR"}, {"workers": 1, "max_restarts": -1}):
        with pytest.raises(linnet.UsageError):
            run(where, **wrong)


def test_an_exception_is_the_caller_s() -> None:
    def fails(cluster: Cluster) -> None:
        raise linnet.UsageError("no data here") if cluster.rank else ZeroDivisionError("zero")

    with pytest.raises((ZeroDivisionError, linnet.UsageError)):
        run(fails, workers=2)
    with pytest.raises(linnet.SyncError, match="lost"):
        run(lambda cluster: os._exit(1), workers=1, max_restarts=1)


def test_a_process_that_dies_comes_back_with_its_rank(tmp_path: Path) -> None:
    def dies_twice(cluster: Cluster) -> int:
        place = tmp_path / str(cluster.rank)
        place.write_text(place.read_text() + "x" if place.exists() else "x")
        if cluster.rank == 1 and len(place.read_text()) < 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return len(place.read_text())

    assert run(dies_twice, workers=2, max_restarts=2) == [1, 3]


@pytest.mark.parametrize("local", [None, False])  # False: as between machines
def test_hosts(local: bool | None) -> None:
    import linnet.ray

    feeds = {"x": np.ones((8, 64), np.float32)}
    with linnet.ray.Hosts(2, options=("--threads", "1"), cpus=0.25, local=local) as hosts:
        one, two = (name.partition(",")[0] for name in hosts.names)
        session = linnet.Session(small(), threads=1, devices=hosts.names, placement={"matmul": one, "*": two})
        assert same(session.run(feeds), linnet.Session(small(), threads=1).run(feeds)) and on(session, one) > 0
    with pytest.raises(linnet.Error):
        linnet.Session(small(32), devices=[one])
    with pytest.raises(linnet.SyncError, match="did not start"):
        linnet.ray.Hosts(1, options=("--wrong",), cpus=0.25)


STEPS = 150


def adding(folder: Path, steps: int, elastic: bool = False) -> Any:
    """A function for a job: each step subtracts the mean of the workers' numbers (rank + 1) from `w`. Files record the
    processes: their ids, and the steps that the workers have made."""
    graph = linnet.Graph(seed=0)
    x, w = graph.placeholder("x", ("batch",)), graph.variable("w", np.zeros(1, np.float32))
    linnet.sync.signatures(graph, (w * x).mean(), linnet.SGD(1.0), {"x": x})
    model = folder / "adding.lnt"
    graph.save(model)

    def function(cluster: Cluster) -> Any:
        (folder / f"{cluster.role}{cluster.rank}.pid").write_text(str(os.getpid()))
        link = linnet.sync.Link(key_file=cluster.key_file or None, heartbeat=0.2, lease=1.0)
        if cluster.role == "server":
            settings = {"workers": cluster.world_size, "elastic": elastic, "folder": folder / "state", "link": link}
            with linnet.sync.Server(model, listen=str(cluster.address), **settings):
                while not (folder / "done").exists():
                    time.sleep(0.05)
            return None
        seen = set()
        with linnet.sync.Worker(model, cluster.servers, number=cluster.rank, link=link, threads=1) as worker:
            while worker.info.step < steps and not (folder / "done").exists():
                worker.step({"x": np.full(1, cluster.rank + 1, np.float32)})
                (folder / f"{cluster.rank}.step").write_text(str(worker.info.step))
                seen.add(worker.info.members)
                time.sleep(0.01)
            worker.pull()
            result = float(worker.store["w"][0])
        return result, seen

    return function


def step_of(folder: Path, rank: int) -> int:
    """-1: no step yet, or it is writing."""
    path = folder / f"{rank}.step"
    text = path.read_text() if path.exists() else ""
    return int(text) if text else -1


def until_step(folder: Path, rank: int, step: int) -> None:
    end = time.monotonic() + 60
    while step_of(folder, rank) < step:
        assert time.monotonic() < end, f"worker {rank} is not at step {step}"
        time.sleep(0.01)


@pytest.mark.parametrize("local", [True, False])
def test_training_goes_on_when_workers_and_servers_are_killed(tmp_path: Path, local: bool) -> None:
    """Every step counts exactly once: only then is the sum right."""
    import linnet.ray

    with linnet.ray.Job(adding(tmp_path, STEPS), workers=2, servers=1, local=local, **SHARE) as job:
        for step, victim in ((30, "worker1"), (60, "server0"), (90, "worker0"), (110, "server0")):
            until_step(tmp_path, 1, step)
            os.kill(int((tmp_path / f"{victim}.pid").read_text()), signal.SIGKILL)
        until_step(tmp_path, 0, STEPS)
        until_step(tmp_path, 1, STEPS)
        (tmp_path / "done").touch()
        assert [result for result, _ in job.wait(60)] == [-1.5 * STEPS] * 2


def test_workers_are_added_and_taken_away(tmp_path: Path) -> None:
    import linnet.ray

    with linnet.ray.Job(adding(tmp_path, 10**6, elastic=True), workers=1, servers=1, **SHARE) as job:
        until_step(tmp_path, 0, 10)
        job.scale(3)
        until_step(tmp_path, 2, 20)
        assert job.workers == 3
        job.scale(1)
        until_step(tmp_path, 0, max(step_of(tmp_path, 0), 100) + 150)
        (tmp_path / "done").touch()
        ((_, seen),) = job.wait(60)
        assert {1, 3} <= seen
