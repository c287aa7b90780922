"""Rules for ops that count and sort values: Unique, TfIdfVectorizer.
Sorting puts equal elements next to each other. It is a top_k of all elements, which keeps the order of equal values."""

from __future__ import annotations

import math

import numpy as np

from linnet.converters.onnx.operation import Operation, rank_of
from linnet.converters.onnx.program import Expr
from linnet.converters.onnx.registry import rule
from linnet.ir.function import Tensor

END = 1 << 62
MOST_COLUMNS = 1 << 24  # limit for the result of TfIdfVectorizer


def ascending(op: Operation, x: Tensor, axis: int = 0) -> list[Tensor]:
    """Values in ascending order along an axis, NaN last, and their original positions."""
    return op.emit_all("top_k", [x, op.shape_of(x, axis, axis + 1)], 2, axis=axis, largest=False)


def begins(op: Operation, values: Tensor) -> Tensor:
    """Marks the start of each new value along axis 0 of sorted values. NaN equals NaN."""
    before = op.map([values], lambda v: (v.iota(0) - 1).max(0), "i64")
    previous = op.emit("gather", [values, before], kind="elements", axis=0)

    def body(value: Expr, other: Expr) -> Expr:
        differ = value.ne(other)
        if value.kind in ("f32", "f64"):
            differ = differ & (value.is_nan() & other.is_nan()).eq(0)
        return differ | value.iota(0).eq(0)

    return op.map([values, previous], body, "bool")


def numbers(op: Operation, new: Tensor) -> Tensor:
    """The group number of each element along axis 0, from 0."""
    counted = op.emit("cumsum", [op.cast(new, "i64"), op.constant(np.zeros(1, np.int64))])
    return op.map([counted], lambda n: n - 1)


def scattered(op: Operation, places: Tensor, values: Tensor) -> Tensor:
    """Writes values at positions along axis 0; the positions are a permutation."""
    return op.emit("scatter", [values, places, values], kind="elements", axis=0)


def row_ranks(op: Operation, x: Tensor, columns: int) -> Tensor:
    """Maps rows [n, columns] to numbers [n] in the same (lexicographic) order: ranks each column, then joins columns in pairs."""
    if columns == 0:
        return op.expand(op.constant(np.zeros((), np.int64)), op.shape_of(x, 0, 1))
    while True:
        values, places = ascending(op, x)
        x = scattered(op, places, numbers(op, begins(op, values)))
        if columns == 1:
            return op.reshape(x, [-1])
        odd = op.slice(x, 1, columns - 1, columns) if columns % 2 else None
        whole = columns // 2 * 2
        first, second = (
            op.emit("copy", [x], kind="slice", axes=[1], starts=[i], ends=[whole], steps=[2]) for i in (0, 1)
        )
        pairs = op.map([first, second, op.shape_of(x, 0, 1)], lambda a, b, n: a * n + b)
        x = pairs if odd is None else op.concat([pairs, odd], 1)
        columns = (columns + 1) // 2


@rule("Unique")
def unique(op: Operation) -> list[Tensor]:
    """Returns Y, the first occurrences, the inverse, and the counts. Y is sorted, or in the order of first
    occurrence."""
    x = op.input(0)
    axis, kept = op.attribute("axis"), bool(op.attribute("sorted"))
    if axis is None:
        x = op.reshape(x, [-1])
        axis, key = 0, op.cast(x, "u8") if x.dtype == "bool" else x
    else:
        rank = rank_of(x, "input 0")
        axis = int(axis) % rank
        others = [d for i, d in enumerate(x.shape or ()) if i != axis]
        rest = math.prod(d for d in others if isinstance(d, int))
        if x.shape is None or not all(isinstance(d, int) for d in others):
            raise op.unknown("the size of the compared slices is unknown")
        rows = op.transpose(x, [axis, *(i for i in range(rank) if i != axis)])
        rows = op.reshape(rows, op.concat([op.shape_of(rows, 0, 1), op.constant(np.array([rest], np.int64))], 0))
        key = row_ranks(op, op.cast(rows, "u8") if x.dtype == "bool" else rows, rest)
    values, places = ascending(op, key)
    new = begins(op, values)
    starts = op.reshape(op.emit("nonzero", [new]), [-1])
    group = numbers(op, new)
    first = op.emit("gather", [places, starts], kind="take", axis=0)
    ends = op.concat([op.slice(starts, 0, 1, END), op.shape_of(key, 0, 1)], 0)
    # without elements there is no group but one end, so cut the ends to the number of starts
    ends = op.emit("gather", [ends, op.map([starts], lambda s: s.iota(0), "i64")], kind="take", axis=0)
    counts = op.map([ends, starts], lambda a, b: a - b)
    inverse = scattered(op, places, group)
    if not kept:
        first, order = ascending(op, first)
        counts = op.emit("gather", [counts, order], kind="take", axis=0)
        renamed = scattered(op, order, op.map([order], lambda o: o.iota(0), "i64"))
        inverse = op.emit("gather", [renamed, inverse], kind="take", axis=0)
    return [op.emit("gather", [x, first], kind="take", axis=axis), first, inverse, counts][: len(op.node.output)]


