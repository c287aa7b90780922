"""Building graphs directly: operators against NumPy, scopes, seeded initial values, signatures with only the inputs they need."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import init, nn
from linnet.facade import Graph

A = np.arange(-12, 12, dtype=np.float32).reshape(2, 3, 4) / 4
B = np.linspace(0.5, 2, 4, dtype=np.float32)


def value(expression: Callable[..., Any], *arrays: np.ndarray[Any, Any], dynamic: bool = False) -> np.ndarray[Any, Any]:
    graph = Graph()
    shapes = [[None] * a.ndim if dynamic else a.shape for a in arrays]
    dtypes = ["f32" if a.dtype == np.float32 else "i32" for a in arrays]
    feeds = {f"x{i}": graph.placeholder(f"x{i}", s, d) for i, (s, d) in enumerate(zip(shapes, dtypes, strict=True))}
    graph.signature("infer", feeds, {"y": expression(*feeds.values())})
    found: np.ndarray[Any, Any] = linnet.Session(graph).run({f"x{i}": a for i, a in enumerate(arrays)})["y"]
    return found


EXPRESSIONS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a / b, lambda a, b: b / (a + 10), lambda a, b: b**a,
    lambda a, b: a**2, lambda a, b: -a, lambda a, b: abs(a), lambda a, b: 2 - a, lambda a, b: 1 / (a + 7), lambda a, b: 3 * a + 1,
    lambda a, b: a > b, lambda a, b: a <= 0.5, lambda a, b: a < b, lambda a, b: a >= b, lambda a, b: a @ b, lambda a, b: B * a,
    lambda a, b: np.float32(2) * a, lambda a, b: a[0], lambda a, b: a[-1, 1:],
    lambda a, b: a[..., 1],
    lambda a, b: a[:, ::2, ::-1],
    lambda a, b: a[:, None, 1, ..., None],
    lambda a, b: a[1, -1, -1], lambda a, b: b[:, None] * b[None], lambda a, b: a[:, -2:],
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(EXPRESSIONS)))
@pytest.mark.parametrize("dynamic", [False, True])
def test_operators_are_those_of_numpy(number: int, dynamic: bool) -> None:
    expression = EXPRESSIONS[number]
    expected = expression(A, B)
    found = value(expression, A, B, dynamic=dynamic)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_methods() -> None:
    np.testing.assert_allclose(value(lambda a: a.sum(), A), A.sum(), atol=1e-5)
    np.testing.assert_allclose(value(lambda a: a.mean(1), A), A.mean(1), atol=1e-6)
    np.testing.assert_array_equal(value(lambda a: a.max((0, 2), keep_dims=True), A), A.max((0, 2), keepdims=True))
    np.testing.assert_array_equal(value(lambda a: a.min(-1), A), A.min(-1))
    np.testing.assert_array_equal(value(lambda a: a.reshape(4, -1).transpose(1, 0), A), A.reshape(4, -1).T)
    np.testing.assert_array_equal(value(lambda a: a.cast("i32"), A), A.astype(np.int32))
    np.testing.assert_array_equal(value(lambda a: a.equal(0.5), A), A == 0.5)
    np.testing.assert_array_equal(value(lambda a: a.not_equal(A), A), np.zeros(A.shape, bool))
    numbers = np.arange(6, dtype=np.int32)
    assert value(lambda n: n * 2 + 1, numbers).dtype == np.int32


def test_indices_that_do_not_fit() -> None:
    x = Graph().placeholder("x", (2, 3))
    with pytest.raises(linnet.UsageError, match=r"'x': the index is out of range.*below 2.*got 5"):
        x[5]
    with pytest.raises(linnet.UsageError, match=r"'x'.*does not match.*3 of them for shape \(2, 3\)"):
        x[0, 0, 0]
    with pytest.raises(TypeError):
        list(x)  # type: ignore[call-overload]


def test_scopes_name_variables_and_nodes() -> None:
    graph = Graph()
    x = graph.placeholder("x", (2,))
    with graph.scope("layer1"):
        w = graph.variable("w", [2.0, 3.0])
        with graph.scope("inner"):
            y = linnet.ops.relu(x, name="relu")
    assert w.name == "layer1/w" and y.name == "layer1/inner/relu" and y.node is not None and y.node.name == y.name
    assert (x * 2).name == "map" and w.tensor().name == "layer1/w"
    with pytest.raises(linnet.UsageError, match="already exists"):
        graph.variable("layer1/w", [1.0])


def test_initial_values_are_seeded_by_graph_and_name() -> None:
    first, second, other = (Graph(seed).variable("w", init.he((50, 40))).value for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, second)
    graph = Graph()
    assert not np.array_equal(graph.variable("a", init.normal(9)).value, graph.variable("b", init.normal(9)).value)
    assert not np.array_equal(first, other) and first.dtype == np.float32
    assert first.std() == pytest.approx((2 / 50) ** 0.5, rel=0.05) and abs(first.mean()) < 0.01
    glorot = graph.variable("g", init.glorot((8, 4, 3, 3), seed=7)).value
    assert abs(glorot).max() <= (6 / (4 * 9 + 8 * 9)) ** 0.5 and glorot.std() > 0.1
    np.testing.assert_array_equal(graph.variable("z", init.zeros(3, "f64")).value, np.zeros(3))
    np.testing.assert_array_equal(graph.variable("c", init.constant((), 2.5)).value, np.float32(2.5))
    uniform = graph.variable("u", init.uniform((1000,), 1, 2)).value
    assert uniform.min() >= 1 and uniform.max() < 2


def regression() -> Graph:
    """f(X|W) = x @ w + b and its hand-written train signature."""
    graph = Graph()
    x, t = graph.placeholder("x", ("batch", 3)), graph.placeholder("t", ("batch", 1))
    w, b = graph.variable("w", init.zeros((3, 1))), graph.variable("b", init.zeros(1))
    y = x @ w + b
    loss = ((y - t) ** 2).mean()
    slope_w, slope_b = linnet.gradients(loss, [w, b])
    graph.signature("infer", {"x": x}, {"y": y})
    graph.signature("train", {"x": x, "t": t}, {"loss": loss}, updates={w: w - 0.1 * slope_w, b: b - 0.1 * slope_b})
    return graph


def test_signatures_take_what_they_need_and_share_variables(tmp_path: Path) -> None:
    regression().save(tmp_path / "regression.lnt")
    graph = Graph.load(tmp_path / "regression.lnt")
    assert [n.op for n in graph.signatures["infer"].function.nodes].count("assign") == 0
    assert [n.op for n in graph.signatures["train"].function.nodes].count("assign") == 2
    model = linnet.Model(graph)
    store = linnet.Store(model)
    train, infer = linnet.Session(model, "train", store=store), linnet.Session(model, "infer", store=store)
    rng, w, b = np.random.default_rng(0), np.zeros((3, 1)), 0.0
    for step in range(200):
        x = rng.standard_normal((16 + step % 3, 3)).astype(np.float32)
        t = (x @ np.float32([[1], [-2], [3]]) + 0.5).astype(np.float32)
        error = x @ w + b - t
        assert train.run({"x": x, "t": t})["loss"] == pytest.approx(np.mean(error**2), rel=1e-3, abs=1e-9)
        w, b = w - 0.1 * 2 * x.T @ error / len(x), b - 0.1 * 2 * error.mean()
    np.testing.assert_allclose(store["w"], [[1], [-2], [3]], atol=1e-3)
    np.testing.assert_allclose(infer.run({"x": np.eye(3, dtype=np.float32)})["y"], [[1.5], [-1.5], [3.5]], atol=1e-3)


def test_what_is_frozen_stays_so_in_a_file(tmp_path: Path) -> None:
    """Optimizers of a loaded graph leave weights with trainable=False and moving averages unchanged, also in C."""
    graph = Graph(seed=1)
    x = graph.placeholder("x", (8, 3))
    frozen = graph.variable("frozen", init.glorot((3, 4)), trainable=False)
    graph.signature("infer", {"x": x}, {"y": nn.dense(nn.batch_norm(x @ frozen, False), 1)})
    graph.save(tmp_path / "frozen.lnt")
    loaded = Graph.load(tmp_path / "frozen.lnt")
    names = ["batch_norm/scale", "batch_norm/bias", "dense/weight", "dense/bias"]
    assert [v.name for v in loaded.trainable_variables] == names == [v.name for v in graph.trainable_variables]
    main = loaded.signatures["infer"].function
    loss = ((main.outputs[0] - 1.0) ** 2).mean()
    updates = linnet.SGD(0.1).minimize(loss)
    assert {v.name for v in updates} & {v.name for v in graph.variables.values()} == set(names)
    loaded.signature("train", {"x": main.inputs[0]}, {"loss": loss}, updates=updates)
    loaded.save(tmp_path / "train.lnt")
    session = linnet.Session(linnet.Model(tmp_path / "train.lnt"), "train")
    before = {name: np.array(session.variables[name]) for name in graph.variables}
    for _ in range(3):
        session.run({"x": np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)})
    changed = [name for name, value in before.items() if not np.array_equal(session.variables[name], value)]
    assert sorted(changed) == sorted(names)


def test_a_signature_without_a_placeholder_that_it_needs() -> None:
    graph = Graph()
    x, y = graph.placeholder("x", (2,)), graph.placeholder("y", (2,))
    with pytest.raises(linnet.UsageError, match=r"'y'.*needed by signature 'infer'.*got 'x'"):
        graph.signature("infer", {"x": x}, {"z": x * y})


def test_only_what_the_fetches_need_runs() -> None:
    graph = Graph()
    x = graph.placeholder("x", (4,))
    cheap, dear = linnet.ops.relu(x, name="cheap"), linnet.ops.softmax(x, name="dear")
    graph.signature("infer", {"x": x}, {"cheap": cheap, "dear": dear})
    session = linnet.Session(graph, fetches=["cheap"])
    assert list(session.run({"x": np.ones(4, np.float32)})) == ["cheap"]
    assert [step.op for step in session.steps] == ["map"]
