"""Rules for gathering, scattering, and ops that make tensors from shapes and numbers."""

from __future__ import annotations

import math

import numpy as np

from linnet.converters.tflite.hybrid import UNIT
from linnet.converters.tflite.operation import Operation
from linnet.converters.tflite.registry import rule
from linnet.ir.dtypes import numpy_dtype
from linnet.ir.function import Tensor


@rule("GATHER")
def gather(op: Operation) -> Tensor:
    x, indices = op.input(0), op.input(1)
    if indices.dtype not in ("i32", "i64"):
        indices = op.cast(indices, "i32")
    axis, batch = op.axis(op.option("axis"), op.rank()), op.option("batch_dims")
    if batch:
        return _batched(op, x, indices, axis, op.axis(batch, op.rank(1) + 1))
    return op.as_declared(op.emit("gather", [x, indices], x.quantization, axis=axis))


def _batched(op: Operation, x: Tensor, indices: Tensor, axis: int, batch: int) -> Tensor:
    """A gather in which x and the indices share the first `batch` dimensions. The axis of x is moved to the position
    after these dimensions, and is moved back at the end."""
    if axis < batch:
        raise op.unsupported(
            f"axis {axis} is one of the {batch} batch dimensions", "the model is damaged: export it again"
        )
    rank, wide = op.rank(), op.rank(1)
    if axis != batch:
        x = op.transpose(x, [*range(batch), axis, *(d for d in range(batch, rank) if d != axis)])
    places = op.copy([indices], kind="unsqueeze", axes=[wide])
    y = op.emit("gather", [x, places], x.quantization, kind="nd", batch_dims=batch)
    if axis != batch:
        outer = axis - batch
        y = op.transpose(
            y, [*range(batch), *range(wide, wide + outer), *range(batch, wide), *range(wide + outer, y.rank or 0)]
        )
    return op.as_declared(y)


@rule("EMBEDDING_LOOKUP")
def embedding_lookup(op: Operation) -> Tensor:
    """Looks up rows of a table. Integer rows are dequantized after the lookup."""
    table, ids, q = op.input(1), op.input(0), op.input(1).quantization
    if q is None or op.output().dtype != "f32":
        return op.as_declared(op.emit("gather", [table, ids], q, axis=0))
    if q.axis not in (None, 0):
        raise op.unsupported(f"the table is quantized along axis {q.axis}", "quantize it along axis 0")
    rows = op.emit("gather", [op.constant(table.data, UNIT) if table.data is not None else table, ids], UNIT, axis=0)
    scale = op.constant(q.scale.reshape(-1).astype(np.float32))
    if q.axis == 0:
        scale = op.emit("gather", [scale, ids], axis=0)
        scale = op.copy([scale], kind="unsqueeze", axes=list(range(op.rank(0), op.rank(0) + op.rank(1) - 1)))
    return op.map([rows, scale], lambda v, s: v.cast("f32") * s, "f32")


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
    """Writes a block at indices that may be computed; they are clamped so that the block stays inside."""
    x, update = op.input(0), op.input(1)
    shape, size = x.static_shape, update.static_shape
    if shape is None or size is None:
        raise op.unsupported("the shape of an operand is unknown", "set the input shapes with input_shapes")
    op.limit(math.prod(size) * len(size))
    most = op.constant(np.array([d - s for d, s in zip(shape, size, strict=True)], np.int64))
    start = op.map([op.indices(2), most], lambda v, m: v.max(0).min(m))
    grid = np.stack(np.meshgrid(*(np.arange(s) for s in size), indexing="ij"), -1).astype(np.int64)
    places = op.map([op.constant(grid), start], lambda g, s: g + s)
    return op.as_declared(op.emit("scatter", [x, places, update], x.quantization, kind="nd"))


@rule("SHAPE")
def shape(op: Operation) -> Tensor:
    return op.cast(op.emit("shape", [op.input(0)]), op.output().dtype)


@rule("BROADCAST_ARGS")
def broadcast_args(op: Operation) -> Tensor:
    """The shape to which two shapes broadcast; the shorter one is padded with ones at the front."""
    sizes = [t.shape[0] if t.shape else None for t in (op.input(0), op.input(1))]
    if not all(isinstance(s, int) for s in sizes):
        raise op.unsupported("the length of a shape is unknown", "set the input shapes with input_shapes")
    rank = max(s for s in sizes if isinstance(s, int))
    padded = [op.pad(op.input(i), [rank - s, 0], 1) for i, s in enumerate(sizes) if isinstance(s, int)]
    return op.map(padded, lambda a, b: a.eq(1).select(b, a))


@rule("RANK")
def rank(op: Operation) -> Tensor:
    return op.constant(np.array(op.rank(), np.int32))


@rule("RANGE")
def range_(op: Operation) -> Tensor:
    return op.emit("range", [op.input(i) for i in range(3)])


@rule("FILL")
def fill(op: Operation) -> Tensor:
    value, dims = op.input(1), op.ints(0)
    if dims is not None and value.data is not None and math.prod(dims) <= 1 << 20 and op.may_make(math.prod(dims)):
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
    """The indices of non-zero elements, one row each."""
    return op.transpose(op.emit("nonzero", [op.input(0)]), [1, 0])


@rule("TOPK_V2")
def top_k(op: Operation) -> list[Tensor]:
    x = op.input(0)
    k = op.reshape(op.indices(1), [1])
    values, indices = op.emit_all("top_k", [x, k], 2, [x.quantization, None] if x.quantization else ())
    return [op.as_declared(values), op.cast(indices, op.output(1).dtype)]
