"""Rules for pooling over height and width. Integer averages round half away from zero, as in TFLite."""

from __future__ import annotations

from typing import Any

from linnet.converters.tflite.operation import Operation
from linnet.converters.tflite.registry import rule
from linnet.converters.tflite.rules.convolution import padding
from linnet.ir.expr import Expr
from linnet.ir.function import Tensor


def attributes(op: Operation) -> dict[str, Any]:
    return {
        "kernel": [op.option("filter_h"), op.option("filter_w")],
        "strides": [op.option("stride_h"), op.option("stride_w")], "auto_pad": padding(op), "channel_axis": -1,
    }  # fmt: skip


@rule("MAX_POOL_2D")
def max_pool(op: Operation) -> Tensor:
    x = op.input(0)
    y = op.emit("pool", [x], op.output().quantization if op.is_quantized() else None, kind="max", **attributes(op))
    return op.activate(op.as_declared(y))


@rule("AVERAGE_POOL_2D")
def average_pool(op: Operation) -> Tensor:
    """For integers: the average of the stored values, rounded. In f32, it is exact except for the division.

    A quotient that is not a tie is at least 1/(2 taps) away from a tie. Half of this distance is added, which changes no other
    quotient and protects ties from rounding errors."""
    x, options = op.input(0), attributes(op)
    if not op.is_quantized():
        return op.activate(op.emit("pool", [x], kind="average", **options))
    taps = options["kernel"][0] * options["kernel"][1]
    if not 0 < taps <= 1 << 14:
        raise op.unsupported(f"a window of {taps} elements is not supported", "use 1 to 16384 elements")
    half = 0.5 + 1 / (4 * taps)
    averages = op.emit("pool", [op.cast(x, "f32")], kind="average", **options)

    def body(v: Expr) -> Expr:
        return (v + (v < 0).select(v.lift(-half), v.lift(half))).trunc()

    return op.activate(op.quantized(op.map([averages], body, x.dtype), op.output()))


@rule("L2_POOL_2D")
def l2_pool(op: Operation) -> Tensor:
    squares = op.map([op.input(0)], lambda v: v * v)
    means = op.emit("pool", [squares], kind="average", **attributes(op))
    return op.activate(op.map([means], lambda v: v.sqrt()))
