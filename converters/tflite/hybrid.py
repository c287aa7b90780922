"""Hybrid (dynamic range) products of TFLite: float activations times integer weights. Activations are rounded to 8 bits,
per row or per batch element, and integer sums are exact (Symmetric- and AsymmetricQuantizeFloats of tensor_utils)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from linnet.builder.mapping import pointwise
from linnet.converters.tflite.operation import Operation, round_away
from linnet.ir.dtypes import Quantization
from linnet.ir.expr import Expr
from linnet.ir.function import Tensor

UNIT = Quantization(np.ones(1, np.float32), np.zeros(1, np.int32))  # marks integers that are used without scaling


class Rounded(NamedTuple):
    """x = (integers - offset) * scale. offset: None if it is 0."""

    integers: Tensor
    scale: Tensor
    offset: Tensor | None


def rounded(op: Operation, x: Tensor, axes: Sequence[int], asymmetric: bool) -> Rounded:
    """Rounds x to 8-bit integers. Scale and offset are computed over `axes`, which stay as dimensions of size 1."""
    if not asymmetric:
        size = op.reduce(op.map([x], abs), "max", axes)
        scale = op.map([size], lambda r: r.eq(0).select(1.0, r / 127.0))

        def nearest(v: Expr, r: Expr) -> Expr:
            inside = round_away(v * (r.lift(127.0) / r)).max(-127).min(127)
            return r.eq(0).select(v.lift(0.0), inside)

        return Rounded(_stored(op, op.map([x, size], nearest, "i8")), scale, None)

    def parameters(least: Expr, most: Expr) -> tuple[Expr, Expr]:
        low, high = least.min(0.0).cast("f64"), most.max(0.0).cast("f64")
        nothing = low.eq(high)
        step = (high - low) / 255.0
        from_low, from_high = low / step, high / step
        zero = (abs(from_low) + 128.0 < abs(from_high) + 127.0).select(-from_low - 128.0, -from_high + 127.0)
        offset = round_away(zero.max(-128.0).min(127.0))
        return nothing.select(step.lift(1.0), step).cast("f32"), nothing.select(step.lift(0.0), offset).cast("i32")

    least, most = op.reduce(x, "min", axes), op.reduce(x, "max", axes)
    scale, offset = pointwise([least, most], parameters, ["f32", "i32"], function=op.function)

    def shifted(v: Expr, s: Expr, o: Expr) -> Expr:
        return round_away(o.cast("f32") + v * s.reciprocal()).max(-128).min(127)

    return Rounded(_stored(op, op.map([x, scale, offset], shifted, "i8")), scale, offset)


def _stored(op: Operation, integers: Tensor) -> Tensor:
    integers.quantization = UNIT
    return integers


def applies(x: Tensor, dtype: npt.DTypeLike, quantization: Quantization | None) -> bool:
    """Whether a product of x and weights of this dtype and quantization is hybrid."""
    return x.dtype == "f32" and np.dtype(dtype) in (np.int8, np.uint8) and quantization is not None


def signed(value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The weights as signed integers. Old files declare u8 for i8 weights, and TFLite reads them as i8."""
    return value.view(np.int8) if value.dtype == np.uint8 else value


def matmul(
    op: Operation, x: Tensor, w: Tensor, scale: npt.NDArray[Any], bias: Tensor | None, **attributes: Any
) -> Tensor:
    """x @ w in the last two dimensions, with rows of x rounded. w: i8 [k, n], or [n, k] with transpose_b. scale: f32 [1] or
    [n]."""
    op.importer.hybrid.append(op.output().name)
    rank = x.rank
    if rank is None:
        raise op.unsupported("the rank of input 0 is unknown", "set the input shapes with input_shapes")
    rows = rounded(op, x, [rank - 1], op.option("asymmetric"))
    weights = op.constant(w.data, UNIT) if w.data is not None else op.emit("copy", [w], UNIT, kind="identity")
    sums = op.emit("matmul", [rows.integers, weights], output_dtype="i32", **attributes)
    totals = None
    if rows.offset is not None:
        axis = (w.rank or 2) - (1 if attributes.get("transpose_b") else 2)
        totals = op.reduce(op.map([weights], lambda v: v, "i32"), "sum", [axis])
        if attributes.get("transpose_b"):  # [n, 1] to [1, n]
            order = list(range(w.rank or 2))
            totals = op.transpose(totals, [*order[:-2], order[-1], order[-2]])
    return scaled(op, sums, rows, scale, totals, bias, lambda v, s, c: v * (s * c))


