"""Measures how near a quantized graph's outputs are to the float graph's on some calibration samples, and defines what
is near enough: decisions must stay the same, and other values must stay near."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from linnet.facade import Graph
from linnet.ir.dtypes import has_floats
from linnet.quantization.agreement import KEEPS_HALVES
from linnet.quantization.detections import Joined, candidates_of, joined_of
from linnet.quantization.goal import Target
from linnet.quantization.observe import Batches

if TYPE_CHECKING:
    from linnet.session.session import Session

Array = npt.NDArray[Any]
_EACH = -1  # the axis of scores, each of which is a decision of its own
_APART = 10.0  # entries whose sizes differ by this factor are parts of their own
_ENTRIES = 4096  # an axis with more entries has no parts
_ENOUGH = 16  # a part has at least this many values, over all samples
_NOTHING = 1e-7  # entries that are smaller than this fraction of the largest are zero
_FEW = 8  # distinct values
_TIE = 0.1  # two best scores that are nearer to each other than this decide nothing
_HALFWAY = (
    0.15  # of the scores between 0 and 1 may lie between 1/4 and 3/4; gains and pixels, which decide nothing, have more
)
_LARGEST = 30.0  # logits are not larger; coordinates in pixels are
_CLASSES = 16  # fewer classes than this are few: an error of the scores soon changes their order
_ORDERED = 0.3  # of the limit of scores, for few classes
_TELLING = 16  # decisions, of which a change can be seen at all


class Nearness(NamedTuple):
    """How near a graph comes. `error`: the squared error divided by the power of what changes between samples. Each
    quotient is at most 1, and they are averaged over outputs and samples. `excess`: the geometric mean, over the
    outputs, of the error divided by the error that the target allows. Ratios below 1 count as 1, so 1 means near
    enough. `loss`: the largest share of an output that is lost: of its decisions, or of the power of its values; with the
    user's own metric, the share of its figure."""

    error: float
    excess: float
    loss: float = 0.0


