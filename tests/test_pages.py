"""Pages and terminals with the long names of TFLite, which joins the names of fused ops by ";"."""

from __future__ import annotations

import io
import re
import sys

import pytest
from rich.console import Console

from linnet.quantization.debug_report import DebugReport, Histogram, Layer
from linnet.report import tables
from linnet.report.debug_page import debug_page
from linnet.report.page import table_html
from linnet.report.tables import say, shortened, table

NAMES = [
    f"model/activation_{i}/Relu;model/batch_normalization_{i}/FusedBatchNormV3;model/depthwise_conv2d/depthwise;"
    f"model/conv2d_{i}/BiasAdd/ReadVariableOp/resource1"
    for i in range(30)
]


def test_names_of_fused_ops_stay_readable() -> None:
    """The first part of a name says which layer it is. A node that was split off keeps the end that differs."""
    short = shortened([*NAMES, f"{NAMES[3]}/map", "Identity"], 24)
    assert short[NAMES[3]] == "…activation_3/Relu;…" and short[NAMES[13]] == "…activation_13/Relu;…"
    assert short[f"{NAMES[3]}/map"] == "…activation_3/Relu;…/map" and short["Identity"] == "Identity"
    for width in (12, 16, 24, 40):
        short = shortened([*NAMES, f"{NAMES[3]}/map"], width)
        assert len(set(short.values())) == 31 and max(map(len, short.values())) <= width


def test_a_table_of_steps_fits_80_columns() -> None:
    """Numbers stay whole. Columns that do not fit are left out, and the table says which."""
    made = table("Ops", "name", "=kernel", ">ms", ">share", ">GFLOP/s", ">GB/s", ">% of peak", "=peak")
    for name in NAMES:
        made.add_row(name, "conv_f32_winograd_14x32__avx512", "12.3456", "12.3%", "123.45", "12.34", "123", "shared")
    tables._leave_out(made, 80)
    tables._fit(made, 80, 12)
    out = io.StringIO()
    Console(file=out, width=80, highlight=False).print(made)
    lines = out.getvalue().splitlines()
    rows = [line for line in lines if line.startswith("│")]
    assert max(map(len, lines)) <= 80 and len(rows) == 30, out.getvalue()
    assert all("12.3456" in row and "12.3%" in row and "conv_f32_winograd_14x32__avx512" in row for row in rows)
    assert "GB/s" in lines[-2] + lines[-1] and "--json" in lines[-2] + lines[-1]


def test_lines_are_continued_below(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = "machine " + "word " * 40
    say(text)
    assert capsys.readouterr().out == text + "\n"  # whole for programs
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    say(text, " " * 8)
    first, *rest = capsys.readouterr().out.splitlines()
    assert rest and len(first) <= 80 and all(line.startswith(" " * 8 + "word") and len(line) <= 80 for line in rest)


def test_names_in_tables_of_pages() -> None:
    """A name is short, can be broken between its parts, and is whole in the tooltip."""
    made = table("Steps", "step", "what", ">ms")
    for name in NAMES:
        made.add_row(name, "two words\nand a line", "1.5")
    html = table_html(made)
    cells = re.findall(r'<td title="([^"]*)">(.*?)</td>', html)
    assert [title for title, _ in cells] == NAMES
    assert all(len(cell.replace("<wbr>", "")) <= 40 and "<wbr>" in cell for _, cell in cells)
    assert "two words<br>and a line" in html and "<td class=n>1.5</td>" in html


def test_the_answer_is_above_the_histograms() -> None:
    layers = [
        Layer(name, name, "conv", "", "i8", 20.0, 0.99, 20.0, 0.5, 20.0, 0.1, 0.0, (0.0, 0.0), (0.0, 1.0), (0.0, 1.0), 0,
              Histogram(0.0, 1.0, [1, 2], [2, 1]))
        for name in NAMES[:3]
    ]  # fmt: skip
    html = debug_page(DebugReport("i8", 4, 30.0, {}, layers, [], []), "a page")
    order = [
        html.index(text) for text in ("SQNR of the outputs", "Layers that hurt", "Ranges", "Distributions", "<svg")
    ]
    assert order == sorted(order)
