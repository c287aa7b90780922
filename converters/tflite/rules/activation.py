"""Rules for functions of one operand. On 8-bit integers, each becomes a table of 256 entries, computed during conversion
with the arithmetic of TFLite's kernel. On 16-bit integers, floats are used, exact to one quantization step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.builder.mapping import pointwise
from linnet.converters.tflite.fixed_point import (
    NEWTON,
    RANGES,
    Fixed,
    doubling_high_multiply,
    inverse_root,
    multiply,
    quantize_multiplier,
    round_away,
    rounding_shift,
    table_16,
    table_of_floats,
)
from linnet.converters.tflite.operation import Operation, per_tensor, scaled
from linnet.converters.tflite.registry import rule
from linnet.ir.dtypes import numpy_dtype
from linnet.ir.expr import Expr
from linnet.ir.function import Tensor

Array = npt.NDArray[Any]
_erf = np.vectorize(math.erf, otypes=[np.float64])


def _nearest(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """An elementary function in f32. It is correctly rounded except for rare near-ties, as in a C library. NumPy's f32
    functions are not rounded correctly."""
    return lambda x: np.asarray(function(x.astype(np.float64)), np.float32)


_exp = _nearest(np.exp)


def _sigmoid(x: Array) -> Array:
    result: Array = np.float32(1) / (np.float32(1) + _exp(-x))
    return result


def _gelu(x: Array, approximate: bool) -> Array:
    wide = x.astype(np.float64)
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)
    result: Array = 0.5 * wide * (1 + (np.tanh(inner) if approximate else _erf(wide * math.sqrt(0.5))))
    return result


# op: (function for floats in a map, function on NumPy f32 for tables)
FUNCTIONS: dict[str, tuple[Callable[[Expr], Expr], Callable[[Array], Array]]] = {
    "LOGISTIC": (lambda x: x.sigmoid(), _sigmoid),
    "TANH": (lambda x: x.tanh(), _nearest(np.tanh)),
    "EXP": (lambda x: x.exp(), _exp),
    "LOG": (lambda x: x.log(), _nearest(np.log)),
    "SQRT": (lambda x: x.sqrt(), np.sqrt),
    "RSQRT": (lambda x: x.sqrt().reciprocal(), lambda x: np.float32(1) / np.sqrt(x)),
    "SIN": (lambda x: x.sin(), np.sin),
    "COS": (lambda x: x.cos(), np.cos),
    "FLOOR": (lambda x: x.floor(), np.floor),
    "CEIL": (lambda x: x.ceil(), np.ceil),
    "ROUND": (lambda x: x.unary("round"), np.rint),
    "ABS": (abs, np.abs),
    "NEG": (lambda x: -x, np.negative),
    "SIGN": (lambda x: x.sign(), np.sign),
    "ELU": (lambda x: (x < 0).select(x.expm1(), x), lambda x: np.where(x < 0, _nearest(np.expm1)(x), x)),
}


@rule(*FUNCTIONS)
def function(op: Operation) -> Tensor:
    if op.spec.op == "RSQRT" and op.is_quantized() and op.input(0).dtype == "i8":
        return _rsqrt_8(op)
    if op.spec.op == "ABS" and op.is_quantized():
        return _abs(op)
    in_map, in_table = FUNCTIONS[op.spec.op]
    if not op.is_quantized():
        return op.map([op.input(0)], in_map)
    return tabulated(op, in_table, in_map)


def _rsqrt_8(op: Operation) -> Tensor:
    """RsqrtEvalQuantized. Inputs that are not positive, which TFLite refuses, give the largest result."""
    x, spec = op.input(0), op.output()
    if x.quantization is None or spec.quantization is None:
        raise op.unsupported("the output has no quantization", "export the model again")
    (sx, zx), (sy, zy) = per_tensor(x.quantization, "the input"), per_tensor(spec.quantization, "the output")
    fixed, shift = quantize_multiplier(1.0 / float(np.sqrt(sx) * sy))
    values = []
    for number in range(-128 - zx, 128 - zx):
        root, power = inverse_root(max(number, 0))
        data = multiply(1, root, power + 20)
        values.append(multiply(data, fixed, shift - 20) + zy if number > 0 else 127)
    return store_table(op, np.array(values))


def tabulated(op: Operation, in_table: Callable[[Array], Array], in_map: Callable[[Expr], Expr]) -> Tensor:
    """A quantized function. For 8 bits it is TFLite's LUTPopulate, all in f32; for 16 bits it is computed in floats."""
    x, spec = op.input(0), op.output()
    assert x.quantization is not None
    if spec.quantization is None or spec.dtype not in RANGES:
        raise op.unsupported("the output has no quantization", "export the model again")
    if x.dtype == "i16" and op.spec.op in ("LOGISTIC", "TANH"):
        return _sigmoid_16(op, x, op.spec.op == "TANH")
    if x.dtype == "i16" and op.spec.op in INTERPOLATED:
        return _interpolated_16(op, x, in_table)
    if x.dtype == "i16":
        y = op.map([op.real(x)], in_map)
        return _cut(op, y) if op.spec.op == "SQRT" else op.store(y)
    scale, zero = per_tensor(x.quantization, "the input")
    out_scale, out_zero = per_tensor(spec.quantization, "the output")
    low, high = RANGES[x.dtype]
    with np.errstate(all="ignore"):
        numbers = (scale * (np.arange(low, high + 1) - zero).astype(np.float32)).astype(np.float32)
        if op.spec.op == "SQRT":
            return store_table(op, np.floor(np.nan_to_num(np.sqrt(numbers) / out_scale)) + out_zero)
        scaled = in_table(numbers).astype(np.float32) * np.float32(np.float32(1) / out_scale)
    return store_table(op, round_away(np.nan_to_num(scaled.astype(np.float64), nan=0.0)) + out_zero)


