"""Which importer reads a file: see recognition.py."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from linnet.clib.errors import FileError
from linnet.converters.recognition import format_of


def importer_of(path: str | Path) -> ModuleType:
    """Returns the package `linnet.converters.onnx` or `.tflite`. Raises FileError for a folder, or a file of another format."""
    from linnet.converters import onnx, tflite

    return {"onnx": onnx, "tflite": tflite}[format_of(path, _is_onnx)]


def _is_onnx(path: Path) -> bool:
    """Whether a .pb file is an ONNX model: old ONNX models have this extension too."""
    from linnet.converters.onnx import loader

    try:
        return bool(loader.load(path)[0].graph.node)
    except FileError:
        return False
