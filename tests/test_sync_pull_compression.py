"""Values that workers pull as f16 or bf16: what arrives, who is asked and who may refuse, and that training, kill -9, shards and
tables give the bits of the reference."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import Adam, Momentum, nn
from linnet.clib.errors import SyncError, UsageError
from linnet.facade import Graph
from linnet.sync import Server, Worker
from tests import sync_plain_server
from tests.sync_document_client import Client
from tests.sync_plain_server import PlainServer
from tests.sync_reference import Arrays, Cluster, as_pulled
from tests.test_sync_client import job_of as job_text
from tests.test_sync_server import Process, together
from tests.test_sync_worker import job_of, named, values

STEPS, ROWS = 4, 300
KINDS = ("f16", "bf16")


def wide(graph: Graph) -> tuple[dict[str, Any], Any]:
    """A layer of 64 x 40 weights with batch normalization, whose averages are pulled, too."""
    x, t = graph.placeholder("x", ("batch", 64)), graph.placeholder("t", ("batch",), "i32")
    y = nn.batch_norm(nn.dense(x, 40, activation="tanh"), True)
    return {"x": x, "t": t}, linnet.softmax_cross_entropy(nn.dense(y, 4), t).mean()


def table(graph: Graph) -> tuple[dict[str, Any], Any]:
    i, t = graph.placeholder("i", ("batch", 3), "i32"), graph.placeholder("t", ("batch",), "i32")
    rows = nn.flatten(nn.embedding(i, ROWS, 5, start=linnet.init.normal))
    return {"i": i, "t": t}, linnet.softmax_cross_entropy(nn.dense(rows, 4), t).mean()


def build(name: str) -> Graph:
    graph = Graph(seed=5)
    inputs, loss = (wide if name == "wide" else table)(graph)
    optimizer = Momentum(0.1) if name == "wide" else Adam(0.05, lazy=True)
    remote = [graph.variables["embedding/weight"]] if name == "remote" else []
    linnet.sync.signatures(graph, loss, optimizer, inputs, remote=remote)
    return graph


def batch(name: str, step: int, worker: int) -> Arrays:
    rng = np.random.default_rng([step, worker])
    labels = rng.integers(0, 4, 8).astype(np.int32)
    if name == "wide":
        return {"x": rng.standard_normal((8, 64)).astype(np.float32), "t": labels}
    return {"i": rng.integers(0, ROWS, (8, 3)).astype(np.int32), "t": labels}


@pytest.mark.parametrize("kind", KINDS)
def test_what_arrives(kind: str) -> None:
    """Large variables are rounded; small ones, averages and the server's own values are not. The bytes are half."""
    graph = build("wide")
    with Server(graph, workers=1) as server:
        for name in ("dense/weight", "batch_norm/mean", "dense/bias"):
            server.store[name] = (
                np.random.default_rng(1).standard_normal(server.store[name].shape).astype(np.float32) * 3
            )
        received = []
        for as_ in ("none", kind):
            with Worker(graph, server.address, pull_compression=as_, read_only=True, timeout=30) as worker:
                worker.pull()
                assert worker.info.pull_compression == as_ and worker.info.compression == "none"
                received.append(worker.info.bytes_received)
                for name in worker.store:
                    if name in ("dense/weight", "batch_norm/mean", "dense/bias"):
                        whole = server.store[name]
                        expected = as_pulled(whole, as_)
                        np.testing.assert_array_equal(worker.store[name], expected, err_msg=name)
                        assert (expected != whole).any() == (as_ != "none" and name == "dense/weight")
        status = server.status()
        weights = 64 * 40 * 4
        assert received[0] - received[1] == weights // 2
        assert status["values_saved"] == weights // 2 and status["values_sent"] > weights


