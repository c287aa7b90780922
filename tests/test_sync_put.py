"""PUT: a client sets a variable at its servers. Who may, what is checked, when steps and workers see it, that it survives kill -9
and counts once."""

from __future__ import annotations

import contextlib
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import Adam, ops
from linnet.cli.sync_key import write_key
from linnet.clib.errors import SyncError, UsageError
from linnet.facade import Graph
from linnet.sync import Link, Server, Worker
from tests.sync_document_client import Client, Refused
from tests.sync_reference import Array, Cluster
from tests.test_sync_client import job_of, model
from tests.test_sync_server import Process, feed, together
from tests.test_sync_signatures import build, dense, embedded, plain


@pytest.fixture(scope="module")
def graph() -> Graph:
    return build(plain, lambda: Adam(0.05))


def writer(graph: Graph | bytes, address: str | list[str], **options: Any) -> Worker:
    return Worker(graph, address, writer=True, timeout=30, **options)


def same(server: Server, reference: Cluster) -> None:
    for name in reference.shards[0]:
        np.testing.assert_array_equal(server.store[name], reference.shards[0][name], err_msg=name)


@pytest.mark.parametrize("member", [False, True])
def test_a_put_lies_between_two_steps(member: bool, graph: Graph) -> None:
    """The next gradients are those of the new value, and Adam keeps its moments."""
    reference = Cluster(graph, [graph], 1)
    value = np.random.default_rng(1).standard_normal((6, 7)).astype(np.float32)
    with Server(graph) as server, Worker(graph, server.address, number=0, timeout=30) as worker:
        for i in range(4):
            if i == 2:
                if member:
                    worker.put("dense/weight", value)
                else:
                    with writer(graph, server.address) as other:
                        other.put("dense/weight", value.astype(np.float64))
                        assert server.status()["members"] == 1
                        other.pull()
                        np.testing.assert_array_equal(other.store["dense/weight"], value)
                np.testing.assert_array_equal(server.store["dense/weight"], value)
                reference.shards[0]["dense/weight"] = value
            loss = worker.step(feed(graph, i, 0, 1), weight=1.0)["loss"]
            # A worker that has put pulls before its next step. Another one has got the old values with its last answer.
            if i < 2 or member:
                assert [float(loss)] == reference.step([feed(graph, i, 0, 1)])
            elif i == 2:
                break
        if member:
            same(server, reference)
        status = server.status()
    assert status["puts"] == 1 and status["version"] == (5 if member else 4)


def test_gradients_on_their_way_are_applied_to_the_new_value() -> None:
    """A member has pushed, the other has not: the put comes between, and the step is made of both."""
    with Server(model(), workers=2) as server:
        first, second = (Client(server.address, job_of(server)) for _ in range(2))
        gradient = np.full(3000, 3, np.float32)
        for client in (first, second):
            client.connect()
            client.pull()
        first.push(0, {"w": gradient, "scale": np.float32(1)})
        with writer(model(), server.address) as other:
            other.put("w", np.full(3000, 10, np.float32))
        second.push(0, {"w": gradient, "scale": np.float32(1)})
        assert first.answer()["outcome"] == second.answer()["outcome"] == 0
        for value in (server.store["w"], first.named("w").value, second.named("w").value):
            assert value is not None and (value == 10 - 0.25 * 3).all()
        first.leave()
        second.leave()


def test_averages_and_tables() -> None:
    graph = build(dense, lambda: Adam(0.05))
    with Server(graph) as server, writer(graph, server.address) as other:
        other.put("batch_norm/mean", np.arange(7))
        np.testing.assert_array_equal(server.store["batch_norm/mean"], np.arange(7, dtype=np.float32))
    graph = build(embedded, lambda: Adam(0.05, lazy=True), remote=True)
    parts = linnet.sync.shard(graph, 2)
    table = np.random.default_rng(2).standard_normal((30, 4)).astype(np.float32)
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(Server(part)) for part in parts.servers]
        addresses = [server.address for server in servers]
        other = stack.enter_context(writer(graph, addresses))
        other.put("embedding/weight", table)
        other.put("dense/bias", np.zeros(4, np.float32))
        worker = stack.enter_context(Worker(parts.worker, addresses, timeout=30))
        np.testing.assert_array_equal(worker.pull_rows("embedding/weight", np.arange(30)), table)
        with pytest.raises(UsageError, match="open the job's whole file"):
            worker.put("embedding/weight", table)


