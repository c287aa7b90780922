"""The exception that the rules of converters raise, and the limit on the problems listed for one model.
Both importers use them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from linnet.clib.errors import Problem

MOST_PROBLEMS = 500  # for one model; an importer stops when it has found this many


class Unsupported(Exception):
    """A rule found something in the model that it cannot convert. `hint` says what the user can do about it."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


class OutOfRange(Unsupported):
    """An attribute or a constant operand has a value that no op can have. ONNX's own inference may crash on it."""


def refuse_below(what: str, values: Sequence[float], least: int) -> None:
    """Raises Unsupported if one of the values of an attribute or operand is less than `least`."""
    wrong = [v for v in values if v < least]
    if wrong:
        got = f"is {values[0]:g}" if len(values) == 1 else f"has the value {wrong[0]:g}"
        raise OutOfRange(f"{what} {got}; it must be at least {least}", "the model is damaged: export it again")


def fault_of(rule: Callable[..., Any], error: Exception) -> Unsupported | None:
    """The problem to report if a rule raised an exception. None if the rule is linnet's own and a damaged file can also
    cause the exception; this is possible because linnet's rules read unchecked attributes and constants."""
    if (rule.__module__ or "").startswith("linnet.") and not _is_typo(error):
        return None
    at, code = error.__traceback__, getattr(rule, "__code__", None)
    while at is not None and at.tb_next is not None and at.tb_frame.f_code is not code:
        at = at.tb_next
    where = f" in line {at.tb_lineno} of {at.tb_frame.f_code.co_filename}" if at is not None else ""
    text = f"its rule {rule.__module__}.{rule.__name__} raised {type(error).__name__}{where}: {error}"
    return Unsupported(text, "correct the rule; the model may be right")


def _is_typo(error: Exception) -> bool:
    """Whether no file can cause this exception, because it is about a name, attribute, parameter or module that does
    not exist."""
    if isinstance(error, AttributeError):
        return error.obj is not None  # an operand that is missing is None
    call = isinstance(error, TypeError) and re.search(
        r"\) (got an unexpected|got multiple|missing \d|takes \d)", str(error)
    )
    return bool(call) or isinstance(error, NameError | ImportError)


def malformed(error: Exception, what: str) -> tuple[str, str]:
    """The reason and the hint for an exception in one of linnet's rules that a damaged file can cause. what:
    "attributes" or "options"."""
    at, where = error.__traceback__, ""
    while at is not None:
        if ".rules." in str(at.tb_frame.f_globals.get("__name__")):
            where = f" in line {at.tb_lineno} of {at.tb_frame.f_code.co_filename}"
        at = at.tb_next
    return (
        f"its operands or {what} are malformed, or its rule is wrong ({type(error).__name__}{where}: {error})",
        "export the model again; if you have changed the rule, look at that line",
    )


def no_tensor(rule: Callable[..., Any], result: Any) -> Unsupported:
    """The problem to report if a rule returned something other than tensors."""
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
    """The entry after the last listed problem, if the search stopped at the limit."""
    return Problem(
        "", "graph", f"these are the first {MOST_PROBLEMS} problems, and there may be more", "correct them first"
    )
