"""Installs each engine's environment from requirements.toml, in ~/.cache/linnet/peers/environments, and finds its Python.
An environment is installed once; it is installed again when its requirements change."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

REQUIREMENTS = Path(__file__).with_name("requirements.toml")
_TIMEOUT_S = 1800


class Unavailable(Exception):
    """An engine cannot be installed or cannot run a network; the text says why."""


def home() -> Path:
    """The folder of everything that the peers need: `$XDG_CACHE_HOME/linnet/peers`, or ~/.cache/linnet/peers."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "linnet" / "peers"


def requirements() -> dict[str, dict[str, list[str]]]:
    """The packages of each environment."""
    found: dict[str, dict[str, list[str]]] = tomllib.loads(REQUIREMENTS.read_text())
    common = found.pop("all")["packages"]
    return {name: {**entry, "packages": common + entry["packages"]} for name, entry in found.items()}


def program(name: str, what: str = "python") -> Path:
    """Path of a program of an environment."""
    return home() / "environments" / name / "bin" / what


def install(name: str) -> dict[str, Any]:
    """Installs an environment unless it is there. Returns what it took: seconds, megabytes, and the version of each package."""
    wanted = requirements().get(name)
    if wanted is None:
        raise Unavailable(f"{REQUIREMENTS.name} has no environment {name}")
    digest = hashlib.sha256(json.dumps([wanted, sys.version_info[:2]]).encode()).hexdigest()[:16]
    folder = home() / "environments" / name
    record = folder / "installed.json"
    if record.is_file():
        known: dict[str, Any] = json.loads(record.read_text())
        if known["digest"] == digest:
            return known
    shutil.rmtree(folder, ignore_errors=True)
    start = time.monotonic()
    pip = [str(program(name)), "-m", "pip", "--disable-pip-version-check"]
    _run([sys.executable, "-m", "venv", str(folder)])
    _run([*pip, "install", "--quiet", *wanted["packages"]])
    if wanted.get("alone"):
        _run([*pip, "install", "--quiet", "--no-deps", *wanted["alone"]])
    seconds = time.monotonic() - start
    listed = json.loads(_run([*pip, "list", "--format", "json"]))
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    found = {
        "digest": digest,
        "seconds": round(seconds, 1),
        "megabytes": round(size / 1e6),
        "packages": {package["name"].lower(): package["version"] for package in listed},
    }
    record.write_text(json.dumps(found, indent=1) + "\n")
    return found


def version(name: str, installed: dict[str, Any]) -> str:
    """The version of the engine: that of the first package which only its environment has."""
    package = requirements()[name]["packages"][1].split("==")[0]
    return str(installed["packages"].get(package.lower(), "?"))


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"cannot be installed: {error}") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip() and "WARNING" not in line]
        raise Unavailable(f"cannot be installed: {lines[-1] if lines else done.returncode}")
    return done.stdout
