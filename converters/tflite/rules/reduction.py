"""Rules for reductions. MEAN of 8-bit integers uses the fixed-point arithmetic of reference_ops::QuantizedMeanOrSum."""

from __future__ import annotations

import math

import numpy as np

from linnet.converters.tflite.fixed_point import RANGES, quantize_multiplier
from linnet.converters.tflite.operation import Operation, per_tensor
from linnet.converters.tflite.registry import rule
from linnet.ir.expr import Expr
from linnet.ir.function import Tensor

KINDS = {"MEAN": "mean", "SUM": "sum", "REDUCE_MAX": "max", "REDUCE_MIN": "min", "REDUCE_PROD": "prod"}


def axes_of(op: Operation) -> list[int]:
    rank = op.rank()
    return sorted({op.axis(int(v), rank) for v in op.require(1, "the axes").reshape(-1)})


def reduced(op: Operation, x: Tensor, kind: str, axes: list[int]) -> Tensor:
    if not axes:
        return x
    return op.reduce(x, kind, axes, op.option("keep_dims"))


@rule(*KINDS)
def reduce(op: Operation) -> Tensor:
    x, kind, axes = op.input(0), KINDS[op.spec.op], axes_of(op)
    if not op.is_quantized():
        return reduced(op, x, kind, axes)
    if kind in ("max", "min"):
        y = op.cast(reduced(op, op.map([x], lambda v: v, "i32"), kind, axes), x.dtype)
        y.quantization = x.quantization
        return op.as_declared(y)
    spec = op.output()
    sizes = [x.shape[a] for a in axes] if x.shape is not None else [None]
    if kind in ("mean", "sum") and spec.quantization is not None and all(isinstance(d, int) for d in sizes):
        return _mean(op, x, math.prod(d for d in sizes if isinstance(d, int)), axes, kind)
    return op.store(reduced(op, op.real(x), kind, axes))


def _divided(fixed: int, shift: int, count: int) -> tuple[int, int]:
    """The multiplier, which includes the division by the count."""
    extra = min(count.bit_length() - 1, 32, 31 + shift)
    return (fixed << extra) // count, shift - extra


def _mean(op: Operation, x: Tensor, count: int, axes: list[int], kind: str) -> Tensor:
    """count: the number of elements reduced to one."""
    spec = op.output()
    assert x.quantization is not None and spec.quantization is not None
    (sx, zx), (sy, zy) = per_tensor(x.quantization, "the input"), per_tensor(spec.quantization, "the output")
    fixed, shift = quantize_multiplier(float(sx) / float(sy))
    if kind == "mean":
        fixed, shift = _divided(fixed, shift, count)
    low, high = RANGES[spec.dtype]
    total = reduced(op, op.map([x], lambda v: v, "i32"), "sum", axes)

    def body(v: Expr) -> Expr:
        return ((v - zx * count).fixed_multiply(fixed, -shift) + zy).max(low).min(high)

    return op.quantized(op.map([total], body, spec.dtype), spec)


@rule("REDUCE_ANY", "REDUCE_ALL")
def logical(op: Operation) -> Tensor:
    kind = "max" if op.spec.op == "REDUCE_ANY" else "min"
    return op.cast(reduced(op, op.cast(op.input(0), "i32"), kind, axes_of(op)), "bool")


@rule("ARG_MAX", "ARG_MIN")
def arg(op: Operation) -> Tensor:
    axis = op.axis(int(op.require(1, "the axis").reshape(-1)[0]), op.rank())
    kind = "argmax" if op.spec.op == "ARG_MAX" else "argmin"
    return op.cast(op.reduce(op.input(0), kind, [axis], keep_dims=False), op.output().dtype)


@rule("CUMSUM")
def cumsum(op: Operation) -> Tensor:
    axis = op.constant(op.require(1, "the axis").reshape(()).astype(np.int64))
    return op.emit("cumsum", [op.input(0), axis], exclusive=op.option("exclusive"), reverse=op.option("reverse"))
