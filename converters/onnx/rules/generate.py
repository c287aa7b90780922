"""Rules for ops that create values: constants, shapes, ranges, one-hot vectors.
Results that depend only on known values are folded into constants at once."""

from __future__ import annotations

import numpy as np

from linnet.converters.onnx.loader import text_of
from linnet.converters.onnx.operation import Operation, dtype_name, rank_of
from linnet.converters.onnx.program import REGISTER, Expr
from linnet.converters.onnx.registry import rule
from linnet.ir.function import Tensor


@rule("Constant")
def constant(op: Operation) -> Tensor:
    kinds = ("value_float", "value_floats", "value_int", "value_ints")
    if op.has("value"):
        data, dtype = op.attribute("value")
        return op.of_kind(op.constant(data, dtype, name=text_of(op.node.output[0])), op.kind_of("value"))
    for name in kinds:
        if op.has(name):
            return op.constant(np.array(op.attribute(name), np.float32 if "float" in name else np.int64))
    raise op.unsupported(
        "string constants and sparse constants are not supported", "use value, value_float(s) or value_int(s)"
    )


@rule("ConstantOfShape")
def constant_of_shape(op: Operation) -> Tensor:
    data, dtype = op.attribute("value", (np.zeros(1, np.float32), "f32"))
    shape = op.input(0)
    value, kind = op.constant(data.reshape(()), dtype), op.kind_of("value")
    if shape.data is not None and shape.data.size == 0:
        return op.of_kind(value, kind)
    return op.of_kind(op.expand(value, shape), kind)


@rule("Shape")
def shape(op: Operation) -> Tensor:
    start, end = op.attribute("start", 0), op.attribute("end")
    return op.shape_of(op.input(0), start, end)


@rule("Size")
def size(op: Operation) -> Tensor:
    return op.reduce(op.shape_of(op.input(0)), "prod", [0], keep_dims=False)


@rule("Range")
def range_(op: Operation) -> Tensor:
    return op.emit("range", [op.input(0), op.input(1), op.input(2)])


@rule("EyeLike")
def eye_like(op: Operation) -> Tensor:
    x = op.input(0)
    dtype = dtype_name(op.attribute("dtype"), "the result") if op.has("dtype") else x.dtype
    offset = op.attribute("k")

    def body(value: Expr) -> Expr:
        return (value.iota(1) - value.iota(0)).binary("eq", offset).cast(REGISTER[dtype])

    return op.map([x], body, dtype)


@rule("OneHot")
def one_hot(op: Operation) -> Tensor:
    """An element is the "on" value if its position along the new axis equals the index, else the "off" value. A
    negative index counts from the end."""
    indices, depth, values = op.input(0), op.input(1), op.input(2)
    rank = rank_of(indices, "input 0")
    axis = op.attribute("axis")
    axis += rank + 1 if axis < 0 else 0
    zero, one = op.constant(np.int64(0)), op.constant(np.int64(1))
    depth = op.reshape(op.cast(depth, "i64"), [])
    steps = op.reshape(op.emit("range", [zero, depth, one]), [-1] + [1] * (rank - axis))
    off = op.reshape(op.slice(values, 0, 0, 1), [])
    on = op.reshape(op.slice(values, 0, 1, 2), [])

    def body(index: Expr, step: Expr, n: Expr, yes: Expr, no: Expr) -> Expr:
        index = index.cast("i64")
        index = index.binary("lt", 0).select(index + n, index)
        return index.binary("eq", step).select(yes, no)

    return op.map([op.unsqueeze(indices, [axis]), steps, depth, on, off], body, values.dtype)
