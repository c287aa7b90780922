"""max_bytes never changes a bit of what a training step computes, nor of a gradient: not where variables have no packed copies,
and not in the segments of loops whose number of iterations is known only in the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.facade import Graph

Feeds = dict[str, Any]
GATES = {"rnn": 1, "gru": 3, "lstm": 4}


def some(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32) / shape[-1] ** 0.5


def limits(total: int) -> Iterator[int]:
    yield from (total * share // 100 for share in range(100, 40, -4))


def unchanged(graph: Graph, signature: str, feeds: Feeds, wanted: int) -> None:
    """The results of every limit that is enough are those without a limit. At least `wanted` limits are enough."""
    model = linnet.Model(graph)
    for isa in (linnet.isa_names()[0], linnet.isa_names()[-1]):
        free = linnet.Session(model, signature, threads=1, isa_max=isa)
        expected = free.run(feeds)
        fitted = 0
        for limit in limits(free.memory_kept):
            try:
                tight = linnet.Session(model, signature, threads=1, isa_max=isa, max_bytes=limit)
                found = tight.run(feeds)
            except linnet.Error as error:
                assert "memory" in str(error), error
                continue
            fitted += 1
            for name, value in expected.items():
                assert found[name].tobytes() == value.tobytes(), (name, limit, isa, [s.kernel for s in tight.steps])
        assert fitted >= wanted, "no limit was tight enough, and enough"


def finish(graph: Graph, feeds: dict[str, Any], y: Any, trained: list[Any], updates: bool = True) -> None:
    loss = (y * y).mean()
    gradients = linnet.gradients(loss, trained)
    made = {"loss": loss, **{f"d{i}": d for i, d in enumerate(gradients)}}
    new = {w: w - 0.01 * d for w, d in zip(trained, gradients, strict=True)} if updates else None
    graph.signature("train", feeds, made, updates=new)


@pytest.mark.parametrize("updates", [True, False])
@pytest.mark.parametrize(("size", "batch"), [(3, 16), (8, 1), (8, 4), (32, 4)])
def test_gradients_of_open_loops(size: int, batch: int, updates: bool) -> None:
    graph = linnet.Graph(seed=1)
    n, x = graph.placeholder("n", (), "i64"), graph.placeholder("x", (batch, size))
    w = graph.variable("w", some(size, size))
    _, y = linnet.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] @ w), (0, x * 1.0))
    finish(graph, {"n": n, "x": x}, y, [w], updates)
    for iterations in (1, 8):
        unchanged(graph, "train", {"n": np.int64(iterations), "x": some(batch, size, seed=2)}, 1)


@pytest.mark.parametrize("kind", GATES)
def test_recurrent_layers_whose_first_is_frozen(kind: str) -> None:
    time, batch, size, hidden = 9, 3, 40, 24
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", (time, batch, size))
    h, trained = x, []
    for layer, inner in enumerate((size, hidden)):
        w = graph.variable(f"w{layer}", some(inner, GATES[kind] * hidden))
        u = graph.variable(f"u{layer}", some(1, GATES[kind] * hidden, hidden))
        b = graph.variable(f"b{layer}", some(1, hidden)) if kind == "gru" else None
        y = ops.recurrent(h @ w, u, bias=b, kind=kind, linear_before_reset=kind == "gru", outputs=2)[0]
        h = ops.reshape(y, shape=(time, batch, hidden))
        trained += [w, u] if layer else []
    finish(graph, {"x": x}, h, trained)
    unchanged(graph, "train", {"x": some(time, batch, size, seed=2)}, 1)


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "conv3": ((32, 32, 3, 3), {"pads": [1] * 4}),
    "conv1": ((48, 32, 1, 1), {}),
    "depthwise": ((32, 1, 3, 3), {"pads": [1] * 4, "group": 32}),
    "strided": ((24, 32, 5, 5), {"strides": [2, 2]}),
    "conv_transpose": ((32, 16, 3, 3), {"pads": [1] * 4, "strides": [2, 2]}),
}


@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_frozen_convolutions(kind: str, trains: bool) -> None:
    """In inference, too."""
    shape, attributes = CONVOLUTIONS[kind]
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", (1, 32, 14, 13))
    w = graph.variable("w", some(*shape))
    b = graph.variable("b", some(shape[1] if kind == "conv_transpose" else shape[0]))
    y = (ops.conv_transpose if kind == "conv_transpose" else ops.conv)(x, w, b, **attributes)
    last = graph.variable("last", some(int(y.shape[1]), 8))
    z = ops.transpose(y, perm=(0, 2, 3, 1)) @ last
    if trains:
        finish(graph, {"x": x}, z, [last])
    else:
        graph.signature("train", {"x": x}, {"z": z})
    unchanged(graph, "train", {"x": some(1, 32, 14, 13, seed=2)}, 1)


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("rows", [1, 2, 7, 40])
def test_frozen_products(rows: int, turned: bool) -> None:
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", (rows, 40))
    w = graph.variable("w", some(96, 40) if turned else some(40, 96))
    y = (x @ (ops.transpose(w, perm=(1, 0)) if turned else w)) + graph.variable("b", some(96))
    last = graph.variable("last", some(96, 8))
    finish(graph, {"x": x}, ops.tanh(y) @ last, [last])
    unchanged(graph, "train", {"x": some(rows, 40, seed=2)}, 1)
