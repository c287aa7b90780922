"""Two graphs do not mix: whatever brings their tensors, variables or functions together is an error that names both graphs.
Nothing connects them, so that a signature took a variable of the same name, or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import nn, ops
from linnet.ir.function import emit

W = np.eye(4, dtype=np.float32)


class Two:
    """Graphs a and b, each with an input, a variable "w", a function of these and a loss; b also has a function."""

    def __init__(self) -> None:
        self.a, self.b = linnet.Graph(), linnet.Graph()
        self.x, self.z = self.a.placeholder("x", (2, 4)), self.b.placeholder("z", (2, 4))
        self.va, self.vb = self.a.variable("w", W), self.b.variable("w", 3 * W)
        self.ya, self.yb = self.x @ self.va, self.z @ self.vb
        self.la, self.lb = self.ya.sum(), self.yb.sum()
        self.one = self.b.constant(np.float32(1), "one")
        self.inner = self.b.function("inner")
        self.inner.outputs = [-self.inner.placeholder("p", "f32", (2, 4))]


def call(two: Two) -> Any:
    return emit("call", [two.x], {"function": two.inner})


def trained(two: Two) -> Any:
    return linnet.SGD(0.1).apply({two.va: linnet.gradients(two.lb, [two.vb])[0]})


WAYS: dict[str, Callable[[Two], Any]] = {
    "operator": lambda t: t.x + t.z,
    "operator, the other way": lambda t: t.z - t.x,
    "comparison": lambda t: t.x < t.z,
    "matrix product": lambda t: t.x @ t.z.transpose(),
    "constant": lambda t: t.x * t.one,
    "variable": lambda t: t.x @ t.vb,
    "variable first": lambda t: t.vb * t.x[0],
    "two variables": lambda t: t.va + t.vb,
    "index": lambda t: ops.gather(t.x, t.z[0].cast("i64")),
    "concat": lambda t: ops.concat([t.x, t.z], axis=0),
    "where": lambda t: ops.where(t.x > 0, t.x, t.z),
    "einsum": lambda t: ops.einsum("ij,kj->ik", t.x, t.z),
    "layer": lambda t: nn.multi_head_attention(ops.reshape(t.x, [1, 2, 4]), ops.reshape(t.z, [1, 2, 4]), heads=2),
    "loss": lambda t: linnet.losses.mse(t.x, t.z),
    "metric": lambda t: linnet.metrics.accuracy(t.x, t.z[:, 0].cast("i64")),
    "function": call,
    "condition": lambda t: linnet.cond(t.z.sum() > 0, lambda: t.x, lambda: t.x * 2),
    "captured by a branch": lambda t: linnet.cond(t.x.sum() > 0, lambda: t.x + t.z, lambda: t.x),
    "captured by a branch, from the other": lambda t: linnet.cond(t.x.sum() > 0, lambda: t.z + t.x, lambda: t.x),
    "variable in a branch": lambda t: linnet.cond(t.x.sum() > 0, lambda: t.x @ t.vb, lambda: t.x),
    "result of a branch": lambda t: linnet.cond(t.x.sum() > 0, lambda: t.z, lambda: t.x),
    "variable as result of a branch": lambda t: linnet.cond(t.la > 0, lambda: t.vb, lambda: t.va),
    "constant as result of a branch": lambda t: linnet.cond(t.la > 0, lambda: t.one, lambda: t.la),
    "operand of a branch": lambda t: linnet.cond(t.la > 0, lambda v: v, lambda v: v * 2, t.z),
    "while": lambda t: linnet.while_loop(lambda s: s.sum() < 9, lambda s: s + t.z, t.x),
    "while, condition": lambda t: linnet.while_loop(lambda s: t.lb < 9, lambda s: s + 1, t.x),
    "while, maximum": lambda t: linnet.while_loop(
        lambda s: s.sum() < 9, lambda s: s + 1, t.x, maximum=t.lb.cast("i64")
    ),
    "while, state": lambda t: linnet.while_loop(lambda s: s[0].sum() < 9, lambda s: s, (t.x, t.z)),
    "scan": lambda t: linnet.scan(lambda s, v: (s + v, v), t.x[0], t.z),
    "scan, captured": lambda t: linnet.scan(lambda s, v: (s + v + t.z[0], v), t.x[0], t.x),
    "gradient of a tensor": lambda t: linnet.gradients(t.la, [t.z]),
    "gradient of a variable": lambda t: linnet.gradients(t.la, [t.va, t.vb]),
    "seed of gradients": lambda t: linnet.gradients(t.la, [t.va], seed=t.lb),
    "minimize": lambda t: linnet.SGD(0.1).minimize(t.la, [t.va, t.vb]),
    "apply": trained,
    "learning rate": lambda t: linnet.SGD(t.one).minimize(t.la),
    "side update": lambda t: t.a.side_update(t.vb, lambda v: v),
    "side update, value": lambda t: t.a.side_update(t.va, t.vb * 2),
    "side update, along": lambda t: t.a.side_update(t.va, lambda v: v, along=t.lb),
    "signature": lambda t: t.a.signature("infer", {"z": t.z}, {"y": t.yb}),
    "signature, input": lambda t: t.a.signature("infer", {"x": t.x, "z": t.z}, {"y": t.ya}),
    "signature, output": lambda t: t.a.signature("infer", {"x": t.x}, {"y": t.ya, "z": t.lb}),
    "signature, variable": lambda t: t.a.signature("infer", {"x": t.x}, {"w": t.vb}),
    "signature, updated": lambda t: t.a.signature("train", {"x": t.x}, {"y": t.ya}, updates={t.vb: t.va * 2}),
    "signature, update": lambda t: t.a.signature("train", {"x": t.x}, {"y": t.ya}, updates={t.va: t.vb * 2}),
    "signature, replaced": lambda t: t.a.signature("infer", {"x": t.x}, {"y": t.ya}, replace={t.x: t.z}),
    "signature, function": lambda t: t.a.signature("infer", t.inner),
    "training": lambda t: linnet.training.signatures(t.a, t.lb, linnet.SGD(0.1), {"x": t.x}),
    "write a parameter": lambda t: t.a.main.read(t.vb),
}


@pytest.mark.parametrize("way", WAYS)
def test_two_graphs_do_not_mix(way: str) -> None:
    two = Two()
    with pytest.raises(linnet.UsageError) as caught:
        WAYS[way](two)
    text = str(caught.value)
    assert "belongs to another graph" in text, text
    assert all(f"graph {graph.number} (" in text for graph in (two.a, two.b)), text
    assert "input 'x'; variable" in text and "input 'z'; variable" in text, text
    two.a.signature("infer", {"x": two.x}, {"y": two.ya})  # nothing is broken
    assert linnet.Session(two.a).run({"x": W[:2]})["y"].tolist() == W[:2].tolist()


def test_a_graph_says_what_it_is() -> None:
    graph = linnet.Graph()
    assert repr(graph) == f"<linnet.Graph: graph {graph.number} (empty)>"
    x = [graph.placeholder(name, (1,)) for name in "pqrs"]
    graph.signature("infer", {"x": x[0]}, {"y": -x[0]})
    assert graph.label == f"graph {graph.number} (inputs 'p', 'q', 'r', ...; signature 'infer')"
    assert graph.copy().number > graph.number
