"""Makes an interrupt end a command with one line instead of a traceback, even while the command's modules are still
being imported. This module imports nothing that takes time, and acts when it is imported."""

from __future__ import annotations

import os
import sys
from types import TracebackType

COMMANDS = ("linnet", "linnet-bench", "linnet-run", "linnet-parameter-server", "linnet-serve", "linnet-train")


def command_of(words: list[str]) -> str:
    """The command that a process runs, by the words with which it was started; "" if it runs another program."""
    for before, word in zip(["", *words], words, strict=False):
        name = os.path.basename(word).removesuffix(".exe")
        if name in COMMANDS and (before == "-m" or os.sep in word or name != word):
            return name
    return ""


def quiet_interrupts() -> None:
    """If this process is a command of linnet, replaces the traceback of an interrupt. The exit status stays that of an
    interrupted process. In other programs, nothing changes."""
    command = command_of(sys.orig_argv[1:3])
    if not command:
        return
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            print(f"{command}: error: interrupted", file=sys.stderr)
        else:
            before(kind, error, trace)

    sys.excepthook = hook


quiet_interrupts()
