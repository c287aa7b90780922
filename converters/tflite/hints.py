"""Advice for TFLite ops without a rule: an equivalent, or an option of the converter that wrote the file.
For an op without an entry, the advice names the most similar op that has a rule."""

from __future__ import annotations

import difflib

from linnet.converters.tflite.registry import RULES

_FLEX = (
    "convert without SELECT_TF_OPS (target_spec.supported_ops = [TFLITE_BUILTINS]), or replace it with TFLite's own ops"
)
_STRINGS = "look up strings outside the model and pass their numbers as an input"
_GENERAL = "replace it with builtin ops, or write a rule (CONTRIBUTING.md)"

REWRITES = {
    "DELEGATE": "use the original file, before a delegate replaced parts of it",
    "LSH_PROJECTION": _STRINGS,
    "SKIP_GRAM": _STRINGS,
}  # fmt: skip


def nearest(op: str) -> str:
    """Advice for an op ("CUSTOM:name" for custom ops) that has no rule."""
    name = op.removeprefix("CUSTOM:")
    if name.startswith("Flex"):
        return _FLEX
    if name.startswith("HASHTABLE"):
        return _STRINGS
    if op in REWRITES:
        return REWRITES[op]
    plain = {rule.removeprefix("CUSTOM:").replace("_", "").lower(): rule for rule in RULES}
    found = difflib.get_close_matches(name.replace("_", "").lower(), plain, n=1, cutoff=0.87)
    similar = (
        f"use {plain[found[0]].removeprefix('CUSTOM:')}, which linnet converts, if it computes the same; "
        if found
        else ""
    )
    return similar + _GENERAL
