"""What `debug_quantization` measures: sums over samples for each pair of tensors, and the effect of one layer's noise on
the outputs. Samples run one by one, and tensors are measured in groups, so that memory does not grow with their numbers."""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import Error, UsageError
from linnet.facade import Graph
from linnet.quantization.agreement import KEEPS_HALVES, Agreement, decibel
from linnet.quantization.calibrate import Feeds
from linnet.quantization.compared_models import adapted
from linnet.quantization.debug_pairs import CUT, Pair, cut, groups_of, real, stored
from linnet.session.model import Model
from linnet.session.session import Session

Array = npt.NDArray[Any]
GROUP = 4_000_000  # elements of a group's tensors, each of which is held in four forms
GROUPS = 8  # at about so many, groups grow instead, because the models run once for each
KEPT = 8  # samples of which the noise of single layers is followed to the outputs
BINS = 48
LEAST, ENOUGH = 2, 16  # samples of a layer and of the outputs, also if time is short


@dataclasses.dataclass
class Sums:
    """Sums over the samples for one pair. local: the quantized layer compared with the float layer, both on the float
    model's values as the quantized graph stores them. storage: the part of this error that comes from storing the
    result. alone: for each sample, the float tensor with the local error added."""

    whole: Agreement = dataclasses.field(default_factory=Agreement)
    local: Agreement = dataclasses.field(default_factory=Agreement)
    storage: float = 0.0
    saturated: int = 0
    zeros: tuple[int, int] = (0, 0)
    low: float = math.inf
    high: float = -math.inf
    broken: int = 0  # values that are infinite or NaN only in the quantized model
    alone: list[Array] = dataclasses.field(default_factory=list)
    hurt: float | None = None  # noise at the outputs, relative to their power, from this layer's local error alone

    def add(self, pair: Pair, mine: Array, theirs: Array, exact: Array, made: Array) -> None:
        """mine, theirs: the tensors of the two models. exact: the result of the float layer. made: the result of the
        quantized layer on the same inputs."""
        self.whole.add(mine, theirs)
        self.local.add(exact, made)
        kept = real(stored(exact, pair.new), pair.new)
        good = np.isfinite(exact) & np.isfinite(kept)
        self.storage += float(np.square(kept[good] - exact[good], dtype=np.float64).sum())
        limits = pair.limits
        if limits is not None:
            q = pair.new.quantization
            half = 0.5 * float(q.scale.reshape(-1)[0]) if q is not None and pair.new.dtype != "f16" else 0.0
            self.saturated += int(((mine < limits[0] - half) | (mine > limits[1] + half)).sum())
        self.zeros = self.zeros[0] + int((mine == 0).sum()), self.zeros[1] + int((theirs == 0).sum())
        self.broken += int((np.isfinite(mine) & ~np.isfinite(theirs)).sum())
        finite = mine[np.isfinite(mine)]
        if finite.size:
            self.low, self.high = min(self.low, float(finite.min())), max(self.high, float(finite.max()))


