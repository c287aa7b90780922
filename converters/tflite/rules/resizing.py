"""Rules for RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR over height and width.
Which elements are read, and with which weights, is known during conversion."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.converters.tflite.fixed_point import RANGES
from linnet.converters.tflite.operation import Operation
from linnet.converters.tflite.registry import rule
from linnet.ir.expr import Expr
from linnet.ir.function import Tensor


def _sizes(op: Operation) -> tuple[list[int], list[int]]:
    """(input, output) height and width."""
    x = op.input(0)
    if x.shape is None or len(x.shape) != 4 or not all(isinstance(d, int) for d in x.shape[1:3]):
        raise op.unsupported("the size of the input is unknown", "set the input shapes with input_shapes")
    wanted = [int(v) for v in op.require(1, "the size").reshape(-1)]
    op.limit(max(wanted) * 16)
    return [int(d) for d in x.shape[1:3] if isinstance(d, int)], wanted


@rule("RESIZE_BILINEAR")
def bilinear(op: Operation) -> Tensor:
    x = op.input(0)
    sizes, wanted = _sizes(op)
    align, half = op.option("align_corners"), op.option("half_pixel_centers")
    if not op.is_quantized() and x.dtype not in RANGES:
        coordinates = "align_corners" if align else "half_pixel" if half else "asymmetric"
        return op.emit("resize", [x], mode="linear", coordinates=coordinates, axes=[1, 2], sizes=wanted)
    places = (_in_floats if x.dtype == "u8" else _in_tenths)(op, sizes, wanted, align, half)
    rows = [op.emit("gather", [x, op.constant(places[0][i])], x.quantization, axis=1) for i in (0, 1)]
    corners = [op.emit("gather", [r, op.constant(places[1][i])], r.quantization, axis=2) for r in rows for i in (0, 1)]
    down, right = op.constant(places[0][2].reshape(-1, 1, 1)), op.constant(places[1][2].reshape(-1, 1))

    def in_floats(a: Expr, b: Expr, c: Expr, d: Expr, v: Expr, u: Expr) -> Expr:
        up, left = v.lift(1.0) - v, u.lift(1.0) - u
        a, b, c, d = (e.cast("f32") for e in (a, b, c, d))
        return (a * up * left + c * v * left + b * up * u + d * v * u + 0.5).trunc()

    def in_tenths(a: Expr, b: Expr, c: Expr, d: Expr, v: Expr, u: Expr) -> Expr:
        up, left = 1024 - v, 1024 - u
        total = a * up * left + c * v * left + b * up * u + d * v * u
        return (total + (total > 0).select(total.lift(1 << 19), total.lift(-(1 << 19)))) / (1 << 20)

    body = in_floats if x.dtype == "u8" else in_tenths
    return op.as_declared(op.map([*corners, down, right], body, x.dtype))


Places = tuple[
    npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]
]  # indices of the elements before and after, and the fraction between them


def _in_floats(op: Operation, sizes: list[int], wanted: list[int], align: bool, half: bool) -> list[Places]:
    """reference_ops::ResizeBilinear."""
    found = []
    for size, count in zip(sizes, wanted, strict=True):
        scale = np.float32((size - 1) / (count - 1)) if align and count > 1 else np.float32(size) / np.float32(count)
        at = np.arange(count).astype(np.float32)
        at = (at + np.float32(0.5)) * scale - np.float32(0.5) if half else at * scale
        first = np.maximum(np.floor(at), 0).astype(np.int64)
        found.append((first, np.minimum(np.ceil(at).astype(np.int64), size - 1), at - first.astype(np.float32)))
    return found


def _in_tenths(op: Operation, sizes: list[int], wanted: list[int], align: bool, half: bool) -> list[Places]:
    """reference_ops::ResizeBilinearInteger: positions in units of 2^-10."""
    found = []
    for size, count in zip(sizes, wanted, strict=True):
        above, below = (size - 1, count - 1) if align and count > 1 else (size, count)
        scale = (1024 * above + below // 2) // below
        at = np.arange(count) * scale + (scale // 2 - 512 if half else 0)
        first = np.maximum(at // 1024, 0)
        behind = np.where(at + 1023 >= 0, (at + 1023) // 1024, 0)
        wide = np.int64 if op.input(0).dtype == "i16" else np.int32
        found.append((first, np.minimum(behind, size - 1), (at - 1024 * first).astype(wide)))
    return found


@rule("RESIZE_NEAREST_NEIGHBOR")
def nearest(op: Operation) -> Tensor:
    """Uses the index arithmetic of reference_ops::ResizeNearestNeighbor. The indices are known during conversion."""
    y = op.input(0)
    align, half = op.option("align_corners"), op.option("half_pixel_centers")
    for axis, size, wanted in zip((1, 2), *_sizes(op), strict=True):
        corners = align and wanted > 1
        scale = np.float32((size - 1) / (wanted - 1)) if corners else np.float32(size / wanted)
        offset = np.float32(0.5 if half else 0)
        at = (np.arange(wanted).astype(np.float32) + offset) * scale
        picked = np.floor(at + np.float32(0.5)) if align else np.floor(at)
        picked = np.clip(picked, 0, size - 1).astype(np.int64)
        if wanted != size or not np.array_equal(picked, np.arange(size)):
            y = op.emit("gather", [y, op.constant(picked)], y.quantization, axis=axis)
    return op.as_declared(op.copy([y], kind="identity") if y is op.input(0) else y)