@pytest.mark.parametrize("kind", ["none", *KINDS])
def test_checksums_are_those_of_the_version(kind: str) -> None:
    """Of values above 64 KiB, a server keeps the checksums of the chunks for all readers: those of one version only."""
    graph = Graph()
    x = graph.placeholder("x", ("batch", 300))
    loss = (nn.dense(x, 200, bias=False) * 0.5).sum()
    linnet.sync.signatures(graph, loss, Momentum(0.1), {"x": x})
    rng = np.random.default_rng(2)
    with Server(graph) as server:
        options: dict[str, Any] = {"pull_compression": kind, "read_only": True, "timeout": 30}
        with (
            Worker(graph, server.address, writer=True, timeout=30) as writer,
            Worker(graph, server.address, **options) as first,
            Worker(graph, server.address, **options) as second,
        ):
            for _ in range(3):
                value = rng.standard_normal((300, 200)).astype(np.float32)
                writer.put("dense/weight", value)
                for reader in (first, second):
                    reader.pull()
                    np.testing.assert_array_equal(reader.store["dense/weight"], as_pulled(value, kind))
                    assert [link.reconnects for link in reader.info.links] == [0], "a checksum was wrong"


def test_averages_are_not_rounded() -> None:
    """Even large ones: a moving average that is rounded in each step stops moving."""
    graph = Graph(seed=5)
    x, t = graph.placeholder("x", ("batch", 2000)), graph.placeholder("t", ("batch",), "i32")
    loss = linnet.softmax_cross_entropy(nn.dense(nn.batch_norm(x, True), 4), t).mean()
    linnet.sync.signatures(graph, loss, Momentum(0.1), {"x": x, "t": t})
    with Server(graph) as server, Worker(graph, server.address, pull_compression="bf16", timeout=30) as worker:
        random = np.random.default_rng(0)
        worker.step({"x": random.standard_normal((8, 2000)).astype(np.float32), "t": np.arange(8, dtype=np.int32) % 4})
        worker.pull()
        for name in ("batch_norm/mean", "batch_norm/variance", "dense/weight"):
            kept = server.store[name]
            assert (as_pulled(kept, "bf16") != kept).any()
            same = (worker.store[name] == kept).all()
            assert same == (name != "dense/weight"), name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["wide", "rows", "remote"])
def test_steps_are_those_of_the_reference(name: str, kind: str) -> None:
    graph = build(name)
    reference = Cluster(graph, [graph], 2, pull_as=kind)
    expected = [reference.step([batch(name, i, k) for k in range(2)]) for i in range(STEPS)]
    with Server(graph, workers=2) as server:

        def work(k: int) -> list[float]:
            with Worker(graph.to_bytes(), server.address, number=k, pull_compression=kind, timeout=30) as worker:
                return [float(worker.step(batch(name, i, k), weight=1.0)["loss"]) for i in range(STEPS)]

        assert together(2, work) == [[step[k] for step in expected] for k in range(2)]
        for variable in reference.trained:
            np.testing.assert_array_equal(server.store[variable], reference.value(variable), err_msg=variable)
        assert any((server.store[v] != as_pulled(server.store[v], kind)).any() for v in reference.trained), (
            "f32 is kept"
        )


def test_parts_of_a_table_are_rounded_as_the_whole() -> None:
    """Three servers with 100 rows of 5 elements each: the parts are small, and the table is not."""
    graph = build("remote")
    parts = linnet.sync.shard(graph, 3)
    assert (
        max(
            part.variables["embedding/weight"].shape[0]
            for part in parts.servers
            if "embedding/weight" in part.variables
        )
        < ROWS
    )
    reference = Cluster(graph, [graph], 1, pull_as="f16")
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(Server(part)).address for part in parts.servers]
        worker = stack.enter_context(Worker(parts.worker, servers, pull_compression="f16", timeout=30))
        for i in range(STEPS):
            found = worker.step(batch("remote", i, 0), weight=1.0)["loss"]
            assert [float(found)] == reference.step([batch("remote", i, 0)])
        rows = worker.pull_rows("embedding/weight", [7, 299, 7, 120])
    whole = reference.value("embedding/weight")
    np.testing.assert_array_equal(rows, as_pulled(whole[[7, 299, 7, 120]], "f16", whole.size))


