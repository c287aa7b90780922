"""Finds which layers to compute at a higher precision: `find_fix` tries the layers that hurt, and keeps the fewest that
restore the outputs.

Each try quantizes the float graph again with a table and measures the outputs. So the figures are measured, not
estimated.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from linnet.clib.errors import Error, UsageError
from linnet.facade import Graph
from linnet.ir import traits
from linnet.ir.function import Node, Tensor
from linnet.ir.node_names import step_names
from linnet.quantization.agreement import KEEPS_HALVES, Agreement, decibel
from linnet.quantization.calibrate import Feeds
from linnet.quantization.compared_models import adapted
from linnet.quantization.costs import Cost
from linnet.quantization.debug_measure import real_output, relative_noise
from linnet.quantization.debug_pairs import LIMITS, Pair, infer_function, pairs_of
from linnet.quantization.debug_report import DebugReport, Fix, Layer, Try
from linnet.quantization.heeded import follows
from linnet.quantization.scheme import HALVES, INTEGER_OPS
from linnet.quantization.table import Row, Table, TensorRow
from linnet.session.model import Model
from linnet.session.session import Session

HIGHER = {
    "i8": ("w8a16", "f16", "f32"), "auto": ("w8a16", "f16", "f32"), "i16": ("f16", "f32"), "f16": ("f32",), "bf16": ("f32",),
}  # fmt: skip
_SHARE = 0.05  # of the noise of all layers: a layer with less is no candidate
_BEYOND = 0.001  # share of values beyond the range from which another range is tried
_CLOSE = 0.5  # dB: how much worse a cheaper way may be
_GAIN = 1.5  # dB: without a target, a layer that gains less is left as it is
_WITHIN = 1.0  # dB: without a target, how far the outputs may stay below what all candidates together reach
_MOST = 8  # candidates, and four times as many with a target
_SLOWER = 1.2  # without a target, no change is made that raises the modelled time above this many times that before
_SOME = 0.1  # dB: with a target, how far they may stay below it
ENOUGH = {"i8": 30.0, "auto": 30.0}  # dB: without a target, outputs that are as good are left as they are
_BETTER = 10.0  # dB: without a target, layers are tried until the outputs are better by this, and good enough
_ENOUGH_16 = 50.0  # dB: the same for dtypes of 16 bits


@dataclasses.dataclass(frozen=True, kw_only=True)
class FixOptions:
    """How a fix is searched.

    table: the table with which the quantized graph was made; the rows of the fix are appended to it.
    target: the SQNR of the outputs to reach, in dB. None: within 1 dB of what all candidates together reach.
    limit: how many samples are used. seconds: no further candidate is tried after this time.
    progress: is called with a line before each try. cost: what a graph costs; of ways that help alike, the one that takes
    least time is chosen, and Fix says what it costs.
    """

    table: Table = dataclasses.field(default_factory=Table)
    target: float | None = None
    limit: int | None = 16
    seconds: float = 120.0
    threads: int | None = None
    progress: Callable[[str], object] = lambda text: None
    cost: Callable[[Graph], Cost] | None = None


def find_fix(
    report: DebugReport,
    float_graph: Graph,
    quantized_graph: Graph,
    requantize: Callable[[Table], Graph],
    samples: Iterable[Feeds],
    options: FixOptions | None = None,
) -> Fix:
    """Tries the layers that a report ranks worst at higher precisions, and chooses the fewest that are needed.

    requantize: quantizes the float graph with a table, on the calibration data with which the quantized graph was made.
    Raises UsageError for a target that is not finite.
    """
    options = options or FixOptions()
    target = options.target
    if target is not None and not math.isfinite(target):
        raise UsageError("the target is not finite", code=101, expected="an SQNR in dB, such as 30", got=str(target))
    search = _Search(float_graph, requantize, list(itertools.islice(samples, options.limit)), options)
    before = search.measured(quantized_graph)
    search.first = None if options.cost is None else options.cost(quantized_graph)
    pairs = {pair.name: pair for pair in pairs_of(float_graph, quantized_graph)}
    ladder, end = HIGHER.get(report.dtype, ("f32",)), time.monotonic() + options.seconds
    good = ENOUGH.get(report.dtype, _ENOUGH_16) if target is None else target
    nothing = decibel(1.0, before) >= good
    if target is None and not nothing:
        good = max(good, decibel(1.0, before) + _BETTER)
    tries, waiting, chosen, note = list[Try](), list[Try](), list[Try](), ""
    noise = before
    for layer in _candidates(report, _MOST if target is None else 4 * _MOST):
        if decibel(1.0, noise) >= good:
            break
        if tries and time.monotonic() > end:
            note = f"stopped after {options.seconds:g} seconds; more layers may hurt"
            break
        done = {layer.name, *(t.name for t in chosen)}
        left = sum(o.hurt or 0.0 for o in report.layers if o.name not in done and math.isfinite(o.hurt or 0.0))
        enough = min(decibel(1.0, left) - 1.0, good)
        # A layer that gains nothing may hide behind one that comes later, so its strongest way stays for the next tries.
        base = _union([*chosen, *waiting])
        found = search.ways_of(layer, _ways(pairs[layer.name], layer, ladder), base, enough, decibel(1.0, noise))
        tries += found
        usable = [t for t in found if t.output_db is not None and (target is not None or search.cheap(base, t))]
        if not usable:
            continue
        top = max(t.output_db for t in usable if t.output_db is not None)
        near = [t for t in usable if t.output_db is not None and t.output_db >= min(top - _CLOSE, max(enough, good))]
        way = min(near, key=lambda t: search.ms_with(base, t))
        if top > decibel(1.0, noise) + (_GAIN if target is None else _SOME):
            chosen += [*waiting, way]
            waiting = []
            noise = search.noise(_union(chosen))
        else:
            waiting.append(usable[-1])
    best = decibel(1.0, noise)
    if not chosen and not note:
        note = "nothing has to be fixed" if nothing else "no layer gains enough"
        note += (
            f": the outputs have {decibel(1.0, before):.1f} dB; a higher target finds more" if target is None else ""
        )
    goal = best - _WITHIN if target is None else target
    kept = search.fewest(chosen, min(goal, best))
    rows = _union(kept)
    after = decibel(1.0, search.noise(rows)) if rows else decibel(1.0, before)
    remark = f"debug-quant: outputs {decibel(1.0, before):.1f} -> {after:.1f} dB"
    made = Table([*search.table.rows, *(_row(name, value, remark) for name, value in rows.items())])
    dearer = search.dearer(rows)
    return Fix(
        decibel(1.0, before), after, best, goal, after >= goal, [t.name for t in kept], rows, tries, search.count, note, made,
        None if dearer is None else dearer[0], None if dearer is None else dearer[1],
    )  # fmt: skip


def _candidates(report: DebugReport, most: int) -> list[Layer]:
    """The layers that hurt, worst first. Each must cause at least a certain share of the noise that remains without the
    worse layers."""
    ranked = [layer for layer in report.ranked if layer.hurt is not None and layer.hurt > 0.0]
    found = []
    for i, layer in enumerate(ranked[:most]):
        left = sum(other.hurt or 0.0 for other in ranked[i:] if math.isfinite(other.hurt or 0.0))
        if i == 0 or not math.isfinite(layer.hurt or 0.0) or (layer.hurt or 0.0) >= _SHARE * left:
            found.append(layer)
    return found


def _union(tries: Iterable[Try]) -> dict[str, str]:
    """All rows in one table. If the rows give a layer two dtypes, it gets the higher one."""
    order = ("i8", "w8a16", "i16", "f16", "bf16", "f32")
    rows: dict[str, str] = {}
    for t in tries:
        for name, value in t.rows.items():
            rows[name] = max(rows.get(name, value), value, key=lambda text: order.index(text.split()[0]))
    return rows


def _row(key: str, value: str, remark: str = "") -> Row | TensorRow:
    """The row of a table for a key and a value of `Try.rows`."""
    kind, _, name = key.partition(" ")
    dtype, *ends = value.split()
    if kind == "layer":
        return Row(name, dtype, remark)
    low, high = map(float, ends) if ends else (None, None)
    return TensorRow(name, dtype, low, high, remark=remark)


def _ways(pair: Pair, layer: Layer, ladder: Sequence[str]) -> list[dict[str, str]]:
    """Rows for a table that may remove the noise of a layer, cheapest first.

    If values lie outside the range, the first way is to use the range that was seen. The next ways are higher dtypes.
    They are for the tensor if most of the noise comes from storing the result, else for the layer. The last ways also
    change the layers that read the tensor.
    """
    names = step_names(pair.old.function)
    own, readers = list(pair.part), _readers(pair)
    tensor, stored = f"tensor {pair.name}", layer.dtype in LIMITS and layer.storage >= 0.5
    ways = []
    if layer.dtype in LIMITS and layer.saturated > _BEYOND:
        ways.append({tensor: f"{layer.dtype} {min(layer.seen[0], 0.0):.7g} {max(layer.seen[1], 0.0):.7g}"})
    for dtype in ladder:
        first = {tensor: _STORED[dtype]} if stored and dtype in _STORED else {}
        for nodes in ([] if first else own, [*own, *readers]):
            able = [node for node in nodes if _takes(node, dtype)]
            ways.append(first if not nodes else {f"layer {names[node]}": dtype for node in able})
    return [way for i, way in enumerate(ways) if way and way not in ways[:i]]


_STORED = {"w8a16": "i16", "f32": "f32"}  # how a tensor is stored so that its readers compute in a scheme


def _takes(node: Node, scheme: str) -> bool:
    """Whether a row with this scheme may have an effect on a node."""
    if scheme in HALVES:
        return node.op in INTEGER_OPS
    return scheme == "f32" or follows(node)


def _readers(pair: Pair) -> list[Node]:
    """The nodes that read a tensor. If a node only moves values, the nodes that read its outputs are included too."""
    consumers: Mapping[Tensor, list[Node]] = pair.old.function.consumers()
    found: dict[Node, None] = {}
    todo: list[Tensor] = [pair.old]
    while todo:
        for node in consumers.get(todo.pop(), []):
            if node in found:
                continue
            found[node] = None
            if node.op in _MOVES:
                todo.extend(node.outputs)
    return list(found)


_MOVES = traits.having("integers", "moves", "averages")


class _Search:
    """Quantizes with rows of a table and measures the outputs. No set of rows is tried twice."""

    def __init__(
        self, graph: Graph, requantize: Callable[[Table], Graph], samples: list[Feeds], options: FixOptions
    ) -> None:
        self.requantize, self.samples, self.table = requantize, samples, options.table
        self.threads, self.progress = options.threads, options.progress
        session = Session(Model(graph), threads=self.threads)
        self.wanted = [session.run(feeds) for feeds in samples]
        self.names = list(graph.signatures["infer"].outputs)
        self.cost = options.cost
        self.first: Cost | None = None
        self.known: dict[frozenset[tuple[str, str]], float] = {}
        self.costs: dict[frozenset[tuple[str, str]], Cost] = {}
        self.count = 0

    def measured(self, graph: Graph) -> float:
        """The noise of a graph's outputs divided by their power."""
        session = Session(Model(graph), threads=self.threads, max_bytes=KEEPS_HALVES)
        entry = graph.signatures["infer"]
        tensors = dict(zip(entry.outputs, infer_function(graph).outputs, strict=True))
        sums = {name: Agreement() for name in self.names}
        for feeds, wanted in zip(self.samples, self.wanted, strict=True):
            got = session.run(adapted(feeds, session.inputs))
            for name, theirs in zip(self.names, entry.outputs, strict=True):
                sums[name].add(wanted[name], real_output(got[theirs], tensors[theirs]))
        return relative_noise(sums.values())

    def noise(self, rows: Mapping[str, str]) -> float:
        """Like `measured`, for the graph made with the table followed by these rows. Raises whatever `requantize`
        raises."""
        key = frozenset(rows.items())
        if key not in self.known:
            self.count += 1
            table = Table([*self.table.rows, *(_row(name, value) for name, value in rows.items())])
            made = self.requantize(table)
            self.known[key] = self.measured(made)
            if self.cost is not None:
                self.costs[key] = self.cost(made)
        return self.known[key]

    def ms(self, rows: Mapping[str, str]) -> float:
        """The modelled time with rows that were tried; 0 if costs are not known."""
        found = self.costs.get(frozenset(rows.items()))
        return 0.0 if found is None else found.ms

    def ms_with(self, rows: Mapping[str, str], t: Try) -> float:
        """`ms` of rows together with those of a try."""
        return self.ms(_union([Try("", "", dict(rows), None), t]))

    def cheap(self, rows: Mapping[str, str], t: Try) -> bool:
        """Whether rows together with those of a try take little more time than the graph without them."""
        return self.first is None or self.ms_with(rows, t) <= _SLOWER * self.first.ms

    def dearer(self, rows: Mapping[str, str]) -> tuple[float, int] | None:
        """(time over that without rows, bytes more), as far as costs are known."""
        after, before = self.costs.get(frozenset(rows.items())), self.first
        if after is None or before is None or not before.ms:
            return None
        return after.ms / before.ms, after.bytes - before.bytes

    def ways_of(
        self, layer: Layer, ways: Sequence[dict[str, str]], rows: Mapping[str, str], enough: float, now: float
    ) -> list[Try]:
        """Tries the ways, each together with the rows that are already chosen, until one gives the SQNR that the other
        layers allow."""
        found: list[Try] = []
        for way in ways:
            both = _union([Try("", "", dict(rows), None), Try("", "", way, None)])
            if both == rows:
                continue
            self.progress(f"{layer.layer}: {', '.join(f'{name} {value}' for name, value in way.items())}")
            made: float | None = None
            with contextlib.suppress(Error):  # such as a dtype that the quantizer refuses
                made = decibel(1.0, self.noise(both))
            found.append(Try(layer.name, layer.layer, way, made))
            if (
                made is not None
                and made >= enough
                and made > now + _CLOSE
                and (self.cost is None or "f16" in way.values())
            ):
                break
        return found

    def fewest(self, chosen: Sequence[Try], goal: float) -> list[Try]:
        """Leaves out tries without which the goal is still reached. It begins with the last ones, whose gains are
        smallest."""
        kept = list(chosen)
        for t in reversed(chosen):
            rest = [other for other in kept if other is not t]
            if rest and decibel(1.0, self.noise(_union(rest))) >= goal:
                kept = rest
        return kept