# Functions of 16-bit integers for which TFLite interpolates in a table.
INTERPOLATED = frozenset({"EXP", "LOG", "RSQRT", "GELU"})


def _interpolated_16(op: Operation, x: Tensor, function: Callable[[Array], Array]) -> Tensor:
    """Interpolates between 513 values. Where the function is undefined, the result is the end of the output's range."""
    spec = op.output()
    assert x.quantization is not None and spec.quantization is not None
    (scale, zero), (out_scale, out_zero) = (per_tensor(t, "an operand") for t in (x.quantization, spec.quantization))
    if zero or out_zero:
        raise op.unsupported(
            "16-bit integers with a zero point are not supported", "export with symmetric 16-bit activations"
        )
    end = {"LOG": np.float32(-32768) * out_scale, "RSQRT": np.float32(32767) * out_scale}.get(op.spec.op)

    def defined(v: Array) -> Array:
        with np.errstate(all="ignore"):
            return function(v) if end is None else np.where(v > 0, function(v), end)

    table = table_of_floats(defined, scale, out_scale)
    steps = np.diff(table).astype(np.int32)  # the kernel stores the steps in 16 bits, where the steepest wrap around
    made = op.map_with_tables([x], [table, steps], interpolated, "i16")
    return op.quantized(made[0], spec)


def interpolated(v: Expr, values: Callable[[Expr], Expr], steps: Callable[[Expr], Expr]) -> Expr:
    """The value at v of a function given by 513 values at -32768, -32640, ..., 32767 (generic_int16_table_lookup)."""
    v = v.max(-32768).min(32767).cast("i32")
    place = v.binary("shift_right", 7) + 256
    return values(place) + (steps(place) * (v & 127) + 64).binary("shift_right", 7)


def _cut(op: Operation, y: Tensor) -> Tensor:
    """Stores square roots. As in the kernel, they are rounded down and not to nearest."""
    spec = op.output()
    assert spec.quantization is not None
    scale, zero = per_tensor(spec.quantization, "the output")
    low, high = RANGES[spec.dtype]
    made = op.map([y], lambda v: ((v / float(scale)).floor() + float(zero)).max(low).min(high), spec.dtype)
    return op.quantized(made, spec)


def _abs(op: Operation) -> Tensor:
    """AbsEvalQuantized, in fixed point."""
    x, spec = op.input(0), op.output()
    if x.quantization is None or spec.quantization is None or spec.dtype not in RANGES:
        raise op.unsupported("the output has no quantization", "export the model again")
    (sx, zx), (sy, zy) = per_tensor(x.quantization, "the input"), per_tensor(spec.quantization, "the output")
    fixed, shift = quantize_multiplier(float(np.float32(sx / sy)))
    low, high = RANGES[spec.dtype]

    def body(v: Expr) -> Expr:
        size = abs(v - zx)
        return ((size if sx == sy else scaled(size, fixed, shift)) + zy).max(low).min(high)

    return op.quantized(op.map([x], body, spec.dtype), spec)


