"""Batch norms of imported networks: turns their statistics into variables and adds a signature that re-estimates them
from data. Training leaves the statistics frozen, as is usual in fine-tuning. Data of another kind may need new
statistics (Li et al. 2016).
"""

from __future__ import annotations

from linnet.builder.mapping import pointwise
from linnet.clib.errors import UsageError
from linnet.ir.expr import Expr
from linnet.ir.function import Tensor, Variable, emit
from linnet.ir.graph import Graph
from linnet.passes.rewrite import replace
from linnet.passes.weights import declare


def reestimate(graph: Graph, momentum: float = 0.1, signature: str = "reestimate") -> list[Variable]:
    """Adds a signature that normalizes with the statistics of the current batch and moves the stored statistics of
    every batch norm towards them: new = (1 - momentum) * old + momentum * (value of the batch), with the unbiased
    variance. A forward pass of PyTorch in training mode does the same.

    graph: as returned by `trainable`, with its content in `main`. The statistics become variables, which keep the names
    of the statistics in the file. No optimizer trains them. The function returns them. The signature has the inputs and
    outputs of "infer"; run it over some batches. Raises UsageError if there is no batch norm, or if batch norms have
    already been folded into weights.
    """
    function, names = graph.main, graph.signatures.get("infer")
    norms = [node for node in function.nodes if node.op == "batch_norm"]
    if not norms or names is None:
        raise UsageError(
            "the graph has no batch norm to re-estimate", code=105,
            hint="import with trainable='*', which keeps batch norms; the exporter may have folded them into weights",
        )  # fmt: skip
    table: dict[Tensor, Tensor] = {}
    for node in norms:
        for tensor in node.inputs[3:5]:
            if tensor is not None and tensor.data is not None and tensor not in table:
                function._names.discard(tensor.name)
                table[tensor] = function.read(
                    graph.variable(tensor.name, tensor.data.copy(), trainable=False, copy=False)
                )
    replace(function, table)
    declare(graph, names.inputs, names.outputs)
    new: dict[Tensor, Tensor] = {}
    updates: dict[Variable, Tensor] = {}
    for node in list(function.nodes):
        given = [new.get(t, t) if t is not None else None for t in node.inputs]
        x = given[0] if given else None
        if node.op == "batch_norm" and x is not None and x.rank is not None:
            axis = node.attribute("channel_axis") % x.rank
            mean, variance, unbiased = _statistics(x, axis)
            given[3:5] = [mean, variance]
            for old, batch in zip(node.inputs[3:5], (mean, unbiased), strict=True):
                if old is not None and old.variable is not None:
                    updates[old.variable] = pointwise(
                        [old, batch], lambda a, b: a * (1.0 - momentum) + b * momentum, old.dtype
                    )  # fmt: skip
        elif not any(t in new for t in node.inputs if t is not None):
            continue
        made = emit(
            node.op, given, node.attributes, len(node.outputs), node.name, function,
            [t.quantization for t in node.outputs], [t.dtype for t in node.outputs],
        )  # fmt: skip
        new.update(zip(node.outputs, made, strict=True))
    feeds = dict(zip(names.inputs, function.inputs, strict=True))
    results = {name: new.get(t, t) for name, t in zip(names.outputs, function.outputs, strict=True)}
    graph.signature(signature, feeds, results, updates=updates)
    return list(updates)


def _statistics(x: Tensor, axis: int) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, variance and unbiased variance per channel of a batch."""
    assert x.rank is not None
    axes = [a for a in range(x.rank) if a != axis]
    attributes = {"kind": "mean", "axes": axes, "keep_dims": True}
    mean = emit("reduce", [x], attributes)[0]
    spread = pointwise([x, mean], lambda v, m: (v - m) * (v - m), x.dtype)
    variance = emit("reduce", [spread], attributes)[0]
    sizes = emit("gather", [emit("shape", [x], {})[0], x.function.constant(axes)], {"kind": "take", "axis": 0})[0]
    count = emit("cast", [emit("reduce", [sizes], {"kind": "prod", "keep_dims": False})[0]], {"dtype": x.dtype})[0]

    def corrected(v: Expr, n: Expr) -> Expr:
        return v * (n / (n - 1.0).max(1.0))

    unbiased = pointwise([variance, count], corrected, x.dtype)
    flat = [emit("copy", [t], {"kind": "squeeze", "axes": axes})[0] for t in (mean, variance, unbiased)]
    return flat[0], flat[1], flat[2]