def test_federated_changes_are_relative_to_the_rounded_values() -> None:
    graph = Graph(seed=5)
    inputs, loss = wide(graph)
    linnet.sync.signatures(graph, loss, linnet.SGD(1.0), inputs, local=linnet.SGD(0.05))
    with Server(graph) as server:
        server.store["dense/weight"] = np.float32(server.store["dense/weight"]) * np.float32(1.0001)
        before = server.store["dense/weight"].copy()
        with Worker(graph, server.address, pull_compression="f16", keep_pulled=True, timeout=30) as worker:
            worker.round([batch("wide", 0, 0)])
            change = as_pulled(before, "f16") - worker.store["dense/weight"]
        np.testing.assert_array_equal(server.store["dense/weight"], before - change)


def test_killed_servers_and_workers_give_the_same_bits(tmp_path: Path) -> None:
    """kill -9 of the server between steps, and a new worker each time."""
    graph = build("wide")
    reference = Cluster(graph, [graph], 1, pull_as="bf16")
    graph.save(tmp_path / "model.lnt")
    server = Process(tmp_path / "model.lnt", tmp_path)
    for i in range(6):
        with Worker(graph, server.address, number=0, pull_compression="bf16", lost=60) as worker:
            found = float(worker.step(batch("wide", i, 0), weight=1.0)["loss"])
            if i % 2:
                server.kill()
                server.start()
                worker.pull()  # over a new connection, from a server of a later epoch
            rounded = worker.store["dense/weight"]
        assert [found] == reference.step([batch("wide", i, 0)])
        np.testing.assert_array_equal(rounded, as_pulled(reference.value("dense/weight"), "bf16"))
    assert server.kill(signal.SIGTERM) == 0
    with Server(graph, folder=tmp_path / "job") as last:
        for name in reference.trained:
            np.testing.assert_array_equal(last.store[name], reference.value(name), err_msg=name)


def test_a_server_that_compresses_nothing() -> None:
    graph = build("wide")
    with (
        Server(graph, plain=True) as server,
        Worker(graph, server.address, pull_compression="f16", timeout=30) as worker,
    ):
        assert worker.info.pull_compression == "none"
        worker.pull()
        np.testing.assert_array_equal(worker.store["dense/weight"], server.store["dense/weight"])


@pytest.mark.parametrize("encoding", [1, 2])
def test_the_client_of_the_page(encoding: int) -> None:
    """Both bits are asked for, and one is granted."""
    graph = build("rows")
    with Server(graph) as server:
        client = Client(server.address, job_text(server), encodings=1 | 3 << 17 if encoding == 1 else 1 | 1 << 18)
        client.connect()
        assert client.granted == 1 | 1 << (16 + encoding)
        client.pull(with_digests=True)
        kind = KINDS[encoding - 1]
        weight = client.named("embedding/weight")
        np.testing.assert_array_equal(weight.value, as_pulled(server.store["embedding/weight"], kind))
        np.testing.assert_array_equal(client.named("dense/bias").value, server.store["dense/bias"])
        np.testing.assert_array_equal(
            client.rows("embedding/weight", [9, 3]), as_pulled(server.store["embedding/weight"][[9, 3]], kind, 1500)
        )
        assert client.encodings_seen == {0, encoding}
        # A digest never stands for an encoded value: the worker might hold the exact one.
        assert weight.value is not None
        weight.value = server.store["embedding/weight"].copy()
        assert client.pull(with_digests=True) == ["embedding/weight"]
        client.leave()


def plain_server(model: linnet.Model, **options: Any) -> PlainServer:
    names = ("embedding/weight", "dense/weight", "dense/bias")
    return PlainServer(job_of(model), values(model, *names), {"embedding/weight": 1}, **options)