def _sigmoid_16(op: Operation, x: Tensor, tanh: bool) -> Tensor:
    """reference_integer_ops::Logistic and Tanh on 16 bits: linear interpolation in a table of sigmoid(i / 24), i < 256."""
    assert x.quantization is not None
    scale, _ = per_tensor(x.quantization, "the input")
    real, shift = float(scale) * 4096 * 3, 0
    while real <= 32767 / 2 and shift <= 30:
        real, shift = real * 2, shift + 1
    fixed = int(real)
    half = 1 << (shift - 1) if shift else 0
    value, middle, behind = (65536 / (1 + np.exp(-(np.arange(256) + d) / 24)) for d in (0, 0.5, 1))
    table = np.floor(
        value - ((value + behind) / 2 - middle) / 2 + 0.5
    )  # shift by half of the error in the middle of an interval
    table = np.append(table[:-1], 65535).astype(np.int32)
    bits = 8 if tanh else 9  # tanh(x) = 2 sigmoid(2 x) - 1

    def body(v: Expr, values: Callable[[Expr], Expr], steps: Callable[[Expr], Expr]) -> Expr:
        scaled = (v * fixed + half).binary("shift_right", shift)
        size = abs(scaled)
        high, low = size.binary("shift_right", bits), size & ((1 << bits) - 1)
        inside = (values(high) * (1 << bits)) + low * steps(high)
        if tanh:
            inside = (high < 255).select(inside, 0xFFFF << 8)
            above, below = inside - (1 << 23) + (1 << 7), -inside + (1 << 23) + (1 << 7) - 1
            return (scaled < 0).select(below, above).binary("shift_right", 8)
        inside = (high < 255).select(inside, 0x7FFF << 10)
        above, below = inside + (1 << 9), (1 << 25) - inside + (1 << 9) - 1
        return (scaled < 0).select(below, above).binary("shift_right", 10)

    made = op.map_with_tables([x], [table, np.append(np.diff(table), 0).astype(np.int32)], body, "i16")
    return op.quantized(made[0], op.output())


def store_table(op: Operation, values: Array) -> Tensor:
    """Looks up the operand's 256 values in `values`, clamped to the output's range."""
    x, spec = op.input(0), op.output()
    low, high = RANGES[spec.dtype]
    table = np.clip(values, low, high).astype(numpy_dtype(spec.dtype))
    return op.quantized(op.lookup(x, table, RANGES[x.dtype][0]), spec)


@rule("GELU")
def gelu(op: Operation) -> Tensor:
    approximate = op.option("approximate")

    def in_map(x: Expr) -> Expr:
        if approximate:
            return 0.5 * x * (((x * x * x) * 0.044715 + x) * math.sqrt(2 / math.pi)).tanh() + 0.5 * x
        return 0.5 * x * ((x * math.sqrt(0.5)).erf() + 1)

    if not op.is_quantized():
        return op.map([op.input(0)], in_map)
    return tabulated(op, lambda x: _gelu(x, approximate), in_map)


@rule("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1")
def relu(op: Operation) -> Tensor:
    x = op.input(0)
    kind = op.spec.op
    bounds: tuple[float, float | None] = {
        "RELU": (0.0, None), "RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0), "RELU_0_TO_1": (0.0, 1.0),
    }[kind]  # fmt: skip
    if not op.is_quantized():
        low, high = bounds
        if high is None:
            return op.map([x], lambda v: v.max(low))
        return op.map([x], lambda v: v.max(low).min(high))
    assert x.quantization is not None
    spec = op.output()
    if spec.quantization is None:
        raise op.unsupported("the output has no quantization", "export the model again")
    sx, zx = per_tensor(x.quantization, "the input")
    sy, zy = per_tensor(spec.quantization, "the output")
    fixed, shift = quantize_multiplier(float(np.float32(sx / sy)))
    low_stored, high_stored = RANGES[spec.dtype]
    least = max(low_stored, zy + int(round_away(np.float32(bounds[0]) / sy)))
    most = high_stored if bounds[1] is None else min(high_stored, zy + int(round_away(np.float32(bounds[1]) / sy)))
    return op.quantized(
        op.map([x], lambda v: ((v - zx).fixed_multiply(fixed, -shift) + zy).max(least).min(most), spec.dtype), spec
    )


@rule("LEAKY_RELU")
def leaky_relu(op: Operation) -> Tensor:
    x, alpha = op.input(0), float(np.float32(op.option("alpha")))
    if not op.is_quantized():
        return op.map([x], lambda v: (v < 0).select(v * alpha, v))
    assert x.quantization is not None
    spec = op.output()
    if spec.quantization is None:
        raise op.unsupported("the output has no quantization", "export the model again")
    sx, zx = per_tensor(x.quantization, "the input")
    sy, zy = per_tensor(spec.quantization, "the output")
    low, high = RANGES[spec.dtype]
    plain = quantize_multiplier(float(np.float32(sx / sy)))
    scaled = quantize_multiplier(float(np.float32(np.float32(sx * np.float32(alpha)) / sy)))

    def body(v: Expr) -> Expr:
        centred = v - zx
        above = centred.fixed_multiply(plain[0], -plain[1])
        slope, shift = scaled  # negative if alpha is; negating both factors gives the same product
        below = (centred if slope >= 0 else -centred).fixed_multiply(abs(slope), -shift)
        return ((centred < 0).select(below, above) + zy).max(low).min(high)

    return op.quantized(op.map([x], body, spec.dtype), spec)


