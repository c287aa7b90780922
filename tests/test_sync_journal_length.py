"""The contents of a server's folder: a journal that a snapshot shortens, an epoch above all earlier ones, settings in range."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from linnet import SGD
from linnet.clib.errors import Error
from linnet.facade import Graph
from linnet.sync import Link, Server, Worker
from tests.test_sync_server import feed
from tests.test_sync_signatures import build, plain


@pytest.fixture(scope="module")
def graph() -> Graph:
    return build(plain, lambda: SGD(0.1))


def test_a_snapshot_makes_the_journal_short(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "job" / "journal"
    with Server(graph, folder=path.parent) as server, Worker(graph, server.address, number=0, timeout=30) as worker:
        empty = path.stat().st_size
        for i in range(3):
            worker.step(feed(graph, i, 0, 1), weight=1.0)
        assert path.stat().st_size > empty
        server.save()
        assert path.stat().st_size == empty
        worker.step(feed(graph, 3, 0, 1), weight=1.0)
    with Server(graph, folder=path.parent) as server:
        assert server.status()["version"] == 4


def test_epochs_rise_whatever_the_clock_says(graph: Graph, tmp_path: Path) -> None:
    epoch = tmp_path / "job" / "epoch"
    Server(graph, folder=tmp_path / "job").close()
    first = int(epoch.read_text())
    assert abs(first / 1000 - time.time()) < 100  # milliseconds
    ahead = first + 10**9  # from a clock that was eleven days fast
    epoch.write_text(f"{ahead}\n")
    for expected in (ahead + 1, ahead + 2):
        Server(graph, folder=tmp_path / "job").close()
        assert int(epoch.read_text()) == expected


@pytest.mark.parametrize("chunk", [1, 4095, (4 << 20) + 1])
def test_chunks_have_a_range(chunk: int, graph: Graph) -> None:
    with Server(graph) as server, pytest.raises(Error, match="chunk"):
        Worker(graph, server.address, number=0, timeout=10, link=Link(chunk=chunk)).close()
