"""Rules for GridSample and AffineGrid. Corner pixels are gathered at computed coordinates and weighted, with one map
per corner. Coordinates are along the last axis of the grid, innermost dimension first (x, y, z), from -1 to 1."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from linnet.converters.onnx.operation import Operation, rank_of
from linnet.converters.onnx.program import Expr
from linnet.converters.onnx.registry import rule
from linnet.converters.onnx.rules.movement import as_i64
from linnet.ir.function import Tensor

Size = Expr | int  # size of an axis: a number if it is known

CUBIC = -0.75  # coefficient of the cubic convolution kernel (Keys 1981), as ONNX fixes it for GridSample


def _position(value: Expr, size: Size, align: bool) -> Expr:
    """Converts a coordinate in [-1, 1] to a position on the axis, in pixels."""
    if align:
        return (value + 1) * ((size - 1) / 2)
    return ((value + 1) * size - 1) * 0.5


def _reflected(place: Expr, size: Size, align: bool) -> Expr:
    """Mirrors a position at the borders, repeatedly if needed."""
    low, high = (0.0, size - 1.0) if align else (-0.5, size - 0.5)
    span = high - low
    if isinstance(span, float) and span == 0:
        return place * 0
    distance = abs(place - low)
    turns = (distance / span).floor()
    rest = distance - turns * span
    odd = turns - (turns * 0.5).floor() * 2
    mirrored = odd.ne(0).select((span - rest) + low, rest + low)
    return mirrored if isinstance(span, float) else span.ne(0).select(mirrored, 0)


def _cubic(t: Expr, tap: int) -> Expr:
    """Weight of tap -1, 0, 1 or 2 for the fraction t."""
    a = CUBIC
    if tap in (0, 1):
        d = t if tap == 0 else 1 - t
        return ((d * (a + 2) - (a + 3)) * d) * d + 1
    d = t + 1 if tap == -1 else 2 - t
    return ((d * a - 5 * a) * d + 8 * a) * d - 4 * a


@rule("GridSample", since=16)
def grid_sample(op: Operation) -> Tensor:
    x, grid = op.input(0), op.input(1)
    rank = rank_of(x, "input 0")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(str(op.attribute("mode")), str(op.attribute("mode")))
    padding, align = str(op.attribute("padding_mode")), bool(op.attribute("align_corners"))
    dims = rank - 2
    known = [d if isinstance(d, int) else None for d in (x.shape or ())[2:]]
    if 0 in known:
        raise op.unsupported("the image has a spatial size of 0", "use an image with at least one pixel")
    unknown = [
        op.cast(op.reshape(op.shape_of(x, 2 + i, 3 + i), []), grid.dtype) for i, d in enumerate(known) if d is None
    ]

    def extents(given: Sequence[Expr]) -> list[Size]:
        """The sizes of all axes. If they are not known, nodes compute them from the operands."""
        rest = iter(given)
        return [next(rest) if d is None else d for d in known]

    if mode not in ("linear", "nearest", "cubic"):
        raise op.unsupported(f"mode {mode!r} is not supported", "use linear, nearest or cubic")
    last = op.transpose(x, [0, *range(2, rank), 1])  # channels last, so that one index gathers all of them
    coordinates = [op.slice(grid, dims + 1, dims - 1 - i, dims - i) for i in range(dims)]  # [n, out..., 1] each
    taps = {"nearest": [0], "linear": [0, 1], "cubic": [-1, 0, 1, 2]}[mode]

    def whole(value: Expr, size: Size) -> Expr:
        """The index of the pixel to the left of the position, or of the nearest pixel in the mode "nearest"."""
        place = _position(value, size, align)
        if mode != "cubic":
            place = place.max(0).min(size - 1) if padding == "border" else place
            place = _reflected(place, size, align).max(0).min(size - 1) if padding == "reflection" else place
        return place.round() if mode == "nearest" else place.floor()

    def fraction(value: Expr, size: Size) -> Expr:
        place = _position(value, size, align)
        if mode != "cubic":
            place = place.max(0).min(size - 1) if padding == "border" else place
            place = _reflected(place, size, align).max(0).min(size - 1) if padding == "reflection" else place
        return place - place.floor()

    total: Tensor | None = None
    for corner in itertools.product(taps, repeat=dims):

        def index(value: Expr, size: Size, tap: int) -> Expr:
            at = whole(value, size) + tap
            if mode == "cubic" and padding == "reflection":
                at = _reflected(at, size, align)
            return at.max(0).min(size - 1).cast("i64")

        parts = [
            op.map([c, *unknown], lambda v, *s, i=i, t=t: index(v, extents(s)[i], t), "i64")
            for i, (c, t) in enumerate(zip(coordinates, corner, strict=True))
        ]
        values = op.emit("gather", [last, op.concat(parts, dims + 1)], kind="nd", batch_dims=1)

        def weighted(value: Expr, *operands: Expr) -> Expr:
            sizes = extents(operands[dims:])
            for place, size, tap in zip(operands[:dims], sizes, corner, strict=True):  # noqa: B023
                if mode == "linear":
                    t = fraction(place, size)
                    value = value * (t if tap else 1 - t).cast(value.kind)
                elif mode == "cubic":
                    value = value * _cubic(fraction(place, size), tap).cast(value.kind)
                if padding == "zeros":
                    at = whole(place, size) + tap
                    inside = at.binary("ge", 0).binary("and", at.binary("le", size - 1))
                    value = inside.select(value, 0)
            return value

        part = op.map([values, *coordinates, *unknown], weighted, x.dtype)
        total = part if total is None else op.map([total, part], lambda a, b: a + b)
    assert total is not None
    return op.transpose(total, [0, rank - 1, *range(1, rank - 1)])


@rule("AffineGrid", since=20)
def affine_grid(op: Operation) -> Tensor:
    """The positions to which theta ([n, 2, 3] or [n, 3, 4]) maps the pixels of an image.

    size: (n, c, [depth,] height, width). Result: [n, [depth,] height, width, 2 or 3]. With align_corners an axis of one pixel
    begins at -1, as ONNX specifies for the depth. ONNX's own function body is not used: it squeezes away a batch of one."""
    theta, size = op.input(0), as_i64(op, op.input(1))
    dims = theta.shape[1] if theta.shape else None
    if dims not in (2, 3):
        raise op.unknown("the second dimension of theta is unknown, or is not 2 or 3")
    assert isinstance(dims, int) and theta.shape is not None
    if theta.shape[1:] not in ((dims, dims + 1), (dims, None)):
        raise op.unsupported(f"theta has shape {list(theta.shape)}", "use [n, 2, 3] or [n, 3, 4]")
    align = bool(op.attribute("align_corners"))
    zero, one = op.constant(np.int64(0)), op.constant(np.int64(1))

    def place(i: Expr, n: Expr) -> Expr:
        i, n = i.cast("f32"), n.cast("f32")
        return 2 * i / (n - 1).max(1.0) - 1 if align else (2 * i + 1) / n - 1

    operands = []
    for axis in range(dims):  # x, the innermost axis, comes first
        count = op.slice(size, 0, 1 + dims - axis, 2 + dims - axis)
        steps = op.map([op.emit("range", [zero, op.reshape(count, []), one]), count], place, "f32")
        shape = [1] * (dims + 2)
        shape[dims - axis] = -1
        operands.append(op.reshape(steps, shape))
    factors = op.unsqueeze(op.cast(theta, "f32"), list(range(1, dims)))  # [n, 1, (1,) dims, dims + 1]
    for column in range(dims + 1):
        part = op.slice(factors, dims + 1, column, column + 1)
        operands.append(op.reshape(part, [0] + [1] * dims + [dims]))

    def transformed(*values: Expr) -> Expr:
        places, columns = values[:dims], values[dims:]
        return sum((v * c for v, c in zip(places, columns, strict=False)), columns[-1])

    return op.cast(op.map(operands, transformed, "f32"), theta.dtype)
