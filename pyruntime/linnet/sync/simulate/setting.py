"""The input of a simulation: the traffic of a model's step, the links and servers, and the mode of training.
All sizes are in bytes, all times in seconds, all rates in bytes per second."""

from __future__ import annotations

import dataclasses
import math

from linnet.clib.errors import UsageError
from linnet.sync.simulate.compute import Compute

TCP = 0.94  # fraction of the line rate that TCP carries in 1500-byte Ethernet frames: 1448 of 1538 bytes
GBIT = 1.25e8


@dataclasses.dataclass(frozen=True)
class Traffic:
    """What one worker transfers in one step, over all servers together.

    pull, push: bytes of dense parameters received and of dense gradients sent, as uncompressed f32.
    rows, row_bytes: for tables of which only touched rows are transferred: the number of different rows per step, and
        bytes per row.
    table: bytes of the tables. It does not affect the result, because only touched rows are transferred.
    examples: number of examples in one worker's step.
    pull_ratio, push_ratio: compressed size divided by uncompressed size (f16: 0.5, int8: about 0.25).
    largest: fraction of the bytes on the server that has most of them; None: evenly spread.
    """

    pull: float = 1e8
    push: float = 1e8
    rows: float = 0
    row_bytes: float = 0
    table: float = 0
    examples: float = 32
    pull_ratio: float = 1.0
    push_ratio: float = 1.0
    largest: float | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise UsageError(
                    "a size or ratio must be finite and not negative", code=101, tensor=field.name, got=value
                )

    @property
    def down(self) -> float:
        """Bytes sent to a worker in a step."""
        return (self.pull + self.rows * self.row_bytes) * self.pull_ratio

    @property
    def up(self) -> float:
        """Bytes sent by a worker in a step: gradients, and a 4-byte id for each row, once to request it and once with
        its gradient."""
        return (self.push + self.rows * self.row_bytes) * self.push_ratio + 8 * self.rows


_RATIOS = {"none": 1.0, "f16": 0.5, "bf16": 0.5, "i8": (1 + 4 / 256) / 4, "1bit": (1 / 8 + 8 / 1024) / 4}


def ratio(compression: str, parameters: bool = False) -> float:
    """Transferred bytes per byte of f32, for the encodings of docs/protocol.md: none, f16, bf16, i8, 1bit, topk:SHARE
    (two bytes per value and a varint for its position), or a number. parameters: if true, of the names only none, f16
    and bf16 are accepted, because values can be pulled only in these."""
    name, _, rest = compression.partition(":")
    try:
        if name == "topk" and not parameters:
            share = float(rest)
            gap = 1 if share > 0.02 else 2 if share > 1e-4 else 3
            found = share * (2 + gap) / 4
        else:
            named = name in _RATIOS and not (parameters and name in ("i8", "1bit"))
            found = _RATIOS[name] if named else float(compression)
    except ValueError:
        found = -1.0
    if not 0 < found <= 1:
        expected = "none, f16, bf16, " + ("" if parameters else "i8, topk:SHARE, 1bit, ") + "or a ratio in (0, 1]"
        raise UsageError("unknown compression", code=101, expected=expected, got=compression)
    return found


@dataclasses.dataclass(frozen=True)
class Hardware:
    """Machines and links. All servers are alike, and each worker talks to all of them at once. The default server costs
    are those of linnet, measured with `measure.costs` on two cores of an x86 server over loopback. `apply` is the cost
    of Adam; SGD takes a third of it.

    workers, servers: number of each.
    latency: seconds in one direction.
    worker_rate, server_rate: rate of a port in each direction (full duplex), without TCP's overhead.
    sharing: how workers share a server's port: "fair" (TCP) or "fifo" (one worker after another).
    message: seconds of a server's single thread per message.
    worker_message: seconds of a worker per message to or from a server.
    receive, send: seconds of a server's thread per byte received and sent. With a barrier over all workers, the thread
        works while bytes arrive, so the slower one of port and thread determines the time.
    aggregate: seconds per byte of a complete push.
    apply: seconds per byte of dense parameters when a barrier closes.
    row: seconds per row looked up or updated.
    overhead: seconds of a step on the worker outside of computation.
    overlap: fraction of the computation during which transfers continue, from 0 (none, as in linnet) to 1. With 1, each
        layer is sent as soon as it is ready: the pull may continue during the first third of the computation, and the
        push may start at the end of that third.
    """

    workers: int = 8
    servers: int = 1
    latency: float = 50e-6
    worker_rate: float = 10 * GBIT * TCP
    server_rate: float = 10 * GBIT * TCP
    sharing: str = "fair"
    message: float = 10e-6
    worker_message: float = 10e-6
    receive: float = 0.52e-9
    send: float = 0.42e-9
    aggregate: float = 0.15e-9
    apply: float = 0.5e-9
    row: float = 0.05e-6
    overhead: float = 0.0
    overlap: float = 0.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "sharing":
                continue
            least = 1 if field.name in ("workers", "servers") else 0
            if not (math.isfinite(value) and value >= least):
                raise UsageError(
                    "the value is out of range",
                    code=101,
                    tensor=field.name,
                    expected=f"a finite number of at least {least}",
                    got=value,
                )
        if min(self.worker_rate, self.server_rate) <= 0:
            raise UsageError(
                "the data rate of a port must be above 0", code=101, got=f"{self.worker_rate}, {self.server_rate}"
            )
        if self.overlap > 1:
            raise UsageError("overlap is out of range", code=101, expected="0 to 1", got=str(self.overlap))
        if self.sharing not in ("fair", "fifo"):
            raise UsageError("unknown sharing of a port", code=101, expected="fair or fifo", got=self.sharing)


