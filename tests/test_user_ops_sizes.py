"""User ops whose kernel decides sizes: the shape rule gives upper bounds, and what follows the op is planned in the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from tests.native import ROOT, compile_c

Array = np.ndarray[Any, Any]
X = np.array([[1, -2, 3], [-1, -5, -6], [7, 8, 9], [0, 0, 1]], np.float32)


def _kept_shape(x: Any, **_: Any) -> Any:
    rows = linnet.UserOp.at_most(x.shape[0])
    return [(x.dtype, (rows, *x.shape[1:])), ("i64", (rows,))]


def _kept(x: Array) -> list[Array]:
    rows = np.flatnonzero(x.sum(1) > 0)
    return [x[rows], rows]


def _keep(**options: Any) -> linnet.UserOp:
    """Rows with a positive sum, and their numbers."""
    return linnet.UserOp(
        "com.example.keep",
        options.pop("run", _kept),
        options.pop("shape", _kept_shape),
        outputs=2,
        decides_sizes=True,
        **options,
    )


def _graph(op: linnet.UserOp, rows: int | str = "n") -> linnet.Graph:
    graph = linnet.Graph()
    x = graph.placeholder("x", (rows, 3))
    kept, numbers = op(x * 1.0)
    assert kept.shape == (None, 3) and numbers.shape == (None,)
    outputs = {
        "kept": kept,
        "numbers": numbers,
        "product": ops.matmul(kept, graph.constant(np.ones((3, 2), np.float32))),
    }
    graph.signature("infer", {"x": x}, outputs)
    return graph


def _check(session: linnet.Session, x: Array) -> None:
    got = session.run({"x": x})
    kept, numbers = _kept(x)
    np.testing.assert_array_equal(got["kept"], kept)
    np.testing.assert_array_equal(got["numbers"], numbers)
    np.testing.assert_array_equal(got["product"], kept @ np.ones((3, 2), np.float32))


@pytest.mark.parametrize("rows", [4, "n"])
def test_what_follows_gets_the_true_size(rows: int | str, tmp_path: Path) -> None:
    graph = _graph(_keep(), rows)
    graph.save(tmp_path / "m.lnt")
    for session in (
        linnet.Session(graph), linnet.Session(tmp_path / "m.lnt", user_ops=[_keep()]), linnet.Session(graph, threads=2),
    ):  # fmt: skip
        for x in (X, -X, X * 0, np.abs(X), X):
            _check(session, x)
        if rows == "n":
            _check(session, np.tile(X, (5, 1)))
    reference = linnet.Session(graph, reference=True)
    _check(reference, X)


def test_a_constant_result_of_an_exact_op_is_computed_once() -> None:
    calls = []

    def run(x: Array) -> list[Array]:
        calls.append(x)
        return _kept(x)

    graph = linnet.Graph()
    x = graph.placeholder("x", (2,))
    kept, _ = _keep(run=run, exact=True)(graph.constant(X))
    graph.signature(
        "infer", {"x": x}, {"y": ops.reduce(kept, kind="sum", axis=[1], keep_dims=False) * ops.reduce(x, kind="sum")}
    )
    session = linnet.Session(graph)
    for _ in range(3):
        np.testing.assert_array_equal(session.run({"x": np.ones(2, np.float32)})["y"], 2 * _kept(X)[0].sum(1))
    assert len(calls) == 1


@pytest.mark.parametrize("exact", [True, False])
def test_only_the_result_of_an_exact_op_is_computed_twice_to_save_memory(exact: bool) -> None:
    """The loss reads the op's result, then a large tensor, then the result again. An op that gives other values each time would
    let both readers see different values."""
    rows, columns = 1000, 100
    calls: list[int] = []

    def run(x: Array) -> Array:
        calls.append(1)
        return x + len(calls)

    op = linnet.UserOp("com.example.noise", run, lambda x: (x.dtype, x.shape), inputs=1, exact=exact)
    graph = linnet.Graph()
    x = graph.placeholder("x", (rows, columns))
    last = graph.variable("last", np.zeros((), np.float32))
    noise = op(x)
    total = ops.softmax(x * noise.sum(), axis=0).sum()
    y = ops.matmul(graph.constant(np.ones((1, rows), np.float32)) * total, noise).sum()
    graph.signature("train", {"x": x}, {"y": y}, updates={last: y})
    usual = linnet.Session(graph, "train", threads=1)
    limit = usual.memory["total"] - 3 * rows * columns
    feeds = {"x": np.zeros((rows, columns), np.float32)}
    np.testing.assert_allclose(usual.run(feeds)["y"], rows * columns**2, rtol=1e-5)
    if not exact:
        with pytest.raises(linnet.GraphError, match="even if values are recomputed"):
            linnet.Session(graph, "train", threads=1, max_bytes=limit)
        return
    calls.clear()
    session = linnet.Session(graph, "train", threads=1, max_bytes=limit)
    session.run(feeds)
    assert session.plan_info["recomputed"] == 1 and len(calls) == 2


def test_in_the_body_of_a_loop() -> None:
    """The op runs in each iteration; a sum of fixed shape is carried."""
    op = _keep()
    graph = linnet.Graph()
    x, n = graph.placeholder("x", (4, 3)), graph.placeholder("n", (), "i64")

    def body(state: Any) -> Any:
        i, total = state
        kept, _ = op(x - i.cast("f32"))
        return [i + 1, total + ops.reduce(kept, kind="sum", axis=[0, 1], keep_dims=False)]

    _, total = linnet.while_loop(
        lambda state: state[0] < n, body, [graph.constant(np.int64(0)), graph.constant(np.float32(0))]
    )
    graph.signature("infer", {"x": x, "n": n}, {"y": total})
    want = sum(_kept(X - i)[0].sum() for i in range(3))
    assert linnet.Session(graph).run({"x": X, "n": np.int64(3)})["y"] == want


@pytest.mark.parametrize(
    "run, text",
    [
        (lambda x: [np.tile(x, (2, 1)), np.arange(8)], "output 0 as float32 \\[8, 3\\], expected float32 \\[4, 3\\]"),
        (lambda x: [x[:, :2].copy(), np.arange(4)], "it gives output 0 the size 2 in dimension 1; expected 3"),
        (lambda x: [x[0], np.arange(4)], "kernel gives output 0 as float32 \\[3\\]"),
    ],
)  # fmt: skip
def test_a_wrong_size_is_refused(run: Any, text: str) -> None:
    with pytest.raises(linnet.GraphError, match=text):
        linnet.Session(_graph(_keep(run=run))).run({"x": X})


def test_without_the_flag_a_bound_is_no_shape() -> None:
    op = linnet.UserOp("com.example.keep", _kept, _kept_shape, outputs=2)
    with pytest.raises(linnet.GraphError, match="a wrong shape"):
        _graph(op, 4)


def test_an_op_of_a_library(tmp_path: Path) -> None:
    include = f"-I{ROOT / 'runtime_c' / 'include'}"
    path = compile_c([ROOT / "tests" / "ext" / "user_ops.c"], tmp_path / "libops.so", "-shared", "-fPIC", include)
    op = next(op for op in linnet.load_user_ops(path) if op.name.endswith("positive"))
    assert op.decides_sizes
    graph = linnet.Graph()
    x = graph.placeholder("x", ("n",))
    values, places = op(x, outputs=2)
    graph.signature("infer", {"x": x}, {"values": values * 2.0, "places": places})
    session = linnet.Session(graph)
    for given in (X.reshape(-1), -np.ones(3, np.float32), np.ones(50, np.float32)):
        got = session.run({"x": given})
        np.testing.assert_array_equal(got["values"], 2 * given[given > 0])
        np.testing.assert_array_equal(got["places"], np.flatnonzero(given > 0))
