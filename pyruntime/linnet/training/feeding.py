"""Converts every form of data that `fit` accepts to numbered epochs of batches. Also converts batches to the feeds of a
signature."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import UsageError
from linnet.data.loader import Augment, Loader
from linnet.data.source import Arrays, Batch, Source, SourceLike, as_source
from linnet.ir.dtypes import numpy_dtype
from linnet.session.model import TensorSpec

BATCH = 32  # the usual number of examples in a batch
Array = npt.NDArray[Any]
Data = Loader | SourceLike | Mapping[str, npt.ArrayLike] | Sequence[npt.ArrayLike] | Callable[[int], Iterable[Batch]]


@dataclasses.dataclass(frozen=True)
class Feed:
    """Epochs of batches. length: number of batches in an epoch, or None if it is unknown before the end. native: the
    order of the data in the form that linnet-train uses, for checkpoints; empty if linnet-train has no such order.
    pick: a function (epoch, first, every) that returns a selection of the batches. None if a single batch cannot be
    made without the others."""

    make: Callable[[int, int], Iterator[Batch]]
    length: int | None
    description: dict[str, Any]
    native: dict[str, int] = dataclasses.field(default_factory=dict)
    pick: Callable[[int, int, int], Iterator[Batch]] | None = None

    def epoch(self, number: int, start: int) -> Generator[tuple[Batch, bool]]:
        """The batches of an epoch from number `start` on. Each comes with a bool that is true for the last batch."""
        batches = self.make(number, start)
        try:
            if self.length is not None:
                for i, batch in enumerate(batches, start + 1):
                    yield batch, i == self.length
                return
            held: Batch | None = None
            for batch in batches:
                if held is not None:
                    yield held, False
                held = batch
            if held is None and not start:
                raise UsageError(
                    f"epoch {number} of the data has no batch", code=105, hint="return a new iterable for each epoch"
                )
            if held is not None:
                yield held, True
        finally:
            close = getattr(batches, "close", None)
            if close is not None:
                close()


def share_of(feed: Feed, index: int, count: int) -> Feed:
    """The part of a feed for worker `index` of `count`: one out of every `count` consecutive batches. All workers get
    the same number of batches. Remaining batches at the end of an epoch are not used."""
    if count == 1:
        return feed
    length = _turns(feed, count)

    def make(epoch: int, start: int) -> Iterator[Batch]:
        batches = feed.make(epoch, 0) if feed.pick is None else feed.pick(epoch, start * count + index, count)
        try:
            if feed.pick is not None:
                yield from itertools.islice(batches, None if length is None else length - start)
            else:
                yield from (turn[index] for turn in itertools.islice(_whole_turns(batches, count), start, None))
        finally:
            _close(batches)

    description = {**feed.description, "worker": [index, count]}
    return dataclasses.replace(feed, make=make, length=length, description=description, native={}, pick=None)


def joined(feed: Feed, count: int) -> Feed:
    """A feed in which every `count` consecutive batches are joined into one. The joined batches are the global batches
    of `count` workers. Remaining batches at the end of an epoch are not used."""
    length = _turns(feed, count)

    def make(epoch: int, start: int) -> Iterator[Batch]:
        batches = feed.make(epoch, 0) if feed.pick is None else feed.pick(epoch, start * count, 1)
        try:
            for turn in itertools.islice(_whole_turns(batches, count), start if feed.pick is None else 0, None):
                yield {name: np.concatenate([np.asarray(batch[name]) for batch in turn]) for name in turn[0]}
        finally:
            _close(batches)

    return dataclasses.replace(feed, make=make, length=length, native={}, pick=None)


def _turns(feed: Feed, count: int) -> int | None:
    """The number of complete groups of `count` batches in an epoch."""
    length = None if feed.length is None else feed.length // count
    if length == 0:
        raise UsageError(
            "an epoch has fewer batches than the number of workers",
            code=104,
            expected=f"{count} or more",
            got=str(feed.length),
            hint="give more data, or reduce batch_size",
        )
    return length


def _whole_turns(batches: Iterator[Batch], count: int) -> Iterator[list[Batch]]:
    """Groups of `count` batches. An incomplete last group is dropped."""
    while len(turn := list(itertools.islice(batches, count))) == count:
        yield turn


def _close(batches: Iterator[Batch]) -> None:
    close = getattr(batches, "close", None)
    if close is not None:
        close()


def feed_of(
    data: Data,
    inputs: Sequence[TensorSpec],
    *,
    batch_size: int | None,
    shuffle: bool,
    seed: int,
    augment: Sequence[Augment] = (),
    training: bool = True,
) -> Feed:
    """Creates a feed from any form of data. inputs: inputs of the signature. Their order gives the names of the arrays
    in a plain sequence. batch_size: None means BATCH, or all examples if there are fewer. Raises UsageError; while
    training, also if a batch is larger than the data."""
    if isinstance(data, Loader):
        loader = data
    elif isinstance(data, SourceLike) and not isinstance(data, Mapping | type):
        loader = _loader(as_source(data), inputs, batch_size, shuffle, seed, augment, training)
    elif callable(data):
        return Feed(_stream(data), None, {"data": getattr(data, "__qualname__", type(data).__name__)})
    else:
        if not isinstance(data, Mapping):
            if not isinstance(data, Sequence) or isinstance(data, str) or len(data) != len(inputs):
                raise UsageError(
                    "the training data has an unsupported type",
                    code=101,
                    expected="{input name: array}, a sequence of arrays for the inputs "
                    f"{', '.join(spec.name for spec in inputs)}, a source (an object with __len__, take and digest), or a "
                    "function of the epoch",
                    got=f"{len(data)} arrays" if isinstance(data, list | tuple) else type(data).__name__,
                )
            data = {spec.name: value for spec, value in zip(inputs, data, strict=True)}
        loader = _loader(Arrays(data), inputs, batch_size, shuffle, seed, augment, training)
    if training and loader.examples < loader.batch_size:
        raise UsageError(
            "one batch is larger than the data", code=104, tensor="batch_size", expected=f"at most {loader.examples} examples",
            got=str(loader.batch_size), hint="give a smaller batch size or more data",
        )  # fmt: skip
    return Feed(
        loader.batches,
        len(loader),
        {
            "data": loader.source.digest(), "examples": len(loader.source), "batch_size": loader.batch_size,
            "shuffle": loader.shuffle, "data_seed": loader.seed, "drop_last": loader.drop_last,
            "shard": list(loader.shard), "augmentations": len(loader.augment),
        },
        _native(loader),
        loader.batches,
    )  # fmt: skip


def _native(loader: Loader) -> dict[str, int]:
    whole = loader.drop_last or len(loader.source) % loader.batch_size == 0
    if not whole or not loader.shuffle or loader.augment or loader.shard != (0, 1):
        return {}
    return {"seed": loader.seed, "batch": loader.batch_size, "examples": len(loader.source)}


def _loader(
    source: Source,
    inputs: Sequence[TensorSpec],
    batch_size: int | None,
    shuffle: bool,
    seed: int,
    augment: Sequence[Augment],
    training: bool,
) -> Loader:
    """A loader for a signature. If the signature has a fixed batch size, that size is used, and an incomplete last
    batch is left out."""
    fixed = {spec.shape[0] for spec in inputs if spec.shape}
    if None in fixed or len(fixed) != 1:
        batch_size = max(1, min(BATCH, len(source))) if batch_size is None else batch_size
        return Loader(source, batch_size, shuffle and training, seed, augment=augment)
    size = int(fixed.pop() or 1)
    if not training and len(source) % size:
        raise UsageError(
            "the model evaluates only full batches", code=104, expected=f"a multiple of {size} examples",
            got=str(len(source)), hint="leave the first dimension of its inputs open by naming it ('batch')",
        )  # fmt: skip
    return Loader(source, size, shuffle and training, seed, drop_last=training, augment=augment)


def _stream(data: Callable[[int], Iterable[Batch]]) -> Callable[[int, int], Iterator[Batch]]:
    def make(epoch: int, start: int) -> Iterator[Batch]:
        batches = iter(data(epoch))
        for _ in range(start):
            next(batches, None)
        return batches

    return make


def fitted(batch: Batch, specs: Mapping[str, TensorSpec], known: Sequence[str] = ()) -> dict[str, Array]:
    """Converts a batch to feeds of a signature. Integers are converted to the dtype of the input if their values fit.
    known: names that the batch may contain because they are inputs of other signatures. Raises UsageError."""
    if not isinstance(batch, Mapping):
        raise UsageError(
            "a batch must be a mapping", code=101, expected="{input name: array}", got=type(batch).__name__
        )
    feeds: dict[str, Array] = {}
    for name, value in batch.items():
        spec = specs.get(name)
        if spec is not None:
            feeds[name] = _converted(np.asarray(value), spec)
        elif name not in known:
            raise UsageError(
                f"the data has an array named {name!r}, but the model has no such input", code=102, tensor=name,
                expected=" or ".join(specs),
            )  # fmt: skip
    missing = [name for name in specs if name not in feeds]
    if missing:
        raise UsageError(
            f"the data has no array for input {missing[0]!r}", code=105, tensor=missing[0],
            expected=" and ".join(specs), got=" and ".join(batch) or "nothing",
        )  # fmt: skip
    return feeds


def _converted(value: Array, spec: TensorSpec) -> Array:
    wanted = numpy_dtype(spec.dtype)
    if value.dtype == wanted or value.dtype.kind not in "iu" or wanted.kind not in "iu":
        return value
    limits = np.iinfo(wanted)
    if value.size and not limits.min <= value.min() <= value.max() <= limits.max:
        raise UsageError(
            f"the values are out of range for input {spec.name!r}",
            code=103,
            tensor=spec.name,
            expected=f"values in the range of {spec.dtype}",
            got=f"{value.min()} to {value.max()}",
        )
    return value.astype(wanted)


def examples(feeds: Mapping[str, Array]) -> int:
    """Number of examples in a batch: the rows of its first input that has rows."""
    return next((len(value) for value in feeds.values() if value.ndim), 1)


def scalars(outputs: Mapping[str, Array]) -> dict[str, float]:
    """The outputs that are a single number."""
    return {name: float(value.reshape(())) for name, value in outputs.items() if value.size == 1}