def test_what_is_refused(graph: Graph) -> None:
    with Server(graph) as server, writer(graph, server.address) as other:
        good = np.zeros((6, 7), np.float32)
        for name, value, words in (
            ("dense/wieght", good, "no variable of this name"),
            ("dense/weight", good.T, "wrong shape"),
            ("dense/weight", good.astype(np.complex64), "wrong dtype"),
            ("dense/weight", np.full((6, 7), "x"), "wrong dtype"),
            ("dense/weight", good * np.nan, "NaN or infinity"),
            ("dense/weight", np.full((6, 7), 1e300), "NaN or infinity"),
            ("dense/weight/adam/m", good, "state of the optimizer stays"),
        ):
            with pytest.raises(UsageError, match=words):
                other.put(name, value)
        assert server.status()["version"] == 0
    graph = build(plain, lambda: Adam(0.1, loss_scale=linnet.DynamicLossScale(1024.0, interval=2)))
    with Server(graph) as server, writer(graph, server.address) as other:
        scale = next(name for name in graph.variables if "scale" in name and graph.variables[name].value.size == 1)
        with pytest.raises(UsageError, match=r"only the servers' update|state of the optimizer"):
            other.put(scale, graph.variables[scale].value)


def test_rights(graph: Graph, tmp_path: Path) -> None:
    """PUT needs what a push needs: the key, and the role of a worker or a writer."""
    with Server(graph) as server, Worker(graph, server.address, read_only=True, timeout=30) as reader:
        with pytest.raises(UsageError, match="read-only worker may not put"):
            reader.put("dense/bias", np.zeros(7, np.float32))
        for role, allowed in ((0, True), (1, False), (3, False), (4, True)):
            client = Client(server.address, job_of(server), role=role)
            client.connect()
            number = client.named("dense/bias").entry["number"]
            client.send_message("PUT", bytes(28), tensor=number, step=1)
            if allowed:
                assert client.receive("STORED")[1]["step"] == 1
            else:
                with pytest.raises(Refused, match="UNEXPECTED"):
                    client.receive("STORED")
            client.close()
        assert server.status()["puts"] == 2
    key, wrong = tmp_path / "key", tmp_path / "wrong"
    write_key(key)
    write_key(wrong)
    with Server(graph, listen="127.0.0.1:0", link=Link(key)) as server:
        for link in (Link(wrong), Link()):
            with pytest.raises(SyncError):
                writer(graph, server.address, link=link, lost=0.3)
        with writer(graph, server.address, link=Link(key)) as other:
            other.put("dense/bias", np.ones(7, np.float32))
        assert (server.store["dense/bias"] == 1).all() and server.status()["puts"] == 1


def connected(server: Server) -> Client:
    client = Client(server.address, job_of(server), role=4, chunk=1 << 16)
    client.connect()
    return client


def put(client: Client, name: str, value: Array, number: int) -> int:
    client.send_message("PUT", value.tobytes(), tensor=client.named(name).entry["number"], step=number)
    _, header, payload = client.receive("STORED")
    assert header["step"] == number
    return int(payload[0])


def test_a_put_of_the_page_counts_once(tmp_path: Path) -> None:
    """A client of the page repeats a put: over another connection, after a snapshot, after a restart from the journal."""
    with Server(model(), folder=tmp_path / "job") as server:
        client = connected(server)
        w = np.linspace(0, 1, 3000, dtype=np.float32)
        assert put(client, "w", w, 1) == 0
        for _ in range(2):
            client.connect()
            assert put(client, "w", w * 0, 1) == 0, "the bytes of a repeated put are dropped"
        np.testing.assert_array_equal(server.store["w"], w)
        assert put(client, "w", np.full(3000, np.inf, np.float32), 2) == 2
        assert put(client, "scale", np.array(np.nan, np.float32), 3) == 2
        assert put(client, "scale", np.array(7, np.float32), 4) == 0
        assert server.status()["version"] == server.status()["puts"] == 2
        before = (tmp_path / "job" / "journal").read_bytes()
        np.testing.assert_array_equal(server.store["w"], w)
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / "journal").write_bytes(before)  # as after kill -9: no snapshot
    for folder in ("job", "killed"):
        with Server(model(), folder=tmp_path / folder) as server:
            np.testing.assert_array_equal(server.store["w"], w)
            assert server.store["scale"] == 7 and server.status()["version"] == 2
            client.place = ("127.0.0.1", int(server.address.rsplit(":", 1)[1]))
            client.connect()
            assert put(client, "scale", np.array(8, np.float32), 4) == 0
            assert server.store["scale"] == 7 and server.status()["version"] == 2


