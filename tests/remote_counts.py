"""A proxy in front of linnet-host, which counts the messages and bytes that pass, and may let nothing more through. Clients and
other hosts reach the host by the proxy's name."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.host_document_client import TYPES, unpack

_NAMES = {number: name for name, number in TYPES.items()}


@dataclass
class Passed:
    """What passed on the connections of one kind: the number of messages by name, their bytes by name, and all bytes."""

    messages: Counter[str] = field(default_factory=Counter)
    sizes: Counter[str] = field(default_factory=Counter)
    bytes: int = 0


class Counts:
    """`name` is a device. `by["HELLO"]` has what clients and the host sent to each other, and `by["JOIN"]` has what other
    hosts and this one did. Only TCP without TLS. While `cut` is set, what arrives is lost, as on a network that is cut."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.name = f"remote:127.0.0.1:{self._listener.getsockname()[1]}"
        self.by: dict[str, Passed] = {"HELLO": Passed(), "JOIN": Passed()}
        self.cut = False
        self._sockets = [self._listener]
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def clear(self) -> None:
        for passed in self.by.values():
            passed.messages.clear()
            passed.sizes.clear()
            passed.bytes = 0

    def close(self) -> None:
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    host = socket.create_connection(self._address.rsplit(":", 1))
                except OSError:
                    client.close()
                    continue
                self._sockets += [client, host]
                kind: list[Passed] = []
                for source, target in ((client, host), (host, client)):
                    source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(target=self._move, args=(source, target, kind), daemon=True).start()

    def _move(self, source: socket.socket, target: socket.socket, kind: list[Passed]) -> None:
        pending = bytearray()
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if self.cut:
                    continue
                pending += data
                self._count(pending, kind)
                target.sendall(data)
        for sock in (source, target):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _count(self, pending: bytearray, kind: list[Passed]) -> None:
        while len(pending) >= 64:
            header = unpack("The header", bytes(pending[:64]))
            size = 64 + int(header["length"])
            if len(pending) < size:
                return
            name = _NAMES[int(header["type"])]
            del pending[:size]
            with self._lock:
                if not kind:
                    kind.append(self.by[name])
                kind[0].messages[name] += header["offset"] == 0
                kind[0].sizes[name] += size
                kind[0].bytes += size


@contextlib.contextmanager
def counted(address: str) -> Iterator[Counts]:
    made = Counts(address)
    try:
        yield made
    finally:
        made.close()
