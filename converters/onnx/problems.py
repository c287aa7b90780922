"""Problems of a conversion are collected over the whole model and raised together.
A rule raises `Unsupported`; the importer turns it into a `Problem` and continues with the next node."""

from __future__ import annotations

from linnet.clib.errors import ConversionError, Problem
from linnet.converters.problems import (
    MOST_PROBLEMS,
    OutOfRange,
    Unsupported,
    fault_of,
    malformed,
    more_problems,
    no_tensor,
)

__all__ = [
    "MOST_PROBLEMS",
    "ConversionError",
    "OutOfRange",
    "Problem",
    "Unknown",
    "Unsupported",
    "fault_of",
    "malformed",
    "more_problems",
    "no_tensor",
]


class Unknown(Unsupported):
    """A rule needs a shape or value that is unknown. If a failed node is the reason, this is not reported as a separate
    problem."""
