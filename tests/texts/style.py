"""Phrases that are no English, whatever the sentence: the cheap part of CONTRIBUTING's "How to write".
Keep the list short. A phrase that some good sentence could contain has no place here."""

from __future__ import annotations

import re

PHRASES = {  # what it looks like: what to write
    r"\b(has|have) not (a|an|the|one|it|them)\b": '"does not have", or "without"',
    r"\b(has|have|had) not([.,;:)]|$)": '"does not have", or "that is not there"',
    r"\b(knows|needs|takes|gives|wants) not\b": '"does not know"; such a verb takes a "do"',
    r"\b(is|are) none of\b": '"is not one of", or say what the allowed values are',
    r"\bthat (is|are) none\b": 'say what it is not: "for a number that is not a dtype"',
    r"\bless [A-Z]+_[A-Z_]+": '"except"; "less" is a quantity',
    r"\bwhat (became|becomes|has become) of\b": "name the thing that is returned",
    r"\bno such \w+ of\b": '"out of range", or "has no ... of this name"',
    r"\bno \w+ to be an?\b": "say what is missing and what to install",
    r"\bmakes? it that\b": '"causes", or say what happens',
    r"\band else\b": '"otherwise"',
}
_FOUND = [(re.compile(pattern), instead) for pattern, instead in PHRASES.items()]


def faults(text: str) -> list[str]:
    """The phrases of the list that the text contains, each with what to write instead."""
    line = " ".join(text.split())
    return [f"{match.group()!r}: {instead}" for pattern, instead in _FOUND for match in pattern.finditer(line)]
