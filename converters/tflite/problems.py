"""Problems of a conversion are collected over the whole model and raised together.
A rule raises `Unsupported`; the importer turns it into a `Problem` and continues with the next operator."""

from __future__ import annotations

from linnet.clib.errors import ConversionError, Problem
from linnet.converters.problems import MOST_PROBLEMS, Unsupported, fault_of, malformed, more_problems

__all__ = ["MOST_PROBLEMS", "ConversionError", "Problem", "Unsupported", "fault_of", "malformed", "more_problems"]
