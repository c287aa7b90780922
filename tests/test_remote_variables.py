"""Variables that a host owns: their values go from the file to the host, and from the host into a checkpoint, without ever being
whole in the memory of the client."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import linnet
from tests.remote_counts import counted
from tests.remote_host import Host, host

ROWS, WIDTH = 100_000, 64
TABLE = 4 * ROWS * WIDTH  # bytes


def feeds(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"x": rng.integers(0, ROWS, 16).astype("i4"), "t": rng.integers(0, 4, 16).astype("i4")}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A large embedding table and a small classifier."""
    graph = linnet.Graph(seed=1)
    x, t = graph.placeholder("x", (16,), "i32"), graph.placeholder("t", (16,), "i32")
    table = graph.variable("table", np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype("f4"))
    loss = linnet.softmax_cross_entropy(linnet.nn.dense(linnet.ops.gather(table, x), 4), t).mean()
    graph.signature("train", {"x": x, "t": t}, {"loss": loss}, updates=linnet.SGD(0.1).minimize(loss))
    graph.signature("loss", {"x": x, "t": t}, {"loss": loss})
    path = tmp_path_factory.mktemp("table") / "table.lnt"
    graph.save(path)
    return str(path)


@pytest.fixture(scope="module")
def alone(model: str) -> linnet.Session:
    """The same four steps in this process."""
    session = linnet.Session(model, "train")
    for i in range(4):
        session.run(feeds(i))
    return session


CLIENT = """
import re, sys
from pathlib import Path
import linnet
from tests.test_remote_variables import feeds
def mine():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
model, device, checkpoint = sys.argv[1:]
session = linnet.Session(model, "train", devices=[device], placement={"*": device})
small = mine()
for i in range(2):
    session.run(feeds(i))
ran = mine()
session.variables.save(checkpoint)
saved = mine()
session.variables.load(checkpoint)
for i in range(2, 4):
    session.run(feeds(i))
session.variables.save(checkpoint)
print(ran - small, saved - small, mine() - small)
session.variables["table"]
print(mine() - small)
"""


def test_a_table_of_a_host_is_never_whole_here(model: str, alone: linnet.Session, tmp_path: Path) -> None:
    """Not when it goes to the host, in training steps, when it is saved, when a checkpoint is loaded; only when the program asks
    for it."""
    with host("127.0.0.1:0") as one:
        done = subprocess.run(
            [sys.executable, "-c", CLIENT, model, one.name, str(tmp_path / "there")],
            capture_output=True, text=True, check=True, timeout=120,
        )  # fmt: skip
    grown = [int(number) for number in done.stdout.split()]
    assert max(grown[:3]) < TABLE / 2 < TABLE <= grown[3], grown
    alone.variables.save(tmp_path / "here")
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()


def test_values_are_the_same_however_they_are_read(model: str, alone: linnet.Session, tmp_path: Path) -> None:
    """By a checkpoint, by another session of the store, which reads them here, and by the program; before and after a run."""
    with host("127.0.0.1:0") as one:
        session = linnet.Session(model, "train", **one.all)
        other = linnet.Session(session.model, "loss", store=session.variables)
        fresh = linnet.Session(model, "loss")
        assert other.run(feeds(9))["loss"] == fresh.run(feeds(9))["loss"]
        for i in range(4):
            session.run(feeds(i))
        session.variables.save(tmp_path / "a")
        loss = other.run(feeds(9))["loss"]
        again = linnet.Session(model, "loss")
        again.variables.load(tmp_path / "a")
        assert again.run(feeds(9))["loss"] == loss
        for name in alone.variables:
            assert np.array_equal(session.variables[name], alone.variables[name]), name


