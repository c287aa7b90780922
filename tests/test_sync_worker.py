"""The worker (runtime_c/sync/worker_*.c, linnet.sync.Worker) against a server in plain Python written from docs/protocol.md:
what is sent, what is skipped, what is repeated after a loss, and the messages when servers do not match."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import nn, ops
from linnet.clib.errors import FileError, SyncError, UsageError
from linnet.facade import Graph
from linnet.sync import Compression, Worker
from linnet.sync.compression import decode, encode
from linnet.sync.contract import variable_of
from linnet.sync.worker import WorkerInfo
from tests.sync_plain_server import AVERAGED, DENSE, NONE, ROWS, Broken, Connection, PlainServer

Array = np.ndarray[Any, Any]
LOST = 3.0  # seconds, enough for a loaded machine; no test waits for it unless it says so


def dense_model(optimizer: linnet.Optimizer | None = None) -> linnet.Model:
    """y = x w + b, with the mean of squares."""
    graph = Graph(seed=3)
    x, t = graph.placeholder("x", ("batch", 6)), graph.placeholder("t", ("batch", 3))
    error = nn.dense(x, 3) - t
    linnet.sync.signatures(graph, (error * error).mean(), optimizer or linnet.SGD(0.5), {"x": x, "t": t})
    return linnet.Model(graph)


def table_model(remote: bool) -> linnet.Model:
    graph = Graph(seed=3)
    i = graph.placeholder("i", ("batch", 2), "i32")
    rows = nn.embedding(i, 50, 4, start=linnet.init.normal)
    table = graph.variables["embedding/weight"]
    loss = (nn.dense(nn.flatten(rows), 2) * 1.0).mean()
    linnet.sync.signatures(graph, loss, linnet.SGD(0.5), {"i": i}, remote=[table] if remote else [])
    return linnet.Model(linnet.sync.shard(graph, 1).worker if remote else graph)


def job_of(model: linnet.Model) -> bytes:
    return bytes.fromhex(model.metadata("sync.job") or model.metadata("digest") or "")


def values(model: linnet.Model, *names: str) -> dict[str, Array]:
    store = linnet.Store(model)
    return {name: store[name] for name in names}


def batch(seed: int = 0, n: int = 4) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.standard_normal((n, 6)).astype(np.float32),
        "t": rng.standard_normal((n, 3)).astype(np.float32),
    }


@pytest.fixture(scope="module")
def model() -> linnet.Model:
    return dense_model()


def server_of(model: linnet.Model, **options: Any) -> PlainServer:
    names = {variable_of(o.name): 0 for o in model.outputs("grad") if o.name.startswith("gradient/")}
    return PlainServer(job_of(model), values(model, *names), **options)


def reference(model: linnet.Model, steps: int, lr: float = 0.5) -> dict[str, Array]:
    """The same steps in one process, in NumPy."""
    session = linnet.Session(model, "grad")
    for k in range(steps):
        out = session.run(batch(k))
        for name in session.variables:
            if f"gradient/{name}" in out:
                session.variables[name] = session.variables[name] - np.float32(lr) * out[f"gradient/{name}"]
    return session.variables.as_dict()


def same(found: dict[str, Array], expected: dict[str, Array]) -> None:
    for name in found:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


def named(server: PlainServer, name: str) -> list[dict[str, Any]]:
    return [header for seen, header, _ in server.seen if seen == name]


def test_steps_are_those_of_one_process(model: linnet.Model) -> None:
    with server_of(model) as server, Worker(model, server.address, lost=LOST) as worker:
        for k in range(5):
            out = worker.step(batch(k))
            assert set(out) == {"loss"}
        same(server.tensors, reference(model, 5))
        same(server.tensors, worker.store.as_dict())
        info = worker.info
        assert (info.worker, info.step, info.version, info.applied, info.late) == (0, 5, 5, 5, 0)
        assert info.outcome == "applied" and info.staleness == 0 and info.share == (3, 4, 10)
        assert len(named(server, "PULL")) == 1, "new values came with each answer"
        steps, commits = zip(*server.commits, strict=True)
        assert steps == (0, 1, 2, 3, 4)
        assert [c["version"] for c in commits] == [0, 1, 2, 3, 4]
        assert {c["weight"] for c in commits} == {4.0}
        assert all(np.isfinite(c["loss"]) and c["computed"] > 0 and c["began"] > 0 for c in commits)
        assert info.bytes_sent == sum(64 + len(payload) for _, _, payload in server.seen)


def test_what_has_not_changed_does_not_travel(model: linnet.Model) -> None:
    with server_of(model) as server, Worker(model, server.address, lost=LOST) as worker:
        worker.pull()  # the file's values, identified by their digests
        assert (worker.info.tensors_pulled, worker.info.tensors_same) == (0, 2)
        name = next(iter(server.tensors))
        server.tensors[name] += 1
        server.version = server.changed[name] = 1
        worker.pull()
        assert (worker.info.tensors_pulled, worker.info.tensors_same) == (1, 3)
        same(server.tensors, worker.store.as_dict())


def test_pull_and_push_by_themselves(model: linnet.Model) -> None:
    with server_of(model) as server, Worker(model, server.address, lost=LOST) as worker:
        worker.pull()
        worker.session().run(batch())
        worker.push(weight=3)
        assert server.commits[0][1]["weight"] == 3.0 and server.commits[0][1]["flags"] == 0
        worker.pull()
        same(worker.store.as_dict(), reference(model, 1))


def break_at(name: str, times: int = 1, skip: int = 0) -> Callable[[Connection, str], None]:
    """Breaks the connection at the (skip + 1)-th frame `name`, this many times."""
    left, passing = times, skip

    def hook(connection: Connection, seen: str) -> None:
        nonlocal left, passing
        if seen != name or not left:
            return
        if passing:
            passing -= 1
            return
        left -= 1
        raise Broken

    return hook


@pytest.mark.parametrize("frame", ["HELLO", "READY", "PULL", "PUSH", "COMMIT", "applied"])
@pytest.mark.parametrize("skip", [0, 1])
def test_a_lost_connection_changes_nothing(model: linnet.Model, frame: str, skip: int) -> None:
    """Wherever it breaks (before the update, or between the update and the ACK), each step counts once."""
    with server_of(model) as server:
        server.hook = break_at(frame, 3, skip)
        with Worker(model, server.address, number=7, lost=20) as worker:
            for k in range(4):
                worker.step(batch(k))
            info = worker.info
        same(server.tensors, reference(model, 4))
        assert (server.version, info.applied, info.worker) == (4, 4, 7)
        if frame in ("PUSH", "COMMIT", "applied"):
            assert info.links[0].reconnects == 3
        assert len({h["incarnation"] for h in server.hellos}) == 1
        assert len({h["nonce"] for h in server.hellos}) == len(server.hellos)


def test_the_last_acknowledged_step_is_told(model: linnet.Model) -> None:
    with server_of(model) as server, Worker(model, server.address, lost=20) as worker:
        worker.step(batch())
        worker.step(batch())
        server.drop()
        worker.step(batch())
        assert [h["last_step"] for h in server.hellos] == [NONE, 1]
        assert [h["epoch"] for h in server.hellos] == [0, 1]


def test_a_pull_is_whole_or_repeated(model: linnet.Model) -> None:
    """A connection that breaks inside a tensor: its digest then differs, and it is sent again."""
    with server_of(model) as server:
        for value in server.tensors.values():
            value += 1
        whole = server.tensors
        cut = True

        def value(connection: Connection, number: int) -> None:
            nonlocal cut
            data = server.tensors[list(server.tensors)[number]].tobytes()
            if cut and len(data) > 16:
                cut = False
                connection.send("DATA", data[:16], tensor=number, step=0, total=len(data))
                raise Broken
            connection.bulk("DATA", data, tensor=number, step=0)

        original, Connection.value = Connection.value, value  # type: ignore[method-assign, assignment]
        try:
            with Worker(model, server.address, lost=20) as worker:
                worker.pull()
                same(whole, worker.store.as_dict())
                assert worker.info.links[0].reconnects == 1
        finally:
            Connection.value = original  # type: ignore[method-assign]


def test_a_step_that_was_decided_is_not_repeated(model: linnet.Model) -> None:
    """A worker killed after its COMMIT: its successor is told the result, and continues."""
    with server_of(model) as server:
        with Worker(model, server.address, number=1, lost=LOST) as worker:
            worker.step(batch(0))
        with Worker(model, server.address, number=1, lost=LOST) as worker:
            assert worker.info.step == 1
            worker.step(batch(1))
        same(server.tensors, reference(model, 2))


def test_late_pushes_are_dropped_and_said(model: linnet.Model) -> None:
    with server_of(model) as server, Worker(model, server.address, lost=LOST) as worker:
        worker.step(batch())
        server.step, server.version = 5, 9
        worker.step(batch())
        info = worker.info
        assert (info.outcome, info.late, info.applied, info.step) == ("late", 1, 1, 5)
        worker.step(batch())
        assert worker.info.outcome == "applied" and server.commits[-1][0] == 5


def test_a_push_that_is_late_already_is_cut_short() -> None:
    """The step closes while the gradient is being sent: the rest is not sent, and the worker continues with new values."""
    graph = Graph(seed=3)
    x = graph.placeholder("x", ("batch", 1024))
    linnet.sync.signatures(graph, (nn.dense(x, 2048) * 1.0).mean(), linnet.SGD(0.5), {"x": x})
    model = linnet.Model(graph)
    feed = {"x": np.ones((2, 1024), np.float32)}
    with server_of(model) as server, Worker(model, server.address, lost=20) as worker:
        worker.pull()

        def close_step(connection: Connection, name: str) -> None:
            if name == "PUSH" and server.step == 0:
                server.step, server.version = 3, 7
                server.acknowledge(connection, 0, 1)

        server.hook = close_step
        worker.step(feed)
        pushed = sum(h["length"] for h in named(server, "PUSH"))
        assert worker.info.outcome == "late" and worker.info.step == 3
        assert pushed < 2048 * 1024 * 4, "all of it was sent"
        worker.pull()
        same(server.tensors, worker.store.as_dict())


def test_sparse_gradients_are_summed_and_sorted() -> None:
    model = table_model(remote=False)
    with server_of(model, kinds={"embedding/weight": ROWS}) as server:
        with Worker(model, server.address, lost=LOST) as worker:
            numbers = np.array([[7, 3], [3, 7], [40, 3]], np.int32)
            expected = linnet.Session(model, "grad", store=worker.store).run({"i": numbers})
            worker.step({"i": numbers})
        ids, rows = server.gradients[0]["embedding/weight"]
        np.testing.assert_array_equal(ids, [3, 7, 40])
        given = expected["gradient/embedding/weight/ids"], expected["gradient/embedding/weight/rows"]
        for k, number in enumerate(ids):
            total = np.zeros(4, np.float32)
            for i, row in zip(*given, strict=True):
                total += row if i == number else np.float32(0)
            np.testing.assert_array_equal(rows[k], total)


def test_rows_of_a_remote_table() -> None:
    model = table_model(remote=True)
    whole = np.random.default_rng(1).standard_normal((50, 4)).astype(np.float32)
    assert "embedding/weight" not in linnet.Store(model)
    parts = {n: v for n, v in linnet.Store(model).as_dict().items() if n.startswith("dense")}
    table, options = "embedding/weight", {"kinds": {"embedding/weight": ROWS}, "shards": 2}
    with (
        PlainServer(job_of(model), {table: whole[:20]}, shard=0, split={table: (0, 50)}, **options) as first,
        PlainServer(job_of(model), {table: whole[20:], **parts}, shard=1, split={table: (20, 50)}, **options) as second,
    ):
        with Worker(model, [second.address, first.address], lost=LOST) as worker:
            asked = np.array([49, 3, 3, 20, 19])
            np.testing.assert_array_equal(worker.pull_rows("embedding/weight", asked), whole[asked])
            assert worker.pull_rows("embedding/weight", []).shape == (0, 4)
            with pytest.raises(linnet.Error, match="row") as caught:
                worker.pull_rows("embedding/weight", [50])
            assert caught.value.code == 305
            worker.step({"i": np.array([[7, 3], [30, 7]], np.int32)})
        ids = [server.gradients[0]["embedding/weight"][0].tolist() for server in (first, second)]
        assert ids == [[3, 7], [30]]
        names = {name for name, _, _ in first.seen}
        assert "ROWS" in names and "PULL" not in names, "the table itself never travels"


def test_federated_rounds_push_differences(model: linnet.Model) -> None:
    """Changes of local steps are pushed as pulled values minus current ones; the server's SGD(1) is then federated averaging."""
    with server_of(model, lr=1.0) as server:
        with Worker(model, server.address, keep_pulled=True, lost=LOST) as worker:
            local = linnet.Session(model, "train")
            start = local.variables.as_dict()
            for _ in range(2):
                worker.round([batch(0), batch(1)])
                local.run(batch(0)), local.run(batch(1))
                assert server.commits[-1][1]["weight"] == 8.0
                for name in server.tensors:
                    np.testing.assert_allclose(server.tensors[name], local.variables[name], rtol=1e-6, atol=1e-7)
            for name in server.tensors:
                assert (server.tensors[name] != start[name]).any()
        with (
            Worker(model, server.address, lost=LOST) as worker,
            pytest.raises(UsageError, match="no copy of the pulled values"),
        ):
            worker.push()


