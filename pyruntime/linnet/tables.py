"""Tables for people, as the command line prints them. rich is imported when the first one is made.
Sizes, counts and regions of memory are worded here, so that all commands say them alike."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def size(count: int) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB" if count >= 1000 else f"{count} bytes"


def count(number: int, word: str) -> str:
    """ "1 thread", "2 threads"."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


_REGIONS = {
    "mapped": "mapped from the file", "lower_bound": "least for activations", "naive": "activations without reuse",
    "gradients": "gradients, of activations", "snapshot": "snapshot of variables",
    "committed": "kept by the store for snapshots",
}  # fmt: skip


def region(name: str) -> str:
    """A region of linnet_plan_info in words."""
    return _REGIONS.get(name, name.replace("_", " "))


def table(title: str, *columns: str) -> Table:
    """A table; a column whose title begins with ">" is for numbers, with "=" for words that are never broken."""
    from rich.table import Table

    made = Table(title=title, title_justify="left")
    for column in columns:
        made.add_column(
            column.lstrip(">="), justify="right" if column.startswith(">") else "left", overflow="fold",
            no_wrap=column.startswith("="),
        )  # fmt: skip
    return made


def show(*tables: Table, error: bool = False) -> None:
    """Prints them, on stderr with `error`; 200 columns wide where the output is no terminal."""
    from rich.console import Console

    stream = sys.stderr if error else sys.stdout
    console = Console(file=stream, width=None if stream.isatty() else 200, highlight=False, markup=False)
    for item in tables:
        console.print(item)
