"""Sources of examples. A source is any object with a length that returns a batch for a list of indices and has a digest
of the data (`SourceLike`). `Source` adds subsets and splits. Arrays in memory are one kind."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import UsageError
from linnet.data.shuffle import permutation

Array = npt.NDArray[Any]
Batch = dict[str, Array]


@runtime_checkable
class SourceLike(Protocol):
    """What an object needs to be a source. Its class need not be a subclass of Source. The methods are those of Source."""

    def __len__(self) -> int: ...
    def take(self, indices: npt.NDArray[np.int64], /) -> Mapping[str, npt.ArrayLike]: ...
    def digest(self) -> str: ...


class Source:
    """Examples by index. A subclass defines `__len__`, `take` and `digest`. The loader calls `take` in the loader's own
    thread."""

    def __len__(self) -> int:
        raise NotImplementedError

    def take(self, indices: npt.NDArray[np.int64]) -> Batch:
        """The examples with these indices, stacked: input name -> array [len(indices), ...]."""
        raise NotImplementedError

    def digest(self) -> str:
        """Hexadecimal digits that identify the data, for the manifest of a run."""
        raise NotImplementedError

    def subset(self, indices: Sequence[int] | npt.NDArray[Any]) -> Source:
        """A source with only these examples, in this order."""
        return _Subset(self, np.asarray(indices, np.int64))

    def split(self, share: float, seed: int = 0) -> tuple[Source, Source]:
        """Splits randomly into two sources without common examples. The first has the fraction 1 - share of the
        examples, the second the rest."""
        if not 0.0 < share < 1.0:
            raise UsageError(
                "the share is out of range", code=101, expected="a number above 0 and below 1", got=repr(share)
            )
        order = permutation(len(self), seed)
        count = round(len(self) * share)
        return self.subset(np.sort(order[count:])), self.subset(np.sort(order[:count]))

    def loaded(self) -> Arrays:
        """The same examples as arrays in memory. They are read once."""
        return Arrays(self.take(np.arange(len(self))))


def as_source(given: SourceLike) -> Source:
    """The object as a Source, whose other methods then work too."""
    return given if isinstance(given, Source) else _Adapted(given)


class _Adapted(Source):
    """An object of the user's with the methods of a source."""

    def __init__(self, given: SourceLike) -> None:
        self._given = given

    def __len__(self) -> int:
        return len(self._given)

    def take(self, indices: npt.NDArray[np.int64]) -> Batch:
        batch = self._given.take(indices)
        if not isinstance(batch, Mapping):
            raise UsageError(
                "a batch must be a mapping", code=101, tensor=f"{type(self._given).__name__}.take",
                expected="{input name: array}", got=type(batch).__name__,
            )  # fmt: skip
        return {name: np.asarray(value) for name, value in batch.items()}

    def digest(self) -> str:
        digest = self._given.digest()
        if not isinstance(digest, str):
            raise UsageError(
                "the digest of a source must be text", code=101, tensor=f"{type(self._given).__name__}.digest",
                expected="hexadecimal digits that identify the data", got=repr(digest),
            )  # fmt: skip
        return digest


class _Subset(Source):
    def __init__(self, source: Source, indices: npt.NDArray[np.int64]) -> None:
        if indices.size and not -len(source) <= indices.min() <= indices.max() < len(source):
            raise UsageError(
                "the subset has examples that do not exist", code=101, expected=f"indices below {len(source)}",
                got=f"{indices.min()} to {indices.max()}",
            )  # fmt: skip
        self._source, self._indices = source, indices

    def __len__(self) -> int:
        return len(self._indices)

    def take(self, indices: npt.NDArray[np.int64]) -> Batch:
        return self._source.take(self._indices[indices])

    def digest(self) -> str:
        return hashlib.sha256(self._source.digest().encode() + self._indices.tobytes()).hexdigest()


class Arrays(Source):
    """Arrays by input name. All have one row per example.

    prepare: a function that converts a stored batch to the batch that the model takes, for example u8 pixels to f32. So
    only the smaller form is kept in memory. classes: names of the labels, if any. Raises UsageError if there are no
    arrays or their lengths differ.
    """

    def __init__(
        self,
        arrays: Mapping[str, npt.ArrayLike],
        prepare: Callable[[Batch], Batch] | None = None,
        classes: Sequence[str] = (),
    ) -> None:
        self.arrays: dict[str, Array] = {name: np.asarray(value) for name, value in arrays.items()}
        self.prepare, self.classes = prepare, list(classes)
        for name, value in self.arrays.items():
            if value.ndim == 0 or value.dtype == object:
                raise UsageError(
                    "the data must be an array of examples", code=104, tensor=name, expected="[examples, ...]",
                    got="a single value" if value.ndim == 0 else "an array of objects",
                )  # fmt: skip
        lengths = {name: len(value) for name, value in self.arrays.items()}
        if len(set(lengths.values())) > 1:
            raise UsageError(
                "the arrays have different numbers of examples", code=104, expected="the same number in each",
                got=", ".join(f"{count} in '{name}'" for name, count in lengths.items()),
            )  # fmt: skip
        if not lengths:
            raise UsageError("there are no arrays of examples", code=105, hint="pass {'input name': array}")
        self._length = next(iter(lengths.values()))

    def __len__(self) -> int:
        return self._length

    def take(self, indices: npt.NDArray[np.int64]) -> Batch:
        batch = {name: value[indices] for name, value in self.arrays.items()}
        return batch if self.prepare is None else self.prepare(batch)

    def digest(self) -> str:
        made = hashlib.sha256()
        for name, value in self.arrays.items():
            made.update(f"{name} {value.dtype} {value.shape}\n".encode())
            made.update(np.ascontiguousarray(value).data if value.size else b"")
        return made.hexdigest()