def test_averaged_values_are_pushed() -> None:
    graph = Graph(seed=3)
    x = graph.placeholder("x", ("batch", 6))
    y = nn.batch_norm(nn.dense(x, 3), True)
    linnet.sync.signatures(graph, (y * y).mean() + y.sum(), linnet.SGD(0.5), {"x": x})
    model = linnet.Model(graph)
    averaged = (model.metadata("sync.average") or "").split()
    assert averaged
    with server_of(model) as server:
        for name in averaged:
            server.tensors[name], server.changed[name] = linnet.Store(model)[name], 0
            server.kinds[name] = AVERAGED
        with Worker(model, server.address, lost=LOST) as worker:
            local = linnet.Session(model, "grad")
            local.run({"x": batch()["x"]})
            worker.step({"x": batch()["x"]})
            for name in averaged:
                np.testing.assert_array_equal(server.gradients[0][name], local.variables[name])
                np.testing.assert_array_equal(worker.store[name], local.variables[name])


@pytest.mark.parametrize("compression", ["f16", "bf16", "i8", "topk:0.05", "1bit"])
def test_compressed_gradients_keep_what_they_lose(compression: str) -> None:
    """Sent values plus residuals equal the gradients, over several steps; small tensors are sent uncompressed."""
    graph = Graph(seed=3)
    x = graph.placeholder("x", ("batch", 64))
    linnet.sync.signatures(graph, (nn.dense(x, 32) * 1.0).mean(), linnet.SGD(0.5), {"x": x})
    model, chosen = linnet.Model(graph), Compression.parse(compression)
    rng = np.random.default_rng(0)
    feeds = [{"x": rng.standard_normal((4, 64)).astype(np.float32)} for _ in range(3)]
    with server_of(model) as server:
        server.apply = lambda pushed: server.gradients.append(pushed) or setattr(server, "step", server.step + 1)  # type: ignore[method-assign, func-returns-value, assignment]
        with Worker(model, server.address, compression=compression, lost=LOST) as worker:
            sent, total = np.zeros((64, 32), np.float32), np.zeros((64, 32), np.float32)
            residual = np.zeros((64, 32), np.float32)
            for k, feed in enumerate(feeds):
                worker.step(feed)
                gradient = linnet.Session(model, "grad").run(feed)["gradient/dense/weight"]
                (_, _, bias), (_, _, data) = sorted(server.gradients[k], key=lambda m: len(m[2]))
                assert len(bias) == 32 * 4
                assert data == encode(gradient, chosen, residual)
                decoded = decode(data, (64, 32), chosen)
                sent, total = sent + decoded, total + gradient
                np.testing.assert_allclose(sent + residual, total, rtol=0, atol=2e-5)
            assert worker.info.compression == chosen.name
        heads = [h for h in named(server, "PUSH") if h["tensor"] == 0 or h["encoding"]]
        assert {h["encoding"] for h in heads} >= {chosen.encoding}


