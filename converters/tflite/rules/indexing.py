"""Rules of gathering, scattering, and of ops that make tensors out of shapes and numbers."""

from __future__ import annotations

import math

import numpy as np

from linnet.converters.tflite.operation import Operation
from linnet.converters.tflite.registry import rule
from linnet.graph import Tensor, numpy_dtype


@rule("GATHER")
def gather(op: Operation) -> Tensor:
    x, indices = op.input(0), op.input(1)
    if indices.dtype not in ("i32", "i64"):
        indices = op.cast(indices, "i32")
    axis, batch = op.axis(op.option("axis"), op.rank()), op.option("batch_dims")
    if batch:
        raise op.unsupported(f"batch_dims {batch}", "export it with batch_dims 0")
    return op.as_declared(op.emit("gather", [x, indices], x.quantization, axis=axis))


@rule("EMBEDDING_LOOKUP")
def embedding_lookup(op: Operation) -> Tensor:
    table = op.input(1)
    if table.quantization is not None and op.output().dtype == "f32":
        table = op.real(table)
    return op.as_declared(op.emit("gather", [table, op.input(0)], table.quantization, axis=0))


@rule("GATHER_ND")
def gather_nd(op: Operation) -> Tensor:
    x, indices = op.input(0), op.input(1)
    if indices.dtype not in ("i32", "i64"):
        indices = op.cast(indices, "i32")
    return op.as_declared(op.emit("gather", [x, indices], x.quantization, kind="nd"))


@rule("SCATTER_ND")
def scatter_nd(op: Operation) -> Tensor:
    updates = op.input(1)
    shape = op.require(2, "the shape").reshape(-1).tolist()
    op.limit(math.prod(shape))
    zeros = op.constant(np.zeros(shape, numpy_dtype(updates.dtype)))
    return op.emit("scatter", [zeros, op.indices(0), updates], kind="nd", reduction="add")


@rule("DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(op: Operation) -> Tensor:
    """Writes a block at indices that may be data: clamped so that the block stays inside."""
    x, update = op.input(0), op.input(1)
    shape, size = x.static_shape, update.static_shape
    if shape is None or size is None:
        raise op.unsupported("operands of unknown shape", "fix the input shapes (input_shapes)")
    op.limit(math.prod(size) * len(size))
    most = op.constant(np.array([d - s for d, s in zip(shape, size, strict=True)], np.int64))
    start = op.map([op.indices(2), most], lambda v, m: v.max(0).min(m))
    grid = np.stack(np.meshgrid(*(np.arange(s) for s in size), indexing="ij"), -1).astype(np.int64)
    places = op.map([op.constant(grid), start], lambda g, s: g + s)
    return op.as_declared(op.emit("scatter", [x, places, update], x.quantization, kind="nd"))


@rule("SHAPE")
def shape(op: Operation) -> Tensor:
    return op.cast(op.emit("shape", [op.input(0)]), op.output().dtype)


@rule("RANK")
def rank(op: Operation) -> Tensor:
    return op.constant(np.array(op.rank(), np.int32))


@rule("RANGE")
def range_(op: Operation) -> Tensor:
    return op.emit("range", [op.input(i) for i in range(3)])


@rule("FILL")
def fill(op: Operation) -> Tensor:
    value, dims = op.input(1), op.ints(0)
    if dims is not None and value.data is not None and 0 <= math.prod(dims) <= 1 << 20:
        return op.as_declared(op.constant(np.full(dims, value.data.reshape(()), value.data.dtype)))
    return op.as_declared(op.copy([value, op.indices(0)], kind="expand"))


@rule("ZEROS_LIKE")
def zeros_like(op: Operation) -> Tensor:
    return op.map([op.input(0)], lambda v: v * 0)


@rule("ONE_HOT")
def one_hot(op: Operation) -> Tensor:
    depth = op.limit(int(op.require(1, "the depth").reshape(-1)[0]))
    axis = op.axis(op.option("axis"), op.rank() + 1)
    indices = op.copy([op.input(0)], kind="unsqueeze", axes=[axis])
    order = op.constant(np.arange(depth, dtype=np.int32).reshape([-1] + [1] * (op.rank() - axis)))
    on, off = op.input(2), op.input(3)
    y = op.map([indices, order, on, off], lambda i, o, yes, no: i.eq(o).select(yes, no), on.dtype)
    return op.as_declared(y)


@rule("WHERE")
def where(op: Operation) -> Tensor:
    """Indices of what is not 0, one row each."""
    return op.transpose(op.emit("nonzero", [op.input(0)]), [1, 0])


@rule("TOPK_V2")
def top_k(op: Operation) -> list[Tensor]:
    x = op.input(0)
    k = op.reshape(op.indices(1), [1])
    values, indices = op.emit_all("top_k", [x, k], 2, [x.quantization, None] if x.quantization else ())
    return [op.as_declared(values), op.cast(indices, op.output(1).dtype)]
