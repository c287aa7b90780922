"""What to do about a TFLite op that has no rule: another spelling, or an option of the converter that wrote the file.
Without an entry of its own, an op gets the nearest spelling among those that have a rule."""

from __future__ import annotations

import difflib

from linnet.converters.tflite.registry import RULES

_FLEX = (
    "convert without SELECT_TF_OPS (target_spec.supported_ops = [TFLITE_BUILTINS]), or spell it in ops that TFLite has"
)
_STRINGS = "look strings up outside of the model, and feed their numbers"
_GENERAL = "replace it by builtin ops, or write a rule (CONTRIBUTING.md)"

REWRITES = {
    "DELEGATE": "give the file as it was before a delegate took parts of it",
    "LSH_PROJECTION": _STRINGS,
    "SKIP_GRAM": _STRINGS,
}  # fmt: skip


def nearest(op: str) -> str:
    """What to do in place of an op ("CUSTOM:name" for custom ops) that has no rule."""
    name = op.removeprefix("CUSTOM:")
    if name.startswith("Flex"):
        return _FLEX
    if name.startswith("HASHTABLE"):
        return _STRINGS
    if op in REWRITES:
        return REWRITES[op]
    plain = {rule.removeprefix("CUSTOM:").replace("_", "").lower(): rule for rule in RULES}
    found = difflib.get_close_matches(name.replace("_", "").lower(), plain, n=1, cutoff=0.87)
    similar = f"{plain[found[0]].removeprefix('CUSTOM:')} is converted, if that is what it computes; " if found else ""
    return similar + _GENERAL