def test_a_server_that_takes_no_compression(model: linnet.Model) -> None:
    with server_of(model, encodings=1) as server, Worker(model, server.address, compression="i8", lost=LOST) as worker:
        assert worker.info.compression == "none"


def test_clock_offset(model: linnet.Model) -> None:
    ahead = 5_000_000_000
    with server_of(model, heartbeat=100) as server:
        server.clock = lambda: time.monotonic_ns() + ahead
        with Worker(model, server.address, lost=LOST) as worker:
            deadline = time.monotonic() + 10
            while worker.info.links[0].delay is None and time.monotonic() < deadline:
                time.sleep(0.02)
            link = worker.info.links[0]
            assert link.delay is not None and 0 <= link.delay < 5
            assert abs(link.offset - 5) <= link.delay


def test_a_silent_server_is_left(model: linnet.Model) -> None:
    """A connection without data counts as lost after the lease."""
    with server_of(model, heartbeat=50) as server:
        server.hook = lambda connection, name: time.sleep(1) if name == "PULL" and len(server.hellos) < 3 else None
        with Worker(model, server.address, lost=20) as worker:
            worker.pull()
            assert worker.info.links[0].reconnects >= 1


def failing(servers: Any, model: linnet.Model, **options: Any) -> linnet.Error:
    with pytest.raises(linnet.Error) as caught:
        Worker(model, servers, lost=options.pop("lost", 0.3), **options)
    assert caught.value.hint
    return caught.value


