"""Hostile sessions do not disturb a running job: its parameters keep their bits, no worker loses its connection, and the server's
memory and descriptors stay bounded. `make soak` runs ten thousand of each kind."""
# Dear: hostile members send to a server for as long as an honest job takes.

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from linnet import Adam
from linnet.cli.sync_key import write_key
from linnet.clib.errors import SyncError
from linnet.facade import Graph
from linnet.sync import Link, Worker, status
from tests.native import SANITIZED
from tests.native import build as build_native
from tests.sync_hostile import ATTACKS, OUTSIDE, Enemy, frame
from tests.sync_reference import Arrays, Cluster
from tests.test_sync_server import feed
from tests.test_sync_signatures import build, embedded

WORKERS, STEPS = 2, 40
PORTION, ALL = 700, 10_000


@pytest.fixture(scope="module")
def graph() -> Graph:
    return build(embedded, lambda: Adam(0.05, lazy=True))


@pytest.fixture(scope="module")
def expected(graph: Graph) -> Arrays:
    """The parameters after STEPS undisturbed steps."""
    reference = Cluster(graph, [graph], WORKERS)
    for step in range(STEPS):
        reference.step([feed(graph, step, k, WORKERS) for k in range(WORKERS)])
    return {name: np.array(reference.value(name)) for name in reference.trained}


