"""Functions that build graphs: one per runtime op (generated), and the everyday ones made of them.
All append to the function of their operands and return tensors; shapes are inferred at once."""

from __future__ import annotations

from collections.abc import Sequence

from linnet._generated.builders import (
    assign,
    batch_norm,
    call,
    cast,
    conv,
    conv_transpose,
    copy,
    cumsum,
    dequantize,
    gather,
    group_norm,
    if_,
    layer_norm,
    map_,
    matmul,
    nonzero,
    pool,
    quantize,
    range_,
    recurrent,
    reduce,
    resize,
    scatter,
    shape,
    softmax,
    top_k,
    while_,
)
from linnet.graph import Quantization, Tensor, emit
from linnet.mapping import Expr, pointwise


def _one(result: object) -> Tensor:
    assert isinstance(result, Tensor)
    return result


def add(a: Tensor, b: Tensor, *, name: str = "") -> Tensor:
    """a + b, broadcast."""
    return _one(pointwise([a, b], lambda x, y: x + y, name=name))


def subtract(a: Tensor, b: Tensor, *, name: str = "") -> Tensor:
    """a - b, broadcast."""
    return _one(pointwise([a, b], lambda x, y: x - y, name=name))


def multiply(a: Tensor, b: Tensor, *, name: str = "") -> Tensor:
    """a * b, broadcast."""
    return _one(pointwise([a, b], lambda x, y: x * y, name=name))


def divide(a: Tensor, b: Tensor, *, name: str = "") -> Tensor:
    """a / b, broadcast; integers truncate."""
    return _one(pointwise([a, b], lambda x, y: x / y, name=name))


def scale(x: Tensor, factor: float, offset: float = 0.0, *, name: str = "") -> Tensor:
    """x * factor + offset."""
    return _one(pointwise([x], lambda v: v * factor + offset if offset else v * factor, x.dtype, name=name))


def relu(x: Tensor, *, name: str = "") -> Tensor:
    """max(x, 0)."""
    return _one(pointwise([x], lambda v: v.max(0), name=name))


def clip(x: Tensor, low: float, high: float, *, name: str = "") -> Tensor:
    """min(max(x, low), high)."""
    return _one(pointwise([x], lambda v: v.max(low).min(high), name=name))


def sigmoid(x: Tensor, *, name: str = "") -> Tensor:
    """1 / (1 + exp(-x))."""
    return _one(pointwise([x], lambda v: v.unary("sigmoid"), name=name))


def silu(x: Tensor, *, name: str = "") -> Tensor:
    """x * sigmoid(x)."""
    return _one(pointwise([x], lambda v: v * v.unary("sigmoid"), name=name))


def tanh(x: Tensor, *, name: str = "") -> Tensor:
    """Hyperbolic tangent."""
    return _one(pointwise([x], lambda v: v.unary("tanh"), name=name))


def gelu(x: Tensor, *, name: str = "") -> Tensor:
    """x * (1 + erf(x / sqrt(2))) / 2."""
    return _one(pointwise([x], lambda v: v * ((v * 0.7071067811865476).unary("erf") + 1.0) * 0.5, name=name))


def where(condition: Tensor, yes: Tensor, no: Tensor, *, name: str = "") -> Tensor:
    """`yes` where the condition holds, else `no`; broadcast."""

    def body(c: Expr, a: Expr, b: Expr) -> Expr:
        return c.select(a, b)

    return _one(pointwise([condition, yes, no], body, yes.dtype, name=name))


def reshape(x: Tensor, shape: Sequence[int], *, name: str = "") -> Tensor:
    """The same elements in another shape; one entry may be -1, and 0 keeps the dimension."""
    return copy([x], kind="reshape", shape=shape, name=name)[0]


def transpose(x: Tensor, perm: Sequence[int] = (), *, name: str = "") -> Tensor:
    """Dimensions in the order `perm`; reversed when it is empty."""
    return copy([x], kind="transpose", perm=perm, name=name)[0]


def concat(tensors: Sequence[Tensor], axis: int, *, name: str = "") -> Tensor:
    """Tensors one after the other along an axis."""
    return copy(tensors, kind="concat", axis=axis, name=name)[0]


def mean(x: Tensor, axes: Sequence[int] = (), *, keep_dims: bool = False, name: str = "") -> Tensor:
    """Mean over axes; over all when there are none."""
    return reduce(x, kind="mean", axes=axes, keep_dims=keep_dims, name=name)


def quantized(x: Tensor, dtype: str, quantization: Quantization, *, name: str = "") -> Tensor:
    """x as integers of `dtype` with the given scale and zero point."""
    return emit("quantize", [x], {"dtype": dtype}, name=name, quantization=[quantization])[0]


__all__ = [
    "add", "assign", "batch_norm", "call", "cast", "clip", "concat", "conv", "conv_transpose", "copy", "cumsum", "dequantize",
    "divide", "gather", "gelu", "group_norm", "if_", "layer_norm", "map_", "matmul", "mean", "multiply", "nonzero", "pool",
    "quantize", "quantized", "range_", "recurrent", "reduce", "relu", "reshape", "resize", "scale", "scatter", "shape", "sigmoid",
    "silu", "softmax", "subtract", "tanh", "top_k", "transpose", "where", "while_",
]  # fmt: skip
