"""A user op in Python with a gradient: sparsemax (Martins and Astudillo, 2016), a softmax whose small results are 0.
The kernel sorts, in NumPy. The gradient is made of linnet's own nodes, so it needs no kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import linnet
from linnet import ops

Array = npt.NDArray[Any]


def run(x: Array) -> Array:
    """The point of the simplex that is nearest to each row of x."""
    ordered = -np.sort(-x, axis=-1)
    total = np.cumsum(ordered, axis=-1)
    rank = np.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    size = (1 + rank * ordered > total).sum(axis=-1, keepdims=True)  # how many results are not 0
    threshold = (np.take_along_axis(total, size - 1, axis=-1) - 1) / size.astype(x.dtype)
    return np.maximum(x - threshold, 0).astype(x.dtype)


def shape(x: Any) -> Any:
    """The dtype and the shape of the result."""
    return x.dtype, x.shape


def gradient(
    inputs: Sequence[linnet.Tensor], outputs: Sequence[linnet.Tensor], gradients: Sequence[linnet.Tensor]
) -> list[linnet.Tensor]:
    """Where the result is not 0: the gradient minus its mean over these elements."""
    (y,), (g,) = outputs, gradients
    support = linnet.pointwise([y], lambda v: (v > 0.0).select(1.0, 0.0), dtypes=[y.dtype])
    count = ops.reduce(support, kind="sum", axis=[-1])
    mean = ops.reduce(g * support, kind="sum", axis=[-1]) / count
    return [support * (g - mean)]


SPARSEMAX = linnet.UserOp("com.example.sparsemax", run, shape, gradient=gradient, inputs=1, exact=True)


def build(features: int, classes: int, dtype: str = "f32") -> linnet.Graph:
    """A linear model with sparsemax on top, and the signatures "infer" and "train". "gradient" gives d loss / d x."""
    graph = linnet.Graph(seed=1)
    x, t = graph.placeholder("x", ("n", features), dtype), graph.placeholder("t", ("n", classes), dtype)
    numpy_dtype = np.float64 if dtype == "f64" else np.float32
    w = graph.variable("w", np.random.default_rng(0).standard_normal((features, classes)).astype(numpy_dtype))
    y = SPARSEMAX(x @ w)
    loss = ops.reduce((y - t) * (y - t), kind="mean", keep_dims=False)
    graph.signature("infer", {"x": x}, {"y": y})
    graph.signature("gradient", {"x": x, "t": t}, {"loss": loss, "dx": linnet.gradients(loss, [x])[0]})
    if dtype == "f32":
        graph.signature("train", {"x": x, "t": t}, {"loss": loss}, updates=linnet.Adam(0.05).minimize(loss))
    return graph
