"""The layout of a .lnt file (docs/format.md): its header, and the limits that writer and reader use."""

from __future__ import annotations

import struct

MAGIC = b"LINNET\r\n"
FORMAT_VERSION = 1  # the version that this writer writes, and the newest that the reader reads
OLDEST_READER = 1  # the oldest reader version that can read files of this writer
HEADER = struct.Struct("<8sIIQQIIQ16x")  # magic, version, oldest reader, structure offset, size, crc32, 0, file size
INLINE_LIMIT = 256  # bytes; smaller constants are stored inside the structure
ALIGNMENT = 64
