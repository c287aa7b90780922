"""Who this process is in a job of many: its role and rank, and where servers and workers are (`Cluster`).
Found from flags, then from the variables that launchers set (launchers.py), else it is one process."""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from linnet.errors import UsageError

ROLES: Final = ("worker", "server", "chief", "evaluator")
_JOBS: Final = {"server": "ps"}  # device strings name the jobs as TensorFlow does
_ADDRESS = re.compile(r"(?:unix|shm):.+|(?:\[[0-9A-Fa-f:.%a-z]+\]|[A-Za-z0-9._-]*):(?P<port>[0-9]{1,5})")


def checked_address(text: str, where: str) -> str:
    """`text` if it is HOST:PORT, [IPv6]:PORT, :PORT (loopback), unix:PATH or shm:PATH. UsageError names `where`."""
    match = _ADDRESS.fullmatch(text)
    if match is None or (match["port"] is not None and not 0 < int(match["port"]) < 65536):
        raise UsageError(
            "no address", code=101, tensor=where,
            expected="HOST:PORT with a port of 1 to 65535, [IPv6]:PORT, unix:PATH or shm:PATH", got=repr(text),
        )  # fmt: skip
    return text


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The place of this process in a job.

    role: worker, server (holds variables, runs updates), chief (a worker that also writes checkpoints and logs; it is
    worker 0) or evaluator (reads variables, trains nothing). rank: index within the role; the chief counts among the workers.
    world_size: number of workers, the chief included. servers: their addresses, by rank; empty in a job of one process.
    workers: their addresses where the launcher says them. job: name that the launcher gave the job, or "". local_rank,
    local_size: index among, and number of, the job's processes on this machine. hosts_server: True in the one worker that
    must also run the server at `servers[0]`, where a launcher starts equal processes only (torchrun, mpirun, srun).
    key_file: path of the pre-shared key of the job (LINNET_KEY_FILE), or "" for none.
    source: which settings this was found from.
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
    source: str = "one process"

    def __post_init__(self) -> None:
        def refuse(field: str, expected: str, got: object, hint: str = "") -> None:
            raise UsageError(
                f"{self.source} describes no job", code=101, tensor=field, expected=expected, got=repr(got), hint=hint
            )

        if self.role not in ROLES:
            refuse("role", " or ".join(ROLES), self.role)
        if self.world_size < 1:
            refuse("world_size", "at least 1 worker", self.world_size)
        if not 0 <= self.rank < self._count:
            refuse("rank", f"0 to {self._count - 1} for the role {self.role}", self.rank)
        if not 0 <= self.local_rank < self.local_size:
            refuse("local_rank", f"0 to {self.local_size - 1}, below the number of processes here", self.local_rank)
        if self.workers and len(self.workers) != self.world_size:
            refuse("workers", f"{self.world_size} addresses, one for each worker", len(self.workers))
        for field, addresses in (("servers", self.servers), ("workers", self.workers)):
            for address in addresses:
                checked_address(address, field)
            if twice := {a for a in addresses if addresses.count(a) > 1}:
                refuse(field, "each address once", ",".join(sorted(twice)))
        if not self.servers and (self.world_size > 1 or self.role in ("server", "evaluator")):
            refuse(
                "servers", "the address of at least one server", "none",
                "set LINNET_SERVERS=host:port for a server of its own, or MASTER_ADDR and MASTER_PORT for one in worker 0",
            )  # fmt: skip

    @property
    def _count(self) -> int:
        """How many processes there are of this role; evaluators are not counted by anybody."""
        if self.role == "server":
            return max(1, len(self.servers))
        return {"chief": 1, "evaluator": self.rank + 1 if self.rank >= 0 else 1}.get(self.role, self.world_size)

    @property
    def is_chief(self) -> bool:
        """Whether this process writes checkpoints and logs for all: the chief, or worker 0."""
        return self.role in ("worker", "chief") and self.rank == 0

    @property
    def alone(self) -> bool:
        """Whether there is nobody to talk to: one worker and no server."""
        return not self.servers

    @property
    def address(self) -> str | None:
        """Where this process must serve, or None when it is no server and hosts none."""
        if self.role == "server":
            return self.servers[self.rank]
        return self.servers[0] if self.hosts_server else None

    @property
    def device(self) -> str:
        """Full device string of this process, as TensorFlow writes it: /job:worker/task:3/device:cpu:0."""
        return f"/job:{_JOBS.get(self.role, self.role)}/task:{self.rank}/device:cpu:0"


