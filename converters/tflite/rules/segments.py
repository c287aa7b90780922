"""Rules for ops that sum or place rows by index: segments, sparse values, buckets, distinct values.
A sum per segment is a `scatter` with a reduction. The number of segments may be known only at run time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from linnet.converters.tflite.operation import Operation
from linnet.converters.tflite.registry import rule
from linnet.ir.dtypes import numpy_dtype
from linnet.ir.function import Tensor

REDUCTIONS = {"SUM": "add", "PROD": "mul", "MAX": "max", "MIN": "min"}


def start_value(kind: str, dtype: str) -> Any:
    """The initial value of a reduction, which is also the result of a segment without rows."""
    kind_of = numpy_dtype(dtype)
    if kind in ("SUM", "PROD"):
        return kind_of.type(kind == "PROD")
    limits = np.finfo(kind_of) if kind_of.kind == "f" else np.iinfo(kind_of)
    return kind_of.type(limits.min if kind == "MAX" else limits.max)


def filled(op: Operation, value: Any, rows: Tensor, like: Tensor) -> Tensor:
    """A tensor [rows, the other dimensions of `like`...] filled with one value. rows: i64 [1]."""
    shape = op.copy([rows, op.emit("shape", [like], start=1)], kind="concat", axis=0)
    return op.copy([op.constant(value), shape], kind="expand")


@rule("SEGMENT_SUM")
def segment_sum(op: Operation) -> Tensor:
    """Sums rows with the same id. Ids never decrease, and the last id determines the number of sums."""
    x, ids = op.input(0), op.indices(1)
    rows = op.map([op.slice(ids, 0, -1, 1 << 62)], lambda v: v + 1)
    sums = filled(op, start_value("SUM", x.dtype), rows, x)
    return op.emit("scatter", [sums, op.copy([ids], kind="unsqueeze", axes=[1]), x], kind="nd", reduction="add")


@rule(*(f"UNSORTED_SEGMENT_{kind}" for kind in REDUCTIONS))
def unsorted_segment(op: Operation) -> Tensor:
    """Operands: rows, one id per row (rows with a negative id are ignored), the number of segments."""
    kind = op.spec.op.rsplit("_", 1)[1]
    x, ids, count = op.input(0), op.indices(1), op.indices(2)
    if op.rank(1) != 1:  # ids with n dimensions: the first n dimensions of x are rows
        tail = op.emit("shape", [x], start=op.rank(1))
        x = op.copy([x, op.copy([op.constant(np.array([-1], np.int64)), tail], kind="concat", axis=0)], kind="reshape")
        ids = op.reshape(ids, [-1])
    count = op.reshape(count, [1])
    places = op.map([ids, count], lambda v, n: (v < 0).select(n, v))  # an extra last row collects the ignored rows
    start = filled(op, start_value(kind, x.dtype), op.map([count], lambda n: n + 1), x)
    index = op.copy([places], kind="unsqueeze", axes=[1])
    sums = op.emit("scatter", [start, index, x], kind="nd", reduction=REDUCTIONS[kind])
    return op.slice(sums, 0, 0, -1)


@rule("SPARSE_TO_DENSE")
def sparse_to_dense(op: Operation) -> Tensor:
    """Operands: indices (a scalar, a list, or a list of coordinates), the shape, the values (or one value for all), the
    default value."""
    indices, values, default = op.indices(0), op.input(2), op.input(3)
    rank = op.rank()
    if rank < 2:
        indices = op.reshape(indices, [-1, 1])
    if not values.rank:
        values = op.copy([values, op.emit("shape", [indices], start=0, end=1)], kind="expand")
    start = op.copy([op.reshape(default, []), op.indices(1)], kind="expand")
    return op.emit("scatter", [start, indices, values], kind="nd")


@rule("EMBEDDING_LOOKUP_SPARSE")
def embedding_lookup_sparse(op: Operation) -> Tensor:
    """Combines rows of a table: weighted sums (combiner 0), means (1), or sums over the root of the sum of squares (2).

    Operands: ids [n], coordinates [n, rank], whose last column is unused, their dense shape [rank], weights [n], the table."""
    ids, weights, table = op.indices(0), op.input(3), op.input(4)
    shape = [int(v) for v in op.require(2, "the dense shape")][:-1]
    op.limit(math.prod(shape))
    places = op.slice(op.indices(1), 1, 0, len(shape))
    rest = (table.rank or 1) - 1
    factors = op.copy([weights], kind="unsqueeze", axes=list(range(1, 1 + rest)))
    rows = op.map([op.emit("gather", [table, ids], axis=0), factors], lambda v, w: v * w)
    zeros = op.constant(np.zeros(shape, np.float32))
    start = op.copy([zeros], kind="unsqueeze", axes=list(range(len(shape), len(shape) + rest)))
    whole = op.copy([op.constant(np.array(shape, np.int64)), op.emit("shape", [table], start=1)], kind="concat", axis=0)
    sums = op.emit("scatter", [op.copy([start, whole], kind="expand"), places, rows], kind="nd", reduction="add")
    combiner = op.option("combiner")
    if combiner == 0:
        return sums
    parts = weights if combiner == 1 else op.map([weights], lambda w: w * w)
    total = op.emit("scatter", [zeros, places, parts], kind="nd", reduction="add")
    total = op.copy([total], kind="unsqueeze", axes=list(range(len(shape), len(shape) + rest)))
    if combiner == 1:
        return op.map([sums, total], lambda v, t: t.eq(0.0).select(0.0, v / t))
    return op.map([sums, total], lambda v, t: t.eq(0.0).select(0.0, v / t.sqrt()))


@rule("UNIQUE")
def unique(op: Operation) -> list[Tensor]:
    """The distinct values of a list in the order of first occurrence, and the index of each element's value. A NaN equals no
    other element, as in TensorFlow."""
    x = op.input(0)
    column, row = op.reshape(x, [-1, 1]), op.reshape(x, [1, -1])
    same = op.map([column, row], lambda a, b: (a.eq(b) | a.iota(0).eq(a.iota(1))).cast("i32"), "i32")
    first = op.reduce(same, "argmax", [1], keep_dims=False)  # the index of the first equal element
    fresh = op.map([first], lambda f: f.eq(f.iota(0)).cast("i64"), "i64")
    places = op.reshape(op.emit("nonzero", [fresh]), [-1])
    order = op.map([op.emit("cumsum", [fresh, op.constant(np.array(0, np.int64))])], lambda v: v - 1)
    values = op.emit("gather", [x, places], x.quantization, axis=0)
    return [values, op.cast(op.emit("gather", [order, first], axis=0), op.output(1).dtype)]


@rule("BUCKETIZE")
def bucketize(op: Operation) -> Tensor:
    """Counts the boundaries that are not above each element."""
    limits = np.asarray(op.option("boundaries") if op.option("boundaries") is not None else [], np.float32)
    x = op.copy([op.input(0)], kind="unsqueeze", axes=[op.rank()])
    reached = op.map([x, op.constant(limits)], lambda v, b: (v >= b).cast("i32"), "i32")
    return op.reduce(reached, "sum", [op.rank()], keep_dims=False)
