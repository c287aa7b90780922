"""docs/protocol.md against itself and the C code: layouts without gaps, the same numbers as in C, and test vectors made from
the document's own tables. tests/c/test_sync_wire.c checks the same bytes in C."""

from __future__ import annotations

import re

import pytest

from tests import message_table
from tests import sync_protocol as protocol
from tests.native import ROOT, build, need, run

_CODEC = ROOT / "runtime_c" / "sync" / "codec"
_NET = ROOT / "runtime_c" / "net"
_HEADERS = "".join(file.read_text() for file in (_NET / "frame.h", _NET / "refusal.h", _CODEC / "payload.h"))
_LAYOUTS = (
    "The header",
    "HELLO",
    "WELCOME",
    "TENSORS",
    "READY",
    "REFUSE",
    "PULL",
    "SAME",
    "COMMIT",
    "ACK",
    "HEARTBEAT",
    "SAVED",
)


def _enum(first: str) -> list[str]:
    """Names of the enum that starts with `first`, without LN_SYNC_ or LN_NET_."""
    found = re.search(rf"enum \w* ?\{{\s*({first}.*?)\}}", _HEADERS, re.S)
    assert found, first
    return re.findall(r"LN_(?:SYNC|NET)_(\w+)", found[1])


def _constants() -> dict[str, int]:
    numbers = re.findall(r"\bLN_(?:SYNC|NET)_(\w+) = ([0-9a-fx<+* ]+)", _HEADERS)
    return {name: eval(value, {}) for name, value in numbers}


@pytest.mark.parametrize(("data", "crc"), [
    (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C), (b"123456789", 0xE3069283), (b"", 0),
])  # fmt: skip
def test_checksum(data: bytes, crc: int) -> None:
    assert protocol.crc32c(data) == crc
    assert protocol.crc32c(data[5:], protocol.crc32c(data[:5])) == crc
    assert f"`{crc:08X}`" in protocol.section("Test vectors") or not data


@pytest.mark.parametrize("title", _LAYOUTS)
def test_layouts_have_no_gaps(title: str) -> None:
    """Each field begins where the previous one ends, and the heading states the size."""
    at = 0
    for field in protocol.layout(title):
        assert field.offset in (at, None), f"{title}: {field.name} at {field.offset}, expected {at}"
        at += protocol.size_of([field])
    sizes = {message.name: message.size for message in message_table.messages()} | {"TENSORS": 32, "REFUSE": 8}
    assert at == (_constants()["HEADER"] if title == "The header" else sizes[title])
    stated = re.search(rf"^### {title} \((?:entries of )?(\d+) bytes", protocol.DOCUMENT.read_text(), re.M)
    assert title in ("The header", "TENSORS") or (stated and int(stated[1]) == at)


def test_the_table_is_that_of_the_code() -> None:
    assert message_table.page() == message_table.PAGE.read_text(), "run python -m tests.message_table --write"
    numbers = [message.number for message in message_table.messages()]
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) > 20
    lines = message_table.LIST.read_text().count("\nLN_MESSAGE(")
    assert lines == len(numbers)


def test_refusals_are_those_of_the_code() -> None:
    stated = {cells[1]: int(cells[0]) for cells in protocol.rows("Refusals", 4)}
    assert stated == {name: i for i, name in enumerate(_enum("LN_NET_FINE = 0")) if i}


def test_directions_are_those_of_the_code() -> None:
    """Compares the table of states with messages.inc."""
    stated = {(cells[0], cells[1]): set(cells[2].split(", ")) for cells in protocol.rows("States", 3)}
    assert message_table.sent_by("WORKER", "OPEN", "ALWAYS") == stated["server", "open"]
    assert message_table.sent_by("SERVER", "OPEN", "ALWAYS") == stated["worker", "open"]
    shaking = set().union(*(frames for (_, state), frames in stated.items() if state != "open"))
    assert {message.name for message in message_table.messages() if message.phase != "OPEN"} == shaking
    for cells in protocol.rows("Frames", 6):
        if cells[2] in "CS":
            side = "server" if cells[2] == "C" else "worker"
            assert any(cells[1] in frames for (who, _), frames in stated.items() if who == side), cells[1]
            assert not any(cells[1] in frames for (who, _), frames in stated.items() if who != side), cells[1]


