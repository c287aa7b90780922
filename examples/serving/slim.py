#!/usr/bin/env python3
"""Removes what `linnet serve` does not need from this Python's packages: tests, headers, type stubs, symbols for debuggers,
linnet's programs for other uses. The container file runs it in the step that installs them; licences stay."""

from __future__ import annotations

import shutil
import struct
import sysconfig
from pathlib import Path

# Patterns in the folder of packages.
REMOVED = (
    "numpy/**/tests",
    "numpy/f2py",
    "numpy/distutils",
    "numpy/_core/include",
    "numpy/_core/lib",  # a static library, for programs that compile against NumPy
    "numpy/_core/_*_tests*.so",
    "numpy/_core/_simd*.so",  # only NumPy's tests call it
    "numpy/random/lib",
    "**/*.pyi",
    "**/*.pyx",
    "**/*.pxd",
    "PIL/_avif*.so",  # Pillow reads JPEG, PNG and BMP here, and draws no text
    "PIL/_imagingcms*.so",
    "PIL/_imagingft*.so",
    "PIL/_webp*.so",
    *(f"pillow.libs/lib{name}*" for name in ("avif", "brotli", "freetype", "harfbuzz", "lcms2", "png16", "sharpyuv", "webp")),
    "linnet/bin",  # programs that run without Python
    "linnet/include",
    "linnet/targets",  # tools for other processors
)  # fmt: skip
_LOADED = 1  # PT_LOAD of ELF


def remove(packages: Path) -> int:
    """Removes these files and folders, and returns their size in bytes."""
    total = 0
    for pattern in REMOVED:
        for path in sorted(packages.glob(pattern)):
            if path.is_dir():
                total += sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())
                shutil.rmtree(path)
            elif path.exists():
                total += path.lstat().st_size
                path.unlink()
    return total


def cut(library: Path) -> int:
    """Cuts off the end of a 64-bit shared library, behind the last byte that is loaded. There are only symbols and sections
    for debuggers and linkers; of uvloop, they are 12 of 14 MB. `strip` would do the same, but it is not in the image, and it
    damages libraries that auditwheel has changed. Returns how many bytes it cut off."""
    data = library.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":  # 64 bits, little endian
        return 0
    (table,), (size, count) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<HH", data, 54)
    end = table + size * count
    for at in range(table, end, size):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", data, at)
        if kind == _LOADED:
            end = max(end, offset + length)
    if end >= len(data):
        return 0
    kept = bytearray(data[:end])
    kept[40:48], kept[58:64] = bytes(8), bytes(6)  # there is no table of sections any longer
    library.write_bytes(kept)
    return len(data) - end


def main() -> None:
    packages = Path(sysconfig.get_path("purelib"))
    removed = remove(packages)
    removed += sum(cut(library) for library in sorted(packages.rglob("*.so*")))
    print(f"removed {removed / 1e6:.1f} MB from {packages}")


if __name__ == "__main__":
    main()
