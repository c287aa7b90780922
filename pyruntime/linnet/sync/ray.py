"""Runs a job on a Ray cluster (`pip install 'linnet-runtime[ray]'`): actors run its workers and servers, restart them when they
are lost, and add or remove workers. Parameters and gradients travel over linnet's own sockets, never through Ray."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from linnet.clib.errors import Error, ResourceError, SyncError, UsageError
from linnet.sync.launchers import local_socket
from linnet.sync.roles import Cluster

try:
    import ray
except ImportError as failure:
    raise UsageError(
        "the package ray is not installed", code=101, hint="pip install 'linnet-runtime[ray]'"
    ) from failure

Function = Callable[[Cluster], Any]
_POLL: Final = 0.05  # seconds between polls of the directory


class _Directory:
    """An actor that knows the servers' addresses. A restarted server registers its new address here."""

    def __init__(self, servers: int) -> None:
        self._addresses: list[str | None] = [None] * servers

    def put(self, server: int, address: str) -> None:
        self._addresses[server] = address

    def addresses(self) -> list[str | None]:
        return self._addresses


class _Process:
    """An actor that is a worker or a server. After a restart, Ray calls `run` again in a new process."""

    def run(self, function: Function, place: Mapping[str, Any], directory: Any, key: bytes, local: bool) -> Any:
        """Calls `function` with this process's Cluster and returns its result. Calls it again if servers were lost and
        have new addresses."""
        host_of = int(place["rank"]) if place["role"] == "server" else 0 if place["hosts_server"] else None
        if host_of is not None:
            known = ray.get(directory.addresses.remote())[host_of]
            ray.get(directory.put.remote(host_of, _own_address(known, f"{place['job']}/{host_of}", local)))
        with key_file(b"" if local else key) as path:
            while True:
                servers = _wait_for(directory)
                cluster = Cluster(**{**place, "servers": servers, "key_file": path, "source": "linnet.ray"})
                try:
                    return function(cluster)
                except SyncError:
                    if _wait_for(directory) == servers:
                        raise


def machine() -> str:
    """The address of this machine at which others reach it."""
    return os.environ.get("LINNET_HOST") or str(ray.util.get_node_ip_address())


def _own_address(known: str | None, name: str, local: bool) -> str:
    """An address where a server can listen. If all processes are on one machine, this is a Unix socket. Otherwise, it
    is this node's address with the port that it had before, or with a free port."""
    if local:
        return local_socket(name)
    host = machine()
    ports = [int(known.rpartition(":")[2])] if known is not None and known.rpartition(":")[0] == host else []
    for port in [*ports, 0]:
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            return f"{host}:{probe.getsockname()[1]}"
    raise SyncError("no port is available for listening", tensor=host)


def _wait_for(directory: Any, seconds: float = 60) -> tuple[str, ...]:
    end = time.monotonic() + seconds
    while None in (found := ray.get(directory.addresses.remote())):
        if time.monotonic() > end:
            raise SyncError(
                "a server of the job did not start in time", code=601, tensor=f"server {found.index(None)}",
                hint="ray status shows what the cluster is waiting for",
            )  # fmt: skip
        time.sleep(_POLL)
    return tuple(found)


@contextlib.contextmanager
def key_file(key: bytes) -> Any:
    """A context in which a file with the job's key exists. Gives the file's path, or "" if there is no key."""
    if not key:
        yield ""
        return
    descriptor, path = tempfile.mkstemp(prefix="linnet-key-")  # created with mode 0600
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(key.hex())
        yield path
    finally:
        Path(path).unlink(missing_ok=True)


