"""The role of this process in a job with several processes: its rank, and the addresses of servers and workers
(`Cluster`). place.py finds it from flags, else from launchers' variables. Without either, this is a single process."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Final

from linnet.clib.errors import UsageError

if TYPE_CHECKING:
    from linnet.facade import Graph
    from linnet.session.model import Model
    from linnet.sync.fitting import Company
    from linnet.sync.strategy import Strategy

ROLES: Final = ("worker", "server", "chief", "evaluator")
_JOBS: Final = {"server": "ps"}  # names of jobs in device strings, as in TensorFlow
_ADDRESS = re.compile(r"(?:unix|shm):.+|(?:\[[0-9A-Fa-f:.%a-z]+\]|[A-Za-z0-9._-]*):(?P<port>[0-9]{1,5})")


def checked_address(text: str, where: str) -> str:
    """Returns `text` if it is HOST:PORT, [IPv6]:PORT, :PORT (loopback), unix:PATH or shm:PATH. Otherwise raises
    UsageError that names `where`."""
    match = _ADDRESS.fullmatch(text)
    if match is None or (match["port"] is not None and not 0 < int(match["port"]) < 65536):
        raise UsageError(
            "invalid address", code=101, tensor=where,
            expected="HOST:PORT or [IPv6]:PORT with a port from 1 to 65535, unix:PATH or shm:PATH", got=repr(text),
        )  # fmt: skip
    return text


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The place of this process in a job.

    role: worker, server (holds variables, runs updates), chief (worker 0, which also writes checkpoints and logs) or
        evaluator (only reads variables).
    rank: index within the role; the chief counts as a worker.
    world_size: number of workers including the chief.
    servers: addresses of the servers, by rank; empty in a job with one process.
    workers: addresses of the workers, if the launcher gives them.
    job: name of the job from the launcher, or "".
    local_rank, local_size: index and number of the job's processes on this machine.
    hosts_server: True in the one worker that must also run the server at `servers[0]`, for launchers that start only
        equal processes (torchrun, mpirun, srun).
    key_file: path of the job's pre-shared key (LINNET_KEY_FILE), or "".
    state: folder of the launcher in which the job's processes on this machine keep the state from which a restart
        continues (LINNET_STATE), or "".
    local_device: the device of this machine on which this process computes (LINNET_DEVICE, from `linnet launch
        --device`), such as "cuda:1", or "" for the CPU. linnet.fit uses it; pass it to Worker and RingTrainer as device=.
    hosts: names of the machines that lend themselves to the job (LINNET_HOSTS), such as "remote:pi1:7700"; with
        `linnet launch --hosts`, of processes of linnet-host on this machine. Pass them to Session as devices=.
    source: the settings from which this was derived.
    """

    role: str = "worker"
    rank: int = 0
    world_size: int = 1
    servers: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()
    job: str = ""
    local_rank: int = 0
    local_size: int = 1
    hosts_server: bool = False
    key_file: str = ""
    state: str = ""
    local_device: str = ""
    hosts: tuple[str, ...] = ()
    source: str = "one process"

    def __post_init__(self) -> None:
        def refuse(field: str, expected: str, got: object, hint: str = "") -> None:
            raise UsageError(
                f"{self.source} does not describe a valid job",
                code=101,
                tensor=field,
                expected=expected,
                got=repr(got),
                hint=hint,
            )

        if self.role not in ROLES:
            refuse("role", " or ".join(ROLES), self.role)
        if self.world_size < 1:
            refuse("world_size", "at least 1 worker", self.world_size)
        if not 0 <= self.rank < self._count:
            refuse("rank", f"0 to {self._count - 1} for the role {self.role}", self.rank)
        if not 0 <= self.local_rank < self.local_size:
            refuse(
                "local_rank", f"0 to {self.local_size - 1}, because local_size is {self.local_size}", self.local_rank
            )
        if self.workers and len(self.workers) != self.world_size:
            refuse("workers", f"{self.world_size} addresses, one per worker", len(self.workers))
        for field, addresses in (("servers", self.servers), ("workers", self.workers)):
            for address in addresses:
                checked_address(address, field)
            if twice := {a for a in addresses if addresses.count(a) > 1}:
                refuse(field, "each address only once", ",".join(sorted(twice)))
        if not self.servers and (self.world_size > 1 or self.role in ("server", "evaluator")):
            refuse(
                "servers", "the address of at least one server", "none",
                "set LINNET_SERVERS=host:port if there is a separate server, or MASTER_ADDR and MASTER_PORT to run "
                "it in worker 0",
            )  # fmt: skip

    @property
    def _count(self) -> int:
        """Number of processes with this role. The number of evaluators is unknown."""
        if self.role == "server":
            return max(1, len(self.servers))
        return {"chief": 1, "evaluator": self.rank + 1 if self.rank >= 0 else 1}.get(self.role, self.world_size)

    @property
    def is_chief(self) -> bool:
        """Whether this process writes checkpoints and logs for all: the chief, or worker 0."""
        return self.role in ("worker", "chief") and self.rank == 0

    @property
    def alone(self) -> bool:
        """Whether this is the only process: one worker and no server."""
        return not self.servers

    @property
    def address(self) -> str | None:
        """Address at which this process must serve, or None if it does not run a server."""
        if self.role == "server":
            return self.servers[self.rank]
        return self.servers[0] if self.hosts_server else None

    @property
    def device(self) -> str:
        """Full device string of this process in TensorFlow's notation: /job:worker/task:3/device:cpu:0."""
        return f"/job:{_JOBS.get(self.role, self.role)}/task:{self.rank}/device:cpu:0"

    def company(
        self, strategy: Strategy | None, model: Model, graph: Graph | None, accumulate: int, train: str, batch_size: int
    ) -> Company:
        """This process's part in the job, for `linnet.fit`. Raises UsageError if gradients are to be accumulated in
        another way."""
        from linnet.sync.fitting import Company
        from linnet.sync.strategy import Strategy

        if accumulate not in (1, self.world_size):
            raise UsageError(
                "accumulate does not match the number of workers",
                code=101,
                tensor="accumulate",
                expected=f"1 or {self.world_size}",
                got=str(accumulate),
            )
        if train != "train":
            raise UsageError(
                "a job with several processes always trains the signature 'train'",
                code=101,
                tensor="train",
                expected="train",
                got=train,
            )
        return Company(self, strategy or Strategy(), model, graph, batch_size)
