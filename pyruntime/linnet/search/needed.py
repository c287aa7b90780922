"""Imports Optuna, and says how to get it where it is not installed. The other modules of the package take it from here.
Its messages about each trial are left out, because linnet prints its own."""

from __future__ import annotations

from linnet.clib.errors import UsageError

try:
    import optuna
except ImportError as failure:
    raise UsageError(
        "the package optuna is not installed", code=101, hint="pip install 'linnet-runtime[search]'"
    ) from failure

__all__ = ["optuna"]

optuna.logging.set_verbosity(optuna.logging.WARNING)
