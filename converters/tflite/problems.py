"""What stands in the way of a conversion: problems are collected over the whole model and raised together.
`Unsupported` is what a rule raises; the importer turns it into a `Problem` and goes on with the next operator."""

from __future__ import annotations

from linnet.errors import ConversionError, Problem
from linnet.outline import MOST_PROBLEMS, more_problems

__all__ = ["MOST_PROBLEMS", "ConversionError", "Problem", "Unsupported", "more_problems"]


class Unsupported(Exception):
    """A rule met something that it cannot express. `hint` says what the user can do about it."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason, self.hint = reason, hint
