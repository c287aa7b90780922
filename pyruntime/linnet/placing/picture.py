"""A picture of a placement: the machines as lanes over time, with the values that travel between them as lines."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Sequence

from linnet.placing.costs import Costs, title
from linnet.placing.schedule import Schedule
from linnet.report.tables import size

WIDTH, LANE, LEFT, LINE = 1000, 56, 190, 18
LETTERS = 130  # in a line of the text above the lanes
ROOM = 70  # a value's size stands beside its line if the line is as wide, or as far from the one before it
COLOURS = ("#4878a8", "#c8743c", "#5a9a5a", "#a05a9a", "#8a8a3c", "#3c9a9a", "#b04a4a", "#6a6a6a")


def draw(costs: Costs, chosen: Sequence[int], run: Schedule, why: str) -> str:
    """An SVG of one run by the predictions. why: the text above the lanes."""
    machines, text = costs.machines, textwrap.wrap(why, LETTERS)
    scale, top = (WIDTH - LEFT - 20) / max(run.ns, 1), 14 + LINE * len(text)
    height = top + LANE * len(machines) + 40

    def x(ns: float) -> float:
        return LEFT + ns * scale

    def y(machine: int) -> float:
        return top + LANE * machine

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        *(f'<text x="10" y="{22 + LINE * i}" font-size="13">{html.escape(line)}</text>' for i, line in enumerate(text)),
    ]
    for m, machine in enumerate(machines):
        parts += [
            f'<text x="10" y="{y(m) + 24:.1f}">{html.escape(title(machine.name))}</text>',
            f'<line x1="{LEFT}" y1="{y(m) + 20:.1f}" x2="{WIDTH - 20}" y2="{y(m) + 20:.1f}" stroke="#ddd"/>',
        ]
    for node, at, start, end in zip(costs.nodes, chosen, run.starts, run.ends, strict=True):
        if end > start:
            hint = html.escape(f"{node.name} ({node.op}): {(end - start) / 1e6:.3g} ms")
            parts.append(
                f'<rect x="{x(start):.2f}" y="{y(at) + 6:.1f}" width="{max((end - start) * scale, 0.5):.2f}" height="28" '
                f'fill="{COLOURS[at % len(COLOURS)]}" stroke="white" stroke-width="0.3"><title>{hint}</title></rect>'
            )
    free = -math.inf  # where the last size ends
    for value, source, to, start, end in run.moves:
        bytes_ = costs.sizes.get(value, 0)
        hint = html.escape(f"{bytes_:,} bytes in {(end - start) / 1e6:.3g} ms")
        down = to > source
        ends = (y(source) + (34 if down else 6), y(to) + (6 if down else 34))
        parts.append(
            f'<line x1="{x(start):.2f}" y1="{ends[0]:.1f}" x2="{x(end):.2f}" y2="{ends[1]:.1f}" stroke="#333" '
            f'stroke-width="1"><title>{hint}</title></line>'
        )
        middle = min(max(x((start + end) / 2), LEFT + ROOM / 2), WIDTH - ROOM / 2)
        if middle - ROOM / 2 >= free:
            free = middle + ROOM / 2
            parts.append(
                f'<text x="{middle:.1f}" y="{sum(ends) / 2 + 4:.1f}" text-anchor="middle" fill="#333" stroke="white" '
                f'stroke-width="6" paint-order="stroke">{size(bytes_)}</text>'
            )
    return "\n".join([*parts, *_ticks(run.ns / 1e6, height - 12), "</svg>", ""])


def _ticks(ms: float, y: float) -> list[str]:
    """Times at round numbers of milliseconds below the lanes."""
    least = max(ms, 1e-9) / 6
    step = 10 ** math.floor(math.log10(least))
    step *= next(factor for factor in (1, 2, 5, 10) if factor * step >= least)
    scale = (WIDTH - LEFT - 20) / max(ms, 1e-9)
    return [
        f'<text x="{LEFT + i * step * scale:.1f}" y="{y}" text-anchor="middle" fill="#555">{i * step:.6g} ms</text>'
        for i in range(int(ms / step) + 1)
        if LEFT + i * step * scale <= WIDTH - ROOM / 2
    ]
