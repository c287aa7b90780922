"""Parses an ONNX file without its large initializers. Their bytes stay in the file until they are needed; protobuf would copy
them twice. In the parsed model they look like tensors with external data, where the external file is the model file itself."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator
from pathlib import Path

import onnx

INSIDE = "linnet.inside"  # key of an entry of external_data: the file is the model itself
_LEAST = 1 << 16  # bytes of an initializer that stays in the file
MOST_FIELDS = 1 << 20  # of a model and its graph; each node and each initializer is one
_MOST_INSIDE = 1 << 19  # fields of all initializers that are looked into
_MOST_DIMS = 64  # of an initializer
# Field numbers of onnx.proto.
_MODEL_GRAPH, _GRAPH_INITIALIZER, _DIMS, _DATA_TYPE, _RAW_DATA = 7, 5, 1, 2, 9
_SIZES = {
    onnx.TensorProto.FLOAT: 4, onnx.TensorProto.FLOAT16: 2, onnx.TensorProto.BFLOAT16: 2, onnx.TensorProto.DOUBLE: 8,
    onnx.TensorProto.INT8: 1, onnx.TensorProto.UINT8: 1, onnx.TensorProto.INT32: 4, onnx.TensorProto.INT64: 8,
}  # fmt: skip


class TooManyFields(Exception):
    """A file has more fields than are read."""


def parse(content: mmap.mmap, path: Path) -> onnx.ModelProto:
    """The model of a file. Raises TooManyFields if the file has more than MOST_FIELDS, which would take gigabytes. For
    a damaged file, raises the exceptions of protobuf."""
    model = onnx.ModelProto()
    with memoryview(content) as view:
        try:
            pieces = _model(view, path.name)
        except (ValueError, IndexError):
            pieces = None  # protobuf says what is wrong
        if pieces is None:
            model.ParseFromString(view)
        else:
            model.ParseFromString(b"".join(pieces))
    return model


def _model(view: memoryview, name: str) -> list[bytes] | None:
    """The file without large initializers. None if it has no large initializers."""
    pieces: list[bytes] = []
    found, left, inside = 0, [MOST_FIELDS], [_MOST_INSIDE]
    for number, kind, begin, start, end in _fields(view, 0, len(view), left):
        if number != _MODEL_GRAPH or kind != 2:
            pieces.append(bytes(view[begin:end]))
            continue
        graph: list[bytes] = []
        for part, how, first, inner, last in _fields(view, start, end, left):
            small = None
            if part == _GRAPH_INITIALIZER and how == 2 and last - inner >= _LEAST:
                with contextlib.suppress(TooManyFields):
                    small = _initializer(view, inner, last, name, inside)
            found += small is not None
            graph.append(bytes(view[first:last]) if small is None else _field(part, small))
        pieces.append(_field(_MODEL_GRAPH, b"".join(graph)))
    return pieces if found else None


def _initializer(view: memoryview, start: int, end: int, name: str, left: list[int]) -> bytes | None:
    """A TensorProto that refers to its bytes in the file. None if it has no raw data of a plain element type and the
    right size."""
    rest: list[bytes] = []
    count, size, raw, dims = 1, 0, None, 0
    for number, kind, begin, inner, last in _fields(view, start, end, left):
        if number == _RAW_DATA and kind == 2:
            if raw is not None:
                return None
            raw = (inner, last - inner)
            continue
        if number == _DIMS:
            while inner < last:  # several if they are packed
                dim, inner = _varint(view, inner)
                count, dims = count * dim, dims + 1
                if dims > _MOST_DIMS:
                    return None
        elif number == _DATA_TYPE:
            size = _SIZES.get(_varint(view, inner)[0], 0)
        elif number in (13, 14):
            return None
        rest.append(bytes(view[begin:last]))
    if raw is None or raw[1] < _LEAST or raw[1] != count * size:
        return None
    mark = onnx.TensorProto(data_location=onnx.TensorProto.EXTERNAL)
    for key, value in (("location", name), ("offset", raw[0]), ("length", raw[1]), (INSIDE, 1)):
        mark.external_data.add(key=key, value=str(value))
    text: bytes = mark.SerializeToString()
    return b"".join(rest) + text


def _field(number: int, content: bytes) -> bytes:
    """A field with a length."""
    head = bytearray()
    for value in (number << 3 | 2, len(content)):
        while value >= 128:
            head.append(value & 127 | 128)
            value >>= 7
        head.append(value)
    return bytes(head) + content


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    """A number, and the offset after it. Raises IndexError or ValueError."""
    value = 0
    for shift in range(0, 70, 7):
        byte = view[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
    raise ValueError("a number has too many bytes")


def _fields(view: memoryview, at: int, end: int, left: list[int]) -> Iterator[tuple[int, int, int, int, int]]:
    """For each field: its number, its wire type, and the offsets of the field, of its content, and of its end. left: how
    many fields may follow; it is counted down. Raises TooManyFields if there are more. Raises ValueError if a field has the
    number 0, as in a file of zeros, or if the fields do not fill the range."""
    while at < end:
        begin = at
        tag, start = _varint(view, at)
        kind = tag & 7
        left[0] -= 1
        if left[0] < 0:
            raise TooManyFields
        if tag < 8:
            raise ValueError("a field has the number 0")
        if kind == 0:
            _, at = _varint(view, start)
        elif kind == 2:
            size, start = _varint(view, start)
            at = start + size
        elif kind in (1, 5):
            at = start + (8 if kind == 1 else 4)
        else:
            raise ValueError("unknown wire type")
        if at > end:
            raise ValueError("a field is longer than its message")
        yield tag >> 3, kind, begin, start, at
