"""A worker in plain Python over TCP, written from docs/protocol.md. It packs and unpacks with the tables of the page, and
reads the numbers of types, roles, dtypes, refusals and the digest there. It imports nothing of linnet."""

from __future__ import annotations

import os
import re
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests import sync_protocol as page

Array = np.ndarray[Any, Any]
NONE, NOBODY, NO_SHARD = 2**64 - 1, 2**32 - 1, 0xFFFF
NAMES = {number: (name, bulk) for name, (number, bulk) in page.types().items()}
REFUSALS = {int(cells[0]): cells[1] for cells in page.rows("Refusals", 4)}
DTYPES = {int(cells[0]): (cells[1], int(cells[2])) for cells in page.rows("Dtypes", 3)}
_NUMPY = {"f32": "<f4", "f16": "<f2", "f64": "<f8", "i32": "<i4", "i64": "<i8"}


class Refused(Exception):
    """The server's REFUSE: its name in the table, and its text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{REFUSALS[code]}: {text}")
        self.name = REFUSALS[code]


# ---- digests -----------------------------------------------------------------------------------------------------------


def _constants() -> dict[str, str]:
    """The table of names and values in the section Digests."""
    return {cells[0]: cells[1] for cells in page.rows("Digests", 2) if cells[0] != "step"}


def digest(pieces: Iterable[bytes]) -> bytes:
    """Computes the digest by the tables of the section, step by step."""
    values = {name: re.findall(r"`(\w+)`", text) for name, text in _constants().items()}
    multiplier, shift = int(values["multiplier"][0], 16), int(values["shift"][0])
    starts = [int(word) for word in values["a, b, c, d"]]
    whole = 2**64 - 1

    def mix(s: int, w: int) -> int:
        t = (s ^ w) * multiplier & whole
        return t ^ t >> shift

    first = second = 0
    for piece in pieces:
        a, b, c, d = starts
        n = len(piece)
        padded = piece + bytes(-n % 32)
        for at in range(0, len(padded), 32):
            w0, w1, w2, w3 = struct.unpack_from("<4Q", padded, at)
            a, b, c, d = mix(a, w0), mix(b, w1), mix(c, w2), mix(d, w3)
        first, second = mix(mix(mix(first, a), c), n), mix(mix(mix(second, b), d), n)
    return struct.pack("<2Q", first, second)


# ---- frames ------------------------------------------------------------------------------------------------------------


def unpack(title: str, data: bytes) -> dict[str, Any]:
    """The fields of a section's layout; only the last may have variable size."""
    found: dict[str, Any] = {}
    at = 0
    for field in page.layout(title):
        size = page.size_of([field])
        number = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "f64": "d"}.get(field.type)
        if field.type == "u64[rank]":
            size = 8 * found["rank"]
            found[field.name] = struct.unpack_from(f"<{found['rank']}Q", data, at)
        elif field.type == "u8[]":
            found[field.name] = data[at:]
        else:
            found[field.name] = struct.unpack_from("<" + number, data, at)[0] if number else data[at : at + size]
        at += size
    return found


