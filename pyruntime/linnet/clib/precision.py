"""The names of linnet_precision (linnet.h): the precisions in which a plan permits sums of floats to be computed."""

from __future__ import annotations

from linnet.clib.errors import UsageError

PRECISIONS = ("f32", "f16", "bf16", "tf32", "direct")  # in the order of the enum
_SAME = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}  # NumPy's names


def precision_number(name: str) -> int:
    """The linnet_precision of this name. Raises UsageError."""
    name = _SAME.get(name, name) if isinstance(name, str) else name
    if name not in PRECISIONS:
        raise UsageError(
            "unknown precision", code=101, expected=", ".join(PRECISIONS), got=f"{name!r:.60}",
            hint="leave out precision= to compute in f32",
        )  # fmt: skip
    return PRECISIONS.index(name)
