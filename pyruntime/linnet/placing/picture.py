"""A picture of a placement: the machines as lanes over time, with the values that travel between them as lines."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from linnet.placing.costs import title

if TYPE_CHECKING:
    from linnet.placing.placement import Placement

WIDTH, LANE, TOP, LEFT = 1000, 56, 40, 190
COLOURS = ("#4878a8", "#c8743c", "#5a9a5a", "#a05a9a", "#8a8a3c", "#3c9a9a", "#b04a4a", "#6a6a6a")


def draw(found: Placement) -> str:
    """An SVG of one run by the predictions."""
    run, machines = found.schedule, found.costs.machines
    scale = (WIDTH - LEFT - 20) / max(run.ns, 1)
    height = TOP + LANE * len(machines) + 40

    def x(ns: float) -> float:
        return LEFT + ns * scale

    def y(machine: int) -> float:
        return TOP + LANE * machine

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="10" y="22" font-size="14">{html.escape(found.why)}</text>',
    ]
    for m, machine in enumerate(machines):
        parts += [
            f'<text x="10" y="{y(m) + 24:.1f}">{html.escape(title(machine.name))}</text>',
            f'<line x1="{LEFT}" y1="{y(m) + 20:.1f}" x2="{WIDTH - 20}" y2="{y(m) + 20:.1f}" stroke="#ddd"/>',
        ]
    for node, at, start, end in zip(found.costs.nodes, found.chosen, run.starts, run.ends, strict=True):
        if end > start:
            hint = html.escape(f"{node.name} ({node.op}): {(end - start) / 1e6:.3g} ms")
            parts.append(
                f'<rect x="{x(start):.2f}" y="{y(at) + 6:.1f}" width="{max((end - start) * scale, 0.5):.2f}" height="28" '
                f'fill="{COLOURS[at % len(COLOURS)]}" stroke="white" stroke-width="0.3"><title>{hint}</title></rect>'
            )
    for value, source, to, start, end in run.moves:
        hint = html.escape(f"{found.costs.sizes.get(value, 0):,} bytes in {(end - start) / 1e6:.3g} ms")
        parts.append(
            f'<line x1="{x(start):.2f}" y1="{y(source) + 34:.1f}" x2="{x(end):.2f}" y2="{y(to) + 6:.1f}" stroke="#333" '
            f'stroke-width="1"><title>{hint}</title></line>'
        )
    ticks = 5
    for i in range(ticks + 1):
        at_ns = run.ns * i / ticks
        parts.append(
            f'<text x="{x(at_ns):.1f}" y="{height - 12}" text-anchor="middle" fill="#555">{at_ns / 1e6:.3g} ms</text>'
        )
    return "\n".join([*parts, "</svg>", ""])
