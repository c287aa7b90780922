"""SLURM's lists of nodes, such as tux[1-3,7],lyra: what `scontrol show hostnames` expands, without needing it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

from linnet.errors import UsageError

LIMIT = 1 << 16  # nodes; a list is some bytes of text and could name billions


def expand(text: str, where: str = "SLURM_STEP_NODELIST") -> list[str]:
    """Host names in order. Brackets hold numbers and ranges and keep leading zeros (n[08-10] -> n08, n09, n10); a
    name may have several pairs of them. Raises UsageError that names the variable `where`."""

    def refuse(why: str) -> UsageError:
        return UsageError(
            why, code=101, tensor=where, expected="a list of nodes as in tux[1-3,7]", got=repr(text[:200])
        )

    found: list[str] = []
    for name in _split(text, refuse):
        parts: list[list[str]] = []
        for literal, inside in re.findall(r"([^\[\]]+)|\[([^\[\]]*)\]", name):
            parts.append([literal] if literal else _numbers(inside, refuse))
        count = 1
        for part in parts:
            count *= len(part)
        if len(found) + count > LIMIT:
            raise refuse(f"more than {LIMIT} nodes")
        found += map("".join, itertools.product(*parts))
    if not found:
        raise refuse("no nodes")
    return found


def _split(text: str, refuse: Callable[[str], UsageError]) -> list[str]:
    """The names between commas that stand outside of brackets."""
    names = [""]
    inside = False
    for character in text.strip():
        if character in "[]":
            if inside == (character == "["):
                raise refuse("brackets do not match")
            inside = not inside
        elif character.isspace():
            raise refuse("a blank within the list")
        if character == "," and not inside:
            names.append("")
        else:
            names[-1] += character
    if inside:
        raise refuse("brackets do not match")
    if not all(names):
        raise refuse("an empty name")
    return names


def _numbers(inside: str, refuse: Callable[[str], UsageError]) -> list[str]:
    """1-3,7 -> 1, 2, 3, 7; as wide as the first number of its range."""
    found: list[str] = []
    for part in inside.split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", part)
        if match is None:
            raise refuse(f"no number or range: '{part}'")
        low, high = int(match[1]), int(match[2] or match[1])
        if high < low or high - low >= LIMIT:
            raise refuse(f"no range: '{part}'")
        found += [f"{n:0{len(match[1])}d}" for n in range(low, high + 1)]
    return found
