"""Rules for spectra: DFT and STFT as products with a matrix of roots of unity, and the mel scale.
The last axis has one component for real signals and two for complex ones."""

from __future__ import annotations

import numpy as np

from linnet.converters.onnx.operation import Operation, dtype_name, rank_of
from linnet.converters.onnx.program import Expr, pointwise
from linnet.converters.onnx.registry import rule
from linnet.converters.onnx.rules.movement import as_i64
from linnet.ir.dtypes import numpy_dtype
from linnet.ir.function import Tensor

MOST_MATRIX = 1 << 24  # elements; every run computes larger matrices


def _dft(op: Operation, axis: int | Tensor) -> Tensor:
    x = op.input(0)
    inverse, onesided = bool(op.attribute("inverse")), bool(op.attribute("onesided"))
    rank = rank_of(x, "input 0")
    parts = x.shape[-1] if x.shape else None
    if parts not in (1, 2):
        raise op.unknown("the last dimension of the signal is unknown, or is not 1 (real) or 2 (complex)")
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
    if real_out:  # the other half is conjugate: every bin except the first (and the middle one) counts twice
        length = given[0] if given else 2 * (extent - 1)
        used = min(extent, length // 2 + 1)
        x = op.slice(x, axis, 0, used) if used < extent else x
    bins = length // 2 + 1 if onesided and not inverse else length
    elements = used * bins * (2 if parts == 1 or real_out else 4)
    if elements > MOST_MATRIX or not op.may_make(elements):
        return _computed(op, op.input(0), parts, axis, inverse, onesided)
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
    """The transform if the axis (1-D) or the length is known only at run time. Nodes then also compute the matrix, in
    f64."""
    rank = rank_of(x, "input 0")

    def number(value: int) -> Tensor:
        return op.constant(np.array([value], np.int64))

    def piece(t: Tensor, start: Tensor, end: Tensor) -> Tensor:
        return op.emit("copy", [t, start, end, number(0), number(1)], kind="slice")

    dims = op.shape_of(x)
    at = number(axis) if isinstance(axis, int) else op.map([axis], lambda a: (a < 0).select(a + rank, a))
    after = op.map([at], lambda a: a + 1)
    head, extent, tail = (piece(dims, a, b) for a, b in ((number(0), at), (at, after), (after, number(rank - 1))))
    real_out = inverse and onesided
    if (given := op.optional(1)) is not None:
        length = op.reshape(op.cast(given, "i64"), [1])
    else:
        length = op.map([extent], lambda n: (n - 1) * 2) if real_out else extent
    half = op.map([length], lambda n: n / 2 + 1)
    used = op.map([extent, half if real_out else length], lambda n, limit: n.min(limit))
    bins = half if onesided and not inverse else length
    outer, inner = op.reduce(head, "prod", [0]), op.reduce(tail, "prod", [0])
    # [outer, n, inner, part] to [outer, inner, part, n], of which `used` are read
    x = op.emit("copy", [x, op.concat([outer, extent, inner, number(parts)], 0)], kind="reshape", allow_zero=True)
    x = op.emit("copy", [x, number(0), used, number(1), number(1)], kind="slice")
    x = op.transpose(x, [0, 2, 3, 1])
    width = op.map([used], lambda n: n * parts)
    x = op.emit("copy", [x, op.concat([outer, inner, width], 0)], kind="reshape", allow_zero=True)

    def count(limit: Tensor, shape: list[int]) -> Tensor:
        steps = op.emit("range", [op.reshape(t, []) for t in (number(0), limit, number(1))])
        return op.reshape(steps, shape)

    rows, columns = count(used, [-1, 1]), count(bins, [1, -1])

    def root(function: str, sign: float) -> Tensor:
        def body(i: Expr, j: Expr, n: Expr) -> Expr:
            turn = ((i * j) % n).cast("f64") * (2 * np.pi) / n.cast("f64")
            value = turn.unary(function) * sign
            if real_out:  # the other half is conjugate: every bin except the first and the middle one counts twice
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


@rule("STFT", since=17)
def stft(op: Operation) -> Tensor:
    """Cuts the signal into frames that begin every `step` samples, and multiplies them by the window and by the matrix
    of roots of unity."""
    x, window = op.input(0), op.optional(2)
    if rank_of(x, "input 0") == 2:
        x = op.unsqueeze(x, [2])
    parts = x.shape[2] if x.shape else None
    if parts not in (1, 2):
        raise op.unknown("the last dimension of the signal is unknown, or is not 1 (real) or 2 (complex)")
    onesided = bool(op.attribute("onesided")) and parts == 1
    step = op.reshape(as_i64(op, op.input(1)), [])
    samples = op.reshape(op.shape_of(x, 1, 2), [])
    if op.optional(3) is not None:
        length = op.reshape(as_i64(op, op.input(3)), [])
    else:
        length = samples if window is None else op.reshape(op.shape_of(window), [])
    zero, one = op.constant(np.int64(0)), op.constant(np.int64(1))
    ends = op.map([samples, length], lambda n, m: n - m + 1)
    within = op.emit("range", [zero, length, one])
    # A step below 1 becomes 0, which the op refuses when it runs.
    starts = op.unsqueeze(op.emit("range", [zero, ends, op.map([step], lambda s: s.max(0))]), [1])
    places = op.map([starts, within], lambda f, i: f + i)
    signal = op.emit("gather", [x, places], kind="take", axis=1)  # [batch, frames, length, parts]
    if window is not None:
        signal = op.map([signal, op.unsqueeze(window, [1])], lambda v, w: v * w)
    bins = op.map([length], lambda n: n.binary("div", 2) + 1) if onesided else length
    each = op.unsqueeze(op.emit("range", [zero, bins, one]), [1])  # [bins, 1]

    def roots(k: Expr, i: Expr, n: Expr) -> tuple[Expr, Expr]:
        angle = (k * i).binary("mod", n).cast("f64") * (-2 * np.pi) / n.cast("f64")
        return angle.cos(), angle.sin()

    matrices = pointwise(op, [each, within, length], roots, [x.dtype, x.dtype])  # [bins, length] each

    def products(part: int) -> list[Tensor]:
        """The products of one part of the signal with cosines and with sines, [batch, frames, bins, 1] each. All frames
        are rows of one matmul."""
        rows = op.squeeze(op.slice(signal, 3, part, part + 1), [3])
        return [op.unsqueeze(op.emit("matmul", [rows, m], transpose_b=True), [3]) for m in matrices]

    y = products(0)
    if parts == 2:
        c, s = products(1)
        y = [op.map([y[0], s], lambda a, b: a - b), op.map([y[1], c], lambda a, b: a + b)]
    return op.concat(y, 3)


@rule("MelWeightMatrix", since=17)
def mel_weight_matrix(op: Operation) -> Tensor:
    """Triangles [spectrum bins, mel bins] with corners at equal distances on the mel scale (O'Shaughnessy 1987)."""
    dtype = dtype_name(op.attribute("output_datatype"), "the result")
    operands = [op.reshape(op.input(i), []) for i in range(5)]
    operands = [as_i64(op, t) for t in operands[:3]] + [op.cast(t, "f64") for t in operands[3:]]
    zero, one = op.constant(np.int64(0)), op.constant(np.int64(1))
    bins = op.map([operands[1]], lambda n: n.binary("div", 2) + 1)
    rows = op.unsqueeze(op.emit("range", [zero, bins, one]), [1])
    columns = op.emit("range", [zero, operands[0], one])

    def corner(i: Expr, mels: Expr, length: Expr, rate: Expr, low: Expr, high: Expr) -> Expr:
        """The spectrum bin at corner i."""
        first, last = (((hertz / 700 + 1).log() * (2595 / np.log(10))) for hertz in (low, high))
        mel = i.cast("f64") * ((last - first) / (mels + 2).cast("f64")) + first
        hertz = (i.other(10, "f64").binary("pow", mel / 2595) - 1) * 700
        return ((length + 1).cast("f64") * hertz / rate.cast("f64")).floor()

    def weight(row: Expr, column: Expr, *given: Expr) -> Expr:
        left, middle, right = (corner(column + i, *given) for i in range(3))
        at = row.cast("f64")
        rising = (
            (middle - left)
            .eq(0)
            .select(
                at.eq(middle).select(row.other(1, "f64"), 0.0),
                ((at >= left) & (at <= middle)).select((at - left) / (middle - left), 0.0),
            )
        )
        falling = (at >= middle) & (at < right)
        return falling.select((right - at) / (right - middle), rising)

    return op.map([rows, columns, *operands], weight, dtype)
