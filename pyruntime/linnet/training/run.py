"""A run in progress: its position, its variables, its files; one training step, and what is done when a step fails."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.data.source import Batch
from linnet.errors import Error, GraphError, TrainingError, UsageError
from linnet.model import Model, Store
from linnet.session import Session
from linnet.training import diagnosis, evaluation
from linnet.training.callbacks import Callback
from linnet.training.feeding import Feed, examples, fitted, scalars
from linnet.training.history import History, MetricsFile
from linnet.training.saver import Saver, checkpoints

SNAPSHOT = 100  # steps between copies of the variables in memory, from which a loss that is not finite is explained


@dataclasses.dataclass
class _Means:
    """Means over examples since the last record."""

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
    """The variables before a step, and where the data was."""

    step: int
    epoch: int
    batch: int
    values: dict[str, npt.NDArray[Any]]


class Run:
    """What callbacks see. step, epoch, batch: how many are behind (of this epoch); total: steps in all, None when only the
    data tells; store: the variables; history; directory, or None; failed: whether training ends by an error."""

    def __init__(
        self,
        model: Model,
        signature: str,
        feed: Feed,
        callbacks: Sequence[Callback],
        saver: Saver,
        directory: Path | None,
        threads: int | None,
        accumulate: int = 1,
    ) -> None:
        self.model, self.store, self.signature = model, Store(model), signature
        self.session = Session(model, signature, store=self.store, threads=threads)
        self.accumulate = accumulate
        self._apply = Session(model, "apply", store=self.store, threads=threads) if accumulate > 1 else None
        self.feed, self.callbacks, self.saver, self.directory = feed, [*callbacks, saver], saver, directory
        self.step = self.epoch = self.batch = 0
        self.total: int | None = None
        self.failed = False
        self.stopping = ""
        self.history = History(model, self.store, directory=directory)
        self.metrics = MetricsFile(None if directory is None else directory / "metrics.jsonl", self.history)
        self.validate: tuple[Session, Feed] | None = None
        self.log_every = 10
        self._specs = {spec.name: spec for spec in self.session.inputs}
        self.known: list[str] = []  # names in batches that other signatures take
        self._means = _Means()
        self._parts = _Means()  # of the batches that were accumulated for the next step
        self._added = 0  # how many these are
        self._safe: _Safe | None = None

    def stop(self, reason: str) -> None:
        """Ends training after this step; reason: what History.stopped will say."""
        self.stopping = self.stopping or reason

    def joined(self, resumed: bool) -> contextlib.AbstractContextManager[None]:
        """What surrounds all steps: nothing, where nobody else takes part. resumed: whether the run goes on."""
        return contextlib.nullcontext()

    # Steps.

    def advance(self, batch: Batch, last: bool) -> dict[str, float] | None:
        """One batch, and the metrics of the training step that it completes; None while gradients are accumulated. last: it
        is the last of its epoch. Raises TrainingError when the loss is not finite; errors in the data say which batch it
        was."""
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
        """The error, with the place in the data, and for an index out of range the integers of the batch."""
        place = f"in batch {self.batch + 1} of epoch {self.epoch + 1} (step {self.step + 1})"
        what, hint = f"{error.what}, {place}", error.hint
        if isinstance(error, GraphError) and error.code == 305:
            ranges = [
                f"'{name}' holds {value.min()} to {value.max()}"
                for name, value in feeds.items()
                if value.dtype.kind in "iu" and value.size
            ]
            hint = f"labels and ids begin at 0 and end below the number of classes; {' and '.join(ranges)}"
        made = type(error)(
            what, code=error.code, op=error.op, op_index=error.op_index, tensor=error.tensor,
            expected=error.expected, got=error.got, hint=hint,
        )  # fmt: skip
        return made

    def _explained(self, name: str, value: float, feeds: Mapping[str, npt.NDArray[Any]]) -> TrainingError:
        """Why the loss of the step that has just run is not finite, as an error. The variables get good values back."""
        # Accumulation changes no variable that the loss depends on: one repetition shows it.
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
            reason = f"the first result that is not finite is that of op {found.op} '{found.name}' in step {found.step}"
        kept = self.checkpoint()
        error = TrainingError(
            f"{what}; {reason}" if reason else what, op=found.name if found else "", tensor=found.name if found else name,
            got=f"{found.not_a_number} NaN and {found.infinite} infinite values" if found else "",
            hint="lower the learning rate, clip gradients (linnet.clip), or look at the data"
            + (f"; the last good checkpoint is '{kept}'" if kept is not None else ""),
        )  # fmt: skip
        error.step = self.step + 1
        for variable, before in safe.values.items():
            self.store[variable] = before
        return error

    def _again(self, safe: _Safe) -> Iterator[dict[str, npt.NDArray[Any]]]:
        """The feeds of the steps since then."""
        epoch, start = safe.epoch, safe.batch
        while True:
            for batch, _ in self.feed.epoch(epoch, start):
                yield fitted(batch, self._specs, self.known)
            epoch, start = epoch + 1, 0

    @property
    def unrecorded(self) -> bool:
        """Whether there were steps since the last record."""
        return self._means.count > 0

    def record(self, scheduled: bool = True) -> dict[str, float]:
        """Means since the last record, and validation. scheduled: callbacks hear of it; otherwise it stands in the history
        alone, and the means go on, so that a run that stops here and goes on later is the same run."""
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
        """All variables, and what must be known to go on, in one file."""
        state = {
            "step": self.step, "epoch": self.epoch, "batch": self.batch, "count": self._means.count,
            "sums": self._means.sums, "added": self._added,
            "parts": [self._parts.count, self._parts.sums], "callbacks": [callback.state() for callback in self._stateful()],
        }  # fmt: skip
        words = {"step": self.step, **self.feed.native, "fit": json.dumps(state, sort_keys=True)}
        self.store.save(path, list(self.store), words)

    def load(self, path: Path) -> None:
        """Takes variables and position from a checkpoint. Raises FileError, UsageError."""
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
        """The position in a checkpoint of linnet-train, or, of variables alone, the beginning of the data."""
        try:
            theirs = {name: int(metadata[name]) for name in ("seed", "batch", "examples")}
            step = int(metadata["step"])
        except (KeyError, ValueError):
            return
        if theirs != self.feed.native:
            raise UsageError(
                f"'{path}' is from training on another order of data", code=101, tensor=str(path),
                expected=str(self.feed.native or "an order that linnet-train has"), got=str(theirs),
                hint="give linnet.data.Loader that seed and batch_size, drop_last=True and no augmentation",
            )  # fmt: skip
        self.step = step
        self.epoch, self.batch = divmod(step, self.feed.length or 1)

    def _stateful(self) -> list[Callback]:
        return [c for c in self.callbacks if type(c).state is not Callback.state]

    def checkpoint(self) -> Path | None:
        """The latest checkpoint of the run's directory."""
        found = checkpoints(self.directory) if self.directory is not None else []
        return found[-1] if found else None
