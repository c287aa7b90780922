"""Finds the native tools for an architecture. They are static programs, which need nothing on the target."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.resources
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from linnet._fetch import cache_dir, unpack
from linnet.clib.errors import FileError
from linnet.deploy import native_build
from linnet.deploy.processors import PROCESSORS


def find(arch: str, tool: str, own: bool = False, show: Callable[[str], None] = lambda line: None) -> Path:
    """Returns the file of a tool: in the folder that the environment variable LINNET_TARGETS names, in the package
    linnet, or in a source tree where `make cross TARGET=ARCH` has put it. Otherwise builds the tools from the sources
    that the package carries. own: whether the tools of this installation may be used as well. show: called with a line
    of progress. Raises FileError if there are no tools and they cannot be built."""
    for path in _places(arch, tool, own):
        if path.is_file():
            return path
    sources = _package() / "targets" / "sources.tar.xz"
    if sources.is_file() and arch in PROCESSORS:
        folder = _kept(sources, arch)
        if not folder.is_dir():
            native_build.build(sources, folder, arch, show)
        return folder / "bin" / tool
    raise FileError(
        f"there is no {tool} for {arch}", code=201,
        expected="ARCH/TOOL in the folder that the environment variable LINNET_TARGETS names, or a file in "
        f"build-{arch}/bin of the source tree",
        got=f"LINNET_TARGETS={os.environ.get('LINNET_TARGETS', '')}",
        hint=f"run make cross TARGET={arch} in the source tree, or install linnet by pip",
    )  # fmt: skip


def _package() -> Path:
    return Path(str(importlib.resources.files("linnet")))


def _places(arch: str, tool: str, own: bool) -> Iterator[Path]:
    if folder := os.environ.get("LINNET_TARGETS"):
        yield Path(folder, arch, tool)
    if own:
        yield _package() / "bin" / tool
    tree = Path(__file__).resolve().parents[3]
    if (tree / "CMakeLists.txt").is_file():
        if own:
            yield tree / "build" / tool
        yield tree / f"build-{arch}" / "bin" / tool
    archive = _package() / "targets" / f"{arch}.tar.xz"
    if archive.is_file():
        yield _unpacked(archive, arch) / "bin" / tool


def _kept(archive: Path, arch: str) -> Path:
    """The folder in the cache for the contents of an archive, or for the tools built of it. Its name contains the
    digest of the archive, so an update gets a new folder."""
    return cache_dir() / "targets" / f"{arch}-{hashlib.sha256(archive.read_bytes()).hexdigest()[:16]}"


def _unpacked(archive: Path, arch: str) -> Path:
    folder = _kept(archive, arch)
    if folder.is_dir():
        return folder
    folder.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        unpack(archive, Path(scratch, arch))
        with contextlib.suppress(OSError):  # another process was faster
            Path(scratch, arch).rename(folder)
    return folder
