"""A server in plain Python, written only from the tables of docs/protocol.md: an independent peer for the C worker.
It has one shard of NumPy arrays, plain SGD, and a thread per connection. Tests can make it disconnect anywhere."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from tests import sync_protocol as protocol

Array = np.ndarray[Any, Any]
NONE = 2**64 - 1
NUMBERS = {number: (name, bulk) for name, (number, bulk) in protocol.types().items()}
DENSE, ROWS, AVERAGED, READ = range(4)
_DTYPES = {"float32": 1, "float16": 2, "float64": 4, "int32": 7, "int64": 8}


class Broken(Exception):
    """The connection ends: the client closed it, or the test wants it."""


def unpack(title: str, data: bytes) -> dict[str, Any]:
    """Unpacks the fields of a payload as a section of the document defines them."""
    found: dict[str, Any] = {}
    at = 0
    for field in protocol.layout(title):
        size = protocol.size_of([field])
        part = data[at : at + size]
        assert len(part) == size, f"{title} is cut at {field.name}"
        code = protocol._FORMATS.get(field.type)
        found[field.name] = struct.unpack("<" + code, part)[0] if code else part
        at += size
    return found


class Connection:
    """Frames of one client."""

    def __init__(self, server: PlainServer, sock: socket.socket) -> None:
        self.server, self.sock = server, sock
        self.worker, self.received, self.held = 0xFFFFFFFF, 0, dict[int, int]()
        self.messages: dict[tuple[int, int], bytearray] = {}
        self.pushed: list[tuple[int, int, bytes]] = []

    def read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.sock.recv(size - len(data))
            if not part:
                raise Broken
            data += part
        return bytes(data)

    def frame(self) -> tuple[str, dict[str, Any], bytes]:
        """The next frame, checked."""
        head = self.read(64)
        header = unpack("The header", head)
        assert protocol.crc32c(head[:60]) == header["header_crc"] and header["magic"] == protocol.MAGIC
        payload = self.read(header["length"])
        assert header["payload_crc"] == (protocol.crc32c(payload) if payload else 0)
        name, bulk = NUMBERS[header["type"]]
        if not bulk:
            assert header["total"] == header["length"] <= 4096 and header["offset"] == 0
        else:
            assert header["length"] <= self.server.chunk
        self.server.seen.append((name, header, payload))
        self.server.hook(self, name)
        return name, header, payload

    def send(self, name: str, payload: bytes = b"", **fields: int) -> None:
        job = int.from_bytes(self.server.job[:8], "little")
        fields = {"job": job, "worker": self.worker, "shard": self.server.shard, **fields}
        self.sock.sendall(protocol.frame(name, payload, **fields))

    def bulk(self, name: str, data: bytes, **fields: int) -> None:
        for at in range(0, max(len(data), 1), self.server.chunk):
            self.send(name, data[at : at + self.server.chunk], total=len(data), offset=at, **fields)

    def refuse(self, code: int, text: str) -> None:
        self.send("REFUSE", protocol.pack("REFUSE", why=code, length=len(text), text=text.encode()))
        raise Broken

    def greet(self) -> None:
        server = self.server
        name, header, payload = self.frame()
        hello = unpack("HELLO", payload)
        assert name == "HELLO" and header["job"] == int.from_bytes(server.job[:8], "little")
        assert hello["job"] == server.job and header["shard"] in (0xFFFF, server.shard)
        self.worker = hello["worker"] if hello["worker"] != 0xFFFFFFFF else len(server.hellos)
        server.hellos.append(hello)
        nonce = os.urandom(16)
        self.send("WELCOME", protocol.pack(
            "WELCOME", version=1, shard=server.shard, shards=server.shards, encodings=hello["encodings"] & server.encodings,
            worker=self.worker, nonce=hello["nonce"], server_nonce=nonce, epoch=server.epoch, step=server.step,
            parameters=server.version, applied=server.applied.get(self.worker, NONE), tensors=len(server.tensors),
            chunk=server.chunk, heartbeat=server.heartbeat, lease=3 * server.heartbeat,
        ))  # fmt: skip
        manifest = server.manifest()
        for part in manifest:
            self.send("TENSORS", part)
        name, _, payload = self.frame()
        ready = unpack("READY", payload)
        total = (0, 0)
        for part in manifest:
            total = protocol.digest(part, total)
        assert name == "READY" and ready["server_nonce"] == nonce
        assert ready["manifest"] == b"".join(word.to_bytes(8, "little") for word in total)

    def message(self, header: dict[str, Any], payload: bytes) -> bytes | None:
        """Returns the whole bulk message once its last chunk has arrived."""
        key = (header["type"], header["tensor"])
        data = self.messages.setdefault(key, bytearray())
        assert len(data) == header["offset"]
        data += payload
        if len(data) < header["total"]:
            return None
        return bytes(self.messages.pop(key))

    def data(self, values: Array, **fields: int) -> None:
        """Sends DATA, encoded if the server was made so and the tensor is large."""
        server, as_encoding = self.server, self.server.data_encoding
        name = list(server.tensors)[fields["tensor"]]
        whole = server.tensors[name]
        if as_encoding == 0 or whole.dtype != np.float32 or server.kinds.get(name, DENSE) > ROWS or whole.size < 1024:
            self.bulk("DATA", values.tobytes(), **fields)
        elif as_encoding == 1:
            self.bulk("DATA", values.astype("<f2").tobytes(), encoding=1, **fields)
        else:
            bits = values.view(np.uint32)
            halves = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
            self.bulk("DATA", halves.astype("<u2").tobytes(), encoding=as_encoding, **fields)

    def value(self, number: int) -> None:
        server = self.server
        name = list(server.tensors)[number]
        if self.held.get(number) == server.changed[name]:
            self.send("SAME", protocol.pack("SAME", tensor=number, version=server.version))
        else:
            self.data(server.tensors[name], tensor=number, step=server.version)
        self.held[number] = server.changed[name]

    def serve(self) -> None:
        self.greet()
        server = self.server
        while True:
            name, header, payload = self.frame()
            with server.lock:
                self.take(name, header, payload)

    def take(self, name: str, header: dict[str, Any], payload: bytes) -> None:
        server = self.server
        names = list(server.tensors)
        if name == "PULL":
            for at in range(0, len(payload), 32):
                entry = unpack("PULL", payload[at : at + 32])
                tensor = names[entry["tensor"]]
                own = b"".join(w.to_bytes(8, "little") for w in protocol.digest(server.tensors[tensor].tobytes()))
                known = entry["flags"] & 1 and entry["digest"] == own
                if known or (entry["version"] != NONE and server.changed[tensor] <= entry["version"]):
                    self.held[entry["tensor"]] = server.changed[tensor]
                else:
                    self.held.pop(entry["tensor"], None)
                self.value(entry["tensor"])
        elif name == "ROWS":
            data = self.message(header, payload)
            if data is not None:
                ids = np.frombuffer(data, np.int64) - server.first(names[header["tensor"]])
                assert len(set(ids)) == len(ids)
                rows = server.tensors[names[header["tensor"]]][ids]
                self.data(rows, tensor=header["tensor"], step=server.version, flags=1)
        elif name in ("PUSH", "IDS"):
            data = self.message(header, payload)
            if data is not None:
                self.pushed.append((header["type"], header["tensor"], data))
        elif name == "COMMIT":
            self.commit(header["step"], unpack("COMMIT", payload))
        elif name == "HEARTBEAT":
            beat = unpack("HEARTBEAT", payload)
            now = server.clock()
            self.send("HEARTBEAT", protocol.pack("HEARTBEAT", clock=now, peer_clock=beat["clock"], received=now))
        elif name == "SNAPSHOT":
            text = server.saved[1]
            self.send("SAVED", protocol.pack("SAVED", status=server.saved[0], length=len(text), text=text.encode()))
        elif name == "BYE":
            raise Broken

    def commit(self, step: int, commit: dict[str, Any]) -> None:
        server = self.server
        server.commits.append((step, commit))
        pushed, self.pushed = self.pushed, []
        last, outcome = server.decided.get(self.worker, (NONE, 1))
        if step >= server.step:
            assert commit["pushes"] == sum(kind == protocol.types()["PUSH"][0] for kind, _, _ in pushed)
            server.apply(pushed)
            outcome = 0
            server.decided[self.worker] = (step, 0)
            server.applied[self.worker] = step
            server.hook(self, "applied")
        elif step != last:
            outcome = 1
            self.messages.clear()  # a worker cuts off a push that is late
        server.acknowledge(self, step, outcome)
        if commit["flags"] & 1:
            for number in sorted(self.held):
                self.value(number)


class PlainServer:
    """tensors: values by name, in the order of the manifest. kinds: for tensors that are not DENSE. split: first row and
    number of rows, for tables with other rows elsewhere. lr: of SGD. hook: called with the connection and the name of each
    received frame, and with "applied" after an update; it may raise Broken. data_encoding: of large tensors in DATA."""

    def __init__(
        self, job: bytes, tensors: dict[str, Array], kinds: dict[str, int] | None = None, *, lr: float = 0.5,
        shard: int = 0, shards: int = 1, split: dict[str, tuple[int, int]] | None = None, epoch: int = 1, chunk: int = 4096,
        encodings: int = 0x3F, heartbeat: int = 5000, data_encoding: int = 0,
    ) -> None:  # fmt: skip
        self.job, self.tensors, self.kinds, self.lr = job, {n: v.copy() for n, v in tensors.items()}, kinds or {}, lr
        self.shard, self.shards, self.split = shard, shards, split or {}
        self.epoch, self.chunk, self.encodings, self.heartbeat = epoch, chunk, encodings, heartbeat
        self.data_encoding = data_encoding
        self.step = self.version = 0
        self.changed = dict.fromkeys(tensors, 0)
        self.decided: dict[int, tuple[int, int]] = {}
        self.applied: dict[int, int] = {}
        self.seen: list[tuple[str, dict[str, Any], bytes]] = []
        self.hellos: list[dict[str, Any]] = []
        self.commits: list[tuple[int, dict[str, Any]]] = []
        self.gradients: list[dict[str, Any]] = []
        self.saved = (0, "here")
        self.hook: Callable[[Connection, str], None] = lambda connection, name: None
        self.clock: Callable[[], int] = lambda: 1
        self.lock = threading.Lock()
        self.errors: list[BaseException] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)  # makes the server slow for its clients
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> PlainServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.drop()
        assert not self.errors, self.errors

    def drop(self) -> None:
        """Ends all connections."""
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with sock:
            try:
                Connection(self, sock).serve()
            except (Broken, ConnectionError, OSError):
                pass
            except BaseException as error:
                self.errors.append(error)
            finally:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def acknowledge(self, connection: Connection, step: int, outcome: int) -> None:
        payload = protocol.pack(
            "ACK", outcome=outcome, version=self.version, next=self.step, first_example=3, examples=4, batch=10,
            workers=1, members=1,
        )  # fmt: skip
        connection.send("ACK", payload, step=step)

    def first(self, name: str) -> int:
        return self.split.get(name, (0, 0))[0]

    def manifest(self) -> list[bytes]:
        """The payloads of TENSORS, with two tensors in each frame."""
        entries = []
        for number, (name, value) in enumerate(self.tensors.items()):
            first, rows = self.split.get(name, (0, value.shape[0] if value.ndim else 0))
            entries.append(protocol.pack(
                "TENSORS", number=number, dtype=_DTYPES[value.dtype.name], kind=self.kinds.get(name, DENSE), rank=value.ndim,
                name_size=len(name), first_row=first, rows=rows, dims=tuple(value.shape), name=name.encode(),
            ))  # fmt: skip
        return [b"".join(entries[at : at + 2]) for at in range(0, len(entries), 2)]

    def apply(self, pushed: list[tuple[int, int, bytes]]) -> None:
        names, ids = list(self.tensors), dict[int, Array]()
        gradients: dict[str, Any] = {}
        for kind, number, data in pushed:
            name = names[number]
            value = self.tensors[name]
            dtype = np.float64 if value.dtype == np.float64 else np.float32
            if kind == protocol.types()["IDS"][0]:
                ids[number] = np.frombuffer(data, np.int64)
                assert (np.diff(ids[number]) > 0).all()
            elif number in ids:
                rows = np.frombuffer(data, dtype).reshape(len(ids[number]), *value.shape[1:])
                gradients[name] = (ids[number], rows)
                value[ids[number] - self.first(name)] -= self.lr * rows
            else:
                gradients[name] = np.frombuffer(data, dtype).reshape(value.shape)
                if self.kinds.get(name) == AVERAGED:
                    value[...] = gradients[name]
                else:
                    value -= (self.lr * gradients[name]).astype(value.dtype)
            self.changed[name] = self.version + 1
        self.gradients.append(gradients)
        self.version += 1
        self.step += 1