@rule("HARD_SWISH")
def hard_swish(op: Operation) -> Tensor:
    """x * relu6(x + 3) / 6. On 8 bits, the 16-bit fixed-point arithmetic of reference_ops::HardSwish."""
    x = op.input(0)

    def in_map(v: Expr) -> Expr:
        return v * (v + 3.0).max(0.0).min(6.0) * float(np.float32(1 / 6))

    if not op.is_quantized():
        return op.map([x], in_map)
    spec = op.output()
    assert x.quantization is not None
    if x.dtype == "i16" or spec.quantization is None:
        return op.store(op.map([op.real(x)], in_map))
    sx, zx = per_tensor(x.quantization, "the input")
    sy, zy = per_tensor(spec.quantization, "the output")
    hires = np.float32(1 / 128) * sx
    reluish = quantize_multiplier(float(np.float32(hires / np.float32(3 / 32768))))
    output = quantize_multiplier(float(np.float32(hires / sy)))

    def narrow(fixed: int) -> int:
        return 0x7FFF if fixed >= 0x7FFF0000 else (fixed + (1 << 15)) >> 16

    low, high = RANGES[x.dtype]
    value = (np.arange(low, high + 1, dtype=np.int64) - zx) * 128
    unscaled = doubling_high_multiply(value, narrow(output[0]), 16)
    gate = value
    if reluish[1] > 0:
        gate = np.clip(gate << (reluish[1] - 1), -32768, 32767)
    gate = doubling_high_multiply(gate, narrow(reluish[0]), 16)
    if reluish[1] > 0:
        gate = np.clip(gate << 1, -32768, 32767)
    elif reluish[1] < 0:
        gate = rounding_shift(gate, -reluish[1])
    gate = (gate + 32768) >> 1
    # SaturatingDoublingHighMul: the same product, truncated instead of rounded
    product = gate * unscaled
    doubled = np.where(product >= 0, product >> 15, -((-product) >> 15))
    if output[1] > 0:
        raise op.unsupported("the output scale is too small for the input scale", "quantize the model again")
    return store_table(op, rounding_shift(doubled, -output[1]) + zy)


@rule("SOFTMAX", "LOG_SOFTMAX")
def softmax(op: Operation) -> Tensor:
    """Softmax over the last axis."""
    x, log = op.input(0), op.spec.op == "LOG_SOFTMAX"
    beta = np.float32(1 if log else op.option("beta"))
    spec = op.output()
    if not op.is_quantized():
        if beta != 1:
            x = op.map([x], lambda v: v * float(beta))
        return op.emit("softmax", [x], axis=-1, log=log)
    assert x.quantization is not None
    if log or (x.dtype == "i16") != (spec.dtype == "i16") or spec.dtype not in RANGES or spec.quantization is None:
        real = op.real(x)
        if beta != 1:
            real = op.map([real], lambda v: v * float(beta))
        return op.store(op.emit("softmax", [real], axis=-1, log=log))
    scale = float(beta) * float(per_tensor(x.quantization, "the input")[0])
    return _softmax_16(op, x, scale) if x.dtype == "i16" else _softmax_8(op, x, scale)


