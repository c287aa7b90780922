"""The result of `debug_quantization` (debug.py): figures of layers, the layers that stayed in floats, and the fix."""

from __future__ import annotations

import dataclasses
from typing import Any

from linnet.quantization.debug_measure import Histogram
from linnet.quantization.table import Table


@dataclasses.dataclass
class Layer:
    """A tensor that both graphs have, and the layer that computes it.

    name: the name of the tensor. layer, op: the name and op of the node; `layer` is the name of its step in tables,
    plans and timings. dtype: how the quantized graph stores the tensor. sqnr_db, cosine: how near the tensor is to the
    float model's. local_db: the SQNR of the layer alone, on inputs without inherited noise. storage: the part of this
    noise that comes from storing the result. output_db: the SQNR of the outputs if only this layer were quantized; None
    if there was no time to measure it. hurt: like output_db, but as noise divided by power. saturated: the share of
    float values outside the range that can be represented. zeros: the shares of zeros among the float and among the
    quantized values. seen: the range of the float values. range: what the quantized tensor can represent; None if it is
    stored as f32. broken: the number of values that are infinite or NaN only in the quantized model.
    """

    name: str
    layer: str
    op: str
    source: str
    dtype: str
    sqnr_db: float
    cosine: float
    local_db: float
    storage: float
    output_db: float | None
    hurt: float | None
    saturated: float
    zeros: tuple[float, float]
    seen: tuple[float, float]
    range: tuple[float, float] | None
    broken: int
    histogram: Histogram | None = None


@dataclasses.dataclass
class LeftFloat:
    """A product that computes in floats in the quantized graph, and why."""

    layer: str
    op: str
    dtype: str
    why: str


@dataclasses.dataclass
class DebugReport:
    """The result of `debug_quantization`. layers: one entry for each pair of tensors, in the order of the graph.
    output_db: the SQNR of all outputs together. outputs: the figures of each output. special: for each op, counts of
    values at the limits of their type, infinities and NaN. fix: the result of `linnet.quantization.debug_fix.find_fix`,
    if it was called."""

    dtype: str
    samples: int
    output_db: float
    outputs: dict[str, dict[str, float | None]]
    layers: list[Layer]
    left: list[LeftFloat]
    special: list[dict[str, Any]]
    fix: Fix | None = None

    @property
    def ranked(self) -> list[Layer]:
        """The layers, worst first. Layers with new infinities or NaN come first; the others follow by the error that
        each alone causes in the outputs."""
        return sorted(self.layers, key=_badness)

    @property
    def hurt(self) -> float:
        """The sum over the layers of the errors that each alone causes in the outputs."""
        return sum(layer.hurt or 0.0 for layer in self.layers)

    def to_dict(self) -> dict[str, Any]:
        """All figures, with the layers worst first."""
        found = dataclasses.asdict(self)
        found["layers"] = [dataclasses.asdict(layer) for layer in self.ranked]
        return found


def _badness(layer: Layer) -> tuple[float, float]:
    return (-layer.hurt if layer.hurt is not None else 0.0, layer.local_db)


@dataclasses.dataclass
class Try:
    """A layer at a higher precision. rows: {`layer NAME` or `tensor NAME`: what the table says}. output_db: the SQNR of
    the outputs with these rows and those chosen before. None if the graph cannot be quantized in this way."""

    name: str
    layer: str
    rows: dict[str, str]
    output_db: float | None


@dataclasses.dataclass
class Fix:
    """before, after: the SQNR of the outputs in dB, without `rows` and with them. best: the SQNR with the rows of all
    candidates. time: the modelled time with the rows over that without them, bytes: how many more the file has; None if costs
    are not known. layers: the tensors that are fixed, in the order in which they were chosen. table: the base table with
    the rows, ready to write."""

    before: float
    after: float
    best: float
    target: float
    reached: bool
    layers: list[str]
    rows: dict[str, str]
    tries: list[Try]
    quantizations: int
    note: str
    table: Table
    time: float | None = None
    bytes: int | None = None

    @property
    def lines(self) -> list[str]:
        return [f"{name} {dtype}" for name, dtype in self.rows.items()]
