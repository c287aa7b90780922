"""An implementation of the sync protocol independent of the C code: it reads the tables of docs/protocol.md and packs by them.
`python -m tests.sync_protocol` writes the bytes of the document's test vectors after their fields."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "protocol.md"
MAGIC = 0x59534E4C
_FORMATS = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "f64": "d"}
_PART = struct.calcsize("<8s")  # names of tensors are padded to this size

Value = int | float | str | bytes | tuple[int, ...]


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc_table()


def crc32c(data: bytes, crc: int = 0) -> int:
    """CRC-32C (RFC 3720, B.4) of data appended to data with CRC `crc`."""
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def digest(data: bytes, total: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """linnet's 128-bit digest of data appended to data with digest `total` (runtime_c/base/digest.c)."""
    mask = 2**64 - 1

    def mixed(total: int, word: int) -> int:
        total = (total ^ word) * 0x87C37B91114253D5 & mask
        return total ^ total >> 29

    chains = [1, 2, 3, 4]
    for at in range(0, len(data), 32):
        words = struct.unpack("<4Q", data[at : at + 32].ljust(32, b"\0"))
        chains = [mixed(chain, word) for chain, word in zip(chains, words, strict=True)]
    a, b, c, d = chains
    return (
        mixed(mixed(mixed(total[0], a), c), len(data)),
        mixed(mixed(mixed(total[1], b), d), len(data)),
    )


@dataclass(frozen=True)
class Field:
    """One row of a layout's table. `offset` is None after a field of variable size."""

    name: str
    type: str
    offset: int | None


def section(title: str) -> str:
    """The text below a heading of the document, up to the next heading of the same or a higher level."""
    text = DOCUMENT.read_text(encoding="utf-8")
    found = re.search(rf"^(#+) {re.escape(title)}( \(.*\))?\n", text, re.M)
    assert found, f"docs/protocol.md has no section {title!r}"
    rest = text[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.M)
    return rest[: end.start()] if end else rest


def rows(title: str, columns: int) -> list[list[str]]:
    """The cells of a section's first table with this number of columns."""
    lines = section(title).splitlines()
    for i, line in enumerate(lines):
        if re.fullmatch(r"\|(-+\|)+", line) and line.count("|") == columns + 1:
            end = next((k for k in range(i, len(lines)) if not lines[k].startswith("|")), len(lines))
            return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in lines[i + 1 : end]]
    raise AssertionError(f"no table of {columns} columns under {title!r}")


def layout(title: str) -> list[Field]:
    """The fields of the header or of a payload."""
    fields = []
    for cells in rows(title, 4):
        offset = int(cells[0]) if cells[0].isdigit() else None
        fields.append(Field(cells[2].rstrip(" |"), cells[1], offset))
    return fields


def types() -> dict[str, tuple[int, bool]]:
    """{name: (number, whether its frames are bulk)}."""
    return {cells[1]: (int(cells[0]), cells[3] == "bulk") for cells in rows("Frames", 6)}


def size_of(fields: list[Field]) -> int:
    """Number of bytes of the fixed-size fields."""
    return sum(_size(field.type) for field in fields)


def _size(kind: str) -> int:
    found = re.fullmatch(r"(u\d+|f64)(?:\[(\w*)\])?", kind)
    assert found, kind
    if found[2] is not None and not found[2].isdigit():
        return 0
    return struct.calcsize("<" + _FORMATS[found[1]]) * int(found[2] or 1)


def _packed(field: Field, value: Value) -> bytes:
    if isinstance(value, str):
        value = value.encode()
    if field.type == "u8[]":
        assert isinstance(value, bytes)
        return value
    if isinstance(value, tuple):
        return struct.pack(f"<{len(value)}Q", *value)
    if isinstance(value, bytes):
        return value.ljust(_size(field.type), b"\0")
    if value == 0:
        return bytes(_size(field.type))
    return struct.pack("<" + _FORMATS[field.type], value)


def pack(title: str, **values: Value) -> bytes:
    """Packs the payload (or one entry) by the document's section `title`; fields that are not given are 0."""
    fields = layout(title)
    unknown = set(values) - {field.name for field in fields}
    assert not unknown, f"{title} has no {unknown}"
    parts = []
    for field in fields:
        parts.append(_packed(field, values.get(field.name, b"" if field.type.endswith(("[]", "[rank]")) else 0)))
    data = b"".join(parts)
    return data.ljust(-(-len(data) // _PART) * _PART, b"\0") if title == "TENSORS" else data


def frame(name: str, payload: bytes = b"", **values: int) -> bytes:
    """Packs a whole frame, with lengths and CRCs. `total` is given if the frame is only a part of a message."""
    given: dict[str, Value] = {
        "magic": MAGIC,
        "version": 1,
        "type": types()[name][0],
        "length": len(payload),
        "total": len(payload),
        "payload_crc": crc32c(payload) if payload else 0,
        **values,
    }
    head = pack("The header", **given)[:-4]
    return head + struct.pack("<I", crc32c(head)) + payload


@dataclass(frozen=True)
class Vector:
    """A test vector of the document: its fields, and the bytes after them (empty: none yet)."""

    name: str
    header: dict[str, int]
    entries: list[dict[str, Value]]
    data: bytes

    def made(self) -> bytes:
        """Packs the frame of these fields."""
        raw = [entry["payload"] for entry in self.entries if "payload" in entry]
        parts = raw or [pack(_titles().get(self.name, self.name), **entry) for entry in self.entries]
        return frame(self.name, b"".join(part for part in parts if isinstance(part, bytes)), **self.header)


def _titles() -> dict[str, str]:
    """Headings that differ from the frame's name."""
    return {}


def _value(field: Field | None, text: str) -> Value:
    if field is None or (field.type == "u8[16]" and field.name != "name"):
        return bytes.fromhex(text)
    if field.name in ("name", "text"):
        return text
    if field.type.endswith("[rank]"):
        return tuple(int(word) for word in text.split(","))
    return float(text) if field.type == "f64" else int(text, 0)


def _words(line: str) -> dict[str, str]:
    """Parses "a=1 text=two words" into a dict: only the last value may contain spaces."""
    return dict(re.findall(r"(\w+)=((?:(?!\s\w+=).)*)", line.strip()))


def vectors() -> list[Vector]:
    """All test vectors of the document."""
    found = []
    for block in re.findall(r"^```text\n(.*?)^```$", section("Test vectors"), re.M | re.S):
        lines = block.splitlines()
        name = lines[0].split()[0]
        head = {key: int(value, 0) for key, value in _words(lines[0][len(name) :]).items()}
        hexadecimal = [line for line in lines[1:] if re.fullmatch(r"[0-9a-f]+", line)]
        entries: list[dict[str, Value]] = []
        for line in lines[1:]:
            if line.startswith("  "):
                words = _words(line)
                fields = {} if "payload" in words else {field.name: field for field in layout(name)}
                entries.append({key: _value(fields.get(key), value) for key, value in words.items()})
        found.append(Vector(name, head, entries, bytes.fromhex("".join(hexadecimal))))
    return found


def _write() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    made = iter(vectors())

    def block(match: re.Match[str]) -> str:
        data = next(made).made()
        fields = "".join(line + "\n" for line in match[1].splitlines() if not re.fullmatch(r"[0-9a-f]+", line))
        lines = "".join(data[at : at + 32].hex() + "\n" for at in range(0, len(data), 32))
        return f"```text\n{fields}{lines}```"

    DOCUMENT.write_text(re.sub(r"^```text\n(.*?)^```$", block, text, flags=re.M | re.S), encoding="utf-8")


if __name__ == "__main__":
    _write()
