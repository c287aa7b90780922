"""What `linnet.quantize` tries. The float graph is observed once. Then graphs are built with different options. The
graph whose outputs on some calibration samples are nearest to the float graph's outputs is kept."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from linnet.clib.errors import UsageError
from linnet.facade import Graph
from linnet.ir.function import Function, Node, Tensor, functions_of
from linnet.quantization.assign import AS_LONG, Assigner, Limits, Network, Point, layer, rows
from linnet.quantization.calibrate import Range
from linnet.quantization.costs import Cost, Costs
from linnet.quantization.decisions import Options, names_for_rows
from linnet.quantization.goal import NARROW, Goal
from linnet.quantization.heeded import check_effect
from linnet.quantization.judge import Judge, Nearness
from linnet.quantization.observe import Batches, Observation
from linnet.quantization.post_training import Quantizer
from linnet.quantization.rounding import Scales
from linnet.quantization.scheme import HALVES, INTEGER_OPS, LIMITS
from linnet.quantization.table import Row, Table, TensorRow

EFFORTS = ("fast", "normal", "best")
# Schemes for layers that need more bits. Weights and activations of 16 bits take two products of 8 bits each, and so longer
# than floats: only a table asks for them in an i8 graph.
_WIDE = {"i8": ("w8a16", "f16"), "i16": ("f16", "w16"), "f16": ("f32",), "bf16": ("f32",)}
_SAMPLES = {"fast": 2, "normal": 24, "best": 48}  # on which outputs are compared
_ELEMENTS = 200_000_000  # of observed tensors, over all samples that are compared
_FEW = 4  # samples at least
_HELD = 4  # one of so many samples is not observed: outputs are compared on these
_BETTER = 0.93  # a change is kept if it leaves less than this fraction of the error
_FASTER = 0.6  # a change that makes the graph slower is kept if it leaves less than this
_GOOD = 1e-6  # an error that needs no change
_TINY = 0.05  # ms of a float graph's run, below which the model of time says too little to choose schemes by it
_ROOM = 1.05  # times what an integer graph takes that is slower than f32 from the start
_SMALLER = 0.8  # of the bytes of f32: an integer graph that has more is hardly smaller
_HALF = 0.5  # of the products may stay in 8 bits, if the outputs are near enough then, and the graph not slower
_TARGET = {"i8": "30dB", "i16": "40dB"}  # what the limits are for values, in the words of a user
_NOTHING = Cost(0.0, 0, {}, {})  # of a graph that is only compared


class Search:
    """One quantization: its functions, its options, and the values seen."""

    def __init__(
        self, graph: Graph, dtype: str, rows: Table, weight_bits: int, effort: str, calibrator: str, threads: int | None,
        goal: Goal | None = None,
    ) -> None:  # fmt: skip
        self.graph, self.dtype, self.overrides, self.weight_bits = graph, dtype, rows, weight_bits
        self.effort, self.threads, self.goal = effort, threads, goal or Goal()
        self.options = Options(calibrator=calibrator)
        if effort == "fast":
            self.options = Options(
                calibrator="minmax" if calibrator == "auto" else calibrator, careful=False, correct=False
            )
        self.free = calibrator == "auto"
        self.observation: Observation | None = None
        self.batches: Batches | None = None  # that were observed
        self.quantizers: list[Quantizer] = []
        self.scales: Scales = {}
        self.nearness: Nearness | None = None  # of the outputs
        self.lost: list[str] = []  # outputs of which a part has no distinct values any more
        self.points: list[Point] = []  # what was tried, and what it gives
        self.chosen: Point | None = None
        self.plain: Cost | None = None  # of the float graph
        self.doubt = ""  # why the samples cannot tell whether decisions change
        self.notes: list[str] = []  # what the graph does not reach, and what that would take

    def run(self, calibration: Batches | None, ranges: dict[str, Range], scales: Scales) -> Graph:
        """Observes the float graph, tries options, and returns the best graph. ranges, scales: those of activations and
        weights from quantization-aware training, by tensor name."""
        self.scales = scales
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
        judged = calibration
        if self.effort != "fast" and calibration.known() >= _HELD * _FEW:
            calibration, judged = calibration.parted(_HELD)
        self.observation.run(calibration)
        self.batches = calibration
        best = self._made(self.options)
        if self.effort == "fast" and self.dtype not in LIMITS:
            return best
        goal = self.goal
        judge = Judge(
            self.graph, judged, self._samples(), goal.limits(self.dtype), self.threads, goal.score, goal.max_loss
        )
        self.doubt = "" if goal.score is not None else judge.doubt()
        if self.effort != "fast" or self.dtype == "i16":  # integers of 16 bits must not be slower than floats
            best = self._improve(best, judge)
        if self.dtype in LIMITS:
            self.lost = judge.lost(best)
        return best

    def again(self, table: Table) -> Graph:
        """The graph with the rows of a table instead of the user's. What was observed, the options and the schemes that were
        chosen stay; only tensors that these rows need are observed. Raises UsageError for a row without effect."""
        kept, quantizers = self.overrides, self.quantizers
        chosen = {} if self.chosen is None else self.chosen.schemes
        self.overrides = table
        try:
            check_effect(self._decide(self.options), table)
            self.overrides = Table([*rows(chosen), *table.rows])
            if self.observation is not None and self.batches is not None:
                made = self._decide(self.options)
                halves = {n for q in made for n in q.old.nodes if q.modes[n] in HALVES}
                self._observe([*(t for q in made for t in q.stored), *_floats_of(halves)], self.batches)
            return self._made(self.options)
        finally:
            self.overrides, self.quantizers = kept, quantizers

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
        made = [
            Quantizer(self.graph, self.dtype, self.overrides, self.weight_bits, function, options, self.observation)
            for function in found
        ]
        for quantizer in made:
            quantizer.scales = self.scales
        return made

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
        """Tries other options one after another, and keeps each one that lowers the error of the outputs. Then chooses the
        schemes of layers."""
        costs = Costs(judge.samples[0], self.goal.machine, self.threads)
        self.plain = costs.of(self.graph)
        kept, least = self.quantizers, judge.compare(best)
        for change in self._changes():
            if least.error < _GOOD:
                break
            options = dataclasses.replace(self.options, **change)
            made = self._made(options)
            near = judge.compare(made)
            if near.error < least.error * (_FASTER if "saves_traffic" in change else _BETTER):
                best, least, kept, self.options = made, near, self.quantizers, options
        self.quantizers = kept
        return self._assigned(best, judge, costs, least)

    def _changes(self) -> list[dict[str, Any]]:
        """Changes of the options that may lower the error."""
        if self.effort == "fast":
            return []
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
        return changes

    def _samples(self) -> int:
        """The number of samples on which outputs are compared: fewer for large networks. The number depends only on
        shapes."""
        assert self.observation is not None
        shapes = [t.static_shape for t in self.observation.seen]
        held = sum(math.prod(shape) for shape in shapes if shape is not None)
        return int(np.clip(_ELEMENTS // max(held, 1), _FEW, _SAMPLES[self.effort]))

    def _assigned(self, best: Graph, judge: Judge, costs: Costs, least: Nearness) -> Graph:
        """Chooses the schemes of layers: none that makes the graph slower without need, and more bits where the error
        asks for it."""
        assert self.plain is not None
        user, kept, goal, dtype = self.overrides, self.quantizers, self.goal, self.dtype
        layers = {
            n: layer(n, q.steps[n]) for q in kept for n in q.old.nodes if q.modes[n] == dtype and n.op in INTEGER_OPS
        }
        if dtype in HALVES:
            layers |= {n: layer(n, q.steps[n]) for q in kept for n in q.old.nodes if q.modes[n] == dtype}
        prices: dict[str, Mapping[str, float]] = {}

        def made_with(table: Table) -> Graph:
            self.overrides = table
            return self._made(self.options)

        def attempt(table: Table, samples: int | None) -> tuple[Nearness, Cost]:
            made = made_with(table)
            return judge.compare(made, samples), costs.of(made) if samples is None else _NOTHING

        def price(scheme: str) -> Mapping[str, float]:
            """The time of each layer if all of them had the scheme. In f16 a layer takes as long as in f32, or less."""
            assert self.plain is not None
            if scheme not in prices:
                wide = scheme not in (*HALVES, "w16", "f32")
                table = Table([*rows({one.name: scheme for one in layers.values()}), *user.rows])
                prices[scheme] = costs.of(made_with(table)).layers if wide else self.plain.layers
            return prices[scheme]

        # Fewer bits of weights were asked for in words: layers may have wider activations, and no wider weights. Effort
        # fast looks for no more bits.
        ladder = [s for s in _WIDE[dtype] if s == "w8a16" or self.weight_bits == 8] if self.effort != "fast" else []
        first = Point({}, least, costs.of(best), f"all layers in {dtype}")
        network = Network(list(layers.values()), user, dtype, ladder, attempt, price, self.plain)
        assigner = Assigner(network, self._limits(first), goal.bounded and not goal.asked)
        assigner.points.append(first)
        chosen, timed = first, dtype in LIMITS and self.weight_bits == 8 and self.plain.ms > _TINY
        rest = {n: q.steps[n] for q in kept for n in q.old.nodes if n not in layers and q.modes[n] == dtype}
        others = list(rest.values())
        if timed:
            self._observe_halves([*layers, *rest], judge)
        if timed and dtype == "i16":  # what floats do faster and more exactly
            chosen = assigner.lighter(chosen, "f16", others)
            if chosen.cost.ms > self.plain.ms * AS_LONG:
                chosen = assigner.lighter(chosen, "w16")
        if (chosen.near.excess > 1.0 or assigner.best) and ladder:
            chosen = assigner.near_enough(chosen)
        if timed and dtype == "i8" and not assigner.best:
            chosen = assigner.lighter(chosen, "f16", narrow=min(NARROW, chosen.cost.share(dtype)))
        if dtype in LIMITS:
            if chosen.near.excess > 1.0 and not goal.asked and not goal.bounded and ladder:
                chosen = assigner.beyond(first, assigner.pick(chosen), _HALF if dtype == "i8" else 0.0, others)
            self.notes = self._short(assigner, first, chosen)
        self.overrides, self.quantizers = user, kept
        self.points, self.chosen, self.nearness = assigner.points, chosen, chosen.near
        self._refuse_dearer(chosen)
        if not chosen.schemes:
            return best
        made = made_with(assigner.table(chosen.schemes))
        self.overrides = user
        return made

    def _short(self, assigner: Assigner, first: Point, chosen: Point) -> list[str]:
        """What an integer graph does not reach, why, and what it would take, in sentences."""
        assert self.plain is not None
        found, dtype, plain = [], self.dtype, self.plain
        narrow = chosen.cost.share(dtype) if dtype == "i8" else 1.0
        if narrow < NARROW - 0.005:
            wide = [(name, share) for name, share in chosen.cost.products.items() if name not in (dtype, "w8")]
            others = ", ".join(f"{share:.0%} in {name}" for name, share in wide)
            why = (
                "the outputs need more bits"
                if first.cost.share(dtype) >= NARROW
                else "the others have no form in 8 bits here"
            )
            found.append(f"only {narrow:.0%} of the products are in 8 bits ({others}): {why}")
        if chosen.near.excess > 1.0 and not assigner.best:
            reached = [one for one in assigner.points if one.near.excess <= 1.0]
            take = min(reached, key=lambda one: one.cost.ms, default=None)
            more = "another dtype reaches them"
            if take is not None:
                share = (
                    f"{take.cost.share(dtype):.0%} of the products in 8 bits"
                    if dtype == "i8"
                    else f"{_below(take.near.error)}"
                )
                more = (
                    f"target {_TARGET[dtype]} reaches them in {take.cost.ms / plain.ms:.2f} of f32's time, with {share}"
                )
            found.append(f"the outputs miss the limits for {dtype} ({_below(chosen.near.error)}); {more}")
        if chosen.cost.ms > plain.ms * AS_LONG and plain.ms > _TINY:
            found.append(
                f"a run takes {chosen.cost.ms / plain.ms:.2f} of f32's time on this processor, by the model of time; f16 takes 1"
            )
        if chosen.cost.bytes > plain.bytes * _SMALLER:
            found.append(f"the file has {chosen.cost.bytes / plain.bytes:.2f} of f32's bytes")
        return found

    def _limits(self, first: Point) -> Limits:
        """What an assignment may cost. Without a target of the user, an i8 graph keeps most of its products in 8 bits, and
        integers are not slower than f32; a graph that is slower from the start does not become slower still."""
        assert self.plain is not None
        goal = self.goal
        limits = Limits(goal.max_ms or math.inf, goal.max_bytes or math.inf)
        if goal.asked or self.dtype not in LIMITS:
            return limits
        narrow = min(NARROW, first.cost.share("i8")) if self.dtype == "i8" else 0.0
        most = math.inf if self.plain.ms <= _TINY else max(self.plain.ms, _ROOM * first.cost.ms)
        return Limits(min(limits.ms, most), limits.bytes, narrow)

    def _refuse_dearer(self, chosen: Point) -> None:
        """Raises UsageError if the graph costs more than the user permits."""
        goal, cost = self.goal, chosen.cost
        for name, most, least, unit in (
            ("max_ms", goal.max_ms, min(one.cost.ms for one in self.points), "ms"),
            ("max_bytes", goal.max_bytes, min(one.cost.bytes for one in self.points), "bytes"),
        ):
            got = cost.ms if name == "max_ms" else cost.bytes
            if most is not None and got > most:
                raise UsageError(
                    f"no {self.dtype} graph was found within {name}", code=105, expected=f"at most {most:g} {unit}",
                    got=f"{least:g} {unit} at least", hint="give a larger limit, a narrower dtype, or a lower target",
                )  # fmt: skip

    def _observe_halves(self, nodes: Iterable[Node], judge: Judge) -> None:
        """Observes what nodes read and make, so that none gets f16 whose values do not fit."""
        self._observe(_floats_of(nodes), Batches(judge.samples, self.graph.signatures["infer"].inputs))

    def _observe(self, tensors: Iterable[Tensor], batches: Batches) -> None:
        """Observes tensors that were not observed before."""
        assert self.observation is not None
        seen = self.observation.seen
        missing = list(dict.fromkeys(t for t in tensors if t not in seen and t.data is None))
        if missing:
            more = Observation(self.graph, missing, (), self.threads, missing)
            more.run(batches)
            seen.update(more.seen)
            self.observation.infinite |= more.infinite

    def table(self) -> Table:
        """The decisions of the graph that was returned."""
        found: list[Row | TensorRow] = [row for quantizer in self.quantizers for row in quantizer.rows()]
        notes = [f"Made for {self.dtype} with {', '.join(self._chosen())}."]
        if self.nearness is not None and self.nearness.error > 0:
            notes.append(f"The outputs have {_below(self.nearness.error)} on some samples.")
        notes += [f"{self.doubt[:1].upper()}{self.doubt[1:]}."] if self.doubt else []
        notes += [f"{note[:1].upper()}{note[1:]}." for note in self.notes]
        return Table(found, notes)

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


def _below(error: float) -> str:
    return "no error" if error <= 0 else f"an error {-10 * math.log10(error):.1f} dB below their values"


def _floats_of(nodes: Iterable[Node]) -> list[Tensor]:
    """The floats that nodes read and make."""
    found = [t for n in nodes for t in (*n.inputs, *n.outputs) if t is not None and t.data is None and t.dtype == "f32"]
    return list(dict.fromkeys(found))
