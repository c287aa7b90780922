"""What the search of a quantization found: each assignment of dtypes that was measured, with its time, bytes and loss, as rows
and as a picture; and in words what the chosen one does not reach."""

from __future__ import annotations

import dataclasses
import html
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.clib.errors import UsageError

if TYPE_CHECKING:
    from linnet.quantization.assign import Point
    from linnet.quantization.costs import Cost

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 760, 420, 70, 50
_MOST_DB = 100.0


@dataclasses.dataclass(frozen=True)
class Line:
    """One assignment. how: what computes in which dtype. time, size: over those of the float graph, by the model of time and
    by the bytes of the file. ms, bytes: the same, absolute. loss: the largest share of an output that is lost (Nearness).
    error_db: the outputs' power over their error. products: {dtype: share}. chosen: whether the graph has it."""

    how: str
    time: float
    size: float
    ms: float
    bytes: int
    loss: float
    error_db: float
    products: dict[str, float]
    chosen: bool


def lines(plain: Cost, points: Sequence[Point], chosen: Point | None) -> list[Line]:
    """The float graph and all points, the fastest last. Of several points with the same cost and error, one stays."""
    first = Line("f32", 1.0, 1.0, plain.ms, plain.bytes, 0.0, math.inf, dict(plain.products), chosen is None)
    made: dict[tuple[float, int, float], Line] = {}
    for point in points:
        cost, near = point.cost, point.near
        decibels = -10 * math.log10(near.error) if near.error > 0 else math.inf
        key = cost.ms, cost.bytes, near.error
        if key in made and point is not chosen:
            continue
        made[key] = Line(
            point.how, cost.ms / (plain.ms or 1.0), cost.bytes / (plain.bytes or 1), cost.ms, cost.bytes, near.loss, decibels,
            dict(cost.products), point is chosen,
        )  # fmt: skip
    return [first, *sorted(made.values(), key=lambda line: (-line.ms, -line.bytes))]


def write(path: str | Path, found: Sequence[Line]) -> None:
    """Writes the lines as JSON, or as a picture if the name ends with .svg. Raises UsageError."""
    target = Path(path)
    kinds = {".svg": picture, ".json": _json}
    if target.suffix not in kinds:
        raise UsageError(
            "the file for the curve has an unknown type",
            code=101,
            got=target.name,
            expected="a name that ends with .svg or .json",
        )
    try:
        target.write_text(kinds[target.suffix](found), encoding="utf-8")
    except OSError as error:
        raise UsageError(
            what="cannot write the curve", tensor=str(path), got=error.strerror or str(error), expected="a writable path",
            hint="give another path",
        ) from None  # fmt: skip


def _json(found: Sequence[Line]) -> str:
    return json.dumps([as_dict(line) for line in found], indent=1) + "\n"


def as_dict(line: Line) -> dict[str, Any]:
    """A line for JSON, which has no infinity."""
    made = dataclasses.asdict(line)
    return {**made, "error_db": None if math.isinf(line.error_db) else round(line.error_db, 2)}


def picture(found: Sequence[Line]) -> str:
    """An SVG: time to the right, decibels upwards. The size of a point is that of the file, and the chosen one is filled."""
    most = max([1.0, *(line.time for line in found)]) * 1.1
    heights = [min(line.error_db, _MOST_DB) for line in found if math.isfinite(line.error_db)]
    top = max([*heights, 10.0]) * 1.1

    def x(time: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 20) * time / most

    def y(decibels: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - 30) * min(max(decibels, 0.0), top) / top

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<path d="M{_LEFT} 20V{y(0):.1f}H{_WIDTH - 20}" fill="none" stroke="#333"/>',
        f'<path d="M{x(1):.1f} 20V{y(0):.1f}" stroke="#bbb" stroke-dasharray="4 3"/>',
        f'<text x="{x(1):.1f}" y="16" text-anchor="middle" fill="#555">f32</text>',
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 12}" text-anchor="middle">'
        "time of a run over that of f32, by the model of time</text>",
        f'<text x="16" y="{_HEIGHT / 2}" transform="rotate(-90 16 {_HEIGHT / 2})" text-anchor="middle">'
        "signal over error, dB</text>",
    ]
    parts += [
        f'<text x="{x(tick):.1f}" y="{y(0) + 16:.1f}" text-anchor="middle" fill="#555">{tick:g}</text>'
        for tick in (0.25 * i for i in range(1, int(most / 0.25) + 1))
    ]
    step = 10 if top <= 60 else 20
    parts += [
        f'<text x="{_LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end" fill="#555">{tick}</text>'
        for tick in range(0, int(top) + 1, step)
    ]
    for line in found[1:]:
        hint = html.escape(f"{line.how}: {said(line)}")
        fill = "#c8743c" if line.chosen else "white"
        parts.append(
            f'<circle cx="{x(line.time):.1f}" cy="{y(line.error_db):.1f}" r="{4 + 8 * line.size:.1f}" fill="{fill}" '
            f'stroke="#4878a8" stroke-width="1.5"><title>{hint}</title></circle>'
        )
    return "\n".join([*parts, "</svg>", ""])


def said(line: Line) -> str:
    """A line in words."""
    shares = ", ".join(f"{share:.0%} {dtype}" for dtype, share in line.products.items() if share >= 0.005)
    return (
        f"{line.time:.2f} of f32's time, {line.size:.2f} of its size, {line.error_db:.1f} dB, {shares or 'no products'}"
    )
