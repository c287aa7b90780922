"""linnet.ray on a real Ray cluster of this machine: places, restarts of workers and servers that are killed, and
adding and taking away workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import linnet
from linnet.sync import Cluster

ray = pytest.importorskip("ray", reason="needs pip install linnet[ray]")
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
