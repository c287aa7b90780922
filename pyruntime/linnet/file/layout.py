"""The layout of a .lnt file (docs/format.md): its header, and the limits that writer and reader use."""

from __future__ import annotations

import struct

MAGIC = b"LINNET\r\n"
FORMAT_VERSION = 2  # the newest version that the reader reads; files that need nothing of it are written as version 1
HEADER = struct.Struct("<8sIIQQIIQ16x")  # magic, version, oldest reader, structure offset, size, crc32, 0, file size
INLINE_LIMIT = 256  # bytes; smaller constants are stored inside the structure
ALIGNMENT = 64
CHECKPOINT_KEY = "checkpoint_of"  # metadata that only checkpoints have: the digest of the model
# Segments of at least LARGE bytes begin where most GPUs that share memory with the host can read them in the file.
LARGE, LARGE_ALIGNMENT = 4096, 256
