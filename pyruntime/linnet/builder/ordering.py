"""Functions that order, count and group: sorting, distinct values, positions in a sorted list, sums per segment, bags of
embeddings. They lower to the ops top_k, scatter and gather, which have gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from linnet.builder.generated import cast, copy, cumsum, gather, nonzero, scatter, shape, top_k
from linnet.builder.mapping import pointwise
from linnet.builder.shaping import broadcast_to, concat, expand_dims, reshape, sum
from linnet.clib.arguments import at_least
from linnet.clib.errors import UsageError
from linnet.ir.dtypes import numpy_dtype
from linnet.ir.exact import range_of
from linnet.ir.expr import Expr
from linnet.ir.function import Operators, Tensor
from linnet.ir.program import FLOATS, REGISTER

_FEW = 32  # a list of at most so many values is searched by comparing with all of them


class Unique(NamedTuple):
    """The results of `unique`. Their sizes depend on the data; only `inverse_indices` always has the shape of x."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


def _rank(x: Tensor) -> int:
    if x.shape is None:
        raise UsageError("the rank of the tensor is unknown", code=104, tensor=x.name, hint="reshape it first")
    return len(x.shape)


def _integers(like: Tensor, *values: int) -> Tensor:
    return like.function.constant(np.array(values, np.int64))


def _ordered(x: Operators, axis: int, descending: bool, name: str) -> list[Tensor]:
    tensor = x.tensor()
    rank = _rank(tensor)
    if not -rank <= axis < rank:
        raise UsageError(
            "the tensor does not have this axis", code=104, tensor=tensor.name, expected=f"{-rank} to {rank - 1}",
            got=str(axis),
        )  # fmt: skip
    axis += rank if axis < 0 else 0
    size = (tensor.shape or ())[axis]
    count = _integers(tensor, size) if isinstance(size, int) else shape(tensor, start=axis, end=axis + 1)
    made = top_k(tensor, count, axis=axis, largest=descending, name=name)
    for result in made:
        result.shape = tensor.shape  # also if the sizes are open
    return made


def sort(x: Operators, axis: int = -1, *, descending: bool = False, name: str = "") -> Tensor:
    """The elements in order along an axis. In ascending order, NaN comes last. Gradients go to where the elements
    were."""
    return _ordered(x, axis, descending, name)[0]


def argsort(x: Operators, axis: int = -1, *, descending: bool = False, name: str = "") -> Tensor:
    """The positions (i64) that sort x along an axis. Equal elements stay in their order."""
    return _ordered(x, axis, descending, name)[1]


def unique(x: Operators) -> Unique:
    """Finds the distinct elements of x (numpy.unique_all). The distinct elements are in ascending order. For each of
    them, the result has the position in the flat x where it first occurs, and how often it occurs. For each element of
    x, the result has its position among the distinct elements. NaN equals NaN."""
    flat = reshape(x, [-1])
    values, places = _ordered(cast(flat, dtype="u8") if flat.dtype == "bool" else flat, 0, False, "")
    before = pointwise([values], lambda v: (v.iota(0) - 1).max(0), "i64")

    def begins(value: Expr, other: Expr) -> Expr:
        differ = value.ne(other)
        if value.kind in ("f32", "f64"):
            differ = differ & (value.ne(value) & other.ne(other)).eq(0)
        return differ | value.iota(0).eq(0)

    new = pointwise([values, gather(values, before, kind="elements")], begins, "bool")
    starts = reshape(nonzero(new), [-1])
    numbers = cumsum(cast(new, dtype="i64"), flat.function.constant(np.int64(0))) - 1
    first = gather(places, starts)
    ends = concat([starts[1:], shape(flat)], 0)
    # Without elements there are no values, but one end.
    ends = gather(ends, pointwise([starts], lambda s: s.iota(0), "i64"))
    inverse = scatter(numbers, places, numbers)
    return Unique(gather(flat, first), first, copy([inverse, shape(x.tensor())], kind="reshape")[0], ends - starts)


