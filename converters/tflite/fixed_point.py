"""Fixed-point arithmetic of the TFLite kernels, for tables that are computed while converting.
Definitions: TFLite's quantization_util and gemmlowp's fixedpoint.h; linnet's C side has the same (ops/requant.h)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

RANGES = {"i8": (-128, 127), "u8": (0, 255), "i16": (-32768, 32767)}
Integers = npt.NDArray[np.int64]


def quantize_multiplier(real: float) -> tuple[int, int]:
    """(multiplier, left shift): real = multiplier * 2^(shift - 31), multiplier in [2^30, 2^31) or 0."""
    if real == 0 or not math.isfinite(real):
        return 0, 0
    fraction, shift = math.frexp(real)
    fixed = math.floor(abs(fraction) * (1 << 31) + 0.5) * (1 if fraction > 0 else -1)
    if abs(fixed) == 1 << 31:
        fixed, shift = fixed // 2, shift + 1
    return (0, 0) if shift < -31 else (fixed, shift)


def doubling_high_multiply(a: Any, b: int, bits: int = 32) -> Integers:
    """gemmlowp's SaturatingRoundingDoublingHighMul on `bits`-bit integers."""
    product = np.asarray(a, np.int64) * b
    half = 1 << (bits - 2)
    nudged = product + np.where(product >= 0, half, 1 - half)
    quotient = np.where(nudged >= 0, nudged >> (bits - 1), -((-nudged) >> (bits - 1)))
    result: Integers = np.minimum(quotient, (1 << (bits - 1)) - 1)
    return result


def rounding_shift(x: Any, exponent: int) -> Integers:
    """gemmlowp's RoundingDivideByPOT: half away from zero."""
    x = np.asarray(x, np.int64)
    mask = (1 << exponent) - 1
    result: Integers = (x >> exponent) + ((x & mask) > (mask >> 1) + (x < 0))
    return result


def round_away(x: Any) -> npt.NDArray[Any]:
    """Nearest integer, half away from zero, as C's round."""
    result: npt.NDArray[Any] = np.trunc(x) + np.where(np.abs(x - np.trunc(x)) >= 0.5, np.sign(x), 0)
    return result
