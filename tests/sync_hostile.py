"""Attack sessions: against a server's bare port, and by a member of the job that follows no rules.
Each attack is a function of a connected `Enemy`, valid for one session. ATTACKS lists all of them."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from tests import sync_protocol as protocol

NOBODY, HERE, NONE = 0xFFFFFFFF, 0xFFFF, 2**64 - 1
_TYPES = protocol.types()
_NAMES = {number: name for name, (number, _) in _TYPES.items()}
_HELLO = struct.Struct("<BBHI16s16sQQQIIII16s")
_HEADER = struct.Struct("<IBBHQIHBBQIIQQI")


def frame(name: str | int, payload: bytes = b"", **given: int) -> bytes:
    """Makes a frame with correct CRCs. Any field of the header may be set, including `crc`."""
    header = {"flags": 0, "job": 0, "worker": NOBODY, "shard": HERE, "encoding": 0, "step": 0, "tensor": 0,
              "length": len(payload), "total": len(payload), "offset": 0, "version": 1, "magic": protocol.MAGIC,
              "payload_crc": protocol.crc32c(payload) if payload else 0, **given}  # fmt: skip
    kind = name if isinstance(name, int) else _TYPES[name][0]
    head = _HEADER.pack(
        header["magic"], header["version"], kind, header["flags"], header["job"], header["worker"], header["shard"],
        header["encoding"], 0, header["step"], header["tensor"], header["length"], header["total"], header["offset"],
        header["payload_crc"],
    )  # fmt: skip
    return head + struct.pack("<I", header.get("crc", protocol.crc32c(head))) + payload


@dataclass
class Tensor:
    """An entry of the manifest. size: bytes of its f32 gradient. rows: 0 for a dense one."""

    number: int
    kind: int
    size: int
    rows: int


@dataclass
class Enemy:
    """One connection and what it has learned. held: sockets that stay open after it."""

    address: tuple[str, int] | str
    job: bytes
    rng: random.Random
    held: list[socket.socket]
    old: list[bytes]  # messages of earlier sessions
    said: bytearray = field(default_factory=bytearray)
    worker: int = NOBODY
    shard: int = 0
    step: int = 0
    tensors: list[Tensor] = field(default_factory=list)
    refused: int = 0

    def __post_init__(self) -> None:
        family = socket.AF_UNIX if isinstance(self.address, str) else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.settimeout(5)
        self.socket.connect(self.address)
        if family == socket.AF_INET:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def number(self) -> int:
        return int.from_bytes(self.job[:8], "little")

    def send(self, *parts: bytes) -> None:
        """Sends data. A connection that the server has closed is not an error."""
        data = b"".join(parts)
        self.said += data
        with contextlib.suppress(OSError):
            self.socket.sendall(data)

    def say(self, name: str | int, payload: bytes = b"", **given: int) -> None:
        self.send(frame(name, payload, **{"job": self.number, "worker": self.worker, "shard": self.shard, **given}))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError
            data += part
        return data

    def hear(self, *names: str) -> tuple[str, bytes]:
        """Waits for a frame of one of these types (or REFUSE); returns its name and payload."""
        while True:
            head = self._exactly(64)
            kind, length = head[5], struct.unpack_from("<I", head, 36)[0]
            payload = self._exactly(length)
            if _NAMES[kind] == "REFUSE":
                self.refused = struct.unpack_from("<H", payload)[0]
            if _NAMES[kind] in (*names, "REFUSE"):
                return _NAMES[kind], payload

    def answered(self) -> int:
        """The refusal's code if the server closes, 0 if it closes without one, -1 if it stays silent for a while."""
        self.socket.settimeout(0.3)
        try:
            return self.refused if self.hear("REFUSE") else 0
        except TimeoutError:
            return -1
        except (ConnectionError, OSError):
            return self.refused

    def hello(self, **given: int | bytes) -> bytes:
        fields = {"lowest": 1, "highest": 1, "role": 0, "encodings": 0x3F | self.rng.choice([0, 1, 2, 3]) << 17, "job": self.job,
                  "nonce": self.rng.randbytes(16),
                  "incarnation": self.rng.getrandbits(63), "last_step": NONE, "epoch": 0, "worker": NOBODY, "group": 0,
                  "chunk": 1 << 18, "heartbeat": 0, "name": b"", **given}  # fmt: skip
        return _HELLO.pack(*fields.values())

    def join(self, **given: int | bytes) -> bool:
        """Runs the whole handshake. Returns False if refused."""
        self.send(frame("HELLO", self.hello(**given), job=self.number))
        try:
            name, payload = self.hear("WELCOME")
            if name == "REFUSE":
                return False
            self.shard = struct.unpack_from("<H", payload, 2)[0]
            self.worker, nonce = struct.unpack_from("<I", payload, 12)[0], payload[32:48]
            self.step, count = struct.unpack_from("<Q", payload, 56)[0], struct.unpack_from("<I", payload, 80)[0]
            total = (0, 0)
            while len(self.tensors) < count and self.hear_tensors(entries := self.hear("TENSORS")[1]):
                total = protocol.digest(entries, total)
        except (ConnectionError, OSError):
            return False
        self.say("READY", nonce + struct.pack("<QQ", *total))
        return True

    def hear_tensors(self, data: bytes) -> bool:
        at = 0
        while at < len(data):
            number, kind, rank, size = struct.unpack_from("<IxBBB", data, at)
            dims = struct.unpack_from(f"<{rank}Q", data, at + 32)
            elements = 1
            for dim in dims:
                elements *= dim
            self.tensors.append(Tensor(number, kind, 4 * elements, dims[0] if kind == 1 else 0))
            at += 32 + 8 * rank + -(-size // 8) * 8
        return at > 0

    def tensor(self, sparse: bool = False) -> Tensor:
        return self.rng.choice([one for one in self.tensors if (one.kind == 1) == sparse])

    def push_all(self, value: bytes) -> int:
        """Pushes every dense tensor, filled with the 4-byte `value`. Returns the number of tensors."""
        dense = [one for one in self.tensors if one.kind == 0]
        for one in dense:
            self.say("PUSH", value * (one.size // 4), step=self.step, tensor=one.number)
        return len(dense)

    def commit(self, pushes: int, weight: float = 1.0, flags: int = 0, step: int | None = None) -> None:
        payload = struct.pack("<IIdQQQdQQ", pushes, flags, weight, 0, 1, 1, 0.5, 0, 0)
        self.say("COMMIT", payload, step=self.step if step is None else step)

    def close(self) -> None:
        """Closes the connection in order, by a reset, or not yet."""
        how = self.rng.random()
        if how < 0.1 and len(self.held) < 200:
            self.held.append(self.socket)
            return
        if how < 0.4:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


Attack = Callable[[Enemy], None]
ATTACKS: dict[str, Attack] = {}
OUTSIDE: dict[str, Attack] = {}  # attacks that also reach a server with a key


def _attack(function: Attack) -> Attack:
    ATTACKS[function.__name__] = function
    return function


def _outside(function: Attack) -> Attack:
    ATTACKS[function.__name__] = OUTSIDE[function.__name__] = function
    return function


# ---- at the port -----------------------------------------------------------------------------------------------------


@_outside
def nothing(enemy: Enemy) -> None:
    """Connects, then leaves or stays."""


@_outside
def garbage(enemy: Enemy) -> None:
    enemy.send(enemy.rng.randbytes(enemy.rng.randrange(1, 5000)))


@_outside
def other_protocols(enemy: Enemy) -> None:
    enemy.send(enemy.rng.choice([
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x16\x03\x03\xff\xff" + bytes(70),
        b"\x80\x02\x01\x00", b"SSH-2.0-x\r\n", b"\x00" * 64, b"\xff" * 64, b"\x15\x03\x03\x00\x02\x02\x28",
        b"\x17\x03\x03\x40\x00" + bytes(16384), b"\x14\x03\x03\x00\x01\x01" * 200,
    ]))  # fmt: skip


@_outside
def half_a_greeting(enemy: Enemy) -> None:
    data = frame("HELLO", enemy.hello(), job=enemy.number)
    enemy.send(data[: enemy.rng.randrange(1, len(data))])


@_outside
def byte_by_byte(enemy: Enemy) -> None:
    """A slow loris: it keeps its connection open."""
    enemy.send(frame("HELLO", enemy.hello(), job=enemy.number)[:1])
    for other in enemy.held[-20:]:
        with contextlib.suppress(OSError):
            other.send(b"L", socket.MSG_DONTWAIT)


@_outside
def replay(enemy: Enemy) -> None:
    """Repeats messages of an earlier session."""
    if enemy.old:
        enemy.send(enemy.rng.choice(enemy.old))
        enemy.answered()


@_outside
def flipped(enemy: Enemy) -> None:
    data = bytearray(frame("HELLO", enemy.hello(), job=enemy.number))
    data[enemy.rng.randrange(len(data))] ^= 1 << enemy.rng.randrange(8)
    enemy.send(bytes(data))


@_outside
def wrong_lengths(enemy: Enemy) -> None:
    """Sends false lengths with a correct CRC."""
    sizes = [0, 1, 95, 97, 4096, 4097, 1 << 22, (1 << 32) - 1]
    enemy.send(frame(
        enemy.rng.choice([1, 4, 6, 8, 10, 11, 18]), enemy.hello(), length=enemy.rng.choice(sizes),
        total=enemy.rng.choice([*sizes, 1 << 62, NONE]), offset=enemy.rng.choice([0, 1, 1 << 63, NONE]),
    ))  # fmt: skip


@_outside
def wrong_first_frame(enemy: Enemy) -> None:
    enemy.say(enemy.rng.randrange(256), enemy.rng.randbytes(enemy.rng.choice([0, 16, 32, 64, 96])))


@_outside
def wrong_greeting(enemy: Enemy) -> None:
    given: dict[str, int | bytes] = enemy.rng.choice([
        {"lowest": 2, "highest": 9}, {"highest": 0}, {"role": 2}, {"role": 65535}, {"job": bytes(16)},
        {"job": enemy.rng.randbytes(16)}, {"chunk": 0}, {"chunk": NOBODY}, {"name": b"\xff" * 16},
        {"heartbeat": 1}, {"encodings": NOBODY}, {"group": enemy.rng.getrandbits(32)},
    ])  # fmt: skip
    enemy.send(frame("HELLO", enemy.hello(**given), job=enemy.number, shard=enemy.rng.choice([0, HERE, 7])))


@_outside
def greetings(enemy: Enemy) -> None:
    enemy.send(frame("HELLO", enemy.hello(), job=enemy.number) * 50)


@_outside
def wrong_proof(enemy: Enemy) -> None:
    enemy.send(frame("HELLO", enemy.hello(), job=enemy.number))
    enemy.say("READY", enemy.rng.randbytes(32))


@_attack
def old_proof(enemy: Enemy) -> None:
    """Sends a correct greeting and the proof of an earlier session."""
    hello = 64 + _HELLO.size
    proofs = [
        said[hello : hello + 96] for said in enemy.old if said[hello + 5 : hello + 6] == bytes([_TYPES["READY"][0]])
    ]
    if proofs:
        enemy.send(frame("HELLO", enemy.hello(), job=enemy.number))
        enemy.hear("WELCOME")
        enemy.send(enemy.rng.choice(proofs))
        assert enemy.answered() in (11, 17), enemy.refused  # not yet expected, or of another session


# ---- as a member -----------------------------------------------------------------------------------------------------


@_attack
def claims_anothers_number(enemy: Enemy) -> None:
    assert not enemy.join(worker=enemy.rng.randrange(2)) and enemy.refused == 4, enemy.refused


@_attack
def foreign_fields(enemy: Enemy) -> None:
    if enemy.join():
        given = enemy.rng.choice([
            {"job": enemy.number ^ 1}, {"worker": 0}, {"worker": NOBODY}, {"shard": 1}, {"shard": HERE}, {"version": 2},
            {"flags": 0x8000}, {"encoding": 9}, {"tensor": 1 << 31}, {"step": NONE},
        ])  # fmt: skip
        one = enemy.tensor()
        enemy.say("PUSH", bytes(one.size), **{"step": enemy.step, "tensor": one.number, **given})
        enemy.answered()


@_attack
def wrong_sizes(enemy: Enemy) -> None:
    if enemy.join():
        one = enemy.tensor()
        total = enemy.rng.choice([0, 1, one.size - 1, one.size + 1, 2 * one.size, 1 << 40, 1 << 63, NONE])
        enemy.say("PUSH", bytes(min(total, one.size)), step=enemy.step, tensor=one.number, total=total)
        enemy.answered()


@_attack
def chunks_out_of_order(enemy: Enemy) -> None:
    if enemy.join():
        one = enemy.tensor()
        for at in enemy.rng.choice([(4,), (0, 0), (0, 8), (NONE - 3,), (one.size - 4,)]):
            enemy.say("PUSH", bytes(4), step=enemy.step, tensor=one.number, total=one.size, offset=at)
        enemy.answered()


@_attack
def row_numbers(enemy: Enemy) -> None:
    if enemy.join():
        one = enemy.tensor(sparse=True)
        ids = enemy.rng.choice([
            (one.rows,), (-1,), (2**63 - 1,), (-(2**63),), (2, 1), (1, 1), (0, one.rows), tuple(range(one.rows + 1)), (1 << 40,),
        ])  # fmt: skip
        enemy.say("IDS", struct.pack(f"<{len(ids)}q", *ids), step=enemy.step, tensor=one.number)
        enemy.say("PUSH", bytes(len(ids) * one.size // one.rows), step=enemy.step, tensor=one.number, flags=1)
        enemy.answered()


@_attack
def rows_without_numbers(enemy: Enemy) -> None:
    if enemy.join():
        one = enemy.tensor(sparse=True)
        enemy.say("PUSH", bytes(one.size // one.rows), step=enemy.step, tensor=one.number, flags=1)
        enemy.say("IDS", bytes(enemy.rng.choice([3, 7, 12])), step=enemy.step, tensor=one.number)
        enemy.answered()


@_attack
def encoded_garbage(enemy: Enemy) -> None:
    if enemy.join():
        one = enemy.tensor()
        size = enemy.rng.choice([1, 2, 5, one.size // 4, one.size // 2, one.size, one.size + 4])
        data = enemy.rng.choice([enemy.rng.randbytes(size), b"\xff" * size, b"\x80" * size])
        enemy.say("PUSH", data, step=enemy.step, tensor=one.number, encoding=enemy.rng.randrange(1, 7))
        enemy.commit(1)
        enemy.answered()


@_attack
def not_finite(enemy: Enemy) -> None:
    """Pushes a whole step of NaN or infinity. The server drops it, whatever it is waiting for."""
    if enemy.join():
        enemy.commit(enemy.push_all(enemy.rng.choice([b"\x00\x00\xc0\x7f", b"\x00\x00\x80\xff"])))


@_attack
def commits(enemy: Enemy) -> None:
    if enemy.join():
        bad = enemy.rng.choice([float("nan"), float("inf"), -1.0, 0.0])
        if enemy.rng.random() < 0.5:
            enemy.commit(enemy.push_all(bytes(4)) if enemy.rng.random() < 0.5 else 0, bad)
        else:
            enemy.commit(enemy.rng.choice([0, 1, NOBODY]), step=enemy.rng.choice([enemy.step, NONE, enemy.step + 9]))
        enemy.answered()


@_attack
def half_a_step(enemy: Enemy) -> None:
    """Sends gradients without COMMIT, possibly cut inside one."""
    if enemy.join():
        enemy.push_all(b"\x00\x00\x80\x3f")
        one = enemy.tensor()
        data = frame("PUSH", bytes(one.size), job=enemy.number, worker=enemy.worker, shard=0, step=enemy.step)
        enemy.send(data[: enemy.rng.randrange(len(data))])


@_attack
def abandons(enemy: Enemy) -> None:
    if enemy.join():
        for _ in range(50):
            enemy.commit(0, 0.0, flags=2)


@_attack
def reports(enemy: Enemy) -> None:
    """Sends requests and reads no answers."""
    if enemy.join(role=enemy.rng.choice([0, 1, 3])):
        for _ in range(300):
            enemy.say("STATUS")


@_attack
def pulls(enemy: Enemy) -> None:
    if enemy.join(role=enemy.rng.choice([0, 3])):
        entry = struct.pack("<IIQ16s", enemy.rng.choice([0, 0, 99]), 0, NONE, bytes(16))
        for _ in range(200):
            enemy.say("PULL", entry * enemy.rng.choice([1, 1, 2, 128]))


@_attack
def digests(enemy: Enemy) -> None:
    """Makes the server compute the digest of a value again and again."""
    if enemy.join(role=3):
        for _ in range(200):
            enemy.say("PULL", struct.pack("<IIQ16s", 0, 1, NONE, enemy.rng.randbytes(16)))


@_attack
def rows(enemy: Enemy) -> None:
    if enemy.join(role=3):
        one = enemy.tensor(sparse=True)
        for _ in range(100):
            ids = enemy.rng.choice([range(one.rows), (1, 1), (-1,), (one.rows,), (0,)])
            enemy.say("ROWS", struct.pack(f"<{len(ids)}q", *ids), tensor=one.number)


@_attack
def observers_push(enemy: Enemy) -> None:
    if enemy.join(role=enemy.rng.choice([1, 3])):
        enemy.say("PUSH", bytes(4))
        enemy.commit(0)
        enemy.answered()


@_attack
def servers_frames(enemy: Enemy) -> None:
    if enemy.join():
        enemy.say(enemy.rng.choice(["WELCOME", "TENSORS", "DATA", "SAME", "ACK", "SAVED", "REPORT", "SEGMENT", "HELLO"]),
                  enemy.rng.randbytes(96))  # fmt: skip
        enemy.answered()


@_attack
def goes_on_after_bye(enemy: Enemy) -> None:
    if enemy.join():
        enemy.say("BYE")
        enemy.commit(enemy.push_all(bytes(4)))


@_attack
def many_groups(enemy: Enemy) -> None:
    enemy.join(group=enemy.rng.getrandbits(32))


@_attack
def snapshots(enemy: Enemy) -> None:
    if enemy.join(role=1):
        for _ in range(20):
            enemy.say("SNAPSHOT")
