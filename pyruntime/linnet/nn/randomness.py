"""Random numbers in a graph: dropout and noise. Every number is a function of the graph's seed, the node, and a counter
variable that each training step advances, so that a run that is resumed draws what it would have drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from linnet import ops
from linnet._generated import builders
from linnet.errors import UsageError
from linnet.graph import Graph, Tensor, Variable
from linnet.mapping import pointwise
from linnet.operators import Operators

COUNTER = "random/counter"


def _next(count: Operators) -> Tensor:
    return count + 1


def _draw(graph: Graph, kind: str, shape: Sequence[int] | Operators, like: Operators | None = None) -> Tensor:
    counter = graph.variables.get(COUNTER)
    if counter is None:  # one for the whole graph, whatever the scope
        counter = Variable(COUNTER, np.zeros((), np.int64), graph=graph, trainable=False)
        graph.variables[COUNTER] = counter
    stream, graph.random_nodes = graph.random_nodes, graph.random_nodes + 1
    operand = shape if isinstance(shape, Operators) else None
    count = counter.tensor(operand if operand is not None else like)
    for (
        body
    ) in graph.bodies:  # in a loop, other numbers in each iteration; the factor is Knuth's, of a linear congruence
        if body.iteration is not None:
            count = count * 6364136223846793005 + body.iteration + 1
    made = builders.random(
        count, operand, kind=kind, seed=graph.seed, stream=stream,
        shape=() if isinstance(shape, Operators) else tuple(shape),
    )  # fmt: skip
    graph.side_update(counter, _next, along=made)
    return made


def random_uniform(graph: Graph, shape: Sequence[int] | Operators, low: float = 0.0, high: float = 1.0) -> Tensor:
    """f32 in [low, high), new in each training step. shape: numbers, or an i64 vector such as ops.shape(x)."""
    made = _draw(graph, "uniform", shape)
    return made if (low, high) == (0.0, 1.0) else ops.scale(made, high - low, low)


def random_normal(graph: Graph, shape: Sequence[int] | Operators, mean: float = 0.0, deviation: float = 1.0) -> Tensor:
    """f32 with this mean and standard deviation, new in each training step. shape: as in random_uniform."""
    made = _draw(graph, "normal", shape)
    return made if (mean, deviation) == (0.0, 1.0) else ops.scale(made, deviation, mean)


def _shape(x: Operators) -> Sequence[int] | Tensor:
    return x.static_shape if x.static_shape is not None else ops.shape(x)


def dropout(x: Operators, rate: float, training: bool) -> Tensor:
    """Sets each element to 0 with probability `rate` and multiplies the others by 1 / (1 - rate) (Srivastava et al. 2014).

    Without training it is x itself, and costs nothing. rate: in [0, 1).
    """
    if not 0.0 <= rate < 1.0:
        raise UsageError("no such rate of dropout", code=101, tensor=x.name, expected="0 <= rate < 1", got=str(rate))
    if not training or rate == 0.0:
        return x.tensor()
    keep = 1.0 / (1.0 - rate)
    made = pointwise(
        [x, _draw(x.function.graph, "uniform", _shape(x), x)], lambda v, u: (u >= rate).select(v * keep, 0.0), x.dtype
    )
    assert isinstance(made, Tensor)
    return made


def gaussian_noise(x: Operators, deviation: float, training: bool) -> Tensor:
    """x plus normal noise of this standard deviation while training, else x itself."""
    if not training or deviation == 0.0:
        return x.tensor()
    made = pointwise([x, _draw(x.function.graph, "normal", _shape(x), x)], lambda v, n: v + n * deviation, x.dtype)
    assert isinstance(made, Tensor)
    return made
