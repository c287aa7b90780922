"""Rules for matrix products. Zero points of integer products are subtracted after the product, so that the product
itself is one of 8-bit matrices."""

from __future__ import annotations

import numpy as np

from linnet.converters.onnx.integers import (
    as_matrices,
    integer_product,
    integers,
    of_rows,
    real,
    requantized,
    without_padding,
)
from linnet.converters.onnx.operation import Operation, rank_of
from linnet.converters.onnx.program import FLOATS, REGISTER
from linnet.converters.onnx.registry import rule
from linnet.ir.function import Tensor


def product(op: Operation, a: Tensor, b: Tensor) -> Tensor:
    """a @ b in an element type that the runtime can multiply. Narrower or unsigned integers use a wider type."""
    if a.dtype in (*FLOATS, "i32", "i64"):
        return op.emit("matmul", [a, b])
    wide = REGISTER[a.dtype]
    return op.cast(op.emit("matmul", [op.cast(a, wide), op.cast(b, wide)]), a.dtype)


@rule("MatMul")
def matmul(op: Operation) -> Tensor:
    return product(op, op.input(0), op.input(1))


@rule("Gemm")
def gemm(op: Operation) -> Tensor:
    """alpha * a @ b + beta * c, with a and b optionally transposed."""
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
                bias = op.map([bias], lambda v: v * beta)
            return op.emit("matmul", [a, b, bias], **flags)
    y = op.emit("matmul", [a, b], **flags)
    if c is None:
        return op.cast(y if alpha == 1 else op.map([y], lambda v: v * alpha), dtype)
    return op.map([y, c], lambda v, w: (v if alpha == 1 else v * alpha) + (w if beta == 1 else w * beta), dtype)


@rule("MatMulInteger")
def matmul_integer(op: Operation) -> Tensor:
    a, b = op.input(0), op.input(1)
    return without_padding(op, integer_product(op, *as_matrices(op, a, b), op.optional(2), op.optional(3)), a, b)


@rule("QLinearMatMul")
def qlinear_matmul(op: Operation) -> Tensor:
    """The exact i32 product, then one requantizing map: round(y * (a_scale * b_scale / y_scale)) + y_zero."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (op.input(i) for i in range(8))
    known = all(t.data is not None for t in (a_scale, a_zero, b_scale, b_zero, y_scale, y_zero))
    single = all(t.static_shape in ((), (1,)) for t in (a_scale, a_zero))
    columns = b_scale.static_shape in ((), (1,)) or (b_scale.rank == 1 and b.rank == 2)
    flat = 1 in (a.rank, b.rank)
    if known and single and columns and not flat and "f32" == a_scale.dtype == b_scale.dtype == y_scale.dtype:
        factors = [real(op, a, a_scale, a_zero), real(op, b, b_scale, b_zero, axis=1)]
        return integers(op, op.emit("matmul", factors), y_scale, y_zero, a.dtype)
    y = integer_product(op, *as_matrices(op, a, b), a_zero, b_zero)
    return without_padding(op, requantized(op, y, of_rows(op, a_scale), b_scale, y_scale, y_zero), a, b)


MOST_ROWS = 64  # limit for unrolled determinants


@rule("Det")
def det(op: Operation) -> Tensor:
    """Unrolled Gaussian elimination with partial pivoting: the product of the pivots, negated for an odd number of swaps."""
    x = op.input(0)
    rank = rank_of(x, "input 0")
    n = x.shape[-1] if x.shape else None
    if not isinstance(n, int):
        raise op.unknown("the size of the matrices is unknown")
    if n > MOST_ROWS:
        raise op.unsupported(f"the matrices have {n} rows; Det supports up to {MOST_ROWS}", "use smaller matrices")
    batch = op.shape_of(x, 0, rank - 2)
    a = op.reshape(x, [-1, n, n]) if n else x
    result = op.expand(op.constant(np.ones(()), x.dtype), op.shape_of(a, 0, 1) if n else batch)
    for k in range(n):
        size = op.map([op.slice(a, 2, 0, 1)], abs)
        pivot = op.reduce(size, "argmax", [1])  # [b, 1, 1]
        rows = op.map(
            [op.constant(np.arange(n - k).reshape(1, -1, 1)), pivot],
            lambda row, chosen: row.eq(0).select(chosen, row.eq(chosen).select(0, row)),
            "i64",
        )
        a = op.emit("gather", [a, rows], kind="nd", batch_dims=1)  # swaps the chosen row and the first one
        first = op.slice(a, 1, 0, 1)
        top = op.reshape(op.slice(first, 2, 0, 1), [-1])
        swapped = op.reshape(pivot, [-1])
        result = op.map([result, top, swapped], lambda r, t, s: r * s.eq(0).select(t, -t))
        if k + 1 < n:
            rest = op.slice(op.slice(a, 1, 1, n - k), 2, 1, n - k)
            left, above = op.slice(op.slice(a, 1, 1, n - k), 2, 0, 1), op.slice(first, 2, 1, n - k)
            a = op.map(
                [rest, left, above, op.slice(first, 2, 0, 1)],
                lambda v, below, up, t: t.eq(0).select(v, v - below / t * up),
            )
    return op.reshape(result, batch) if rank > 2 else op.reshape(result, [])
