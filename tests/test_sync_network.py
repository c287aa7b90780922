"""Failing networks: connections that stall silently, break, return or not, and bytes that change in transit.
Synchronous training gives the same bits. The tests make namespaces and a pair of virtual interfaces (as root, on Linux)."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

from linnet import Adam
from linnet.cli.sync_key import write_key
from linnet.facade import Graph
from linnet.sync import Link, Server, Worker
from tests.sync_reference import Arrays, Cluster
from tests.test_sync_server import feed, together
from tests.test_sync_signatures import build, embedded

WORKERS = 2


@pytest.fixture(scope="module")
def graph() -> Graph:
    return build(embedded, lambda: Adam(0.05, lazy=True))


def _expected(graph: Graph, steps: int) -> Arrays:
    reference = Cluster(graph, [graph], WORKERS)
    for step in range(steps):
        reference.step([feed(graph, step, k, WORKERS) for k in range(WORKERS)])
    return {name: np.array(reference.value(name)) for name in reference.trained}


# ---- a relay that fails ----------------------------------------------------------------------------------------------


class Faulty:
    """A relay in front of a server. `fault` does something to the existing connections."""

    FAULTS = ("cut", "reset", "stall", "flip", "half")

    def __init__(self, target: str, rng: random.Random) -> None:
        host, port = target.rsplit(":", 1)
        self.target, self.rng = (host, int(port)), rng
        self.pairs: list[tuple[socket.socket, socket.socket]] = []
        self.open, self.flips = threading.Event(), 0
        self.open.set()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                inward = self.listener.accept()[0]
                outward = socket.create_connection(self.target)
                self.pairs.append((inward, outward))
                for pair in ((inward, outward), (outward, inward)):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := bytearray(source.recv(1 << 16)):
                self.open.wait()
                if self.flips:
                    self.flips -= 1
                    data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def fault(self, kind: str) -> None:
        pairs, self.pairs = self.pairs, []
        if kind == "stall":
            self.open.clear()
            time.sleep(self.rng.choice([0.05, 0.3, 1.0]))  # shorter and longer than the lease
            self.open.set()
            self.pairs = pairs + self.pairs
        elif kind == "flip":
            self.pairs, self.flips = pairs + self.pairs, self.rng.randrange(1, 4)
        else:
            for pair in pairs:
                for one in pair if kind != "half" else pair[: self.rng.randrange(1, 3)]:
                    with contextlib.suppress(OSError):
                        if kind == "reset":
                            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.open.set()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.fault("cut")


def _through_faults(graph: Graph, tmp_path: Path, keyed: bool, steps: int, faults: int) -> None:
    key = tmp_path / "key"
    write_key(key)
    link = Link(key if keyed else None, heartbeat=0.1, lease=0.4)
    rng, made = random.Random(steps), list[str]()
    with Server(graph, workers=WORKERS, link=link) as server:
        relay = Faulty(server.address, rng)
        done, ended = [0] * WORKERS, threading.Event()

        def work(k: int) -> int:
            with Worker(graph.to_bytes(), relay.address, number=k, lost=30, timeout=60, link=link) as worker:
                for step in range(steps):
                    while step * faults > (len(made) + 1) * steps:  # steps and faults alternate
                        time.sleep(0.001)
                    worker.step(feed(graph, step, k, WORKERS), weight=1.0)
                    done[k] = step + 1
                assert worker.info.applied == steps
                return worker.info.links[0].reconnects

        def disturb() -> None:
            while len(made) < faults and not ended.is_set():
                if min(done) * faults >= len(made) * steps:
                    relay.fault(kind := rng.choice(Faulty.FAULTS))
                    made.append(kind)
                time.sleep(rng.random() * 0.01)

        thread = threading.Thread(target=disturb)
        thread.start()
        try:
            reconnects = together(WORKERS, work)
        finally:
            ended.set()
            thread.join()
            relay.close()
        assert sum(reconnects) > faults // 4, "the faults were none"
        for name, value in _expected(graph, steps).items():
            np.testing.assert_array_equal(server.store[name], value, err_msg=name)
        status = server.status()
        assert status["version"] == steps and status["applied"] == steps * WORKERS


@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "tls"])
def test_connections_that_fail(keyed: bool, graph: Graph, tmp_path: Path) -> None:
    _through_faults(graph, tmp_path, keyed, 30, 15)


@pytest.mark.soak
@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "tls"])
def test_connections_that_fail_two_hundred_times(keyed: bool, graph: Graph, tmp_path: Path) -> None:
    _through_faults(graph, tmp_path, keyed, 400, 200)


# ---- namespaces ------------------------------------------------------------------------------------------------------


class Net:
    """Two namespaces and a virtual cable. `close` removes everything."""

    SERVER, WORKER = "10.77.0.1", "10.77.0.2"

    def __init__(self) -> None:
        self.names = [f"linnet-{os.getpid()}-{i}" for i in range(2)]
        for name in self.names:
            self._ip("netns", "add", name)
        ends = [word for i, name in enumerate(self.names) for word in ("name", f"ln{i}", "netns", name)]
        self._ip("link", "add", *ends[:4], "type", "veth", "peer", *ends[4:])
        for i, (name, address) in enumerate(zip(self.names, (self.SERVER, self.WORKER), strict=True)):
            self._ip("-n", name, "addr", "add", f"{address}/24", "dev", f"ln{i}")
            self._ip("-n", name, "link", "set", f"ln{i}", "up")

    @staticmethod
    def _ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True, timeout=10)

    def cable(self, plugged: bool) -> None:
        self._ip("-n", self.names[0], "link", "set", "ln0", "up" if plugged else "down")

    def run(self, end: int, *words: str) -> subprocess.Popen[str]:
        command = ["ip", "netns", "exec", self.names[end], sys.executable, "-m", "tests.sync_node", *words]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def close(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True, timeout=10)


@pytest.fixture
def net() -> Iterator[Net]:
    if not sys.platform.startswith("linux") or os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root on Linux, and iproute2: apt-get install iproute2")
    made: Net | None = None
    try:
        made = Net()
    except subprocess.CalledProcessError as failure:
        pytest.skip(f"this system makes no network namespaces: {failure.stderr.decode().strip()}")
    try:
        yield made
    finally:
        made.close()


def _line(process: subprocess.Popen[str]) -> str:
    stream: IO[str] | None = process.stdout
    assert stream is not None
    return stream.readline().strip()


@contextlib.contextmanager
def _job(net: Net, graph: Graph, tmp_path: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    """The server's process, and a function that starts worker k."""
    model, key = tmp_path / "model.lnt", tmp_path / "key"
    model.write_bytes(graph.to_bytes())
    write_key(key)
    common = ["--workers", str(WORKERS), "--key", str(key)]
    processes = [net.run(0, "serve", str(model), f"{net.SERVER}:0", *common, *options)]
    address = _line(processes[0])
    assert address.startswith(net.SERVER)

    def work(k: int, *more: str) -> subprocess.Popen[str]:
        processes.append(net.run(1, "work", str(model), address, *common, "--number", str(k), *more))
        return processes[-1]

    try:
        yield processes[0], work
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _follow(process: subprocess.Popen[str], steps: list[int], k: int) -> Any:
    """Counts the steps of worker k until it prints its final JSON."""
    while line := _line(process):
        if not line.startswith("step"):
            return json.loads(line)
        steps[k] += 1
    return {"error": "died"}


