"""The result of debugging a quantization as one self-contained HTML page: tables, and a histogram for each of the worst
layers."""

from __future__ import annotations

import math
from html import escape

from linnet.quantization.debug_report import DebugReport, Layer
from linnet.report.compare_text import db
from linnet.report.debug_text import lines, tables
from linnet.report.tables_page import page

_ROWS, _LETTERS = 200, 1000  # the page itself shortens names, and shows them in full in tooltips
_WIDE, _HIGH, _LEFT, _TOP = 640, 110, 10, 6


_COLUMNS = {
    "alone dB": "SQNR of the outputs if this layer alone were quantized; the smallest is the worst",
    "local dB": "SQNR of the layer's result, alone",
    "SQNR dB, cosine": "of the tensor in the whole quantized model, with what it inherits",
    "stored": "the part of the layer's error that comes from storing its result; the rest is from its weights",
    "seen, can hold": "the range of the float values, and that of the quantized tensor",
    "beyond": "the share of float values outside the second range",
    "zeros": "the share of zeros in the float and in the quantized tensor",
}


def debug_page(report: DebugReport, title: str) -> str:
    """The page. In the histograms, one colour is the float model and the other the quantized one; the heights of the
    bars are logarithmic."""
    drawn = [layer for layer in report.ranked if layer.histogram is not None]
    legend = (
        "<h2>Distributions, worst layer first</h2><p>Filled: float values. Line: quantized values. Heights are logarithms of "
        "counts. Below: the range that was seen (blue), and the range that the quantized tensor can hold (orange).</p>"
    )
    columns = "".join(f"<p><b>{name}</b>: {meaning}.</p>" for name, meaning in _COLUMNS.items())
    below = f"<h2>Columns of the tables</h2>{columns}" + (legend + "".join(map(_layer, drawn)) if drawn else "")
    return page(title, lines(report), tables(report, _ROWS, _LETTERS), below)


def _layer(layer: Layer) -> str:
    facts = (
        f"{layer.op}, tensor {layer.name}, {layer.dtype}; outputs with it alone: {db(layer.output_db) or 'not measured'} dB; "
        f"local {db(layer.local_db)} dB; SQNR {db(layer.sqnr_db)} dB; cosine {layer.cosine:.5f}; beyond the range "
        f"{layer.saturated:.2%}; zeros {layer.zeros[0]:.1%} float, {layer.zeros[1]:.1%} quantized"
    )
    return f"<h2>{escape(layer.layer)}</h2><p>{escape(facts)}</p>{_drawing(layer)}\n"


def _drawing(layer: Layer) -> str:
    found = layer.histogram
    assert found is not None
    most = math.log1p(max(*found.exact, *found.quantized, 1))
    bins, step = len(found.exact), _WIDE / len(found.exact)

    def height(count: int) -> float:
        return _HIGH * math.log1p(count) / most

    bars = "".join(
        f'<rect class="one" x="{_LEFT + i * step:.1f}" y="{_TOP + _HIGH - height(n):.1f}" width="{step * 0.9:.1f}" '
        f'height="{height(n):.1f}"/>'
        for i, n in enumerate(found.exact)
        if n
    )
    steps = " ".join(
        f"{_LEFT + (i + side) * step:.1f},{_TOP + _HIGH - height(found.quantized[i]):.1f}"
        for i in range(bins)
        for side in (0, 1)
    )

    def at(value: float) -> float:
        return _LEFT + _WIDE * min(max((value - found.low) / (found.high - found.low), 0.0), 1.0)

    base = _TOP + _HIGH
    marks = [_line("seen", at(layer.seen[0]), at(layer.seen[1]), base + 8)]
    shade = ""
    if layer.range is not None:
        low, high = at(layer.range[0]), at(layer.range[1])
        marks.append(_line("range", low, high, base + 13))
        for start, end in ((_LEFT, low), (high, _LEFT + _WIDE)):
            if end - start > 0.5:
                shade += (
                    f'<rect class="outside" x="{start:.1f}" y="{_TOP}" width="{end - start:.1f}" height="{_HIGH}"/>'
                )
    return (
        f'<svg viewBox="0 0 {_WIDE + 2 * _LEFT} {base + 30}" width="{_WIDE + 2 * _LEFT}" role="img">{shade}{bars}'
        f'<polyline class="two" points="{steps}"/><line class="axis" x1="{_LEFT}" x2="{_LEFT + _WIDE}" y1="{base}" y2="{base}"/>'
        + "".join(marks)
        + f'<text x="{_LEFT}" y="{base + 27}">{found.low:.4g}</text><text x="{_LEFT + _WIDE}" y="{base + 27}" '
        f'text-anchor="end">{found.high:.4g}</text></svg>'
    )


def _line(kind: str, start: float, end: float, y: float) -> str:
    return f'<line class="{kind}" x1="{start:.1f}" x2="{max(end, start + 1):.1f}" y1="{y}" y2="{y}"/>'