def test_what_the_server_refuses() -> None:
    with Server(model(), max_bytes=1 << 20) as server:
        number = {name: connected(server).named(name).entry["number"] for name in ("w", "scale", "table")}
        w = bytes(12000)
        for refusal, *frames in (
            ("WRONG_LENGTH", (number["scale"], bytes(8), {"step": 1})),
            ("WRONG_LENGTH", (number["w"], w[:-4], {"step": 1})),
            ("UNKNOWN_TENSOR", (3, bytes(4), {"step": 1})),
            ("MALFORMED", (number["scale"], bytes(4), {"step": 0})),
            ("MALFORMED", (number["scale"], bytes(4), {"step": 1, "encoding": 1})),
            ("MALFORMED", (number["scale"], bytes(4), {"step": 1, "flags": 1})),
            ("MALFORMED", (number["w"], w[:400], {"step": 1, "total": 12000, "offset": 400})),
            ("MALFORMED", (number["w"], w[:400], {"step": 1, "total": 12000}),
             (number["w"], w[:400], {"step": 2, "total": 12000, "offset": 400})),
            ("UNEXPECTED", (number["w"], w[:400], {"step": 1, "total": 12000}),
             (number["scale"], bytes(4), {"step": 1})),
        ):  # fmt: skip
            client = connected(server)
            for tensor, data, fields in frames:
                client.send("PUT", data, tensor=tensor, **{"total": len(data), **fields})
            with pytest.raises(Refused, match=refusal):
                client.receive("STORED")
            client.close()
        client = connected(server)
        assert put(client, "scale", np.array(2, np.float32), 5) == 0
        client.send("PUT", bytes(4), tensor=number["scale"], step=4, total=4)
        with pytest.raises(Refused, match="MALFORMED"):
            client.receive("STORED")
        client.close()
        assert server.status()["puts"] == 1 and server.status()["bytes"] == 0
    large = Graph()
    ids = large.placeholder("ids", (3,), "i64")
    table = large.variable("table", np.zeros((3000, 5), np.float32))
    linnet.sync.signatures(large, ops.gather(table.tensor(ids), ids).sum(), linnet.SGD(0.1), {"ids": ids})
    with (
        Server(large, max_bytes=50_000) as server,
        writer(large, server.address) as other,
    ):
        with pytest.raises(SyncError, match="larger than the server's max_bytes"):
            other.put("table", np.zeros((3000, 5), np.float32))
        assert server.status()["refused"] == 1, "another try would be refused too"


@pytest.mark.parametrize("kills", [5, pytest.param(100, marks=pytest.mark.soak)])
def test_killed_servers_store_each_put_once(kills: int, tmp_path: Path) -> None:
    """kill -9 at random moments while a client puts and a worker trains: every acknowledged value is there, once."""
    graph, random = model(), np.random.default_rng(kills)
    graph.save(tmp_path / "model.lnt")
    server = Process(tmp_path / "model.lnt", tmp_path, "--save-every", "7")
    done, count = threading.Event(), max(60, kills * 12)

    def killer() -> None:
        while not done.wait(random.exponential(0.03)) and server.starts <= kills:
            server.kill()
            server.start()

    def work(k: int) -> None:
        if k == 0:
            return killer()
        try:
            with writer(graph.to_bytes(), server.address) as other:
                for i in range(count):
                    other.put("scale", np.float32(i))
        finally:
            done.set()

    together(2, work)
    assert server.kill(signal.SIGTERM) == 0
    with Server(graph, folder=tmp_path / "job") as last:
        assert last.store["scale"] == count - 1 and last.status()["version"] == count


def test_the_command(graph: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from linnet.cli.main import _main

    graph.save(tmp_path / "model.lnt")
    np.save(tmp_path / "w.npy", np.ones((6, 7), np.float32))
    np.save(tmp_path / "wrong.npy", np.ones((7, 6), np.float32))
    with Server(graph) as server:
        line = ["put", str(tmp_path / "model.lnt"), server.address]
        assert _main([*line, "--value", f"dense/weight={tmp_path / 'w.npy'}", "--value", "dense/bias=0.5"]) == 0
        assert capsys.readouterr().out == "put dense/weight [6, 7]\nput dense/bias [7]\n"
        assert (server.store["dense/weight"] == 1).all() and (server.store["dense/bias"] == 0.5).all()
        assert _main([*line, "--json", "--value", "dense_1/bias=0"]) == 0
        assert capsys.readouterr().out == '{"name": "dense_1/bias", "shape": [4]}\n'
        for value, words in (
            ("dense/wieght=0", "no variable of this name"), ("dense/weight", "is not NAME=FILE.npy"),
            ("dense/weight=nothing.npy", "cannot be read"), (f"dense/weight={tmp_path / 'wrong.npy'}", "wrong shape"),
            ("dense/weight=nan", "NaN or infinity"),
        ):  # fmt: skip
            assert _main([*line, "--value", value]) != 0
            said = capsys.readouterr().err
            assert said.startswith("linnet: error: ") and words in said, said
        assert server.status()["puts"] == 3