def test_a_host_that_dies_while_a_checkpoint_is_written(model: str, tmp_path: Path) -> None:
    """The error names the host, and the older checkpoint stays as it is."""
    one = Host("127.0.0.1:0")
    session = linnet.Session(model, "train", **one.all)
    session.run(feeds(0))
    session.variables.save(tmp_path / "a")
    before = (tmp_path / "a").read_bytes()
    session.run(feeds(1))
    one.process.kill()
    one.process.wait()
    with pytest.raises(linnet.DeviceError, match=one.address):
        session.variables.save(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    session.variables.load(tmp_path / "a")  # the value is still on this machine's disk
    again = linnet.Session(model, "train")
    again.run(feeds(0))
    assert np.array_equal(session.variables["table"], again.variables["table"])


def test_a_checkpoint_may_be_replaced_while_its_values_are_on_the_disk(model: str, tmp_path: Path) -> None:
    with host("127.0.0.1:0") as one:
        session = linnet.Session(model, "train", **one.all)
        session.run(feeds(0))
        session.variables.save(tmp_path / "a")
        session.run(feeds(1))
        session.variables.load(tmp_path / "a")
        session.variables["dense/bias"] = np.ones(4, "f4")
        session.variables.save(tmp_path / "a")
        expected = linnet.Session(model, "train")
        expected.run(feeds(0))
        expected.variables["dense/bias"] = np.ones(4, "f4")
        for name in expected.variables:
            assert np.array_equal(session.variables[name], expected.variables[name]), name


@pytest.mark.parametrize("source", ["second start", "file of the owner"])
def test_initial_values_do_not_travel_twice(model: str, tmp_path: Path, source: str) -> None:
    """A host with a folder gets each large value once, and not at all if a file in the folder has it."""
    if source == "file of the owner":
        (tmp_path / "mine.lnt").write_bytes(Path(model).read_bytes())
    losses = []
    with host("127.0.0.1:0", "--folder", str(tmp_path)) as one, counted(one.address) as counts:
        for start in range(2):
            session = linnet.Session(model, "train", devices=[counts.name], placement={"*": counts.name})
            losses.append([float(session.run(feeds(i))["loss"]) for i in range(2)])
            sizes = counts.by["HELLO"].sizes
            sent = sum(sizes[kind] for kind in ("SUBMIT", "RECIPE", "CONSTANT", "PIECE"))
            assert sent > TABLE if (start, source) == (0, "second start") else sent < 64 << 10, sizes
            del session
            counts.clear()
    here = linnet.Session(model, "train")
    assert losses[0] == losses[1] == [float(here.run(feeds(i))["loss"]) for i in range(2)]


def test_zeros_do_not_travel() -> None:
    """The slots of an optimizer begin with zeros, as a table may."""
    graph = linnet.Graph(seed=1)
    x, t = graph.placeholder("x", (16,), "i32"), graph.placeholder("t", (16,), "i32")
    table = graph.variable("table", np.zeros((ROWS, WIDTH), "f4"))
    loss = linnet.softmax_cross_entropy(linnet.nn.dense(linnet.ops.gather(table, x), 4), t).mean()
    graph.signature("train", {"x": x, "t": t}, {"loss": loss}, updates=linnet.Adam(0.1).minimize(loss))
    alone = linnet.Session(graph, "train")
    with host("127.0.0.1:0") as one, counted(one.address) as counts:
        session = linnet.Session(graph, "train", devices=[counts.name], placement={"*": counts.name})
        for i in range(3):
            assert session.run(feeds(i))["loss"] == alone.run(feeds(i))["loss"]
        assert counts.by["HELLO"].sizes["SUBMIT"] < 64 << 10
        assert np.array_equal(session.variables["table"], alone.variables["table"])


def test_a_host_with_little_memory_still_gets_initial_values(model: str, tmp_path: Path) -> None:
    """The message with a whole constant does not fit, so the value goes in parts."""
    here = linnet.Session(model, "loss")
    with host("127.0.0.1:0", "--folder", str(tmp_path), "--max-bytes", str(TABLE * 3 // 2)) as one:
        there = linnet.Session(model, "loss", **one.all)
        assert there.device_memory[0].own < TABLE / 100  # the piece works in the memory of the variable
        assert there.run(feeds(0))["loss"] == here.run(feeds(0))["loss"]
