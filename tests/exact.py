"""Whether ONNX Runtime multiplies 8-bit integers exactly on this machine. x86 without VNNI adds pairs of products u8 x s8 in 16
bits, which saturate; there, tests use weights of 7 bits, for which they do not."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np


def _full_range() -> bool:
    if platform.machine().lower() not in ("x86_64", "amd64", "i686"):
        return True
    try:
        return "_vnni" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


EXACT = _full_range()


def weights_for_peers(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Weights i8 that ONNX Runtime multiplies exactly here: these, or half of them. Other dtypes are left as they are."""
    return values if EXACT or values.dtype != np.int8 else values // np.int8(2)
