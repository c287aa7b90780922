"""`linnet.load_graph` without PyTorch: every other format, shapes for a .lnt file, and what a PyTorch file says then."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import linnet
from tests.native import ROOT

DIGITS = ROOT / "examples" / "mnist_small" / "mnist_small.onnx"


def shape_of(graph: linnet.Graph) -> Any:
    return graph.signatures["infer"].function.inputs[0].shape


def test_formats_are_told_by_content(tmp_path: Path) -> None:
    shapes = {"input": (1, 1, 28, 28)}
    graph = linnet.load_graph(DIGITS, shapes)
    with pytest.warns(UserWarning, match=r"will be a linnet file, although its name ends in \.onnx; graph\.to_onnx"):
        graph.save(tmp_path / "digits.onnx")
    assert shape_of(graph) == (1, 1, 28, 28) == shape_of(linnet.load_graph(tmp_path / "digits.onnx"))
    for name in ("none.onnx", "none.lnt", "none.pt2", "none.tflite"):
        with pytest.raises(linnet.FileError, match=r"not_found.*none\."):
            linnet.load_graph(tmp_path / name)


def test_shapes_of_a_linnet_file(tmp_path: Path) -> None:
    graph = linnet.Graph()
    a, b = graph.placeholder("a", ("n", 3)), graph.placeholder("b", ("n", 3))
    graph.signature("infer", {"a": a, "b": b}, {"y": a + b})
    graph.save(tmp_path / "sum.lnt")
    assert shape_of(linnet.load_graph(tmp_path / "sum.lnt")) == ("n", 3)
    function = linnet.load_graph(tmp_path / "sum.lnt", {"b": (4, 3)}).signatures["infer"].function
    assert [t.shape for t in (*function.inputs, *function.outputs)] == [(4, 3)] * 3
    with pytest.raises(linnet.UsageError, match=r"expected \[n, 3\], got \[4, 5\]"):
        linnet.load_graph(tmp_path / "sum.lnt", {"a": (4, 5)})
    with pytest.raises(linnet.UsageError, match="no input named 'c'; expected a or b"):
        linnet.load_graph(tmp_path / "sum.lnt", {"c": (4, 3)})


def test_a_pytorch_file_without_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in ("net.pt2", "net.bin"):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("net/archive_format", "pt2")
            archive.writestr("net/data.pkl", b"")
        with pytest.raises(linnet.UsageError, match=rf"{name}.* needs torch .*pip install 'linnet-runtime\[torch\]'"):
            linnet.load_graph(tmp_path / name)
    with pytest.raises(linnet.FileError, match=r"is a PyTorch file; convert it with linnet\.load_graph"):
        linnet.from_onnx(tmp_path / "net.pt2")
    (tmp_path / "net.pt").write_bytes(b"content")  # no archive: torch is not even asked
    with pytest.raises(linnet.FileError, match=r"is not a PyTorch file, or is damaged.*linnet\.from_torch"):
        linnet.load_graph(tmp_path / "net.pt")
