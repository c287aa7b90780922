"""Serves models over HTTP by the KServe v2 protocol, as an ASGI application. The command is `linnet serve`.
docs/serving.md describes it; the extra `serve` installs what it needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from linnet.serve.settings import Settings

__all__ = ["Settings", "app"]


def app(models: str | Path | Sequence[str | Path], settings: Settings | None = None) -> Any:
    """An ASGI application that serves .lnt files, and folders with NAME.lnt or NAME/VERSION.lnt. Any ASGI server runs it; its
    lifespan loads and frees the models. Raises UsageError, and ModuleNotFoundError without the extra `serve`."""
    from linnet.serve.application import application

    sources = [models] if isinstance(models, (str, Path)) else list(models)
    return application([Path(source) for source in sources], settings or Settings())
