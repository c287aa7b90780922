"""Makers of quantized ops: QDQ islands, QLinear and Integer ops, dynamic quantization, and com.microsoft's ops.
Scales and zero points are per tensor, per axis or per block."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.exact import weights_for_peers
from tests.onnx_graphs.builder import Builder, Refused, Value, maker
from tests.onnx_graphs.numeric import window

EIGHT = ("uint8", "int8")


def parameters(b: Builder, x: Value, dtype: str) -> tuple[Value, Value]:
    """A constant scale and zero point that cover a tensor's range."""
    finite = x.array[np.isfinite(x.array)] if x.array.dtype.kind == "f" else x.array
    low, high = min(float(finite.min(initial=0)), 0.0), max(float(finite.max(initial=0)), 0.1)
    info = np.iinfo(dtype)
    if np.dtype(dtype).kind == "u" or b.chance(40):
        scale = (high - low) / (float(info.max) - info.min)
        zero = int(np.clip(round(info.min - low / scale), info.min, info.max))
    else:
        scale, zero = max(high, -low) / info.max, 0
    return b.const(np.float32(scale)), b.const(np.asarray(zero, dtype))


def quantize(b: Builder, x: Value, dtype: str) -> tuple[Value, Value, Value]:
    """Quantizes a tensor: (integers, scale, zero)."""
    scale, zero = parameters(b, x, dtype)
    return b.add("QuantizeLinear", [x, scale, zero]), scale, zero


def source(b: Builder, ranks: list[int]) -> Value:
    return b.pick(
        "float32", ranks=ranks, where=lambda v: v.array.size > 0 and bool(np.isfinite(v.array).all()) and v.exact
    )


def weights(b: Builder, shape: tuple[int, ...], dtype: str, per_axis: int | None) -> tuple[Value, Value, Value]:
    stored = b.const(weights_for_peers(b.data(dtype, shape, "special")))
    if per_axis is None:
        return (
            stored,
            b.const(np.float32(0.01)),
            b.const(np.asarray(b.choice([0, 3]) if dtype == "uint8" else 0, dtype)),
        )
    n = shape[per_axis]
    scales = b.const((b.data("float32", (n,), "positive") * np.float32(0.01)).astype(np.float32))
    return stored, scales, b.const(np.zeros(n, dtype))


@maker("quantized", 4)
def qdq_pointwise(b: Builder) -> None:
    x = source(b, [1, 2, 3, 4])
    dtype = b.choice(EIGHT)
    q, scale, zero = quantize(b, x, dtype)
    y = b.add("DequantizeLinear", [q, scale, zero])
    if b.chance(50):
        q2, s2, z2 = quantize(b, y, b.choice(EIGHT))
        b.add("DequantizeLinear", [q2, s2, z2])


@maker("quantized", 3)
def per_axis(b: Builder) -> None:
    if b.opset < 13:
        raise Refused("old")
    x = source(b, [2, 3, 4])
    axis = b.axis(x.rank)
    n = x.shape[axis]
    dtype = b.choice([*EIGHT, "int16", "uint16"] if b.opset >= 21 else EIGHT)
    scale = b.given((b.data("float32", (n,), "positive") * np.float32(0.05)).astype(np.float32))
    zero = b.given(np.abs(b.data("int8", (n,), "mild")).astype(dtype)) if b.chance(70) else None
    if zero is None and dtype != "uint8":
        raise Refused("the type is that of the zero point")
    q = b.add("QuantizeLinear", [x, scale, zero], axis=b.negated([axis], x.rank)[0])
    b.add("DequantizeLinear", [q, scale, zero], axis=b.negated([axis], x.rank)[0])


