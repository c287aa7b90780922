"""Rules of RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR over height and width.
Bilinear on integers is computed in floats and rounded; TFLite interpolates in 10-bit fixed point: within one quantum."""

from __future__ import annotations

import numpy as np

from linnet.converters.tflite.operation import Operation
from linnet.converters.tflite.registry import rule
from linnet.graph import Tensor


def _sizes(op: Operation) -> tuple[list[int], list[int]]:
    """(input, output) height and width."""
    x = op.input(0)
    if x.shape is None or len(x.shape) != 4 or not all(isinstance(d, int) for d in x.shape[1:3]):
        raise op.unsupported("an input of unknown size", "fix the input shapes (input_shapes)")
    wanted = [int(v) for v in op.require(1, "the size").reshape(-1)]
    op.limit(max(wanted) * 16)
    return [int(d) for d in x.shape[1:3] if isinstance(d, int)], wanted


@rule("RESIZE_BILINEAR")
def bilinear(op: Operation) -> Tensor:
    x = op.input(0)
    _, wanted = _sizes(op)
    align, half = op.option("align_corners"), op.option("half_pixel_centers")
    coordinates = "align_corners" if align else "half_pixel" if half else "asymmetric"
    real = op.real(x) if op.is_quantized() else x
    y = op.emit("resize", [real], mode="linear", coordinates=coordinates, axes=[1, 2], sizes=wanted)
    return op.store(y) if op.is_quantized() else y


@rule("RESIZE_NEAREST_NEIGHBOR")
def nearest(op: Operation) -> Tensor:
    """By the index arithmetic of reference_ops::ResizeNearestNeighbor, which is known while converting."""
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
