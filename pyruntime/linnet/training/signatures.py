"""The signatures with which a model is trained, as the native trainer and `fit` use them: `train`, `eval`, and for batches that
do not fit into memory `accumulate` and `apply`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from linnet.autodiff import SparseRows
from linnet.autodiff._tools import elementwise, filled
from linnet.errors import UsageError
from linnet.graph import Graph, Tensor, Variable
from linnet.mapping import REGISTER
from linnet.optimizers import Gradient, Optimizer, Updates
from linnet.optimizers._step import state


def signatures(
    graph: Graph,
    loss: Tensor,
    optimizer: Optimizer,
    inputs: Mapping[str, Tensor],
    outputs: Mapping[str, Tensor] | None = None,
    *,
    variables: Sequence[Variable] | None = None,
    evaluate: Mapping[str, Tensor] | None = None,
    accumulate: bool = False,
) -> None:
    """Writes `train` and `eval`, and with `accumulate` also `accumulate` and `apply`.

    loss: one number, the mean over the batch. inputs: placeholders by name, data and labels. outputs: metrics beside "loss".
    variables: those to train (all trainable ones behind the loss). evaluate: the outputs of `eval`, when the model computes
    something else then (without dropout, with moving averages); else "loss" and outputs.
    `accumulate` adds the gradients of a batch up; `apply`, which has neither inputs nor outputs, updates by their mean and
    begins again. With batches of one size that is the step of one large batch. `train` needs no accumulators.
    """
    results = {"loss": loss, **(outputs or {})}
    graph.signature("train", inputs, results, updates=optimizer.minimize(loss, variables))
    graph.signature("eval", inputs, dict(results if evaluate is None else evaluate))
    if accumulate:
        adding, applying = accumulation(loss, optimizer, variables)
        graph.signature("accumulate", inputs, results, updates=adding)
        graph.signature("apply", {}, {}, updates=applying)


def accumulation(
    loss: Tensor, optimizer: Optimizer, variables: Sequence[Variable] | None = None
) -> tuple[Updates, Updates]:
    """The updates that add the gradients of a batch to accumulators, and those that apply their mean and clear them.

    Accumulators are variables "<variable>/accumulated", their count is "accumulated/count". Raises UsageError for a lazy
    optimizer of rows: what was accumulated has no rows left that were not touched.
    """
    graph = loss.function.graph
    given = optimizer.differentiate(loss, variables)
    count = state(graph, "accumulated/count", np.int64(0))
    adding: Updates = {**graph.side_updates_of([loss]), count: count.tensor(loss) + 1}
    means: dict[Variable, Gradient] = {}
    applying: Updates = {}
    number = count.tensor(loss)
    for variable, g in given.items():
        if isinstance(g, SparseRows) and optimizer.lazy:
            raise UsageError(
                "a lazy optimizer cannot accumulate", code=101, tensor=variable.name,
                hint="make it with lazy=False, or train without accumulation",
            )  # fmt: skip
        dtype = np.float64 if variable.value.dtype == np.float64 else np.float32
        total = state(graph, f"{variable.name}/accumulated", np.zeros(variable.value.shape, dtype))
        old, kind = total.tensor(loss), REGISTER[g.dtype]
        adding[total] = (
            g.sums().add_to(old) if isinstance(g, SparseRows) else elementwise([old, g], lambda s, v: s + v, kind)
        )
        means[variable] = elementwise([old, number], lambda s, n, kind=kind: s / n.cast(kind), kind)
        applying[total] = filled(old, 0.0)
    some = elementwise([number], lambda n: n > 0, "bool")
    return adding, {**optimizer.apply(means, when=some), **applying, count: number * 0}
