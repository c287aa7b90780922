"""The rule of DFT: a product with the matrix of its roots of unity, a constant where axis and length are known.
Real signals have one component, complex ones two, along the last axis."""

from __future__ import annotations

import numpy as np

from linnet.converters.onnx.operation import Operation, rank_of
from linnet.converters.onnx.program import Expr, Values
from linnet.converters.onnx.registry import rule
from linnet.graph import Tensor, numpy_dtype


def _dft(op: Operation, axis: int | Tensor) -> Tensor:
    x = op.input(0)
    inverse, onesided = bool(op.attribute("inverse")), bool(op.attribute("onesided"))
    rank = rank_of(x, "input 0")
    parts = x.shape[-1] if x.shape else None
    if parts not in (1, 2):
        raise op.unknown("whether the signal is real or complex (the last dimension) is not known")
    if isinstance(axis, int):
        axis += rank if axis < 0 else 0
    extent = x.shape[axis] if x.shape and isinstance(axis, int) else None
    if not isinstance(axis, int) or not isinstance(extent, int) or (op.optional(1) is not None and op.ints(1) is None):
        return _computed(op, x, parts, axis, inverse, onesided)
    length = extent
    if (given := op.ints(1)) is not None:
        length = given[0]
    if length < extent:
        x = op.slice(x, axis, 0, length)
    used = min(extent, length)
    real_out = inverse and onesided
    if real_out:  # the other half is the conjugate: every bin but the first (and the middle one) counts twice
        length = given[0] if given else 2 * (extent - 1)
        used = min(extent, length // 2 + 1)
        x = op.slice(x, axis, 0, used) if used < extent else x
    bins = length // 2 + 1 if onesided and not inverse else length
    angle = 2 * np.pi / length * np.outer(np.arange(used), np.arange(bins))
    angle = angle if inverse else -angle
    cos, sin = np.cos(angle), np.sin(angle)
    if inverse:
        cos, sin = cos / length, sin / length
    if real_out:
        weight = np.full((used, 1), 2.0)
        weight[0] = 1
        if length % 2 == 0 and used == length // 2 + 1:
            weight[-1] = 1
        matrix = np.concatenate([cos * weight, -sin * weight], 0)
    elif parts == 1:
        matrix = np.concatenate([cos, sin], 1)
    else:
        matrix = np.block([[cos, sin], [-sin, cos]])
    outer = [i for i in range(rank) if i not in (axis, rank - 1)]
    x = op.transpose(x, [*outer, rank - 1, axis])  # [..., part, n]
    merge = op.concat(
        [op.shape_of(x, 0, rank - 2), op.constant(np.array([used * (1 if parts == 1 else 2)], np.int64))], 0
    )
    y = op.emit("matmul", [op.reshape(x, merge), op.constant(matrix.astype(numpy_dtype(op.input(0).dtype)))])
    results = 1 if real_out else 2
    split = op.concat([op.shape_of(y, 0, rank - 2), op.constant(np.array([results, bins], np.int64))], 0)
    y = op.reshape(y, split)
    back = [*outer, rank - 1, axis]
    return op.transpose(y, [back.index(i) for i in range(rank)])


def _computed(op: Operation, x: Tensor, parts: int, axis: int | Tensor, inverse: bool, onesided: bool) -> Tensor:
    """The transform where axis (1-D) or length come with the run: its matrix is computed too, in f64."""
    rank = rank_of(x, "input 0")

    def number(value: int) -> Tensor:
        return op.constant(np.array([value], np.int64))

    def piece(t: Tensor, start: Tensor, end: Tensor) -> Tensor:
        return op.emit("copy", [t, start, end, number(0), number(1)], kind="slice")

    dims = op.shape_of(x)
    at = number(axis) if isinstance(axis, int) else op.map([axis], lambda p, a: (a < 0).select(a + rank, a))
    after = op.map([at], lambda p, a: a + 1)
    head, extent, tail = (piece(dims, a, b) for a, b in ((number(0), at), (at, after), (after, number(rank - 1))))
    real_out = inverse and onesided
    if (given := op.optional(1)) is not None:
        length = op.reshape(op.cast(given, "i64"), [1])
    else:
        length = op.map([extent], lambda p, n: (n - 1) * 2) if real_out else extent
    half = op.map([length], lambda p, n: n / 2 + 1)
    used = op.map([extent, half if real_out else length], lambda p, n, limit: n.min(limit))
    bins = half if onesided and not inverse else length
    outer, inner = op.reduce(head, "prod", [0]), op.reduce(tail, "prod", [0])
    # [outer, n, inner, part] to [outer, inner, part, n], of which `used` are read
    x = op.emit("copy", [x, op.concat([outer, extent, inner, number(parts)], 0)], kind="reshape", allow_zero=True)
    x = op.emit("copy", [x, number(0), used, number(1), number(1)], kind="slice")
    x = op.transpose(x, [0, 2, 3, 1])
    width = op.map([used], lambda p, n: n * parts)
    x = op.emit("copy", [x, op.concat([outer, inner, width], 0)], kind="reshape", allow_zero=True)

    def count(limit: Tensor, shape: list[int]) -> Tensor:
        steps = op.emit("range", [op.reshape(t, []) for t in (number(0), limit, number(1))])
        return op.reshape(steps, shape)

    rows, columns = count(used, [-1, 1]), count(bins, [1, -1])

    def root(function: str, sign: float) -> Tensor:
        def body(p: Values, i: Expr, j: Expr, n: Expr) -> Expr:
            turn = ((i * j) % n).cast("f64") * (2 * np.pi) / n.cast("f64")
            value = turn.unary(function) * sign
            if real_out:  # the other half is the conjugate: every bin but the first and the middle one counts twice
                value = value * (i.eq(0) | (i * 2).eq(n)).select(1.0, 2.0).cast("f64")
            return value / n.cast("f64") if inverse else value

        return op.map([rows, columns, length], body, op.input(0).dtype)

    direction = 1.0 if inverse else -1.0
    cos = root("cos", 1)
    if real_out:
        matrix = op.concat([cos, root("sin", -1)], 0)
    else:
        matrix = op.concat([cos, root("sin", direction)], 1)
        if parts == 2:
            matrix = op.concat([matrix, op.concat([root("sin", -direction), cos], 1)], 0)
    results = 1 if real_out else 2
    y = op.emit("matmul", [x, matrix])
    y = op.emit("copy", [y, op.concat([outer, inner, number(results), bins], 0)], kind="reshape", allow_zero=True)
    target = op.concat([head, bins, tail, number(results)], 0)
    y = op.emit("copy", [op.transpose(y, [0, 3, 1, 2]), target], kind="reshape", allow_zero=True)
    if y.rank is None:
        y.shape = (None,) * rank
    return y


@rule("DFT", since=17)
def dft_by_attribute(op: Operation) -> Tensor:
    return _dft(op, op.attribute("axis"))


@rule("DFT", since=20)
def dft(op: Operation) -> Tensor:
    axis = -2
    if (given := op.optional(2)) is not None:
        known = op.ints(2)
        return _dft(op, known[0] if known else op.reshape(op.cast(given, "i64"), [1]))
    return _dft(op, axis)
