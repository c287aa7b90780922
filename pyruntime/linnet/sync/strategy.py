"""The strategy by which several workers train one model: synchronization, compression of gradients, and what the server
stores."""

from __future__ import annotations

import dataclasses
from typing import Final

from linnet.clib.errors import UsageError
from linnet.sync.compression import Compression
from linnet.sync.link import Link

MODES: Final = ("synchronous", "asynchronous", "federated", "ring")


@dataclasses.dataclass(frozen=True)
class Strategy:
    """How the workers of a job train together.

    mode: "synchronous": a step uses the mean gradient over one batch from each worker. The result has the same bits as
        accumulating the gradients of these batches in one process. "asynchronous": every worker's gradient is a step of
        its own. "federated": each worker trains on `local_steps` batches with the signature `train`, and the server's
        optimizer receives the weighted mean of the workers' changes. "ring": synchronous without a server: workers
        compute the mean among themselves (linnet.sync.Ring), and each applies it. Gradients must be dense.
    backup: number of workers for which a step does not wait (Chen et al. 2016); the last gradients to arrive are
        dropped. In federated rounds: number of workers that need not take part.
    groups: workers are divided into this many groups. Each group is synchronous by itself and does not wait for others.
    staleness: in asynchronous mode, how many steps a worker may be ahead of the slowest (Ho et al. 2013); None: no
        limit.
    elastic: workers may leave permanently, and the others continue without them. Otherwise the job waits for a lost
        worker.
    own_data: each worker has its own data. Otherwise all workers get the same data and divide it by batches.
    by_speed: the batches of a step are combined, and divided again according to the workers' measured speed. A worker
        with half the speed gets half the examples. Every worker reads all the data. Gradients are weighted, so their
        mean is that of the whole batch.
    compression: how gradients are compressed: "none", "f16", "bf16", "i8", "topk:0.01", "1bit"
        (linnet.sync.Compression), with error feedback.
    pull_compression: how the values that servers send to workers are compressed: "none", "f16" or "bf16". The servers
        keep f32, and the result of fit has the servers' values. The workers compute with rounded values.
    save_every: steps between the server's snapshots in the run's directory; there is always one at the end.
    lost: seconds that a server may be unreachable before a worker gives up. This limit also applies if worker 0 runs
        the server and stops early.
    durability: "journal": if there is a directory, a step is written to the server's journal before it counts. "fsync":
        the journal is also flushed to disk. "volatile": only snapshots are stored.
    max_bytes: memory of a server for gradients in transit.
    link: keys or certificates, and heartbeats. If it has no key file, the key file of the cluster is used.
    Raises UsageError for a combination that the mode does not support.
    """

    mode: str = "synchronous"
    backup: int = 0
    groups: int = 1
    staleness: int | None = None
    local_steps: int = 1
    elastic: bool = False
    own_data: bool = False
    by_speed: bool = False
    compression: str | Compression = "none"
    pull_compression: str | Compression = "none"
    lost: float = 20.0
    save_every: int = 1000
    durability: str = "journal"
    max_bytes: int = 1 << 30
    link: Link = dataclasses.field(default_factory=Link)

    def __post_init__(self) -> None:
        def check(name: str, good: bool, expected: str) -> None:
            if not good:
                raise UsageError(
                    f"{name} is not valid for {self.mode} training", code=101, tensor=name, expected=expected,
                    got=repr(getattr(self, name)),
                )  # fmt: skip

        if self.mode not in MODES:
            raise UsageError("unknown mode", code=101, tensor="mode", expected=" or ".join(MODES), got=repr(self.mode))
        asynchronous = self.mode == "asynchronous"
        check("backup", self.backup >= 0 and not (self.backup and asynchronous), "0" if asynchronous else "0 or more")
        check(
            "groups", self.groups >= 1 and not (self.groups > 1 and asynchronous), "1" if asynchronous else "1 or more"
        )
        check(
            "staleness",
            self.staleness is None or (asynchronous and self.staleness >= 0),
            "None" if not asynchronous else "0 or more",
        )
        check(
            "local_steps",
            self.local_steps >= 1 and (self.local_steps == 1 or self.mode == "federated"),
            "1 (only mode federated supports more)",
        )
        if self.mode == "ring":
            check("backup", self.backup == 0, "0, because all ranks take part")
            check("groups", self.groups == 1, "1")
            check("compression", Compression.parse(self.compression).name == "none", "none")
            check("pull_compression", Compression.of_values(self.pull_compression).name == "none", "none")
        single = self.mode == "synchronous" and self.groups == 1 and not self.own_data
        check("by_speed", single or not self.by_speed, "False, except for one synchronous group with shared data")
        check("save_every", self.save_every >= 1, "1 or more")
        check("durability", self.durability in ("journal", "fsync", "volatile"), "journal, fsync or volatile")
        object.__setattr__(self, "compression", Compression.parse(self.compression))
        object.__setattr__(self, "pull_compression", Compression.of_values(self.pull_compression))

    def members(self, workers: int) -> int:
        """Number of workers in each group. Raises UsageError if the workers cannot be divided evenly, or if all of them
        would be backup workers."""
        count = workers // self.groups
        if workers % self.groups or count <= self.backup:
            raise UsageError(
                f"{workers} workers cannot be divided into groups",
                code=101,
                tensor="world_size",
                expected=f"a multiple of {self.groups} groups, with more than {self.backup} workers in each",
                got=str(workers),
                hint="start more workers, or lower groups and backup",
            )
        return count
