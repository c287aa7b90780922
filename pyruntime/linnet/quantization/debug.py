"""`debug_quantization`: compares a float graph with its quantized form, layer by layer, and finds which layers hurt the
outputs.

The error of a tensor against the float model says little about its layer, because most of it comes from earlier layers.
So each layer is also measured alone: the quantized layer and the float layer get the same inputs, which are the float
model's values as the quantized graph stores them. The difference of their results is the local error. It is then added
to the float model's tensor, and the rest of the float model runs. The outputs then have the error that they would have
if only this layer were quantized. Layers are ranked by this error.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from linnet.clib.errors import UsageError
from linnet.facade import Graph
from linnet.ir import traits
from linnet.ir.function import Node, Tensor
from linnet.ir.graph import dtype_of_graph
from linnet.ir.node_names import step_names
from linnet.quantization.agreement import Agreement, decibel
from linnet.quantization.calibrate import Feeds
from linnet.quantization.debug_measure import (
    Measurement,
    Sums,
    histograms,
    output_db,
    relative_noise,
    special_counts,
)
from linnet.quantization.debug_pairs import FLOATS, LIMITS, Pair, infer_function, pairs_of
from linnet.quantization.debug_report import DebugReport, Layer, LeftFloat
from linnet.quantization.decisions import names_for_rows
from linnet.quantization.scheme import shape_arithmetic
from linnet.quantization.table import Table

DRAWN = 24  # layers that get a histogram


def debug_quantization(
    float_graph: Graph,
    quantized_graph: Graph,
    samples: Iterable[Feeds],
    *,
    limit: int | None = 16,
    table: Table | None = None,
    seconds: float = 60.0,
    threads: int | None = None,
    draw: bool = False,
    progress: Callable[[str], object] = lambda text: None,
) -> DebugReport:
    """Compares a graph with its quantized form, as `linnet.quantize` returns it, on samples.

    samples: dictionaries {input name: array}, which can be iterated more than once. limit: how many of them are used.
    table: the overrides with which the quantized graph was made; they explain why layers stay float. seconds: how long
    to measure; if time is short, fewer samples are used. draw: also count histograms of the worst layers. progress: is called
    with a line about what is being measured.
    Memory does not grow with the number of samples, because one sample is run at a time. It is also bounded for many
    tensors, because they are measured in groups. Raises UsageError if the graphs do not come from one network or if
    there is no sample.
    """
    if table is not None:
        table.check(*names_for_rows(float_graph.functions))
    chosen = _Limited(samples, limit)
    pairs = pairs_of(float_graph, quantized_graph)
    measure = Measurement(float_graph, quantized_graph, pairs, threads)
    sums, outputs, count = measure.sums(chosen, seconds, progress)
    names = step_names(infer_function(float_graph))
    made = [_layer(pair, names[_heaviest(pair)], sums[pair.name]) for pair in pairs]
    report = DebugReport(
        dtype_of_graph(quantized_graph), count, output_db(outputs.values()),
        {name: found.figures() for name, found in outputs.items()}, made,
        left_float(float_graph, quantized_graph, table or Table()), special_counts(quantized_graph, chosen, threads),
    )  # fmt: skip
    if draw:
        worst = {layer.name for layer in report.ranked[:DRAWN]}
        drawn = histograms(measure, [pair for pair in pairs if pair.name in worst], sums, chosen)
        for layer in made:
            layer.histogram = drawn.get(layer.name)
    return report


class _Limited:
    """The first samples only. Each iteration starts from the first one again."""

    def __init__(self, samples: Iterable[Feeds], limit: int | None) -> None:
        if limit is not None and limit < 1:
            raise UsageError("the number of samples is too small", code=101, expected="1 or more", got=str(limit))
        if iter(samples) is samples:  # a generator would be empty the second time
            samples = list(itertools.islice(samples, limit))
        self.samples, self.limit = samples, limit

    def __iter__(self) -> Any:
        return itertools.islice(iter(self.samples), self.limit)


def _layer(pair: Pair, name: str, sums: Sums) -> Layer:
    count = max(sums.whole.count, 1)
    noise = sums.local.noise
    return Layer(
        pair.name, name, pair.node.op, pair.node.source, pair.new.dtype, sums.whole.sqnr,
        sums.whole.cosine, sums.local.sqnr, min(1.0, sums.storage / noise) if noise else 0.0,
        None if sums.hurt is None else decibel(1.0, sums.hurt), sums.hurt, sums.saturated / count,
        (sums.zeros[0] / count, sums.zeros[1] / count), (sums.low, sums.high), pair.limits, sums.broken,
    )  # fmt: skip


def _heaviest(pair: Pair) -> Node:
    """The node that gives a part of the graph its name: the product, if the part has one, else the last node."""
    return next((node for node in reversed(pair.part) if node.op in traits.PRODUCTS), pair.node)


def score(sums: Iterable[Agreement]) -> float:
    """The SQNR of all outputs together, in dB."""
    return decibel(1.0, relative_noise(sums))


def left_float(old: Graph, new: Graph, table: Table) -> list[LeftFloat]:
    """The products (matrix products and convolutions) that compute in floats although the graph is quantized to
    integers."""
    if dtype_of_graph(new) not in LIMITS and dtype_of_graph(new) != "auto":
        return []
    known = {(node.op, name): node for node, name in step_names(infer_function(new)).items()}
    found = []
    shapes = shape_arithmetic(infer_function(old))
    for node, name in step_names(infer_function(old)).items():
        made = known.get((node.op, name))
        first = made.inputs[0] if made is not None and made.inputs else None
        if node.op in traits.PRODUCTS and first is not None and first.dtype in FLOATS:
            found.append(LeftFloat(name, node.op, first.dtype, _why(node, name, table, shapes)))
    return found


def _why(node: Node, name: str, table: Table, shapes: set[Tensor]) -> str:
    names = [name, *(t.name for t in node.outputs)]
    if (asked := table.dtype(*names, default="")) in FLOATS:
        return f"the table says {asked}"
    if node.source.startswith(("preprocess:", "postprocess:")):
        return "a step before or after the network"
    if any(t in shapes for t in node.outputs):
        return "computed from shapes, which integers of 8 bits could not hold"
    x, w, *rest = [*node.inputs, None, None][:3]
    if x is not None and x.data is not None:
        return "its first operand is constant"
    if rest and rest[0] is not None and rest[0].data is None:
        return "its bias is computed in the run"
    if w is not None and w.data is None:
        return "its second operand is computed in the run"
    return "kept by the quantizer"
