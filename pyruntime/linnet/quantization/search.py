"""What `linnet.quantize` tries. The float graph is observed once. Then graphs are built with different options. The
graph whose outputs on some calibration samples are nearest to the float graph's outputs is kept."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from linnet.clib.errors import UsageError
from linnet.facade import Graph
from linnet.ir.function import Function, Node, Tensor, functions_of
from linnet.quantization.calibrate import Range
from linnet.quantization.decisions import Options, names_for_rows
from linnet.quantization.heeded import check_effect
from linnet.quantization.judge import TARGETS, Judge, Nearness
from linnet.quantization.mixed import wider
from linnet.quantization.observe import Batches, Observation
from linnet.quantization.post_training import Quantizer
from linnet.quantization.scheme import HALVES, LIMITS
from linnet.quantization.table import Row, Table, TensorRow

EFFORTS = ("fast", "normal", "best")
# Schemes for layers that need more bits.
_WIDE = {"i8": ("w8a16", "w16a16", "f32"), "i16": ("f32",), "f16": ("f32",), "bf16": ("f32",)}
_SAMPLES = {"fast": 2, "normal": 24, "best": 48}  # on which outputs are compared
_ELEMENTS = 200_000_000  # of observed tensors, over all samples that are compared
_FEW = 4  # samples at least
_BETTER = 0.93  # a change is kept if it leaves less than this fraction of the error
_FASTER = 0.6  # a change that makes the graph slower is kept if it leaves less than this
_GOOD = 1e-6  # an error that needs no change


class Search:
    """One quantization: its functions, its options, and the values seen."""

    def __init__(
        self, graph: Graph, dtype: str, rows: Table, weight_bits: int, effort: str, calibrator: str, threads: int | None
    ) -> None:
        self.graph, self.dtype, self.overrides, self.weight_bits = graph, dtype, rows, weight_bits
        self.effort, self.threads = effort, threads
        self.options = Options(calibrator=calibrator)
        if effort == "fast":
            self.options = Options(
                calibrator="minmax" if calibrator == "auto" else calibrator, careful=False, correct=False
            )
        self.free = calibrator == "auto"
        self.observation: Observation | None = None
        self.quantizers: list[Quantizer] = []
        self.nearness: Nearness | None = None  # of the outputs
        self.lost: list[str] = []  # outputs of which a part has no distinct values any more

    def run(self, calibration: Batches | None, ranges: dict[str, Range]) -> Graph:
        """Observes the float graph, tries options, and returns the best graph. ranges: the ranges from
        quantization-aware training, by tensor name."""
        first = self._decide(self.options)
        self.overrides.check(*names_for_rows(q.old for q in first))
        check_effect(first, self.overrides)
        known = [q.take(ranges) for q in first]
        halves = any(q.modes[n] in HALVES for q in first for n in q.old.nodes)
        if all(known) and (calibration is None or not halves):
            self.quantizers = first
            return self._emit(first)
        if calibration is None:
            raise UsageError(
                what=f"quantizing to {self.dtype} needs calibration batches",
                expected="an iterable of {input name: array}", got="none",
                hint="pass typical inputs, or use dtype='f16', which needs none",
            )  # fmt: skip
        observed = [q.observed() for q in first]
        tensors: list[Tensor] = [t for found, _ in observed for t in found]
        products: list[Node] = [] if self.effort == "fast" else [n for _, found in observed for n in found]
        floats = set(tensors) - {t for q in first for t in q.stored}
        self.observation = Observation(self.graph, tensors, products, self.threads, floats)
        self.observation.run(calibration)
        best = self._made(self.options)
        if self.effort == "fast" and self.dtype not in LIMITS:
            return best
        judge = Judge(self.graph, calibration, self._samples(), TARGETS[self.dtype], self.threads)
        if self.effort != "fast":
            best = self._improve(best, judge)
        if self.dtype in LIMITS:
            self.lost = judge.lost(best)
        return best

    def _decide(self, options: Options) -> list[Quantizer]:
        """The decisions for each function that `infer` reaches, callees first."""
        found: list[Function] = []

        def reach(function: Function) -> None:
            for callee in functions_of(function):
                reach(callee)
            if function not in found:
                found.append(function)

        if "infer" not in self.graph.signatures:
            raise UsageError(
                what="the graph cannot be quantized after training", expected="a signature named 'infer'",
                got=f"signatures {', '.join(self.graph.signatures) or 'none'}",
            )  # fmt: skip
        reach(self.graph.signatures["infer"].function)
        return [
            Quantizer(self.graph, self.dtype, self.overrides, self.weight_bits, function, options, self.observation)
            for function in found
        ]

    def _made(self, options: Options) -> Graph:
        self.quantizers = self._decide(options)
        return self._emit(self.quantizers)

    def _emit(self, quantizers: Sequence[Quantizer]) -> Graph:
        graph, signature = self.graph, self.graph.signatures["infer"]
        new = Graph()
        new.user_ops = dict(graph.user_ops)
        new.metadata = {**graph.metadata, "dtype": self.dtype}
        new.variables = {n: dataclasses.replace(v, graph=new) for n, v in graph.variables.items()}
        functions: dict[Function, Function] = {}
        for quantizer in quantizers:
            functions[quantizer.old] = quantizer.rewrite(new, functions)
        new.signature("infer", functions[signature.function], signature.inputs, signature.outputs)
        return new

    def _improve(self, best: Graph, judge: Judge) -> Graph:
        """Tries other options one after another, and keeps each one that lowers the error of the outputs."""
        kept, least = self.quantizers, judge.compare(best)
        changes: list[dict[str, Any]] = []
        if self.dtype in LIMITS:
            changes += [{"correct": False}, {"saves_traffic": False}]
        if self.observation is not None and self.observation.pairs and self.dtype == "i8":
            changes.append({"equalize": True})
        if self.free and self.dtype == "i8":
            changes += [{"calibrator": name} for name in ("mean", "minmax", "percentile")]
        if self.effort == "best" and self.dtype in LIMITS:
            changes += [{"calibrator": "entropy"}] if self.free and self.dtype == "i8" else []
            changes += [{"careful": False}]
        for change in changes:
            if least.error < _GOOD:
                break
            options = dataclasses.replace(self.options, **change)
            made = self._made(options)
            near = judge.compare(made)
            if near.error < least.error * (_FASTER if "saves_traffic" in change else _BETTER):
                best, least, kept, self.options = made, near, self.quantizers, options
        self.quantizers = kept
        if least.excess > 1.0:
            best, least = self._widen(best, judge, least)
        self.nearness = least
        return best

    def _samples(self) -> int:
        """The number of samples on which outputs are compared: fewer for large networks. The number depends only on
        shapes."""
        assert self.observation is not None
        shapes = [t.static_shape for t in self.observation.seen]
        held = sum(math.prod(shape) for shape in shapes if shape is not None)
        return int(np.clip(_ELEMENTS // max(held, 1), _FEW, _SAMPLES[self.effort]))

    def _widen(self, best: Graph, judge: Judge, least: Nearness) -> tuple[Graph, Nearness]:
        """Gives more bits to the layers that add the largest errors."""
        user, kept = self.overrides, self.quantizers
        layers = {n: q.steps[n] for q in kept for n in q.old.nodes if q.modes[n] == self.dtype}

        def compare(table: Table, samples: int | None) -> Nearness:
            self.overrides = table
            return judge.compare(self._made(self.options), samples)

        # Fewer bits of weights were asked for in words: layers may have wider activations, and no wider weights.
        wide = [s for s in _WIDE[self.dtype] if s == "w8a16" or self.weight_bits == 8]
        found = wider(layers, user, self.dtype, wide, compare, least)
        self.overrides, self.quantizers = user if found is None else found[0], kept
        return (best, least) if found is None else (self._made(self.options), found[1])

    def table(self) -> Table:
        """The decisions of the graph that was returned."""
        rows: list[Row | TensorRow] = [row for quantizer in self.quantizers for row in quantizer.rows()]
        notes = [f"Made for {self.dtype} with {', '.join(self._chosen())}."]
        if self.nearness is not None and self.nearness.error > 0:
            below = -10 * np.log10(self.nearness.error)
            notes.append(f"The error of the outputs is {below:.1f} dB below their values on some samples.")
        return Table(rows, notes)

    def _chosen(self) -> list[str]:
        """The options in words."""
        chosen = self.options
        words = [
            f"calibrator {chosen.calibrator}",
            "weights rounded with care" if chosen.careful else "weights rounded to nearest",
        ]
        words += ["corrected biases"] if chosen.correct else []
        words += ["equalized channels"] if chosen.equalize else []
        return words + (["tensors stored to save traffic"] if chosen.saves_traffic else [])
