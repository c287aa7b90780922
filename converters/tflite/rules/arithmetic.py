"""Rules for pointwise arithmetic. Quantized integers follow the fixed-point definitions of the TFLite kernels (reference_ops
Add, Sub, Mul, integer Maximum and Minimum). Ops that TFLite computes in floats are computed in floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from linnet.builder.mapping import pointwise
from linnet.converters.tflite.fixed_point import RANGES, quantize_multiplier, quotients
from linnet.converters.tflite.operation import Operation, per_tensor, same_quantization, scaled
from linnet.converters.tflite.registry import rule
from linnet.ir.dtypes import numpy_dtype
from linnet.ir.expr import Expr
from linnet.ir.function import Tensor

FLOAT: dict[str, Callable[[Expr, Expr], Expr]] = {
    "ADD": lambda a, b: a + b, "SUB": lambda a, b: a - b, "MUL": lambda a, b: a * b, "DIV": lambda a, b: a / b,
    "MAXIMUM": lambda a, b: a.max(b), "MINIMUM": lambda a, b: a.min(b), "POW": lambda a, b: a.binary("pow", b),
    "SQUARED_DIFFERENCE": lambda a, b: (a - b) * (a - b), "ATAN2": lambda a, b: a.binary("atan2", b),
    "FLOOR_MOD": lambda a, b: a % b, "BITWISE_XOR": lambda a, b: a ^ b,
    "RIGHT_SHIFT": lambda a, b: a.binary("shift_right", b),
}  # fmt: skip


def operands(op: Operation) -> tuple[Tensor, Tensor]:
    return op.input(0), op.input(1)


def _float(op: Operation, a: Tensor, b: Tensor, activation: bool = False) -> Tensor:
    """Applies the op to real numbers, clamps, and stores the result as declared."""
    y = op.map([op.real(a), op.real(b)], FLOAT[op.spec.op])
    if activation:
        y = op.activate(y)
    return op.store(y)


@rule("ADD", "SUB")
def add(op: Operation) -> Tensor:
    a, b = operands(op)
    if not op.is_quantized():
        return op.activate(op.map([a, b], FLOAT[op.spec.op]))
    spec = op.output()
    if a.quantization is None or b.quantization is None or spec.quantization is None:
        return _float(op, a, b, activation=True)
    (sa, za), (sb, zb), (sy, zy) = (
        per_tensor(q, "an operand") for q in (a.quantization, b.quantization, spec.quantization)
    )
    left = 15 if spec.dtype == "i16" else 20
    twice = 2.0 * max(float(sa), float(sb))
    ma, mb = quantize_multiplier(float(sa) / twice), quantize_multiplier(float(sb) / twice)
    my = quantize_multiplier(twice / ((1 << left) * float(sy)))
    sign = -1 if op.spec.op == "SUB" else 1
    low, high = op.limits(op.activation())

    def body(x: Expr, y: Expr) -> Expr:
        first = ((x - za) * (1 << left)).fixed_multiply(ma[0], -ma[1])
        # TFLite negates the multiplier of the subtrahend instead; the product is the same
        second = ((y - zb) * (sign * (1 << left))).fixed_multiply(mb[0], -mb[1])
        return ((first + second).fixed_multiply(my[0], -my[1]) + zy).max(low).min(high)

    return op.quantized(op.map([a, b], body, spec.dtype), spec)


@rule("MUL")
def mul(op: Operation) -> Tensor:
    a, b = operands(op)
    if not op.is_quantized():
        return op.activate(op.map([a, b], FLOAT["MUL"]))
    spec = op.output()
    if a.quantization is None or b.quantization is None or spec.quantization is None or spec.dtype not in RANGES:
        return _float(op, a, b, activation=True)
    (sa, za), (sb, zb), (sy, zy) = (
        per_tensor(q, "an operand") for q in (a.quantization, b.quantization, spec.quantization)
    )
    fixed, shift = quantize_multiplier(
        float(np.float32(np.float32(sa * sb) / sy))
    )  # TFLite multiplies scales in floats
    low, high = op.limits(op.activation())

    def body(x: Expr, y: Expr) -> Expr:
        return (scaled((x - za) * (y - zb), fixed, shift) + zy).max(low).min(high)

    return op.quantized(op.map([a, b], body, spec.dtype), spec)


@rule("DIV")
def div(op: Operation) -> Tensor:
    """Division. On 8-bit integers, it is a table of all 65,536 quotients."""
    a, b = operands(op)
    if not op.is_quantized():
        return op.activate(op.map([a, b], FLOAT["DIV"]))
    spec = op.output()
    eight = a.dtype == b.dtype == spec.dtype and spec.dtype in ("i8", "u8")
    if a.quantization is None or b.quantization is None or spec.quantization is None or not eight:
        return _float(op, a, b, activation=True)  # TFLite has no 16-bit kernel
    (sa, za), (sb, zb), (sy, zy) = (
        per_tensor(q, "an operand") for q in (a.quantization, b.quantization, spec.quantization)
    )
    low, high = RANGES[spec.dtype]
    codes = np.arange(low, high + 1, dtype=np.int64)
    multiplier = quantize_multiplier(float(np.float32(sa / np.float32(sb * sy))))
    least, most = op.limits(op.activation())
    values = quotients((codes - za)[:, None], codes - zb, *multiplier) + zy
    table = values.clip(least, most).astype(numpy_dtype(spec.dtype)).reshape(-1)
    stored: Tensor = pointwise([a, b], lambda x, y: (x - low) * 256 + (y - low), "i32", function=op.function)
    return op.quantized(op.lookup(stored, table, 0), spec)


@rule("MAXIMUM", "MINIMUM")
def extremum(op: Operation) -> Tensor:
    a, b = operands(op)
    if not op.is_quantized():
        return op.map([a, b], FLOAT[op.spec.op])
    assert a.quantization is not None
    spec = op.output()
    same = [q is not None and same_quantization(a.quantization, q) for q in (b.quantization, spec.quantization)]
    if not all(same):
        return _float(op, a, b)
    return op.quantized(op.map([a, b], FLOAT[op.spec.op]), spec)


@rule("SQUARED_DIFFERENCE")
def squared_difference(op: Operation) -> Tensor:
    """Integers are brought to one scale and shifted left by 7 bits. With this shift, the square of the difference fits
    into 32 bits."""
    a, b = operands(op)
    if not op.is_quantized():
        return op.map([a, b], FLOAT["SQUARED_DIFFERENCE"])
    spec = op.output()
    if a.quantization is None or b.quantization is None or spec.quantization is None or spec.dtype not in ("i8", "u8"):
        return _float(op, a, b)  # TFLite has no 16-bit kernel
    (sa, za), (sb, zb), (sy, zy) = (
        per_tensor(q, "an operand") for q in (a.quantization, b.quantization, spec.quantization)
    )
    twice = 2.0 * max(float(sa), float(sb))
    ma, mb = quantize_multiplier(float(sa) / twice), quantize_multiplier(float(sb) / twice)
    my = quantize_multiplier(twice * twice / ((1 << 14) * float(sy)))
    low, high = RANGES[spec.dtype]

    def body(x: Expr, y: Expr) -> Expr:
        first = ((x - za) * (1 << 7)).fixed_multiply(ma[0], -ma[1])
        rest = first - ((y - zb) * (1 << 7)).fixed_multiply(mb[0], -mb[1])
        return (scaled(rest * rest, *my) + zy).max(low).min(high)

    return op.quantized(op.map([a, b], body, spec.dtype), spec)


@rule("POW", "ATAN2", "FLOOR_MOD", "BITWISE_XOR", "RIGHT_SHIFT")
def binary(op: Operation) -> Tensor:
    a, b = operands(op)
    if op.is_quantized():
        return _float(op, a, b)
    return op.map([a, b], FLOAT[op.spec.op])


@rule("FLOOR_DIV")
def floor_div(op: Operation) -> Tensor:
    a, b = operands(op)

    def body(x: Expr, y: Expr) -> Expr:
        if x.kind in ("f32", "f64"):
            return (x / y).floor()
        wrong = (x % y).ne(0) & ((x < 0).ne(y < 0))
        quotient = x / y
        return wrong.select(quotient - 1, quotient)

    return op.map([a, b], body)


@rule("ADD_N")
def add_n(op: Operation) -> Tensor:
    total = op.input(0)
    for i in range(1, len(op.inputs)):
        total = op.map([total, op.input(i)], FLOAT["ADD"])
    return total


@rule("SQUARE")
def square(op: Operation) -> Tensor:
    x = op.real(op.input(0)) if op.is_quantized() else op.input(0)
    y = op.map([x], lambda v: v * v)
    return op.store(y) if op.is_quantized() else y


@rule("PRELU")
def prelu(op: Operation) -> Tensor:
    x, slope = operands(op)
    if not op.is_quantized():
        return op.map([x, slope], lambda v, s: (v < 0).select(v * s, v))
    spec = op.output()
    if x.quantization is None or slope.quantization is None or spec.quantization is None:
        raise op.unsupported("the input is quantized, but the slope or the output is not", "export the model again")
    (sx, zx), (ss, zs), (sy, zy) = (
        per_tensor(q, "an operand") for q in (x.quantization, slope.quantization, spec.quantization)
    )
    low, high = RANGES[spec.dtype]
    plain = quantize_multiplier(float(np.float32(sx / sy)))
    scaled = quantize_multiplier(float(np.float32(np.float32(sx * ss) / sy)))

    def body(v: Expr, s: Expr) -> Expr:
        centred = v - zx
        above = centred.fixed_multiply(plain[0], -plain[1])
        below = (centred * (s - zs)).fixed_multiply(scaled[0], -scaled[1])
        return ((centred < 0).select(below, above) + zy).max(low).min(high)

    return op.quantized(op.map([x, slope], body, spec.dtype), spec)


@rule("FAKE_QUANT")
def fake_quant(op: Operation) -> Tensor:
    """Rounds floats to a grid that is nudged to contain 0 (TensorFlow's FakeQuantWithMinMaxArgs)."""
    low, high, bits = float(op.option("min")), float(op.option("max")), int(op.option("bits"))
    least = 1 if op.option("narrow") else 0
    most = (1 << bits) - 1
    if not low < high or not 2 <= bits <= 16:
        raise op.unsupported(f"the range {low} to {high} at {bits} bits is invalid", "export the model again")
    scale = np.float32((high - low) / (most - least))
    zero = float(np.clip(np.floor(least - low / float(scale) + 0.5), least, most))
    start, end = np.float32((least - zero) * scale), np.float32((most - zero) * scale)
    inverse = np.float32(1) / scale

    def body(v: Any) -> Any:
        inside = v.max(float(start)).min(float(end)) - float(start)
        return (inside * float(inverse) + 0.5).floor() * float(scale) + float(start)

    return op.map([op.input(0)], body)
