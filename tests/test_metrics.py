"""Metrics against NumPy, on one batch and over several."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import linnet
from linnet import metrics, ops
from linnet.facade import Graph

CLASSES = 5


def batch(size: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((size, CLASSES)).astype(np.float32)
    return {
        "x": np.round(logits, 1),
        "t": rng.integers(0, CLASSES - 1, size).astype(np.int32),
    }  # ties; class 4 never occurs


def inputs(graph: Graph) -> dict[str, Any]:
    return {"x": graph.placeholder("x", ("batch", CLASSES)), "t": graph.placeholder("t", ("batch",), "i32")}


def counted(predicted: Any, labels: Any) -> np.ndarray[Any, Any]:
    table = np.zeros((CLASSES, CLASSES))
    for p, t in zip(predicted, labels, strict=True):
        table[t, p] += 1
    return table


def test_one_batch() -> None:
    graph = Graph()
    given = inputs(graph)
    table = metrics.confusion_matrix(ops.argmax(given["x"], -1), given["t"], CLASSES)
    results = {"accuracy": metrics.accuracy(given["x"], given["t"]), "confusion": table}
    results |= {f"top{k}": metrics.top_k_accuracy(given["x"], given["t"], k) for k in (1, 2, 5)}
    results |= {"precision": metrics.precision(table), "recall": metrics.recall(table), "f1": metrics.f1(table)}
    graph.signature("eval", given, results)
    feeds = batch(200, 0)
    feeds["x"][:, 3] = -9.0  # never predicted
    found = linnet.Session(graph, "eval").run(feeds)
    order = np.argsort(-feeds["x"], axis=1, kind="stable")
    table_ = counted(order[:, 0], feeds["t"])
    np.testing.assert_array_equal(found["confusion"], table_)
    assert found["accuracy"] == pytest.approx(np.trace(table_) / 200) and found["top5"] == 1
    for k in (1, 2):
        assert found[f"top{k}"] == pytest.approx((order[:, :k] == feeds["t"][:, None]).any(1).mean())
    with np.errstate(invalid="ignore"):
        p, r = (np.nan_to_num(np.diag(table_) / table_.sum(axis)) for axis in (0, 1))
        np.testing.assert_allclose(found["f1"], np.nan_to_num(2 * p * r / (p + r)), rtol=1e-6)
    np.testing.assert_allclose(found["precision"], p, rtol=1e-6)
    np.testing.assert_allclose(found["recall"], r, rtol=1e-6)
    assert found["precision"][3] == 0 and found["recall"][4] == 0


def test_over_batches_of_several_sizes_and_again() -> None:
    graph = Graph()
    given = inputs(graph)
    size = ops.shape(given["t"])[0]
    mean = metrics.running_mean("accuracy", metrics.accuracy(given["x"], given["t"]), size)
    table = metrics.running_sum("confusion", metrics.confusion_matrix(ops.argmax(given["x"], -1), given["t"], CLASSES))
    graph.signature("eval", given, {"accuracy": mean.value, "table": table.value}, updates=mean.updates | table.updates)
    graph.signature("reset", {}, {}, updates=mean.reset | table.reset)
    model = linnet.Model(graph)
    store = linnet.Store(model)
    evaluate, reset = (linnet.Session(model, name, store=store) for name in ("eval", "reset"))
    for _ in range(2):
        reset.run({})
        every = [batch(n, n) for n in (7, 64, 1)]
        for feeds in every:
            found = evaluate.run(feeds)
        hits = counted(*(np.concatenate(p) for p in ([f["x"].argmax(1) for f in every], [f["t"] for f in every])))
        np.testing.assert_array_equal(found["table"], hits)
        assert found["accuracy"] == pytest.approx(np.trace(hits) / 72)
    assert not any(v.trainable for v in graph.variables.values())


@pytest.mark.parametrize("wrong", [-1, CLASSES])
def test_a_class_out_of_range_is_an_error(wrong: int) -> None:
    graph = Graph()
    given = inputs(graph)
    graph.signature("eval", given, {"table": metrics.confusion_matrix(ops.argmax(given["x"], -1), given["t"], CLASSES)})
    feeds = batch(4, 1)
    feeds["t"][2] = wrong
    with pytest.raises(linnet.GraphError, match=f"'t/class'.*from 0 to 4, got {wrong}"):
        linnet.Session(graph, "eval").run(feeds)


def test_wrong_operands_are_refused() -> None:
    graph = Graph()
    given = inputs(graph)
    with pytest.raises(linnet.UsageError, match="argmax"):
        metrics.confusion_matrix(given["x"], given["t"], CLASSES)
    with pytest.raises(linnet.UsageError, match="at most 5, got 6"):
        metrics.top_k_accuracy(given["x"], given["t"], 6)


def test_labels_that_are_none_are_refused() -> None:
    graph = linnet.Graph()
    logits, wide = graph.placeholder("logits", ("batch", 5)), graph.placeholder("wide", ("batch", 1), "i32")
    floats = graph.placeholder("floats", ("batch",))
    for metric in (metrics.accuracy, metrics.correct, lambda x, t: metrics.top_k_accuracy(x, t, 2)):
        for labels in (wide, floats, logits):
            with pytest.raises(linnet.UsageError, match="labels do not match the logits"):
                metric(logits, labels)
