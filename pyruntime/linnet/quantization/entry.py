"""`linnet.quantize`: turns a float graph, or one from quantize_aware, into a graph that computes in f16, bf16, i16 or i8."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import UsageError
from linnet.facade import Graph
from linnet.ir import traits
from linnet.ir.dtypes import DTypeLike, named, numpy_dtype
from linnet.ir.graph import dtype_of_graph
from linnet.passes.attention import find_attention, without_attention
from linnet.passes.kept_types import keeping_types
from linnet.quantization.aware import deployable, trained_ranges, trained_scales
from linnet.quantization.calibrate import Feeds, Range
from linnet.quantization.calibrators import CALIBRATORS
from linnet.quantization.curve import Line, lines, write
from linnet.quantization.dynamic import quantize_dynamic, refuse_with_dynamic
from linnet.quantization.goal import Goal
from linnet.quantization.observe import Batches
from linnet.quantization.rounding import Scales
from linnet.quantization.scheme import HALVES, KEY
from linnet.quantization.search import EFFORTS, Search
from linnet.quantization.table import DTYPES as STORED
from linnet.quantization.table import Table

DTYPES = (*STORED, "auto")
Run = Callable[[Mapping[str, npt.ArrayLike]], Mapping[str, npt.NDArray[Any]]]


class Quantized(NamedTuple):
    """graph: the result. table: the decisions. curve: what the search measured, the float graph first; empty if nothing was
    searched. notes: what the graph does not reach, in sentences without a capital. again: makes the graph with the rows of
    another table, from what was observed; None if nothing was observed."""

    graph: Graph
    table: Table
    curve: list[Line]
    notes: list[str]
    again: Callable[[Table], Graph] | None = None


def quantize(
    graph: Graph,
    calibration: Iterable[Feeds] | None = None,
    dtype: DTypeLike = "i8",
    *,
    table: Table | str | Path | None = None,
    table_out: str | Path | None = None,
    progress: bool = False,
    threads: int | None = None,
    weight_bits: int = 8,
    values: Mapping[str, npt.ArrayLike] | None = None,
    effort: str = "normal",
    calibrator: str = "auto",
    target: str | None = None,
    max_loss: float | None = None,
    evaluate: Callable[[Run], Any] | None = None,
    max_ms: float | None = None,
    max_bytes: int | None = None,
    machine: str | None = None,
    curve_out: str | Path | None = None,
    dynamic: bool = False,
) -> Graph:
    """Returns a graph that computes in `dtype`: "f16" or "bf16" (storage only; sums stay f32), "i16" (int16 activations,
    int8 or int16 weights) or "i8". NumPy's names and types are accepted too. Inputs and outputs keep their dtypes, and a
    tensor keeps its name. "auto" takes the first of i8, i16 and f16 whose outputs are near enough to those of `graph` on
    calibration samples: docs/quantization.md gives the limits. Without `calibration` it takes f16.

    Layers get more bits where the outputs need them, and f16 where integers would take longer: the cheapest assignment in
    time and bytes that is near enough. Without a target, an i8 graph keeps 60 % of its products in 8 bits.

    calibration: dictionaries {input name: array}, required for i16 and i8; NaN is rejected. For f16, calibration shows
        which tensors would overflow. If an iterable can be read only once, its samples are kept in temporary files.
    table: rows for layers and tensors that override the quantizer (linnet.quantization.table). A row that matches nothing is
        an error.
    table_out: where to write the resulting table.
    weight_bits: precision of integer weights, 2 to 8; weights are always stored in 8 bits. Below 8, no layer
        gets 16-bit or f32 weights to reduce its error.
    values: values of the graph's variables after training, for example a `Store`. A graph from `quantize_aware` has its
        own ranges and weight_bits, and needs no calibration.
    effort: "fast" (weights are rounded to nearest, ranges are the extremes, and of the schemes of layers only i16 gives way to
        faster floats), "normal" (errors of weights cancel, biases are corrected, and options that lower the error of the
        outputs on calibration samples are kept) or "best" (more options are tried).
    calibrator: how ranges are chosen from the values seen: "auto" (the least noise), "minmax", "mean" (mean of the
        batches' extremes), "moving", "percentile", "mse" or "entropy".
    target: how near the outputs must come: "99.5%" of the decisions, and of the power of other values; or "40dB".
    max_loss, evaluate: the same by a metric of your own. evaluate(run) gets a function from feeds to {output: array} and
        returns a number, or {name: number}, of which the first counts; higher is better. max_loss: the share of f32's number
        that may be lost, 0.005 for 0.5 %.
    max_ms, max_bytes: the most modelled milliseconds of a run and bytes of the file. Without target and max_loss, the most
        exact graph within them is taken.
    machine: the processor for which times are modelled: "cortex-a53", "cortex-a72", "cortex-a76", or a file that `linnet tune
        --machine` wrote there. None: this one, with one thread unless `threads` says more.
    curve_out: a file (.svg or .json) for what was measured on the way: time, bytes and error of each assignment.
    dynamic: for i8 without calibration: each run quantizes the activations before products with constant weights, over their
        own range. Results of products are f32. Only weight_bits and values matter then, and other arguments must not be given.
    Raises UsageError for a bad argument or batch, and if no graph is within max_ms or max_bytes.
    """
    if dynamic:
        others = {
            "calibration": calibration, "table": table, "table_out": table_out, "target": target, "max_loss": max_loss,
            "evaluate": evaluate, "max_ms": max_ms, "max_bytes": max_bytes, "machine": machine, "curve_out": curve_out,
        }  # fmt: skip
        refuse_with_dynamic(named(dtype), others)
        return dynamically(graph, weight_bits, values)
    settings = Settings(table, progress, threads, weight_bits, values, effort, calibrator)
    goal = Goal(target, None if evaluate is None else scorer(evaluate, threads), max_loss, max_ms, max_bytes, machine)
    made = quantized(graph, calibration, dtype, goal, settings)
    if table_out is not None:
        made.table.write(table_out)
    if curve_out is not None:
        write(curve_out, made.curve)
    return made.graph


def dynamically(graph: Graph, weight_bits: int = 8, values: Mapping[str, npt.ArrayLike] | None = None) -> Graph:
    """`quantize` with dynamic=True."""
    _check("i8", weight_bits, "normal", "auto")
    if values is not None or KEY in graph.metadata or len(graph.signatures) > 1:
        graph = deployable(graph, values)
    _refuse_quantized(graph, "i8")
    return quantize_dynamic(graph, weight_bits)


def scorer(evaluate: Callable[[Run], Any], threads: int | None) -> Callable[[Graph], float]:
    """The figure of a graph by a function of the user."""

    def score(graph: Graph) -> float:
        from linnet.session.session import Session

        session = Session(graph, threads=threads)
        made = evaluate(lambda feeds: {name: np.array(value) for name, value in session.run(feeds).items()})
        return float(next(iter(made.values())) if isinstance(made, Mapping) else made)

    return score


@dataclasses.dataclass(frozen=True)
class Settings:
    """The arguments of `quantize` that say how, under the same names."""

    table: Table | str | Path | None = None
    progress: bool = False
    threads: int | None = None
    weight_bits: int = 8
    values: Mapping[str, npt.ArrayLike] | None = None
    effort: str = "normal"
    calibrator: str = "auto"


def quantized(
    graph: Graph, calibration: Iterable[Feeds] | None, dtype: DTypeLike, goal: Goal, settings: Settings | None = None
) -> Quantized:
    """`quantize` with everything that it learns on the way."""
    settings, dtype = settings or Settings(), named(dtype)
    table, values, threads, effort = settings.table, settings.values, settings.threads, settings.effort
    weight_bits, calibrator = settings.weight_bits, settings.calibrator
    if dtype == "f32" and table is None:
        return Quantized(graph, Table(), [], [])
    _check(dtype, weight_bits, effort, calibrator)
    if effort == "fast" and (goal.asked or goal.bounded):
        raise UsageError(
            "effort fast searches nothing, so that no target can be reached", code=101, expected="normal or best", got="fast",
            hint="leave out effort, or the target",
        )  # fmt: skip
    ranges: dict[str, Range] = {}
    scales: Scales = {}
    if values is not None or KEY in graph.metadata or graph.variables:
        trained = json.loads(graph.metadata.get(KEY, "{}"))
        if trained.get("dtype", dtype) != dtype:
            raise UsageError("the graph was trained for another dtype", code=101, expected=trained["dtype"], got=dtype)
        weight_bits = trained.get("weight_bits", weight_bits)
        ranges, scales = trained_ranges(graph, values), trained_scales(graph, values)
        if values is not None or KEY in graph.metadata or len(graph.signatures) > 1:
            graph = deployable(graph, values)
    if dtype != "f32":
        _refuse_quantized(graph, dtype)
    graph = without_attention(graph)  # its products are quantized one by one
    rows = table if isinstance(table, Table) else Table.read(table) if table is not None else Table()
    candidates = (dtype,) if dtype != "auto" else ("i8", "i16", "f16") if calibration is not None else ("f16",)
    if calibration is not None:
        calibration = Batches(
            calibration, graph.signatures["infer"].inputs if "infer" in graph.signatures else (), settings.progress
        )
    for candidate in candidates:
        search = Search(graph, candidate, rows, weight_bits, effort, calibrator, threads, goal)
        result = search.run(calibration, ranges, scales)
        if search.nearness is not None and search.nearness.excess <= 1.0:
            break
    _keep_attention(result)
    for name in search.lost:
        warnings.warn(
            f"in {candidate}, output {name!r} loses its distinct values: a part of it has at most two values on calibration "
            "samples. Try dtype='i16' or 'f16', or keep the layers before it in f32 with a table",
            stacklevel=4,
        )
    curve = [] if search.plain is None else lines(search.plain, search.points, search.chosen)
    again = None if search.observation is None else lambda rows: _keep_attention(search.again(rows))
    return Quantized(result, search.table(), curve, [*search.notes, *([search.doubt] if search.doubt else [])], again)


def _keep_attention(graph: Graph) -> Graph:
    """Finds the attentions whose steps all stay in floats."""
    for function in graph.functions:
        keeping_types(function, find_attention)
    return graph


def _refuse_quantized(graph: Graph, dtype: str) -> None:
    """Raises UsageError if no product of the graph computes in f32, because all of them are quantized. If only some are, the
    others can be quantized, and these keep their integers. f16 and bf16 also store the floats around integer products."""
    every = [node for function in graph.functions for node in function.nodes if node.op in traits.PRODUCTS]
    narrow = [[t.dtype for t in node.inputs[:2] if t is not None and t.dtype not in ("f32", "f64")] for node in every]
    if every and all(narrow) and (dtype not in HALVES or any(set(dtypes) & set(HALVES) for dtypes in narrow)):
        kinds = Counter(dtype for dtypes in narrow for dtype in dtypes)
        own = dtype_of_graph(graph)
        own = own if own in kinds else kinds.most_common(1)[0][0]
        raise UsageError(
            f"the model is {numpy_dtype(own)} already", code=103,
            expected="a model with products (matmul, conv) in f32, which can be quantized",
            got=f"products in {', '.join(kinds)} only",
            hint="run this model as it is, or quantize the float model from which it was made",
        )  # fmt: skip


def _check(dtype: str, weight_bits: int, effort: str, calibrator: str) -> None:
    """Raises UsageError if an argument has an invalid value."""
    if dtype not in DTYPES:
        raise UsageError(
            what="cannot quantize to this dtype", expected="f16, bf16, i16, i8 or auto", got=str(dtype), hint="pass dtype='i8'",
        )  # fmt: skip
    if not 2 <= weight_bits <= 8:
        raise UsageError("weight_bits is out of range", code=101, expected="2 to 8", got=str(weight_bits))
    if effort not in EFFORTS:
        raise UsageError("effort has an unknown value", code=101, expected=", ".join(EFFORTS), got=str(effort))
    if calibrator not in CALIBRATORS:
        raise UsageError(
            "calibrator has an unknown value", code=101, expected=", ".join(CALIBRATORS), got=str(calibrator)
        )