def test_servers_that_do_not_fit(model: linnet.Model) -> None:
    other = bytes(16)
    names = list(server_of(model).tensors)
    with PlainServer(other, values(model, *names)) as server:
        server.hook = lambda c, name: (c.frame, c.refuse(2, "another file"))[1] if name == "HELLO" else None
        error = failing(server.address, model)
        assert isinstance(error, FileError) and error.code == 208 and "another file" in error.what
        assert error.tensor == server.address
    with PlainServer(job_of(model), values(model, names[0])) as server:
        error = failing(server.address, model)
        assert error.code == 102 and error.tensor == names[1] and "no server has" in error.what
    wrong = values(model, *names)
    wrong[names[0]] = np.zeros((6, 4), np.float32)
    with PlainServer(job_of(model), wrong) as server:
        error = failing(server.address, model)
        assert error.code == 208 and error.tensor == names[0] and "shape" in error.what
    wrong[names[0]] = np.zeros((6, 3))
    with PlainServer(job_of(model), wrong) as server:
        error = failing(server.address, model)
        assert error.code == 208 and "type" in error.what and (error.expected, error.got) == ("f32", "f64")
    with PlainServer(job_of(model), values(model, *names), {names[0]: ROWS}) as server:
        error = failing(server.address, model)
        assert error.code == 208 and (error.expected, error.got) == ("dense", "sparse")
    with PlainServer(job_of(model), values(model, *names) | {"more": np.zeros(3, np.float32)}) as server:
        assert failing(server.address, model).code == 208
    with PlainServer(job_of(model), values(model, *names), shards=2) as server:
        error = failing(server.address, model)
        assert error.code == 101 and "2 shards" in error.expected


