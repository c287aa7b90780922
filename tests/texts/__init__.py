"""Finds what the sources say to people: error texts, help texts and comments, of C and of Python.
Texts are found by parsing whole folders, so a source that moves is found where it moved to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = ("runtime_c", "kernels_x86", "kernels_arm", "kernels_gpu", "pyruntime", "converters", "schema", "examples")
PARTS = ("expected", "got", "hint", "reason", "why")  # what may follow the first text of an error
GENERATED = {"generated", "_generated"}


@dataclass(frozen=True)
class Text:
    """One text. `kind` is "error", "help" or "comment"; `what` is the code, exception or function that it goes to."""

    path: str
    line: int
    kind: str
    what: str
    text: str

    def __str__(self) -> str:
        body = self.text.replace("\n", "\n        ")
        return f"{self.path}:{self.line}  {self.what}: {body}" if self.what else f"{self.path}:{self.line}  {body}"


def sources(*endings: str, folders: tuple[str, ...] = FOLDERS) -> list[Path]:
    """The hand-written sources below the folders, in order of their paths."""
    return sorted(
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.name.endswith(endings) and not GENERATED & set(path.parts) and path.is_file()
    )


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
