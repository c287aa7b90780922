"""Sparse gradients: rows from the gather to the optimizer. The sparse step equals the dense one, or torch.optim.SparseAdam, and
touches no other row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import SGD, AdaGrad, Adam, Momentum, ops
from linnet.autodiff import SparseRows, gradients
from linnet.facade import Graph
from linnet.ir.function import Tensor
from linnet.optimizers import Gradient

ROWS, WIDTH, STEPS = 11, 3, 50


def table(dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(dtype)


def batches() -> list[np.ndarray[Any, Any]]:
    """Row numbers with repetitions, without rows 9 and 10."""
    rng = np.random.default_rng(1)
    return [rng.integers(0, 9, (2, 4)) for _ in range(STEPS)]


def model(graph: Graph, dense: bool) -> tuple[Tensor, Tensor]:
    ids = graph.placeholder("ids", (2, 4), "i64")
    e = graph.variable("e", table())
    read = e.tensor()
    if dense:  # an added sum with zeros hides the variable from the rule
        read = ops.add(read, graph.constant(np.zeros((ROWS, WIDTH), np.float32)))
    taken = ops.tanh(ops.gather(read, ids))
    return ids, (taken * taken * taken).sum() + taken.mean()


def history(make: Callable[[], linnet.Optimizer], dense: bool) -> list[np.ndarray[Any, Any]]:
    graph = Graph()
    ids, loss = model(graph, dense)
    graph.signature("train", {"ids": ids}, {"loss": loss}, updates=make().minimize(loss))
    session = linnet.Session(graph, "train")
    found = []
    for batch in batches():
        session.run({"ids": batch})
        found.append(session.variables["e"])
    return found


def uses_rows(make: Callable[[], linnet.Optimizer]) -> bool:
    """Whether the update of `e` is a scatter."""
    graph = Graph()
    _, loss = model(graph, False)
    node = next(value.node for variable, value in make().minimize(loss).items() if variable.name == "e")
    return node is not None and node.op == "scatter"


@pytest.mark.parametrize(
    "make",
    [
        lambda: SGD(0.1), lambda: SGD(0.1, maximize=True), lambda: AdaGrad(0.2, rate_decay=0.1),
        lambda: AdaGrad(0.2, clip=linnet.clip.by_global_norm(0.5)), lambda: SGD(0.1, clip=linnet.clip.by_value(0.2)),
    ],
    ids=["sgd", "maximize", "adagrad", "global_norm", "value"],
)  # fmt: skip
def test_sparse_equals_dense(make: Callable[[], linnet.Optimizer]) -> None:
    assert uses_rows(make)
    for a, b in zip(history(make, False), history(make, True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", [lambda: Adam(0.1), lambda: Momentum(0.1), lambda: SGD(0.1, weight_decay=0.1)])
def test_what_depends_on_untouched_rows_stays_dense(make: Callable[[], linnet.Optimizer]) -> None:
    assert not uses_rows(make)
    for a, b in zip(history(make, False), history(make, True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_lazy_adam_equals_pytorchs_sparse_adam(torch: Any) -> None:
    embedding = torch.nn.Embedding.from_pretrained(torch.tensor(table()), freeze=False, sparse=True)
    optimizer = torch.optim.SparseAdam(embedding.parameters(), 0.05, (0.8, 0.95))
    assert uses_rows(lambda: Adam(0.05, lazy=True))
    found = history(lambda: Adam(0.05, (0.8, 0.95), lazy=True), False)
    for batch, mine in zip(batches(), found, strict=True):
        optimizer.zero_grad()
        taken = torch.tanh(embedding(torch.tensor(batch)))
        ((taken**3).sum() + taken.mean()).backward()
        optimizer.step()
        expected = embedding.weight.detach().numpy()
        assert np.abs(mine - expected).max() < 1e-5 * np.abs(expected).max()
    assert (found[-1][9:] == table()[9:]).all()


def test_lazy_momentum_leaves_other_rows_alone() -> None:
    found = history(lambda: Momentum(0.1, lazy=True, weight_decay=0.1), False)
    for before, batch, after in zip([table(), *found], batches(), found, strict=False):
        changed = (before != after).any(axis=1)
        assert set(np.flatnonzero(changed)) <= set(batch.ravel())


def pieces(sparse: bool) -> tuple[Graph, Tensor, list[Gradient]]:
    """A table read by two gathers, one with negative row numbers."""
    graph = Graph()
    ids = graph.placeholder("ids", (5,), "i32")
    e = graph.variable("e", table())
    loss = (ops.gather(e.tensor(), ids) ** 2).sum() + (
        ops.gather(e.tensor(), graph.constant(np.array([1, -2]))) * 3
    ).sum()
    return graph, ids, list(gradients(loss, [e], sparse=True) if sparse else gradients(loss, [e]))


def expected_of_pieces(ids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    e, want = table(), np.zeros((ROWS, WIDTH), np.float32)
    np.add.at(want, ids, 2 * e[ids])
    np.add.at(want, [1, -2], 3)
    return want


def test_partial_sums_concatenate() -> None:
    graph, ids, (rows,) = pieces(True)
    assert isinstance(rows, SparseRows) and rows.shape == (ROWS, WIDTH) and rows.rows.shape == (7, WIDTH)
    like = graph.variables["e"].tensor()
    total = rows.sums()
    results = {"dense": rows.tensor(like), "sums": total.tensor(like), "ids": total.ids, "square": rows.square_sum()}
    graph.signature("infer", {"ids": ids}, results)
    fed = np.array([4, -1, 4, 0, 4], np.int32)
    found = linnet.Session(graph).run({"ids": fed})
    want = expected_of_pieces(fed)
    np.testing.assert_allclose(found["dense"], want, rtol=1e-6)
    np.testing.assert_allclose(found["sums"], want, rtol=1e-6)
    assert found["square"] == pytest.approx((want**2).sum(), rel=1e-5)
    assert found["ids"].tolist() == sorted([4, 10, 4, 0, 4, 1, 9])


def test_anything_else_gets_a_tensor() -> None:
    graph, ids, (g,) = pieces(False)
    assert isinstance(g, Tensor) and g.shape == (ROWS, WIDTH)
    graph.signature("infer", {"ids": ids}, {"g": g})
    fed = np.arange(5, dtype=np.int32)
    np.testing.assert_allclose(linnet.Session(graph).run({"ids": fed})["g"], expected_of_pieces(fed), rtol=1e-6)


def test_a_tied_table_is_dense(torch: Any) -> None:
    """A table read by a gather and, as the output layer, by a matmul."""
    graph = Graph()
    ids = graph.placeholder("ids", (4,), "i64")
    e = graph.variable("e", table())
    loss = ((ops.gather(e.tensor(), ids) @ e.transpose()) ** 2).sum()
    (g,) = gradients(loss, [e], sparse=True)
    assert isinstance(g, Tensor)
    graph.signature("infer", {"ids": ids}, {"g": g})
    t = torch.tensor(table(), requires_grad=True)
    fed = np.array([3, 3, 0, 10])
    ((t[torch.tensor(fed)] @ t.T) ** 2).sum().backward()
    np.testing.assert_allclose(linnet.Session(graph).run({"ids": fed})["g"], t.grad.numpy(), rtol=1e-4, atol=1e-4)


def test_a_rule_over_all_rows_cannot_be_lazy() -> None:
    with pytest.raises(linnet.UsageError, match="LAMB cannot be lazy"):
        linnet.LAMB(lazy=True)


def test_an_id_out_of_range_changes_nothing() -> None:
    graph = Graph()
    ids, loss = model(graph, False)
    graph.signature("train", {"ids": ids}, {"loss": loss}, updates=SGD(0.1).minimize(loss))
    session = linnet.Session(graph, "train")
    with pytest.raises(linnet.GraphError, match="11"):
        session.run({"ids": np.full((2, 4), 11)})
    assert (session.variables["e"] == table()).all() and session.variables["sgd/step"] == 0


@pytest.mark.parametrize("make", [lambda: SGD(0.1), lambda: AdaGrad(0.1), lambda: Adam(0.1, lazy=True)])
def test_memory_of_a_step_does_not_depend_on_the_rows(make: Callable[[], linnet.Optimizer]) -> None:
    """The rows are written in place: no copy of the table exists at run time."""

    def memory(rows: int) -> dict[str, int]:
        graph = Graph()
        ids = graph.placeholder("ids", (16,), "i64")
        e = graph.variable("e", np.zeros((rows, 32), np.float32))
        loss = (ops.gather(e.tensor(), ids, from_end=False) ** 2).sum()
        graph.signature("train", {"ids": ids}, {"loss": loss}, updates=make().minimize(loss))
        return linnet.Session(graph, "train").memory

    small, large = memory(100), memory(20_000)
    for region in ("activations", "scratch", "constants", "io"):
        assert small[region] == large[region], region
    assert large["variables"] - small["variables"] >= 19_900 * 128


def test_a_check_that_allows_negative_indices_is_none_for_one_that_does_not() -> None:
    """The first gather accepts -1 as the last row; the second must refuse it before the variable is overwritten."""
    graph = Graph()
    ids = graph.placeholder("ids", (2,), "i64")
    e = graph.variable("e", table())
    first = ops.gather(e.tensor(), ids)
    second = ops.gather(graph.constant(np.ones(ROWS, np.float32)), ids, from_end=False)
    new = ops.scatter(e.tensor(), ops.expand_dims(ids, 1), first * 2.0, kind="nd")
    graph.signature("train", {"ids": ids}, {"y": second}, updates={e: new})
    session = linnet.Session(graph, "train")
    with pytest.raises(linnet.GraphError, match="from 0 to 10, got -1"):
        session.run({"ids": np.array([3, -1])})
    assert (session.variables["e"] == table()).all()
    session.run({"ids": np.array([3, 4])})
    assert (session.variables["e"][3] == 2 * table()[3]).all()