def test_two_servers_of_one_shard(model: linnet.Model) -> None:
    with server_of(model, shards=2) as first, server_of(model, shards=2) as second:
        error = failing([first.address, second.address], model)
        assert error.code == 101 and "same shard" in error.what
    with server_of(model, shards=2) as first, server_of(model, shards=2, shard=1) as second:
        error = failing([first.address, second.address], model)
        assert error.code == 101 and "both have" in error.what


def test_an_older_epoch_is_refused(model: linnet.Model) -> None:
    with server_of(model, epoch=5) as server, Worker(model, server.address, lost=0.3) as worker:
        worker.step(batch())
        server.epoch = 4
        server.drop()
        with pytest.raises(SyncError, match="older state") as caught:
            worker.step(batch())
        assert caught.value.code == 606 and "epoch 5" in caught.value.expected


def test_nobody_there(model: linnet.Model) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    error = failing(address, model)
    assert isinstance(error, SyncError) and error.tensor == address and error.code in (601, 607)


def test_time_limit(model: linnet.Model) -> None:
    with server_of(model, heartbeat=2000) as server:
        server.hook = lambda connection, name: time.sleep(1) if name == "COMMIT" else None
        with Worker(model, server.address, timeout=0.2, lost=LOST) as worker:
            worker.pull()
            worker.session().run(batch())
            with pytest.raises(SyncError, match="waited 200 ms") as caught:
                worker.push()
            assert caught.value.code == 603 and "other workers" in caught.value.hint


