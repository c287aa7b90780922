"""linnet.sync.signatures: `grad` and `update/all` in one process equal `train`, several workers equal accumulated gradients, and
remote tables equal local ones, each bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import LAMB, LARS, LBFGS, SGD, AdaDelta, AdaGrad, Adam, AdamW, Momentum, RMSProp, clip, nn, ops, schedules
from linnet.facade import Graph
from linnet.ir.function import Tensor
from linnet.sync import contract
from tests.sync_reference import Arrays, Cluster, aggregated, ready, summed

STEPS, BATCH, ROWS = 6, 8, 30
Make = Callable[[], linnet.Optimizer]


def dense(graph: Graph) -> tuple[dict[str, Tensor], Tensor]:
    """Two layers with batch normalization and dropout between them."""
    x, t = graph.placeholder("x", ("batch", 6)), graph.placeholder("t", ("batch",), "i32")
    y = nn.batch_norm(nn.dense(x, 7, activation="tanh"), True)
    loss = linnet.softmax_cross_entropy(nn.dense(nn.dropout(y, 0.3, True), 4), t).mean()
    return {"x": x, "t": t}, loss


def plain(graph: Graph) -> tuple[dict[str, Tensor], Tensor]:
    """The same without layers that depend on the batch or on chance."""
    x, t = graph.placeholder("x", ("batch", 6)), graph.placeholder("t", ("batch",), "i32")
    return {"x": x, "t": t}, linnet.softmax_cross_entropy(nn.dense(nn.dense(x, 7, activation="tanh"), 4), t).mean()


def embedded(graph: Graph) -> tuple[dict[str, Tensor], Tensor]:
    """A table read by two look-ups, one with numbers that count from the end, and a layer over its rows."""
    x, t = graph.placeholder("i", ("batch", 3), "i32"), graph.placeholder("t", ("batch",), "i32")
    rows = nn.flatten(nn.embedding(x, ROWS, 4, start=linnet.init.normal))
    table = graph.variables["embedding/weight"].tensor(x)
    last = ops.gather(table, ops.subtract(t, graph.constant(np.int32(ROWS))))
    return {"i": x, "t": t}, linnet.softmax_cross_entropy(nn.dense(rows, 4), t).mean() + (last * last).mean()


def batches(count: int, distinct: bool = False) -> list[Arrays]:
    rng = np.random.default_rng(2)
    made = []
    for _ in range(count):
        ids = rng.permutation(ROWS)[: 3 * BATCH] if distinct else rng.integers(0, ROWS - 6, 3 * BATCH)
        made.append(
            {
                "x": rng.standard_normal((BATCH, 6)).astype(np.float32),
                "t": rng.integers(0, 4, BATCH).astype(np.int32),
                "i": ids.reshape(BATCH, 3).astype(np.int32),
            }
        )
    return made


def build(model: Callable[[Graph], tuple[dict[str, Tensor], Tensor]], make: Make, **options: Any) -> Graph:
    graph = Graph(seed=5)
    inputs, loss = model(graph)
    if options.pop("remote", False):
        options["remote"] = [graph.variables["embedding/weight"]]
    linnet.sync.signatures(graph, loss, make(), inputs, **options)
    return graph


def named(graph: Graph, batch: Arrays, signature: str = "eval") -> Arrays:
    return {name: batch[name] for name in graph.signatures[signature].inputs}


def same(a: Any, b: Any, leave: str = "") -> None:
    """Asserts that two stores hold the same bits."""
    for name in a:
        if not leave or leave not in name:
            np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def schedule() -> Any:
    return schedules.cosine(0.1, 10)


EVERY: dict[str, Make] = {
    "sgd": lambda: SGD(0.1, weight_decay=0.1), "schedule": lambda: SGD(schedule()), "maximize": lambda: SGD(0.01, maximize=True),
    "momentum": lambda: Momentum(0.1), "nesterov": lambda: Momentum(0.1, nesterov=True),
    "dampened": lambda: Momentum(0.1, dampening=0.2), "adagrad": lambda: AdaGrad(0.1, rate_decay=0.1), "adadelta": AdaDelta,
    "rmsprop": lambda: RMSProp(0.01, momentum=0.5, centered=True), "adam": lambda: Adam(0.05),
    "amsgrad": lambda: Adam(0.05, amsgrad=True),
    "adamw": lambda: AdamW(0.05), "lars": lambda: LARS(0.1, weight_decay=0.01), "lamb": lambda: LAMB(0.05),
    "lbfgs": lambda: LBFGS(0.1, 4), "value": lambda: SGD(0.1, clip=clip.by_value(0.01)),
    "norm": lambda: Adam(0.1, clip=clip.by_norm(0.05)),
    "global_norm": lambda: Adam(0.1, clip=clip.by_global_norm(0.1)), "loss_scale": lambda: Momentum(0.1, loss_scale=128.0),
    "dynamic": lambda: Adam(0.1, loss_scale=linnet.DynamicLossScale(1024.0, interval=2)),
}  # fmt: skip


@pytest.mark.parametrize("name", EVERY)
def test_grad_and_update_are_train(name: str) -> None:
    graph = build(dense, EVERY[name])
    model = linnet.Model(graph)
    whole, parts = linnet.Store(model), linnet.Store(model)
    train = linnet.Session(model, "train", store=whole)
    grad = linnet.Session(model, contract.GRAD, store=parts)
    update = linnet.Session(model, contract.UPDATE, store=parts)
    for batch in batches(STEPS):
        feeds = named(graph, batch)
        expected, found = train.run(feeds), grad.run(feeds)
        assert expected["loss"] == found["loss"]
        update.run({spec.name: found[spec.name] for spec in update.inputs})
        same(whole, parts)
    assert any((linnet.Store(model)[v] != parts[v]).any() for v in parts)


ROWWISE: dict[str, Make] = {
    "sgd": lambda: SGD(0.1), "decayed": lambda: SGD(0.1, weight_decay=0.1), "adagrad": lambda: AdaGrad(0.1, rate_decay=0.1),
    "adam": lambda: Adam(0.05), "lazy_adam": lambda: Adam(0.05, lazy=True), "lazy_momentum": lambda: Momentum(0.1, lazy=True),
    "global_norm": lambda: Adam(0.1, lazy=True, clip=clip.by_global_norm(0.1)), "lamb": lambda: LAMB(0.05),
    "dynamic": lambda: Adam(0.1, lazy=True, loss_scale=linnet.DynamicLossScale(1024.0, interval=2)),
}  # fmt: skip


@pytest.mark.parametrize("remote", [False, True], ids=["local", "remote"])
@pytest.mark.parametrize("name", ROWWISE)
def test_sparse_gradients_are_those_of_train(name: str, remote: bool) -> None:
    """With repeated numbers only SGD adds rows in another order: it is tested with distinct ones."""
    graph = build(embedded, ROWWISE[name], remote=remote)
    if name == "sgd":
        graph = build(single, ROWWISE[name], remote=remote)
    cluster = Cluster(graph, [graph])
    session = linnet.Session(graph, "train")
    for batch in batches(STEPS, distinct=name == "sgd"):
        feeds = named(graph, batch)
        assert cluster.step([feeds]) == [float(session.run(feeds)["loss"])]
        same(session.variables, cluster.shards[0])


def single(graph: Graph) -> tuple[dict[str, Tensor], Tensor]:
    """A table with one look-up."""
    x, t = graph.placeholder("i", ("batch", 3), "i32"), graph.placeholder("t", ("batch",), "i32")
    rows = nn.flatten(nn.embedding(x, ROWS, 4))
    return {"i": x, "t": t}, linnet.softmax_cross_entropy(nn.dense(rows, 4), t).mean()


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("name", EVERY)
def test_workers_are_accumulated_gradients(name: str, workers: int) -> None:
    against_accumulation(build(plain, EVERY[name], accumulate=True), workers)


@pytest.mark.parametrize("remote", [False, True], ids=["local", "remote"])
@pytest.mark.parametrize("name", ["sgd", "decayed", "adagrad", "adam", "lamb"])
def test_rows_of_workers_are_accumulated_gradients(name: str, remote: bool) -> None:
    against_accumulation(build(embedded, ROWWISE[name], accumulate=True, remote=remote), 3)


def against_accumulation(graph: Graph, workers: int) -> None:
    model = linnet.Model(graph)
    alone, cluster = linnet.Store(model), Cluster(graph, [graph], workers)
    add, apply = (linnet.Session(model, name, store=alone) for name in ("accumulate", "apply"))
    given = [named(graph, batch) for batch in batches(STEPS * workers)]
    for k in range(STEPS):
        group = given[k * workers : (k + 1) * workers]
        losses = [float(add.run(feeds)["loss"]) for feeds in group]
        apply.run({})
        assert cluster.step(group) == losses
        same(alone, cluster.shards[0], leave="accumulated")


def test_sixteen_bit_variables_have_gradients_of_32() -> None:
    graph = Graph()
    x = graph.placeholder("x", (4, 3), "f16")
    w = graph.variable("w", np.random.default_rng(0).standard_normal((3, 2)).astype(np.float16))
    y = x @ w.tensor(x)
    linnet.sync.signatures(graph, (y * y).mean(), Adam(0.1), {"x": x})
    cluster, session = Cluster(graph, [graph]), linnet.Session(graph, "train")
    assert cluster.grads[0].outputs[1].dtype == "f32"
    for _ in range(4):
        feeds = {"x": np.random.default_rng(1).standard_normal((4, 3)).astype(np.float16)}
        session.run(feeds)
        cluster.step([feeds])
        same(session.variables, cluster.shards[0])


def test_what_travels_is_named() -> None:
    graph = build(dense, lambda: Adam(loss_scale=linnet.DynamicLossScale()))
    assert contract.names_in(graph.metadata, contract.AVERAGE) == ["batch_norm/mean", "batch_norm/variance"]
    assert contract.names_in(graph.metadata, contract.COUNT) == ["random/counter"]
    assert contract.names_in(graph.metadata, contract.READ) == ["loss_scale/scale"]
    assert graph.metadata[contract.NOT_FINITE] == "update"
    graph = build(embedded, SGD, remote=True)
    assert graph.metadata == {contract.REMOTE: "embedding/weight"}
    assert graph.signatures[contract.IDS].inputs == ["i", "t"]
    assert "rows/embedding/weight" in graph.signatures[contract.GRAD].inputs


def test_averages_are_means_of_what_workers_have() -> None:
    graph = build(dense, SGD)
    cluster = Cluster(graph, [graph], 2)
    given = [named(graph, batch) for batch in batches(2)]
    cluster.step(given, weights=[1.0, 3.0])
    alone = []
    for feeds in given:
        session = linnet.Session(graph, "train")
        session.run(feeds)
        alone.append(session.variables["batch_norm/mean"])
    expected = (alone[0] + np.float32(3) * alone[1]) / np.float32(4)
    np.testing.assert_array_equal(cluster.value("batch_norm/mean"), expected)


def test_rows_may_be_repeated_to_round_their_number_up() -> None:
    for make in ROWWISE.values():
        graph = build(embedded, make)
        a, b = (Cluster(graph, [graph]) for _ in range(2))
        feeds = named(graph, batches(1)[0])
        total = aggregated([ready(a.grads[0].run(feeds))])
        ids, rows = "gradient/embedding/weight/ids", "gradient/embedding/weight/rows"
        padded = {**total, ids: np.pad(total[ids], (0, 5), "edge"), rows: np.pad(total[rows], ((0, 5), (0, 0)), "edge")}
        for cluster, given in ((a, total), (b, padded)):
            session = cluster.updates[0]
            assert session is not None
            session.run(given)
        same(a.shards[0], b.shards[0])


def test_no_rows_are_a_step_too() -> None:
    graph = build(embedded, lambda: Adam(0.1, lazy=True))
    cluster = Cluster(graph, [graph])
    session = cluster.updates[0]
    assert session is not None
    before = cluster.value("embedding/weight")
    shapes = {spec.name: tuple(d or 0 for d in spec.shape) for spec in session.inputs}
    session.run(
        {spec.name: np.zeros(shapes[spec.name], linnet.ir.dtypes.numpy_dtype(spec.dtype)) for spec in session.inputs}
    )
    np.testing.assert_array_equal(cluster.value("embedding/weight"), before)
    assert cluster.value("adam/step") == 1


def test_the_reference_adds_rows_up_in_order() -> None:
    ids, rows = summed(np.array([4, 1, 4, 4]), np.float32([[1e8], [2], [1], [-1e8]]))
    assert ids.tolist() == [1, 4] and rows.tolist() == [[2], [0]]  # (1e8 + 1) - 1e8 in f32


def test_federated_rounds_have_an_optimizer_of_their_own() -> None:
    graph = build(plain, lambda: SGD(1.0), local=Adam(0.1))
    model = linnet.Model(graph)
    store = linnet.Store(model)
    assert "adam/step" in store and "sgd/step" in store
    linnet.Session(model, "train", store=store).run(named(graph, batches(1)[0]))
    assert (store["adam/step"], store["sgd/step"]) == (1, 0)


def refusal(build: Callable[[Graph, Any], Tensor], remote: bool = True) -> str:
    graph = Graph()
    i = graph.placeholder("i", (5,), "i32")
    table = graph.variable("table", np.ones((9, 3), np.float32))
    other = graph.variable("other", np.ones(3, np.float32))
    loss = build(graph, i) + other.tensor(i).sum()
    with pytest.raises(linnet.UsageError) as caught:
        linnet.sync.signatures(graph, loss, SGD(0.1), {"i": i}, remote=[table] if remote else [])
    assert caught.value.tensor in ("table", "w/rows")
    return str(caught.value)


def test_what_cannot_be_remote_is_refused() -> None:
    def looked_up(graph: Graph, i: Any) -> Tensor:
        return ops.gather(graph.variables["table"].tensor(i), i)

    assert "an op other than a lookup reads this table: map" in refusal(
        lambda g, i: looked_up(g, i).sum() + (g.variables["table"].tensor(i) * 2.0).sum()
    )
    assert "gather" in refusal(lambda g, i: ops.gather(g.variables["table"].tensor(i), ops.scale(i, 0), axis=1).sum())
    assert "does not look up any row of this table" in refusal(lambda g, i: i.cast("f32").sum())

    def chained(graph: Graph, i: Any) -> Tensor:
        first = looked_up(graph, i)
        return ops.gather(graph.variables["table"].tensor(i), first.sum().cast("i32")).sum()

    assert "more of this table than the rows of a batch (in `ids`)" in refusal(chained)


def test_a_name_that_would_be_a_sparse_gradient_is_refused() -> None:
    def ends(graph: Graph, i: Any) -> Tensor:
        return graph.variable("w/rows", np.ones(2, np.float32)).tensor(i).sum()

    assert "must not end with /ids or /rows" in refusal(ends, remote=False)
