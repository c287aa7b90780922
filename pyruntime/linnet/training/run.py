"""A run in progress: its position, variables and files, the execution of one training step, and the handling of failed
steps."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import Error, GraphError, TrainingError, UsageError
from linnet.data.source import Batch
from linnet.session.model import Model, Store
from linnet.session.options import SessionOptions
from linnet.session.session import Session
from linnet.training import diagnosis, evaluation
from linnet.training.callbacks import Callback
from linnet.training.feeding import Feed, examples, fitted, scalars
from linnet.training.history import History, MetricsFile
from linnet.training.saver import Saver, checkpoints

SNAPSHOT = 100  # steps between in-memory copies of the variables, from which a non-finite loss is diagnosed


@dataclasses.dataclass
class _Means:
    """Computes the means over all examples since the last record."""

    count: int = 0
    sums: dict[str, float] = dataclasses.field(default_factory=dict)

    def add(self, metrics: Mapping[str, float], weight: int) -> None:
        self.count += weight
        for name, value in metrics.items():
            self.sums[name] = self.sums.get(name, 0.0) + value * weight

    def take(self) -> dict[str, float]:
        made = {name: total / max(self.count, 1) for name, total in self.sums.items()}
        self.count, self.sums = 0, {}
        return made


@dataclasses.dataclass(frozen=True)
class _Safe:
    """A saved state: the variables before a step, and the position in the data."""

    step: int
    epoch: int
    batch: int
    values: dict[str, npt.NDArray[Any]]


@dataclasses.dataclass(frozen=True)
class RunParts:
    """What a run is made of. signature: what each batch runs."""

    model: Model
    signature: str
    feed: Feed
    callbacks: Sequence[Callback]
    saver: Saver
    directory: Path | None
    options: SessionOptions
    accumulate: int = 1


class TrainingRun:
    """The run of one process: a `Run` for callbacks, and the steps themselves."""

    def __init__(self, parts: RunParts) -> None:
        self.model, self.store, self.signature = parts.model, Store(parts.model), parts.signature
        self.options, self.accumulate = parts.options, parts.accumulate
        self.feed, self.saver, self.directory = parts.feed, parts.saver, parts.directory
        self.callbacks = [*parts.callbacks, parts.saver]
        self.session = Session(self.model, self.signature, store=self.store, **self.options.fields)
        applies = self.accumulate > 1
        self._apply = Session(self.model, "apply", store=self.store, **self.options.fields) if applies else None
        self.step = self.epoch = self.batch = 0
        self.total: int | None = None
        self.failed = False
        self.begun = 0  # the step at which a new run with a directory began
        self.forget: Callable[[], None] | None = None  # removes the files of a new run
        self.stopping = ""
        self.history = History(self.model, self.store, directory=self.directory)
        path = None if self.directory is None else self.directory / "metrics.jsonl"
        self.metrics = MetricsFile(path, self.history)
        self.validate: tuple[Session, Feed] | None = None
        self.log_every = 10
        self._specs = {spec.name: spec for spec in self.session.inputs}
        self.known: list[str] = []  # names in batches that belong to other signatures
        self._means = _Means()
        self._parts = _Means()  # over the batches accumulated for the next step
        self._added = 0  # number of these batches
        self._safe: _Safe | None = None

    def stop(self, reason: str) -> None:
        """Ends training after this step. reason: the value for History.stopped."""
        self.stopping = self.stopping or reason

    def joined(self, resumed: bool) -> contextlib.AbstractContextManager[None]:
        """The context around all steps. It does nothing if there are no other workers. resumed: whether this is a
        resumed run."""
        return contextlib.nullcontext()

    # Steps.

    def advance(self, batch: Batch, last: bool) -> dict[str, float] | None:
        """Processes one batch. Returns the metrics of the training step, or None if the batch does not complete a step
        because gradients are accumulated. last: whether it is the last batch of its epoch. Raises TrainingError if the
        loss is not finite. If the data cause an error, the error's message names the batch."""
        feeds: dict[str, npt.NDArray[Any]] = {}
        try:
            feeds = fitted(batch, self._specs, self.known)
            if self._apply is None and (self._safe is None or self.step - self._safe.step >= SNAPSHOT):
                self._safe = _Safe(self.step, self.epoch, self.batch, self.store.as_dict())
            outputs = self.session.run(feeds)
        except Error as error:
            raise self._placed(error, feeds) from None
        metrics = scalars(outputs)
        losses = {name: value for name, value in metrics.items() if name.endswith("loss")} or metrics
        wrong = {name: value for name, value in losses.items() if not math.isfinite(value)}
        if wrong:
            raise self._explained(*next(iter(wrong.items())), feeds)
        self._means.add(metrics, examples(feeds))
        if self._apply is not None:
            self._parts.add(metrics, examples(feeds))
            self._added += 1
            if self._added < self.accumulate and not last:
                self.batch += 1
                return None
            self._apply.run({})
            metrics, self._added = self._parts.take(), 0
        self.step += 1
        self.epoch, self.batch = (self.epoch + 1, 0) if last else (self.epoch, self.batch + 1)
        if self.step % self.log_every == 0:
            self.metrics.add("step", {"step": self.step, "epoch": self.epoch, **metrics})
        return metrics

    def _placed(self, error: Error, feeds: Mapping[str, npt.NDArray[Any]]) -> Error:
        """Adds the position in the data to an error. If the error is an index out of range, also adds the range of the
        batch's integers."""
        place = f"in batch {self.batch + 1} of epoch {self.epoch + 1} (step {self.step + 1})"
        what, hint = f"{error.what}, {place}", error.hint
        if isinstance(error, GraphError) and error.code == 305:
            ranges = [
                f"'{name}' has values {value.min()} to {value.max()}"
                for name, value in feeds.items()
                if value.dtype.kind in "iu" and value.size
            ]
            hint = f"labels and ids start at 0 and must be below the number of classes; {' and '.join(ranges)}"
        made = type(error)(
            what, code=error.code, op=error.op, op_index=error.op_index, tensor=error.tensor,
            expected=error.expected, got=error.got, hint=hint,
        )  # fmt: skip
        return made

    def _explained(self, name: str, value: float, feeds: Mapping[str, npt.NDArray[Any]]) -> TrainingError:
        """An error that explains why the loss of the last step is not finite. The variables are set back to good
        values."""
        # Accumulation changes no variable that the loss depends on, so one repetition is enough.
        safe, found = self._safe or _Safe(self.step, self.epoch, self.batch, self.store.as_dict()), None
        what = f"output '{name}' became {value} in step {self.step + 1} (epoch {self.epoch + 1})"
        reason = diagnosis.bad_feed(feeds)
        if not reason:
            count = self.step + 1 - safe.step
            found = diagnosis.find(
                self.model,
                self.history.source,
                self.signature,
                safe.values,
                safe.step + 1,
                count,
                self._again(safe) if count > 1 else [feeds],
            )
        if found is not None:
            reason = f"the first non-finite result is that of op {found.op} '{found.name}' in step {found.step}"
        kept = self.checkpoint()
        error = TrainingError(
            f"{what}; {reason}" if reason else what,
            op=found.name if found else "",
            tensor=found.name if found else name,
            got=f"{found.not_a_number} NaN and {found.infinite} infinite values" if found else "",
            hint="lower the learning rate, clip gradients (linnet.clip), or check the data"
            + (f"; the last good checkpoint is '{kept}'" if kept is not None else ""),
        )
        error.step = self.step + 1
        for variable, before in safe.values.items():
            self.store[variable] = before
        return error

    def _again(self, safe: _Safe) -> Iterator[dict[str, npt.NDArray[Any]]]:
        """The feeds of the steps since the saved position."""
        epoch, start = safe.epoch, safe.batch
        while True:
            for batch, _ in self.feed.epoch(epoch, start):
                yield fitted(batch, self._specs, self.known)
            epoch, start = epoch + 1, 0

    @property
    def unrecorded(self) -> bool:
        """Whether there have been steps since the last record."""
        return self._means.count > 0

    def record(self, scheduled: bool = True) -> dict[str, float]:
        """Records the means of the outputs since the last record, and of validation. Returns them. scheduled: if true,
        callbacks are informed too. If false, only the history gets the record, and the running means are not reset. So
        a run that stops here and is resumed later equals an uninterrupted run."""
        means = dataclasses.replace(self._means, sums=dict(self._means.sums))
        made = (self._means if scheduled else means).take()
        if self.validate is not None:
            session, feed = self.validate
            found = evaluation.over(session, feed, self.known)
            made |= {f"val_{name}": float(value) for name, value in found.items() if np.ndim(value) == 0}
        self.metrics.add("record" if scheduled else "last", {"step": self.step, "epoch": self.epoch, **made})
        if scheduled:
            for callback in self.callbacks:
                callback.on_record(self, made)
        return made

    # Checkpoints.

    def save(self, path: Path) -> None:
        """Writes all variables, and the state needed to resume, to one file."""
        state = {
            "step": self.step,
            "epoch": self.epoch,
            "batch": self.batch,
            "count": self._means.count,
            "sums": self._means.sums,
            "added": self._added,
            "parts": [self._parts.count, self._parts.sums],
            "callbacks": [callback.state() for callback in self._stateful()],
        }
        words = {"step": self.step, **self.feed.native, "fit": json.dumps(state, sort_keys=True)}
        self.store.save(path, list(self.store), words)

    def load(self, path: Path) -> None:
        """Loads variables and position from a checkpoint. Raises FileError, UsageError."""
        metadata = self.store.load(path)
        try:
            state = json.loads(metadata["fit"])
            self.step, self.epoch, self.batch = state["step"], state["epoch"], state["batch"]
            self._means, self._parts = _Means(state["count"], state["sums"]), _Means(*state["parts"])
            self._added = state["added"]
            states = state["callbacks"]
        except (KeyError, ValueError, TypeError):
            self._place(path, metadata)
            return
        own = self._stateful()
        if len(own) == len(states):
            for callback, its in zip(own, states, strict=True):
                if its:
                    callback.restore(its)

    def _place(self, path: Path, metadata: dict[str, str]) -> None:
        """Sets the position from a checkpoint of linnet-train. For a checkpoint with variables only, the position is
        the start of the data."""
        try:
            theirs = {name: int(metadata[name]) for name in ("seed", "batch", "examples")}
            step = int(metadata["step"])
        except (KeyError, ValueError):
            return
        if theirs != self.feed.native:
            raise UsageError(
                f"'{path}' comes from training with another order of the data", code=101, tensor=str(path),
                expected=str(self.feed.native or "an order that linnet-train supports"), got=str(theirs),
                hint="use linnet.data.Loader with that seed and batch_size, drop_last=True and no augmentation",
            )  # fmt: skip
        self.step = step
        self.epoch, self.batch = divmod(step, self.feed.length or 1)

    def _stateful(self) -> list[Callback]:
        return [c for c in self.callbacks if type(c).state is not Callback.state]

    def checkpoint(self) -> Path | None:
        """The latest checkpoint in the run's directory."""
        found = checkpoints(self.directory) if self.directory is not None else []
        return found[-1] if found else None
