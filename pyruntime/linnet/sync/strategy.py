"""How many workers train one model: who waits for whom, how gradients travel, what the server keeps."""

from __future__ import annotations

import dataclasses
from typing import Final

from linnet.errors import UsageError
from linnet.sync.compression import Compression
from linnet.sync.link import Link

MODES: Final = ("synchronous", "asynchronous", "federated", "ring")


@dataclasses.dataclass(frozen=True)
class Strategy:
    """How the workers of a job train together.

    mode: "synchronous", a step is the mean of one batch of each worker, the same bits as accumulated gradients of one process;
    "asynchronous", every worker's gradient is a step of its own; "federated", each worker trains `local_steps` batches by the
    file's `train`, and the server's optimizer takes the weighted mean of how far they came; "ring", synchronous without a
    server: workers make the mean among themselves (linnet.sync.Ring), and each applies it. Dense gradients only.
    backup: so many of the workers of a step are not waited for (Chen et al. 2016): the last to come are dropped. In federated
    rounds: how many of the workers need not take part.
    groups: workers are dealt out to so many groups; each is synchronous by itself, and does not wait for others.
    staleness: asynchronous: how many steps a worker may be ahead of the slowest (Ho et al. 2013); None: any.
    elastic: workers may leave for good; then the others go on without them. Otherwise a lost one is waited for.
    own_data: each worker's data is its own; otherwise all are given the same, and share it out by batches.
    by_speed: the batches of a step are put together and shared out anew by the speed that workers showed: one of half the speed
    gets half the examples. Every worker reads all the data; gradients are weighted, so that their mean is that of the whole.
    compression: of gradients: "none", "f16", "bf16", "i8", "topk:0.01", "1bit" (linnet.sync.Compression), with error feedback.
    save_every: steps between the server's snapshots in the run's directory, besides the last.
    lost: seconds that a server may be out of reach before a worker ends, as it does when worker 0, which has the server, has
    stopped early.
    durability: "journal": with a directory, a step is in the server's journal before it counts; "fsync": and on the disk;
    "volatile": only snapshots are kept.
    max_bytes: memory of a server for gradients that are under way. link: keys or certificates, and heartbeats; the key file
    is the cluster's where none is given.
    Raises UsageError for what fits no mode.
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
    lost: float = 20.0
    save_every: int = 1000
    durability: str = "journal"
    max_bytes: int = 1 << 30
    link: Link = dataclasses.field(default_factory=Link)

    def __post_init__(self) -> None:
        def check(name: str, good: bool, expected: str) -> None:
            if not good:
                raise UsageError(
                    f"{name} makes no sense for {self.mode} training", code=101, tensor=name, expected=expected,
                    got=repr(getattr(self, name)),
                )  # fmt: skip

        if self.mode not in MODES:
            raise UsageError("no such mode", code=101, tensor="mode", expected=" or ".join(MODES), got=repr(self.mode))
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
            "1 (more are federated)",
        )
        if self.mode == "ring":
            check("backup", self.backup == 0, "0: all ranks take part")
            check("groups", self.groups == 1, "1")
            check("compression", Compression.parse(self.compression).name == "none", "none")
        single = self.mode == "synchronous" and self.groups == 1 and not self.own_data
        check("by_speed", single or not self.by_speed, "False (but for one synchronous group over shared data)")
        check("save_every", self.save_every >= 1, "1 or more")
        check("durability", self.durability in ("journal", "fsync", "volatile"), "journal, fsync or volatile")
        object.__setattr__(self, "compression", Compression.parse(self.compression))

    def members(self, workers: int) -> int:
        """How many of the workers are in each group. UsageError where they cannot be dealt out, or nobody is waited for."""
        count = workers // self.groups
        if workers % self.groups or count <= self.backup:
            raise UsageError(
                f"{workers} workers cannot be dealt out", code=101, tensor="world_size",
                expected=f"a multiple of {self.groups} groups, more than {self.backup} in each", got=str(workers),
                hint="start more workers, or lower groups and backup",
            )  # fmt: skip
        return count