def searchsorted(values: Operators, x: Operators, *, side: Literal["left", "right"] = "left", name: str = "") -> Tensor:
    """For each element of x, the position (i64) at which it would be inserted into the ascending list `values` [n]:
    before equal values ("left") or after them ("right"). There must be no NaN."""
    table, tensor = values.tensor(), x.tensor()
    if _rank(table) != 1 or side not in ("left", "right"):
        raise UsageError(
            "the values or the side of searchsorted are invalid", code=101, tensor=table.name,
            expected="values of rank 1, and side left or right", got=f"rank {_rank(table)}, side {side!r}",
        )  # fmt: skip
    size = (table.shape or ())[0]
    if not isinstance(size, int) or size <= _FEW:
        column = expand_dims(tensor, _rank(tensor))
        below = pointwise([column, table], lambda v, t: (t < v if side == "left" else t <= v).cast("i64"), "i64")
        return sum(below, -1, name=name)
    place: Tensor = pointwise([tensor], lambda v: v.ne(v).cast("i64") * 0, "i64")
    for bit in reversed(range(size.bit_length())):
        at = pointwise([place], lambda p, step=1 << bit: (p + (step - 1)).min(size - 1))

        def forward(p: Expr, v: Expr, t: Expr, step: int = 1 << bit) -> Expr:
            behind = t < v if side == "left" else t <= v
            return (behind & (p + step <= size)).select(p + step, p)

        place = pointwise([place, tensor, gather(table, at)], forward, "i64", name="" if bit else name)
    return place


def bincount(ids: Operators, length: int, weights: Operators | None = None, *, name: str = "") -> Tensor:
    """Counts how often each number from 0 to length - 1 occurs among the integers `ids` (i64). With weights, adds up
    the weights of its occurrences. A run refuses other ids."""
    at_least("length", length, 0)
    tensor = cast(ids, dtype="i64")
    places = pointwise([reshape(tensor, [-1])], lambda i: (i < 0).select(length, i))
    if weights is None:
        amounts = pointwise([places], lambda i: i * 0 + 1)
    else:
        amounts = reshape(weights, [-1])
    start = tensor.function.constant(np.zeros(length, numpy_dtype(amounts.dtype)))
    return scatter(start, places, amounts, reduction="add", name=name)


def _filled(value: float, dtype: str, rows: int | Tensor, like: Tensor) -> Tensor:
    """A tensor [rows, the other dimensions of `like`...] in which all elements are `value`."""
    number = like.function.constant(np.array(value, numpy_dtype(dtype)))
    rest = (like.shape or ())[1:]
    if isinstance(rows, int) and all(isinstance(d, int) for d in rest):
        return broadcast_to(number, [rows, *(d for d in rest if isinstance(d, int))])
    count = _integers(like, rows) if isinstance(rows, int) else rows
    return copy([number, concat([count, shape(like, start=1)], 0)], kind="expand")[0]


def _segments(x: Tensor, ids: Operators, count: int | Tensor, reduction: str, value: float, name: str = "") -> Tensor:
    """Rows of x combined by id. Rows with negative ids go into an additional row, which is cut off at the end."""
    if isinstance(count, int):
        at_least("count", count, 0)
    more: int | Tensor = count + 1
    limit = _integers(x, count) if isinstance(count, int) else count
    places = pointwise([cast(ids, dtype="i64"), limit], lambda i, n: (i < 0).select(n, (i < n).select(i, i + 1)))
    made = scatter(_filled(value, x.dtype, more, x), expand_dims(places, 1), x, kind="nd", reduction=reduction)
    return copy([made], kind="slice", axis=[0], starts=[0], ends=[-1], name=name)[0]


def _amounts(x: Tensor, ids: Operators, count: int | Tensor) -> Tensor:
    """How many rows each segment has, f32 [count, 1, ...], to broadcast with the segments of x."""
    ones = pointwise([cast(ids, dtype="i64")], lambda i: (i * 0 + 1).cast("f32"), "f32")
    return expand_dims(_segments(ones, ids, count, "add", 0), list(range(1, _rank(x))))


