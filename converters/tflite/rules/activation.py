"""Rules of functions of one operand. On 8-bit integers each is a table of 256 entries, filled while converting with the
arithmetic of the TFLite kernel of that op; on 16-bit integers they go through floats, within one quantum."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.converters.tflite.fixed_point import (
    RANGES,
    doubling_high_multiply,
    quantize_multiplier,
    round_away,
    rounding_shift,
)
from linnet.converters.tflite.operation import Operation, per_tensor
from linnet.converters.tflite.registry import rule
from linnet.graph import Tensor, numpy_dtype
from linnet.mapping import Expr

Array = npt.NDArray[Any]
_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: Array) -> Array:
    return np.float32(1) / (np.float32(1) + np.exp(-x))


def _gelu(x: Array, approximate: bool) -> Array:
    wide = x.astype(np.float64)
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)
    result: Array = 0.5 * wide * (1 + (np.tanh(inner) if approximate else _erf(wide * math.sqrt(0.5))))
    return result


# op: (on floats in a map, on NumPy f32 for tables)
FUNCTIONS: dict[str, tuple[Callable[[Expr], Expr], Callable[[Array], Array]]] = {
    "LOGISTIC": (lambda x: x.sigmoid(), _sigmoid),
    "TANH": (lambda x: x.tanh(), np.tanh),
    "EXP": (lambda x: x.exp(), np.exp),
    "LOG": (lambda x: x.log(), np.log),
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
    "ELU": (lambda x: (x < 0).select(x.expm1(), x), lambda x: np.where(x < 0, np.expm1(x), x)),
}


@rule(*FUNCTIONS)
def function(op: Operation) -> Tensor:
    """ABS and RSQRT of integers round by fixed point in TFLite: here within one quantum."""
    in_map, in_table = FUNCTIONS[op.spec.op]
    if not op.is_quantized():
        return op.map([op.input(0)], in_map)
    return tabulated(op, in_table, in_map)


def tabulated(op: Operation, in_table: Callable[[Array], Array], in_map: Callable[[Expr], Expr]) -> Tensor:
    """A quantized function: LUTPopulate of TFLite for 8 bits (f32 throughout), floats for 16."""
    x, spec = op.input(0), op.output()
    assert x.quantization is not None
    if spec.quantization is None or spec.dtype not in RANGES:
        raise op.unsupported("the output is not quantized", "export it again")
    if x.dtype == "i16":
        if op.spec.op in ("LOGISTIC", "TANH"):
            return _sigmoid_16(op, x, op.spec.op == "TANH")
        return op.store(op.map([op.real(x)], in_map))
    scale, zero = per_tensor(x.quantization, "the input")
    out_scale, out_zero = per_tensor(spec.quantization, "the output")
    low, high = RANGES[x.dtype]
    with np.errstate(all="ignore"):
        numbers = (scale * (np.arange(low, high + 1) - zero).astype(np.float32)).astype(np.float32)
        scaled = in_table(numbers).astype(np.float32) * np.float32(np.float32(1) / out_scale)
    return store_table(op, round_away(np.nan_to_num(scaled.astype(np.float64), nan=0.0)) + out_zero)


def _sigmoid_16(op: Operation, x: Tensor, tanh: bool) -> Tensor:
    """reference_integer_ops::Logistic and Tanh on 16 bits: linear interpolation in a table of sigmoid(i / 24), i < 256.
    Some entries of the kernel's own table are rounded another way: within one quantum."""
    assert x.quantization is not None
    scale, _ = per_tensor(x.quantization, "the input")
    real, shift = float(scale) * 4096 * 3, 0
    while real <= 32767 / 2 and shift <= 30:
        real, shift = real * 2, shift + 1
    fixed = int(real)
    half = 1 << (shift - 1) if shift else 0
    table = np.floor(65536 / (1 + np.exp(-np.arange(256) / 24)) + 0.5).clip(0, 65535).astype(np.int32)
    values, steps = op.constant(table), op.constant(np.append(np.diff(table), 0).astype(np.int32))
    from linnet.mapping import Instruction, Program, Store

    program = Program()
    v = Expr(program, program.add(Instruction("load", "i32", operand=0)))
    scaled = (v * fixed + half).binary("shift_right", shift)
    size = abs(scaled)
    bits = 8 if tanh else 9  # tanh(x) = 2 sigmoid(2 x) - 1
    high, low = size.binary("shift_right", bits), size & ((1 << bits) - 1)
    inside = (high.table(1, "i32") * (1 << bits)) + low * high.table(2, "i32")
    if tanh:
        inside = (high < 255).select(inside, 0xFFFF << 8)
        above, below = inside - (1 << 23) + (1 << 7), -inside + (1 << 23) + (1 << 7) - 1
        result = (scaled < 0).select(below, above).binary("shift_right", 8)
    else:
        inside = (high < 255).select(inside, 0x7FFF << 10)
        above, below = inside + (1 << 9), (1 << 25) - inside + (1 << 9) - 1
        result = (scaled < 0).select(below, above).binary("shift_right", 10)
    program.stores = [Store(result.register, False)]
    made = op.emit("map", [x, values, steps], **program.attributes(["i16"]))
    return op.quantized(made, op.output())


