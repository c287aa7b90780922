"""Random numbers in a graph: dropout and noise. Every number is a function of the graph's seed, the node, and a counter
variable that each training step advances. A resumed run therefore draws the same numbers as an uninterrupted one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from linnet.builder import generated as builders
from linnet.builder import ops
from linnet.builder.mapping import pointwise
from linnet.clib.errors import UsageError
from linnet.ir.function import Operators, Tensor, Variable
from linnet.ir.graph import Graph, graph_of

COUNTER = "random/counter"


def _next(count: Operators) -> Tensor:
    return count + 1


def _draw(graph: Graph, kind: str, shape: Sequence[int] | Operators, like: Operators | None = None) -> Tensor:
    counter = graph.variables.get(COUNTER)
    if counter is None:  # one counter for the whole graph, independent of the scope
        counter = Variable(COUNTER, np.zeros((), np.int64), graph=graph, trainable=False)
        graph.variables[COUNTER] = counter
    stream, graph.random_nodes = graph.random_nodes, graph.random_nodes + 1
    operand = shape if isinstance(shape, Operators) else None
    count = counter.tensor(operand if operand is not None else like)
    for body in (
        graph.bodies
    ):  # other numbers in each iteration of a loop; the factor is from Knuth's linear congruential generator
        if body.iteration is not None:
            count = count * 6364136223846793005 + body.iteration + 1
    made = builders.random(
        count, operand, kind=kind, seed=graph.seed, stream=stream,
        shape=() if isinstance(shape, Operators) else tuple(shape),
    )  # fmt: skip
    graph.side_update(counter, _next, along=made)
    return made


def random_uniform(graph: Graph, shape: Sequence[int] | Operators, low: float = 0.0, high: float = 1.0) -> Tensor:
    """f32 values in [low, high), new in each training step. shape: numbers, or an i64 vector such as ops.shape(x)."""
    made = _draw(graph, "uniform", shape)
    return made if (low, high) == (0.0, 1.0) else ops.scale(made, high - low, low)


def random_normal(graph: Graph, shape: Sequence[int] | Operators, mean: float = 0.0, deviation: float = 1.0) -> Tensor:
    """f32 values with this mean and standard deviation, new in each training step. shape: as in random_uniform."""
    made = _draw(graph, "normal", shape)
    return made if (mean, deviation) == (0.0, 1.0) else ops.scale(made, deviation, mean)


def _shape(x: Operators) -> Sequence[int] | Tensor:
    return x.static_shape if x.static_shape is not None else ops.shape(x)


def dropout(x: Operators, rate: float, training: bool) -> Tensor:
    """Sets each element to 0 with probability `rate` and multiplies the others by 1 / (1 - rate) (Srivastava et al.
    2014).

    Without training it returns x itself and costs nothing. rate: in [0, 1).
    """
    if not 0.0 <= rate < 1.0:
        raise UsageError(
            "the dropout rate is out of range", code=101, tensor=x.name, expected="0 <= rate < 1", got=str(rate)
        )
    if not training or rate == 0.0:
        return x.tensor()
    keep = 1.0 / (1.0 - rate)
    made = pointwise(
        [x, _draw(graph_of(x), "uniform", _shape(x), x)], lambda v, u: (u >= rate).select(v * keep, 0.0), x.dtype
    )
    assert isinstance(made, Tensor)
    return made


def gaussian_noise(x: Operators, deviation: float, training: bool) -> Tensor:
    """While training, x plus normal noise with this standard deviation; otherwise x itself."""
    if not training or deviation == 0.0:
        return x.tensor()
    made = pointwise([x, _draw(graph_of(x), "normal", _shape(x), x)], lambda v, n: v + n * deviation, x.dtype)
    assert isinstance(made, Tensor)
    return made
