"""A client of linnet-host in plain Python over TCP, written from the part Hosts of docs/protocol.md. It packs and unpacks with
the tables of the page, and reads the numbers of messages and commands there. It imports nothing of linnet."""

from __future__ import annotations

import hashlib
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any

from tests import sync_protocol as page

TYPES = {cells[1]: int(cells[0]) for cells in page.rows("Messages of hosts", 6)}
CODES = {cells[1]: int(cells[0]) for cells in page.rows("Commands of hosts", 4)}
TITLES = {
    "HELLO": "HELLO to a host",
    "JOIN": "HELLO to a host",
    "WELCOME": "WELCOME of a host",
    "place": "Place in a buffer",
    "hole": "Hole of a recipe",
    "last run": "Last run of a piece",
    "time": "Time of a step",
    "step": "Name of a step",
}
RECORD = "Error record of a host"
MISSING = 1  # the status of an ANSWER to a PREPARE whose piece the host does not have


def frame(name: str, payload: bytes, *, total: int | None = None, offset: int = 0) -> bytes:
    """A whole frame of this protocol."""
    head = page.pack(
        "The header", magic=page.MAGIC, version=1, type=TYPES[name], length=len(payload), offset=offset,
        total=len(payload) if total is None else total, payload_crc=page.crc32c(payload) if payload else 0,
    )[:-4]  # fmt: skip
    return head + struct.pack("<I", page.crc32c(head)) + payload


def part(name: str, /, **values: page.Value) -> bytes:
    """The fields of a payload, of a command (with its code) or of a place."""
    code = {"code": CODES[name]} if name in CODES else {}
    return page.pack(TITLES.get(name, name), **code, **values)


def unpack(title: str, data: bytes) -> dict[str, Any]:
    """The fields of a layout whose fields all have a fixed size."""
    found: dict[str, Any] = {}
    at = 0
    for field in page.layout(title):
        size = page.size_of([field])
        found[field.name] = (
            data[at : at + size] if "[" in field.type else int.from_bytes(data[at : at + size], "little")
        )
        at += size
    return found


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def text(data: bytes) -> str:
    return data.partition(b"\0")[0].decode()