@pytest.mark.parametrize(("file", "role"), [
    ("server/server_connections.c", "CLIENT"), ("worker/worker_core.c", "SERVER"),
])  # fmt: skip
def test_every_message_has_functions(file: str, role: str) -> None:
    """The table of each side has a line for every message that the other side sends, with a function that places its chunks if it
    is sent in chunks. A worker asks for no REPORT."""
    rows = re.findall(r"\[LN_SYNC_(\w+)\] = \{\.take = \w+(, \.place = \w+)?\},", (_CODEC.parent / file).read_text())
    roles = message_table.CLIENTS if role == "CLIENT" else {role}
    wanted = {m.name: m.bulk for m in message_table.messages() if roles & message_table.SENDERS[m.senders][1]}
    if role == "SERVER":
        del wanted["REPORT"]
    assert {name: bool(place) for name, place in rows} == wanted


def test_limits_are_those_of_the_code() -> None:
    text, constants = protocol.section("Limits"), _constants()
    assert constants["CONTROL_MAX"] == 4096 and "| payload of a control frame | 4096 bytes |" in text
    assert (constants["CHUNK_MIN"], constants["CHUNK"], constants["CHUNK_MAX"]) == (4096, 256 << 10, 4 << 20)
    assert constants["TENSORS_MAX"] == 65535 and "| tensors | 65,535 |" in text
    assert (constants["REFUSE_TEXT"], constants["SAVED_TEXT"]) == (240, 1024) and "| 240, 1024 bytes |" in text


def test_encodings_are_those_of_the_code() -> None:
    numbers = dict(re.findall(r"LN_SYNC_(\w+) = (\d)", (_CODEC / "encoding.h").read_text()))
    stated = {
        cells[1].replace("-", "").replace("1bit", "onebit").upper(): cells[0] for cells in protocol.rows("Encodings", 3)
    }
    assert stated == {name: number for name, number in numbers.items() if name in stated} and len(stated) == 6


@pytest.mark.parametrize("vector", protocol.vectors(), ids=lambda vector: vector.name)
def test_vectors(vector: protocol.Vector) -> None:
    """The document's bytes equal those of its fields, packed by its tables."""
    assert vector.data == vector.made()


def test_every_type_has_a_vector() -> None:
    assert {vector.name for vector in protocol.vectors()} == set(protocol.types())


def test_the_manifest_digest() -> None:
    by_name = {vector.name: vector for vector in protocol.vectors()}
    low, high = protocol.digest(by_name["TENSORS"].data[64:])
    assert by_name["READY"].entries[0]["manifest"] == low.to_bytes(8, "little") + high.to_bytes(8, "little")


def test_the_stream_takes_no_memory() -> None:
    """Code that reads and writes frames calls no allocator, directly or through other functions of the library."""
    need("objdump")
    folder = build("release") / "CMakeFiles"
    rooms = folder / "linnet_sync_objects.dir" / "runtime_c"
    files = [rooms / "net" / f"{name}.c.o" for name in ("frame", "refusal", "stream", "stream_send")]
    files += [rooms / "sync" / "codec" / f"{name}.c.o" for name in ("messages", "payload", "digest")]
    files.append(folder / "linnet_objects.dir" / "runtime_c" / "base" / "crc32.c.o")
    allowed = {"memcpy", "memmove", "memset", "memchr", "strncpy", "strlen", "linnet_crc32c", "_GLOBAL_OFFSET_TABLE_"}
    for file in files:
        listing = run(["objdump", "-t", str(file)])
        names = {line.split()[-1] for line in listing.splitlines() if "*UND*" in line} - {"__stack_chk_fail"}
        wanted = {re.sub(r"^__(\w+)_chk$", r"\1", name) for name in names}  # added by _FORTIFY_SOURCE
        assert all(w in allowed or w.startswith(("ln_sync_", "ln_net_", "stream_", "ln_crc32c_")) for w in wanted), (
            wanted
        )
