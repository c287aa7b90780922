"""docs/ops.md matches the rules, and its rows for a few ops are correct.
A changed rule fails here until `make generate` is run."""
# Dear: the coverage page is made from all node vectors of ONNX.

from __future__ import annotations

import re

import pytest

from tests.native import ROOT

PAGE = ROOT / "docs" / "ops.md"


def rows(heading: str) -> dict[str, list[str]]:
    """The cells of a section's table, keyed by the first cell."""
    section = PAGE.read_text().partition(f"## {heading}")[2].partition("\n## ")[0]
    table = [re.split(r"(?<!\\)\|", line)[1:-1] for line in section.splitlines() if line.startswith("| ")]
    return {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in table[1:]}


def test_page_is_current() -> None:
    from onnx import defs

    from linnet.converters.coverage import BEGIN, page
    from linnet.converters.onnx.registry import NEWEST_OPSET

    assert BEGIN in PAGE.read_text()
    if defs.onnx_opset_version() != NEWEST_OPSET:
        pytest.skip("the page lists the ops of one release of onnx; linnet supports several")
    assert PAGE.read_text().endswith(page()), "run: python -m linnet.converters.coverage docs/ops.md"


def test_what_the_page_says() -> None:
    from linnet.converters.onnx import rules
    from linnet.converters.onnx.registry import find

    rules.load()
    ops = rows("ONNX, domain ai.onnx")
    assert len(ops) >= 203  # the number in onnx 1.23
    versions, how, types, emits, _ = ops["Conv"]
    assert versions == "1, 11, 22" and how == "rule" and types == "floats" and "conv" in emits.split(", ")
    assert ops["Relu"][3] == "map" and ops["Transpose"][3] == "copy" and "scatter" in ops["ScatterElements"][3]
    assert ops["Attention"][1] == "function body" and ops["StringSplit"][1] == "no" and ops["StringSplit"][4]
    assert "mode <mode>" in ops["Resize"][4]  # a refusal in the rule's words
    ruled = [name for name, (_, how, *_) in ops.items() if how == "rule"]
    assert len(ruled) > 150 and all(find(name, 28) is not None for name in ruled)
    tflite = rows("TFLite")
    assert tflite["CONV_2D"][0] == "rule" and "conv" in tflite["CONV_2D"][1].split(", ")
    assert tflite["HASHTABLE"][0] == "no"
