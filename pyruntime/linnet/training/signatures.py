"""The signatures for training, as used by the native trainer and `fit`: `train` and `eval`. For batches that do not fit
into memory there are also `accumulate` and `apply`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from linnet.autodiff import SparseRows
from linnet.autodiff._tools import elementwise, filled
from linnet.clib.errors import UsageError
from linnet.facade import Graph
from linnet.ir.function import Tensor, Variable
from linnet.ir.graph import graph_of
from linnet.ir.program import REGISTER
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
    """Adds the signatures `train` and `eval` to the graph. With accumulate=True, also adds `accumulate` and `apply`.

    loss: a scalar, the mean over the batch.
    inputs: placeholders by name, for data and labels.
    outputs: metrics in addition to "loss".
    variables: the variables to train (default: all trainable ones that the loss depends on).
    evaluate: the outputs of `eval`, if the model computes something else there (without dropout, with moving averages);
        default: "loss" and outputs. `accumulate` adds up the gradients of a batch. `apply`, which has no inputs or
        outputs, updates the variables by the mean of these gradients and clears them. If all batches have the same
        size, this equals the step of one large batch. The signature `train` needs no accumulators.
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
    """Returns two sets of updates. The first set adds a batch's gradients to accumulators. The second set applies the
    mean and clears the accumulators.

    Accumulators are variables "<variable>/accumulated"; their count is "accumulated/count". Raises UsageError if a lazy
    optimizer gets sparse rows, because accumulated gradients no longer show which rows had no gradient.
    """
    graph = graph_of(loss)
    given = optimizer.differentiate(loss, variables)
    count = state(graph, "accumulated/count", np.int64(0))
    adding: Updates = {**graph.side_updates_of([loss]), count: count.tensor(loss) + 1}
    means: dict[Variable, Gradient] = {}
    applying: Updates = {}
    number = count.tensor(loss)
    for variable, g in given.items():
        if isinstance(g, SparseRows) and optimizer.lazy:
            raise UsageError(
                "a lazy optimizer does not support gradient accumulation", code=101, tensor=variable.name,
                hint="create it with lazy=False, or train without accumulation",
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
