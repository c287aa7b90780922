"""`linnet.quantize`: turns a float graph, or one from quantize_aware, into a graph that computes in f16, i16 or i8."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy.typing as npt

from linnet.clib.errors import UsageError
from linnet.facade import Graph
from linnet.quantization.aware import deployable, trained_ranges
from linnet.quantization.calibrate import Feeds, Range
from linnet.quantization.post_training import Quantizer
from linnet.quantization.scheme import KEY
from linnet.quantization.table import Table


def quantize(
    graph: Graph,
    calibration: Iterable[Feeds] | None = None,
    dtype: str = "i8",
    *,
    table: Table | str | Path | None = None,
    table_out: str | Path | None = None,
    progress: bool = False,
    threads: int | None = None,
    weight_bits: int = 8,
    values: Mapping[str, npt.ArrayLike] | None = None,
) -> Graph:
    """Returns a graph that computes in `dtype`: "f16" (storage only; sums stay f32), "i16" (int16 activations, int8
    weights) or "i8".

    calibration: dictionaries {input name: array}, required for i16 and i8; NaN is rejected.
    table: per-layer overrides (quantization_table).
    table_out: where to write the resulting table.
    weight_bits: precision of integer weights, 2 to 8; all are stored in 8 bits.
    values: values of the graph's variables after training, for example a `Store`. A graph from `quantize_aware` has its
        own ranges and weight_bits, and needs no calibration. Inputs and outputs keep their dtypes.
    Raises UsageError for a bad argument or batch.
    """
    if dtype == "f32" and table is None:
        return graph
    if dtype not in ("f32", "f16", "i16", "i8"):
        raise UsageError(
            what="cannot quantize to this dtype",
            expected="f16, i16 or i8",
            got=str(dtype),
            hint="pass dtype='i8'",
        )
    if not 2 <= weight_bits <= 8:
        raise UsageError("weight_bits is out of range", code=101, expected="2 to 8", got=str(weight_bits))
    ranges: dict[str, Range] = {}
    if values is not None or KEY in graph.metadata or len(graph.functions) > 1:
        trained = json.loads(graph.metadata.get(KEY, "{}"))
        if trained.get("dtype", dtype) != dtype:
            raise UsageError("the graph was trained for another dtype", code=101, expected=trained["dtype"], got=dtype)
        weight_bits = trained.get("weight_bits", weight_bits)
        ranges = trained_ranges(graph, values)
        graph = deployable(graph, values)
    overrides = table if isinstance(table, Table) else Table.read(table) if table is not None else Table()
    quantizer = Quantizer(graph, dtype, overrides, weight_bits)
    if quantizer.stored and not quantizer.take(ranges):
        if calibration is None:
            raise UsageError(
                what=f"quantizing to {dtype} needs calibration batches", expected="an iterable of {input name: array}",
                got="none", hint="pass typical inputs, or use dtype='f16', which needs none",
            )  # fmt: skip
        quantizer.calibrate(calibration, progress, threads)
    result = quantizer.rewrite()
    if table_out is not None:
        quantizer.table().write(table_out)
    return result