def cluster(
    *,
    role: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    servers: Sequence[str] | str | None = None,
    workers: Sequence[str] | str | None = None,
    job: str | None = None,
    env: Mapping[str, str] | None = None,
    argv: Sequence[str] = (),
) -> Cluster:
    """The place of this process, so that one script runs unchanged as one process or as many.

    What is given here comes first, then flags in `argv` (--sync-role, --sync-rank, --sync-world-size, --sync-servers,
    --sync-workers, --sync-job; other arguments are left alone; pass sys.argv[1:] to have them read), then the variables
    LINNET_ROLE, LINNET_RANK, LINNET_WORLD_SIZE, LINNET_SERVERS, LINNET_WORKERS, LINNET_JOB (what `linnet launch` sets).
    Where none of them gives role, rank or world size, these come from the first launcher that `env` (default: os.environ)
    shows: TF_CONFIG; RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, LOCAL_RANK (torchrun) or PET_*; OMPI_COMM_WORLD_*,
    PMI_*, PMIX_*; SLURM_*; else it is one process.
    A job of several workers without a server of its own has one in worker 0 (`hosts_server`).
    Lists of addresses are sequences, or text with commas.

    Raises UsageError that names the variable, its value and what was expected, when settings are malformed or contradict.
    """
    from linnet.sync import launchers

    env = os.environ if env is None else env
    direct: dict[str, Any] = {
        "role": role, "rank": rank, "world_size": world_size, "servers": servers, "workers": workers, "job": job,
    }  # fmt: skip
    given = {name: value for name, value in direct.items() if value is not None}
    settings = {**launchers.from_linnet(env), **_from_flags(argv), **given}
    for name in ("servers", "workers"):
        if name in settings:
            value = settings[name]
            settings[name] = tuple(launchers.split_list(value) if isinstance(value, str) else value)
    if {"role", "rank", "world_size"} & settings.keys():
        return _explicit(settings, env)
    found = launchers.detect(env, servers=settings.get("servers"))
    if found is None:
        found = Cluster()
    if "servers" in settings:
        settings["hosts_server"] = False  # a server of its own is there already
    return dataclasses.replace(found, **settings)


def _explicit(settings: dict[str, Any], env: Mapping[str, str]) -> Cluster:
    """The place that flags or LINNET_* say; launchers are not asked, but MASTER_ADDR is for a server in worker 0."""
    from linnet.sync import launchers

    settings.setdefault("source", "flags or LINNET_*")
    settings.setdefault("role", "worker")
    workers = settings.get("workers", ())
    world = settings.setdefault("world_size", max(1, len(workers)))
    count = len(settings.get("servers", ())) if settings["role"] == "server" else world
    if "rank" not in settings and count > 1 and settings["role"] != "chief":
        raise UsageError(
            "which of them is this process?", code=101, tensor="rank", expected=f"0 to {count - 1}", got="nothing",
            hint="set LINNET_RANK, or give rank=",
        )  # fmt: skip
    settings.setdefault("rank", 0)
    if world > 1 and not settings.get("servers") and settings["role"] in ("worker", "chief"):
        # As with other launchers of equal processes: worker 0 has the server.
        here = settings.get("job") if settings.get("local_size") == world else None
        hosted = launchers.local_socket(here) if here else launchers.master(env)
        if hosted is not None:
            settings.update(servers=(hosted,), hosts_server=settings["rank"] == 0)
    return Cluster(**settings)


def _from_flags(argv: Sequence[str]) -> dict[str, Any]:
    """What --sync-* flags among `argv` say; other arguments are not looked at."""

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> Any:
            raise UsageError(message, code=101, tensor="command line")

    parser = Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--sync-role", dest="role")
    parser.add_argument("--sync-rank", dest="rank", type=int)
    parser.add_argument("--sync-world-size", dest="world_size", type=int)
    parser.add_argument("--sync-servers", dest="servers")
    parser.add_argument("--sync-workers", dest="workers")
    parser.add_argument("--sync-job", dest="job")
    found, _ = parser.parse_known_args(list(argv))
    return {name: value for name, value in vars(found).items() if value is not None}
