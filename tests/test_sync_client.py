"""docs/protocol.md is enough to write a worker: tests/sync_document_client.py, made from its tables, trains with a real server
over TCP, alone and together with linnet's worker, is disconnected midway, and its pushes count once."""

from __future__ import annotations

import json
import re
import threading

import numpy as np
import pytest

import linnet
from linnet import SGD, ops
from linnet.facade import Graph
from linnet.sync import Server, Worker
from tests import sync_protocol as page
from tests.sync_document_client import DTYPES, Client, Refused, digest
from tests.sync_protocol import digest as other_digest

FEATURES, ROWS, WIDTH, RATE = 3000, 40, 5, 0.25


def model() -> Graph:
    """w: a vector of three chunks; table: rows; scale: a scalar. The gradients are the inputs."""
    graph = Graph(seed=1)
    x, t = graph.placeholder("x", (FEATURES,)), graph.placeholder("t", ())
    ids, y = graph.placeholder("ids", (3,), "i64"), graph.placeholder("y", (3, WIDTH))
    w = graph.variable("w", np.linspace(-1, 1, FEATURES, dtype=np.float32))
    table = graph.variable("table", np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH))
    scale = graph.variable("scale", np.float32(2))
    loss = (w.tensor(x) * x).sum() + scale.tensor(x) * t + (ops.gather(table.tensor(x), ids) * y).sum()
    linnet.sync.signatures(graph, loss, SGD(RATE), {"x": x, "t": t, "ids": ids, "y": y})
    return graph


def gradients(step: int, worker: int = 0) -> dict[str, object]:
    """Whole numbers, which f16 also represents."""
    random = np.random.default_rng([step, worker])
    return {
        "w": random.integers(-9, 9, FEATURES).astype(np.float32),
        "table": ([3, 7 + step, 30], random.integers(-9, 9, (3, WIDTH)).astype(np.float32)),
        "scale": np.float32(step - 1.0),
    }


def job_of(server: Server) -> str:
    """Read by an observer, which knows nothing of the job."""
    client = Client(server.address, role=1)
    client.connect()
    report = json.loads(client.report())
    client.leave()
    assert report["version"] == server.status()["version"]
    return str(report["job"])


def applied(value: dict[str, np.ndarray], steps: list[dict[str, object]]) -> dict[str, np.ndarray]:
    """The result of SGD with the mean of one step's pushes, added in the server's order."""
    result = {name: array.copy() for name, array in value.items()}
    sums = {name: np.zeros_like(array) for name, array in value.items()}
    for push in steps:
        for name, gradient in push.items():
            if isinstance(gradient, tuple):
                sums[name][gradient[0]] += gradient[1]
            else:
                sums[name] += gradient
    for name in sums:
        result[name] -= np.float32(RATE) * (sums[name] / np.float32(len(steps)))
    return result


def check(client: Client, server: Server, expected: dict[str, np.ndarray]) -> None:
    for name, value in expected.items():
        np.testing.assert_array_equal(server.store[name], value, err_msg=name)
        np.testing.assert_array_equal(client.named(name).value, value, err_msg=name)


# ---- the page itself -------------------------------------------------------------------------------------------------


def test_the_pages_digest() -> None:
    """The document's test vectors, and linnet's implementation of the algorithm."""
    vectors = re.findall(r"^\| .* \| `([0-9a-f]{32})` \|$", page.section("Digests"), re.M)
    pieces = [[], [b""], [b"123456789"], [bytes(range(100))], [b"1234", b"56789"]]
    assert [digest(piece).hex() for piece in pieces] == vectors
    random = np.random.default_rng(1)
    for size in [*range(70), 1000, 4096]:
        data = random.bytes(size)
        assert digest([data]) == b"".join(word.to_bytes(8, "little") for word in other_digest(data))


def test_the_pages_dtypes() -> None:
    from linnet.clib.ffi import ffi
    from linnet.clib.library import library

    for number, (name, size) in DTYPES.items():
        assert bytes(ffi.string(library().linnet_dtype_name(number))).decode() == name
        assert library().linnet_dtype_size(number) == size