def room(bundles: list[dict[str, float]], placement: str, timeout: float) -> Any:
    """A placement group: either all processes get their resources or none starts."""
    bundles = [{name: amount for name, amount in bundle.items() if amount} for bundle in bundles]
    if not all(bundles):  # no resources are requested
        return None
    group = ray.util.placement_group(bundles, strategy=placement)
    if not group.wait(timeout):
        ray.util.remove_placement_group(group)
        has = ray.cluster_resources()
        raise ResourceError(
            f"the Ray cluster could not provide the job's resources within {timeout:g} s", tensor="cpus",
            expected=f"{sum(b.get('CPU', 0) for b in bundles):g} CPUs for {len(bundles)} processes",
            got=f"{ray.available_resources().get('CPU', 0):g} free of {has.get('CPU', 0):g}",
            hint="start fewer processes, lower cpus=, or add machines",
        )  # fmt: skip
    return group


class Job:
    """The workers and servers of one training job, on the Ray cluster that ray.init() has joined.

    function: called in every process with its linnet.sync.Cluster, for example `lambda cluster: linnet.fit(...,
        cluster=cluster)`. It is sent with Ray's pickle, only to this cluster.
    workers, servers: number of each; if there are no servers, worker 0 runs the server.
    max_restarts: how often a lost process (killed, or its machine lost) is restarted with the same rank. If `function`
        raises an exception, the process is not restarted.
    cpus, server_cpus: CPUs that Ray reserves for each.
    resources: further resources of each worker.
    placement: "SPREAD" over machines or "PACK".
    room_within: the cluster must provide the resources within this many seconds.
    local: whether all processes are on one machine; None: true if the cluster has only one machine. On a single-machine
        cluster, processes use Unix sockets. Otherwise they use TLS with a key that the job generates, at the machine's
        address known to Ray. Set LINNET_HOST on a machine to use another of its networks. Leaving the `with` block ends
        every process.
    Raises UsageError. Raises ResourceError if the cluster lacks the resources.
    """

    def __init__(
        self, function: Function, *, workers: int = 1, servers: int = 0, max_restarts: int = 3, cpus: float = 1.0,
        server_cpus: float = 1.0, resources: Mapping[str, float] | None = None, placement: str = "SPREAD",
        room_within: float = 60.0, local: bool | None = None,
    ) -> None:  # fmt: skip
        if workers < 1 or servers < 0 or max_restarts < 0:
            raise UsageError(
                "workers, servers or max_restarts is out of range",
                code=101,
                tensor="workers",
                expected="at least 1 worker, 0 servers and 0 restarts",
                got=repr(workers),
            )
        if placement not in ("SPREAD", "PACK"):
            raise UsageError(
                "unknown placement", code=101, tensor="placement", expected="SPREAD or PACK", got=repr(placement)
            )
        if not ray.is_initialized():
            raise UsageError("no Ray cluster is connected", code=101, hint="call ray.init() first")
        self._function, self._restarts = function, max_restarts
        self._name, self._key = f"ray-{secrets.token_hex(8)}", secrets.token_bytes(32)
        self._local = sum(node["Alive"] for node in ray.nodes()) == 1 if local is None else local
        self._cpus, self._resources, self._servers = cpus, dict(resources or {}), servers
        bundles = [{"CPU": server_cpus}] * servers + [{"CPU": cpus, **self._resources}] * workers
        self._group = room(bundles, placement, room_within)
        self._directory = ray.remote(_Directory).options(num_cpus=0).remote(max(1, servers))
        self._actors: dict[tuple[str, int], Any] = {}
        self._runs: dict[tuple[str, int], Any] = {}
        for i in range(servers):
            self._start("server", i, workers, i)
        for i in range(workers):
            self._start("worker", i, workers, servers + i)

    def _start(self, role: str, rank: int, world_size: int, bundle: int | None) -> None:
        options: dict[str, Any] = {"max_restarts": self._restarts, "max_task_retries": self._restarts, "num_cpus": 0}
        if self._group is not None and bundle is not None:
            options["scheduling_strategy"] = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
                self._group, placement_group_bundle_index=bundle
            )
        if role == "worker":
            options |= {"num_cpus": self._cpus, "resources": self._resources}
        elif self._group is not None:
            options["num_cpus"] = self._group.bundle_specs[bundle].get("CPU", 0)
        place = {
            "role": role, "rank": rank, "world_size": world_size, "job": self._name,
            "hosts_server": role == "worker" and rank == 0 and not self._servers,
        }  # fmt: skip
        actor = ray.remote(_Process).options(**options).remote()
        self._actors[role, rank] = actor
        self._runs[role, rank] = actor.run.remote(self._function, place, self._directory, self._key, self._local)

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def workers(self) -> int:
        """Number of workers."""
        return sum(role == "worker" for role, _ in self._actors)

    @property
    def servers(self) -> tuple[str, ...]:
        """Addresses of the servers."""
        return _wait_for(self._directory)

    def actor(self, role: str, rank: int) -> Any:
        """The Ray actor of a process."""
        if (role, rank) not in self._actors:
            raise UsageError(
                "the job has no such process", code=102, tensor=f"{role} {rank}", expected=str(sorted(self._actors))
            )
        return self._actors[role, rank]

    def scale(self, workers: int) -> None:
        """Changes the number of workers. New workers get the next ranks and join at the next step. If the number falls,
        the workers with the highest ranks are removed at once; to continue without them, servers must be elastic
        (linnet.sync.Strategy)."""
        if workers < 1:
            raise UsageError(
                "a job needs at least one worker", code=101, tensor="workers", expected="1 or more", got=repr(workers)
            )
        for rank in range(self.workers, workers):
            self._start("worker", rank, workers, None)
        for rank in range(self.workers - 1, workers - 1, -1):
            self._end("worker", rank)

    def _end(self, role: str, rank: int) -> None:
        actor, _ = self._actors.pop((role, rank)), self._runs.pop((role, rank))
        ray.kill(actor, no_restart=True)

    def wait(self, timeout: float | None = None) -> list[Any]:
        """Waits until all workers have ended and returns the results of `function` by rank. Servers then get some
        seconds to exit as well. Raises the exception of `function`, or SyncError if a process was lost more than
        max_restarts times or the timeout expired."""
        mine = {key: run for key, run in self._runs.items() if key[0] == "worker"}
        end = None if timeout is None else time.monotonic() + timeout
        pending = list(self._runs.values())
        while any(run in pending for run in mine.values()):
            left = None if end is None else max(0.0, end - time.monotonic())
            done, pending = ray.wait(pending, timeout=left)
            if not done:
                raise SyncError(f"the job did not end within {timeout:g} s", code=603)
            for run in done:  # the first failure ends the wait, also that of a server
                self._result(run)
        servers = [run for key, run in self._runs.items() if key[0] == "server"]
        if servers:
            for run in ray.wait(servers, num_returns=len(servers), timeout=20)[0]:
                self._result(run)
        return [self._result(mine[key]) for key in sorted(mine)]

    def _result(self, run: Any) -> Any:
        try:
            return ray.get(run)
        except ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, Error) else error from None
        except ray.exceptions.RayActorError as error:
            name = next(f"{role} {rank}" for (role, rank), one in self._runs.items() if one == run)
            raise SyncError(
                "a process of the job was lost too often",
                code=607,
                tensor=name,
                expected=f"at most {self._restarts} restarts",
                got=" ".join(str(error).split())[:200],
            ) from None

    def close(self) -> None:
        """Ends all remaining processes."""
        for role, rank in list(self._actors):
            self._end(role, rank)
        ray.kill(self._directory)
        if self._group is not None:
            ray.util.remove_placement_group(self._group)
            self._group = None


def run(function: Function, *, timeout: float | None = None, **settings: Any) -> list[Any]:
    """Runs a Job from start to end and returns the result of `function` in each worker. timeout: in seconds; None: no
    limit."""
    with Job(function, **settings) as job:
        return job.wait(timeout)
