"""Tables for the command line. rich is imported when the first table is made.
The wording of sizes, counts and memory regions is here, so that all commands use the same."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def size(count: int) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB" if count >= 1000 else f"{count} bytes"


def count(number: int, word: str) -> str:
    """ "1 thread", "2 threads"."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def places(steps_on: Mapping[str, int], transfers: int, fallbacks: int) -> str:
    """ "2 steps on opencl, 1 step on cpu, 3 transfers, 1 fallback". linnet-bench prints the same."""
    on = [f"{count(number, 'step')} on {place}" for place, number in steps_on.items()]
    return ", ".join([*on, count(transfers, "transfer"), count(fallbacks, "fallback")])


_REGIONS = {
    "mapped": "mapped from the file", "lower_bound": "minimum for activations", "naive": "activations without reuse",
    "gradients": "gradients of activations", "snapshot": "snapshot of variables",
    "devices": "memory of devices",
    "committed": "kept by the store for snapshots",
}  # fmt: skip


def region(name: str) -> str:
    """The name of a region of linnet_plan_info in words."""
    return _REGIONS.get(name, name.replace("_", " "))


def table(title: str, *columns: str) -> Table:
    """Creates a table. A column title that begins with ">" is for numbers, one with "=" for words that are not
    wrapped."""
    from rich.table import Table

    made = Table(title=title, title_justify="left")
    for column in columns:
        made.add_column(
            column.lstrip(">="), justify="right" if column.startswith(">") else "left", overflow="fold",
            no_wrap=column.startswith("="),
        )  # fmt: skip
    return made


def show(*tables: Table, error: bool = False) -> None:
    """Prints tables to stdout, or to stderr with `error`. Output that is not a terminal is 200 columns wide."""
    from rich.console import Console

    stream = sys.stderr if error else sys.stdout
    console = Console(file=stream, width=None if stream.isatty() else 200, highlight=False, markup=False)
    for item in tables:
        console.print(item)
