"""Rules for quantize, dequantize and integer convolutions.
Scales and zero points that are operands stay operands. The arithmetic is exact in i32, followed by one map."""

from __future__ import annotations

import numpy as np

from linnet.converters.onnx import narrow
from linnet.converters.onnx.integers import RANGES, integers, real, requantized, stored
from linnet.converters.onnx.narrow import KINDS
from linnet.converters.onnx.operation import DTYPES, Operation, dtype_name, rank_of, storage_of
from linnet.converters.onnx.program import Expr
from linnet.converters.onnx.registry import rule
from linnet.ir.function import Tensor


def _scalar(op: Operation, tensor: Tensor) -> Tensor:
    """A one-element scale or zero point as a scalar, which means that it is per tensor. Its length may be unknown."""
    return tensor if tensor.rank == 0 else op.reshape(tensor, [])


@rule("QuantizeLinear")
def quantize_linear(op: Operation) -> Tensor:
    x, scale, zero = op.input(0), _scale(op), op.optional(2)
    saturate, wanted = bool(op.attribute("saturate", 1)), op.attribute("output_dtype", 0)
    dtype = storage_of(wanted, "the result") if wanted else zero.dtype if zero is not None else "u8"
    kind = KINDS.get(wanted) if wanted else op.kind(2)
    precision = op.attribute("precision", 0)
    if precision and DTYPES.get(precision) != "f32":
        raise op.unsupported(f"precision {precision} is not supported", "leave out `precision`: linnet divides in f32")
    axis, block = op.attribute("axis", 1), op.attribute("block_size", 0)
    per_tensor = not scale.rank or scale.static_shape == (1,)
    if x.dtype in ("i32", "f16", "bf16"):
        x = op.cast(x, "f32")
    if kind is not None and not kind.integer:
        y = op.map([x, _spread(op, scale, x, axis, block)], lambda v, s: v / s)
        if zero is not None:
            shift = _spread(op, narrow.decoded(op, zero, kind), x, axis, block)
            y = op.map([y, shift], lambda v, z: v + z)
        return op.of_kind(narrow.encoded(op, y, kind, saturate), kind)
    attributes = {"dtype": dtype} if per_tensor else {"dtype": dtype, "axis": axis, "block": block}
    operands = [x, _scalar(op, scale) if per_tensor else scale]
    if zero is not None:
        operands.append(_scalar(op, zero) if per_tensor else zero)
    y = op.emit("quantize", operands, **attributes)
    if kind is not None:  # clamping to fewer bits after saturating at 8 bits gives the same result
        low, high = kind.limits
        y = op.of_kind(op.map([y], lambda v: v.max(low).min(high)), kind)
    return y


def _scale(op: Operation) -> Tensor:
    """The scale as f32. It may be a float8e8m0 (a power of two)."""
    scale, kind = op.input(1), op.kind(1)
    return op.cast(scale, "f32") if kind is None else narrow.decoded(op, scale, kind)


