"""Counts the wrong characters of a page: the edit distance from the true text to the recognized text.
A line that was not found counts with all its characters."""

from __future__ import annotations

from collections.abc import Sequence


def edit_distance(a: str, b: str) -> int:
    """Returns the smallest number of insertions, deletions and replacements of one character that turn `a` into `b`."""
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (letter != other))
    return row[-1]


def characters_wrong(written: Sequence[str], read: Sequence[str]) -> int:
    """Returns the edit distance between two pages of lines, with line breaks counted as characters."""
    return edit_distance("\n".join(written), "\n".join(read))


def characters(written: Sequence[str]) -> int:
    """Returns the number of characters on a page, without line breaks."""
    return sum(len(line) for line in written)
