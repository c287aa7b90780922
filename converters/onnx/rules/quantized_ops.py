"""Rules for ops on scaled integers: QLinear* of ai.onnx and com.microsoft, and com.microsoft's integer products.
Each becomes dequantize -> op -> quantize, which `converters/onnx/quantized.py` turns into one op on the integers."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from linnet.builder.mapping import look_up
from linnet.converters.onnx import blocks
from linnet.converters.onnx.integers import (
    as_matrices,
    integer_product,
    integers,
    of_rows,
    real,
    requantized,
    without_padding,
)
from linnet.converters.onnx.operation import Operation, rank_of
from linnet.converters.onnx.program import Expr
from linnet.converters.onnx.registry import MICROSOFT, find, rule
from linnet.converters.onnx.rules.pooling import pool_attributes
from linnet.converters.onnx.rules.quantization import dequantize_linear, dynamic_quantize_linear, quantize_linear
from linnet.ir.function import Tensor


def standing_in(op: Operation, inputs: Sequence[Tensor | None]) -> Operation:
    """A view of the same node with other operands. Attributes that are read through either view count as read."""
    other = copy.copy(op)
    other.inputs = list(inputs)
    return other


def through(op: Operation, op_type: str, x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    """Applies the rule of a float op to the real numbers of x."""
    function = find(op_type, op.opset)
    assert function is not None
    result = function(standing_in(op, [real(op, x, scale, zero)]))
    assert isinstance(result, Tensor)
    return result


def constant(*tensors: Tensor | None) -> bool:
    """Whether all given tensors are constants."""
    return all(t is None or t.data is not None for t in tensors)


def quantized_dynamically(op: Operation, x: Tensor) -> list[Tensor]:
    """x as u8 over its own range, with its scale and zero point."""
    results = dynamic_quantize_linear(standing_in(op, [x]))
    assert isinstance(results, list)
    return results


rule("QuantizeLinear", domain=MICROSOFT, like="QuantizeLinear")(quantize_linear)
rule("DequantizeLinear", domain=MICROSOFT, like="DequantizeLinear")(dequantize_linear)


@rule("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def qlinear_binary(op: Operation) -> Tensor:
    a, b = (real(op, op.input(i), op.input(i + 1), op.optional(i + 2)) for i in (0, 3))
    adds = op.node.op_type == "QLinearAdd"
    y = op.map([a, b], lambda v, w: v + w if adds else v * w)
    return integers(op, y, op.input(6), op.optional(7), op.input(0).dtype)


@rule("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(op: Operation) -> Tensor:
    parts = [real(op, op.input(i), op.input(i + 1), op.optional(i + 2)) for i in range(2, len(op.inputs), 3)]
    y = op.concat(parts, op.attribute("axis", 0))
    return integers(op, y, op.input(0), op.optional(1), op.input(2).dtype)


@rule("QLinearGlobalAveragePool", "QLinearAveragePool", domain=MICROSOFT, like="AveragePool")
def qlinear_pool(op: Operation) -> Tensor:
    """Averages over windows or over the whole input. If channels_last is set, channels are the last axis."""
    x = op.input(0)
    last, whole = bool(op.attribute("channels_last", 0)), op.node.op_type == "QLinearGlobalAveragePool"
    numbers = real(op, x, op.input(1), op.optional(2))
    if whole:
        rank = rank_of(x, "input 0")
        y = op.reduce(numbers, "mean", list(range(1, rank - 1) if last else range(2, rank)))
    else:
        attributes = pool_attributes(op, "average") | ({"channel_axis": -1} if last else {})
        y = op.emit("pool", [numbers], count_include_pad=bool(op.attribute("count_include_pad", 0)), **attributes)
    return integers(op, y, op.input(3), op.optional(4), x.dtype)


@rule("QLinearSigmoid", domain=MICROSOFT, like="Sigmoid")
@rule("QLinearLeakyRelu", domain=MICROSOFT, like="LeakyRelu")
def qlinear_activation(op: Operation) -> Tensor:
    y = through(op, op.node.op_type.removeprefix("QLinear"), op.input(0), op.input(1), op.optional(2))
    return integers(op, y, op.input(3), op.optional(4), op.input(0).dtype)


@rule("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(op: Operation) -> Tensor:
    x = real(op, op.input(0), op.input(1), op.optional(2))
    axis = op.attribute("axis", -1)
    if op.attribute("opset", 13) < 13 and axis not in (-1, rank_of(x, "input 0") - 1):
        raise op.unsupported(
            "QLinearSoftmax over several axes (opset 12) is not supported", "export the model with opset 13"
        )
    return integers(op, op.emit("softmax", [x], axis=axis), op.input(3), op.optional(4), op.input(0).dtype)


def rescaled(x: Tensor, scale: Tensor, zero: Tensor | None, y_scale: Tensor, y_zero: Tensor | None) -> Tensor:
    """Rescales 8-bit x to the scale of y with a table. As in ONNX Runtime, exact ties are decided by a true division.
    All parameters must be constant."""
    limits = np.iinfo(np.int8 if x.dtype == "i8" else np.uint8)
    codes = np.arange(limits.min, limits.max + 1)
    sx, zx, sy, zy = (
        0 if t is None or t.data is None else t.data.reshape(-1)[0] for t in (scale, zero, y_scale, y_zero)
    )
    real_numbers = (codes - int(zx)).astype(np.float32) * np.float32(sx)
    table = np.clip(np.rint(real_numbers / np.float32(sy)) + int(zy), limits.min, limits.max).astype(limits.dtype)
    return look_up(x, x.function.constant(table, f"{x.name}_table"), lambda v: v - int(limits.min))


@rule("QLinearWhere", domain=MICROSOFT)
def qlinear_where(op: Operation) -> Tensor:
    sides = [(op.input(i), op.input(i + 1), op.optional(i + 2)) for i in (1, 4)]
    y_scale, y_zero = op.input(7), op.optional(8)
    if constant(y_scale, y_zero, *(t for _, *parameters in sides for t in parameters)):
        parts = [rescaled(*side, y_scale, y_zero) for side in sides]
        return op.map([op.input(0), *parts], lambda c, v, w: c.select(v, w), op.input(1).dtype)
    y = op.map([op.input(0), *(real(op, *side) for side in sides)], lambda c, v, w: c.select(v, w), "f32")
    return integers(op, y, y_scale, y_zero, op.input(1).dtype)


@rule("QGemm", domain=MICROSOFT)
def qgemm(op: Operation) -> Tensor:
    """alpha * a @ b + c, with c at scale alpha * a_scale * b_scale. The result is f32 if it has no scale."""
    a, a_scale, a_zero, b, b_scale, b_zero = (op.optional(i) for i in range(6))
    if a is None or b is None or a_scale is None or b_scale is None:
        raise op.unsupported("a required input is missing", "export the model again")
    c, y_scale, y_zero = op.optional(6), op.optional(7), op.optional(8)
    alpha = op.attribute("alpha", 1.0)
    turn_a, turn_b = bool(op.attribute("transA", 0)), bool(op.attribute("transB", 0))
    columns = None if b.shape is None else b.shape[0 if turn_b else -1]
    row = bias_row(op, c, columns) if c is not None else None
    if alpha > 0 and (c is None or row is not None) and constant(a_scale, a_zero, b_scale, b_zero):
        a_scale = op.map([op.reshape(a_scale, [])], lambda s: s * alpha)
        operands = [real(op, a, a_scale, a_zero), real(op, b, b_scale, b_zero, axis=0 if turn_b else 1)]
        if row is not None:
            scale = op.map([a_scale, op.reshape(b_scale, [-1])], lambda v, w: v * w)
            operands.append(real(op, row, scale, None))
        y = op.emit("matmul", operands, transpose_a=turn_a, transpose_b=turn_b)
        return y if y_scale is None else integers(op, y, y_scale, y_zero, a.dtype)
    a, b = (op.transpose(t, [1, 0]) if turned else t for t, turned in ((a, turn_a), (b, turn_b)))
    sums = integer_product(op, a, b, a_zero, b_zero)
    if c is not None:
        sums = op.map([sums, c], lambda v, w: v + w)
    a_scale = op.map([a_scale], lambda s: s * alpha)
    if y_scale is None:
        return op.map([sums, a_scale, b_scale], lambda v, s, t: v.cast("f32") * (s * t), "f32")
    if y_zero is None:
        y_zero = op.constant(np.zeros((), np.int8 if a.dtype == "i8" else np.uint8))
    return requantized(op, sums, a_scale, b_scale, y_scale, y_zero)


def bias_row(op: Operation, c: Tensor, columns: Any) -> Tensor | None:
    """A constant c as one number per column; None if that is not possible."""
    if c.data is None or not isinstance(columns, int) or c.data.size not in (1, columns):
        return None
    if c.data.size > 1 and c.data.shape[-1] != columns:
        return None
    return op.constant(np.broadcast_to(c.data.reshape(-1), (columns,)).copy())


def scaled_product(
    op: Operation, a: Tensor, b: Tensor, scales: list[Tensor], zeros: list[Tensor | None], bias: Tensor | None
) -> Tensor:
    """The exact i32 product, multiplied by both scales, plus a bias."""
    y = integer_product(op, *as_matrices(op, a, b), zeros[0], zeros[1])

    def body(v: Expr, s: Expr, t: Expr, *rest: Expr) -> Expr:
        value = v.cast("f32") * (s * t)
        return value + rest[0] if rest else value

    operands = [y, of_rows(op, scales[0]), scales[1], *([bias] if bias is not None else [])]
    return without_padding(op, op.map(operands, body, "f32"), a, b)


@rule("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(op: Operation) -> Tensor:
    zeros = [op.optional(4), op.optional(5)]
    return scaled_product(op, op.input(0), op.input(1), [op.input(2), op.input(3)], zeros, op.optional(6))


@rule("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(op: Operation) -> Tensor:
    x, scale, zero = quantized_dynamically(op, op.input(0))
    return scaled_product(op, x, op.input(1), [scale, op.input(2)], [zero, op.optional(3)], op.optional(4))


@rule("MatMulNBits", domain=MICROSOFT)
def matmul_n_bits(op: Operation) -> Tensor:
    """Weights of 2, 4 or 8 bits in blocks along k. Weights of 4 and 8 bits stay as narrow in memory as in the file.
    Weights of 2 bits, and weights whose scales are not constant, are unpacked to one byte each and dequantized during
    planning."""
    bits, block = op.attribute("bits", 4), op.attribute("block_size", 0)
    k, n = op.attribute("K", 0), op.attribute("N", 0)
    op.ignore("accuracy_level", "weight_prepacked")
    if bits not in (2, 4, 8) or block <= 0:
        raise op.unsupported(
            f"{bits} bits in blocks of {block} are not supported", "use 2, 4 or 8 bits and a positive block"
        )
    if op.optional(4) is not None:
        raise op.unsupported("g_idx (reordered columns) is not supported", "export the model without act_order")
    columns = math.ceil(k / block)

    def unpacked(packed: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
        rows = packed.reshape(n, -1).astype(np.uint8)
        parts = [(rows >> np.uint8(shift)) & np.uint8((1 << bits) - 1) for shift in range(0, 8, bits)]
        return np.stack(parts, -1).reshape(n, -1)[:, :count]

    stored = unpacked(op.require_value(1, "the weight"), columns * block)
    scale = op.reshape(op.input(2), [n, columns])
    given = op.optional(3)
    if given is not None and given.dtype != "u8":
        raise op.unsupported("the zero points are not packed integers", "export them packed into u8")
    if given is None:
        zeros = np.full((n, columns), 1 << (bits - 1), np.uint8)
    else:
        zeros = unpacked(op.require_value(3, "the zero points"), columns)
    x, bias = op.input(0), op.optional(5)
    if (
        scale.data is not None
        and (found := blocks.narrow(stored[:, :k], scale.data, zeros, bits, 1, block)) is not None
    ):
        w = op.function.constant(found[0], op.input(1).name, quantization=found[1])
    else:
        w = _widened(op, stored, scale, zeros, block, k)
    product = [op.cast(x, "f32"), w] if bias is None else [op.cast(x, "f32"), w, op.cast(bias, "f32")]
    return op.cast(op.emit("matmul", product, transpose_b=True), x.dtype)


def _widened(
    op: Operation, stored: np.ndarray[Any, Any], scale: Tensor, zeros: np.ndarray[Any, Any], block: int, k: int
) -> Tensor:
    operands: list[Tensor | None] = [op.constant(stored), op.cast(scale, "f32"), op.constant(zeros)]
    attributes = {"dtype": "f32", "axis": 1, "block": block}
    w = op.function.emit("dequantize", operands, attributes, fold=False)[0]
    return w if stored.shape[1] == k else op.slice(w, 1, 0, k)
