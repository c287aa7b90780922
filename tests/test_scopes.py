"""Names, sharing of variables between builds of one model, trainable variables, and updates without an optimizer."""

from __future__ import annotations

import numpy as np
import pytest

import linnet
from linnet import init


def test_reuse_shares_variables_and_only_those() -> None:
    graph = linnet.Graph()
    with graph.scope("net"):
        first = graph.variable("w", init.he((3, 2)))
        with graph.scope(graph.unique_scope("block")), graph.scope("deep"):
            deep = graph.variable("b", np.zeros(2, np.float32))
    with graph.scope("net", reuse=True):
        assert graph.variable("w", init.he((3, 2))) is first
        with graph.scope(graph.unique_scope("block")), graph.scope("deep"):
            assert graph.variable("b", np.ones(2, np.float32)) is deep
            with graph.scope("own", reuse=False):
                graph.variable("c", 1.0)
        with pytest.raises(linnet.UsageError, match="no variable named 'net/v' to share"):
            graph.variable("v", np.zeros(2))
        with (
            pytest.raises(linnet.UsageError, match=r"no variable named 'net/other/w'.*expected net/w"),
            graph.scope("other"),
        ):
            graph.variable("w", init.he((3, 2)))
        with pytest.raises(linnet.UsageError, match=r"expected f32 \[3, 2\], got f32 \[2, 3\]"):
            graph.variable("w", init.he((2, 3)))
        with pytest.raises(linnet.UsageError, match=r"expected f32 \[3, 2\], got f64 \[3, 2\]"):
            graph.variable("w", init.he((3, 2), "f64"))
    with pytest.raises(linnet.UsageError, match=r"already exists.*reuse=True"), graph.scope("net"):
        graph.variable("w", init.he((3, 2)))
    assert not graph.reuse and list(graph.variables) == ["net/w", "net/block/deep/b", "net/block/deep/own/c"]


def test_unique_scopes_begin_anew_with_their_scope() -> None:
    graph = linnet.Graph()
    for _ in range(2):
        with graph.scope("net"):
            assert [graph.unique_scope("conv") for _ in range(3)] == ["conv", "conv_1", "conv_2"]
            assert graph.unique_scope("dense") == "dense"


def test_trainable_variables() -> None:
    graph = linnet.Graph()
    w, _ = graph.variable("w", 1.0), graph.variable("count", np.int32(0), trainable=False)
    assert graph.trainable_variables == [w]
    assert [v.name for v in graph.copy().trainable_variables] == ["w"]


def test_side_updates_go_with_what_they_belong_to() -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", ())
    average = graph.variable("average", np.float32(0), trainable=False)
    count = graph.variable("count", np.int64(0), trainable=False)
    here, there = x * 2.0, x * 3.0
    step = lambda n: n + 1  # noqa: E731
    for tensor in (here, there):
        graph.side_update(average, lambda a, t=tensor: a * 0.5 + t * 0.5, along=tensor)
        graph.side_update(count, step, along=tensor)
    loss = here + 1.0
    assert set(graph.side_updates_of([x])) == set()
    graph.signature("one", {"x": x}, {"loss": loss}, updates=graph.side_updates_of([loss]))
    graph.signature("both", {"x": x}, {}, updates=graph.side_updates_of([loss, there]))
    model = linnet.Model(graph)
    store = linnet.Store(model)
    linnet.Session(model, "one", store=store).run({"x": 1.0})
    assert (store["average"], store["count"]) == (1.0, 1)
    linnet.Session(model, "both", store=store).run({"x": 1.0})
    assert (store["average"], store["count"]) == (
        (1.0 * 0.5 + 1.0) * 0.5 + 1.5,
        2,
    )  # in order; the counter appears once

    graph.side_update(average, there)
    with pytest.raises(linnet.UsageError, match="two values"):
        graph.side_updates_of([loss])
