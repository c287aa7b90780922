"""Finds the place of this process in its job: from arguments, then from flags, then from variables set by launchers
(launchers.py). If nothing is set, this is a single process."""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from linnet.clib.errors import UsageError
from linnet.sync import launchers
from linnet.sync.roles import Cluster


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
    """The place of this process in its job. With this function, one script runs unchanged as a single process or as
    many processes.

    Arguments take precedence. Next are flags in `argv` (--sync-role, --sync-rank, --sync-world-size, --sync-servers,
    --sync-workers, --sync-job; other flags are ignored; pass sys.argv[1:] to use this). Next are the variables
    LINNET_ROLE, LINNET_RANK, LINNET_WORLD_SIZE, LINNET_SERVERS, LINNET_WORKERS, LINNET_JOB, LINNET_DEVICE,
    LINNET_HOSTS (set by `linnet launch`). If none of them gives role, rank or world size, these come from the first
    launcher found in `env` (default: os.environ): TF_CONFIG; RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, LOCAL_RANK
    (torchrun) or PET_*;
    OMPI_COMM_WORLD_*, PMI_*, PMIX_*; SLURM_*. Without a launcher, the process is a single process. In a job with
    several workers and no separate server, worker 0 runs the server (`hosts_server`). Lists of addresses are sequences,
    or comma-separated text.

    Raises UsageError if settings are malformed or contradict each other. The error names the variable, its value and
    what was expected.
    """
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
        return _with_device(_explicit(settings, env))
    found = launchers.detect(env, servers=settings.get("servers"))
    if found is None:
        found = Cluster()
    if "servers" in settings:
        settings["hosts_server"] = False  # there already is a separate server
    return _with_device(dataclasses.replace(found, **settings))


def _with_device(found: Cluster) -> Cluster:
    """The place with its numbers in the name of its device, so that LINNET_DEVICE=cuda:{local_rank} works with every
    launcher."""
    return dataclasses.replace(
        found, local_device=launchers.with_numbers(found.local_device, str(found.rank), str(found.local_rank))
    )


def _explicit(settings: dict[str, Any], env: Mapping[str, str]) -> Cluster:
    """The place given by flags or LINNET_* variables. Launchers are not consulted, except for MASTER_ADDR if worker 0
    runs the server."""
    settings.setdefault("source", "flags or LINNET_*")
    settings.setdefault("role", "worker")
    workers = settings.get("workers", ())
    world = settings.setdefault("world_size", max(1, len(workers)))
    count = len(settings.get("servers", ())) if settings["role"] == "server" else world
    if "rank" not in settings and count > 1 and settings["role"] != "chief":
        raise UsageError(
            "the rank of this process is missing", code=101, tensor="rank", expected=f"0 to {count - 1}", got="nothing",
            hint="set LINNET_RANK, or pass rank=",
        )  # fmt: skip
    settings.setdefault("rank", 0)
    if world > 1 and not settings.get("servers") and settings["role"] in ("worker", "chief"):
        # As with other launchers of equal processes, worker 0 has the server.
        here = settings.get("job") if settings.get("local_size") == world else None
        hosted = launchers.local_socket(here) if here else launchers.master(env)
        if hosted is not None:
            settings.update(servers=(hosted,), hosts_server=settings["rank"] == 0)
    return Cluster(**settings)


def _from_flags(argv: Sequence[str]) -> dict[str, Any]:
    """The settings from --sync-* flags in `argv`. Other arguments are ignored."""

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
