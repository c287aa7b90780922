"""`linnet.fit` in a job of several processes: the same loop, with a step that pulls, computes and pushes. Worker 0 writes
records and checkpoints for all; a process that is a server serves until the workers have left."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.data.source import Batch
from linnet.errors import Error, SyncError, TrainingError, UsageError
from linnet.graph import Graph
from linnet.model import Model
from linnet.sync import contract
from linnet.sync.roles import Cluster
from linnet.sync.serving import Serving
from linnet.sync.split import partition, worker_part
from linnet.sync.strategy import Strategy
from linnet.sync.worker import Worker
from linnet.training import diagnosis
from linnet.training.callbacks import Callback
from linnet.training.evaluation import checked_signature
from linnet.training.feeding import Feed, examples, fitted, joined, scalars, share_of
from linnet.training.run import Run
from linnet.training.saver import Saver

_OVER = 608  # the status job_over
_TRAFFIC = ("bytes_sent", "bytes_received", "applied", "late", "not_finite")


class Company:
    """This process's part in a job: what `fit` does otherwise than alone."""

    def __init__(
        self, cluster: Cluster, strategy: Strategy, model: Model, graph: Graph | None, batch_size: int
    ) -> None:
        self.cluster, self.strategy = cluster, strategy
        self.batch = batch_size * cluster.world_size if strategy.by_speed else 0  # examples of a step, shared out
        self.federated = strategy.mode == "federated"
        self.group = cluster.rank % strategy.groups
        self._members = strategy.members(cluster.world_size)
        self.link = strategy.link
        if cluster.key_file and not self.link.key_file:
            self.link = dataclasses.replace(self.link, key_file=cluster.key_file)
        self.signature = "train" if self.federated else contract.GRAD
        checked_signature(model, self.signature, "to train in company by")
        if strategy.mode == "ring" and self.serves_only:
            raise UsageError(
                "a ring has no servers", code=101, tensor="mode", expected="workers alone", got="the role server",
                hint="start no servers, or take Strategy()",
            )  # fmt: skip
        if cluster.address is not None:
            checked_signature(model, contract.UPDATE, "to serve by")
        self.model, self._whole, self._source = model, model, graph
        tables = contract.names_in({contract.REMOTE: model.metadata(contract.REMOTE) or ""}, contract.REMOTE)
        if tables and self.federated:
            raise UsageError(
                "federated rounds need whole tables", code=101, tensor=tables[0],
                hint="write the file without remote=, or train synchronously",
            )  # fmt: skip
        if any(spec.name in tables for spec in model.variables) and not self.serves_only:
            self.model = Model(worker_part(self._graph()))

    def _graph(self) -> Graph | str | Path:
        if self._source is not None:
            return self._source
        if self._whole.path is None:
            raise UsageError(
                "a job needs the model's file or graph", code=101, got="bytes", hint="give fit the Graph, or the path"
            )
        return self._whole.path

    @property
    def served(self) -> Model:
        """What the server of this process has: the whole, or its part where there are several servers."""
        shards = len(self.cluster.servers)
        return Model(partition(self._graph(), shards).servers[self.cluster.rank]) if shards > 1 else self._whole

    @property
    def serves_only(self) -> bool:
        """Whether this process is a server and no worker."""
        return self.cluster.role == "server"

    def serving(self, directory: Path | None, resumed: bool) -> Serving:
        """The server of this process, which listens. directory: of the run, for what outlives it; resumed: whether that goes on.
        Raises UsageError when another run's state is there."""
        folder = None if directory is None else directory / f"server-{self.cluster.rank if self.serves_only else 0}"
        if folder is not None and not resumed and folder.is_dir() and any(folder.iterdir()):
            raise UsageError(
                f"'{folder}' holds a server's state already", code=101, tensor=str(folder),
                hint="go on with resume=True, or give another directory",
            )  # fmt: skip
        if folder is not None:
            folder.parent.mkdir(parents=True, exist_ok=True)
        return Serving(self.served, self.cluster, self.strategy, self._members, folder, self.link, self.batch)

    def directory(self, place: Path | None) -> Path | None:
        """Where this process writes records and checkpoints."""
        return place if self.cluster.is_chief else None

    def share(self, feed: Feed) -> Feed:
        """This worker's part of the data; all of it where the caller has cut it into shards, or it is shared out by speed."""
        if self.batch:
            return joined(feed, self.cluster.world_size)
        if self.strategy.own_data or feed.description.get("shard", [0, 1]) != [0, 1]:
            return feed
        return share_of(feed, self.cluster.rank, self.cluster.world_size)

    def run(self, *arguments: Any) -> CompanyRun:
        """The run of a worker."""
        if self.strategy.mode == "ring":
            from linnet.sync.ring_fitting import RingRun

            return RingRun(self, *arguments)
        return CompanyRun(self, *arguments)


