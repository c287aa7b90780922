"""linnet.ops beyond single nodes (sorting, counting, segments, einsum, functions along an axis, Fourier transforms): values
against NumPy, with fixed and with open sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(7)
X = RNG.permutation(60).reshape(3, 4, 5).astype(np.float64) / 10 - 2.5
V = RNG.integers(0, 5, 17)
ROWS = RNG.standard_normal((6, 3))
IDS = np.array([2, 0, -1, 2, 4, 0])
NAN = np.array([2.0, np.nan, -1, 2, np.nan, 0])


def values(build: Callable[..., Any], *arrays: Array, opened: bool = False) -> list[Array]:
    """What the function gives for these arrays. opened: without known sizes."""
    graph = linnet.Graph()
    inputs = []
    for i, array in enumerate(arrays):
        shape = tuple(f"d{i}{a}" for a in range(array.ndim)) if opened else array.shape
        inputs.append(
            graph.placeholder(f"x{i}", shape, {"float64": "f64", "float32": "f32", "int64": "i64"}[str(array.dtype)])
        )
    made = build(*inputs)
    results = made if isinstance(made, tuple) else (made,)
    graph.signature("infer", {t.name: t for t in inputs}, {f"y{i}": t for i, t in enumerate(results)})
    found = linnet.Session(graph).run({f"x{i}": array for i, array in enumerate(arrays)})
    return [found[f"y{i}"] for i in range(len(results))]


def pairs(x: Array) -> Array:
    return np.stack([x.real, x.imag], -1)


Z = RNG.standard_normal((2, 6, 3)) + 1j * RNG.standard_normal((2, 6, 3))
# name -> function of linnet, the same of NumPy or PyTorch, arrays, whether sizes may be open
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Array, ...], bool]] = {
    "sort": (lambda x: ops.sort(x, 1), lambda x: np.sort(x, 1), (X,), True),
    "sort_descending": (lambda x: ops.sort(x, descending=True), lambda x: -np.sort(-x), (X,), True),
    "sort_nan": (ops.sort, np.sort, (NAN,), True),
    "argsort": (lambda x: ops.argsort(x, 0), lambda x: np.argsort(x, 0, kind="stable"), (V.reshape(17),), True),
    "unique": (ops.unique, np.unique_all, (V,), True),
    "unique_floats": (lambda x: ops.unique(x).values, np.unique, (np.round(X),), True),
    "unique_nan": (lambda x: ops.unique(x).counts, lambda x: np.unique(x, return_counts=True)[1], (NAN,), True),
    "unique_shape": (ops.unique, np.unique_all, (np.arange(12).reshape(3, 4) % 5,), True),
    "searchsorted": (ops.searchsorted, np.searchsorted, (np.sort(V), V[:7]), True),
    "searchsorted_right": (
        lambda v, x: ops.searchsorted(v, x, side="right"), lambda v, x: np.searchsorted(v, x, "right"),
        (np.sort(V), np.arange(-1, 7).reshape(2, 4)), True,
    ),
    "searchsorted_long": (ops.searchsorted, np.searchsorted, (np.sort(RNG.integers(0, 90, 100)), np.arange(-2, 95)), True),
    "searchsorted_long_right": (
        lambda v, x: ops.searchsorted(v, x, side="right"), lambda v, x: np.searchsorted(v, x, "right"),
        (np.sort(RNG.integers(0, 90, 64)), np.arange(-2, 95)), False,
    ),
    "bincount": (lambda i: ops.bincount(i, 6), lambda i: np.bincount(i, minlength=6), (V,), True),
    "bincount_weights": (
        lambda i, w: ops.bincount(i, 5, w), lambda i, w: np.bincount(i, w, 5), (V, RNG.standard_normal(17)), True,
    ),
    "roll": (lambda x: ops.roll(x, 2, 1), lambda x: np.roll(x, 2, 1), (X,), True),
    "roll_far": (lambda x: ops.roll(x, [-7, 3], [2, 0]), lambda x: np.roll(x, [-7, 3], [2, 0]), (X,), True),
    "roll_flat": (lambda x: ops.roll(x, -4), lambda x: np.roll(x, -4), (X,), True),
    "roll_none": (lambda x: ops.roll(x, 5, 2) * 1, lambda x: x, (X,), False),
    "cumulative_sum": (lambda x: ops.cumulative_sum(x, 1), lambda x: np.cumsum(x, 1), (X,), True),
    "cumulative_sum_exclusive": (
        lambda x: ops.cumulative_sum(x, exclusive=True), lambda x: np.cumsum(x, -1) - x, (X,), True,
    ),
    "cumulative_sum_reverse": (
        lambda x: ops.cumulative_sum(x, 0, reverse=True), lambda x: np.cumsum(x[::-1], 0)[::-1], (X,), True,
    ),
    "cumulative_prod": (ops.cumulative_prod, lambda x: np.cumprod(x, -1), (X,), True),
    "cumulative_max": (lambda x: ops.cumulative_max(x, 2), lambda x: np.maximum.accumulate(x, 2), (X,), False),
    "cumulative_min": (lambda x: ops.cumulative_min(x, 0), lambda x: np.minimum.accumulate(x, 0), (X,), False),
    "linspace": (lambda a, b: ops.linspace(a, b, 7), lambda a, b: np.linspace(a, b, 7), (X[0], X[1]), False),
    "linspace_number": (lambda a: ops.linspace(a, 3.5, 4), lambda a: np.linspace(a, 3.5, 4), (X[0, 0],), False),
    "linspace_one": (lambda a: ops.linspace(-1.0, a, 1), lambda a: np.linspace(-1.0, a, 1), (X[0, 0],), False),
    "fft": (ops.fft, lambda x: pairs(np.fft.fft(x[..., 0] + 1j * x[..., 1])), (pairs(Z),), False),
    "fft_axis": (lambda x: ops.fft(x, 1), lambda x: pairs(np.fft.fft(x[..., 0] + 1j * x[..., 1], axis=1)), (pairs(Z),), False),
    "ifft": (lambda x: ops.ifft(x, 0), lambda x: pairs(np.fft.ifft(x[..., 0] + 1j * x[..., 1], axis=0)), (pairs(Z),), False),
    "rfft": (ops.rfft, lambda x: pairs(np.fft.rfft(x)), (X,), False),
    "rfft_axis": (lambda x: ops.rfft(x, 1), lambda x: pairs(np.fft.rfft(x, axis=1)), (X,), False),
    "irfft": (ops.irfft, lambda x: np.fft.irfft(x[..., 0] + 1j * x[..., 1]), (pairs(Z),), False),
    "irfft_odd": (
        lambda x: ops.irfft(x, 1, length=9), lambda x: np.fft.irfft(x[..., 0] + 1j * x[..., 1], 9, axis=1), (pairs(Z),), False,
    ),
    "irfft_of_rfft": (lambda x: ops.irfft(ops.rfft(x, 1), 1), lambda x: x, (X,), False),
}  # fmt: skip
EINSUMS = {
    "ij,jk->ik": ((3, 4), (4, 5)), "bij,bjk->bik": ((2, 3, 4), (2, 4, 5)), "ij->ji": ((3, 4),), "ij->": ((3, 4),),
    "ii->i": ((4, 4),), "ii": ((4, 4),), "i,j->ij": ((3,), (4,)), "i,i": ((3,), (3,)), "ij,kj": ((3, 4), (5, 4)),
    "bhqd,bhkd->bhqk": ((2, 2, 3, 4), (2, 2, 5, 4)), "...ij,jk->...ik": ((2, 3, 4), (4, 5)),
    "abc,cd,de->abe": ((2, 3, 4), (4, 5), (5, 2)), "abcd,cdef->abef": ((2, 3, 2, 3), (2, 3, 2, 2)),
    "ab,ab->ab": ((3, 4), (3, 4)), "ijk,k->": ((2, 3, 4), (4,)), "...a,...a->...": ((2, 3, 4), (3, 4)),
    "bn,anm,bm->ba": ((2, 3), (4, 3, 5), (2, 5)),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "opened"),
    [(name, opened) for name, case in CASES.items() for opened in (False, True) if case[3] or not opened],
)
def test_values_are_those_of_numpy(name: str, opened: bool) -> None:
    build, reference, arrays, _ = CASES[name]
    expected = reference(*arrays)
    wanted = expected if isinstance(expected, tuple) else (expected,)
    found = values(build, *arrays, opened=opened)
    assert len(found) == len(wanted)
    for got, value in zip(found, wanted, strict=True):
        assert got.shape == value.shape
        np.testing.assert_allclose(got, value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(  # dimensions under an ellipsis broadcast, so they are fixed
    ("equation", "opened"), [(e, opened) for e in EINSUMS for opened in (False, True) if e[0] != "." or not opened]
)
def test_einsum(equation: str, opened: bool) -> None:
    arrays = [RNG.standard_normal(shape) for shape in EINSUMS[equation]]
    found = values(lambda *x: ops.einsum(equation, *x), *arrays, opened=opened)[0]
    np.testing.assert_allclose(found, np.einsum(equation, *arrays), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("opened", [False, True], ids=["fixed", "open"])
@pytest.mark.parametrize("kind", ["sum", "mean", "max", "min"])
def test_segments(kind: str, opened: bool) -> None:
    """Rows with negative ids are left out, segments without rows are 0."""
    build = getattr(ops, f"segment_{kind}")
    found = values(lambda x, i: build(x, i, 6), ROWS, IDS, opened=opened)[0]
    for segment in range(6):
        rows = ROWS[segment == IDS]
        wanted = getattr(rows, kind)(0) if len(rows) else np.zeros(3)
        np.testing.assert_allclose(found[segment], wanted, rtol=1e-12)
    with pytest.raises(linnet.GraphError, match="range"):
        values(lambda x, i: build(x, i, 4), ROWS, IDS)


def bags(table: Array, ids: Array, offsets: list[int], mode: str = "sum", weights: Array | None = None) -> Array:
    """A row per bag. Bag i is ids[offsets[i] : offsets[i + 1]]; an empty one gives zeros."""
    rows = table[ids] * (1 if weights is None else weights[:, None])
    ends = [*offsets[1:], len(ids)]
    parts = [rows[begin:end] for begin, end in zip(offsets, ends, strict=True)]
    return np.array([getattr(part, mode)(0) if len(part) else np.zeros(table.shape[1]) for part in parts])


@pytest.mark.parametrize("opened", [False, True], ids=["fixed", "open"])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bags(mode: str, opened: bool) -> None:
    table, ids = RNG.standard_normal((9, 4)), np.array([1, 8, 1, 0, 3, 3, 7])
    for offsets in ([0, 2, 2, 5], [0], [0, 0, 7], [0, 1, 2, 3, 4, 5, 6]):
        found = values(
            lambda t, i, o: ops.embedding_bag(t, i, o, mode=mode), table, ids, np.array(offsets), opened=opened
        )
        np.testing.assert_allclose(found[0], bags(table, ids, offsets, mode), rtol=1e-12)
    ragged = np.array([[1, 8, -1], [-1, -1, -1], [0, 3, 3]])
    found = values(lambda t, i: ops.embedding_bag(t, i, mode=mode), table, ragged, opened=opened)
    np.testing.assert_allclose(found[0], bags(table, np.array([1, 8, 0, 3, 3]), [0, 2, 2], mode), rtol=1e-12)


def test_embedding_bags_with_weights() -> None:
    table, ids, weights = RNG.standard_normal((9, 4)), np.array([1, 8, 1, 0]), RNG.standard_normal(4)
    found = values(lambda t, i, o, w: ops.embedding_bag(t, i, o, weights=w), table, ids, np.array([0, 3]), weights)
    np.testing.assert_allclose(found[0], bags(table, ids, [0, 3], weights=weights), rtol=1e-12)
    with pytest.raises(linnet.GraphError, match="range"):
        values(ops.embedding_bag, table, np.array([1, 9]), np.array([0]))


@pytest.mark.parametrize("shape", [(2, 7), (2, 7, 5), (2, 7, 4, 3)])
@pytest.mark.parametrize(("size", "beta"), [(3, 0.75), (4, 0.6)])
def test_lrn(shape: tuple[int, ...], size: int, beta: float) -> None:
    x = RNG.standard_normal(shape).astype(np.float32)
    padded = np.pad(x * x, [(0, 0), ((size - 1) // 2, size // 2)] + [(0, 0)] * (len(shape) - 2))
    means = sum(padded[:, i : i + shape[1]] for i in range(size)) / size
    found = values(lambda t: ops.lrn(t, size, 0.3, beta, 1.5), x)[0]
    np.testing.assert_allclose(found, x / (1.5 + 0.3 * means) ** beta, rtol=2e-5)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda x, n: ops.einsum("ij,jk->ik", x), "2 operands"),
        (lambda x, n: ops.einsum("ij->i", x), "a letter for each of 3 axes"),
        (lambda x, n: ops.einsum("ijk->iz", x), "letters of the operands"),
        (lambda x, n: ops.roll(x, 1, 3), "does not have this axis"),
        (lambda x, n: ops.cumulative_sum(x, -4), "does not have this axis"),
        (lambda x, n: ops.cumulative_max(n, 0), "size of the axis is open"),
        (lambda x, n: ops.rfft(n, 0), "size of the axis is open"),
        (lambda x, n: ops.fft(x), "real and an imaginary part"),
        (lambda x, n: ops.linspace(0, 1, 5), "numpy.linspace"),
        (ops.searchsorted, "rank 1"),
        (ops.embedding_bag, "ids of rank 2"),
    ],
)
def test_what_does_not_fit_says_so(build: Callable[..., Any], words: str) -> None:
    graph = linnet.Graph()
    with pytest.raises(linnet.UsageError, match=words):
        build(graph.placeholder("x", (3, 4, 5)), graph.placeholder("n", ("n",)))


def test_ids_out_of_range_are_refused() -> None:
    for ids in ([0, 5], [-1]):
        with pytest.raises(linnet.GraphError, match="range"):
            values(lambda i: ops.bincount(i, 5), np.array(ids))
