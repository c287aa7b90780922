"""Observers record what calibration sees of a float graph: tensors' extremes and histograms, products' moments. To
bound memory, graphs with many tensors run several times, and an iterator's samples are kept in files."""

from __future__ import annotations

import dataclasses
import math
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import UsageError
from linnet.facade import Graph
from linnet.ir import traits
from linnet.ir.dtypes import for_npy, has_floats
from linnet.ir.function import Function, Node, Tensor, functions_of
from linnet.quantization.calibrate import Feeds
from linnet.quantization.equalize import pairs_of
from linnet.quantization.rounding import Rounding
from linnet.quantization.rows import Rows, read_by

HALF = 2048  # bins of a histogram on each side of zero
_SAMPLED = 1 << 16  # elements of an array that enter histogram and moments
_FETCHED = 192 << 20  # bytes of tensors that one pass over the data fetches
_UNKNOWN = 1 << 20  # bytes that a tensor of open shape counts as
_ITERATIONS = 64  # of a loop that are observed
_MOMENTUM = 0.9  # of the moving average of extremes


@dataclasses.dataclass
class Seen:
    """What was seen of one tensor over all batches. The histogram has bins of equal width around zero; to cover larger
    values, pairs of bins are merged."""

    batches: int = 0
    low: float = math.inf
    high: float = -math.inf
    mean_low: float = 0.0  # mean of the batches' extremes
    mean_high: float = 0.0
    moving_low: float = 0.0
    moving_high: float = 0.0
    sampled: int = 0
    total: float = 0.0
    square: float = 0.0
    tiny: int = 0  # values other than zero that are below the smallest normal f16
    width: float = 0.0  # of a bin; 0 until something other than zero was seen
    counts: npt.NDArray[np.int64] = dataclasses.field(default_factory=lambda: np.zeros(2 * HALF, np.int64))

    def include(self, array: npt.NDArray[Any]) -> None:
        """Takes the finite values of one batch."""
        low, high = float(array.min()), float(array.max())
        keep = _MOMENTUM if self.batches else 0.0
        self.moving_low = keep * self.moving_low + (1 - keep) * low
        self.moving_high = keep * self.moving_high + (1 - keep) * high
        self.batches += 1
        self.mean_low += (low - self.mean_low) / self.batches
        self.mean_high += (high - self.mean_high) / self.batches
        self.low, self.high = min(self.low, low), max(self.high, high)
        flat = np.asarray(array).reshape(-1)
        step = -(-flat.size // _SAMPLED) | 1  # an odd distance does not stay in step with channels
        values = flat[self.batches % min(step, flat.size) :: step].astype(np.float32)
        self.sampled += values.size
        self.total += float(values.sum(dtype=np.float64))
        self.square += float(np.dot(values, values))
        self.tiny += int(((np.abs(values) < 2.0**-14) & (values != 0)).sum())
        peak = max(-self.low, self.high)
        if not self.width:
            if peak < 1e-30:
                return
            self.width = peak * 1.0625 / HALF
        while peak >= self.width * HALF:
            pairs = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts[:] = 0
            self.counts[HALF // 2 : HALF // 2 + HALF] = pairs
            self.width *= 2
        bins = np.floor(values * np.float32(1 / self.width)).astype(np.int64) + HALF
        self.counts += np.bincount(np.clip(bins, 0, 2 * HALF - 1), minlength=2 * HALF)

    def join(self, other: Seen) -> None:
        """Merges another tensor's record into this one. The two tensors share one range."""
        if not other.batches:
            return
        mine = self.batches
        for name, pick in (("low", min), ("high", max)):
            for kind in ("", "mean_", "moving_"):
                value = getattr(other, kind + name)
                setattr(self, kind + name, pick(getattr(self, kind + name), value) if mine else value)
        self.batches = max(self.batches, other.batches)
        self.sampled, self.total = self.sampled + other.sampled, self.total + other.total
        self.square, self.tiny = self.square + other.square, self.tiny + other.tiny
        if not other.width:
            return
        wide = max(self.width, other.width, max(-self.low, self.high) * 1.0625 / HALF)
        counts = np.zeros(2 * HALF, np.int64)
        for seen in (self, other):
            if seen.width:
                centres = (np.arange(-HALF, HALF) + 0.5) * seen.width
                bins = np.clip(np.floor(centres / wide).astype(np.int64) + HALF, 0, 2 * HALF - 1)
                np.add.at(counts, bins, seen.counts)
        self.width, self.counts = wide, counts

    @property
    def vanishing(self) -> float:
        """The share of non-zero values that are smaller than the smallest normal f16."""
        return self.tiny / max(self.sampled, 1)

    @property
    def power(self) -> float:
        """The mean of the squares."""
        return self.square / max(self.sampled, 1)


class Batches:
    """Samples that can be iterated again. An iterator's samples are written to files in a temporary folder during the
    first iteration. The first iteration also checks the samples: it raises UsageError for NaN, infinity, only zeros, or
    no sample at all, and warns of constant data."""

    def __init__(self, source: Iterable[Feeds], inputs: Sequence[str], progress: bool = False) -> None:
        self.source, self.inputs, self.progress = source, list(inputs), progress
        self.count: int | None = None
        self.folder: tempfile.TemporaryDirectory[str] | None = None
        self.once = isinstance(source, Iterator)

    def known(self) -> int:
        """The number of samples. If it is not known yet, all of them are read once."""
        if self.count is None:
            for _ in self:
                pass
        assert self.count is not None
        return self.count

    def parted(self, every: int) -> tuple[Batches, Batches]:
        """Two parts of the samples: without each number `every`, and these alone."""
        return _Part(self, every, False), _Part(self, every, True)

    def __iter__(self) -> Iterator[Feeds]:
        if self.count is not None and self.folder is not None:
            return self._spooled(self.count)
        if self.count is not None:
            return iter(self.source)
        return self._first()

    def _spooled(self, count: int) -> Iterator[Feeds]:
        assert self.folder is not None
        for number in range(count):
            with np.load(Path(self.folder.name, f"{number}.npz"), allow_pickle=False) as found:
                yield {name: found[name] for name in found.files}

    def _first(self) -> Iterator[Feeds]:
        if self.once and self.folder is None:
            self.folder = tempfile.TemporaryDirectory(prefix="linnet-calibration-")
        constant: dict[str, float | None] = {}
        count = 0
        for count, feeds in enumerate(_with_progress(self.source, self.progress), start=1):
            if not isinstance(feeds, Mapping):
                raise UsageError(
                    what=f"calibration batch {count - 1} is not a mapping from names to arrays",
                    got=type(feeds).__name__, expected="a dictionary of inputs",
                    hint="give a list of dictionaries: quantize(graph, [{'x': array}, ...])",
                )  # fmt: skip
            arrays = {name: np.asarray(array) for name, array in feeds.items()}
            for name, array in arrays.items():
                _check_finite(name, array, count - 1)
                _follow_constant(constant, name, array)
            if self.folder is not None:
                kept: dict[str, Any] = {name: for_npy(array) for name, array in arrays.items()}
                np.savez(Path(self.folder.name, f"{count - 1}.npz"), **kept)
            yield arrays
        if count == 0:
            raise UsageError(
                what="no calibration batch is given", expected="at least one dictionary of inputs", got="none",
                hint="give a few typical inputs: quantize(graph, [{'x': array}, ...])",
            )  # fmt: skip
        _refuse_constant(constant, count)
        self.count = count


class _Part(Batches):
    """Some samples of another Batches, which has checked them."""

    def __init__(self, whole: Batches, every: int, held: bool) -> None:
        self.whole, self.every, self.held, self.inputs = whole, every, held, whole.inputs
        total = whole.known()
        self.count = total // every if held else total - total // every

    def __iter__(self) -> Iterator[Feeds]:
        return (feeds for i, feeds in enumerate(self.whole, start=1) if (i % self.every == 0) == self.held)


def _check_finite(name: str, array: npt.NDArray[Any], batch: int) -> None:
    if has_floats(array) and not np.isfinite(array).all():
        raise UsageError(
            what=f"calibration batch {batch} contains NaN or infinity", tensor=name, expected="finite numbers",
            got=f"{int((~np.isfinite(array)).sum())} of {array.size} values not finite",
            hint="clean the data; a single NaN would make every scale NaN",
        )  # fmt: skip


def _follow_constant(constant: dict[str, float | None], name: str, array: npt.NDArray[Any]) -> None:
    """Remembers the value of an input as long as it is the same in all batches. After a different value, remembers
    None."""
    if array.size and (array.dtype.kind in "iub" or has_floats(array)) and constant.get(name, 0.0) is not None:
        first = float(array.flat[0])
        same = bool((array == array.flat[0]).all()) and constant.get(name, first) == first
        constant[name] = first if same else None


def _refuse_constant(constant: dict[str, float | None], count: int) -> None:
    """Raises UsageError if all inputs are always zero, and warns if no input ever changes. A single input that never
    changes, such as a mask, is normal."""
    values = list(constant.values())
    if not values or any(value is None for value in values):
        return
    if all(value == 0 for value in values):
        raise UsageError(
            what="the calibration data is all zero", expected="typical inputs", got=f"zeros in each of {count} batches",
            hint="check how the data is read; scales from zeros would round typical inputs to a few values",
        )  # fmt: skip
    shown = ", ".join(f"{name!r} is always {value:g}" for name, value in constant.items())
    warnings.warn(
        f"the calibration data is constant: {shown}. Ranges from one value do not fit typical inputs.", stacklevel=2
    )


def _with_progress(batches: Iterable[Feeds], progress: bool) -> Iterable[Feeds]:
    if not progress:
        return batches
    from rich.console import Console
    from rich.progress import track

    total = len(batches) if isinstance(batches, Sized) else None
    return track(batches, "calibrating", total=total, console=Console(stderr=True), transient=True)


class Observation:
    """What was seen of the wanted tensors (`seen`) and of what the wanted products read (`rows`), in all functions."""

    def __init__(
        self,
        graph: Graph,
        tensors: Iterable[Tensor],
        products: Iterable[Node] = (),
        threads: int | None = None,
        floats: Iterable[Tensor] = (),
    ) -> None:
        """floats: tensors that may become infinite or NaN, because they can be stored as f32."""
        self.graph, self.threads = graph, threads
        self.seen = {tensor: Seen() for tensor in tensors}
        self.floats = set(floats)
        self.infinite: set[Tensor] = set()  # tensors that became infinite or NaN
        self.rows = {node: Rows(node) for node in products}
        self.wanted: dict[Function, list[Tensor]] = {}
        read = {node: tensor for node in self.rows if (tensor := read_by(node)) is not None}
        for tensor in dict.fromkeys([*self.seen, *read.values()]):
            self.wanted.setdefault(tensor.function, []).append(tensor)
        self.readers: dict[Tensor, list[Rows]] = {}
        for node, rows in self.rows.items():
            if node in read:
                self.readers.setdefault(read[node], []).append(rows)
        self.rounding = Rounding(self.rows)
        self.pairs = pairs_of(graph, self.seen) if self.rows else []
        self.peaks: dict[Tensor, npt.NDArray[np.float64]] = {}  # the largest value of each channel between two products
        self.axes = {pair.between: pair.axis for pair in self.pairs}
        self.runners: dict[tuple[Function, int], _Runner] = {}
        self.leads: dict[Function, bool] = {}

    def run(self, batches: Batches) -> None:
        """Runs the signature `infer` on each batch. Raises UsageError as `Batches` does, and also if a tensor becomes
        NaN or infinite, unless this is allowed for the tensor."""
        main = self.graph.signatures["infer"].function
        names = self.graph.signatures["infer"].inputs
        groups = _groups(self.wanted.get(main, []))
        for number, group in enumerate(groups):
            for index, feeds in enumerate(batches):
                given = [np.asarray(feeds[name]) if name in feeds else None for name in names]
                self._step(main, number, group, feeds, given, index)
            self.runners.pop((main, number), None)
        for rows in self.rows.values():
            rows.settle()

    def _step(
        self,
        function: Function,
        number: int,
        group: Sequence[Tensor],
        feeds: Feeds,
        given: Sequence[npt.NDArray[Any] | None],
        index: int,
    ) -> list[npt.NDArray[Any]]:
        """Runs one function once, observes a group of its tensors, and in the first group follows its control flow.
        Returns the outputs of a function other than the main one."""
        first = number == 0
        control = [n for n in function.nodes if n.op in traits.CONTROL and self._leads(n)] if first else []
        key = (function, number)
        if key not in self.runners:
            body = [] if function is self.graph.signatures["infer"].function else function.outputs
            more = [t for n in control for t in n.inputs if t is not None]
            self.runners[key] = _Runner(self.graph, function, [*group, *more, *body], self.threads)
        runner = self.runners[key]
        values = runner.run(feeds, given)
        for tensor in group:
            array = values.get(tensor)
            if array is not None and array.size:
                self._include(tensor, array, index)
        for node in control:
            self._follow(node, values, index)
        return [values[t] for t in function.outputs] if runner.body else []

    def _include(self, tensor: Tensor, array: npt.NDArray[Any], batch: int) -> None:
        if tensor in self.infinite:
            return
        if not np.isfinite(array).all():
            if tensor in self.floats and tensor not in self.readers:
                self.infinite.add(tensor)
                return
            raise UsageError(
                what=f"a tensor becomes infinite or NaN on calibration batch {batch}", tensor=tensor.name,
                expected="finite values", got=f"{int((~np.isfinite(array)).sum())} of {array.size} values not finite",
                hint="first look for a division by zero or an overflow in the float model",
            )  # fmt: skip
        if tensor in self.seen:
            self.seen[tensor].include(array)
        if tensor in self.axes and array.ndim > 1:
            peak = np.abs(np.moveaxis(array, self.axes[tensor], 0).reshape(array.shape[self.axes[tensor]], -1)).max(
                axis=1
            )
            self.peaks[tensor] = np.maximum(self.peaks.get(tensor, np.zeros(len(peak))), peak)
        for rows in self.readers.get(tensor, ()):
            rows.include(array)

    def _leads(self, node: Node) -> bool:
        """Whether there is something to observe in a function that the node calls."""
        holder = Function(node.outputs[0].function.graph, "")
        holder.nodes = [node]
        return any(self._has(function) for function in functions_of(holder))

    def _has(self, function: Function) -> bool:
        if function not in self.leads:
            self.leads[function] = bool(self.wanted.get(function)) or any(map(self._has, functions_of(function)))
        return self.leads[function]

    def _follow(self, node: Node, values: Mapping[Tensor, npt.NDArray[Any]], index: int) -> None:
        """Runs the functions of a control-flow node as the node would run them, to observe the tensors inside."""
        given = [None if t is None else values[t] for t in node.inputs]

        def call(function: Function, operands: Sequence[npt.NDArray[Any] | None]) -> list[npt.NDArray[Any]]:
            given = [_shaped(t, a) for t, a in zip(function.inputs, operands, strict=True)]
            feeds = {t.name: a for t, a in zip(function.inputs, given, strict=True) if a is not None}
            return self._step(function, 0, self.wanted.get(function, []), feeds, given, index)

        functions = {name: node.attributes[name] for name in traits.functions(node.op)}
        if "body_function" not in functions:
            if len(functions) == 1:
                call(next(iter(functions.values())), given)
            else:
                taken = functions["then_function" if bool(np.asarray(given[0]).reshape(-1)[0]) else "else_function"]
                call(taken, given[1:])
            return
        body, count = functions["body_function"], int(node.attribute("carried"))
        trips = _ITERATIONS if given[0] is None else min(_ITERATIONS, int(given[0].reshape(-1)[0]))
        condition = np.array(True) if given[1] is None else given[1]
        carried, captured = list(given[2 : 2 + count]), list(given[2 + count :])
        for iteration in range(trips):
            if not bool(condition.reshape(-1)[0]):
                return
            made = call(body, [np.array(iteration, np.int64), condition, *carried, *captured])
            condition, carried = made[0], list(made[1 : 1 + count])


class _Runner:
    """A session of one function that fetches some of its tensors."""

    def __init__(self, graph: Graph, function: Function, fetched: Iterable[Tensor], threads: int | None) -> None:
        from linnet.session.session import Session

        signature = graph.signatures["infer"]
        self.body = function is not signature.function
        self.inputs = function.inputs
        self.fetched = [
            t for t in dict.fromkeys(fetched) if t.data is None and t.variable is None and t.node is not None
        ]
        self.known = [t for t in dict.fromkeys(fetched) if t.data is not None or t.variable is not None]
        source = graph
        if self.body:
            source = graph.copy()
            own = dict(zip(graph.functions, source.functions, strict=True))[function]
            source.signatures.clear()
            source.signature("infer", own, [t.name for t in own.inputs], [f"{t.name}" for t in own.outputs])
        self.session = Session(source, threads=threads)

    def run(self, feeds: Feeds, given: Sequence[npt.NDArray[Any] | None]) -> dict[Tensor, npt.NDArray[Any]]:
        found = self.session.run(feeds, fetches=[t.name for t in self.fetched]) if self.fetched else {}
        values: dict[Tensor, npt.NDArray[Any]] = {t: np.asarray(found[t.name]) for t in self.fetched}
        values.update({t: np.asarray(a) for t, a in zip(self.inputs, given, strict=True) if a is not None})
        for tensor in self.known:
            values[tensor] = np.asarray(tensor.data if tensor.data is not None else tensor.variable.value)  # type: ignore[union-attr]
        return values


def _shaped(tensor: Tensor, array: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
    """Gives an array of a single element the shape that the input declares, because a condition may be a vector with
    one element."""
    if (
        array is not None
        and array.size == 1
        and tensor.static_shape is not None
        and math.prod(tensor.static_shape) == 1
    ):
        return array.reshape(tensor.static_shape)
    return array


def _groups(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """The tensors in groups, each of which needs bounded memory. There is at least one group."""
    groups: list[list[Tensor]] = [[]]
    held = 0
    for tensor in tensors:
        shape = tensor.static_shape
        size = _UNKNOWN if shape is None else 4 * math.prod(shape)
        if groups[-1] and held + size > _FETCHED:
            groups.append([])
            held = 0
        groups[-1].append(tensor)
        held += size
    return groups