@pytest.mark.parametrize("chunk", [4096, 4097])
@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_reads_what_a_server_of_the_page_sends(kind: str, chunk: int) -> None:
    """Also in chunks that end inside an element."""
    model = linnet.Model(build("rows"))
    number = 1 + KINDS.index(kind)
    with (
        plain_server(model, encodings=0x7003F, data_encoding=number, chunk=chunk) as server,
        Worker(model, server.address, pull_compression=kind, lost=3) as worker,
    ):
        worker.pull()
        assert server.hellos[0]["encodings"] == 1 | 1 << (16 + number)
        weight = server.tensors["embedding/weight"]
        np.testing.assert_array_equal(worker.store["embedding/weight"], as_pulled(weight, kind))
        rows = worker.pull_rows("embedding/weight", np.arange(299, -1, -1))
        np.testing.assert_array_equal(rows, as_pulled(weight, kind)[::-1])
        assert len(named(server, "PULL")) == 1


def other_encoding(header: dict[str, int]) -> None:
    header["encoding"] = 2


def third_encoding(header: dict[str, int]) -> None:
    header["encoding"] = 3


def plain_later(header: dict[str, int]) -> None:
    if header["offset"]:
        header["encoding"] = 0


def whole_length(header: dict[str, int]) -> None:
    header["total"] *= 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (other_encoding, "encoding"),
        (third_encoding, "encoding"),
        (plain_later, "malformed|length"),
        (whole_length, "length"),
    ],
)
def test_what_a_hostile_server_sends(
    change: Callable[[dict[str, int]], None], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker refuses each, and its memory stays its own."""
    original = sync_plain_server.Connection.bulk

    def bulk(connection: Any, name: str, data: bytes, **fields: int) -> None:
        if name != "DATA" or not fields.get("encoding"):
            return original(connection, name, data, **fields)
        for at in range(0, len(data), 512):
            header = dict(fields, total=len(data), offset=at)
            change(header)
            connection.send(name, data[at : at + 512], **header)
        return None

    monkeypatch.setattr(sync_plain_server.Connection, "bulk", bulk)
    model = linnet.Model(build("rows"))
    with (
        plain_server(model, encodings=0x7003F, data_encoding=1) as server,
        Worker(model, server.address, pull_compression="f16", lost=0.3, timeout=3) as worker,
        pytest.raises(SyncError, match=words),
    ):
        worker.pull()


def test_a_server_that_grants_more_than_was_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    original = sync_plain_server.protocol.pack

    def pack(title: str, **fields: Any) -> bytes:
        return original(title, **(fields | {"encodings": 1 | 1 << 17} if title == "WELCOME" else fields))

    monkeypatch.setattr(sync_plain_server.protocol, "pack", pack)
    model = linnet.Model(build("rows"))
    with plain_server(model) as server, pytest.raises(SyncError, match="malformed"):
        Worker(model, server.address, lost=0.3, timeout=3)


def test_fit_ends_with_the_servers_own_values(tmp_path: Path) -> None:
    """A worker of separate servers computes with rounded values; the result of fit has f32."""
    strategy = linnet.sync.Strategy(pull_compression="f16")
    assert strategy.pull_compression == linnet.sync.Compression("f16")
    graph = build("wide")
    data = {"x": np.stack([batch("wide", i, 0)["x"][0] for i in range(32)]), "t": np.arange(32, dtype=np.int32) % 4}
    with Server(graph) as server:
        cluster = linnet.sync.Cluster(role="worker", rank=0, world_size=1, servers=(server.address,))
        history = linnet.fit(graph, data, batch_size=8, epochs=2, cluster=cluster, strategy=strategy)
        found, kept = history.store["dense/weight"], server.store["dense/weight"]
    np.testing.assert_array_equal(found, kept)
    assert (as_pulled(kept, "f16") != kept).any()


def test_what_is_refused() -> None:
    for wrong in ("i8", "1bit", "topk:0.1"):
        with pytest.raises(UsageError, match="values cannot be pulled"):
            linnet.sync.Strategy(pull_compression=wrong)
        with pytest.raises(UsageError, match="none, f16 or bf16"):
            Worker(build("wide"), ":1", pull_compression=wrong)
    with pytest.raises(UsageError, match="unknown compression"):
        linnet.sync.Strategy(pull_compression="f8")
    with pytest.raises(UsageError, match="pull_compression is not valid for ring"):
        linnet.sync.Strategy("ring", pull_compression="f16")