MODES = ("synchronous", "asynchronous", "groups", "federated", "ring", "tree")


@dataclasses.dataclass(frozen=True)
class Mode:
    """How workers synchronize.

    kind: "synchronous" (one barrier), "asynchronous" (none), "groups" (one barrier in each of `groups`), "federated"
        (synchronous with `local_steps` in between), "ring" (all-reduce without a server), "tree" (synchronous through
        aggregators of `fan_in` workers each).
    backup: number of workers of a barrier that may be late; their gradients are dropped.
    late: "skip": if a worker knows that its step is closed, it does not send its gradient (linnet). "drop": it sends
        the gradient and the server drops it (TensorFlow).
    staleness: how many closed steps a worker or group may be ahead of the slowest; None: no limit.
    """

    kind: str = "synchronous"
    backup: int = 0
    late: str = "skip"
    staleness: int | None = None
    groups: int = 1
    local_steps: int = 1
    fan_in: int = 32

    def __post_init__(self) -> None:
        if self.kind not in MODES:
            raise UsageError("unknown mode", code=101, expected=", ".join(MODES), got=self.kind)
        if self.late not in ("skip", "drop"):
            raise UsageError("unknown rule for late workers", code=101, expected="skip or drop", got=self.late)
        for name, least in (("backup", 0), ("groups", 1), ("local_steps", 1), ("fan_in", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} must be at least {least}", code=101, got=str(getattr(self, name)))
        if self.staleness is not None and self.staleness < 0:
            raise UsageError("staleness must be at least 0, or None for no limit", code=101, got=str(self.staleness))
        if self.backup and self.kind in ("asynchronous", "ring", "tree"):
            raise UsageError(
                f"mode {self.kind} does not support backup workers",
                code=101,
                hint="use synchronous, groups or federated",
            )
        if self.local_steps > 1 and self.kind != "federated":
            raise UsageError(
                "only mode federated has local steps", code=101, got=f"{self.local_steps} in mode {self.kind}"
            )

    def members(self, workers: int) -> list[int]:
        """Number of workers of each barrier."""
        if self.kind == "asynchronous":
            return [1] * workers
        count = self.groups if self.kind == "groups" else 1
        sizes = [workers // count + (i < workers % count) for i in range(count)]
        if min(sizes) <= self.backup:
            raise UsageError(
                "each barrier needs more workers than backup workers", code=101, expected=f"more than {self.backup} "
                                                                                    "workers in each",
                got=f"{min(sizes)}",
            )  # fmt: skip
        return sizes


@dataclasses.dataclass(frozen=True)
class Setting:
    """One simulation: computation times, traffic, links and mode."""

    compute: Compute = dataclasses.field(default_factory=Compute)
    traffic: Traffic = dataclasses.field(default_factory=Traffic)
    hardware: Hardware = dataclasses.field(default_factory=Hardware)
    mode: Mode = dataclasses.field(default_factory=Mode)

    def shard(self) -> Shard:
        """One worker's step as seen by the server that has the most bytes."""
        c, t = self.hardware, self.traffic
        share = max(1.0 / c.servers, t.largest or 0.0)
        rows = t.rows * share
        asks = 1 if t.rows else 0  # rows are requested in a separate message once the batch is known
        # With a barrier over all workers, bytes flow in one direction at a time, and the thread keeps up with the port
        # or slows it down. In other modes bytes flow in both directions at once, and the thread handles them one after
        # another.
        together = self.mode.kind not in ("asynchronous", "groups")
        handle, reply = (c.aggregate, 0.0) if together else (c.receive + c.aggregate, c.send)
        return Shard(
            up=t.up * share,
            down=t.down * share,
            cap=c.worker_rate * share,
            rate_in=min(c.server_rate, 1 / max(c.receive, 1e-15)) if together else c.server_rate,
            rate_out=min(c.server_rate, 1 / max(c.send, 1e-15)) if together else c.server_rate,
            handle=c.message + rows * c.row + t.up * share * handle,
            reply=(1 + asks) * c.message + rows * c.row + t.down * share * reply,
            apply=t.push * share * c.apply,
            drop=c.message,
            way_up=c.latency + c.servers * c.worker_message,
            way_down=c.latency + c.servers * c.worker_message + asks * 2 * c.latency,
        )


@dataclasses.dataclass(frozen=True)
class Shard:
    """One worker's step at one server: bytes in each direction; the rate that the worker's port gives to this server;
    the rates at which the server receives and sends; seconds of the server's thread to handle a push, to reply, to
    apply what a barrier collected, and to drop a late push; seconds in transit in each direction."""

    up: float
    down: float
    cap: float
    rate_in: float
    rate_out: float
    handle: float
    reply: float
    apply: float
    drop: float
    way_up: float
    way_down: float