# ---- a job -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", [0, 1])
def test_it_trains(encoding: int) -> None:
    with Server(model()) as server:
        value = {name: server.store[name].copy() for name in ("w", "table", "scale")}
        client = Client(server.address, job_of(server), encodings=1 << encoding)
        welcome = client.connect()
        assert welcome["step"] == 0 and client.worker == 0 and client.granted == 1 | 1 << encoding
        assert sorted(client.pull()) == ["scale", "table", "w"]
        check(client, server, value)
        for step in range(4):
            client.push(step, gradients(step), encoding=encoding)
            ack = client.answer()
            assert (ack["outcome"], ack["step"], ack["next"], ack["version"]) == (0, step, step + 1, step + 1)
            assert ack["workers"] == ack["members"] == 1
            value = applied(value, [gradients(step)])
            check(client, server, value)
        np.testing.assert_array_equal(client.rows("table", [7, 3, 39]), value["table"][[7, 3, 39]])
        beat = client.beat(123456789)
        assert beat["peer_clock"] == 123456789 and beat["received"] <= beat["clock"]
        client.push(4, {"w": np.full(FEATURES, np.nan), "scale": np.float32(0)})
        assert client.answer()["outcome"] == 2
        check(client, server, value)
        client.leave()
        about = server.status()
        assert about["applied"] == 4 and about["not_finite"] == 1 and about["workers"][0]["name"] == "from the page"


def test_it_is_cut_off_and_counts_once() -> None:
    """Disconnects between COMMIT and ACK. WELCOME then reports the result of the push, and digests show which values are
    current."""
    with Server(model()) as server:
        value = {name: server.store[name].copy() for name in ("w", "table", "scale")}
        client = Client(server.address, job_of(server))
        client.connect()
        client.pull()
        client.push(0, gradients(0))
        client.close()
        value = applied(value, [gradients(0)])
        welcome = client.connect()
        while welcome["step"] == 0:  # it arrived before our COMMIT
            welcome = client.connect()
        assert (welcome["step"], welcome["applied"], welcome["parameters"]) == (1, 0, 1)
        client.push(0, gradients(0))  # again: the same answer, nothing is applied, and this connection holds nothing
        ack = client.answer(values=False)
        assert (ack["outcome"], ack["step"], ack["next"]) == (0, 0, 1)
        assert sorted(client.pull(with_digests=True)) == ["scale", "table", "w"]
        check(client, server, value)
        client.connect()
        assert client.pull(with_digests=True) == []  # SAME: the digests equal the server's
        spoiled = client.named("w")
        spoiled.value = spoiled.value + 1 if spoiled.value is not None else None
        client.connect()
        for tensor in client.tensors:
            tensor.version = 2**64 - 1
        assert client.pull(with_digests=True) == ["w"]
        check(client, server, value)
        client.leave()


def test_it_works_beside_linnets_own_worker() -> None:
    """The mean of both, in the order of their numbers."""
    graph = model()
    with Server(graph, workers=2) as server:
        value = {name: server.store[name].copy() for name in ("w", "table", "scale")}
        client = Client(server.address, job_of(server))
        client.worker = 1
        client.connect()
        client.pull()

        def other() -> None:
            with Worker(graph, server.address, number=0, timeout=30) as worker:
                for step in range(3):
                    push = gradients(step, 1)
                    ids, rows = push["table"]  # type: ignore[misc]
                    worker.step({"x": push["w"], "t": push["scale"], "ids": np.array(ids), "y": rows}, weight=1.0)

        thread = threading.Thread(target=other)
        thread.start()
        for step in range(3):
            client.push(step, gradients(step))
            assert client.answer()["outcome"] == 0
            value = applied(value, [gradients(step, 1), gradients(step)])
            check(client, server, value)
        thread.join()
        client.leave()


def test_what_is_refused() -> None:
    with Server(model()) as server:
        job = job_of(server)
        # Byte order matters: as two numbers, as four, reversed.
        data = bytes.fromhex(job)
        for wrong in (data[::-1], data[7::-1] + data[:7:-1], data[8:] + data[:8], bytes([data[0] ^ 1]) + data[1:]):
            with pytest.raises(Refused) as refused:
                Client(server.address, wrong.hex()).connect()
            assert refused.value.name == "UNKNOWN_JOB"
        client = Client(server.address, job)
        client.connect(spoil=True)
        with pytest.raises(Refused) as refused:
            client.receive("ACK")
        assert refused.value.name == "MODEL_DIFFERS"
        client.last_step = 5
        client.epoch = 0
        client.connect()
        client.pull()  # this server keeps nothing, and has promised nothing
        client.send_message("PUSH", bytes(4), tensor=client.named("scale").entry["number"], step=7)
        with pytest.raises(Refused) as refused:
            client.answer()
        assert refused.value.name == "UNEXPECTED"


def test_what_is_refused_by_a_server_that_keeps_a_journal(tmp_path_factory: pytest.TempPathFactory) -> None:
    with Server(model(), folder=tmp_path_factory.mktemp("job"), repair=True) as server:
        client = Client(server.address, job_of(server))
        client.last_step = 5
        client.connect()
        with pytest.raises(Refused) as refused:
            client.pull()
        assert refused.value.name == "BEHIND" and "step 5 was acknowledged" in str(refused.value)
