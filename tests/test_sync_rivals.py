"""Two processes with one worker number: the second says that it waits and for whom, `linnet top` shows it, and it takes the
number when the first has left."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import linnet
from linnet import nn
from linnet.sync import Server, Worker, dashboard


@pytest.fixture
def model(tmp_path: Path) -> Path:
    graph = linnet.Graph(seed=1)
    x, t = graph.placeholder("x", ("batch", 4)), graph.placeholder("t", ("batch",), "i32")
    loss = linnet.softmax_cross_entropy(nn.dense(x, 3), t).mean()
    linnet.sync.signatures(graph, loss, linnet.SGD(0.1), {"x": x, "t": t})
    graph.save(tmp_path / "model.lnt")
    np.savez(tmp_path / "data.npz", x=np.ones((8, 4), np.float32), t=np.zeros(8, np.int32))
    return tmp_path / "model.lnt"


def shown(server: Server) -> str:
    console = Console(width=200, record=True, file=open("/dev/null", "w"), highlight=False)  # noqa: SIM115
    console.print(dashboard.view([server.status()]))
    return console.export_text()


def test_the_second_waits_says_so_and_then_takes_the_number(model: Path) -> None:
    told: list[str] = []
    refused = threading.Event()

    def log(text: str) -> None:
        told.append(text)
        refused.set()

    found: list[int] = []

    def second() -> None:
        with Worker(model, server.address, number=0, lost=60, log=log) as worker:
            worker.pull()
            found.append(worker.info.worker)

    with Server(model) as server:
        address = server.address
        first = Worker(model, server.address, number=0, log=told.append)
        assert not told and "waits for this number" not in shown(server)
        thread = threading.Thread(target=second, daemon=True)
        thread.start()
        assert refused.wait(60)
        (entry,) = server.status()["workers"]
        assert entry["rivals"] >= 1 and entry["rival"] != entry["peer"] and entry["rival_s"] < 30
        assert f"computing; {entry['rival']} waits for this number" in shown(server)
        first.close()
        thread.join(60)
        assert found == [0]
    assert len(told) == 1, "each reason once"
    assert told[0].startswith(f"the worker waits for the server {address}, for at most 60 s: ")
    assert "worker 0 is already connected from 127.0.0.1:" in told[0] and "its own number" in told[0]


def test_by_default_it_is_a_warning_and_then_an_error(model: Path) -> None:
    with Server(model) as server, Worker(model, server.address, number=3):
        with (
            pytest.warns(UserWarning, match="worker 3 is already connected"),
            pytest.raises(linnet.SyncError, match=r"worker 3 is already connected from .*; end the other process"),
        ):
            Worker(model, server.address, number=3, lost=0.3)
        with Worker(model, server.address) as other:  # the server chooses another number
            assert other.info.worker == 0


def test_the_command_prints_a_note(model: Path) -> None:
    with Server(model) as server, Worker(model, server.address, number=0):
        done = subprocess.run(
            [sys.executable, "-m", "linnet", "worker", str(model), server.address, "--number", "0", "--steps", "1",
             "--data", str(model.parent / "data.npz"), "--lost", "0.5", "--json"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 1 and not done.stdout
        note, error = done.stderr.splitlines()
        assert (
            note.startswith("linnet: note: the worker waits for the server") and "worker 0 is already connected" in note
        )
        assert "worker 0 is already connected" in error
        assert json.dumps(server.status()["workers"][0]["rivals"]) != "0"


def test_an_old_rival_is_not_shown() -> None:
    """A server's report without these fields, from an older version, is shown too."""
    from tests.test_sync_dashboard import report, text, worker

    late = worker(0, rivals=3, rival="10.0.0.9:77", rival_s=31.0)
    now = worker(0, rivals=3, rival="10.0.0.9:77", rival_s=2.0)
    assert "10.0.0.9:77" not in text([report([late])]) and "10.0.0.9:77" not in text([report([worker(0)])])
    assert "10.0.0.9:77 waits for this number" in text([report([now])])