def entries(title: str, data: bytes) -> list[dict[str, Any]]:
    """A payload that is a list: SAME, or TENSORS, whose entries have different lengths."""
    found = []
    at = 0
    while at < len(data):
        entry = unpack(title, data[at:])
        size = page.size_of(page.layout(title))
        if title == "TENSORS":
            entry["name"] = entry["name"][: entry["name_size"]].decode()
            size += 8 * entry["rank"] + -(-entry["name_size"] // 8) * 8
        found.append(entry)
        at += size
    return found


@dataclass
class Tensor:
    """A tensor of the manifest, and the client's copy of it."""

    entry: dict[str, Any]
    version: int = NONE
    value: Array | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(_NUMPY[DTYPES[self.entry["dtype"]][0]])


class Client:
    """One worker (role 0) or observer (role 1), with as many connections as needed. job: 32 hexadecimal digits."""

    def __init__(
        self, address: str, job: str = "0" * 32, *, role: int = 0, encodings: int = 1, chunk: int = 4096
    ) -> None:
        host, port = address.rsplit(":", 1)
        self.place, self.job, self.role = (host, int(port)), bytes.fromhex(job), role
        self.encodings, self.chunk = encodings, chunk
        self.incarnation = int.from_bytes(os.urandom(8), "little")
        self.worker, self.shard, self.epoch, self.last_step = NOBODY, NO_SHARD, 0, NONE
        self.tensors: list[Tensor] = []
        self.encodings_seen: set[int] = set()
        self.sock: socket.socket | None = None

    # ---- bytes

    def send(self, name: str, payload: bytes = b"", **fields: int) -> None:
        assert self.sock
        header = {"job": self.header_job, "worker": self.worker, "shard": self.shard, **fields}
        self.sock.sendall(page.frame(name, payload, **header))

    def send_message(self, name: str, data: bytes, **fields: int) -> None:
        for at in range(0, len(data), self.agreed_chunk):
            self.send(name, data[at : at + self.agreed_chunk], total=len(data), offset=at, **fields)

    def _read(self, size: int) -> bytes:
        assert self.sock
        data = b""
        while len(data) < size:
            part = self.sock.recv(size - len(data))
            if not part:
                raise ConnectionError("the server has closed the connection")
            data += part
        return data

    def receive(self, *wanted: str) -> tuple[str, dict[str, Any], bytes]:
        """The next frame other than a heartbeat. Raises on REFUSE."""
        while True:
            head = self._read(64)
            header = unpack("The header", head)
            assert header["magic"] == int.from_bytes(b"LNSY", "little")
            assert page.crc32c(head[:60]) == header["header_crc"]
            payload = self._read(header["length"])
            assert page.crc32c(payload) == header["payload_crc"] if payload else header["payload_crc"] == 0
            name = NAMES[header["type"]][0]
            if name == "REFUSE":
                refuse = unpack("REFUSE", payload)
                raise Refused(refuse["why"], refuse["text"].decode())
            if name in wanted:
                return name, header, payload
            assert name == "HEARTBEAT", name

    # ---- the handshake

    def connect(self, spoil: bool = False) -> dict[str, Any]:
        """Runs the handshake from HELLO to READY and returns WELCOME's fields. spoil: sends a wrong digest of the manifest."""
        self.close()
        self.sock = socket.create_connection(self.place, timeout=20)
        self.header_job, self.agreed_chunk = struct.unpack("<Q", self.job[:8])[0], self.chunk
        nonce = os.urandom(16)
        self.send("HELLO", page.pack(
            "HELLO", lowest=1, highest=1, role=self.role, encodings=self.encodings, job=self.job, nonce=nonce,
            incarnation=self.incarnation, last_step=self.last_step, epoch=self.epoch, worker=self.worker, chunk=self.chunk,
            name=b"from the page",
        ))  # fmt: skip
        _, header, payload = self.receive("WELCOME")
        welcome = unpack("WELCOME", payload)
        assert welcome["nonce"] == nonce and welcome["version"] == 1 and welcome["epoch"] >= self.epoch
        assert welcome["encodings"] & ~(self.encodings | 1) == 0 and welcome["chunk"] <= self.chunk
        pieces: list[bytes] = []
        found: list[dict[str, Any]] = []
        while len(found) < welcome["tensors"]:
            pieces.append(self.receive("TENSORS")[2])
            found += entries("TENSORS", pieces[-1])
        assert [entry["number"] for entry in found] == list(range(len(found)))
        if not self.tensors:
            self.tensors = [Tensor(entry) for entry in found]
        self.header_job, self.worker, self.shard = header["job"], header["worker"], header["shard"]
        self.agreed_chunk, self.granted = welcome["chunk"], welcome["encodings"]
        if welcome["epoch"] != self.epoch:
            for tensor in self.tensors:
                tensor.version = NONE
        self.epoch = welcome["epoch"]
        manifest = bytes(16) if spoil else digest(pieces)
        self.send("READY", page.pack("READY", server_nonce=welcome["server_nonce"], manifest=manifest))
        return welcome

    def close(self) -> None:
        if self.sock:
            self.sock.close()
        self.sock = None

    def leave(self) -> None:
        self.send("BYE")
        self.close()

    # ---- work

    def named(self, name: str) -> Tensor:
        return next(tensor for tensor in self.tensors if tensor.entry["name"] == name)

    def pull(self, with_digests: bool = False) -> list[str]:
        """Pulls all tensors and returns the names of those that changed."""
        asked = []
        for tensor in self.tensors:
            known: dict[str, Any] = {"version": tensor.version}
            if with_digests and tensor.value is not None:
                known |= {"flags": 1, "digest": digest([tensor.value.tobytes()])}
            asked.append(page.pack("PULL", tensor=tensor.entry["number"], **known))
        self.send("PULL", b"".join(asked))
        return self.take_values()

    def take_values(self) -> list[str]:
        """Reads an answer for each tensor: DATA, or an entry of SAME."""
        came: list[str] = []
        messages: dict[int, bytes] = {}
        left = len(self.tensors)
        while left:
            name, header, payload = self.receive("DATA", "SAME")
            if name == "SAME":
                for entry in entries("SAME", payload):
                    self.tensors[entry["tensor"]].version = entry["version"]
                    left -= 1
                continue
            tensor = self.tensors[header["tensor"]]
            data = messages.get(header["tensor"], b"")
            assert header["offset"] == len(data)
            messages[header["tensor"]] = data = data + payload
            if len(data) < header["total"]:
                continue
            tensor.value = self.decoded(header, data, tensor).reshape(tensor.entry["dims"])
            tensor.version = header["step"]
            came.append(tensor.entry["name"])
            left -= 1
        return came

    def decoded(self, header: dict[str, Any], data: bytes, tensor: Tensor) -> Array:
        """The values of a DATA message. Encodings other than plain must have been asked for and granted."""
        self.encodings_seen.add(header["encoding"])
        if header["encoding"] == 0:
            return np.frombuffer(data, tensor.dtype)
        assert self.granted >> (16 + header["encoding"]) & 1 and tensor.dtype == np.float32 and tensor.entry["kind"] < 2
        if header["encoding"] == 1:
            return np.frombuffer(data, "<f2").astype(np.float32)
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)

    def rows(self, name: str, ids: list[int]) -> Array:
        tensor = self.named(name)
        self.send_message("ROWS", np.array(ids, "<i8").tobytes(), tensor=tensor.entry["number"])
        data = b""
        while True:
            _, header, payload = self.receive("DATA")
            assert header["flags"] == 1 and header["tensor"] == tensor.entry["number"]
            data += payload
            if len(data) == header["total"]:
                return self.decoded(header, data, tensor).reshape(len(ids), *tensor.entry["dims"][1:])

    def push(self, step: int, gradients: dict[str, Any], *, encoding: int = 0, weight: float = 1.0) -> None:
        """Pushes gradients (per tensor an array, or (row numbers, rows)), then COMMIT, which asks for new values."""
        for name, gradient in gradients.items():
            number, flags = self.named(name).entry["number"], 0
            if isinstance(gradient, tuple):
                ids, gradient = gradient
                self.send_message("IDS", np.array(ids, "<i8").tobytes(), tensor=number, step=step)
                flags = 1
            data = np.asarray(gradient, {0: "<f4", 1: "<f2"}[encoding]).tobytes()
            self.send_message("PUSH", data, tensor=number, step=step, flags=flags, encoding=encoding)
        commit = page.pack(
            "COMMIT", pushes=len(gradients), flags=1, weight=weight, version=self.tensors[0].version, loss=0.5
        )
        self.send("COMMIT", commit, step=step)

    def answer(self, values: bool = True) -> dict[str, Any]:
        """Reads ACK and the values after it."""
        _, header, payload = self.receive("ACK")
        ack = unpack("ACK", payload)
        if ack["outcome"] != 3:
            self.last_step = header["step"]
        if values:
            self.take_values()
        return {**ack, "step": header["step"]}

    def report(self) -> bytes:
        self.send("STATUS")
        data = b""
        while True:
            _, header, payload = self.receive("REPORT")
            data += payload
            if len(data) == header["total"]:
                return data

    def beat(self, clock: int) -> dict[str, Any]:
        self.send("HEARTBEAT", page.pack("HEARTBEAT", clock=clock))
        head = self._read(64)
        assert NAMES[head[5]][0] == "HEARTBEAT"
        return unpack("HEARTBEAT", self._read(unpack("The header", head)["length"]))
