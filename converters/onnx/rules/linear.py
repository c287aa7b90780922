"""Rules of matrix products.
Integer products subtract their zero points by algebra, so that they stay products of 8-bit matrices."""

from __future__ import annotations

import numpy as np

from linnet.converters.onnx.operation import Operation, rank_of
from linnet.converters.onnx.program import FLOATS, REGISTER
from linnet.converters.onnx.registry import rule
from linnet.graph import Tensor


def product(op: Operation, a: Tensor, b: Tensor) -> Tensor:
    """a @ b in an element type that the runtime multiplies; narrower or unsigned integers go through a wider one."""
    if a.dtype in (*FLOATS, "i32", "i64"):
        return op.emit("matmul", [a, b])
    wide = REGISTER[a.dtype]
    return op.cast(op.emit("matmul", [op.cast(a, wide), op.cast(b, wide)]), a.dtype)


@rule("MatMul")
def matmul(op: Operation) -> Tensor:
    return product(op, op.input(0), op.input(1))


@rule("Gemm")
def gemm(op: Operation) -> Tensor:
    """alpha * a @ b + beta * c, with a and b transposed on request."""
    a, b, c = op.input(0), op.input(1), op.optional(2)
    alpha, beta = op.attribute("alpha"), op.attribute("beta")
    dtype = a.dtype
    if dtype not in (*FLOATS, "i32", "i64"):
        a, b = op.cast(a, REGISTER[dtype]), op.cast(b, REGISTER[dtype])
    flags = {"transpose_a": bool(op.attribute("transA")), "transpose_b": bool(op.attribute("transB"))}
    if alpha != 1 and b.data is not None and b.dtype in ("f32", "f64"):
        b, alpha = op.constant((b.data * b.data.dtype.type(alpha)).astype(b.data.dtype)), 1.0
    if c is not None and beta == 0:
        c = None
    if c is not None and alpha == 1 and a.dtype == dtype:
        columns = b.shape[0 if flags["transpose_b"] else 1] if b.rank == 2 and b.shape else None
        shape = c.static_shape
        if shape is not None and columns is not None and shape in ((columns,), (1, columns)):
            bias = op.reshape(c, [shape[-1]])
            if beta != 1:
                bias = op.map([bias], lambda p, v: v * beta)
            return op.emit("matmul", [a, b, bias], **flags)
    y = op.emit("matmul", [a, b], **flags)
    if c is None:
        return op.cast(y if alpha == 1 else op.map([y], lambda p, v: v * alpha), dtype)
    return op.map([y, c], lambda p, v, w: (v if alpha == 1 else v * alpha) + (w if beta == 1 else w * beta), dtype)


def _is_zero(tensor: Tensor | None) -> bool:
    return tensor is None or (tensor.data is not None and not np.any(tensor.data))


def _single(zero: Tensor | None) -> bool:
    """Whether the zero point is a constant, and one number for all columns, as the fast kernels want it."""
    return zero is None or (zero.data is not None and bool(np.all(zero.data == zero.data.reshape(-1)[:1])))


def _i32(op: Operation, tensor: Tensor) -> Tensor:
    return op.map([tensor], lambda p, v: v, "i32")


