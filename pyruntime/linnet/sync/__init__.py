"""Variables of many machines in step: the signatures that workers and servers run, the files of several servers, and the
processes themselves. Each part is imported when it is first used; a module here never has the name of what it gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from linnet.sync.contract import signatures

_LAZY: dict[str, str] = {
    # Name -> module. Graphs and files:
    "signatures": "contract",
    #
    # Server and worker:
    "Compression": "compression",
    "Ring": "ring",
    #
    # Cluster and launching:
    "Cluster": "roles",
    "cluster": "roles",
    "DeviceSpec": "devices",
    #
    # To see it, to predict it:
    #
}

__all__ = [
    "signatures",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    import importlib

    if name not in _LAZY:
        raise AttributeError(f"module 'linnet.sync' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"linnet.sync.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