class Refused(Exception):
    """The host's REFUSE: its code, and its text."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(f"{code}: {why}")
        self.code = code


class Failed(Exception):
    """An ANSWER that tells a failure: the status, which command failed, and the error record."""

    def __init__(self, status: int, command: int, record: dict[str, str]) -> None:
        super().__init__(f"{status}: {record}")
        self.status, self.command, self.record = status, command, record


class Client:
    """One connection. token: 16 bytes that several connections of a client share; None: random ones. first: "JOIN" for
    another host."""

    def __init__(
        self, address: str, *, token: bytes | None = None, version: int = 1, chunk: int = 1 << 20, first: str = "HELLO"
    ) -> None:
        self.token = token or os.urandom(16)
        if address.startswith("unix:"):
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(60)
            self.sock.connect(address.removeprefix("unix:"))
        else:
            host, port = address.rsplit(":", 1)
            self.sock = socket.create_connection((host, int(port)), timeout=60)
        self.sock.sendall(frame(first, part(first, version=version, chunk=chunk, token=self.token)))
        self.welcome = unpack(TITLES["WELCOME"], self.receive("WELCOME"))
        self.chunk = min(chunk, int(self.welcome["chunk"]))

    def close(self) -> None:
        self.sock.close()

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.sock.recv(size - len(data))
            if not piece:
                raise ConnectionError("the host has closed the connection")
            data += piece
        return bytes(data)

    def receive(self, name: str) -> bytes:
        """The next message, which must have this name."""
        data = b""
        while True:
            head = self._read(64)
            header = unpack("The header", head)
            assert header["magic"] == page.MAGIC and header["header_crc"] == page.crc32c(head[:60])
            payload = self._read(header["length"])
            assert header["payload_crc"] == (page.crc32c(payload) if payload else 0)
            if header["type"] == TYPES["REFUSE"]:
                raise Refused(int.from_bytes(payload[:2], "little"), payload[8:].decode())
            assert header["type"] == TYPES[name] and header["offset"] == len(data)
            assert not any(header[field] for field in ("job", "worker", "shard", "step", "tensor", "flags", "encoding"))
            data += payload
            if len(data) == header["total"]:
                return data

    def send(self, name: str, message: bytes) -> None:
        """Sends a bulk message in chunks."""
        for at in range(0, len(message), self.chunk):
            self.sock.sendall(frame(name, message[at : at + self.chunk], total=len(message), offset=at))

    def submit(self, *commands: bytes, downloads: Sequence[int] = ()) -> list[bytes]:
        """Sends a SUBMIT, and returns the bytes of its DOWNLOADs, whose sizes are given."""
        self.send("SUBMIT", b"".join(commands))
        return self.answer(len(commands), downloads)

    def answer(self, commands: int, downloads: Sequence[int] = ()) -> list[bytes]:
        """Waits for the ANSWER to a SUBMIT of so many commands."""
        answer = self.receive("ANSWER")
        fixed = page.size_of(page.layout("ANSWER"))
        outcome = unpack("ANSWER", answer)
        if outcome["status"] != 0:
            assert len(answer) == fixed + page.size_of(page.layout(RECORD))
            record = {name: text(value) for name, value in unpack(RECORD, answer[fixed:]).items()}
            raise Failed(outcome["status"], outcome["command"], record)
        assert outcome["command"] == commands
        found, at = [], fixed
        for size in downloads:
            found.append(answer[at : at + size])
            at += len(padded(found[-1]))
        assert at == len(answer)
        return found

    def begin(self, recipe: bytes, holes: int) -> list[bool]:
        """Sends a RECIPE. Returns for each hole whether the host needs its CONSTANT."""
        self.send("RECIPE", recipe)
        (lacks,) = self.answer(0, [holes])
        assert set(lacks) <= {0, 1}
        return [bool(lack) for lack in lacks]

    def preparation(
        self, piece: int, file: bytes, inputs: Sequence[tuple[int, int, int]], outputs: Sequence[tuple[int, int, int]],
        flags: int = 0,
    ) -> bytes:  # fmt: skip
        """The command PREPARE."""
        places = b"".join(
            part("place", buffer=buffer, offset=offset, bytes=size) for buffer, offset, size in (*inputs, *outputs)
        )
        digest = hashlib.sha256(file).digest()
        fields = {"piece": piece, "digest": digest, "inputs": len(inputs), "outputs": len(outputs), "flags": flags}
        return part("PREPARE", **fields) + places

    def prepare(
        self, piece: int, file: bytes, inputs: Sequence[tuple[int, int, int]], outputs: Sequence[tuple[int, int, int]],
        holes: Sequence[tuple[int, int]] | None = None,
    ) -> bool:  # fmt: skip
        """Prepares a piece, whose operands are (buffer, offset, bytes). Returns whether anything of its file had to be sent:
        the whole, or, if holes (offset, bytes) are given, a recipe and the constants that the host lacks."""
        command = self.preparation(piece, file, inputs, outputs)
        try:
            self.submit(command)
        except Failed as failed:
            if failed.status != MISSING:
                raise
            if holes is None:
                self.send("PIECE", file)
            else:
                lacks = self.begin(recipe(file, holes), len(holes))
                for data in {file[at : at + size] for (at, size), lack in zip(holes, lacks, strict=True) if lack}:
                    self.send("CONSTANT", data)
            self.submit(command)
            return True
        return False


def recipe(file: bytes, holes: Sequence[tuple[int, int]], /, **wrong: page.Value) -> bytes:
    """A RECIPE of the file, with holes (offset, bytes). `wrong`: fields of its first 48 bytes that are not as they should be."""
    parts, rest, end = [], [], 0
    for at, size in holes:
        data = file[at : at + size]
        digest = hashlib.sha256(data).digest()
        parts.append(part("hole", offset=at, bytes=size, checksum=page.crc32c(data), digest=digest))
        rest.append(file[end:at])
        end = at + size
    fields = {"size": len(file), "holes": len(holes), "digest": hashlib.sha256(file).digest(), **wrong}
    return b"".join([part("RECIPE", **fields), *parts, *rest, file[end:]])


def upload(buffer: int, data: bytes, offset: int = 0) -> bytes:
    return part("UPLOAD", buffer=buffer, offset=offset, bytes=len(data)) + padded(data)


def peer(number: int, other: Client, address: str) -> bytes:
    """PEER: the host of `other`, a connection of this client."""
    text = address.encode()
    return part("PEER", peer=number, token=other.token, bytes=len(text)) + padded(text)
