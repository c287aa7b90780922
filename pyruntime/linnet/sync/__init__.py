"""Training on several machines: the signatures that workers and servers run, the files of several servers, and the
processes themselves. Each part is imported when it is first used. No module here has the same name as something that
the package exports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from linnet.clib.arguments import checked as _checked

if TYPE_CHECKING:
    from linnet.sync.compression import Compression
    from linnet.sync.contract import signatures
    from linnet.sync.link import Link, status
    from linnet.sync.merging import merge
    from linnet.sync.ring import Ring
    from linnet.sync.ring_training import RingTrainer
    from linnet.sync.server import Server
    from linnet.sync.sharding import Parts, shard
    from linnet.sync.strategy import Strategy
    from linnet.sync.timeline import Timeline
    from linnet.sync.worker import LinkInfo, Worker, WorkerInfo

_LAZY: dict[str, str] = {
    # Name -> module. Graphs and files:
    "Parts": "sharding",
    "Strategy": "strategy",
    "merge": "merging",
    "shard": "sharding",
    "signatures": "contract",
    #
    # Server and worker:
    "Compression": "compression",
    "Link": "link",
    "LinkInfo": "worker",
    "Ring": "ring",
    "RingTrainer": "ring_training",
    "Server": "server",
    "Worker": "worker",
    "WorkerInfo": "worker",
    "status": "link",
    #
    # Cluster and launching:
    "Cluster": "roles",
    "cluster": "place",
    #
    # Observing and predicting (linnet.sync.simulate is a package of its own):
    "Timeline": "timeline",
}

__all__ = [
    "Compression",
    "Link",
    "LinkInfo",
    "Parts",
    "Ring",
    "RingTrainer",
    "Server",
    "Strategy",
    "Timeline",
    "Worker",
    "WorkerInfo",
    "merge",
    "shard",
    "signatures",
    "status",
]  # fmt: skip


# Old names, which the next version no longer has.
_RENAMED = {"DeviceSpec": "linnet.DeviceSpec", "join": "linnet.sync.merge", "partition": "linnet.sync.shard"}


def __getattr__(name: str) -> Any:
    import importlib
    import warnings

    if name in _RENAMED:
        place, _, new = _RENAMED[name].rpartition(".")
        warnings.warn(f"linnet.sync.{name} is now {place}.{new}", DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(place), new)
    if name not in _LAZY:
        raise AttributeError(f"module 'linnet.sync' has no attribute {name!r}")
    value = _checked(getattr(importlib.import_module(f"linnet.sync.{_LAZY[name]}"), name), f"linnet.sync.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
