"""The exception that the rules of converters raise, and the limit on the problems listed for one model.
Both importers use them."""

from __future__ import annotations

from linnet.clib.errors import Problem

MOST_PROBLEMS = 500  # for one model; an importer stops when it has found this many


class Unsupported(Exception):
    """A rule met something that it cannot express. `hint` says what the user can do about it."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


def more_problems() -> Problem:
    """The entry that follows the last listed problem if the limit ended the search."""
    return Problem(
        "", "graph", f"these are the first {MOST_PROBLEMS} problems, and there may be more", "mend them first"
    )