def store_table(op: Operation, values: Array) -> Tensor:
    """The look-up of the operand's 256 values in `values` (clamped to the output's range)."""
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
        raise op.unsupported("the output is not quantized", "export it again")
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
        raise op.unsupported("the output is not quantized", "export it again")
    sx, zx = per_tensor(x.quantization, "the input")
    sy, zy = per_tensor(spec.quantization, "the output")
    low, high = RANGES[spec.dtype]
    plain = quantize_multiplier(float(np.float32(sx / sy)))
    scaled = quantize_multiplier(float(np.float32(np.float32(sx * np.float32(alpha)) / sy)))

    def body(v: Expr) -> Expr:
        centred = v - zx
        above, below = (centred.fixed_multiply(m[0], -m[1]) for m in (plain, scaled))
        return ((centred < 0).select(below, above) + zy).max(low).min(high)

    return op.quantized(op.map([x], body, spec.dtype), spec)


@rule("HARD_SWISH")
def hard_swish(op: Operation) -> Tensor:
    """x * relu6(x + 3) / 6; on 8 bits the 16-bit fixed-point arithmetic of reference_ops::HardSwish."""
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
    # SaturatingDoublingHighMul: the same product, cut instead of rounded
    product = gate * unscaled
    doubled = np.where(product >= 0, product >> 15, -((-product) >> 15))
    if output[1] > 0:
        raise op.unsupported("an output scale so much finer than the input's", "quantize the model again")
    return store_table(op, rounding_shift(doubled, -output[1]) + zy)


@rule("SOFTMAX", "LOG_SOFTMAX")
def softmax(op: Operation) -> Tensor:
    """Over the last axis; on 8 bits by a table of exponentials, as TFLite's optimized kernel (SoftmaxInt8LUT)."""
    x, log = op.input(0), op.spec.op == "LOG_SOFTMAX"
    beta = np.float32(1 if log else op.option("beta"))
    spec = op.output()
    if not op.is_quantized():
        if beta != 1:
            x = op.map([x], lambda v: v * float(beta))
        return op.emit("softmax", [x], axis=-1, log=log)
    assert x.quantization is not None
    if log or x.dtype == "i16" or spec.dtype not in ("i8", "u8") or spec.quantization is None:
        real = op.real(x)
        if beta != 1:
            real = op.map([real], lambda v: v * float(beta))
        return op.store(op.emit("softmax", [real], axis=-1, log=log))
    scale, _ = per_tensor(x.quantization, "the input")
    out_scale, out_zero = per_tensor(spec.quantization, "the output")
    low, high = RANGES[spec.dtype]
    exponents = (-scale * beta) * np.arange(255, -1, -1).astype(np.float32)
    table = np.exp(exponents.astype(np.float64)).astype(np.float32)  # entry 255: the largest element
    last = op.rank() - 1
    wide = op.map([x], lambda v: v, "i32")
    most = op.reduce(wide, "max", [last])
    shifted = op.map([wide, most], lambda v, m: v - m)
    terms = op.lookup(shifted, table, -255)
    total = op.reduce(terms, "sum", [last])

    def body(term: Expr, sum_: Expr) -> Expr:
        inverse = (sum_ * float(out_scale)).reciprocal()
        return ((term * inverse + 0.5).cast("i32") + out_zero).max(low).min(high)

    return op.quantized(op.map([terms, total], body, spec.dtype), spec)
