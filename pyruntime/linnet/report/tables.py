"""Tables for the command line. rich is imported when the first table is made.
The wording of sizes, counts and memory regions is here, so that all commands use the same."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
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
    words. Neither is wrapped."""
    from rich.table import Table

    made = Table(title=title, title_justify="left")
    for column in columns:
        made.add_column(
            column.lstrip(">="), justify="right" if column.startswith(">") else "left", overflow="fold",
            no_wrap=column.startswith((">", "=")),
        )  # fmt: skip
    return made


def say(text: str, indent: str = "  ", width: int | None = None) -> None:
    """Prints lines to stdout. A line that is wider than the terminal is continued below, after `indent`. If the output is
    not a terminal, lines are cut at `width`, or not at all."""
    if sys.stdout.isatty():
        terminal = shutil.get_terminal_size().columns
        width = terminal if width is None else min(width, terminal)
    if width is not None:
        text = "\n".join(
            textwrap.fill(
                line, max(width, 20), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
            )
            for line in text.split("\n")
        )
    print(text)


def show(*tables: Table, error: bool = False) -> None:
    """Prints tables to stdout, or to stderr with `error`. Long names are shortened in the middle, so that a table fits
    the terminal, or 100 columns if the output is not a terminal. If it still does not fit the terminal, some columns are
    left out, and a line says which. Sentences are wrapped at the width of the terminal, or at 200 columns if the output
    is not a terminal."""
    from rich.console import Console

    stream = sys.stderr if error else sys.stdout
    console = Console(file=stream, width=None if stream.isatty() else 200, highlight=False, markup=False)
    for item in tables:
        if stream.isatty():
            _leave_out(item, console.width)
        _fit(item, *((console.width, 12) if stream.isatty() else (100, _LEAST)))
        console.print(item)


_LEAST = 24  # columns that a name keeps in output that is not a terminal
_WHOLE = ("kernel", "file", "attributes")  # columns that are never shortened
_LISTS = ("inputs", "outputs")  # columns of names among other words
_OPTIONAL = ("peak", "% of peak", "GB/s", "GFLOP/s", "moved", "values")  # left out of a narrow terminal, in this order


def _leave_out(table: Table, width: int) -> None:
    """Removes columns that may be left out, until the others fit the width with names of `_LEAST` letters."""
    missing = []
    for title in _OPTIONAL:
        _, widths, words = _widths(table)
        least = [min(w, _LEAST) if word else w for w, word in zip(widths, words, strict=True)]
        at = [i for i, column in enumerate(table.columns) if column.header == title]
        if sum(least) <= width - 1 - 3 * len(least):
            break
        if at:
            del table.columns[at[0]]
            missing.append(title)
    if missing:
        table.caption = f"too narrow for {', '.join(reversed(missing))}: widen the terminal, or use --json"
        table.caption_justify = "left"


def _widths(table: Table) -> tuple[list[list[str]], list[int], list[bool]]:
    """The cells of each column, its width, and whether it holds words that may be shortened."""
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
    return cells, widths, words


def _fit(table: Table, width: int, least: int) -> None:
    """Shortens words in the widest columns of a table until the table is `width` wide. No word gets shorter than
    `least`."""
    cells, widths, words = _widths(table)
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
    """{name: the name in at most `width` characters}. "…" stands for what is left out. Different names stay different.
    First, the parts that long names share are left out: folders at the beginning, and all but the first of the names
    that TFLite joins by ";". Then the middle is left out. If beginnings and ends are the same, the place of the first
    difference is kept too. If this does not help, a number replaces the end."""
    given = list(dict.fromkeys(names))
    brief = {name: name for name in given} | _brief([name for name in given if len(name) > width])
    found = {name: _cut(brief[name], width) for name in given}
    for group in _alike(found):
        parts = [brief[name] for name in group]
        at = next((i for i, letters in enumerate(zip(*parts, strict=False)) if len(set(letters)) > 1), -1)
        found |= {name: _cut(brief[name], width, at) for name in group}
    for group in _alike(found):
        found |= {name: _numbered(brief[name], width, i) for i, name in enumerate(group, 1)}
    if len(set(found.values())) < len(found):
        long = [name for name in found if len(name) > width]
        found |= {name: _numbered(name, width, i) for i, name in enumerate(long, 1)}
    return found


def _alike(found: Mapping[str, str]) -> list[list[str]]:
    """The groups of names that are shortened to the same text."""
    groups: dict[str, list[str]] = {}
    for name, short in found.items():
        groups.setdefault(short, []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _numbered(name: str, width: int, number: int) -> str:
    return f"{name[: max(width - 1 - len(str(number)), 0)]}…{number}"


def _brief(names: Sequence[str]) -> dict[str, str]:
    """{name: the name without the parts that the other names have, too}. Different names stay different."""
    same: dict[str, list[str]] = {}
    for name in names:
        same.setdefault(name.partition(";")[0], []).append(name)
    heads = [_head(name, same[name.partition(";")[0]]) for name in names]
    folders = [head.split("/")[:-1] for head in heads]
    shared = 0
    while len(heads) > 1 and all(len(f) > shared and f[shared] == folders[0][shared] for f in folders):
        shared += 1
    return {
        name: "…" + head.split("/", shared)[-1] if shared else head for name, head in zip(names, heads, strict=True)
    }


def _head(name: str, same: Sequence[str]) -> str:
    """The part of a name before the first ";". If others have the same part, also the end that differs from theirs."""
    head, rest, _ = name.partition(";")
    if not rest:
        return head
    low, high = min(same), max(same)
    differ = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
    return f"{head};…{name[max(differ, len(head) + 1) :] if len(same) > 1 else ''}"


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
