"""Rules for L2_NORMALIZATION and LOCAL_RESPONSE_NORMALIZATION, over the last axis."""

from __future__ import annotations

from linnet.converters.tflite.operation import Operation
from linnet.converters.tflite.registry import rule
from linnet.ir.expr import positive_power
from linnet.ir.function import Tensor


@rule("L2_NORMALIZATION")
def l2_normalization(op: Operation) -> Tensor:
    x = op.real(op.input(0)) if op.is_quantized() else op.input(0)
    squares = op.reduce(x, "sum_square", [op.rank() - 1])
    y = op.map([x, squares], lambda v, s: v / s.sqrt().max(1e-6))
    return op.store(y) if op.is_quantized() else op.activate(y)


@rule("LOCAL_RESPONSE_NORMALIZATION")
def local_response_normalization(op: Operation) -> Tensor:
    """x / (bias + alpha * sum of squares over 2 radius + 1 channels) ^ beta."""
    x, radius = op.input(0), op.option("radius")
    bias, alpha, beta = (float(op.option(n)) for n in ("bias", "alpha", "beta"))
    if op.rank() != 4 or radius < 0:
        raise op.unsupported("the rank is not 4, or the radius is negative", "export the model again")
    squares = op.transpose(op.map([x], lambda v: v * v), [0, 3, 1, 2])  # channels as a spatial axis: [n, c, h, w]
    window = op.pad(squares, [0, radius, 0, 0, 0, radius, 0, 0])
    total = op.emit("pool", [window], kind="average", kernel=[2 * radius + 1, 1], strides=[1, 1], channel_axis=-1)
    total = op.transpose(total, [0, 2, 3, 1])
    scale = alpha * (2 * radius + 1)
    return op.map([x, total], lambda v, t: v / positive_power(t * scale + bias, beta))
