"""Helpers of several rule families for integers with scales and zero points: exact products, and conversions to and from real
numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from linnet.converters.onnx.operation import Operation, rank_of
from linnet.converters.onnx.program import Expr
from linnet.converters.onnx.quantized_numbers import signed
from linnet.ir.dtypes import Quantization
from linnet.ir.function import Tensor

RANGES = {"i8": (-128, 127), "u8": (0, 255), "i16": (-32768, 32767), "u16": (0, 65535)}


def _parameters(op: Operation, scale: Tensor, zero: Tensor | None) -> list[Tensor]:
    """Scale and zero point in the form that the runtime's ops need: scalars if they are per tensor."""
    found = [scale] if zero is None else [scale, zero]
    return [op.reshape(t, []) if t.static_shape == (1,) else t for t in found]


def real(op: Operation, x: Tensor, scale: Tensor, zero: Tensor | None, axis: int = 0) -> Tensor:
    """x as f32. Even constants are dequantized by a separate node, so that the rewrite (quantized.py) sees the
    integers."""
    if x.dtype not in (*RANGES, "i32"):
        raise op.unsupported(f"the quantized input has element type {x.dtype}", f"use {', '.join(RANGES)} or i32")
    operands: list[Tensor | None] = [x, *_parameters(op, scale, zero)]
    attributes: dict[str, Any] = {"dtype": "f32"} if operands[1] is None or not operands[1].rank else {"axis": axis}
    return op.function.emit("dequantize", operands, {"dtype": "f32", **attributes}, fold=False)[0]


def integers(op: Operation, y: Tensor, scale: Tensor, zero: Tensor | None, dtype: str) -> Tensor:
    """Quantizes y with one scale."""
    return op.emit("quantize", [y, *_parameters(op, scale, zero)], dtype=zero.dtype if zero is not None else dtype)


def requantized(op: Operation, y: Tensor, a_scale: Tensor, b_scale: Tensor, y_scale: Tensor, y_zero: Tensor) -> Tensor:
    """Requantizes i32 accumulators of scale a*b to the element type of y_zero."""
    low, high = RANGES[y_zero.dtype]

    def body(acc: Expr, a: Expr, b: Expr, s: Expr, z: Expr) -> Expr:
        real = acc.cast("f32") * (a * b / s)
        return (real.unary("round") + z.cast("f32")).max(low).min(high)

    return op.map([y, a_scale, b_scale, y_scale, y_zero], body, y_zero.dtype)


def stored(op: Operation, tensor: Tensor, zero: Tensor | None, axis: int | None = None) -> Tensor:
    """The same integers, with a quantization of scale 1 and the given constant zero points."""
    value = np.zeros(1, np.int32) if zero is None or zero.data is None else zero.data.reshape(-1).astype(np.int32)
    per_axis = axis if value.size > 1 else None
    quantization = Quantization(np.ones(value.size, np.float32), value, per_axis)
    if tensor.data is not None:
        return op.constant(tensor.data, quantization=quantization)
    copy = op.emit("copy", [tensor], kind="identity")
    copy.quantization = quantization
    return copy


def _is_zero(tensor: Tensor | None) -> bool:
    return tensor is None or (tensor.data is not None and not np.any(tensor.data))


def _single(zero: Tensor | None) -> bool:
    """Whether the zero point is a constant and equal for all columns, as the fast kernels need it."""
    return zero is None or (zero.data is not None and bool(np.all(zero.data == zero.data.reshape(-1)[:1])))


def _i32(op: Operation, tensor: Tensor) -> Tensor:
    return op.map([tensor], lambda v: v, "i32")


def as_matrices(op: Operation, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The factors with at least two axes: a 1-D first factor becomes a row, a 1-D second factor a column.
    `without_padding` undoes this."""
    if rank_of(a, "input 0") == 1:
        a = op.unsqueeze(a, [0])
    if rank_of(b, "input 1") == 1:
        b = op.constant(b.data[:, None], b.dtype) if b.data is not None else op.unsqueeze(b, [1])
    return a, b


def without_padding(op: Operation, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Gives a product of `as_matrices(a, b)` the shape of a @ b."""
    axes = [axis for axis, t in ((-2, a), (-1, b)) if t.rank == 1]
    return op.squeeze(y, axes) if axes else y


def of_rows(op: Operation, parameter: Tensor) -> Tensor:
    """Aligns the scales or zero points of the first factor. There is one in all, one per row, or one per row of each
    matrix ([..., rows, 1])."""
    return op.unsqueeze(parameter, [-1]) if parameter.rank == 1 else parameter


def integer_product(op: Operation, a: Tensor, b: Tensor, a_zero: Tensor | None, b_zero: Tensor | None) -> Tensor:
    """(a - a_zero) @ (b - b_zero) in i32, for factors with two or more axes. Zero points are per tensor, per row of a, or per
    column of b.

    It is computed as a @ b - a_zero * sum(b) - b_zero * sum(a) + k * a_zero * b_zero, exact modulo 2^32.
    """
    b_rank, a_rank = rank_of(b, "input 1"), rank_of(a, "input 0")
    single = a_zero is None or (a_zero.data is not None and a_zero.data.size == 1)
    if b.data is not None and _single(b_zero):
        # constant weights carry their zero points with them, and the column sums are constants
        zero_value = 0 if b_zero is None or b_zero.data is None else int(b_zero.data.reshape(-1)[0])
        weights = signed(stored(op, b, op.constant(np.full(1, zero_value))))
        y = op.emit("matmul", [stored(op, a, a_zero if single else None), weights], output_dtype="i32")
        if single or a_zero is None:
            return y
        sums = (b.data.astype(np.int64) - zero_value).sum(-2, keepdims=True)
        return op.map([y, of_rows(op, a_zero), op.constant(sums.astype(np.int32))], lambda v, z, s: v - z * s)
    y = op.emit("matmul", [stored(op, a, None), stored(op, b, None)], output_dtype="i32")
    if not _is_zero(a_zero):
        assert a_zero is not None
        sums = op.reduce(_i32(op, b), "sum", [b_rank - 2])
        if not _is_zero(b_zero):
            assert b_zero is not None
            known = b.shape is not None and isinstance(b.shape[-2], int)
            length = op.shape_of(b, b_rank - 2, b_rank - 1) if known else op.shape_of(a, a_rank - 1, a_rank)
            length = op.cast(op.reshape(length, []), "i32")
            sums = op.map([sums, b_zero, length], lambda s, z, k: s - z * k)
        y = op.map([y, of_rows(op, a_zero), sums], lambda v, z, s: v - z * s)
    if not _is_zero(b_zero):
        assert b_zero is not None
        rows = op.reduce(_i32(op, a), "sum", [a_rank - 1])
        y = op.map([y, b_zero, rows], lambda v, z, s: v - z * s)
    return y
