"""Reads single fields of a file's structure (schema/linnet.fbs), so that a session needs only the packages NumPy and
cffi. The C library has verified the file. For other content, methods may raise struct.error, IndexError or ValueError."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

_OFFSET: Final = struct.Struct("<I")
_BACK: Final = struct.Struct("<i")
_SHORT: Final = struct.Struct("<H")

MODEL_FUNCTIONS, MODEL_SIGNATURES, MODEL_METADATA = 1, 2, 5  # ids of fields, which never change
FUNCTION_TENSORS, FUNCTION_NODES, FUNCTION_INPUTS = 1, 2, 3
SIGNATURE_NAME, SIGNATURE_FUNCTION, SIGNATURE_INPUTS, SIGNATURE_OUTPUTS = 0, 1, 2, 3
TENSOR_NAME, TENSOR_DIM_NAMES = 0, 4
NODE_OP, NODE_OUTPUTS, NODE_NAME, NODE_SOURCE = 0, 2, 5, 6
PAIR_KEY, PAIR_VALUE = 0, 1


class Table(NamedTuple):
    """One table of a flatbuffer. Each method takes the id of a field."""

    data: bytes
    at: int

    def _field(self, field: int) -> int:
        """The position of the field, or 0 if the file leaves it out."""
        layout = self.at - int(_BACK.unpack_from(self.data, self.at)[0])
        entry = 4 + 2 * field
        if layout < 0 or entry >= _SHORT.unpack_from(self.data, layout)[0]:
            return 0
        offset = int(_SHORT.unpack_from(self.data, layout + entry)[0])
        return self.at + offset if offset else 0

    def short(self, field: int) -> int:
        at = self._field(field)
        return int(_SHORT.unpack_from(self.data, at)[0]) if at else 0

    def number(self, field: int) -> int:
        at = self._field(field)
        return int(_BACK.unpack_from(self.data, at)[0]) if at else 0

    def text(self, field: int) -> str:
        at = self._field(field)
        return _text(self.data, _behind(self.data, at)) if at else ""

    def _entries(self, field: int) -> Iterator[int]:
        """The position of each entry of a list whose entries have four bytes."""
        if not (at := self._field(field)):
            return
        start = _behind(self.data, at)
        for i in range(_OFFSET.unpack_from(self.data, start)[0]):
            yield start + 4 + 4 * i

    def numbers(self, field: int) -> list[int]:
        return [int(_BACK.unpack_from(self.data, at)[0]) for at in self._entries(field)]

    def texts(self, field: int) -> list[str]:
        return [_text(self.data, _behind(self.data, at)) for at in self._entries(field)]

    def tables(self, field: int) -> Iterator[Table]:
        return (Table(self.data, _behind(self.data, at)) for at in self._entries(field))


def root(data: bytes) -> Table:
    """The model's table. data: the structure, from its first byte."""
    return Table(data, _behind(data, 0))


def _behind(data: bytes, at: int) -> int:
    """Returns the position to which the offset at this position points."""
    return at + int(_OFFSET.unpack_from(data, at)[0])


def _text(data: bytes, at: int) -> str:
    size = _OFFSET.unpack_from(data, at)[0]
    return data[at + 4 : at + 4 + size].decode()
