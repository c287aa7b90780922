"""Runs linnet-run and linnet-bench in a folder of a target."""

from __future__ import annotations

import json
import shlex
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from linnet.clib.errors import DeviceError, Error
from linnet.deploy.folder import Folder
from linnet.deploy.target import Done

_CANNOT = ("exec format error", "cannot execute", "permission denied", "not found", "no such file", "invalid elf image")


def words_of(folder: Folder, tool: str, model: str, words: Sequence[str], shapes: Mapping[str, Sequence[int]]) -> str:
    """The end of the shell command that runs in the folder: the tool and its arguments."""
    opened = [word for name, shape in shapes.items() for word in ("--shape", f"{name}={','.join(map(str, shape))}")]
    return shlex.join([*folder.target.prefix, f"./{tool}", model, *words, *opened])


def try_tool(folder: Folder, tool: str, arch: str) -> None:
    """Raises DeviceError if the target cannot execute the tool."""
    done = folder.run(f"exec {shlex.join([*folder.target.prefix, f'./{tool}', '--version'])}", timeout=60)
    if done.status:
        raise failure(folder, tool, done, f"its version (the tool is made for {arch})")


def result_of(
    folder: Folder, tool: str, model: str, words: Sequence[str], shapes: Mapping[str, Sequence[int]], what: str
) -> dict[str, Any]:
    """The JSON object that a tool prints. what: for messages, for example "i8 on 4 threads". Raises DeviceError."""
    done = folder.run("exec " + words_of(folder, tool, model, [*words, "--json"], shapes))
    if done.status:
        raise failure(folder, tool, done, what)
    try:
        found = json.loads(done.out)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise DeviceError(
            f"{tool} gave no result on {folder.target.name} for {what}", code=501, expected="one JSON object",
            got=repr(done.out[:60].decode(errors="replace")), hint="deploy again; the tool must be of this version of linnet",
        )  # fmt: skip
    return found


def failure(folder: Folder, tool: str, done: Done, what: str) -> Error:
    """The error that describes a tool's failure."""
    number = -done.status if done.status < 0 else done.status - 128 if 128 < done.status < 160 else 0
    name = signal.Signals(number).name if number in set(signal.Signals) else ""
    got = f"exit status {done.status}" if done.status >= 0 else f"signal {name}"
    if name and done.status >= 0:
        got += f" ({name})"
    if done.last:
        got += f": {done.last}"
    cannot = done.status in (126, 127) and any(part in done.err.lower() for part in _CANNOT)
    if number == signal.SIGILL or "illegal instruction" in done.err.lower() or cannot:
        return DeviceError(
            f"{tool} cannot be executed on {folder.target.name}", code=501, got=got,
            hint="its processor may need tools of another architecture, or its system may forbid executing them",
        )  # fmt: skip
    hint = (
        "see dmesg there: memory may be short"
        if number == signal.SIGKILL
        else "the tool says above what is wrong; to run it there yourself, give --keep"
        if done.last
        else "try a shorter run, or --keep and run it there"
    )
    return DeviceError(f"{tool} failed on {folder.target.name} for {what}", code=501, got=got, hint=hint)