def segment_sum(x: Operators, ids: Operators, count: int | Tensor, *, name: str = "") -> Tensor:
    """Sums of the rows of x with equal ids, [count, ...]: row i is added to sum ids[i]. Rows with negative ids are left out;
    a run refuses ids from `count` on. count: a number, or an i64 tensor [1]."""
    return _segments(x.tensor(), ids, count, "add", 0, name)


def segment_mean(x: Operators, ids: Operators, count: int | Tensor, *, name: str = "") -> Tensor:
    """Computes the mean of each segment, as segment_sum computes sums. A segment without rows gives 0."""
    tensor = x.tensor()
    sums, amounts = _segments(tensor, ids, count, "add", 0), _amounts(tensor, ids, count)
    made: Tensor = pointwise([sums, amounts], lambda s, n: s / n.max(1.0), tensor.dtype, name=name)
    return made


def segment_max(x: Operators, ids: Operators, count: int | Tensor, *, name: str = "") -> Tensor:
    """Computes the largest value of each segment, as segment_sum computes sums. A segment without rows gives 0."""
    return _extreme(x.tensor(), ids, count, "max", name)


def segment_min(x: Operators, ids: Operators, count: int | Tensor, *, name: str = "") -> Tensor:
    """Computes the smallest value of each segment, as segment_sum computes sums. A segment without rows gives 0."""
    return _extreme(x.tensor(), ids, count, "min", name)


def _extreme(x: Tensor, ids: Operators, count: int | Tensor, kind: str, name: str) -> Tensor:
    least, greatest = (-np.inf, np.inf) if REGISTER[x.dtype] in FLOATS else range_of(x.dtype)
    found = _segments(x, ids, count, kind, least if kind == "max" else greatest)
    made: Tensor = pointwise([found, _amounts(x, ids, count)], lambda v, n: n.eq(0.0).select(0, v), x.dtype, name=name)
    return made


def embedding_bag(
    table: Operators,
    ids: Operators,
    offsets: Operators | None = None,
    *,
    mode: Literal["sum", "mean", "max"] = "sum",
    weights: Operators | None = None,
    name: str = "",
) -> Tensor:
    """Returns one row per bag of ids: the sum, mean or maximum of the rows of `table` [n, d] that the bag names.

    ids: either [total], the ids of all bags one after another, or [bags, k], where negative ids mark empty places.
    offsets: for ids [total], the position where each bag begins, [bags] (ascending; the first is 0). weights: a factor
    per id; only for "sum". An empty bag gives 0.
    """
    combine: dict[str, Callable[..., Tensor]] = {"sum": segment_sum, "mean": segment_mean, "max": segment_max}
    rows = flat = ids.tensor()
    expected = 1 if offsets is not None else 2
    if mode not in combine or _rank(rows) != expected or (weights is not None and mode != "sum"):
        raise UsageError(
            "the ids, mode and weights of embedding_bag contradict each other", code=101, tensor=rows.name,
            expected=f"ids of rank {expected} {'with' if expected == 1 else 'without'} offsets, a mode of sum, mean or max, and "
            "weights only with mode sum",
            got=f"rank {_rank(rows)}, mode {mode!r}{', weights' if weights is not None else ''}",
        )  # fmt: skip
    if offsets is None:
        flat, count = reshape(rows, [-1]), shape(rows, start=0, end=1)
        bag = pointwise([cast(rows, dtype="i64")], lambda i: (i < 0).select(-1, i.iota(0)), "i64")
        bags = reshape(bag, [-1])
        flat = pointwise([flat], lambda i: i.max(0))
    else:
        begins = cast(offsets, dtype="i64")
        count, total = shape(begins), shape(rows)
        zero = rows.function.constant(np.int64(0))
        marks = copy([zero, total + 1], kind="expand")[0]
        marks = scatter(marks, begins, pointwise([begins], lambda i: i * 0 + 1), reduction="add")
        bags = (cumsum(marks, zero) - 1)[:-1]
    found = gather(table, flat, from_end=False)
    if weights is not None:
        found = found * expand_dims(reshape(weights, [-1]), 1)
    return combine[mode](found, bags, count, name=name)
