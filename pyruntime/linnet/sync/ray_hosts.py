"""Lends machines of a Ray cluster: actors run linnet-host, and the names of these hosts are devices for Session. Values travel
over linnet's own sockets, never through Ray."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final

import ray

from linnet.clib.errors import SyncError, UsageError
from linnet.sync.launchers import host_name, local_socket
from linnet.sync.ray import key_file, machine, room

# linnet-host in the place of this interpreter. On Linux it ends with the actor, also if the actor is killed.
_PROGRAM: Final = (
    "import ctypes, sys\n"
    "if sys.platform == 'linux': ctypes.CDLL(None).prctl(1, 9)\n"
    "from linnet.cli.native import become\n"
    "become('linnet-host', sys.argv[1:])\n"
)


class _Host:
    """An actor with one linnet-host."""

    def __init__(self) -> None:
        self._running: subprocess.Popen[str] | None = None

    def start(self, options: Sequence[str], key: bytes, name: str, local: bool) -> str:
        """Starts it, and returns the address at which it listens."""
        address = local_socket(name) if local else f"{machine()}:0"
        with key_file(b"" if local else key) as path:
            secret = ["--key", path] if path else []
            command = [sys.executable, "-c", _PROGRAM, "--listen", address, *secret, *options]
            self._running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert self._running.stdout is not None
            line = self._running.stdout.readline().split()
        if line[:1] != ["listening"]:
            raise SyncError(
                "linnet-host did not start", code=601, tensor=address, got=f"exit status {self._running.wait()}",
                hint="the log of the Ray worker on this machine has its message",
            )  # fmt: skip
        return line[1]

    def stop(self) -> None:
        if self._running is not None:
            self._running.terminate()
            self._running.wait()


class Hosts:
    """Machines of the Ray cluster that ray.init() has joined, which lend themselves: linnet-host runs on each.

    count: number of hosts.
    options: of each linnet-host, such as ("--threads", "4", "--max-bytes", "2GB").
    cpus, resources: what Ray reserves for each.
    placement: "SPREAD" over machines or "PACK".
    room_within: the cluster must provide the resources within this many seconds.
    local: whether hosts and this process are on one machine; None: true if the cluster has only one machine. Then they use
        Unix sockets. Otherwise they use TLS with a key that this object generates, at the machine's address known to Ray, or
        at LINNET_HOST. Leaving the `with` block ends the hosts.
    A host that is lost is not replaced. Raises UsageError, ResourceError if the cluster lacks the resources, and SyncError
    if a host does not start.
    """

    names: tuple[str, ...]
    """The devices, such as "remote:10.0.0.7:40123,key=/tmp/linnet-key-x". Only this machine has the key's file."""

    def __init__(
        self, count: int = 1, *, options: Sequence[str] = (), cpus: float = 1.0,
        resources: Mapping[str, float] | None = None, placement: str = "SPREAD", room_within: float = 60.0,
        local: bool | None = None,
    ) -> None:  # fmt: skip
        if count < 1 or placement not in ("SPREAD", "PACK"):
            raise UsageError(
                "count or placement is out of range", code=101, tensor="count",
                expected="at least 1 host, and SPREAD or PACK", got=f"{count!r} and {placement!r}",
            )  # fmt: skip
        if not ray.is_initialized():
            raise UsageError("no Ray cluster is connected", code=101, hint="call ray.init() first")
        here = sum(node["Alive"] for node in ray.nodes()) == 1 if local is None else local
        reserved = {"num_cpus": cpus, "resources": dict(resources or {})}
        self._ending = contextlib.ExitStack()
        with contextlib.ExitStack() as failed:
            failed.callback(self.close)
            group = room([{"CPU": cpus, **dict(resources or {})}] * count, placement, room_within)
            if group is not None:
                self._ending.callback(ray.util.remove_placement_group, group)
            key, job = secrets.token_bytes(32), f"ray-{secrets.token_hex(8)}"
            path = self._ending.enter_context(key_file(b"" if here else key))
            actors = [self._actor(group, i, reserved) for i in range(count)]
            starts = [
                actor.start.remote(tuple(options), key, f"{job}/host/{i}", here) for i, actor in enumerate(actors)
            ]
            try:
                self.names = tuple(host_name(address, path) for address in ray.get(starts))
            except ray.exceptions.RayTaskError as error:
                raise error.cause if isinstance(error.cause, SyncError) else error from None
            failed.pop_all()

    def _actor(self, group: Any, index: int, reserved: dict[str, Any]) -> Any:
        options = dict(reserved)
        if group is not None:
            options["scheduling_strategy"] = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
                group, placement_group_bundle_index=index
            )
        actor = ray.remote(_Host).options(**options).remote()
        self._ending.callback(ray.kill, actor)
        self._ending.callback(self._stop, actor)
        return actor

    @staticmethod
    def _stop(actor: Any) -> None:
        with contextlib.suppress(ray.exceptions.RayError):  # it is lost already
            ray.get(actor.stop.remote())

    def __enter__(self) -> Hosts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the hosts."""
        self._ending.close()
