"""The exception that the rules of converters raise, and the limit on the problems listed for one model.
Both importers use them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from linnet.clib.errors import Problem

MOST_PROBLEMS = 500  # for one model; an importer stops when it has found this many


class Unsupported(Exception):
    """A rule met something that it cannot express. `hint` says what the user can do about it."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


def fault_of(rule: Callable[..., Any], error: Exception) -> Unsupported | None:
    """What to report if a rule that is not part of linnet raised an exception. None for linnet's own rules: those read
    unchecked attributes and constants, so that their exceptions are the fault of the file."""
    if (rule.__module__ or "").startswith("linnet."):
        return None
    at, code = error.__traceback__, getattr(rule, "__code__", None)
    while at is not None and at.tb_next is not None and at.tb_frame.f_code is not code:
        at = at.tb_next
    where = f" in line {at.tb_lineno} of {at.tb_frame.f_code.co_filename}" if at is not None else ""
    text = f"its rule {rule.__module__}.{rule.__name__} raised {type(error).__name__}{where}: {error}"
    return Unsupported(text, "correct the rule; the model may be right")


def no_tensor(rule: Callable[..., Any], result: Any) -> Unsupported:
    """What to report if a rule returned something else than tensors."""
    got = (
        f"a value of type {type(result).__name__}"
        if not isinstance(result, list | tuple)
        else repr([type(r).__name__ for r in result])
    )
    return Unsupported(
        f"its rule {rule.__module__}.{rule.__name__} returned {got}",
        "correct the rule: it returns one tensor or a list of them",
    )


def more_problems() -> Problem:
    """The entry that follows the last listed problem if the limit ended the search."""
    return Problem(
        "", "graph", f"these are the first {MOST_PROBLEMS} problems, and there may be more", "mend them first"
    )
