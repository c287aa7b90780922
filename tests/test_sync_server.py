"""A server over sockets computes the same bits as the reference in one process, and the contents of its folder survive it."""

from __future__ import annotations

import json
import re
import resource
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import SGD, Adam, Momentum
from linnet.clib.ffi import ffi
from linnet.facade import Graph
from linnet.sync._library import sync_library
from linnet.sync.link import Link
from linnet.sync.server import Server
from linnet.sync.worker import Worker
from tests.native import build
from tests.sync_reference import Arrays, Cluster
from tests.test_sync_signatures import batches, dense, embedded, named, plain
from tests.test_sync_signatures import build as build_graph

STEPS = 5
MODELS: dict[str, Callable[[], Graph]] = {
    "plain": lambda: build_graph(plain, lambda: Adam(0.05)),
    "averages": lambda: build_graph(dense, lambda: Momentum(0.1)),
    "rows": lambda: build_graph(embedded, lambda: Adam(0.05, lazy=True)),
    "remote": lambda: build_graph(embedded, lambda: Adam(0.05, lazy=True), remote=True),
}


def together(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Runs work(0), work(1), ... in threads; raises the first exception."""
    results: list[Any] = [None] * count
    failures: list[BaseException] = []

    def run(k: int) -> None:
        try:
            results[k] = work(k)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


def feed(graph: Graph, step: int, worker: int, workers: int) -> Arrays:
    made = batches(8)
    return named(
        graph, made[(step * workers + worker) % len(made)], "grad" if "ids" not in graph.signatures else "train"
    )


def train(graph: Graph, address: str | Sequence[str], worker: int, workers: int, steps: int = STEPS) -> list[float]:
    data = graph.to_bytes()
    with Worker(data, address, number=worker, timeout=30) as made:
        losses = [float(made.step(feed(graph, i, worker, workers), weight=1.0)["loss"]) for i in range(steps)]
        assert made.info.applied == steps and made.info.step == steps
        return losses


def values(server: Server) -> Arrays:
    return {spec.name: server.store[spec.name] for spec in server.model.variables}


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_steps_are_those_of_the_reference(name: str, workers: int) -> None:
    graph = MODELS[name]()
    reference = Cluster(graph, [graph], workers)
    expected = [reference.step([feed(graph, i, k, workers) for k in range(workers)]) for i in range(STEPS)]
    with Server(graph, workers=workers) as server:
        losses = together(workers, lambda k: train(graph, server.address, k, workers))
        for k in range(workers):
            assert losses[k] == [step[k] for step in expected]
        for variable in reference.trained:
            np.testing.assert_array_equal(server.store[variable], reference.value(variable), err_msg=variable)
        status = server.status()
    assert status["version"] == STEPS and status["applied"] == STEPS * workers and status["late"] == 0


@pytest.mark.parametrize("name", ["averages", "rows", "remote"])
def test_shards_together_are_the_reference(name: str) -> None:
    """Two servers, each with its own variables and a part of the table's rows, and two workers that use both."""
    graph, workers = MODELS[name](), 2
    parts = linnet.sync.shard(graph, 2, split=[] if name == "averages" else ["embedding/weight"])
    reference = Cluster(parts.worker, parts.servers, workers)
    for i in range(STEPS):
        reference.step([feed(graph, i, k, workers) for k in range(workers)])
    with Server(parts.servers[0], workers=workers) as first, Server(parts.servers[1], workers=workers) as second:
        addresses = [second.address, first.address]  # in any order

        def work(k: int) -> None:
            with Worker(parts.worker.to_bytes(), addresses, number=k, timeout=30) as worker:
                for i in range(STEPS):
                    worker.step(feed(graph, i, k, workers), weight=1.0)
                assert [link.version for link in worker.info.links] == [STEPS, STEPS]

        together(workers, work)
        for server, shard in zip((first, second), reference.shards, strict=True):
            for variable, value in values(server).items():
                np.testing.assert_array_equal(value, shard[variable], err_msg=variable)
        with pytest.raises(linnet.UsageError, match="expected 2 shards"):
            Worker(parts.worker, first.address, lost=0.5)


# ---- modes -----------------------------------------------------------------------------------------------------------


def counting() -> Graph:
    """loss = sum(w * x), SGD with rate 1: w decreases by the mean of the pushed x, so sums of small whole numbers are exact if
    each push counts once."""
    graph = Graph(seed=1)
    x = graph.placeholder("x", (4,))
    loss = (graph.variable("w", np.zeros(4, np.float32)).tensor(x) * x).sum()
    linnet.sync.signatures(graph, loss, SGD(1.0), {"x": x})
    return graph


def ones(value: float) -> Arrays:
    return {"x": np.full(4, value, np.float32)}


def test_late_pushes_of_backup_workers_are_dropped_and_counted() -> None:
    graph, steps = counting(), 12
    data, computed, over = graph.to_bytes(), threading.Event(), threading.Event()
    with Server(graph, workers=3, quorum=2) as server:

        def work(k: int) -> dict[str, int]:
            with Worker(data, server.address, number=k, timeout=30) as worker:
                if k == 2:  # the others continue without it
                    worker.pull()
                    worker.session().run(ones(1.0))
                    computed.set()
                    assert over.wait(10)
                    worker.push()
                assert computed.wait(10)
                while worker.info.step < steps:
                    worker.step(ones(1.0), weight=1.0)
                    if worker.info.step > 5:
                        over.set()
                return {"applied": worker.info.applied, "late": worker.info.late}

        counts = together(3, work)
        deadline = time.monotonic() + 20  # the server may still have to read what the last worker said
        while (status := server.status())["late"] != sum(c["late"] for c in counts) and time.monotonic() < deadline:
            time.sleep(0.02)
        np.testing.assert_array_equal(server.store["w"], np.full(4, -status["version"], np.float32))
    assert counts[2]["late"] >= 1
    assert status["late"] == sum(c["late"] for c in counts)
    assert status["applied"] == sum(c["applied"] for c in counts) == 2 * status["version"]


def test_asynchronous_pushes_are_applied_once_each() -> None:
    graph, steps = counting(), 40
    data = graph.to_bytes()
    with Server(graph, mode="asynchronous") as server:
        all_here = threading.Barrier(4)  # the number of a worker that has left is free

        def work(k: int) -> int:
            with Worker(data, server.address, timeout=30) as worker:
                all_here.wait(30)
                for _ in range(steps):
                    worker.step(ones(float(2**k)), weight=1.0)
                return worker.info.worker

        assert sorted(together(4, work)) == [0, 1, 2, 3]
        np.testing.assert_array_equal(server.store["w"], np.full(4, -15.0 * steps, np.float32))
        assert server.status()["version"] == 4 * steps


def test_staleness_is_bounded() -> None:
    graph, bound = counting(), 3
    data = graph.to_bytes()
    with Server(graph, mode="asynchronous", staleness=bound) as server:
        ahead, seen = threading.Event(), list[int]()
        with Worker(data, server.address, number=1, timeout=30) as slow:

            def run() -> None:
                with Worker(data, server.address, number=0, timeout=30) as fast:
                    for _ in range(12):
                        fast.step(ones(1.0), weight=1.0)
                        seen.append(fast.info.step)
                        if len(seen) == bound:
                            ahead.set()

            thread = threading.Thread(target=run)
            thread.start()
            assert ahead.wait(10)
            assert not thread.join(0.3)
            assert seen[-1] <= bound, "it went on although the other has done nothing"
            for _ in range(12):
                slow.step(ones(1.0), weight=1.0)
            thread.join()
        np.testing.assert_array_equal(server.store["w"], np.full(4, -24.0, np.float32))


def test_groups_are_synchronous_inside_and_not_among_themselves() -> None:
    graph, steps = counting(), 10
    data = graph.to_bytes()
    with Server(graph, workers=2) as server:

        def work(k: int) -> None:
            with Worker(data, server.address, number=k, group=k // 2, timeout=30) as worker:
                for _ in range(steps * (1 + k // 2)):
                    worker.step(ones(2.0), weight=1.0)

        together(4, work)
        groups = {g["group"]: g["step"] for g in server.status()["groups"]}
        assert groups == {0: steps, 1: 2 * steps}
        np.testing.assert_array_equal(server.store["w"], np.full(4, -2.0 * 3 * steps, np.float32))


def test_what_is_not_finite_is_dropped() -> None:
    graph = counting()
    with Server(graph) as server, Worker(graph, server.address, timeout=30) as worker:
        worker.step(ones(1.0))
        worker.step(ones(float("nan")))
        assert worker.info.outcome == "not_finite" and worker.info.step == 2
        worker.step(ones(1.0))
        assert (worker.info.applied, worker.info.not_finite, worker.info.version) == (2, 1, 2)
        np.testing.assert_array_equal(server.store["w"], np.full(4, -2.0, np.float32))


def test_weights_make_a_weighted_mean() -> None:
    graph = counting()
    with Server(graph, workers=2) as server:

        def work(k: int) -> None:
            with Worker(graph, server.address, number=k, timeout=30) as worker:
                worker.step(ones(4.0 * k), weight=[3.0, 1.0][k])

        together(2, work)
        np.testing.assert_array_equal(server.store["w"], np.full(4, -1.0, np.float32))


def test_a_lost_worker_is_waited_for_or_not() -> None:
    graph = counting()
    link = Link(heartbeat=0.05, lease=0.2)
    for elastic in (True, False):
        with Server(graph, workers=2, elastic=elastic, link=link) as server:
            stays, leaves = (Worker(graph, server.address, number=k, timeout=1.0) for k in (0, 1))
            together(2, lambda k, pair=(stays, leaves): pair[k].step(ones(1.0), weight=1.0))
            leaves.close()
            if elastic:
                stays.step(ones(1.0), weight=1.0)
                assert stays.info.members == 1
            else:
                with pytest.raises(linnet.SyncError, match="timed_out"):
                    stays.step(ones(1.0), weight=1.0)
                again = Worker(graph, server.address, number=1, timeout=10)
                assert again.info.step == 1
                stays.close()
                stays = Worker(graph, server.address, number=0, timeout=10)
                together(2, lambda k, pair=(stays, again): pair[k].step(ones(1.0), weight=1.0))
                again.close()
            np.testing.assert_array_equal(server.store["w"], np.full(4, -2.0, np.float32))
            stays.close()


def test_shares_follow_speed() -> None:
    graph = counting()
    with Server(graph, workers=2, batch=90) as server:

        def work(k: int) -> tuple[int, int, int] | None:
            with Worker(graph, server.address, number=k, timeout=30) as worker:
                for _ in range(4):
                    worker.step(ones(1.0), weight=1.0)
                return worker.info.share

        shares = together(2, work)
        assert shares[0][0] == 0 and shares[1][0] == shares[0][1]
        assert shares[0][1] + shares[1][1] == shares[0][2] == 90


# ---- what outlives a server -----------------------------------------------------------------------------------------


def test_a_server_goes_on_where_it_was(tmp_path: Path) -> None:
    graph = MODELS["rows"]()
    reference = Cluster(graph, [graph], 2)
    for i in range(2 * STEPS):
        reference.step([feed(graph, i, k, 2) for k in range(2)])
    for part in range(2):
        with Server(graph, workers=2, folder=tmp_path / "job") as server:
            assert server.status()["version"] == part * STEPS

            def work(k: int, first: int = part * STEPS, address: str = server.address) -> None:
                with Worker(graph.to_bytes(), address, number=k, timeout=30) as worker:
                    assert worker.info.step == first
                    for i in range(first, first + STEPS):
                        worker.step(feed(graph, i, k, 2), weight=1.0)

            together(2, work)
            if part:
                for variable in reference.trained:
                    np.testing.assert_array_equal(server.store[variable], reference.value(variable))


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[int], list[Arrays], Path]:
    """A folder as kill -9 leaves it after some steps, with the journal's length and the values after each of them."""
    folder = tmp_path_factory.mktemp("journal")
    graph, lengths, states = MODELS["rows"](), list[int](), list[Arrays]()
    path = folder / "job" / "journal"
    with Server(graph, folder=path.parent) as server, Worker(graph, server.address, number=0, timeout=30) as worker:
        for i in range(4):
            if i:
                worker.step(feed(graph, i, 0, 1), weight=1.0)
            lengths.append(path.stat().st_size)
            states.append(values(server))
        data = path.read_bytes()
    return data, lengths, states, folder


def test_a_torn_journal_is_cut(journal: tuple[bytes, list[int], list[Arrays], Path], tmp_path: Path) -> None:
    data, lengths, states, _ = journal
    graph = MODELS["rows"]()
    assert len(data) == lengths[-1] and len(set(lengths)) == 4
    step = max(1, (len(data) - lengths[0]) // 40)
    cuts = {
        *range(lengths[0], len(data) + 1, step),
        *lengths,
        *(n - 1 for n in lengths[1:]),
        *(n + 1 for n in lengths[:-1]),
    }
    for cut in sorted(cuts):
        folder = tmp_path / str(cut)
        folder.mkdir()
        (folder / "journal").write_bytes(data[:cut])
        server = Server(graph, folder=folder)
        whole = sum(cut >= n for n in lengths) - 1
        assert server.status()["version"] == whole
        for name, value in states[whole].items():
            np.testing.assert_array_equal(server.store[name], value, err_msg=f"{name} of {cut}")
        server.close()


def test_a_damaged_journal_is_refused(journal: tuple[bytes, list[int], list[Arrays], Path], tmp_path: Path) -> None:
    data, lengths, _, _ = journal
    for at in (lengths[0] + 2, lengths[0] + 30, lengths[1] + 1):
        damaged = bytearray(data)
        damaged[at] ^= 1
        (tmp_path / "journal").write_bytes(damaged)
        with pytest.raises(linnet.FileError, match=r"corrupt.*journal.*the record at offset \d+ of \d+.*--repair"):
            Server(MODELS["rows"](), folder=tmp_path)
    (tmp_path / "journal").write_bytes(data)
    with pytest.raises(linnet.FileError, match="other_model"):
        Server(counting(), folder=tmp_path)


def test_two_servers_cannot_hold_one_folder(tmp_path: Path) -> None:
    with Server(counting(), folder=tmp_path / "a") as server:
        with pytest.raises(linnet.SyncError, match=r"superseded.*uses this folder") as caught:
            Server(counting(), folder=tmp_path / "a")
        assert caught.value.code == 606
        assert server.status()["version"] == 0


def test_metrics_and_status() -> None:
    with (
        Server(counting(), metrics=":0") as server,
        Worker(counting(), server.address, name='a "b', timeout=9) as worker,
    ):
        worker.step(ones(1.0))
        address = sync_library().linnet_server_address(server._pointer, -1)
        url = f"http://{bytes(ffi.string(address)).decode()}"
        text = urllib.request.urlopen(f"{url}/metrics", timeout=5).read().decode()
        assert "\nlinnet_sync_version 1\n" in text and 'worker_applied_total{worker="0",name="a \\"b"} 1' in text
        for line in text.splitlines():
            assert re.fullmatch(r"# (HELP|TYPE) \w+ .+|\w+(\{.*\})? -?[\d.e+-]+|\w+(\{.*\})? (nan|inf)", line), line
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{url}/", timeout=5)
        status = server.status()
        assert status["workers"][0]["name"] == 'a "b' and status["members"] == 1 and status["tensors"] == 1


def test_metrics_without_descriptors_do_not_spin() -> None:
    """A request that cannot be served waits; meanwhile the server sleeps, and it continues afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Server(counting(), metrics=":0") as server:
        address = sync_library().linnet_server_address(server._pointer, -1)
        host, port = bytes(ffi.string(address)).decode().split(":")
        with socket.socket() as asking:
            highest = asking.fileno()
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
                asking.connect((host, int(port)))
                time.sleep(0.1)
                began = time.process_time()
                time.sleep(0.5)
                assert time.process_time() - began < 0.25
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            asking.settimeout(5)
            asking.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert asking.recv(1000).startswith(b"HTTP/1.1 200")


def test_a_lease_is_longer_than_a_heartbeat() -> None:
    with pytest.raises(linnet.Error, match="lease"):
        Server(counting(), link=Link(heartbeat=2, lease=1))
    with Server(counting(), link=Link(lease=0.3)) as server, Worker(counting(), server.address, timeout=9) as worker:
        time.sleep(0.7)
        assert server.status()["members"] == 1
        worker.step(ones(1.0))
        assert worker.info.links[0].reconnects == 0


# ---- kill -9 ---------------------------------------------------------------------------------------------------------


class Process:
    """linnet-parameter-server on a Unix socket, killed and restarted at will."""

    def __init__(self, model: Path, folder: Path, *options: str) -> None:
        tool = str(build("release", "linnet-parameter-server") / "linnet-parameter-server")
        self.address = f"unix:{folder}/socket"
        self.command = [tool, str(model), "--listen", self.address, "--folder", f"{folder}/job", *options]
        self.starts = 0
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        assert self.process.stdout.readline().startswith("listening ")
        self.starts += 1

    def kill(self, number: int = signal.SIGKILL) -> int:
        self.process.send_signal(number)
        return self.process.wait(20)


def _memory(process: subprocess.Popen[str]) -> int:
    """Resident bytes."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    assert found
    return int(found[1]) << 10


MANY = [
    ("synchronous", 100, 60, 5),
    ("asynchronous", 100, 60, 5),
    pytest.param("synchronous", 1000, 1000, 0, marks=pytest.mark.soak),
    pytest.param("synchronous", 1000, 1000, 1, marks=pytest.mark.soak),
]


@pytest.mark.parametrize(("mode", "workers", "steps", "lost"), MANY)
def test_many_workers_lose_and_double_nothing(mode: str, workers: int, steps: int, lost: int, tmp_path: Path) -> None:
    """Worker k pushes k + 1; `lost` of a thousand pushes lose their connection before the answer arrives."""
    (tmp_path / "model.lnt").write_bytes(counting().to_bytes())
    load = str(build("release", "load_sync_server") / "load_sync_server")
    server = Process(
        tmp_path / "model.lnt", tmp_path, "--workers", str(workers), "--mode", mode, "--durability", "volatile"
    )
    before = _memory(server.process)
    command = [load, str(tmp_path / "model.lnt"), server.address, str(workers), str(steps), str(lost), "200"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "idle\n"
        each = (_memory(server.process) - before) / workers
        line = process.stdout.readline()
        assert process.wait(600) == 0
    print(f"{each / 1024:.1f} KB for each idle connection; {line}")
    assert 0 < each <= 64 << 10
    found = re.fullmatch(r"done applied (\d+) late 0 lost (\d+)\n", line)
    assert found and int(found[1]) == workers * steps
    assert (int(found[2]) > 0) == (lost > 0)
    assert server.kill(signal.SIGTERM) == 0
    with Server(counting(), folder=tmp_path / "job", durability="volatile") as after:
        pushed = workers * (workers + 1) / 2
        expected = steps * (pushed / workers if mode == "synchronous" else pushed)
        assert expected < 2**24  # whole numbers and halves: exact
        np.testing.assert_array_equal(after.store["w"], np.full(4, -expected, np.float32))


@pytest.mark.parametrize("kills", [6, pytest.param(200, marks=pytest.mark.soak)])
def test_killed_servers_lose_nothing(kills: int, tmp_path: Path) -> None:
    """kill -9 at random moments of a training run: the same bits as a run without kills."""
    graph, workers, steps = MODELS["rows"](), 2, max(40, kills * 8)
    (tmp_path / "model.lnt").write_bytes(graph.to_bytes())
    reference = Cluster(graph, [graph], workers)
    for i in range(steps):
        reference.step([feed(graph, i % 7, k, workers) for k in range(workers)])
    server = Process(tmp_path / "model.lnt", tmp_path, "--workers", str(workers), "--save-every", "7")
    done, random = threading.Event(), np.random.default_rng(kills)

    def work(k: int) -> None:
        with Worker(graph.to_bytes(), server.address, number=k, lost=30, timeout=60) as worker:
            for i in range(steps):
                worker.step(feed(graph, i % 7, k, workers), weight=1.0)
                time.sleep(0.002)
            assert worker.info.applied == steps

    def killer() -> None:
        while not done.wait(random.exponential(0.02)) and server.starts <= kills:
            server.kill()
            server.start()

    def run(k: int) -> None:
        if k == workers:
            return killer()
        try:
            work(k)
        finally:
            done.set()

    together(workers + 1, run)
    assert server.starts > 1
    assert server.kill(signal.SIGTERM) == 0
    with Server(graph, folder=tmp_path / "job") as after:
        assert after.status()["version"] == steps and after.status()["journal"] == 0
        for variable in reference.trained:
            np.testing.assert_array_equal(after.store[variable], reference.value(variable), err_msg=variable)


def test_the_tool_says_what_is_wrong(tmp_path: Path) -> None:
    tool = str(build("release", "linnet-parameter-server") / "linnet-parameter-server")
    (tmp_path / "model.lnt").write_bytes(counting().to_bytes())
    model = str(tmp_path / "model.lnt")
    for arguments, status, words in [
        ([], 2, "no model given"), ([model, model], 2, "expected one model file"),
        ([model, "--bogus"], 2, "unknown option '--bogus'"),
        ([model, "--mode", "none"], 2, "synchronous or asynchronous"),
        ([model, "--backup", "1"], 2, "--backup 1 must be less than --workers 1"),
        ([model, "--workers", "0"], 2, "--workers: expected a whole number from 1 to 2000000000, got '0'"),
        ([model, "--connections", "0"], 2, "--connections: expected a whole number from 1"),
        ([model, "--listen"], 2, "--listen"), ([model, "--memory", "much"], 2, "--memory"),
        ([model, "--listen", "0.0.0.0:0"], 1, "--insecure"), ([model, "--memory", "3"], 1, "--memory is too small"),
        ([model + "x"], 1, "cannot open"), (["--status", f"unix:{tmp_path}/no"], 1, "unreachable"),
        ([model, "--folder", model], 1, "folder"), ([model, "--key", model], 1, "key"),
    ]:  # fmt: skip
        done = subprocess.run([tool, *arguments], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (status, ""), (arguments, done)
        assert done.stderr.startswith("linnet-parameter-server: error: ") and done.stderr.count("\n") == 1
        assert words in done.stderr, done.stderr
    with pytest.raises(linnet.UsageError, match="workers"):
        Server(counting(), workers=0)
    options = subprocess.run([tool, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
    assert all(len(line) <= 110 for line in options.splitlines()) and "--staleness" in options
    server = Process(tmp_path / "model.lnt", tmp_path, "--updates", "2")
    text = subprocess.run([tool, "--status", server.address], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(text.stdout)["version"] == 0
    with Worker(counting(), server.address, timeout=30) as worker:
        for _ in range(2):
            worker.step(ones(1.0))
        assert server.process.wait(20) == 0
