"""Ranges of input shapes: what a user writes ("1..8,3,?,?"), checked against a model, and the shapes that are planned to find
the memory of a whole range."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from linnet.errors import UsageError

if TYPE_CHECKING:
    from linnet.model import TensorSpec

Dim = int | tuple[int, int] | None
Range = tuple[tuple[int, int], ...]
Shapes = dict[str, tuple[int, ...]]


REGIONS = (
    "activations", "scratch", "packed_weights", "constants", "variables", "io", "snapshot", "committed", "bookkeeping", "total",
    "mapped", "lower_bound", "naive", "gradients",
)  # fmt: skip
COUNTED = REGIONS[:9]  # whose sum is the total


@dataclasses.dataclass(frozen=True)
class MemoryBound:
    """The most that a session takes at any shape inside a range, in bytes: never exceeded, and no shape refused for it.

    regions: per region of linnet_plan_info, the most of any shape; "total" is the sum of those that are held, and of
    `later`, what segments whose shapes depend on data add at most. arena: bytes of one arena that every plan fits, at most
    the sum of "activations" and "scratch". largest: the upper corner, or where the model does not take that, the shape that
    takes the most. unbounded: why there is no bound (it names the node), "" when there is one; otherwise the figures are
    those of the shapes that were planned, with the first segment only. shapes: how many the range holds. every: whether each
    was planned; if not, the bound is one by construction: it has room for the plan of the largest shape with reference
    kernels, in whose places that of any smaller one fits (it is made where the usual one needs more, and is slower).
    planned, refused: how many shapes were tried, and how many the model does not take (a height that is no multiple of 32).
    """

    regions: dict[str, int]
    arena: int
    later: int
    largest: Shapes
    unbounded: str
    planned: int
    refused: int
    shapes: int
    every: bool

    @property
    def total(self) -> int:
        """What one plan at a time takes with everything it needs: the sum of the regions, and of `later`."""
        return self.regions["total"]


def parse(name: str, text: str) -> tuple[Dim, ...]:
    """ "1..8,3,?,?": a number, a range with both ends inside, or ? for what the model declares. Raises UsageError."""
    dims: list[Dim] = []
    for part in text.split(","):
        low, dots, high = part.strip().partition("..")
        try:
            if dots:
                dims.append((int(low), int(high)))
            else:
                dims.append(None if low == "?" else int(low))
        except ValueError:
            raise UsageError(
                f"the shape of {name!r} is not one", code=101, tensor=name, got=text,
                expected="numbers, ranges and ?, such as 1..8,3,?,32..640", hint="a range needs both of its ends",
            ) from None  # fmt: skip
    return tuple(dims)


def text_of(dims: Sequence[Dim]) -> str:
    """The reverse of parse."""
    return ",".join("?" if d is None else str(d) if isinstance(d, int) else f"{d[0]}..{d[1]}" for d in dims)


def resolve(bounds: Mapping[str, Sequence[Dim] | str], specs: Iterable[TensorSpec]) -> dict[str, Range]:
    """A range for every dimension of every input. Raises UsageError where neither the model nor the bounds give one, or
    where they contradict each other."""
    declared = {spec.name: spec.shape for spec in specs}
    parsed = {name: parse(name, given) if isinstance(given, str) else given for name, given in bounds.items()}
    for name in parsed:
        if name not in declared:
            raise UsageError(
                f"bounds are given for {name!r}, which is no input", code=102, tensor=name,
                expected=" or ".join(declared) or "no input",
            )  # fmt: skip
    ranges: dict[str, Range] = {}
    for name, shape in declared.items():
        given = parsed.get(name)
        rank = len(shape) if shape is not None else None if given is None else len(given)
        if rank is None or (given is not None and len(given) != rank):
            raise UsageError(
                f"the bounds of input {name!r} have another rank", code=104, tensor=name,
                expected="a bound for every dimension" if shape is None else f"{len(shape)} dimensions",
                got="nothing" if given is None else text_of(given), hint=f"give {name}=1..8,3,...",
            )  # fmt: skip
        known: Sequence[int | None] = shape if shape is not None else [None] * len(given or ())
        ranges[name] = tuple(
            _range(name, i, fixed, None if given is None else given[i]) for i, fixed in enumerate(known)
        )
    return ranges


def _range(name: str, i: int, fixed: int | None, given: Dim) -> tuple[int, int]:
    if given is None and fixed is None:
        raise UsageError(
            f"dimension {i} of input {name!r} is open in the model and has no bound", code=304, tensor=name,
            expected="a number or a range, such as 1..8", got="?",
            hint=f"give the bounds of every open dimension: --input {name}=1..8,... or bounds={{{name!r}: ((1, 8), ...)}}",
        )  # fmt: skip
    low, high = (fixed, fixed) if given is None else (given, given) if isinstance(given, int) else given
    if low is None or high is None or not 0 <= low <= high:
        raise UsageError(
            f"the bound of dimension {i} of input {name!r} is no range", code=101, tensor=name, got=f"{low}..{high}",
            expected="0 <= least <= most",
        )  # fmt: skip
    if fixed is not None and (low, high) != (fixed, fixed):
        raise UsageError(
            f"dimension {i} of input {name!r} is fixed in the model", code=104, tensor=name, expected=f"{fixed} or ?",
            got=f"{low}..{high}" if low < high else str(low), hint="convert the model again with this dimension open",
        )  # fmt: skip
    return low, high


def inside(shape: Sequence[int], dims: Range) -> bool:
    """Whether the shape lies in the range."""
    return len(shape) == len(dims) and all(low <= d <= high for d, (low, high) in zip(shape, dims, strict=True))


class Space:
    """The shapes of ranges. Dimensions that have one name and one range are one size in every shape; where the ranges of a
    name differ, its dimensions stand for sizes of their own (`loose`), as some exporters' do."""

    def __init__(self, ranges: Mapping[str, Range], names: Mapping[str, Sequence[str]]) -> None:
        self.ranges = dict(ranges)
        spans: dict[str, set[tuple[int, int]]] = {}
        named = {name: (*names.get(name, ()), *[""] * len(dims))[: len(dims)] for name, dims in ranges.items()}
        for name, dims in ranges.items():
            for word, span in zip(named[name], dims, strict=True):
                if word:
                    spans.setdefault(word, set()).add(span)
        self.loose = {word for word, found in spans.items() if len(found) > 1}
        keys = {
            name: tuple(word if word and word not in self.loose else f" {name} {i}" for i, word in enumerate(words))
            for name, words in named.items()
        }
        self.keys = keys  # per input and dimension: equal keys, equal sizes
        self.spans = {key: span for name, dims in ranges.items() for key, span in zip(keys[name], dims, strict=True)}

    @property
    def count(self) -> int:
        return math.prod(high - low + 1 for low, high in self.spans.values())

    def _shape(self, sizes: Mapping[str, int]) -> Shapes:
        return {name: tuple(sizes[key] for key in keys) for name, keys in self.keys.items()}

    @property
    def corner(self) -> Shapes:
        """The largest."""
        return self._shape({key: high for key, (_, high) in self.spans.items()})

    def shapes(self) -> Iterator[Shapes]:
        """All of them."""
        for sizes in itertools.product(*(range(low, high + 1) for low, high in self.spans.values())):
            yield self._shape(dict(zip(self.spans, sizes, strict=True)))

    def samples(self) -> list[Shapes]:
        """Some of them, the upper corner first. Dimensions with the same range move together, as those of one symbol do."""
        spans = sorted({span for span in self.spans.values() if span[0] < span[1]})
        seeded = random.Random(0)
        fractions = [dict.fromkeys(spans, f) for f in (1.0, 0.0, 0.9, 0.75, 0.5, 0.25, 0.1)]
        fractions += [dict.fromkeys(spans, 1.0) | {span: 0.0} for span in spans]
        fractions += [{span: seeded.random() for span in spans} for _ in range(8)]
        found: list[Shapes] = []
        for at in fractions:
            sizes = {
                key: low + round((high - low) * at.get((low, high), 0.0)) for key, (low, high) in self.spans.items()
            }
            if self._shape(sizes) not in found:
                found.append(self._shape(sizes))
        return found

    def check(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Raises UsageError when dimensions that are one size have several."""
        seen: dict[str, tuple[str, int, int]] = {}
        for name, shape in shapes.items():
            for axis, (key, size) in enumerate(zip(self.keys.get(name, ()), shape, strict=False)):
                other, place, first = seen.setdefault(key, (name, axis, size))
                if first != size:
                    raise UsageError(
                        f"dimension {key!r} has two sizes, which is outside the session's bounds", code=104, tensor=name,
                        expected=f"{first}, as axis {place} of input {other!r}", got=f"{size} as axis {axis} of input {name!r}",
                        hint="give the dimensions of one name different bounds where they are sizes of their own",
                    )  # fmt: skip