def as_matrices(op: Operation, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The factors with at least two axes: a 1-D one is a row in front, a column behind. `without_padding` is the way back."""
    if rank_of(a, "input 0") == 1:
        a = op.unsqueeze(a, [0])
    if rank_of(b, "input 1") == 1:
        b = op.constant(b.data[:, None], b.dtype) if b.data is not None else op.unsqueeze(b, [1])
    return a, b


def without_padding(op: Operation, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """A product of `as_matrices(a, b)` in the shape of a @ b."""
    axes = [axis for axis, t in ((-2, a), (-1, b)) if t.rank == 1]
    return op.squeeze(y, axes) if axes else y


def of_rows(op: Operation, parameter: Tensor) -> Tensor:
    """A scale or zero point of the first factor: one, one per row, or one per row of each matrix ([..., rows, 1])."""
    return op.unsqueeze(parameter, [-1]) if parameter.rank == 1 else parameter


def integer_product(op: Operation, a: Tensor, b: Tensor, a_zero: Tensor | None, b_zero: Tensor | None) -> Tensor:
    """(a - a_zero) @ (b - b_zero) in i32 of factors with two axes or more, with zero points per tensor, per row of a, or per
    column of b.

    = a @ b - a_zero * sum(b) - b_zero * sum(a) + k * a_zero * b_zero, exact modulo 2^32.
    """
    from linnet.converters.onnx.quantized import signed
    from linnet.converters.onnx.rules.quantization import stored

    b_rank, a_rank = rank_of(b, "input 1"), rank_of(a, "input 0")
    single = a_zero is None or (a_zero.data is not None and a_zero.data.size == 1)
    if b.data is not None and _single(b_zero):
        # constant weights: their zero points go along with them, and the sums of columns are constants
        zero_value = 0 if b_zero is None or b_zero.data is None else int(b_zero.data.reshape(-1)[0])
        weights = signed(stored(op, b, op.constant(np.full(1, zero_value))))
        y = op.emit("matmul", [stored(op, a, a_zero if single else None), weights], output_dtype="i32")
        if single or a_zero is None:
            return y
        sums = (b.data.astype(np.int64) - zero_value).sum(-2, keepdims=True)
        return op.map([y, of_rows(op, a_zero), op.constant(sums.astype(np.int32))], lambda p, v, z, s: v - z * s)
    y = op.emit("matmul", [stored(op, a, None), stored(op, b, None)], output_dtype="i32")
    if not _is_zero(a_zero):
        assert a_zero is not None
        sums = op.reduce(_i32(op, b), "sum", [b_rank - 2])
        if not _is_zero(b_zero):
            assert b_zero is not None
            known = b.shape is not None and isinstance(b.shape[-2], int)
            length = op.shape_of(b, b_rank - 2, b_rank - 1) if known else op.shape_of(a, a_rank - 1, a_rank)
            length = op.cast(op.reshape(length, []), "i32")
            sums = op.map([sums, b_zero, length], lambda p, s, z, k: s - z * k)
        y = op.map([y, of_rows(op, a_zero), sums], lambda p, v, z, s: v - z * s)
    if not _is_zero(b_zero):
        assert b_zero is not None
        rows = op.reduce(_i32(op, a), "sum", [a_rank - 1])
        y = op.map([y, b_zero, rows], lambda p, v, z, s: v - z * s)
    return y


@rule("MatMulInteger")
def matmul_integer(op: Operation) -> Tensor:
    a, b = op.input(0), op.input(1)
    return without_padding(op, integer_product(op, *as_matrices(op, a, b), op.optional(2), op.optional(3)), a, b)


@rule("QLinearMatMul")
def qlinear_matmul(op: Operation) -> Tensor:
    """The exact i32 product, then one requantizing map: round(y * (a_scale * b_scale / y_scale)) + y_zero."""
    from linnet.converters.onnx.rules.quantization import requantized

    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (op.input(i) for i in range(8))
    known = all(t.data is not None for t in (a_scale, a_zero, b_scale, b_zero, y_scale, y_zero))
    single = all(t.static_shape in ((), (1,)) for t in (a_scale, a_zero))
    columns = b_scale.static_shape in ((), (1,)) or (b_scale.rank == 1 and b.rank == 2)
    flat = 1 in (a.rank, b.rank)
    if known and single and columns and not flat and "f32" == a_scale.dtype == b_scale.dtype == y_scale.dtype:
        from linnet.converters.onnx.rules.quantized_ops import integers, real

        factors = [real(op, a, a_scale, a_zero), real(op, b, b_scale, b_zero, axis=1)]
        return integers(op, op.emit("matmul", factors), y_scale, y_zero, a.dtype)
    y = integer_product(op, *as_matrices(op, a, b), a_zero, b_zero)
    return without_padding(op, requantized(op, y, of_rows(op, a_scale), b_scale, y_scale, y_zero), a, b)


MOST_ROWS = 64  # of a matrix whose determinant is unrolled


@rule("Det")
def det(op: Operation) -> Tensor:
    """Gaussian elimination with partial pivoting, unrolled: the product of the pivots, negative after an odd number of swaps."""
    x = op.input(0)
    rank = rank_of(x, "input 0")
    n = x.shape[-1] if x.shape else None
    if not isinstance(n, int):
        raise op.unknown("the size of the matrices is not known")
    if n > MOST_ROWS:
        raise op.unsupported(f"matrices of {n} rows", f"Det is supported up to {MOST_ROWS}")
    batch = op.shape_of(x, 0, rank - 2)
    a = op.reshape(x, [-1, n, n]) if n else x
    result = op.expand(op.constant(np.ones(()), x.dtype), op.shape_of(a, 0, 1) if n else batch)
    for k in range(n):
        size = op.map([op.slice(a, 2, 0, 1)], lambda p, v: abs(v))
        pivot = op.reduce(size, "argmax", [1])  # [b, 1, 1]
        rows = op.map(
            [op.constant(np.arange(n - k).reshape(1, -1, 1)), pivot],
            lambda p, row, chosen: row.eq(0).select(chosen, row.eq(chosen).select(0, row)),
            "i64",
        )
        a = op.emit("gather", [a, rows], kind="nd", batch_dims=1)  # the chosen row and the first one swapped
        first = op.slice(a, 1, 0, 1)
        top = op.reshape(op.slice(first, 2, 0, 1), [-1])
        swapped = op.reshape(pivot, [-1])
        result = op.map([result, top, swapped], lambda p, r, t, s: r * s.eq(0).select(t, -t))
        if k + 1 < n:
            rest = op.slice(op.slice(a, 1, 1, n - k), 2, 1, n - k)
            left, above = op.slice(op.slice(a, 1, 1, n - k), 2, 0, 1), op.slice(first, 2, 1, n - k)
            a = op.map(
                [rest, left, above, op.slice(first, 2, 0, 1)],
                lambda p, v, below, up, t: t.eq(0).select(v, v - below / t * up),
            )
    return op.reshape(result, batch) if rank > 2 else op.reshape(result, [])
