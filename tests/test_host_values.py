"""Values between hosts, by the client that was written from docs/protocol.md: whichever of SEND and FETCH comes first, what is
kept and what is dropped, and what everybody learns when something fails."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests import sync_protocol as page
from tests.host_document_client import Client, Failed, Refused, frame, part, peer, upload
from tests.remote_host import Host, host

CHANNEL = 5


def send(number: int, size: int = 4) -> bytes:
    return part("SEND", channel=CHANNEL, number=number, buffer=1, bytes=size)


class Pair:
    """A client of two hosts, whose buffer 1 has `size` bytes; `b` has named `a` its peer 1."""

    def __init__(self, one: Host, two: Host, size: int = 64) -> None:
        self.one, self.two = one, two
        self.a, self.b = Client(one.address), Client(two.address)
        self.a.submit(part("ALLOCATE", buffer=1, bytes=size))
        self.b.submit(part("ALLOCATE", buffer=1, bytes=size), peer(1, self.a, one.address))
        self._pool = ThreadPoolExecutor(2)

    def fetch(self, number: int, size: int = 4) -> bytes:
        connection = self.a.welcome["connection"]
        return part("FETCH", peer=1, connection=connection, channel=CHANNEL, number=number, buffer=1, bytes=size)

    def get(self, number: int) -> bytes:
        download = part("DOWNLOAD", buffer=1, bytes=4)
        return self.b.submit(self.fetch(number), download, downloads=[4])[0]

    def later(self, work: Callable[[], object]) -> Future[object]:
        """Begins it in another thread."""
        return self._pool.submit(work)

    def close(self) -> None:
        self.a.close()
        self.b.close()
        self._pool.shutdown()


@pytest.fixture
def pair() -> Iterator[Pair]:
    with host() as one, host() as two:
        made = Pair(one, two)
        yield made
        made.close()


def test_either_side_may_be_first(pair: Pair) -> None:
    pair.a.submit(upload(1, b"same"), send(1), upload(1, b"next"), send(2), upload(1, b"last"))
    assert [pair.get(1), pair.get(2)] == [b"same", b"next"]  # as they were when they were sent
    waiting = pair.later(lambda: pair.get(3))
    pair.a.submit(send(3))
    assert waiting.result(60) == b"last"


def test_what_was_asked_ahead_may_be_wrong(pair: Pair) -> None:
    """A host asks for the next number of the channel before the client does, who may want another number or channel."""
    for n in (1, 2, 4):
        pair.a.submit(upload(1, bytes([n])), send(n))
    assert [pair.get(n)[0] for n in (1, 4)] == [1, 4]
    pair.a.submit(part("SEND", channel=9, number=1, buffer=1, bytes=8))
    other = part("FETCH", peer=1, connection=pair.a.welcome["connection"], channel=9, number=1, buffer=1, bytes=8)
    assert pair.b.submit(other, part("DOWNLOAD", buffer=1, bytes=1), downloads=[1]) == [bytes([4])]
    pair.a.submit(upload(1, b"more"), send(5))
    assert pair.get(5) == b"more"


def test_lower_numbers_are_dropped(pair: Pair) -> None:
    pair.a.submit(upload(1, b"abcd"), send(3), send(5), send(9))
    assert pair.get(5) == b"abcd"
    for gone in (3, 4, 5):
        with pytest.raises(Failed, match="no longer there"):
            pair.get(gone)
    with pytest.raises(Failed, match="604"):
        pair.a.submit(send(8))
    assert pair.get(9) == b"abcd"


def test_a_failure_before_the_value_is_passed_on(pair: Pair) -> None:
    """The record has the reason of the one host, and names that host; later values come."""
    waiting = pair.later(lambda: pair.get(1))
    with pytest.raises(Failed, match="has not prepared"):
        pair.a.submit(part("RUN", piece=7), send(1), upload(1, bytes(8)), send(2))
    with pytest.raises(Failed, match=f"host at {pair.one.address} sent no value: .*has not prepared"):
        waiting.result(60)
    with pytest.raises(Failed, match="has not prepared"):
        pair.get(2)
    pair.a.submit(upload(1, b"good"), send(3))
    assert pair.get(3) == b"good"


@pytest.mark.parametrize("end", ["killed", "stopped", "left"])
def test_a_host_that_ends_is_named(end: str, pair: Pair) -> None:
    waiting = pair.later(lambda: pair.get(1))
    if end == "left":  # the client's only connection to it
        pair.a.close()
    elif end == "stopped":
        pair.one.stop()
    else:
        pair.one.process.kill()
        pair.one.process.wait()
    with pytest.raises(Failed, match=f"the host at {pair.one.address} sent no value"):
        waiting.result(60)
    assert pair.b.submit(upload(1, b"on"), part("DOWNLOAD", buffer=1, bytes=2), downloads=[2]) == [b"on"]


def test_a_wait_ends_with_its_client_and_with_its_time() -> None:
    with host("127.0.0.1:0", "--timeout", "0.2") as one, host() as two:
        made = Pair(one, two)
        with pytest.raises(Failed, match="longer than its time limit"):
            made.get(1)
        made.close()
        made = Pair(two, one)
        made.b.send("SUBMIT", made.fetch(1))
        made.close()  # nobody waits any more; both hosts stop at once below


def test_what_is_kept_is_bounded() -> None:
    """The second value waits until the first one is taken."""
    size = 40 << 20
    with host("127.0.0.1:0", "--max-bytes", "200MB") as one, host() as two:
        made = Pair(one, two, size)
        sent = made.later(lambda: made.a.submit(send(1, size), send(2, size)))
        assert not sent.done()
        for number in (1, 2):
            made.b.submit(made.fetch(number, size))
        sent.result(60)
        made.a.submit(send(3, size))
        with pytest.raises(Failed, match="sent no value"):  # it has another size
            made.b.submit(made.fetch(3, 4))
        made.close()


def test_a_host_that_joins_only_takes(pair: Pair) -> None:
    with pytest.raises(Refused) as refused:
        Client(pair.one.address, first="JOIN")  # with a token that nobody has
    assert page.rows("Refusals", 4)[refused.value.code - 1][1] == "NOT_AUTHENTICATED"
    other = Client(pair.one.address, token=pair.a.token, first="JOIN")
    for command in (part("DOWNLOAD", buffer=1, bytes=4), send(1), part("RELEASE", buffer=1)):
        with pytest.raises(Failed, match="hosts take values"):
            other.submit(command)
    take = part("TAKE", connection=pair.a.welcome["connection"], channel=CHANNEL, number=1, bytes=4)
    pair.a.submit(upload(1, b"take"), send(1))
    assert other.submit(part("NOTHING"), take, downloads=[4]) == [b"take"]
    with pytest.raises(Failed, match="hosts take values"):
        pair.a.submit(take)
    other.close()


def test_peers_are_refused_where_the_owner_says_so(pair: Pair) -> None:
    with host("127.0.0.1:0", "--no-peers") as alone:
        c = Client(alone.address)
        with pytest.raises(Failed, match="--no-peers"):
            c.submit(peer(1, pair.a, pair.one.address))
        with pytest.raises(Failed, match=alone.address):
            pair.a.submit(peer(1, c, alone.address))
        c.close()
    for address in ("", "127.0.0.1", "\0:1", "127.0.0.1:1"):
        with pytest.raises(Failed):
            pair.a.submit(peer(1, pair.b, address))
    with pytest.raises(Failed, match="not authenticated"):
        pair.a.submit(peer(1, pair.a, pair.two.address))  # the wrong token
    for number in range(2, 34):
        pair.a.submit(peer(number, pair.b, pair.two.address))
    with pytest.raises(Failed, match="too many"):
        pair.a.submit(peer(34, pair.b, pair.two.address))


@pytest.mark.parametrize(
    "answer",
    [
        part("ANSWER", command=1),  # without the value
        part("ANSWER", command=1) + bytes(16),
        part("ANSWER", status=604) + bytes(8),
        bytes(4),
        b"",
    ],
)
def test_a_host_does_not_trust_its_peer(answer: bytes) -> None:
    """A false host, which sends answers that cannot be."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        sock, _ = listener.accept()
        sock.recv(64 + 24, socket.MSG_WAITALL)
        sock.sendall(frame("WELCOME", part("WELCOME", version=1, chunk=1 << 20, connection=1)))
        sock.recv(64 + 40, socket.MSG_WAITALL)
        sock.sendall(frame("ANSWER", answer))
        sock.recv(1)
        sock.close()

    thread = threading.Thread(target=serve)
    thread.start()
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    with host() as there:
        c = Client(there.address)
        c.submit(part("ALLOCATE", buffer=1, bytes=64), peer(1, c, address))
        fetch = part("FETCH", peer=1, connection=1, channel=1, number=1, buffer=1, bytes=4)
        with pytest.raises(Failed, match=f"host at {address} sent no value"):
            c.submit(fetch)
        with pytest.raises(Failed, match="was lost"):
            c.submit(fetch)
        c.close()
    thread.join(60)
    listener.close()