class Measurement:
    """Sessions of both graphs, and of the float graph cut into parts. Open sizes are those of the samples."""

    def __init__(self, old: Graph, new: Graph, pairs: Sequence[Pair], threads: int | None) -> None:
        self.pairs, self.threads = pairs, threads
        self.tensors = {pair.name: pair.new for pair in pairs}
        self.old = Session(Model(old), threads=threads)
        self.new = Session(Model(new), threads=threads, max_bytes=KEEPS_HALVES)
        one = [pairs[0].name]
        self.old_parts = Session(Model(cut(old, {p.name: p.old for p in pairs})), threads=threads, fetches=one)
        parts = Model(cut(new, self.tensors))
        self.new_parts = Session(parts, threads=threads, fetches=one, max_bytes=KEEPS_HALVES)
        signature = old.signatures["infer"]
        self.outputs = {name: t.name for name, t in zip(signature.outputs, signature.function.outputs, strict=True)}
        theirs = new.signatures["infer"].outputs
        if len(theirs) != len(self.outputs):
            raise UsageError(
                "the two graphs have different numbers of outputs", code=101, expected=f"{len(self.outputs)} outputs",
                got=f"{len(theirs)} outputs", hint="quantize the same file",
            )  # fmt: skip
        self.others = dict(zip(self.outputs, theirs, strict=True))
        specs = {spec.name: spec for spec in self.new.outputs}
        self.output_tensors = dict(zip(theirs, new.signatures["infer"].function.outputs, strict=True))
        self.specs = specs

    def sums(
        self, samples: Iterable[Feeds], seconds: float, progress: Callable[[str], object] = lambda text: None
    ) -> tuple[dict[str, Sums], dict[str, Agreement], int]:
        """The sums of each pair, the agreement of each output, and the number of samples. seconds: how long to measure; if
        time is short, fewer samples are used, two at least, and not every layer's noise is followed to the outputs.
        progress: is called with a line before each group of layers."""
        begin = time.monotonic()
        sizes, count, outputs = self._sizes(samples, begin + seconds / 4)
        most = max(GROUP, sum(sizes.values()) // GROUPS)
        groups = groups_of(self.pairs, sizes, most)
        keep = max(2, min(KEPT, KEPT * GROUP // most))
        found: dict[str, Sums] = {}
        for number, group in enumerate(groups):
            progress(f"measuring layers, {number + 1} of {len(groups)} groups")
            end = begin + seconds / 4 + 0.75 * seconds * (len(found) + len(group)) / len(self.pairs)
            half = time.monotonic() + (end - time.monotonic()) / 2
            made = {pair.name: Sums() for pair in group}
            kept: list[Feeds] = []
            for i, feeds in enumerate(samples):
                if i >= LEAST and seconds > 0 and time.monotonic() > half:
                    break
                self._add(group, feeds, made, keep=i < keep)
                if i < keep:
                    kept.append(feeds)
            self._follow(group, made, kept, end)
            found |= made
        return found, outputs, count

    def _sizes(self, samples: Iterable[Feeds], end: float) -> tuple[dict[str, int], int, dict[str, Agreement]]:
        """The number of elements of each tensor, the number of samples, and the agreement of the outputs over all
        samples."""
        sums = {name: Agreement() for name in self.outputs}
        count = 0
        sizes: dict[str, int] = {}
        for feeds in samples:
            if not count:
                lead = max((int(np.prod(np.shape(v))) for v in feeds.values()), default=1)
                sizes = {p.name: _elements(p.old.shape, lead) for p in self.pairs}
            wanted, got = self.old.run(feeds), self.new.run(adapted(feeds, self.new.inputs))
            for name, theirs in self.others.items():
                sums[name].add(wanted[name], real_output(got[theirs], self.output_tensors[theirs]))
            count += 1
            if count >= ENOUGH and time.monotonic() > end:
                break
        if not count:
            raise UsageError("there is no sample to compare on", code=101, expected="one or more", got="none")
        return sizes, count, sums

    def _add(self, group: Sequence[Pair], feeds: Feeds, made: Mapping[str, Sums], keep: bool) -> None:
        names = [pair.name for pair in group]
        read = list(dict.fromkeys(name for pair in group for name in pair.reads))
        tensors = self.tensors
        wanted = list(dict.fromkeys([*names, *(name for name in read if name in tensors)]))
        mine = self.old.run(feeds, fetches=wanted)
        theirs = self.new.run(adapted(feeds, self.new.inputs), fetches=[tensors[name].name for name in names])
        given = {name: feeds[name] for name in read if name in feeds}
        held = {name: stored(mine[name], tensors[name]) for name in read if name in tensors}
        exact = self._part(
            self.old_parts, given | {CUT + name: real(v, tensors[name]) for name, v in held.items()}, names
        )
        parts = self._part(
            self.new_parts, adapted(given, self.new.inputs) | {CUT + n: v for n, v in held.items()}, names
        )
        for pair in group:
            sums, value = made[pair.name], real(parts[pair.name], pair.new)
            sums.add(pair, mine[pair.name], real(theirs[pair.new.name], pair.new), exact[pair.name], value)
            if keep:
                with np.errstate(invalid="ignore", over="ignore"):
                    sums.alone.append(mine[pair.name] + (value - exact[pair.name]))

    @staticmethod
    def _part(session: Session, feeds: Mapping[str, Array], fetches: Sequence[str]) -> dict[str, Array]:
        """Runs some parts. A quantized part may read fewer tensors than the float part, for example if the float graph
        computes a weight."""
        known = {spec.name for spec in session.inputs}
        return session.run({name: value for name, value in feeds.items() if name in known}, fetches=fetches)

    def _follow(self, group: Sequence[Pair], made: Mapping[str, Sums], kept: Sequence[Feeds], end: float) -> None:
        """Measures the error of the float model's outputs that each layer's local error would cause if all other layers
        were exact. The layers with the largest local error come first. Layers for which there is no time left get no
        figure."""
        wanted = [self.old.run(feeds) for feeds in kept]
        order = sorted(group, key=lambda pair: made[pair.name].local.sqnr)
        for i, pair in enumerate(order):
            sums = made[pair.name]
            if sums.local.noise == 0.0:
                sums.hurt = 0.0
            elif i == 0 or time.monotonic() < end:
                sums.hurt = self._alone(pair, sums.alone, kept, wanted)
            sums.alone.clear()

    def _alone(
        self, pair: Pair, values: Sequence[Array], kept: Sequence[Feeds], wanted: Sequence[Mapping[str, Array]]
    ) -> float:
        fetches = [name for name, tensor in self.outputs.items() if tensor != pair.name]
        sums = {name: Agreement() for name in self.outputs}
        for value, feeds, right in zip(values, kept, wanted, strict=True):
            got: dict[str, Array] = {name: value for name, tensor in self.outputs.items() if tensor == pair.name}
            try:
                if fetches:
                    got |= self.old.run({**feeds, pair.name: value}, fetches=fetches)
            except Error:  # no other output depends on the tensor, or it steers a loop
                if not got:
                    return 0.0
            for name, sum_ in sums.items():
                sum_.add(right[name], got.get(name, right[name]))
        return relative_noise(sums.values())


def real_output(array: Array, tensor: Any) -> Array:
    """The real numbers that an output stands for. Integers without a quantization stay integers."""
    return real(array, tensor) if tensor.quantization is not None or array.dtype.kind == "f" else array


def relative_noise(sums: Iterable[Agreement]) -> float:
    """Noise divided by power, averaged over the outputs. For an integer output without a scale, the share of elements
    that differ."""
    found = []
    for s in sums:
        if s.integers and s.count:
            found.append(1.0 - s.equal / s.count)
        elif s.count:
            found.append(s.noise / s.signal if s.signal else (0.0 if s.noise == 0 else math.inf))
    return sum(found) / len(found) if found else 0.0


def output_db(sums: Iterable[Agreement]) -> float:
    """`relative_noise` in dB."""
    return decibel(1.0, relative_noise(sums))


def _elements(shape: Sequence[Any] | None, guess: int) -> int:
    """The number of elements of a tensor. An open size counts as 1. For an open rank, the largest input's number of
    elements."""
    return guess if shape is None else int(np.prod([d if isinstance(d, int) else 1 for d in shape], dtype=np.int64))


@dataclasses.dataclass
class Histogram:
    """Counts of the float values and of the quantized values in equal bins from low to high."""

    low: float
    high: float
    exact: list[int]
    quantized: list[int]


def histograms(
    measure: Measurement, pairs: Sequence[Pair], sums: Mapping[str, Sums], samples: Iterable[Feeds]
) -> dict[str, Histogram]:
    """A histogram for each pair, over the range that covers both the values seen and the values that can be
    represented."""
    edges: dict[str, tuple[float, float]] = {}
    for pair in pairs:
        low, high = sums[pair.name].low, sums[pair.name].high
        limits = pair.limits
        if limits is not None and pair.new.dtype != "f16":
            low, high = min(low, limits[0]), max(high, limits[1])
        if math.isfinite(low) and math.isfinite(high):
            edges[pair.name] = (low, high if high > low else low + 1.0)
    made = {n: Histogram(*edges[n], [0] * BINS, [0] * BINS) for n in edges}
    chosen = [pair for pair in pairs if pair.name in made]
    for feeds in itertools.islice(samples, KEPT):
        for pair in chosen:  # one tensor at a time: these are few
            mine = measure.old.run(feeds, fetches=[pair.name])[pair.name]
            theirs = measure.new.run(adapted(feeds, measure.new.inputs), fetches=[pair.new.name])[pair.new.name]
            entry = made[pair.name]
            for counts, values in ((entry.exact, mine), (entry.quantized, real(theirs, pair.new))):
                found, _ = np.histogram(values[np.isfinite(values)], BINS, edges[pair.name])
                counts[:] = [a + int(b) for a, b in zip(counts, found, strict=True)]
    return made


def special_counts(graph: Graph, samples: Iterable[Feeds], threads: int | None) -> list[dict[str, Any]]:
    """For each op, counts of values at the limits of their integer type, infinities and NaN, over runs of the graph as
    it is deployed."""
    session = Session(Model(graph), threads=threads, count_special=True, max_bytes=KEEPS_HALVES)
    counts: dict[str, Counter[str]] = {}
    worst: dict[str, tuple[int, str]] = {}
    for feeds in samples:
        session.run(adapted(feeds, session.inputs))
        for step, found in zip(session.steps, session.special, strict=True):
            counts.setdefault(step.op, Counter())["steps"] += 1
            counts[step.op].update(found)
            total = sum(found.values())
            if total > worst.get(step.op, (0, ""))[0]:
                worst[step.op] = (total, step.name)
    return [
        {"op": op, "saturated": c["saturated"], "infinite": c["infinite"], "not_a_number": c["not_a_number"],
         "most_in": worst.get(op, (0, ""))[1]}
        for op, c in sorted(counts.items(), key=lambda item: -(item[1].total() - item[1]["steps"]))
        if c.total() > c["steps"]
    ]  # fmt: skip
