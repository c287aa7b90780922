"""Ranges of input shapes: parses what a user writes ("1..8,3,?,?"), checks it against a model, and lists the shapes
that must be planned to find the memory of a whole range."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from linnet.clib.errors import UsageError
from linnet.session.planned import COUNTED as COUNTED
from linnet.session.planned import REGIONS as REGIONS

if TYPE_CHECKING:
    from linnet.session.model import TensorSpec

Dim = int | tuple[int, int] | None
Range = tuple[tuple[int, int], ...]
Shapes = dict[str, tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class MemoryBound:
    """The largest memory in bytes that a session takes for any shape inside a range. A session never exceeds it, and
    never rejects a shape because of it.

    regions: for each region of linnet_plan_info, the maximum over all shapes. "total" is the sum of the regions that
        are held, plus `later`.
    later: the most that segments with data-dependent shapes can add.
    arena: size of one arena that fits every plan; at most the sum of "activations" and "scratch".
    largest: the upper corner (the largest size of every dimension). If the model rejects it, the shape that takes the
        most memory.
    unbounded: why there is no bound (it names the node), or "" if there is one. Without a bound the figures cover only
        the shapes that were planned, with their first segment.
    shapes: how many shapes the range holds.
    every: whether each shape was planned. If not, the bound is the memory of the largest shape planned with reference
        kernels. Any smaller shape fits into the layout of that plan. This slower layout is used only for a shape whose
        usual plan needs more memory.
    planned, refused: how many shapes were tried, and how many the model rejects (for example a height that is not a
        multiple of 32).
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
        """The memory of one plan and of everything that the plan needs: the sum of the regions plus `later`."""
        return self.regions["total"]


def parse(name: str, text: str) -> tuple[Dim, ...]:
    """Parses "1..8,3,?,?". Each item is a number, a range with both ends included, or ? for what the model declares.
    Raises UsageError."""
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
                f"the shape of {name!r} is invalid", code=101, tensor=name, got=text,
                expected="numbers, ranges and ?, such as 1..8,3,?,32..640", hint="a range needs both ends",
            ) from None  # fmt: skip
    return tuple(dims)


def text_of(dims: Sequence[Dim]) -> str:
    """The inverse of parse."""
    return ",".join("?" if d is None else str(d) if isinstance(d, int) else f"{d[0]}..{d[1]}" for d in dims)


def resolve(bounds: Mapping[str, Sequence[Dim] | str], specs: Iterable[TensorSpec]) -> dict[str, Range]:
    """A range for each dimension of each input. Raises UsageError if neither the model nor the bounds give a range, or
    if they contradict each other."""
    declared = {spec.name: spec.shape for spec in specs}
    parsed = {name: parse(name, given) if isinstance(given, str) else given for name, given in bounds.items()}
    for name in parsed:
        if name not in declared:
            raise UsageError(
                f"bounds are given for {name!r}, but the model has no such input", code=102, tensor=name,
                expected=" or ".join(declared) or "a model with inputs",
            )  # fmt: skip
    ranges: dict[str, Range] = {}
    for name, shape in declared.items():
        given = parsed.get(name)
        rank = len(shape) if shape is not None else None if given is None else len(given)
        if rank is None or (given is not None and len(given) != rank):
            raise UsageError(
                f"the bounds of input {name!r} have the wrong number of dimensions", code=104, tensor=name,
                expected="a bound for every dimension" if shape is None else f"{len(shape)} dimensions",
                got="nothing" if given is None else text_of(given), hint=f"for example {name}=1..8,3,...",
            )  # fmt: skip
        known: Sequence[int | None] = shape if shape is not None else [None] * len(given or ())
        ranges[name] = tuple(
            _range(name, i, fixed, None if given is None else given[i]) for i, fixed in enumerate(known)
        )
    return ranges


def _range(name: str, i: int, fixed: int | None, given: Dim) -> tuple[int, int]:
    if given is None and fixed is None:
        raise UsageError(
            f"dimension {i} of input {name!r} is open in the model and has no bound",
            code=304,
            tensor=name,
            expected="a number or a range, such as 1..8",
            got="?",
            hint=f"give the bounds of every open dimension: bounds={{{name!r}: ((1, 8), ...)}}",
        )
    low, high = (fixed, fixed) if given is None else (given, given) if isinstance(given, int) else given
    if low is None or high is None or not 0 <= low <= high:
        raise UsageError(
            f"the bound of dimension {i} of input {name!r} is not a valid range",
            code=101,
            tensor=name,
            got=f"{low}..{high}",
            expected="0 <= low <= high",
        )
    if fixed is not None and (low, high) != (fixed, fixed):
        raise UsageError(
            f"dimension {i} of input {name!r} is fixed in the model",
            code=104,
            tensor=name,
            expected=f"{fixed} or ?",
            got=f"{low}..{high}" if low < high else str(low),
            hint="convert the model again with this dimension left open",
        )
    return low, high


def inside(shape: Sequence[int], dims: Range) -> bool:
    """Whether the shape is inside the range."""
    return len(shape) == len(dims) and all(low <= d <= high for d, (low, high) in zip(shape, dims, strict=True))


class Space:
    """All shapes within some ranges. Dimensions with the same name and the same range have one common size in every
    shape. If the ranges of a name differ, its dimensions vary independently (`loose`), because some exporters reuse
    names."""

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
        self.keys = keys  # per input and dimension; equal keys mean equal sizes
        self.spans = {key: span for name, dims in ranges.items() for key, span in zip(keys[name], dims, strict=True)}

    @property
    def count(self) -> int:
        return math.prod(high - low + 1 for low, high in self.spans.values())

    def _shape(self, sizes: Mapping[str, int]) -> Shapes:
        return {name: tuple(sizes[key] for key in keys) for name, keys in self.keys.items()}

    @property
    def corner(self) -> Shapes:
        """The largest shape."""
        return self._shape({key: high for key, (_, high) in self.spans.items()})

    def shapes(self) -> Iterator[Shapes]:
        """All shapes."""
        for sizes in itertools.product(*(range(low, high + 1) for low, high in self.spans.values())):
            yield self._shape(dict(zip(self.spans, sizes, strict=True)))

    def samples(self) -> list[Shapes]:
        """A selection of shapes, the upper corner first. Dimensions with the same range get the same sizes, as
        dimensions with the same name do."""
        spans = sorted({span for span in self.spans.values() if span[0] < span[1]})
        import random

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
        """Raises UsageError if dimensions that must have one common size differ."""
        seen: dict[str, tuple[str, int, int]] = {}
        for name, shape in shapes.items():
            for axis, (key, size) in enumerate(zip(self.keys.get(name, ()), shape, strict=False)):
                other, place, first = seen.setdefault(key, (name, axis, size))
                if first != size:
                    raise UsageError(
                        f"dimension {key!r} has two different sizes, which the session's bounds do not allow",
                        code=104,
                        tensor=name,
                        expected=f"{first}, the size of axis {place} of input {other!r}",
                        got=f"{size} at axis {axis} of input {name!r}",
                        hint="if these dimensions vary independently, give them different bounds",
                    )
