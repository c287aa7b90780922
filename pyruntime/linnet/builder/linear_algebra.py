"""Linear algebra over the last two axes: solve, inverse, cholesky, qr, svd, eigh. If all operands are constants, NumPy computes
the result while the graph is built. For small matrices known only in the run, solve, inverse, cholesky and qr consist of
ordinary nodes, a few per column, with gradients. Larger matrices, and functions that would iterate in the run, are refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from linnet.builder.elementwise import sqrt
from linnet.builder.generated import copy, matmul
from linnet.builder.mapping import pointwise
from linnet.builder.shaping import argmax, broadcast_to, concat, matrix_transpose, one_hot, sum
from linnet.clib.errors import GraphError, UsageError
from linnet.ir.dtypes import numpy_dtype
from linnet.ir.expr import Expr
from linnet.ir.function import Operators, Tensor

MOST_COLUMNS = 32  # most columns of a matrix that is known only in the run; each column takes about eight nodes
Array = npt.NDArray[np.float64]


def _matrix(x: Operators, what: str, square: bool = True) -> Tensor:
    tensor = x.tensor()
    shape = tensor.shape or ()
    if len(shape) < 2 or (square and shape[-1] != shape[-2]) or tensor.dtype not in ("f32", "f64"):
        raise UsageError(
            f"{what} takes {'square ' if square else ''}matrices", code=104, tensor=tensor.name,
            expected=f"f32 or f64, [..., n, {'n' if square else 'm'}]", got=f"{tensor.dtype} {tensor.shape}",
        )  # fmt: skip
    return tensor


def _columns(x: Tensor, what: str) -> int:
    """The number of columns of a matrix that is known only in the run."""
    size = (x.shape or ())[-1]
    if not isinstance(size, int) or size > MOST_COLUMNS:
        raise GraphError(
            f"{what} of a matrix that is not a constant is limited to small sizes", code=301, tensor=x.name,
            expected=f"at most {MOST_COLUMNS} columns, because each column adds nodes to the graph", got=f"shape {x.shape}",
            hint="compute the result outside the graph and feed it, or make the matrix a constant",
        )  # fmt: skip
    return size


def _computed(like: Tensor, function: Callable[..., object], *constants: Tensor) -> list[Tensor]:
    """The results of a NumPy function applied to constants, computed in f64."""
    values = [np.asarray(c.data, np.float64) for c in constants]
    try:
        made = function(*values)
    except np.linalg.LinAlgError as error:
        raise GraphError(
            "NumPy cannot compute this for the constant", code=301, tensor=like.name, got=str(error)
        ) from error
    parts = made if isinstance(made, tuple) else (made,)
    dtype = numpy_dtype(like.dtype)
    return [like.function.constant(np.ascontiguousarray(part, dtype)) for part in parts]


def _at(x: Tensor, row: int | None, column: int | None) -> Tensor:
    """A row, a column or an element of the matrices, with both axes kept."""
    places = {-2: row, -1: column}
    axes = [axis for axis, place in places.items() if place is not None]
    starts = [place for place in places.values() if place is not None]
    return copy([x], kind="slice", axis=axes, starts=starts, ends=[s + 1 for s in starts])[0]


def _eye(a: Tensor, columns: int) -> Tensor:
    """One identity matrix for each matrix of `a`."""
    shape = a.static_shape
    if shape is None:
        raise GraphError(
            "the inverse of a batch of unknown size is not supported", code=301, tensor=a.name,
            expected="a known shape", got=f"shape {a.shape}", hint="use solve with your own right-hand sides",
        )  # fmt: skip
    return broadcast_to(a.function.constant(np.eye(columns, dtype=numpy_dtype(a.dtype))), list(shape))


def solve(a: Operators, b: Operators, *, name: str = "") -> Tensor:
    """x with a @ x = b, for square matrices a [..., n, n] and right-hand sides b [..., n, m] (numpy.linalg.solve).
    Elimination with partial pivoting; for a singular matrix, a run gives infinities or NaN."""
    left, right = _matrix(a, "solve"), _matrix(b, "solve", square=False)
    if left.data is not None and right.data is not None:
        return _computed(left, np.linalg.solve, left, right)[0]
    if left.data is not None:
        return matmul(_computed(left, np.linalg.inv, left)[0], right, name=name)
    n, rank = _columns(left, "solve"), len(left.shape or ())
    if len(right.shape or ()) != rank:
        raise UsageError(
            "the operands of solve differ in rank", code=104, tensor=right.name, expected=f"rank {rank}",
            got=f"shape {right.shape}",
        )  # fmt: skip
    made = concat([left, right], rank - 1)
    for j in range(n):
        size = pointwise([_at(made, None, j)], lambda v, j=j: (v.iota(rank - 2) < j).select(-1.0, abs(v)), left.dtype)
        chosen = one_hot(argmax(size, rank - 2, keep_dims=True), n, left.dtype)  # [..., 1, 1, n]
        mask = matrix_transpose(copy([chosen], kind="squeeze", axis=[rank - 2])[0])
        pivot = sum(mask * made, -2, keep_dims=True)

        def swap(v: Expr, m: Expr, p: Expr, q: Expr, j: int = j) -> Expr:
            return v.iota(rank - 2).eq(j).select(p, m.eq(1.0).select(q, v))

        made = pointwise([made, mask, pivot, _at(made, j, None)], swap, left.dtype)
        row = _at(made, j, None) / _at(made, j, j)
        made = pointwise(
            [made, row, _at(made, None, j)],
            lambda v, r, c, j=j: v.iota(rank - 2).eq(j).select(r, v - c * r), left.dtype,
        )  # fmt: skip
    return copy([made], kind="slice", axis=[-1], starts=[n], ends=[1 << 62], name=name)[0]


def inverse(a: Operators, *, name: str = "") -> Tensor:
    """The inverse of square matrices (numpy.linalg.inv), computed as by `solve`."""
    tensor = _matrix(a, "inverse")
    if tensor.data is not None:
        return _computed(tensor, np.linalg.inv, tensor)[0]
    return solve(tensor, _eye(tensor, _columns(tensor, "inverse")), name=name)


def cholesky(a: Operators, *, name: str = "") -> Tensor:
    """The lower triangular L with a = L @ L^T, for symmetric positive definite matrices (numpy.linalg.cholesky). Only
    the lower half of `a` is read. For other matrices, a run gives NaN."""
    tensor = _matrix(a, "cholesky")
    if tensor.data is not None:
        return _computed(tensor, np.linalg.cholesky, tensor)[0]
    n, rank, rest, columns = _columns(tensor, "cholesky"), len(tensor.shape or ()), tensor, []
    for j in range(n):
        pivot = sqrt(_at(rest, j, j))
        column = pointwise(
            [_at(rest, None, j), pivot],
            lambda v, p, j=j: (v.iota(rank - 2) < j).select(0.0, v / p), tensor.dtype,
        )  # fmt: skip
        columns.append(column)
        if j + 1 < n:
            rest = rest - column * matrix_transpose(column)
    return concat(columns, rank - 1, name=name)


def qr(a: Operators) -> tuple[Tensor, Tensor]:
    """q [..., m, n] with orthonormal columns and the upper triangular r [..., n, n] with a = q @ r, for m >= n. The diagonal of
    r is positive (numpy.linalg.qr leaves its sign open)."""
    tensor = _matrix(a, "qr", square=False)
    m, n = (tensor.shape or ())[-2:]
    if isinstance(m, int) and isinstance(n, int) and m < n:
        raise UsageError(
            "qr takes matrices with at least as many rows as columns", code=104, tensor=tensor.name, got=f"{m} x {n}"
        )
    if tensor.data is not None:

        def positive(value: Array) -> tuple[Array, Array]:
            q, r = np.linalg.qr(value)
            sign = np.where(np.diagonal(r, axis1=-2, axis2=-1) < 0, -1.0, 1.0)
            return q * sign[..., None, :], r * sign[..., :, None]

        q, r = _computed(tensor, positive, tensor)
        return q, r
    count, rank = _columns(tensor, "qr"), len(tensor.shape or ())
    done: list[Tensor] = []
    for j in range(count):
        column = _at(tensor, None, j)
        for _ in range(2):  # a second time, because rounding leaves parts of the other columns
            for other in done:
                column = column - other * sum(other * column, -2, keep_dims=True)
        done.append(column / sqrt(sum(column * column, -2, keep_dims=True)))
    whole = concat(done, rank - 1)
    upper = matmul(matrix_transpose(whole), tensor)
    zero: Tensor = pointwise([upper], lambda v: (v.iota(rank - 1) < v.iota(rank - 2)).select(0.0, v), tensor.dtype)
    return whole, zero


def _refused(x: Tensor, what: str) -> GraphError:
    return GraphError(
        f"{what} of a matrix that is not a constant is not supported", code=301, tensor=x.name,
        expected="a constant, so that NumPy computes the result while the graph is built",
        got="a value that is computed at run time",
        hint="compute it outside the graph and feed the result, because the number of iterations depends on the data",
    )  # fmt: skip


def svd(a: Operators) -> tuple[Tensor, Tensor, Tensor]:
    """u, s, vh with a = u @ diag(s) @ vh (numpy.linalg.svd with full_matrices=False). `a` must be a constant."""
    tensor = _matrix(a, "svd", square=False)
    if tensor.data is None:
        raise _refused(tensor, "svd")
    u, s, v = _computed(tensor, lambda value: tuple(np.linalg.svd(value, full_matrices=False)), tensor)
    return u, s, v


def eigh(a: Operators) -> tuple[Tensor, Tensor]:
    """The eigenvalues in ascending order and the eigenvectors (columns) of a symmetric constant (numpy.linalg.eigh)."""
    tensor = _matrix(a, "eigh")
    if tensor.data is None:
        raise _refused(tensor, "eigh")
    values, vectors = _computed(tensor, lambda value: tuple(np.linalg.eigh(value)), tensor)
    return values, vectors
