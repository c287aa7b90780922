"""The list of mutations, one TOML file per part of the system. Each is a plausible fault, with the names of the tests that notice
it. `python -m tests.mutate` applies them one by one."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

PARTS = ("core", "ops", "kernels", "sync", "converters", "training")


@dataclass(frozen=True)
class Mutation:
    """Replaces the text `old`, which occurs once in `file`, by `new`.

    `tests`: c:NAME for a C test program, else a pytest node id. `needs`: features that the processor must have, as named in
    /proc/cpuinfo. `why`: what goes wrong for a user."""

    id: str
    part: str
    file: str
    old: str
    new: str
    why: str
    tests: tuple[str, ...]
    needs: tuple[str, ...] = field(default=())


def load(folder: Path | None = None) -> list[Mutation]:
    """All mutations, by part, in the order of their files."""
    found = []
    for part in PARTS:
        path = (folder or Path(__file__).parent) / f"{part}.toml"
        if not path.exists():
            continue
        for entry in tomllib.loads(path.read_text()).get("mutation", []):
            entry["tests"] = tuple(entry["tests"])
            entry["needs"] = tuple(entry.get("needs", ()))
            found.append(Mutation(part=part, **entry))
    return found
