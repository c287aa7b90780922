"""A run of `linnet.fit` in a job with several processes. A step pulls values, computes gradients and pushes them."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import Error, SyncError, TrainingError
from linnet.data.source import Batch
from linnet.sync import contract
from linnet.sync.compression import Compression
from linnet.sync.link import Link
from linnet.sync.serving import Place, Serving
from linnet.sync.strategy import Strategy
from linnet.sync.worker import Worker
from linnet.training import diagnosis
from linnet.training.feeding import examples, fitted, scalars
from linnet.training.run import RunParts, TrainingRun

_OVER = 608  # the status job_over
_TRAFFIC = ("bytes_sent", "bytes_received", "applied", "late", "not_finite")


class Part(Protocol):
    """The part of linnet.sync.fitting.Company that a run uses: this process's part in a job."""

    strategy: Strategy
    link: Link
    federated: bool
    batch: int
    group: int

    @property
    def cluster(self) -> Place: ...
    def serving(self, directory: Path | None, resumed: bool) -> Serving: ...
    def begun(self) -> None: ...


class DistributedRun(TrainingRun):
    """A run in which all workers of the job make each step together. store: the values that this worker pulled."""

    def __init__(self, company: Part, parts: RunParts) -> None:
        super().__init__(parts)
        self.company = company
        self._worker: Worker | None = None
        self._serving: Serving | None = None
        self._specs = {name: spec for name, spec in self._specs.items() if not name.startswith(contract.ROWS)}
        counters = self.model.metadata(contract.COUNT)
        self._counters = {name: int(self.store[name]) for name in counters.split("\n")} if counters else {}
        self._passed = 0  # batches of steps that the others made without this worker
        self._local = _Means()

    # Beginning and end.

    @contextlib.contextmanager
    def joined(self, resumed: bool) -> Iterator[None]:
        """The context in which this process is a worker of its job, and also a server if the job has no other."""
        company, cluster = self.company, self.company.cluster
        with contextlib.ExitStack() as stack:
            if cluster.address is not None:
                self._serving = stack.enter_context(company.serving(self.directory, resumed).running())
            self._worker = Worker(
                self.model, self._serving.addresses if self._serving is not None else cluster.servers, store=self.store,
                number=cluster.rank, group=company.group, compression=company.strategy.compression,
                pull_compression=company.strategy.pull_compression, keep_pulled=company.federated,
                name=f"worker {cluster.rank}", link=company.link, options=self.options, lost=company.strategy.lost,
            )  # fmt: skip
            self.session = self._worker.session(self.signature)
            stack.callback(self._leave)
            company.begun()
            self._worker.pull()
            self._place_at(self._worker.info.step)
            yield
            with contextlib.suppress(SyncError):  # the server may have ended first
                self._last_pull()
            info = self._worker.info
            self.history.traffic = {name: getattr(info, name) for name in _TRAFFIC}
            self._leave()
            if self._serving is not None:
                if not self.stopping:  # otherwise the other workers notice that the server has ended
                    self._serving.wait_for_the_workers()
                self._take_over(self._serving)

    def _last_pull(self) -> None:
        """Gets the final values from the servers. They are exact even if this worker has computed with rounded
        values."""
        assert self._worker is not None
        company = self.company
        if company.strategy.pull_compression == Compression() or self._serving is not None:
            return self._worker.pull()
        with Worker(
            self.model, company.cluster.servers, store=self.store, read_only=True, link=company.link,
            lost=company.strategy.lost,
        ) as reader:  # fmt: skip
            reader.pull()

    def _leave(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._worker = None

    def _place_at(self, step: int) -> None:
        """Sets the position from which the run continues: after this many steps of this worker."""
        self.step = step
        per_epoch = self.feed.length
        if step and per_epoch is not None:
            rounds = -(-per_epoch // self.company.strategy.local_steps)
            self.epoch, turn = divmod(step, rounds)
            self.batch = turn * self.company.strategy.local_steps

    def _take_over(self, serving: Serving) -> None:
        """Copies the server's values, including optimizer state, so that the model can be trained further."""
        for name in serving.store:
            if name in self.store:
                self.store[name] = serving.store[name]
            else:
                self.history.elsewhere[name] = serving.store[name]

    # Steps.

    def advance(self, batch: Batch, last: bool) -> dict[str, float] | None:
        assert self._worker is not None
        if self._passed:
            self._passed -= 1
            self.epoch, self.batch = (self.epoch + 1, 0) if last else (self.epoch, self.batch + 1)
            return {} if last and self.unrecorded else None
        feeds: dict[str, npt.NDArray[Any]] = {}
        try:
            feeds = fitted(batch, self._specs, self.known)
            metrics = self._local_step(feeds, last) if self.company.federated else self._step(feeds)
        except SyncError as error:
            if error.code != _OVER or self.company.cluster.is_chief:
                raise
            self.stop("the job is over because worker 0 has ended it")
            return None
        except TrainingError:
            raise
        except Error as error:
            raise self._placed(error, feeds) from None
        self.epoch, self.batch = (self.epoch + 1, 0) if last else (self.epoch, self.batch + 1)
        if metrics is None:
            return None
        following = self._worker.info.step
        if following < self.step and self.company.strategy.durability != "volatile":
            raise SyncError(
                f"the server has lost {self.step - following} of {self.step} steps because it was started again without "
                "its state", code=602, expected=f"a server that has made {self.step} steps", got=f"{following} steps",
                hint="give fit a directory=, where servers keep their state, or start the job with linnet launch --restarts",
            )  # fmt: skip
        self._passed = max(0, following - self.step - 1) * self.company.strategy.local_steps
        self.step = following
        if self.step % self.log_every == 0:
            self.metrics.add("step", {"step": self.step, "epoch": self.epoch, **metrics})
        return metrics

    def _step(self, feeds: dict[str, npt.NDArray[Any]]) -> dict[str, float]:
        """A step with the gradients of all workers."""
        assert self._worker is not None
        self._count(self.step)
        feeds = self._mine(feeds)
        count = examples(feeds)
        outputs = self._worker.step(feeds, weight=count)
        metrics = self._checked(outputs, feeds)
        of_all = self._worker.info.loss
        if of_all is not None and "loss" in metrics:
            metrics["loss"] = of_all
        self._means.add(metrics, count)
        return metrics

    def _mine(self, feeds: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """This worker's examples of a global batch. The server assigns them according to speed, and at first in equal
        parts."""
        assert self._worker is not None
        if not self.company.batch:
            return feeds
        cluster, whole = self.company.cluster, examples(feeds)
        first, count, of = self._worker.info.share or (cluster.rank, 1, cluster.world_size)
        begin, end = first * whole // of, (first + count) * whole // of
        if begin == end:  # the data has smaller batches than announced; a step without examples is not possible
            begin, end = min(begin, whole - 1), min(begin, whole - 1) + 1
        return {name: value[begin:end] if np.shape(value)[:1] == (whole,) else value for name, value in feeds.items()}

    @property
    def worker(self) -> Worker | None:
        """The connection to the servers while it exists."""
        return self._worker

    def _local_step(self, feeds: dict[str, npt.NDArray[Any]], last: bool) -> dict[str, float] | None:
        """A step that this worker makes alone. After the last step of a round, the change of the variables is sent to
        the server."""
        assert self._worker is not None
        strategy = self.company.strategy
        self._count(self.step * strategy.local_steps + self._local.steps)
        metrics = self._checked(self.session.run(feeds), feeds)
        self._means.add(metrics, examples(feeds))
        self._local.add(metrics, examples(feeds))
        if self._local.steps < strategy.local_steps and not last:
            return None
        made, weight = self._local.take()
        self._worker.push(weight=weight)
        self._worker.pull()
        return made

    def _count(self, turn: int) -> None:
        """Sets the counters of random numbers to the values that they would have in a single process that uses the
        batches of all workers."""
        cluster = self.company.cluster
        for name, first in self._counters.items():
            self.store[name] = first + turn * cluster.world_size + cluster.rank

    def _checked(self, outputs: Mapping[str, npt.NDArray[Any]], feeds: Mapping[str, Any]) -> dict[str, float]:
        """Returns the metrics. Raises TrainingError if the loss is not finite."""
        named = {name: value for name, value in outputs.items() if not name.startswith(contract.GRADIENT)}
        metrics = scalars(named)
        losses = {name: value for name, value in metrics.items() if name.endswith("loss")} or metrics
        for name, value in losses.items():
            if not math.isfinite(value):
                reason = diagnosis.bad_feed(dict(feeds))
                error = TrainingError(
                    f"output '{name}' became {value} in step {self.step + 1} (epoch {self.epoch + 1})"
                    + (f"; {reason}" if reason else ""),
                    tensor=name, hint="lower the learning rate, clip gradients (linnet.clip), or check the data",
                )  # fmt: skip
                error.step = self.step + 1
                raise error
        return metrics

    # Records and checkpoints use the newest values.

    def record(self, scheduled: bool = True) -> dict[str, float]:
        if self.validate is not None:
            self._refresh()
        return super().record(scheduled)

    def save(self, path: Path) -> None:
        self._refresh()
        super().save(path)

    def _refresh(self) -> None:
        if self._worker is not None:
            self._worker.pull()


@dataclasses.dataclass
class _Means:
    """Computes the means over the local steps of a round."""

    steps: int = 0
    weight: int = 0
    sums: dict[str, float] = dataclasses.field(default_factory=dict)

    def add(self, metrics: Mapping[str, float], weight: int) -> None:
        self.steps, self.weight = self.steps + 1, self.weight + weight
        for name, value in metrics.items():
            self.sums[name] = self.sums.get(name, 0.0) + value * weight

    def take(self) -> tuple[dict[str, float], int]:
        made, weight = {name: total / self.weight for name, total in self.sums.items()}, self.weight
        self.steps, self.weight, self.sums = 0, 0, {}
        return made, weight
