"""Gradients against finite differences, one function per rule, at points that expose a wrong sign, a lost factor or swapped
operands. tests/test_gradients.py covers everything; this file is quick."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.autodiff import gradients
from linnet.facade import Graph
from linnet.ir.function import Tensor

RNG = np.random.default_rng(9)
X, W, V = RNG.standard_normal((4, 4)), RNG.standard_normal((4, 4)), RNG.standard_normal((4, 4))
TWICE = np.array([2, 0, 2, 1, 2])


def constant(x: Tensor, value: Any) -> Tensor:
    return x.function.constant(np.asarray(value))


def weighted(y: Tensor) -> Tensor:
    """A sum in which every element has another weight."""
    size = int(np.prod(y.static_shape or ()))
    return (y * constant(y, np.linspace(0.5, 2, size).reshape(y.static_shape or ()))).sum()


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "matmul left": lambda x: weighted(x @ constant(x, W)),
    "matmul right": lambda x: weighted(constant(x, W) @ x),
    "matmul turned": lambda x: weighted(ops.matmul(x, constant(x, W), transpose_a=True, transpose_b=True)),
    "matmul turned right": lambda x: weighted(ops.matmul(constant(x, W), x, transpose_a=True, transpose_b=True)),
    "softmax": lambda x: weighted(ops.softmax(x, axis=1)),
    "log softmax": lambda x: weighted(ops.softmax(x, axis=0, log=True)),
    "cross entropy": lambda x: weighted(linnet.losses.softmax_cross_entropy(x, constant(x, [1, 0, 3, 2]))),
    "mean": lambda x: weighted(ops.reduce(x, kind="mean", axis=[1], keep_dims=False)),
    "max": lambda x: weighted(ops.reduce(x, kind="max", axis=[1], keep_dims=False)),
    "sum of squares": lambda x: weighted(ops.reduce(x, kind="sum_square", axis=[0])),
    "norm": lambda x: weighted(ops.reduce(x, kind="l2", axis=[0])),
    "log sum exp": lambda x: weighted(ops.reduce(x, kind="log_sum_exp", axis=[1])),
    "product": lambda x: weighted(ops.reduce(x, kind="prod", axis=[1])),
    "batch norm mean": lambda x: weighted(
        ops.batch_norm(constant(x, V), *(constant(x, W[i]) for i in (0, 1)), x[0], constant(x, np.abs(W[2])), epsilon=0.3)
    ),
    "batch norm variance": lambda x: weighted(
        ops.batch_norm(constant(x, V), *(constant(x, W[i]) for i in (0, 1, 3)), x[0] * x[0], epsilon=0.3)
    ),
    "layer norm": lambda x: weighted(ops.layer_norm(x, epsilon=0.3)[0]),
    "look-up": lambda x: weighted(ops.gather(x, constant(x, TWICE))),
    "look-up of columns": lambda x: weighted(ops.gather(x, constant(x, TWICE), axis=1)),
    "elements": lambda x: weighted(ops.gather(x, constant(x, TWICE.reshape(1, 5)[:, :4]), kind="elements", axis=0)),
    "elements twice": lambda x: weighted(ops.gather(x, constant(x, np.tile(TWICE, (4, 1))), kind="elements", axis=1)),
    "running sum": lambda x: weighted(ops.cumsum(x, constant(x, 1))),
    "running sum back": lambda x: weighted(ops.cumsum(x, constant(x, 0), reverse=True, exclusive=True)),
    "turn of three axes": lambda x: weighted(ops.transpose(ops.reshape(x, [2, 2, 4]), [2, 0, 1])),
    "relu": lambda x: weighted(ops.relu(x)),
    "select": lambda x: weighted(linnet.pointwise([x], lambda v: (v > 0.2).select(v * v, v * 3.0))),
    "slice": lambda x: weighted(x[1:3]),
    "concat": lambda x: weighted(ops.concat([x, x * x], 1)),
    "tanh": lambda x: weighted(ops.tanh(x)),
    "quotient": lambda x: weighted(constant(x, W) / (x * x + 1.0)),
    "power": lambda x: weighted((x * x + 0.5) ** 1.5),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradient_is_the_slope(name: str) -> None:
    graph = Graph()
    x = graph.placeholder("x", X.shape, "f64")
    y = FUNCTIONS[name](x)
    (slope,) = gradients(y, [x])
    graph.signature("infer", {"x": x}, {"y": y, "slope": slope})
    session = linnet.Session(graph)
    found = session.run({"x": X})["slope"]
    values = linnet.Session(graph, fetches=["y"])
    expected = np.empty_like(X)
    for at in np.ndindex(X.shape):
        step = np.zeros_like(X)
        step[at] = 1e-5
        expected[at] = (values.run({"x": X + step})["y"] - values.run({"x": X - step})["y"]) / 2e-5
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


def test_cross_entropy_of_labels_that_are_fed() -> None:
    """softmax - one-hot, times the weight of each example."""
    graph = Graph()
    x, labels = graph.placeholder("x", X.shape, "f64"), graph.placeholder("labels", (4,), "i64")
    (slope,) = gradients(weighted(linnet.losses.softmax_cross_entropy(x, labels)), [x])
    graph.signature("infer", {"x": x, "labels": labels}, {"slope": slope})
    given = np.array([1, 0, 3, 2])
    found = linnet.Session(graph).run({"x": X, "labels": given})["slope"]
    share = np.exp(X) / np.exp(X).sum(1, keepdims=True)
    np.testing.assert_allclose(found, (share - np.eye(4)[given]) * np.linspace(0.5, 2, 4)[:, None], rtol=1e-9)


def test_equal_maxima_share_their_gradient() -> None:
    graph = Graph()
    x = graph.placeholder("x", (2, 4), "f64")
    y = (ops.reduce(x, kind="max", axis=[1], keep_dims=False) * constant(x, np.array([1.0, 6.0]))).sum()
    (slope,) = gradients(y, [x])
    graph.signature("infer", {"x": x}, {"slope": slope})
    found = linnet.Session(graph).run({"x": np.array([[1.0, 3, 3, 2], [5, 5, 0, 5]])})["slope"]
    assert found.tolist() == [[0, 0.5, 0.5, 0], [2, 2, 0, 2]]