@maker("quantized", 1)
def blocked(b: Builder) -> None:
    if b.opset < 21:
        raise Refused("old")
    x = source(b, [2, 3])
    axis = b.axis(x.rank)
    block = b.choice([1, 2, 3])
    shape = list(x.shape)
    shape[axis] = -(-shape[axis] // block)
    scale = b.const((b.data("float32", shape, "positive") * np.float32(0.05)).astype(np.float32))
    zero = b.const(np.abs(b.data("int8", shape, "mild")).astype("uint8"))
    q = b.add("QuantizeLinear", [x, scale, zero], axis=axis, block_size=block)
    b.add("DequantizeLinear", [q, scale, zero], axis=axis, block_size=block)


@maker("quantized", 2)
def dequantize(b: Builder) -> None:
    x = b.pick("int8", "uint8", "int32", *(["int16", "uint16"] if b.opset >= 21 else []))
    zero = b.given(np.asarray(0 if x.dtype == "int32" else 3, x.dtype)) if b.chance(60) else None
    b.add("DequantizeLinear", [x, b.given(np.float32(0.037)), zero])


@maker("quantized", 2)
def dynamic(b: Builder) -> None:
    x = source(b, [1, 2, 3, 4])
    if 0 < np.abs(x.array).max() < 1e-30:
        raise Refused("the scale underflows, and the zero point is 0 / 0")
    b.node("DynamicQuantizeLinear", [x], 3)


@maker("quantized", 4)
def qlinear_matmul(b: Builder) -> None:
    x = source(b, [2, 3])
    q, sx, zx = quantize(b, x, b.choice(EIGHT))
    n = b.choice([1, 3, 8, 17])
    w, sw, zw = weights(b, (x.shape[-1], n), b.choice(EIGHT), 1 if b.chance(30) and x.rank == 2 else None)
    out = q.dtype
    b.add(
        "QLinearMatMul", [q, sx, zx, w, sw, zw, b.const(np.float32(0.05)), b.const(np.asarray(b.choice([0, 5]), out))]
    )


@maker("quantized", 4)
def qlinear_conv(b: Builder) -> None:
    x = source(b, [3, 4])
    q, sx, zx = quantize(b, x, b.choice(EIGHT))
    channels = x.shape[1]
    group = b.choice([g for g in range(1, channels + 1) if channels % g == 0])
    out = group * b.choice([1, 2, 4])
    kernel = [b.choice([1, 2, 3]) for _ in x.shape[2:]]
    wtype = "int8" if q.dtype == "int8" else b.choice(EIGHT)
    w, sw, zw = weights(b, (out, channels // group, *kernel), wtype, 0 if b.chance(50) and wtype == "int8" else None)
    bias = b.const(b.data("int32", (out,), "mild") * np.int32(40)) if b.chance(50) else None
    b.add(
        "QLinearConv", [q, sx, zx, w, sw, zw, b.const(np.float32(0.05)), b.const(np.asarray(b.choice([0, 5]), q.dtype)), bias],
        group=group, **window(b, x.shape[2:], kernel),
    )  # fmt: skip


@maker("quantized", 3)
def integers(b: Builder) -> None:
    if b.chance(50):
        x = b.pick(*EIGHT, ranks=[2, 3])
        w = b.given(weights_for_peers(b.data(b.choice(EIGHT), (x.shape[-1], b.integer(1, 9)), "special")))
        zeros = [b.given(np.asarray(b.integer(0, 9), v.dtype)) if b.chance(60) else None for v in (x, w)]
        b.add("MatMulInteger", [x, w, *zeros])
        return
    x = b.pick("uint8", ranks=[4])
    if 0 in x.shape:
        raise Refused("empty")
    kernel = [b.choice([1, 2, 3]) for _ in x.shape[2:]]
    w = b.given(weights_for_peers(b.data(b.choice(EIGHT), (b.integer(1, 4), x.shape[1], *kernel), "special")))
    zeros = [b.given(np.asarray(b.integer(0, 9), v.dtype)) if b.chance(60) else None for v in (x, w)]
    b.add("ConvInteger", [x, w, *zeros], **window(b, x.shape[2:], kernel))


@maker("quantized", 5)
def qdq_layer(b: Builder) -> None:
    """DequantizeLinear -> Conv or MatMul -> (activation) -> QuantizeLinear, which fuse into one integer op."""
    if b.opset < 10:
        raise Refused("old")
    x = source(b, [2, 4])
    q, sx, zx = quantize(b, x, b.choice(EIGHT))
    wide = b.add("DequantizeLinear", [q, sx, zx])
    axis = {"axis": 0} if b.opset >= 13 else {}
    named: dict[str, Any] = {}
    if x.rank == 4:
        kernel = [b.choice([1, 3]), b.choice([1, 3])]
        w, sw, zw = weights(b, (b.choice([1, 4, 8]), x.shape[1], *kernel), "int8", 0 if axis and b.chance(60) else None)
        named = window(b, x.shape[2:], kernel)
        op = "Conv"
    else:
        w, sw, zw = weights(b, (x.shape[1], b.choice([1, 4, 9])), "int8", None)
        axis = {}
        op = "MatMul"
    y = b.add(op, [wide, b.add("DequantizeLinear", [w, sw, zw], **(axis if sw.rank else {}))], **named)
    if b.chance(50):
        y = b.add(b.choice(["Relu", "Sigmoid", "HardSwish", "LeakyRelu"]), [y])
    s, z = parameters(b, y, q.dtype)
    out = b.add("QuantizeLinear", [y, s, z])
    if b.chance(60):
        b.add("DequantizeLinear", [out, s, z])
