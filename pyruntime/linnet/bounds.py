"""Ranges of input shapes: what a user writes ("1..8,3,?,?"), checked against a model, and the shapes that are planned to find
the memory of a whole range."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from linnet.errors import UsageError

if TYPE_CHECKING:
    from linnet.model import TensorSpec

Dim = int | tuple[int, int] | None
Range = tuple[tuple[int, int], ...]
Shapes = dict[str, tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class MemoryBound:
    """The most that a session takes at any shape inside a range, in bytes.

    regions: per region of linnet_plan_info, the largest over the shapes that were planned: the upper corner, the lower one,
    each open dimension at its least, and seeded ones between. total: the largest total, with `later`: what segments whose
    shapes depend on data add at most. unbounded: why that cannot be said (it names the node), "" when it can; then `total`
    holds for the first segment only. planned, refused: how many shapes were tried, and how many the model does not take
    (a height that is no multiple of 32, say). A session never exceeds the figures: at a shape between that needed more,
    which none of the tests' models has, it would raise ResourceError.
    """

    regions: dict[str, int]
    total: int
    later: int
    unbounded: str
    planned: int
    refused: int

    @property
    def arena(self) -> int:
        """Bytes of one arena that every plan inside the range fits."""
        return self.regions["activations"] + self.regions["scratch"]


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
    if fixed is not None and not low <= fixed <= high:
        raise UsageError(
            f"dimension {i} of input {name!r} is fixed in the model, outside its bound", code=104, tensor=name,
            expected=str(fixed), got=f"{low}..{high}", hint="dimensions that the file declares cannot be changed",
        )  # fmt: skip
    return (low, high) if fixed is None else (fixed, fixed)


def inside(shape: Sequence[int], dims: Range) -> bool:
    """Whether the shape lies in the range."""
    return len(shape) == len(dims) and all(low <= d <= high for d, (low, high) in zip(shape, dims, strict=True))


def samples(ranges: Mapping[str, Range]) -> list[Shapes]:
    """Shapes of a range, the upper corner first. Dimensions with the same range move together, as those of one symbol do."""
    spans = sorted({span for dims in ranges.values() for span in dims if span[0] < span[1]})
    seeded = random.Random(0)
    fractions = [dict.fromkeys(spans, f) for f in (1.0, 0.0, 0.9, 0.75, 0.5, 0.25, 0.1)]
    fractions += [dict.fromkeys(spans, 1.0) | {span: 0.0} for span in spans]
    fractions += [{span: seeded.random() for span in spans} for _ in range(8)]
    shapes: list[Shapes] = []
    for at in fractions:
        one = {
            name: tuple(low + round((high - low) * at.get((low, high), 0.0)) for low, high in dims)
            for name, dims in ranges.items()
        }
        if one not in shapes:
            shapes.append(one)
    return shapes