def matmul_by_blocks(
    op: Operation, x: Tensor, value: npt.NDArray[Any], scale: npt.NDArray[Any], bias: Tensor | None
) -> Tensor:
    """x [m, k] @ value.T for i8 weights [n, k] in which each block of a row has a scale. scale: [n, blocks]. One integer product
    per block, then their sum (EvalBlockwise4Bit)."""
    op.importer.hybrid.append(op.output().name)
    outs, blocks = scale.shape
    size = value.shape[1] // blocks
    rows = rounded(op, x, [1], True)
    parts = op.transpose(op.reshape(rows.integers, [-1, blocks, size]), [1, 0, 2])
    weights = np.ascontiguousarray(value.reshape(outs, blocks, size).transpose(1, 0, 2))
    sums = op.emit("matmul", [parts, op.constant(weights, UNIT)], transpose_b=True, output_dtype="i32")
    totals = weights.astype(np.float32).sum(2)[:, None] * scale.T[:, None]
    scaled_sums = op.map(
        [sums, op.constant(scale.T[:, None].astype(np.float32))], lambda v, s: v.cast("f32") * s, "f32"
    )
    whole = op.reduce(scaled_sums, "sum", [0], keep_dims=False)
    assert rows.offset is not None
    operands = [whole, op.constant(totals.sum(0)), rows.offset, rows.scale, *([] if bias is None else [bias])]
    return op.map(
        operands, lambda v, t, o, s, *b: (v - o.cast("f32") * t) * s + b[0] if b else (v - o.cast("f32") * t) * s
    )


def scaled(
    op: Operation, sums: Tensor, x: Rounded, scale: npt.NDArray[Any], totals: Tensor | None, bias: Tensor | None,
    numbers: Callable[[Expr, Expr, Expr], Expr],
) -> Tensor:  # fmt: skip
    """Converts integer sums to numbers: numbers(sum - offset * total of the weights, scale of x, scale of w) + bias."""
    operands = [sums, x.scale, op.constant(np.asarray(scale, np.float32).reshape(-1))]
    if x.offset is not None and totals is not None:
        operands += [x.offset, totals]
    if bias is not None:
        operands.append(op.real(bias) if bias.dtype != "f32" else bias)

    def body(v: Expr, s: Expr, c: Expr, *more: Expr) -> Expr:
        left = list(more)
        if x.offset is not None:
            v = v - left.pop(0) * left.pop(0)
        y = numbers(v.cast("f32"), s, c)
        return left.pop(0) + y if left else y

    return op.map(operands, body, "f32")


def conv(
    op: Operation, x: Tensor, value: npt.NDArray[Any], scale: npt.NDArray[Any], bias: Tensor | None, asymmetric: bool,
    attributes: dict[str, Any], numbers: Callable[[Expr, Expr, Expr], Expr],
) -> Tensor:  # fmt: skip
    """A hybrid convolution. value: i8 [out, in/group, k...]. If asymmetric, zeros are padded before rounding. The zeros
    do not change the range, and rounding turns them into the offset."""
    op.importer.hybrid.append(op.output().name)
    rank = value.ndim
    if asymmetric:
        x = padded(op, x, value.shape[2:], attributes)
    whole = rounded(op, x, list(range(1, rank)), asymmetric)
    sums = op.emit(
        "conv", [whole.integers, op.constant(np.ascontiguousarray(value), UNIT)], output_dtype="i32", **attributes
    )
    totals = (
        op.constant(value.astype(np.int32).reshape(value.shape[0], -1).sum(1, dtype=np.int32)) if asymmetric else None
    )
    return scaled(op, sums, whole, scale, totals, bias, numbers)


def padded(op: Operation, x: Tensor, kernel: Sequence[int], attributes: dict[str, Any]) -> Tensor:
    """x [n, spatial..., c] padded with the zeros of SAME. Removes the padding from `attributes`."""
    mode = attributes.pop("auto_pad")
    if mode == "valid":
        return x
    begins, ends = [0], [0]
    for i, (k, stride, dilation) in enumerate(zip(kernel, attributes["strides"], attributes["dilations"], strict=True)):
        size = None if x.shape is None else x.shape[1 + i]
        if not isinstance(size, int):
            raise op.unsupported("the size of the input is unknown", "set the input shapes with input_shapes")
        total = max((-(-size // stride) - 1) * stride + dilation * (k - 1) + 1 - size, 0)
        begins.append(total // 2)
        ends.append(total - total // 2)
    if not any(begins) and not any(ends):
        return x
    return op.pad(x, [*begins, 0, *ends, 0])
