"""Rules for gathers, scatters and other ops that use indices.
Compress and NonZero depend on data: the sizes of their results are known only at run time."""

from __future__ import annotations

import numpy as np

from linnet.converters.onnx.operation import Operation, rank_of
from linnet.converters.onnx.program import Expr
from linnet.converters.onnx.registry import rule
from linnet.converters.onnx.rules.movement import as_i64
from linnet.ir.function import Tensor


@rule("Gather")
def gather(op: Operation) -> Tensor:
    return op.emit("gather", [op.input(0), op.input(1)], kind="take", axis=op.attribute("axis"))


@rule("GatherElements")
def gather_elements(op: Operation) -> Tensor:
    return op.emit("gather", [op.input(0), op.input(1)], kind="elements", axis=op.attribute("axis"))


@rule("GatherND")
def gather_nd(op: Operation) -> Tensor:
    return op.emit("gather", [op.input(0), op.input(1)], kind="nd", batch_dims=op.attribute("batch_dims", 0))


@rule("Scatter", "ScatterElements")
def scatter_elements(op: Operation) -> Tensor:
    operands = [op.input(0), op.input(1), op.input(2)]
    return op.emit(
        "scatter",
        operands,
        kind="elements",
        axis=op.attribute("axis"),
        reduction=op.attribute("reduction", "none"),
    )


@rule("ScatterND")
def scatter_nd(op: Operation) -> Tensor:
    return op.emit(
        "scatter",
        [op.input(0), op.input(1), op.input(2)],
        kind="nd",
        reduction=op.attribute("reduction", "none"),
    )


@rule("NonZero")
def nonzero(op: Operation) -> Tensor:
    return op.emit("nonzero", [op.input(0)])


@rule("Compress")
def compress(op: Operation) -> Tensor:
    x = op.input(0)
    chosen = op.reshape(op.emit("nonzero", [op.input(1)]), [-1])
    if not op.has("axis"):
        return op.emit("gather", [op.reshape(x, [-1]), chosen], kind="take", axis=0)
    return op.emit("gather", [x, chosen], kind="take", axis=op.attribute("axis"))


@rule("TopK")
def top_k_by_attribute(op: Operation) -> list[Tensor]:
    k = op.constant(np.array([op.attribute("k")], np.int64))
    return op.emit_all("top_k", [op.input(0), k], 2, axis=op.attribute("axis"))


@rule("TopK", since=10)
def top_k(op: Operation) -> list[Tensor]:
    attributes = {
        "axis": op.attribute("axis"),
        "largest": bool(op.attribute("largest", 1)),
        "sorted": bool(op.attribute("sorted", 1)),
    }
    return op.emit_all("top_k", [op.input(0), as_i64(op, op.input(1))], 2, **attributes)


@rule("ReverseSequence")
def reverse_sequence(op: Operation) -> Tensor:
    """Element t is taken from position length - 1 - t within the sequence, and from position t after its end."""
    x, lengths = op.input(0), op.input(1)
    rank = rank_of(x, "input 0")
    batch, time = op.attribute("batch_axis"), op.attribute("time_axis")
    length = op.reshape(lengths, [-1] + [1] * (rank - 1 - batch))

    def body(x: Expr, n: Expr) -> Expr:
        t = x.iota(time)
        return t.binary("lt", n).select(n - 1 - t, t)

    indices = op.map([x, length], body, "i64")
    return op.emit("gather", [x, indices], kind="elements", axis=time)


@rule("MaxUnpool")
def max_unpool(op: Operation) -> Tensor:
    """Writes every value at the flat index from which it was pooled, into zeros of the output's shape."""
    x, indices = op.input(0), op.input(1)
    kernel = op.attribute("kernel_shape")
    n = len(kernel)
    strides = [1, 1, *(op.attribute("strides") or [1] * n)]
    pads = op.attribute("pads") or [0] * (2 * n)
    edges = [1, 1, *(kernel[i] - pads[i] - pads[n + i] for i in range(n))]
    sizes, steps, ends = op.shape_of(x), op.constant(np.array(strides)), op.constant(np.array(edges))
    # indices refer to the pooled tensor, whose shape is the one without output_shape
    inner = op.map([sizes, steps, ends], lambda size, step, edge: (size - 1) * step + edge)
    zeros = op.expand(op.constant(np.zeros(()), x.dtype), op.reduce(inner, "prod", [0]))
    flat = op.emit("scatter", [zeros, op.reshape(indices, [-1]), op.reshape(x, [-1])], kind="elements", axis=0)
    result = op.reshape(flat, inner)
    if op.optional(2) is None:
        return result
    more = op.map([op.input(2), inner], lambda wanted, have: wanted - have)
    amounts = op.concat([op.constant(np.zeros(n + 2, np.int64)), more], 0)
    if amounts.data is None:
        return op.emit("copy", [result, amounts, op.constant(np.zeros(()), x.dtype)], kind="pad")
    if not amounts.data.any():
        return result
    return op.emit("copy", [result], kind="pad", pads=[int(v) for v in amounts.data])


@rule("TensorScatter")
def tensor_scatter(op: Operation) -> Tensor:
    """Writes a batch of new rows into a cache. Each batch entry starts at its own position."""
    cache, update, starts = op.input(0), op.input(1), op.optional(2)
    rank = rank_of(cache, "input 0")
    axis = op.attribute("axis")
    axis += rank if axis < 0 else 0
    extent = cache.shape[axis] if cache.shape else None
    circular = op.attribute("mode") == "circular"
    if circular and not isinstance(extent, int):
        raise op.unknown("the length of the cache is unknown")

    def body(x: Expr, *start: Expr) -> Expr:
        position = x.iota(axis) + start[0] if start else x.iota(axis)
        return position.binary("mod", extent) if circular and isinstance(extent, int) else position

    operands = [update]
    if starts is not None:
        operands.append(op.reshape(starts, [-1] + [1] * (rank - 1)))
    indices = op.map(operands, body, "i64")
    return op.emit("scatter", [cache, indices, update], kind="elements", axis=axis)