class Serving:
    """A server in a separate process, so that its death and its memory can be observed: `linnet parameter-server`, or
    `native`, a build of linnet-parameter-server. Steps close after the pushes of WORKERS workers."""

    def __init__(self, model: Path, *options: str, native: Path | None = None) -> None:
        command = [str(native)] if native else [sys.executable, "-m", "linnet", "parameter-server"]
        command += ["--workers", str(WORKERS + 1), "--backup", "1"]
        self.process = subprocess.Popen(
            [*command, str(model), *options],
            env={**os.environ, **SANITIZED},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip().removeprefix("listening ")
        assert self.address, self.process.communicate(timeout=30)[1]

    @property
    def memory(self) -> int:
        """Resident bytes."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.split("VmRSS:")[1].split()[0]) << 10

    @property
    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        errors = self.process.communicate(timeout=30)[1]
        assert self.process.returncode == 0 and not errors, errors


@contextlib.contextmanager
def serving(model: Path, *options: str, native: Path | None = None) -> Iterator[Serving]:
    server = Serving(model, *options, native=native)
    try:
        yield server
        server.end()
    finally:
        server.process.kill()
        server.process.wait()


def _target(address: str) -> tuple[str, int] | str:
    if address.startswith("unix:"):
        return address.removeprefix("unix:")
    host, port = address.rsplit(":", 1)
    return host, int(port)


def _train(graph: Graph, server: Serving, link: Link, sessions: int, done: list[int]) -> list[threading.Thread]:
    """Workers whose steps are spread over the sessions. Exceptions of the threads are in `failures`."""

    def work(k: int) -> None:
        with Worker(graph.to_bytes(), server.address, number=k, timeout=60, link=link) as worker:
            for step in range(STEPS):
                while done[0] < sessions * step // STEPS and done[0] >= 0:
                    time.sleep(0.002)
                worker.step(feed(graph, step, k, WORKERS), weight=1.0)
            while 0 <= done[0] < sessions:  # its number must be taken all the time
                time.sleep(0.01)
            info = worker.info
            assert (info.applied, info.late, info.not_finite) == (STEPS, 0, 0)
            assert [link.reconnects for link in info.links] == [0]

    def guarded(k: int) -> None:
        try:
            work(k)
        except BaseException as failure:
            failures.append(failure)

    failures: list[BaseException] = []
    threads = [threading.Thread(target=guarded, args=(k,)) for k in range(WORKERS)]
    for thread in threads:
        thread.failures = failures  # type: ignore[attr-defined]
        thread.start()
    return threads


def _attack(
    graph: Graph,
    server: Serving,
    link: Link,
    expected: Arrays,
    sessions: int,
    session: Callable[[int], str],
    sanitized: bool = False,
) -> Counter[str]:
    """Trains during `sessions` calls of session(i), then checks parameters, memory and descriptors."""
    done, seen = [0], Counter[str]()
    threads = _train(graph, server, link, sessions, done)
    failures: list[BaseException] = threads[0].failures  # type: ignore[attr-defined]
    while not failures and status(server.address, link=link)["members"] < WORKERS:
        time.sleep(0.01)
    early = descriptors = 0
    try:
        for i in range(sessions):
            seen[session(i)] += 1
            done[0] = i + 1
            assert server.process.poll() is None, f"the server has ended after {seen}"
            assert not failures, failures
            if i == sessions // 10:
                early = server.memory
            descriptors = max(descriptors, server.descriptors) if i % 100 == 0 else descriptors
    finally:
        done[0] = -1 if failures else sessions
        for thread in threads:
            thread.join(60)
    assert not failures, failures
    with Worker(graph.to_bytes(), server.address, read_only=True, link=link, timeout=60) as reader:
        reader.pull()
        for name, value in expected.items():
            np.testing.assert_array_equal(reader.store[name], value, err_msg=name)
    print(
        f"{sessions} sessions, memory {early >> 20} -> {server.memory >> 20} MiB, descriptors {descriptors}; {dict(seen)}"
    )
    assert server.memory < early + (32 << 20) * (8 if sanitized else 1)  # freed memory stays in quarantine
    assert descriptors < 500
    return seen


def _inside(
    graph: Graph, expected: Arrays, tmp_path: Path, sessions: int, listen: str, native: Path | None = None
) -> None:
    model = tmp_path / "model.lnt"
    model.write_bytes(graph.to_bytes())
    rng, held, old = random.Random(sessions), list[socket.socket](), list[bytes]()
    names = sorted(ATTACKS)
    options = ("--listen", listen, "--folder", str(tmp_path / "state"))
    with serving(model, *options, native=native) as server:
        job = bytes.fromhex(status(server.address)["job"])

        def session(i: int) -> str:
            name = names[i % len(names)]
            enemy = Enemy(_target(server.address), job, rng, held, old)
            ATTACKS[name](enemy)
            if len(old) < 100 or rng.random() < 0.01:
                old[rng.randrange(100) if len(old) == 100 else len(old) :][:1] = [bytes(enemy.said)]
            enemy.close()
            while len(held) > 150:
                held.pop(rng.randrange(len(held))).close()
            return name

        try:
            _attack(graph, server, Link(), expected, sessions, session, native is not None)
        finally:
            for one in held:
                one.close()


@pytest.mark.parametrize("listen", [":0", "unix:{}/s"])
def test_hostile_members(listen: str, graph: Graph, expected: Arrays, tmp_path: Path) -> None:
    """Without a key, anyone may say HELLO and join, like an authenticated worker."""
    _inside(graph, expected, tmp_path, PORTION, listen.format(tmp_path))


@pytest.mark.soak
def test_ten_thousand_hostile_members(graph: Graph, expected: Arrays, tmp_path: Path) -> None:
    _inside(graph, expected, tmp_path, ALL, ":0")


@pytest.mark.soak
def test_hostile_members_of_a_sanitized_server(graph: Graph, expected: Arrays, tmp_path: Path) -> None:
    """AddressSanitizer and UBSan find nothing: a finding would end the server with another status."""
    native = build_native("address", "linnet-parameter-server") / "linnet-parameter-server"
    _inside(graph, expected, tmp_path, ALL // 4, ":0", native)
    (tmp_path / "strangers").mkdir()
    _outside(graph, expected, tmp_path / "strangers", ALL, native)


class Relay(threading.Thread):
    """A proxy between a worker and the server that records what the worker sends."""

    def __init__(self, target: tuple[str, int]) -> None:
        super().__init__(daemon=True)
        self.target, self.said = target, bytearray()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.start()

    def run(self) -> None:
        inward = self.listener.accept()[0]
        outward = socket.create_connection(self.target)
        back = threading.Thread(target=self._pass, args=(outward, inward, bytearray()), daemon=True)
        back.start()
        self._pass(inward, outward, self.said)

    @staticmethod
    def _pass(source: socket.socket, sink: socket.socket, copy: bytearray) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                copy += data
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def _outside(graph: Graph, expected: Arrays, tmp_path: Path, sessions: int, native: Path | None = None) -> None:
    model, key, wrong = tmp_path / "model.lnt", tmp_path / "key", tmp_path / "wrong"
    model.write_bytes(graph.to_bytes())
    write_key(key)
    write_key(wrong)
    rng, held, old = random.Random(7), list[socket.socket](), list[bytes]()
    names = [*sorted(OUTSIDE), "wrong_key", "recorded", "recorded_cut"]
    with serving(model, "--key", str(key), native=native) as server:
        target = _target(server.address)
        assert isinstance(target, tuple)
        relay = Relay(target)
        job = bytes.fromhex(status(relay.address, link=Link(key))["job"])
        assert len(relay.said) > 300

        def session(i: int) -> str:
            name = names[i % len(names)]
            if name == "wrong_key":
                with pytest.raises(SyncError, match="TLS handshake failed"):
                    status(server.address, link=Link(wrong))
                return name
            enemy = Enemy(target, job, rng, held, old)
            if name in OUTSIDE:
                OUTSIDE[name](enemy)
            else:  # a replayed session gets only a handshake and its failure as answer
                enemy.send(bytes(relay.said[: rng.randrange(len(relay.said)) if name == "recorded_cut" else None]))
            enemy.close()
            while len(held) > 150:
                held.pop(rng.randrange(len(held))).close()
            return name

        try:
            _attack(graph, server, Link(key), expected, sessions, session, native is not None)
        finally:
            for one in held:
                one.close()


def test_hostile_strangers(graph: Graph, expected: Arrays, tmp_path: Path) -> None:
    """With a key, nobody without it can send a frame."""
    _outside(graph, expected, tmp_path, PORTION)


@pytest.mark.soak
def test_ten_thousand_hostile_strangers(graph: Graph, expected: Arrays, tmp_path: Path) -> None:
    _outside(graph, expected, tmp_path, ALL)


@pytest.mark.soak
@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "tls"])
def test_who_dribbles_is_closed(keyed: bool, graph: Graph, tmp_path: Path) -> None:
    """A handshake takes at most 10 s, however many bytes keep coming."""
    model, key = tmp_path / "model.lnt", tmp_path / "key"
    model.write_bytes(graph.to_bytes())
    write_key(key)
    with serving(model, *(("--key", str(key)) if keyed else ())) as server:
        link = Link(key if keyed else None)
        began, closed = time.monotonic(), list[float]()
        # The beginning of a greeting, and of a client's first TLS record.
        said = b"\x16\x03\x01\x10\x00\x01\x00\x0f\xfc\x03\x03" if keyed else frame("HELLO", bytes(96))
        dribbling = [socket.create_connection(_target(server.address)) for _ in range(20)]
        for at in range(200):
            for one in list(dribbling):
                one.setblocking(False)
                try:
                    one.send(said[at : at + 1] or b"\0")
                    while data := one.recv(1 << 12):
                        assert keyed or b"no handshake within 10 s" in data
                    ended = True
                except BlockingIOError:
                    ended = False
                except OSError:
                    ended = True
                if ended:
                    closed.append(time.monotonic() - began)
                    dribbling.remove(one)
            if not dribbling:
                break
            time.sleep(0.5 if keyed or at < 50 else 0.1)
        assert len(closed) == 20 and 8 < min(closed) <= max(closed) < 14, closed
        assert status(server.address, link=link)["connections"] == 1  # this one
