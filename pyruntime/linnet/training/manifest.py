"""manifest.json: everything that a run's result depends on, and where it ran. The entries under "run" must stay the
same when the run is resumed."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from linnet.clib.errors import UsageError
from linnet.clib.library import library
from linnet.session.model import isa_names, string_of
from linnet.session.options import SessionOptions

NAME = "manifest.json"


def _git() -> dict[str, Any] | None:
    """Git revision of the working directory, and whether files differ from it. None outside a git repository."""
    found = []
    for command in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no")):
        try:
            done = subprocess.run(("git", *command), capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        if done.returncode:
            return None
        found.append(done.stdout.strip())
    return {"revision": found[0], "changed": bool(found[1])}


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def describe(run: dict[str, Any], options: SessionOptions) -> dict[str, Any]:
    """The manifest of a new run."""
    return {
        "run": run,
        "started": _now(),
        "resumed": [],
        "arguments": sys.argv,
        "git": _git(),
        "versions": {
            "linnet": string_of(library().linnet_version()), "numpy": np.__version__, "python": platform.python_version(),
        },
        "machine": {
            "host": platform.node(), "system": platform.platform(), "processor": platform.machine(),
            "cores": os.cpu_count(), "isa": isa_names()[-1], "threads": options.threads,
            "devices": options.device_names,
        },
    }  # fmt: skip


def write(directory: Path, content: dict[str, Any]) -> None:
    part = directory / f"{NAME}.part"
    part.write_text(json.dumps(content, indent=2) + "\n")
    part.replace(directory / NAME)


def resume(directory: Path, run: dict[str, Any], step: int, options: SessionOptions) -> dict[str, Any]:
    """Reads the existing manifest and adds a note that the run is resumed. Raises UsageError if `run` describes another
    run."""
    try:
        content: dict[str, Any] = json.loads((directory / NAME).read_text())
        before: dict[str, Any] = content["run"]
        content["resumed"].append({"step": step, "at": _now(), "devices": options.device_names})
        if not isinstance(before, dict):
            raise TypeError("'run' is no object")
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise UsageError(
            f"cannot read the run's description in '{directory / NAME}': {error}", code=101, tensor=str(directory),
            hint="resume from a checkpoint into another directory: resume='.../checkpoint-N.lnt'",
        ) from None  # fmt: skip
    differ = [key for key in run if before.get(key) != run[key]]
    if differ:
        raise UsageError(
            f"the run in '{directory}' cannot be resumed because these settings changed: {', '.join(differ)}",
            code=101,
            tensor=differ[0],
            expected=", ".join(f"{key} {before.get(key)!s:.80}" for key in differ),
            got=", ".join(f"{key} {run[key]!s:.80}" for key in differ),
            hint="use the original settings, or start another run from its checkpoint in another directory",
        )
    return content
