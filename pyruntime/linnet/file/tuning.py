"""Tuning files (docs/tuning.md): text with a header, lines "KEY = KERNEL", and lines "machine RATE = NUMBER". The C
library reads them; `linnet tune` writes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from linnet.clib.errors import FileError
from linnet.file.atomic import write_atomic
from linnet.file.reader import read_bytes

VERSION = 1
_RATE = "machine "


@dataclasses.dataclass(frozen=True)
class Line:
    """The kernel for the calls with this key, and the reason, which is a comment above the line."""

    key: str
    kernel: str
    comment: str = ""


def read(path: str | Path) -> bytes:
    """The text of a tuning file. Raises FileError if it cannot be read."""
    text = read_bytes(Path(path))
    if b"\0" in text:
        raise FileError(
            f"'{path}' is not a tuning file, because it is not text",
            code=206,
            tensor=str(path),
            expected="a file that `linnet tune` wrote",
        )
    return text


def text_of(
    lines: Sequence[Line], library: str, machine: str, threads: int, rates: Mapping[str, float] | None = None
) -> str:
    """The text of a tuning file. The header says with which library, instruction set and number of threads it was
    measured. rates: the rates of the machine, by name ("avx2 f32", "memory")."""
    out = [f"linnet-tuning {VERSION} library {library} machine {machine} threads {threads}"]
    out += [f"{_RATE}{name} = {rate:.6g}" for name, rate in (rates or {}).items()]
    for line in lines:
        out += [f"# {line.comment}"] * bool(line.comment) + [f"{line.key} = {line.kernel}"]
    return "\n".join([*out, ""])


def write(path: str | Path, text: str) -> None:
    """Writes the file atomically: it is replaced completely or stays as it was. Raises FileError if it cannot be
    written."""
    write_atomic(Path(path), iter([text.encode()]))