@rule("TfIdfVectorizer")
def tf_idf_vectorizer(op: Operation) -> Tensor:
    """Counts each n-gram of the pool in every row and scales the counts by the weights. Words of an n-gram may be up to
    `skip` apart."""
    if op.has("pool_strings"):
        raise op.unsupported("pool_strings is not supported", "use pool_int64s")
    x = op.cast(op.input(0), "i64")
    rank = rank_of(x, "input 0")
    mode = str(op.attribute("mode"))
    least, most = int(op.attribute("min_gram_length")), int(op.attribute("max_gram_length"))
    skips = int(op.attribute("max_skip_count"))
    pool = np.array(op.attribute("pool_int64s"), np.int64)
    borders = [*op.attribute("ngram_counts"), pool.size]
    indexes = np.array(op.attribute("ngram_indexes"), np.int64)
    weights = op.attribute("weights")
    if mode not in ("TF", "IDF", "TFIDF"):
        raise op.unsupported(f"mode {mode!r} is not supported", "use TF, IDF or TFIDF")
    width = int(indexes.max(initial=-1)) + 1
    if indexes.min(initial=0) < 0 or width > MOST_COLUMNS:
        raise op.unsupported(
            f"ngram_indexes from {indexes.min()} to {width - 1} are out of range", f"use 0 to {MOST_COLUMNS - 1}"
        )
    rows = op.reshape(x, [1, -1]) if rank < 2 else x
    counts: list[Tensor] = []
    targets: list[int] = []
    known = 0  # number of shorter n-grams
    for length in range(1, len(borders)):
        grams = pool[borders[length - 1] : borders[length]]
        grams = grams[: grams.size // length * length].reshape(-1, length)
        targets_here = indexes[known : known + len(grams)]
        known += len(grams)
        if not least <= length <= most or not len(grams):
            continue
        for distance in range(1, 2 if length == 1 else skips + 2):
            words = [
                op.slice(rows, 1, k * distance, END if k == length - 1 else -(length - 1 - k) * distance)
                for k in range(length)
            ]
            words = [op.unsqueeze(w, [2]) for w in words]
            constants = [op.constant(grams[None, None, :, k]) for k in range(length)]

            def equal(*values: Expr) -> Expr:
                found = values[0].eq(values[len(values) // 2])
                for a, b in list(zip(values, values[len(values) // 2 :], strict=False))[1 : len(values) // 2]:
                    found = found & a.eq(b)
                return found.cast("f32")

            hits = op.map([*words, *constants], equal, "f32")
            counts.append(op.reduce(hits, "sum", [1], keep_dims=False))
            targets += [int(t) for t in targets_here]
    shape = op.concat([op.shape_of(rows, 0, 1), op.constant(np.array([width], np.int64))], 0)
    y = op.expand(op.constant(np.zeros((1, 1), np.float32)), shape)
    if counts:
        found = op.concat(counts, 1)
        places = op.expand(op.constant(np.array([targets], np.int64)), op.shape_of(found))
        y = op.emit("scatter", [y, places, found], kind="elements", axis=1, reduction="add")
    factors = np.ones(width, np.float32)
    if weights:
        factors[indexes] = np.array(weights, np.float32)[: indexes.size]  # weights are in the order of the pool
    scale = op.constant(factors)
    if mode == "IDF":
        y = op.map([y, scale], lambda n, w: (n > 0).select(w, 0.0))
    elif mode == "TFIDF":
        y = op.map([y, scale], lambda n, w: n * w)
    return op.reshape(y, [-1]) if rank < 2 else y
