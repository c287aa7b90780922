"""Tables for the command line. rich is imported when the first table is made.
The wording of sizes, counts and memory regions is here, so that all commands use the same."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
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
    "committed": "kept by the store for snapshots", "loop_values": "reserved for values of loops",
}  # fmt: skip


def region(name: str) -> str:
    """The name of a region of linnet_plan_info in words."""
    return _REGIONS.get(name, name.replace("_", " "))


def table(title: str, *columns: str) -> Table:
    """Creates a table. A column whose title begins with ">" holds numbers. A column whose title begins with "=" holds
    words that are not wrapped."""
    from rich.table import Table

    made = Table(title=title, title_justify="left")
    for column in columns:
        made.add_column(
            column.lstrip(">="), justify="right" if column.startswith(">") else "left", overflow="fold",
            no_wrap=column.startswith("="),
        )  # fmt: skip
    return made


def show(*tables: Table, error: bool = False) -> None:
    """Prints tables to stdout, or to stderr with `error`. Long names are shortened in the middle, so that a table fits
    the terminal, or 100 columns if the output is not a terminal. Sentences are wrapped at the width of the terminal, or
    at 200 columns if the output is not a terminal."""
    from rich.console import Console

    stream = sys.stderr if error else sys.stdout
    console = Console(file=stream, width=None if stream.isatty() else 200, highlight=False, markup=False)
    for item in tables:
        _fit(item, *((console.width, 12) if stream.isatty() else (100, _LEAST)))
        console.print(item)


_LEAST = 24  # columns that a name keeps in output that is not a terminal
_WHOLE = ("kernel", "file", "attributes")  # columns that are never shortened
_LISTS = ("inputs", "outputs")  # columns of names among other words


def _fit(table: Table, width: int, least: int) -> None:
    """Shortens words in the widest columns of a table until the table is `width` wide. No word gets shorter than
    `least`."""
    cells = [[str(cell) for cell in column.cells] for column in table.columns]
    widths = [
        max([len(str(column.header)), *(len(line) for cell in texts for line in cell.split("\n"))])
        for column, texts in zip(table.columns, cells, strict=True)
    ]
    words = [
        column.justify == "left"
        and column.header not in _WHOLE
        and not any(" " in cell or "\n" in cell for cell in texts)
        for column, texts in zip(table.columns, cells, strict=True)
    ]
    room = width - 1 - 3 * len(widths)
    if sum(widths) > room:
        for i, column in enumerate(table.columns):
            if column.header in _LISTS and not words[i]:
                short = shortened((word for cell in cells[i] for word in cell.split()), _LEAST)
                column._cells[:] = [re.sub(r"\S+", lambda word: short[word[0]], cell) for cell in cells[i]]  # noqa: B023
    limits = list(widths)
    while sum(limits) > room:
        at = max(range(len(limits)), key=lambda i: limits[i] if words[i] else -1)
        if not words[at] or limits[at] <= max(least, len(str(table.columns[at].header))):
            break
        limits[at] -= 1
    for column, texts, limit, before in zip(table.columns, cells, limits, widths, strict=True):
        if limit < before:
            short = shortened(texts, limit)
            column._cells[:] = [short[text] for text in texts]


def shortened(names: Iterable[str], width: int) -> dict[str, str]:
    """{name: the name in at most `width` characters}. "…" stands for what is left out of the middle. Different names
    stay different: if beginnings and ends are the same, the place of the first difference is kept too. If this does not
    help, a number replaces the end."""
    found = {name: _cut(name, width) for name in names}
    groups: dict[str, list[str]] = {}
    for name, short in found.items():
        groups.setdefault(short, []).append(name)
    for group in groups.values():
        if len(group) > 1:
            at = next(i for i, letters in enumerate(zip(*group, strict=False)) if len(set(letters)) > 1)
            found |= {name: _cut(name, width, at) for name in group}
    if len(set(found.values())) < len(found):
        long = [name for name in found if len(name) > width]
        found |= {name: f"{name[: max(width - 1 - len(str(i)), 0)]}…{i}" for i, name in enumerate(long, 1)}
    return found


def _cut(name: str, width: int, at: int = -1) -> str:
    """The beginning and the end of a name. If `at` is not negative, the characters at this position are kept too."""
    if len(name) <= width:
        return name
    if at < 0:
        head = (width - 1) // 2
        return f"{name[:head]}…{name[len(name) - (width - 1 - head) :]}"
    part = (width - 2) // 3
    begin = min(max(at - 2, part), len(name) - 2 * part)
    return f"{name[:part]}…{name[begin : begin + part]}…{name[len(name) - (width - 2 - 2 * part) :]}"
