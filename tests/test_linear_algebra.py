"""Linear algebra in linnet.ops: constants are computed by NumPy while the graph is built, small matrices of the run by ordinary
nodes with gradients, and the rest is refused with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(3)
SQUARE = RNG.standard_normal((2, 5, 5))
HIDDEN = np.array([[0.0, 2, 1], [1, 0, 0], [3, 1, 0]])  # its first pivot is 0
SIDES = RNG.standard_normal((2, 5, 3))
POSITIVE = SQUARE @ SQUARE.swapaxes(-1, -2) + np.eye(5)
TALL = RNG.standard_normal((2, 6, 4))


def positive_qr(a: Array) -> tuple[Array, Array]:
    q, r = np.linalg.qr(a)
    sign = np.sign(np.diagonal(r, axis1=-2, axis2=-1))
    return q * sign[..., None, :], r * sign[..., None]


def economic_svd(a: Array) -> tuple[Array, ...]:
    return tuple(np.linalg.svd(a, full_matrices=False))


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Array, ...]]] = {
    "solve": (ops.solve, np.linalg.solve, (SQUARE, SIDES)),
    "solve_pivots": (ops.solve, np.linalg.solve, (HIDDEN, SIDES[0, :3])),
    "inverse": (ops.inverse, np.linalg.inv, (SQUARE,)),
    "cholesky": (ops.cholesky, np.linalg.cholesky, (POSITIVE,)),
    "qr": (ops.qr, positive_qr, (TALL,)),
    "svd": (ops.svd, economic_svd, (TALL,)),
    "eigh": (ops.eigh, lambda a: tuple(np.linalg.eigh(a)), (POSITIVE,)),
}


def run(build: Callable[..., Any], arrays: tuple[Array, ...], constant: bool) -> tuple[list[Array], int]:
    """The results, and the number of steps of the run."""
    graph = linnet.Graph()
    begin = graph.placeholder("begin", ())
    dtypes = {"float64": "f64", "float32": "f32"}
    inputs = [
        graph.constant(a) if constant else graph.placeholder(f"x{i}", a.shape, dtypes[str(a.dtype)])
        for i, a in enumerate(arrays)
    ]
    made = build(*inputs)
    parts = made if isinstance(made, tuple) else (made,)
    feeds = {"begin": begin} | ({} if constant else {t.name: t for t in inputs})
    graph.signature("infer", feeds, {f"y{i}": part for i, part in enumerate(parts)} | {"end": begin * 2})
    session = linnet.Session(graph)
    given = {} if constant else {f"x{i}": a for i, a in enumerate(arrays)}
    found = session.run({"begin": np.float32(1)} | given)
    return [found[f"y{i}"] for i in range(len(parts))], len(session.steps)


def compare(found: list[Array], expected: Any) -> None:
    wanted = expected if isinstance(expected, tuple) else (expected,)
    assert len(found) == len(wanted)
    for got, value in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_of_constants_nothing_is_left_for_the_run(name: str) -> None:
    build, reference, arrays = CASES[name]
    found, steps = run(build, arrays, constant=True)
    compare(found, reference(*arrays))
    assert steps == 1


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("svd", "eigh")])
def test_matrices_of_the_run(name: str) -> None:
    build, reference, arrays = CASES[name]
    compare(run(build, arrays, constant=False)[0], reference(*arrays))


def test_single_precision_and_a_constant_on_the_left() -> None:
    a, b = SQUARE[0].astype(np.float32), SIDES[0].astype(np.float32)
    graph = linnet.Graph()
    side = graph.placeholder("b", b.shape)
    graph.signature("infer", {"b": side}, {"x": ops.solve(graph.constant(a), side)})
    np.testing.assert_allclose(linnet.Session(graph).run({"b": b})["x"], np.linalg.solve(a, b), rtol=1e-4, atol=1e-4)
    compare([f.astype(np.float64) for f in run(ops.qr, (TALL.astype(np.float32).astype(np.float64),), False)[0]],
            positive_qr(TALL.astype(np.float32).astype(np.float64)))  # fmt: skip
    found = run(ops.cholesky, (POSITIVE.astype(np.float32),), False)[0][0]
    np.testing.assert_allclose(found, np.linalg.cholesky(POSITIVE), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("build", "reference", "arrays"),
    [
        (ops.solve, lambda t, *a: t.linalg.solve(*a), (SQUARE, SIDES)),
        (ops.solve, lambda t, *a: t.linalg.solve(*a), (HIDDEN, SIDES[0, :3])),
        (ops.inverse, lambda t, a: t.linalg.inv(a), (SQUARE,)),
        (lambda a: ops.cholesky(a @ ops.matrix_transpose(a)), lambda t, a: t.linalg.cholesky(a @ a.mT), (SQUARE,)),
        (lambda a: abs(ops.qr(a)[1]), lambda t, a: t.linalg.qr(a)[1].abs(), (TALL,)),
    ],
    ids=["solve", "solve_pivots", "inverse", "cholesky", "qr"],
)
def test_gradients_are_those_of_torch(
    build: Callable[..., Any], reference: Callable[..., Any], arrays: tuple[Array, ...], torch: Any
) -> None:
    tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
    result = reference(torch, *tensors)
    weights = RNG.standard_normal(tuple(result.shape))
    (result * torch.tensor(weights)).sum().backward()
    found, _ = run(lambda *x: tuple(linnet.gradients((build(*x) * weights).sum(), list(x))), arrays, constant=False)
    for got, tensor in zip(found, tensors, strict=True):
        np.testing.assert_allclose(got, tensor.grad, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda g: ops.svd(g.placeholder("a", (3, 3))), linnet.GraphError, "number of iterations depends on the data"),
        (lambda g: ops.eigh(g.placeholder("a", (3, 3))), linnet.GraphError, "number of iterations depends on the data"),
        (lambda g: ops.inverse(g.placeholder("a", (33, 33))), linnet.GraphError, "at most 32 columns"),
        (lambda g: ops.cholesky(g.placeholder("a", ("n", "n"))), linnet.GraphError, "at most 32 columns"),
        (lambda g: ops.inverse(g.placeholder("a", ("k", 3, 3))), linnet.GraphError, "solve with your own right-hand sides"),
        (lambda g: ops.inverse(g.constant(np.zeros((3, 3), np.float32))), linnet.GraphError, "Singular"),
        (lambda g: ops.cholesky(g.constant(-np.eye(3, dtype=np.float32))), linnet.GraphError, "positive definite"),
        (lambda g: ops.inverse(g.placeholder("a", (3, 4))), linnet.UsageError, "square matrices"),
        (lambda g: ops.solve(g.placeholder("a", (3, 3), "i32"), g.placeholder("b", (3, 1))), linnet.UsageError, "f32 or f64"),
        (lambda g: ops.qr(g.placeholder("a", (3, 4))), linnet.UsageError, "as many rows as columns"),
    ],
)  # fmt: skip
def test_what_cannot_be_computed_says_why(build: Callable[..., Any], error: type[linnet.Error], words: str) -> None:
    with pytest.raises(error, match=words):
        build(linnet.Graph())
