"""Encodes the attributes of nodes as flatbuffer bytes, as the op table says, and decodes them. The bytes are written
from front to back in one piece, so the same encoding is used for a single node (emit) and for a whole file."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flatbuffers.number_types as number_types
import numpy as np

from linnet._generated.op_table import OPS
from linnet.clib.errors import GraphError, UsageError
from linnet.ir.dtypes import DTYPE_IDS, DTYPE_NAMES, dtype_of
from linnet.ir.operands import Callee

BY_ID = {row["id"]: name for name, row in OPS.items()}
# attribute type -> (size inside the table, struct code)
_SCALARS = {
    "int": (8, "q"),
    "float": (8, "d"),
    "bool": (1, "B"),
    "enum": (1, "B"),
    "dtype": (1, "B"),
    "function": (4, "i"),
}
_VECTORS: dict[str, np.dtype[Any]] = {"ints": np.dtype("<i8"), "floats": np.dtype("<f8"), "bytes": np.dtype("u1")}

_VECTOR_FLAGS = {"ints": number_types.Int64Flags, "floats": number_types.Float64Flags, "bytes": number_types.Uint8Flags}


def complete(op: str, attributes: dict[str, Any]) -> dict[str, Any]:
    """All attributes of the op as canonical Python types, with defaults filled in.

    Raises GraphError (BAD_ATTRIBUTE) for an unknown name, enum value or dtype, or a value of the wrong type.
    """
    specs = OPS[op]["attributes"]
    out: dict[str, Any] = {}
    for name, (_, kind, default, values) in specs.items():
        value = attributes.get(name, default)
        if value is None and kind != "function":
            value = default
        try:
            if value is not default:
                value = _CANONICAL[kind](value)
        except (TypeError, ValueError, OverflowError, UsageError):
            raise _bad(op, name, " or ".join(DTYPE_IDS) if kind == "dtype" else kind, value) from None
        if kind == "enum" and value not in values:
            raise _bad(op, name, " or ".join(values), value)
        out[name] = value
    if not attributes.keys() <= specs.keys():
        unknown = min(attributes.keys() - specs.keys())
        raise GraphError(
            f"op {op} has no attribute named {unknown!r}",
            code=302,
            op=op,
            expected=", ".join(specs) or "none",
            got=unknown,
        )
    return out


def _int(value: Any) -> int:
    """An integer. Raises ValueError for a number with a fraction."""
    made = int(value)
    if made != value:
        raise ValueError
    return made


def _float(value: Any) -> float:
    if isinstance(value, str | bytes):
        raise TypeError
    return float(value)


def _ints(value: Any) -> tuple[int, ...]:
    return tuple(map(_int, value))


def _floats(value: Any) -> tuple[float, ...]:
    return tuple(map(_float, value))


def _dtype(value: Any) -> str:
    return "none" if isinstance(value, str) and value == "none" else dtype_of(value)


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError
    return value


def _function(value: Any) -> Callee | None:
    if value is not None and not isinstance(value, Callee):
        raise TypeError
    return value


_CANONICAL: dict[str, Callable[[Any], Any]] = {
    "int": _int, "float": _float, "bool": bool, "enum": str, "dtype": _dtype, "ints": _ints, "floats": _floats,
    "function": _function, "bytes": _bytes,
}  # fmt: skip


def _bad(op: str, name: str, expected: str, got: object) -> GraphError:
    return GraphError(
        f"attribute {name!r} of {op} has an invalid value", code=302, op=op, expected=expected, got=repr(got)
    )


def encode_attributes(op: str, attributes: dict[str, Any], functions: Mapping[Any, int]) -> tuple[bytes, int]:
    """The op's attribute table as position-independent bytes, and the table's offset in these bytes. The bytes must be
    placed at a multiple of 8.

    Layout: vtable, table, vectors. Attributes equal to their default are omitted. `functions` gives the index of each
    function that an attribute may refer to.
    """
    eights, fours, ones, vectors = [], [], [], []
    specs = OPS[op]["attributes"]
    for name, (slot, kind, default, values) in specs.items():
        value = attributes.get(name, default)
        if kind in _VECTORS:
            if len(value):
                content = value if kind == "bytes" else np.asarray(value, _VECTORS[kind]).tobytes()
                vectors.append((slot, content, len(value)))
        elif value == default:
            continue
        elif kind == "int" or kind == "float":
            eights.append((slot, _SCALARS[kind][1], value))
        elif kind == "function":
            fours.append((slot, "i", functions[value]))
        else:
            ones.append(
                (slot, "B", values[value] if kind == "enum" else DTYPE_IDS[value] if kind == "dtype" else int(value))
            )
    entries = [0] * len(specs)
    at = 4
    codes, data = [], []
    for slot, code, value in eights:
        entries[slot] = at
        at += 8
        codes.append(code)
        data.append(value)
    for slot, code, value in fours:
        entries[slot] = at
        at += 4
        codes.append(code)
        data.append(value)
    offsets_at = at
    for slot, _, _ in vectors:
        entries[slot] = at
        at += 4
    for slot, _, _ in ones:
        entries[slot] = at
        at += 1
    vtable_size = 4 + 2 * len(entries)
    start = (vtable_size + 3) // 8 * 8 + 4  # the table starts at 4 modulo 8, so that its 8-byte fields are aligned
    # vectors: the length is at 4 modulo 8, the elements start at a multiple of 8
    position = (start + at + 3) // 8 * 8 + 4
    tail, offsets = [], []
    first = position
    for index, (_, content, count) in enumerate(vectors):
        offsets.append(position - (start + offsets_at + 4 * index))
        padding = (4 - len(content)) % 8 if index + 1 < len(vectors) else 0
        tail.append(struct.pack("<I", count) + content + b"\0" * padding)
        position += 4 + len(content) + padding
    head = struct.pack(f"<{2 + len(entries)}H", vtable_size, at, *entries).rjust(start, b"\0")
    table = struct.pack(
        f"<i{''.join(codes)}{len(vectors)}I{len(ones)}B", vtable_size, *data, *offsets, *(v for _, _, v in ones)
    )
    blob = head + table
    if vectors:
        blob = blob.ljust(first, b"\0")
    return blob + b"".join(tail), start


# One Node table with only op, attributes_type and attributes, before the attribute table.
# Slots: op at 4, no inputs, no outputs, attributes_type at 6, attributes at 8.
_NODE_VTABLE = struct.pack("<7H", 14, 12, 4, 0, 0, 6, 8)


def encode_node(op: str, attributes: dict[str, Any]) -> bytes:
    """A complete flatbuffer whose root is linnet.fb.Node with op and attributes, as linnet_op_infer reads it."""
    blob, table = encode_attributes(op, attributes, _NoFunctions())
    number = OPS[op]["id"]
    # 0: root offset; 4: padding; 8: vtable (14 bytes); 22: padding; 24: table: soffset, op, type, pad, offset; 36: pad; 40
    return struct.pack("<II14sHiHBBI4x", 24, 0, _NODE_VTABLE, 0, 16, number, number, 0, 40 + table - 32) + blob


class _NoFunctions(dict[Any, int]):
    """Indices of functions for a single node, for which it does not matter which function an attribute refers to."""

    def __missing__(self, key: Any) -> int:
        return 0


def decode_attributes(op: str, table: Any, functions: Sequence[Callee]) -> dict[str, Any]:
    """The attributes of a node from its flatbuffer table (None if absent), including defaults."""
    out: dict[str, Any] = {}
    for name, (slot, kind, default, values) in OPS[op]["attributes"].items():
        offset = table.Offset(4 + 2 * slot) if table is not None else 0
        if not offset:
            out[name] = default
        elif kind in _VECTORS:
            array = table.GetVectorAsNumpy(_VECTOR_FLAGS[kind], offset)
            out[name] = array.tobytes() if kind == "bytes" else tuple(array.tolist())
        else:
            flags = {
                "int": number_types.Int64Flags,
                "float": number_types.Float64Flags,
                "function": number_types.Int32Flags,
            }.get(kind, number_types.Uint8Flags)
            value = table.Get(flags, offset + table.Pos)
            if kind == "enum":
                value = next(word for word, number in values.items() if number == value)
            elif kind == "dtype":
                value = DTYPE_NAMES[value]
            elif kind == "bool":
                value = bool(value)
            elif kind == "function":
                value = None if value < 0 else functions[value]
            out[name] = value
    return out