def _unplugged(net: Net, graph: Graph, tmp_path: Path, steps: int, outages: Sequence[float]) -> None:
    with _job(net, graph, tmp_path) as (server, work):
        done = [0] * WORKERS
        workers = [work(k, "--steps", str(steps)) for k in range(WORKERS)]
        rng, ended = random.Random(steps), threading.Event()

        def unplug() -> None:
            for i, seconds in enumerate(outages):
                while min(done) < steps * (i + 1) // (len(outages) + 2) and not ended.wait(0.002):
                    pass
                time.sleep(rng.random() * 0.02)
                net.cable(False)
                time.sleep(seconds)
                net.cable(True)

        thread = threading.Thread(target=unplug)
        thread.start()
        results = together(WORKERS, lambda k: _follow(workers[k], done, k))
        ended.set()
        thread.join()
        assert [result.get("applied") for result in results] == [steps] * WORKERS, results
        assert sum(result["reconnects"] for result in results) > 0
        server.communicate(timeout=30)  # closing its input ends it
        with np.load(tmp_path / "model.npz") as found:
            for name, value in _expected(graph, steps).items():
                np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_a_cable_that_is_unplugged_and_plugged_in(net: Net, graph: Graph, tmp_path: Path) -> None:
    """Connections stall silently for shorter and for longer than the lease. All over TLS, because it is a network."""
    _unplugged(net, graph, tmp_path, 1000, [0.2, 1.5])


@pytest.mark.soak
def test_a_cable_with_a_loose_contact(net: Net, graph: Graph, tmp_path: Path) -> None:
    rng = random.Random(3)
    _unplugged(net, graph, tmp_path, 20_000, [rng.choice([0.02, 0.2, 0.7, 1.5]) for _ in range(60)])


def test_a_cable_that_stays_unplugged(net: Net, graph: Graph, tmp_path: Path) -> None:
    """A worker gives up after its timeout and says what happened; an elastic server continues for the others."""
    with _job(net, graph, tmp_path, "--elastic") as (server, work):
        worker = work(0, "--steps", "100000", "--lost", "2")
        assert _line(worker) == "step 0"
        net.cable(False)
        began = time.monotonic()
        result = _follow(worker, [0], 0)
        assert result["error"] in ("unreachable", "connection_lost", "timed_out"), result
        assert net.SERVER in result["text"]
        assert time.monotonic() - began < 60
        net.cable(True)
        other = _follow(work(1, "--steps", "5"), [0], 0)
        assert other == {"applied": 5, "reconnects": 0}
        assert server.poll() is None