class Judge:
    """Compares graphs with the float graph on some of the calibration samples. score, most: the user's metric of a graph,
    and the share of the float graph's figure that may be lost."""

    def __init__(
        self,
        graph: Graph,
        batches: Batches,
        samples: int,
        target: Target,
        threads: int | None,
        score: Callable[[Graph], float] | None = None,
        most: float | None = None,
    ) -> None:
        from linnet.session.session import Session

        self.threads, self.target = threads, target
        self.score, self.most = score, most
        self.figure = score(graph) if score is not None else 0.0
        every = max(1, (batches.count or 1) // samples)
        self.samples = [feeds for i, feeds in enumerate(batches) if i % every == 0][:samples]
        self.joined: dict[str, Joined] = {}
        outputs = self._outputs(Session(graph, threads=threads), self.samples)
        self.joined = joined_of(outputs)
        self.wanted = self._apart(outputs)
        self.parts = {name: parts_of(values) for name, values in self.wanted.items()}
        self.powers = {name: self._powers(name) for name in self.wanted}
        self.kinds = {name: kind_of(values) for name, values in self.wanted.items()}
        self.candidates = candidates_of(self.wanted)

    def _outputs(self, session: Session, samples: Sequence[Any]) -> dict[str, list[Array]]:
        """The integers and floats that a graph gives for some samples, by the name of the output."""
        found: dict[str, list[Array]] = {}
        for feeds in samples:
            for name, result in session.run(feeds).items():
                value = np.asarray(result)
                if value.dtype.kind in "iu" or has_floats(value):
                    found.setdefault(name, []).append(value)
        return self._apart(found)

    def _apart(self, outputs: dict[str, list[Array]]) -> dict[str, list[Array]]:
        """The outputs, with the boxes and the scores of joined ones as outputs of their own."""
        found: dict[str, list[Array]] = {}
        for name, values in outputs.items():
            for value in values:
                parts = self.joined[name].parts(name, value) if name in self.joined else {name: value}
                for part, numbers in parts.items():
                    found.setdefault(part, []).append(numbers)
        return found

    def _powers(self, name: str) -> list[float]:
        values = [w.astype(np.float64) for w in self.wanted[name]]
        return [_varying([part.of(v) for v in values]) for part in self.parts[name]]

    def _distance(self, name: str, want: Array, got: Array) -> float:
        """The mean, over the parts of an output, of the squared error over the power of the part."""
        if want.shape != got.shape:
            return 1.0
        pairs = zip(self.parts[name], self.powers[name], strict=True)
        return float(np.mean([_distance(part.of(want), part.of(got), power) for part, power in pairs]))

    def _decides(self, name: str) -> bool:
        """Whether only the decisions of an output count."""
        kind = self.kinds[name]
        if name in self.candidates:
            return bool(self.candidates[name].form)
        return not has_floats(self.wanted[name][0]) or (kind.axis is not None and kind.form != "logits")

    def _limit(self, name: str) -> float:
        """The error that an output may have, over the power of its changes."""
        if name in self.candidates:
            return self.candidates[name].limit(self.target)
        if not self._decides(name):
            return self.target.values
        axis, first = self.kinds[name].axis, self.wanted[name][0]
        few = axis is not None and axis != _EACH and first.shape[axis] < _CLASSES
        return max(self.target.scores * _ORDERED, self.target.values) if few else self.target.scores

    def doubt(self) -> str:
        """Why the samples cannot tell whether decisions stay the same, in words; "" if they can."""
        counts = {
            name: sum(_decisions(scores, scores, kind.axis)[1] for scores in map(kind.scores, self.wanted[name]))
            for name, kind in self.kinds.items()
            if name not in self.candidates and (self._decides(name) or kind.form == "logits")
        }
        for name, one in self.candidates.items():
            if one.form:
                counts[name] = sum(one.decisions(i, value)[1] for i, value in enumerate(self.wanted[name]))
        if not counts or max(counts.values()) >= _TELLING:
            return ""
        return (
            f"{len(self.samples)} samples with {max(counts.values())} clear decisions cannot show how many decisions change; "
            "give 50 samples or more"
        )

    def lost(self, graph: Graph) -> list[str]:
        """The outputs of which a part loses its distinct values: at most two remain on all samples."""
        from linnet.session.session import Session

        outputs = self._outputs(Session(graph, threads=self.threads, max_bytes=KEEPS_HALVES), self.samples)
        return [
            name
            for name, wanted in self.wanted.items()
            if wanted[0].dtype.kind == "f" and any(_loses(part, wanted, outputs[name]) for part in self.parts[name])
        ]

    def compare(self, graph: Graph, samples: int | None = None) -> Nearness:
        """Measures how near a graph comes. samples: if given, only this many samples are used, from the first one
        on."""
        from linnet.session.session import Session

        session = Session(graph, threads=self.threads, max_bytes=KEEPS_HALVES)
        outputs = self._outputs(session, self.samples[:samples])
        errors: list[float] = []
        ratios: list[float] = []
        losses: list[float] = []
        for name, wanted in self.wanted.items():
            got, kind = outputs[name], self.kinds[name]
            differ, count, distance = 0, 0, 0.0
            detected = self.candidates.get(name)
            for i, (a, b) in enumerate(zip(wanted, got, strict=False)):
                if detected is not None:
                    changed, decided = detected.decisions(i, b)
                else:
                    changed, decided = _decisions(kind.scores(a), kind.scores(b), kind.axis)
                differ, count = differ + changed, count + decided
                distance += (self._distance(name, a, b) if detected is None else detected.distance(i, b)) / len(got)
            errors.append(distance)
            share = differ / max(count, 1)
            losses.append(max(share, 0.0 if self._decides(name) else distance))
            limit = self._limit(name)
            each = kind.axis == _EACH or detected is not None
            ratios.append(max(1.0, distance / limit, share / (self.target.masks if each else self.target.classes)))
        error, excess = float(np.mean(errors or [0.0])), float(np.exp(np.mean(np.log(ratios or [1.0]))))
        loss = max(losses, default=0.0)
        if self.score is not None and self.most is not None and samples is None:
            loss = (self.figure - self.score(graph)) / (abs(self.figure) or 1.0)
            excess = max(1.0, loss / self.most)
        return Nearness(error, excess, loss)


class Part(NamedTuple):
    """Entries of an output along an axis. axis: None for all of it."""

    axis: int | None
    entries: npt.NDArray[np.intp]

    def of(self, value: Array) -> Array:
        if self.axis is None or self.axis >= value.ndim or self.entries.max(initial=-1) >= value.shape[self.axis]:
            return value
        return value.take(self.entries, self.axis)


def parts_of(values: Sequence[Array]) -> list[Part]:
    """The parts of an output that differ in size by more than `_APART`, such as boxes and scores: the entries along the
    axis on which they differ most, ordered by size and cut at each such gap. One part if there is no gap. Samples of a
    batch (the first axis) are no parts, and neither are the scores of classes, whose decision counts."""
    whole = [Part(None, np.zeros(0, np.intp))]
    first = values[0]
    if first.dtype.kind != "f" or not first.size or any(v.shape != first.shape for v in values):
        return whole
    if kind_of(values).axis is not None and kind_of(values).form != "logits":
        return whole
    best, widest = whole, _APART
    square = np.mean([np.square(v.astype(np.float64)) for v in values], axis=0)
    for axis, size in enumerate(first.shape):
        if not 1 < size <= _ENTRIES or (axis == 0 and first.ndim > 1):
            continue
        sizes = np.sqrt(np.moveaxis(square, axis, 0).reshape(size, -1).mean(axis=1))
        order = np.argsort(sizes, kind="stable")
        order = order[sizes[order] > sizes.max() * _NOTHING]
        steps = sizes[order][1:] / sizes[order][:-1] if order.size else np.zeros(0)
        if not steps.size or not np.isfinite(steps).all() or steps.max() <= widest:
            continue
        parts = [Part(axis, np.sort(part)) for part in np.split(order, np.flatnonzero(steps > _APART) + 1)]
        if all(part.of(first).size * len(values) >= _ENOUGH for part in parts):
            best, widest = parts, float(steps.max())
    return best


def _loses(part: Part, wanted: Sequence[Array], got: Sequence[Array]) -> bool:
    want = np.concatenate([part.of(v).reshape(-1) for v in wanted])
    kept = np.unique(np.concatenate([part.of(np.asarray(v)).reshape(-1) for v in got]))
    if want.size < _FEW or not np.isfinite(want).all() or np.ptp(want) <= 1e-3 * np.abs(want).max():
        return False
    return bool(kept.size <= 2 and np.unique(want).size >= _FEW)


class Kind(NamedTuple):
    """What an output is used for. axis: that of classes, of which the best counts; `_EACH` if each score is a decision of
    its own; None for other values. form: how its values become scores: "" (they are scores), "log" or "logits". Logits are
    values too, whose error counts."""

    axis: int | None
    form: str = ""

    def scores(self, value: Array) -> Array:
        """The values as probabilities."""
        if not self.form or self.axis is None:
            return value
        shifted = value.astype(np.float64) - (value.max(self.axis, keepdims=True) if self.form == "logits" else 0.0)
        found: Array = np.exp(shifted)
        return found / found.sum(self.axis, keepdims=True) if self.form == "logits" else found


def kind_of(values: Sequence[Array]) -> Kind:
    """What an output is used for, by its values on some samples."""
    if any(not has_floats(v) or not v.size or not np.isfinite(v).all() for v in values):
        return Kind(None)
    low, high = min(float(v.min()) for v in values), max(float(v.max()) for v in values)
    if low >= 0.0 and high <= 1.0:
        axis = _sums_to_one(values)
        if axis is not None:
            return Kind(axis)
        halfway = np.mean([((v > 0.25) & (v < 0.75)).mean() for v in values])
        return Kind(_EACH if halfway <= _HALFWAY else None)
    if high <= 1e-3:
        axis = _sums_to_one([np.exp(v.astype(np.float64)) for v in values])
        if axis is not None:
            return Kind(axis, "log")
    rank, size = values[0].ndim, values[0].shape[-1] if values[0].ndim else 0
    listed = rank == 2 or (rank == 3 and values[0].shape[1] > 1 and size >= _CLASSES)
    if listed and size > 1 and max(-low, high) <= _LARGEST:
        return Kind(rank - 1, "logits")
    return Kind(None)


def _sums_to_one(values: Sequence[Array]) -> int | None:
    """The axis along which scores of classes sum to 1."""
    for axis in range(values[0].ndim - 1, -1, -1):
        if values[0].shape[axis] > 1 and all(
            np.allclose(v.sum(axis, dtype=np.float64), 1.0, atol=0.02) for v in values
        ):
            return axis
    return None


def _decisions(want: Array, got: Array, axis: int | None) -> tuple[int, int]:
    """The number of decisions that differ, and the number of all decisions. Three things are decisions: a best class,
    an integer, and a score that is above a half in at least one of the two outputs."""
    if want.shape != got.shape:
        return 1, 1
    if not has_floats(want):
        return int((want != got).sum()), want.size
    if axis is None:
        return 0, 0
    if axis == _EACH:
        one, other = want > 0.5, got > 0.5
        return int((one ^ other).sum()), int((one | other).sum())
    best = np.partition(want, -2, axis=axis)
    clear = best.take(-1, axis) - best.take(-2, axis) >= _TIE
    return int((clear & (want.argmax(axis) != got.argmax(axis))).sum()), int(clear.sum())


def _varying(values: Sequence[npt.NDArray[np.float64]]) -> float:
    """The mean square of the differences of an output between samples. (If a coordinate is always near 100, only its
    last digits carry information.) With few samples, or if their shapes differ, it is the mean square of the output
    itself. It is never less than a thousandth of that mean square."""
    whole = float(np.mean([np.square(v).mean() for v in values if v.size] or [0.0]))
    if len(values) < 3 or any(v.shape != values[0].shape for v in values):
        return whole
    stacked = np.stack(values)
    return max(float(np.square(stacked - stacked.mean(axis=0)).mean()) if stacked.size else 0.0, whole / 1000)


def _distance(want: Array, got: Array, power: float) -> float:
    """The squared error over `power`, at most 1."""
    if want.shape != got.shape:
        return 1.0
    error = float(np.square(got.astype(np.float64) - want).mean()) if want.size else 0.0
    return min(1.0, error / power) if power > 0 and np.isfinite(error) else float(error != 0)