def _softmax_8(op: Operation, x: Tensor, scale: float) -> Tensor:
    """reference_ops::Softmax of 8-bit integers, in gemmlowp's fixed point. Exponentials come from tables (31 fraction bits, 19
    for their sum), and Newton's method gives the reciprocal of the sum."""
    spec, fixed = op.output(), Fixed(32)
    low, high = RANGES[spec.dtype]
    multiplier, shift = quantize_multiplier(min(scale * (1 << 26), float((1 << 31) - 1)))
    steps = np.arange(-255, 1)  # distance from the largest element of the row
    reach = int(31 * 2.0**26 / 2.0**shift)
    exps = fixed.exp_on_negative(fixed.multiply(np.where(steps >= -reach, steps, 0) << max(shift, 0), multiplier), 5)
    exps = np.where(steps >= -reach, exps, 0).astype(np.int32)
    last = op.rank() - 1
    most = op.reduce(x, "max", [last])

    def term(v: Expr, m: Expr, values: Callable[[Expr], Expr]) -> Expr:
        return values(v - m + 255)

    coarse = rounding_shift(exps, 12).astype(np.int32)
    total = op.reduce(op.map_with_tables([x, most], [coarse], term, "i32")[0], "sum", [last])
    length = x.shape[last] if x.shape else None
    # The sum of a row is 2^19 to 2^19 times its length, so that it has at most 12 leading zeros.
    zeros = (max(0, 13 - length.bit_length()) if isinstance(length, int) else 0, 12)

    def divided(sum_: Expr) -> tuple[Expr, Expr]:
        """Returns the reciprocal, and the shift of a product with it."""
        v, shifted = leading_zeros(sum_.cast("i64"), *zeros)
        half = v.binary("shift_right", 1)  # (1 + fraction) / 2
        y = high_product(half, v.lift(NEWTON[1])) + NEWTON[0]
        for _ in range(3):
            rest = high_product(y, v.lift(1 << 29) - high_product(half, y))
            y = y + (rest * 4).max(fixed.least).min(fixed.one)
        bits_out = 16 if spec.dtype == "i16" else 8
        return (y * 2).max(fixed.least).min(fixed.one), v.lift(12 + 31 - bits_out) - shifted

    reciprocal, exponent = pointwise([total], divided, ["i64", "i64"], function=op.function)

    def body(v: Expr, m: Expr, r: Expr, n: Expr, values: Callable[[Expr], Expr]) -> Expr:
        product = high_product(term(v, m, values).cast("i64"), r)  # not negative, so that ties round up
        half = product.lift(1).binary("shift_left", n - 1)
        return ((product + half).binary("shift_right", n) + low).max(low).min(high)

    return op.quantized(op.map_with_tables([x, most, reciprocal, exponent], [exps], body, spec.dtype)[0], spec)


def leading_zeros(v: Expr, least: int = 0, most: int = 31) -> tuple[Expr, Expr]:
    """(v shifted left until bit 31 is set, the shift, which is `least` to `most`) for a positive i64 below 2^32."""
    v, zeros = v.binary("shift_left", v.lift(least)), v.lift(least)
    for bits in (16, 8, 4, 2, 1):
        if bits <= most - least:
            shift = (v < (1 << 32 - bits)).select(v.lift(bits), v.lift(0))
            v, zeros = v.binary("shift_left", shift), zeros + shift
    return v, zeros


def _softmax_16(op: Operation, x: Tensor, scale: float) -> Tensor:
    """reference_ops::SoftmaxInt16: interpolates exponentials and the reciprocal of their sum in tables."""
    multiplier, shift = quantize_multiplier(float(np.float32(scale)) / (10.0 / 65535.0))
    exps, inverses = table_16(np.exp, 10.0 / 65535, 32767), table_16(lambda v: 1 / (1 + v), 1.0 / 65535, -32768)

    def steps(table: Array) -> Array:
        wide = table.astype(np.int32)
        return wide[1:] - wide[:-1]

    last = op.rank() - 1
    wide = op.map([x], lambda v: v, "i32")
    most = op.reduce(wide, "max", [last])

    def term(v: Expr, m: Expr, values: Callable[[Expr], Expr], slopes: Callable[[Expr], Expr]) -> Expr:
        return interpolated((v - m).fixed_multiply(multiplier, -shift) + 32767, values, slopes)

    terms = op.map_with_tables([wide, most], [exps, steps(exps)], term, "i32")[0]
    total = op.reduce(terms, "sum", [last])

    def divided(v: Expr, values: Callable[[Expr], Expr], slopes: Callable[[Expr], Expr]) -> list[Expr]:
        raised, zeros = leading_zeros(v.cast("i64"))
        above = (raised.binary("shift_right", 1) + (1 << 13)).binary("shift_right", 14) - ((1 << 15) + (1 << 16))
        return [interpolated(above, values, slopes).cast("i64"), zeros.lift(31) - zeros]

    inverse, right = op.map_with_tables([total], [inverses, steps(inverses)], divided, "i64", "i64")

    def body(e: Expr, r: Expr, n: Expr) -> Expr:
        half = r.lift(1).binary("shift_left", n - 1)
        return (e.cast("i64") * r + half).binary("shift_right", n).max(0).min(32767)

    return op.quantized(op.map([terms, inverse, right], body, "i16"), op.output())


def high_product(a: Expr, b: Expr) -> Expr:
    """SaturatingRoundingDoublingHighMul of two 32-bit values, computed in i64. Its ties round up, whatever the sign."""
    return (a * b + (1 << 30)).binary("shift_right", 31)
