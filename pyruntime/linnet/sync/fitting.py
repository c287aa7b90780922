"""`linnet.fit` in a job with several processes: the same loop, in which a step pulls values, computes gradients and
pushes them. Worker 0 writes records and checkpoints for all. A server process serves until the workers have left."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

from linnet.clib.errors import UsageError
from linnet.facade import Graph
from linnet.session.model import Model
from linnet.sync import contract
from linnet.sync.distributed_run import DistributedRun
from linnet.sync.serving import Place, Serving
from linnet.sync.sharding import shard, worker_part
from linnet.sync.strategy import Strategy
from linnet.training.evaluation import checked_signature
from linnet.training.feeding import Feed, joined, share_of
from linnet.training.run import RunParts

_CALLS = itertools.count()  # of fit in this process; a restarted process makes the same calls again


class Company:
    """This process's part in a job: the steps that `fit` does in another way than when one process trains."""

    def __init__(self, cluster: Place, strategy: Strategy, model: Model, graph: Graph | None, batch_size: int) -> None:
        self.cluster, self.strategy = cluster, strategy
        self.batch = (
            batch_size * cluster.world_size if strategy.by_speed else 0
        )  # examples of a step, to be divided among workers
        self._kept = Path(cluster.state) / str(next(_CALLS)) if cluster.state else None
        self.federated = strategy.mode == "federated"
        self.group = cluster.rank % strategy.groups
        self._members = strategy.members(cluster.world_size)
        self.link = strategy.link
        if cluster.key_file and not self.link.key_file:
            self.link = dataclasses.replace(self.link, key_file=cluster.key_file)
        self.signature = "train" if self.federated else contract.GRAD
        checked_signature(model, self.signature, "for distributed training")
        if strategy.mode == "ring" and self.serves_only:
            raise UsageError(
                "a ring has no servers", code=101, tensor="mode", expected="only workers", got="the role server",
                hint="start no servers, or use another Strategy",
            )  # fmt: skip
        if cluster.address is not None:
            checked_signature(model, contract.UPDATE, "for serving")
        self.model, self._whole, self._source = model, model, graph
        tables = contract.names_in({contract.REMOTE: model.metadata(contract.REMOTE) or ""}, contract.REMOTE)
        if tables and self.federated:
            raise UsageError(
                "federated rounds do not support remote tables", code=101, tensor=tables[0],
                hint="write the file without remote=, or train synchronously",
            )  # fmt: skip
        if any(spec.name in tables for spec in model.variables) and not self.serves_only:
            self.model = Model(worker_part(self._graph()), user_ops=model.user_ops)

    def _graph(self) -> Graph | str | Path:
        if self._source is not None:
            return self._source
        if self._whole.path is None:
            raise UsageError(
                "a job needs the model as a file or graph", code=101, got="bytes", hint="pass fit the Graph or the path"
            )
        return self._whole.path

    @property
    def served(self) -> Model:
        """The model that this process's server holds: the whole model, or a part of it if there are several servers."""
        shards = len(self.cluster.servers)
        if shards == 1:
            return self._whole
        return Model(shard(self._graph(), shards).servers[self.cluster.rank], user_ops=self._whole.user_ops)

    @property
    def serves_only(self) -> bool:
        """Whether this process is only a server."""
        return self.cluster.role == "server"

    def serving(self, directory: Path | None, resumed: bool) -> Serving:
        """The server of this process, already listening. directory: the run's directory, for persistent state. If there
        is none and the launcher restarts processes, the state is in the launcher's folder. resumed: whether to continue
        from the state in the directory. Raises UsageError if the state belongs to another run."""
        name = f"server-{self.cluster.rank if self.serves_only else 0}"
        folder = None if directory is None else directory / name
        if folder is None and self._kept is not None:
            folder = self._kept / name  # only this job has written there
        elif folder is not None and not resumed and not self.again and folder.is_dir() and any(folder.iterdir()):
            raise UsageError(
                f"'{folder}' already holds a server's state", code=101, tensor=str(folder),
                hint="continue it with resume=True, or give another directory",
            )  # fmt: skip
        if folder is not None:
            folder.parent.mkdir(parents=True, exist_ok=True)
        return Serving(self.served, self.cluster, self.strategy, self._members, folder, self.link, self.batch)

    @property
    def _mark(self) -> Path | None:
        """A file that this process creates when its run has begun. None if no launcher restarts the process."""
        return None if self._kept is None else self._kept / f"{self.cluster.role}-{self.cluster.rank}.begun"

    @property
    def again(self) -> bool:
        """Whether the launcher has restarted this process after its run had begun. The contents of the directory then
        belong to this run."""
        return self._mark is not None and self._mark.exists()

    def begun(self) -> None:
        """Notes that the directory belongs to this job from now on."""
        if self._mark is not None:
            self._mark.parent.mkdir(parents=True, exist_ok=True)
            self._mark.touch()

    def directory(self, place: Path | None) -> Path | None:
        """Where this process writes records and checkpoints."""
        return place if self.cluster.is_chief else None

    def share(self, feed: Feed) -> Feed:
        """This worker's part of the data. This is all of the data if the caller has divided the data into shards, or if
        the server divides it by speed."""
        if self.batch:
            return joined(feed, self.cluster.world_size)
        if self.strategy.own_data or feed.description.get("shard", [0, 1]) != [0, 1]:
            return feed
        return share_of(feed, self.cluster.rank, self.cluster.world_size)

    def run(self, parts: RunParts) -> DistributedRun:
        """Creates the run of a worker."""
        if self.strategy.mode == "ring":
            from linnet.sync.ring_fitting import RingRun

            return RingRun(self, parts)
        return DistributedRun(self, parts)
