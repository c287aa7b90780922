"""Where the native tools for an architecture are. They are static programs, which need nothing on the target."""

from __future__ import annotations

import importlib.resources
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

from linnet.clib.errors import FileError


def find(arch: str, tool: str, own: bool = False) -> Path:
    """Returns the file of a tool: in the folder that LINNET_TARGETS names, in the package linnet, in the package
    linnet_targets, or in a source tree where `make cross TARGET=ARCH` has put it. own: the tools of this installation serve
    as well. Raises FileError."""
    for path in _places(arch, tool, own):
        if path.is_file():
            return path
    raise FileError(
        f"there is no {tool} for {arch}", code=201,
        expected=f"a file {arch}/{tool} of the package linnet-targets or in the folder LINNET_TARGETS",
        hint=f"run pip install linnet-targets, or make cross TARGET={arch} in a source tree",
    )  # fmt: skip


def _places(arch: str, tool: str, own: bool) -> Iterator[Path]:
    if folder := os.environ.get("LINNET_TARGETS"):
        yield Path(folder, arch, tool)
    package = Path(str(importlib.resources.files("linnet")))
    if own:
        yield package / "bin" / tool
    yield package / "targets" / arch / tool
    if importlib.util.find_spec("linnet_targets") is not None:
        yield Path(str(importlib.resources.files("linnet_targets")), arch, tool)
    tree = Path(__file__).resolve().parents[3]
    if (tree / "CMakeLists.txt").is_file():
        if own:
            yield tree / "build" / tool
        yield tree / f"build-{arch}" / "bin" / tool
