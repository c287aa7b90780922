"""Batches of a source: shuffled by a seed, divided into shards, augmented, and prepared ahead of time in a thread."""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import UsageError
from linnet.data.shuffle import permutation
from linnet.data.source import Arrays, Batch, SourceLike, as_source

Augment = Callable[[Batch, np.random.Generator], Batch]


@dataclasses.dataclass(frozen=True)
class Loader:
    """Batches of `batch_size` examples. Each depends only on the seed, the epoch and its position, not on earlier
    batches.

    source: a Source, or any object with its methods __len__, take and digest.
    shuffle: use a different order in every epoch. drop_last: leave out the last batch of an epoch if it is not full.
    augment: functions of (batch, random generator), applied in order (linnet.data.flip, shift, crop, or your own).
    shard: (index, count): this worker's part of every epoch; all workers get the same number of examples. prefetch: how
    many batches a thread prepares ahead. Default: 2. For plain arrays it is 0, because a thread would cost more time
    than it saves.
    """

    source: SourceLike
    batch_size: int = 32
    shuffle: bool = True
    seed: int = 0
    drop_last: bool = False
    augment: Sequence[Augment] = ()
    shard: tuple[int, int] = (0, 1)
    prefetch: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", as_source(self.source))
        index, count = self.shard
        for what, good, expected in (
            ("batch_size", self.batch_size >= 1, "1 or more"),
            ("seed", 0 <= self.seed < 1 << 64, "0 to 2**64 - 1"),
            ("shard", 0 <= index < count, "(index, count), with an index from 0 to count - 1"),
            ("prefetch", self.prefetch is None or self.prefetch >= 0, "0 or more, or None"),
        ):
            if not good:
                got = repr(getattr(self, what))
                raise UsageError(f"{what} has an invalid value", code=101, tensor=what, expected=expected, got=got)
        if not len(self):
            raise UsageError(
                "the data has too few examples for one batch",
                code=104,
                expected=f"at least {self.batch_size if self.drop_last else 1} examples",
                got=f"{len(self.source) // count} for this worker" if count > 1 else str(len(self.source)),
            )

    @property
    def examples(self) -> int:
        """Number of examples in an epoch for this worker."""
        own = len(self.source) // self.shard[1]
        return own // self.batch_size * self.batch_size if self.drop_last else own

    def __len__(self) -> int:
        """Number of batches in an epoch."""
        return (self.examples + self.batch_size - 1) // self.batch_size

    def order(self, epoch: int) -> npt.NDArray[np.int64]:
        """The indices of an epoch's examples, in order. linnet-train uses the same order for the same seed."""
        index, count = self.shard
        every = permutation(len(self.source), self.seed, epoch) if self.shuffle else np.arange(len(self.source))
        return every[index::count][: self.examples]

    def batches(self, epoch: int = 0, start: int = 0, every: int = 1) -> Iterator[Batch]:
        """The batches of an epoch from number `start` on. every: take only every Nth batch."""
        depth = self.prefetch
        if depth is None:
            plain = isinstance(self.source, Arrays) and self.source.prepare is None and not self.augment
            depth = 0 if plain else 2
        made = self._batches(epoch, start, every)
        return _ahead(made, depth) if depth else made

    def _batches(self, epoch: int, start: int, every: int) -> Iterator[Batch]:
        order, source = self.order(epoch), as_source(self.source)
        for i in range(start, len(self), every):
            batch = source.take(order[i * self.batch_size : (i + 1) * self.batch_size])
            if self.augment:
                generator = self._generator(epoch, 1 + i, self.shard[0])
                for change in self.augment:
                    batch = change(batch, generator)
            yield batch

    def _generator(self, *place: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(np.random.SeedSequence([self.seed, *place])))


def _ahead(batches: Iterator[Batch], depth: int) -> Iterator[Batch]:
    """Gives the same batches. A thread prepares up to `depth` of them in advance. An exception in the thread is raised
    here."""
    ready: queue.Queue[tuple[Batch | None, BaseException | None]] = queue.Queue(depth)
    stop = threading.Event()

    def put(item: tuple[Batch | None, BaseException | None]) -> None:
        while not stop.is_set():
            with contextlib.suppress(queue.Full):
                return ready.put(item, timeout=0.05)

    def work() -> None:
        failure: BaseException | None = None
        try:
            for batch in batches:
                put((batch, None))
                if stop.is_set():
                    return
        except BaseException as error:
            failure = error
        put((None, failure))

    thread = threading.Thread(target=work, name="linnet-loader", daemon=True)
    thread.start()
    try:
        while True:
            batch, failure = ready.get()
            if failure is not None:
                raise failure
            if batch is None:
                return
            yield batch
    finally:
        stop.set()
        thread.join()
