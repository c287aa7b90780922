"""Checksums of the segments of a .lnt file. New files have CRC-32C, which the C library computes with the processor's
CRC instructions. Files of older writers have zlib's CRC-32."""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Iterator
from typing import Any

from linnet.clib.errors import FileError
from linnet.clib.ffi import ffi
from linnet.clib.library import library

CRC32, CRC32C = 1, 2  # digest_kind in schema/linnet.fbs


def crc32c(data: Any) -> int:
    """CRC-32C of bytes, a memoryview or a NumPy array."""
    buffer = ffi.from_buffer(data)
    return int(library().linnet_crc32c(0, buffer, len(buffer)))


def check_segments(content: bytes | mmap.mmap, model: Any, where: str) -> None:
    """Checks every segment of the flatbuffer `model` that has a digest. At the first mismatch it raises a FileError
    that names the tensor and its offset."""
    view = memoryview(content)
    left = len(view)
    for i in range(model.SegmentsLength()):
        segment = model.Segments(i)
        kind, first, size = segment.DigestKind(), segment.Offset(), segment.Size()
        if first + size > len(view):
            raise ValueError(f"segment {i} extends past the end of the file")
        if size > left:
            raise ValueError(f"segment {i} overlaps other segments")
        left -= size
        if kind not in (CRC32, CRC32C):
            continue
        got = (zlib.crc32 if kind == CRC32 else crc32c)(view[first : first + size])
        if got != segment.Digest():
            name = next(_names(model, i), "")
            checkpoint = any(model.Metadata(j).Key() == b"checkpoint_of" for j in range(model.MetadataLength()))
            raise FileError(
                f"'{where}' is damaged: the bytes of {name!r} do not match their checksum",
                code=206,
                tensor=where,
                expected=f"{'CRC-32' if kind == CRC32 else 'CRC-32C'} {segment.Digest():08x} of segment {i}: {size} bytes "
                f"at offset {first}",
                got=f"{got:08x}",
                hint="use an earlier checkpoint" if checkpoint else "copy the file again, or convert the model again",
            )


def _names(model: Any, segment: int) -> Iterator[str]:
    """The tensors and variables whose values are in a segment."""
    for f in range(model.FunctionsLength()):
        function = model.Functions(f)
        for i in range(function.TensorsLength()):
            if function.Tensors(i).Segment() == segment:
                yield (function.Tensors(i).Name() or b"").decode()
    for i in range(model.VariablesLength()):
        if model.Variables(i).Segment() == segment:
            yield (model.Variables(i).Name() or b"").decode()
