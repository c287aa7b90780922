"""Finds the native tools for an architecture. They are static programs, which need nothing on the target."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.resources
import os
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from linnet._fetch import cache_dir
from linnet.clib.errors import FileError


def find(arch: str, tool: str, own: bool = False) -> Path:
    """Returns the file of a tool: in the folder that LINNET_TARGETS names, in the package linnet, or in a source tree where
    `make cross TARGET=ARCH` has put it. own: whether the tools of this installation may be used as well. Raises
    FileError."""
    for path in _places(arch, tool, own):
        if path.is_file():
            return path
    raise FileError(
        f"there is no {tool} for {arch}", code=201,
        expected="a file of linnet's wheels for x86-64, or ARCH/TOOL in the folder LINNET_TARGETS",
        got=os.environ.get("LINNET_TARGETS", "no LINNET_TARGETS"),
        hint=f"run make cross TARGET={arch} in a source tree, and copy build-{arch}/bin to LINNET_TARGETS/{arch}",
    )  # fmt: skip


def _places(arch: str, tool: str, own: bool) -> Iterator[Path]:
    if folder := os.environ.get("LINNET_TARGETS"):
        yield Path(folder, arch, tool)
    package = Path(str(importlib.resources.files("linnet")))
    if own:
        yield package / "bin" / tool
    tree = Path(__file__).resolve().parents[3]
    if (tree / "CMakeLists.txt").is_file():
        if own:
            yield tree / "build" / tool
        yield tree / f"build-{arch}" / "bin" / tool
    archive = package / "targets" / f"{arch}.tar.xz"
    if archive.is_file():
        yield _unpacked(archive) / "bin" / tool


def _unpacked(archive: Path) -> Path:
    """The folder in the cache with the archive's files. Its name contains their digest, so an update gets a new
    folder."""
    data = archive.read_bytes()
    arch = archive.name.split(".")[0]
    folder = cache_dir() / "targets" / f"{arch}-{hashlib.sha256(data).hexdigest()[:16]}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch, tarfile.open(archive) as files:
        files.extractall(Path(scratch, arch), filter="data")
        with contextlib.suppress(OSError):  # another process was faster
            Path(scratch, arch).rename(folder)
    return folder
