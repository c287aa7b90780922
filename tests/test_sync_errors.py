"""A situation that a user can meet provokes every status code 6xx of linnet.h; a code without a test fails. Each error names the
address, says what is wrong and what to do, in one line."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import linnet
from linnet.sync.link import Link
from linnet.sync.server import Server
from linnet.sync.worker import Worker
from tests.test_errors_all import ALL_CODES
from tests.test_sync_server import counting, ones

CODES = {name: code for name, code in ALL_CODES.items() if code // 100 == 6}


@contextmanager
def answering(text: bytes) -> Iterator[str]:
    """A server of another protocol, which sends `text` to every client."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    peer.sendall(text)
                    peer.recv(1)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def unreachable(folder: Path) -> None:
    Worker(counting(), f"unix:{folder}/nobody", lost=0.3)


def refused(_: Path) -> None:
    with Server(counting()) as server, Worker(counting(), server.address, number=1):
        Worker(counting(), server.address, number=1, lost=0.3)


def timed_out(_: Path) -> None:
    with Server(counting(), workers=2) as server, Worker(counting(), server.address, timeout=0.2) as worker:
        worker.step(ones(1.0))


def protocol_error(_: Path) -> None:
    with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(100)) as address:
        Worker(counting(), address, lost=0.5)


def not_authenticated(_: Path) -> None:
    Server(counting(), listen="0.0.0.0:0")


def superseded(folder: Path) -> None:
    with Server(counting(), folder=folder / "job"):
        Server(counting(), folder=folder / "job")


def connection_lost(_: Path) -> None:
    with answering(b"") as address:
        Worker(counting(), address, lost=0.3)


def job_over(_: Path) -> None:
    with Server(counting(), workers=2) as server, Worker(counting(), server.address) as worker:
        threading.Timer(0.3, server.stop, kwargs={"over": True}).start()
        worker.step(ones(1.0))


PROVOKERS: dict[str, Callable[[Path], None]] = {
    name: globals()[name.lower()] for name in CODES if callable(globals().get(name.lower()))
}


@pytest.mark.parametrize("name", CODES)
def test_code_is_provoked(name: str, tmp_path: Path) -> None:
    assert name in PROVOKERS, f"LINNET_{name} has no provoker: write one in tests/test_sync_errors.py"
    with pytest.raises(linnet.SyncError) as caught:
        PROVOKERS[name](tmp_path)
    error = caught.value
    print(error)
    assert error.status == name.lower() and error.code == CODES[name]
    assert "\n" not in str(error) and (error.hint or error.expected or error.got)


def test_a_key_is_needed_beyond_this_machine_or_the_word(tmp_path: Path) -> None:
    with Server(counting(), listen="0.0.0.0:0", link=Link(insecure=True)) as server:
        assert server.address.startswith("0.0.0.0:")