def test_ctrl_c_ends_a_call_that_waits() -> None:
    """Python's signal handlers run while C waits for a worker that never comes, and the worker can be used again."""
    code = """
import signal, threading, time, numpy as np, os
from linnet.sync import Server, Worker
from tests.test_sync_server import counting, ones
signal.signal(signal.SIGINT, signal.default_int_handler)
with Server(counting(), workers=2) as server, Worker(counting(), server.address) as worker:
    for _ in range(2):
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            worker.step(ones(1.0))
        except KeyboardInterrupt:
            print("interrupted", worker.info.step)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "interrupted 0\n" * 2, done.stdout + done.stderr


def test_save(model: linnet.Model) -> None:
    with server_of(model) as server, Worker(model, server.address, lost=LOST) as worker:
        worker.save()
        server.saved = (207, "the disk is full")
        with pytest.raises(FileError, match="the disk is full"):
            worker.save()


def test_readers_pull_and_never_push(model: linnet.Model) -> None:
    with server_of(model) as server, Worker(model, server.address, read_only=True, lost=LOST) as worker:
        server.tensors[next(iter(server.tensors))] += 1
        worker.pull()
        same(server.tensors, worker.store.as_dict())
        assert server.hellos[0]["role"] == 3
        with pytest.raises(UsageError, match="a read-only worker"):
            worker.step(batch())


def test_a_reader_takes_no_value_of_an_earlier_epoch_for_a_current_one(model: linnet.Model) -> None:
    """The server was started again from other values, and has made as many updates since."""
    with server_of(model) as server, Worker(model, server.address, read_only=True, lost=LOST) as worker:
        worker.pull()
        server.epoch += 1
        for value in server.tensors.values():
            value += 1
        server.drop()
        worker.pull()
        same(server.tensors, worker.store.as_dict())


def test_wrong_use(model: linnet.Model) -> None:
    with server_of(model) as server:
        for options in ({"group": -1}, {"number": -5}, {"name": "x" * 16}, {"lost": -1.0}):
            with pytest.raises(UsageError):
                Worker(model, server.address, **options)  # type: ignore[arg-type]
        worker = Worker(model, server.address, lost=LOST)
        with pytest.raises(UsageError, match="weight"):
            worker.session().run(batch())
            worker.push(weight=0)
        worker.close()
        for call in (worker.pull, worker.save, lambda: worker.info):
            with pytest.raises(UsageError, match="closed"):
                call()
    with pytest.raises(UsageError, match="number of server addresses"):
        Worker(model, [])
    graph = Graph()
    x = graph.placeholder("x", (1,))
    graph.signature("infer", {"x": x}, {"y": ops.add(x, x)})
    with pytest.raises(linnet.Error, match="no signature 'grad'"):
        Worker(graph, ":1")


def test_info_is_plain_data(model: linnet.Model) -> None:
    with server_of(model) as server, Worker(model, server.address, name="first", lost=LOST) as worker:
        info = worker.info
        assert isinstance(info, WorkerInfo) and info.links[0].address == server.address
        assert info.memory > 0 and info.links[0].connected and server.kinds.get("x", DENSE) == DENSE
        assert server.hellos[0]["name"].rstrip(b"\0") == b"first"