class CompanyRun(Run):
    """A run whose steps are those of all workers of the job. store: what this worker pulled."""

    def __init__(
        self,
        company: Company,
        model: Model,
        signature: str,
        feed: Feed,
        callbacks: Sequence[Callback],
        saver: Saver,
        directory: Path | None,
        threads: int | None,
    ) -> None:
        super().__init__(model, signature, feed, callbacks, saver, directory, threads)
        self.company, self._threads = company, threads
        self._worker: Worker | None = None
        self._serving: Serving | None = None
        self._specs = {name: spec for name, spec in self._specs.items() if not name.startswith(contract.ROWS)}
        counters = self.model.metadata(contract.COUNT)
        self._counters = {name: int(self.store[name]) for name in counters.split("\n")} if counters else {}
        self._passed = 0  # batches that belong to steps which the others made without this worker
        self._local = _Means()

    # Beginning and end.

    @contextlib.contextmanager
    def joined(self, resumed: bool) -> Iterator[None]:
        """Within it this process is a worker of its job, and serves where it must."""
        company, cluster = self.company, self.company.cluster
        with contextlib.ExitStack() as stack:
            if cluster.address is not None:
                self._serving = stack.enter_context(company.serving(self.directory, resumed).running())
            self._worker = Worker(
                self.model, self._serving.addresses if self._serving is not None else cluster.servers, store=self.store,
                number=cluster.rank, group=company.group, compression=company.strategy.compression,
                keep_pulled=company.federated, name=f"worker {cluster.rank}", link=company.link, threads=self._threads,
                lost=company.strategy.lost,
            )  # fmt: skip
            self.session = self._worker.session(self.signature)
            stack.callback(self._leave)
            self._worker.pull()
            self._place_at(self._worker.info.step)
            yield
            with contextlib.suppress(SyncError):  # the server may have ended before us
                self._worker.pull()
            info = self._worker.info
            self.history.traffic = {name: getattr(info, name) for name in _TRAFFIC}
            self._leave()
            if self._serving is not None:
                if not self.stopping:  # else the others hear of it by the server's end
                    self._serving.wait_for_the_workers()
                self._take_over(self._serving)

    def _leave(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._worker = None

    def _place_at(self, step: int) -> None:
        """Goes on behind so many steps of this worker's job."""
        self.step = step
        per_epoch = self.feed.length
        if step and per_epoch is not None:
            rounds = -(-per_epoch // self.company.strategy.local_steps)
            self.epoch, turn = divmod(step, rounds)
            self.batch = turn * self.company.strategy.local_steps

    def _take_over(self, serving: Serving) -> None:
        """The server's values, the state of its optimizer among them, so that the model can be trained further."""
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
            self.stop("the job is over: worker 0 has ended it")
            return None
        except TrainingError:
            raise
        except Error as error:
            raise self._placed(error, feeds) from None
        self.epoch, self.batch = (self.epoch + 1, 0) if last else (self.epoch, self.batch + 1)
        if metrics is None:
            return None
        following = self._worker.info.step
        self._passed = max(0, following - self.step - 1) * self.company.strategy.local_steps
        self.step = following
        if self.step % self.log_every == 0:
            self.metrics.add("step", {"step": self.step, "epoch": self.epoch, **metrics})
        return metrics

    def _step(self, feeds: dict[str, npt.NDArray[Any]]) -> dict[str, float]:
        """A gradient of all workers."""
        assert self._worker is not None
        self._count(self.step)
        feeds = self._mine(feeds)
        count = examples(feeds)
        outputs = self._worker.step(feeds, weight=count)
        metrics = self._checked(outputs, feeds)
        self._means.add(metrics, count)
        return metrics

    def _mine(self, feeds: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """This worker's examples of a global batch: what the server says by its speed, at first equal parts."""
        assert self._worker is not None
        if not self.company.batch:
            return feeds
        cluster, whole = self.company.cluster, examples(feeds)
        first, count, of = self._worker.info.share or (cluster.rank, 1, cluster.world_size)
        begin, end = first * whole // of, (first + count) * whole // of
        if begin == end:  # the data has smaller batches than was said: a step without examples would be none
            begin, end = min(begin, whole - 1), min(begin, whole - 1) + 1
        return {name: value[begin:end] if np.shape(value)[:1] == (whole,) else value for name, value in feeds.items()}

    @property
    def worker(self) -> Worker | None:
        """The connection to the servers, while there is one."""
        return self._worker

    def _local_step(self, feeds: dict[str, npt.NDArray[Any]], last: bool) -> dict[str, float] | None:
        """A step of this worker's own; with the last of a round, what came of it goes to the server."""
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
        """Counters of random numbers as one process would have them that goes through the batches of all workers."""
        cluster = self.company.cluster
        for name, first in self._counters.items():
            self.store[name] = first + turn * cluster.world_size + cluster.rank

    def _checked(self, outputs: Mapping[str, npt.NDArray[Any]], feeds: Mapping[str, Any]) -> dict[str, float]:
        """The metrics. TrainingError when the loss is not finite."""
        named = {name: value for name, value in outputs.items() if not name.startswith(contract.GRADIENT)}
        metrics = scalars(named)
        losses = {name: value for name, value in metrics.items() if name.endswith("loss")} or metrics
        for name, value in losses.items():
            if not math.isfinite(value):
                reason = diagnosis.bad_feed(dict(feeds))
                error = TrainingError(
                    f"output '{name}' became {value} in step {self.step + 1} (epoch {self.epoch + 1})"
                    + (f"; {reason}" if reason else ""),
                    tensor=name, hint="lower the learning rate, clip gradients (linnet.clip), or look at the data",
                )  # fmt: skip
                error.step = self.step + 1
                raise error
        return metrics

    # Records and checkpoints: of the newest values.

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
    """Of the local steps of a round."""

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
