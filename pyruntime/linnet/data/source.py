"""What examples come from: anything with a length that gives a batch for a list of numbers. Arrays in memory are one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.errors import UsageError
from linnet.shuffle import permutation

Array = npt.NDArray[Any]
Batch = dict[str, Array]


class Source:
    """Examples by number. A subclass gives __len__, take and digest; take is called from the loader's thread."""

    def __len__(self) -> int:
        raise NotImplementedError

    def take(self, indices: npt.NDArray[np.int64]) -> Batch:
        """The examples of these numbers, stacked: input name -> array [len(indices), ...]."""
        raise NotImplementedError

    def digest(self) -> str:
        """Hexadecimal digits that tell this data from other data, for the manifest of a run."""
        raise NotImplementedError

    def subset(self, indices: Sequence[int] | npt.NDArray[Any]) -> Source:
        """Some of the examples, in this order."""
        return _Subset(self, np.asarray(indices, np.int64))

    def split(self, share: float, seed: int = 0) -> tuple[Source, Source]:
        """Two sources that share no example, drawn at random: the first has 1 - share of them, the second the rest."""
        if not 0.0 < share < 1.0:
            raise UsageError("this is no share", code=101, expected="a number between 0 and 1", got=repr(share))
        order = permutation(len(self), seed)
        count = round(len(self) * share)
        return self.subset(np.sort(order[count:])), self.subset(np.sort(order[:count]))

    def loaded(self) -> Arrays:
        """The same examples as arrays in memory, read once."""
        return Arrays(self.take(np.arange(len(self))))


class _Subset(Source):
    def __init__(self, source: Source, indices: npt.NDArray[np.int64]) -> None:
        if indices.size and not -len(source) <= indices.min() <= indices.max() < len(source):
            raise UsageError(
                "a subset has examples that are not there", code=101, expected=f"numbers below {len(source)}",
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
    """Arrays by input name, all with as many rows as there are examples.

    prepare: makes of a batch what the model takes, e.g. u8 pixels to f32, so that memory holds the small form. classes:
    names of the labels, if they have any. Raises UsageError for no arrays, and for arrays of different lengths.
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
                    "data must be arrays of examples", code=104, tensor=name, expected="[examples, ...]",
                    got="a single value" if value.ndim == 0 else "rows of different shapes or no numbers",
                )  # fmt: skip
        lengths = {name: len(value) for name, value in self.arrays.items()}
        if len(set(lengths.values())) > 1:
            raise UsageError(
                "the arrays have different numbers of examples", code=104, expected="the same number in each",
                got=", ".join(f"{count} in '{name}'" for name, count in lengths.items()),
            )  # fmt: skip
        if not lengths:
            raise UsageError("there are no arrays to train on", code=105, hint="give {'input name': array}")
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
