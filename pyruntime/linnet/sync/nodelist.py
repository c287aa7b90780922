"""Expands SLURM's node lists such as tux[1-3,7],lyra. It does what `scontrol show hostnames` does, without needing
it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

from linnet.clib.errors import UsageError

LIMIT = 1 << 16  # nodes; a few bytes of text could otherwise name billions


def expand(text: str, where: str = "SLURM_STEP_NODELIST") -> list[str]:
    """Host names in order. Brackets contain numbers and ranges; leading zeros are kept (n[08-10] -> n08, n09, n10). A
    name may have several pairs of brackets. Raises UsageError that names the variable `where`."""

    def refuse(why: str) -> UsageError:
        return UsageError(why, code=101, tensor=where, expected="a node list such as tux[1-3,7]", got=repr(text[:200]))

    found: list[str] = []
    for name in _split(text, refuse):
        parts: list[list[str]] = []
        for literal, inside in re.findall(r"([^\[\]]+)|\[([^\[\]]*)\]", name):
            parts.append([literal] if literal else _numbers(inside, refuse))
        count = 1
        for part in parts:
            count *= len(part)
        if len(found) + count > LIMIT:
            raise refuse(f"the list has more than {LIMIT} nodes")
        found += map("".join, itertools.product(*parts))
    if not found:
        raise refuse("the list has no nodes")
    return found


def _split(text: str, refuse: Callable[[str], UsageError]) -> list[str]:
    """The names between commas outside of brackets."""
    names = [""]
    inside = False
    for character in text.strip():
        if character in "[]":
            if inside == (character == "["):
                raise refuse("the brackets do not match")
            inside = not inside
        elif character.isspace():
            raise refuse("the list contains a space")
        if character == "," and not inside:
            names.append("")
        else:
            names[-1] += character
    if inside:
        raise refuse("the brackets do not match")
    if not all(names):
        raise refuse("the list contains an empty name")
    return names


def _numbers(inside: str, refuse: Callable[[str], UsageError]) -> list[str]:
    """1-3,7 -> 1, 2, 3, 7. All numbers of a range are as wide as its first."""
    found: list[str] = []
    for part in inside.split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", part)
        if match is None:
            raise refuse(f"'{part}' is neither a number nor a range")
        low, high = int(match[1]), int(match[2] or match[1])
        if high < low or high - low >= LIMIT:
            raise refuse(f"'{part}' is not a valid range")
        found += [f"{n:0{len(match[1])}d}" for n in range(low, high + 1)]
    return found