def _spread(op: Operation, parameter: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """A scale or zero point in a shape that broadcasts over x: per tensor, per slice of an axis, or per block of an axis."""
    if not parameter.rank or parameter.static_shape == (1,):
        return op.reshape(parameter, [])
    rank = rank_of(x, "input 0")
    axis += rank if axis < 0 else 0
    if not block:
        return op.reshape(parameter, [-1 if d == axis else 1 for d in range(rank)])
    length = op.reshape(op.shape_of(x, axis, axis + 1), [])
    steps = op.emit("range", [op.constant(np.int64(0)), length, op.constant(np.int64(1))])
    return op.emit("gather", [parameter, op.map([steps], lambda i: i / block)], kind="take", axis=axis)


@rule("DequantizeLinear")
def dequantize_linear(op: Operation) -> Tensor:
    x, scale, zero, kind = op.input(0), _scale(op), op.optional(2), op.kind(0)
    if x.dtype not in (*RANGES, "i32"):
        raise op.unsupported(f"the quantized input has element type {x.dtype}", f"use {', '.join(RANGES)} or i32")
    wanted = op.attribute("output_dtype", 0)
    if not wanted and op.kind(1) is not None:
        raise op.unsupported("a float8e8m0 scale needs the attribute output_dtype", "set output_dtype")
    dtype = dtype_name(wanted, "the result") if wanted else op.input(1).dtype
    axis, block = op.attribute("axis", 1), op.attribute("block_size", 0)
    per_tensor = not scale.rank or scale.static_shape == (1,)
    if kind is not None and not kind.integer:
        y = narrow.decoded(op, x, kind)
        if zero is not None and (zero.data is None or zero.data.any()):
            shift = _spread(op, narrow.decoded(op, zero, kind), x, axis, block)
            y = op.map([y, shift], lambda v, z: v - z)
        return op.cast(op.map([y, _spread(op, scale, x, axis, block)], lambda v, s: v * s), dtype)
    attributes = {"dtype": "f32"} if per_tensor else {"dtype": "f32", "axis": axis, "block": block}
    operands = [x, _scalar(op, scale) if per_tensor else scale]
    if zero is not None:
        operands.append(_scalar(op, zero) if per_tensor else zero)
    # constants stay integers until the rewrites know their use
    return op.cast(op.function.emit("dequantize", list(operands), attributes, fold=False)[0], dtype)


def _step_of(span: Expr) -> Expr:
    return span.eq(0).select(1, span / 255)


@rule("DynamicQuantizeLinear")
def dynamic_quantize_linear(op: Operation) -> list[Tensor]:
    """Quantizes to u8 over the tensor's own range, widened to contain 0."""
    x = op.input(0)
    low, high = op.reduce(x, "min", [], keep_dims=False), op.reduce(x, "max", [], keep_dims=False)
    # a tensor of zeros gets scale 1, as in ONNX Runtime, because 0 / 0 gives no zero point
    scale = op.map([low, high], lambda a, b: _step_of(b.max(0) - a.min(0)))
    zero = op.map([low, scale], lambda a, s: (0 - a.min(0) / s).max(0).min(255).unary("round"), "u8")
    return [op.emit("quantize", [x, scale, zero], dtype="u8"), scale, zero]


def _integer_conv(op: Operation, x: Tensor, w: Tensor, x_zero: Tensor | None, w_zero: Tensor | None) -> Tensor:
    """The exact i32 accumulators of a convolution. Padding represents the real value 0."""
    from linnet.converters.onnx.rules.convolution import conv_attributes

    attributes = conv_attributes(op, x, w)
    same = attributes.get("auto_pad", "explicit") not in ("explicit", "valid")
    if (w_zero is not None and w_zero.data is None) or (x_zero is not None and x_zero.data is None and same):
        # the algebra below does not apply; f64 holds the differences and their sums of products exactly
        if x_zero is not None:
            x = op.map([x, op.reshape(x_zero, [])], lambda v, z: (v - z).cast("f64"), "f64")
        else:
            x = op.map([x], lambda v: v.cast("f64"), "f64")
        shaped = op.constant(np.zeros((), w.data.dtype if w.data is not None else np.int8), w.dtype)
        if w_zero is not None:
            shaped = op.reshape(w_zero, [-1] + [1] * (rank_of(w, "input 1") - 1))
        w = op.map([w, shaped], lambda v, z: (v - z).cast("f64"), "f64")
        return op.map([op.emit("conv", [x, w], **attributes)], lambda v: v, "i32")
    if x_zero is not None and x_zero.data is None:
        # x - x_zero does not fit 8 bits: convolve x padded with its zero point, then subtract x_zero * sum(w)
        rank = rank_of(x, "input 0")
        attributes.pop("auto_pad", None)
        pads = attributes.pop("pads", None) or [0] * (2 * (rank - 2))
        if any(pads):
            half = len(pads) // 2
            amounts = op.constant(np.array([0, 0, *pads[:half], 0, 0, *pads[half:]], np.int64))
            x = op.emit("copy", [x, amounts, op.reshape(x_zero, [])], kind="pad")
        y = op.emit("conv", [stored(op, x, None), stored(op, w, w_zero, 0)], output_dtype="i32", **attributes)
        sums = op.reduce(op.map([w], lambda v: v, "i32"), "sum", list(range(1, rank)), keep_dims=False)
        if w_zero is not None:
            taps = op.cast(op.reduce(op.shape_of(w, 1), "prod", [0]), "i32")
            sums = op.map([sums, op.reshape(w_zero, [-1]), taps], lambda s, z, t: s - z.cast("i32") * t)
        per_channel = op.reshape(sums, [-1] + [1] * (rank - 2))
        return op.map([y, op.reshape(x_zero, []), per_channel], lambda v, z, s: v - z * s)
    return op.emit("conv", [stored(op, x, x_zero), stored(op, w, w_zero, 0)], output_dtype="i32", **attributes)


@rule("ConvInteger")
def conv_integer(op: Operation) -> Tensor:
    return _integer_conv(op, op.input(0), op.input(1), op.optional(2), op.optional(3))


@rule("QLinearConv")
def qlinear_conv(op: Operation) -> Tensor:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (op.input(i) for i in range(8))
    bias = op.optional(8)
    rank = rank_of(x, "input 0")
    known = (x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, *([bias] if bias is not None else []))
    if all(
        t.data is not None for t in known
    ):  # emit dequantize, conv, quantize, which a rewrite turns into one integer op
        from linnet.converters.onnx.rules.convolution import conv_attributes

        operands = [real(op, x, x_scale, x_zero), real(op, w, w_scale, w_zero)]
        if bias is not None:
            product = op.map([op.reshape(x_scale, []), op.reshape(w_scale, [-1])], lambda a, b: a * b)
            operands.append(real(op, bias, product, None))
        return integers(op, op.emit("conv", operands, **conv_attributes(op, x, w)), y_scale, y_zero, x.dtype)
    y = _integer_conv(op, x, w, x_zero, w_zero)
    tail = [1] * (rank - 2)
    if bias is not None:
        y = op.map([y, op.reshape(bias, [-1, *tail])], lambda v, b: v + b)
    return requantized(op, y, _scalar(op, x_scale), op.reshape(w_scale, [-1, *tail]), y_scale, y_zero)
