"""Fixed-point arithmetic of the TFLite kernels, for tables that are computed while converting.
Definitions: TFLite's quantization_util and gemmlowp's fixedpoint.h; linnet's C side has the same (ops/requant.h)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

RANGES = {"i8": (-128, 127), "u8": (0, 255), "i16": (-32768, 32767)}
LIMITS = {**RANGES, "i32": (-(1 << 31), (1 << 31) - 1)}  # of all integers that QUANTIZE makes
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


class Fixed16:
    """gemmlowp's fixed-point functions on 16-bit values, as tables: `logistic` and `tanh` over all 65536 inputs."""

    ONE = 32767

    @staticmethod
    def constant(raw32: int) -> int:
        """A 32-bit constant as 16 bits."""
        return min(int(rounding_shift(raw32, 16)), Fixed16.ONE)

    @staticmethod
    def multiply(a: Any, b: Any) -> Integers:
        """SaturatingRoundingDoublingHighMul of two arrays."""
        product = np.asarray(a, np.int64) * np.asarray(b, np.int64)
        nudged = product + np.where(product >= 0, 1 << 14, 1 - (1 << 14))
        result: Integers = np.minimum(np.where(nudged >= 0, nudged >> 15, -((-nudged) >> 15)), Fixed16.ONE)
        return result

    @staticmethod
    def up(x: Any, exponent: int) -> Integers:
        """Times 2^exponent, saturated."""
        result: Integers = np.clip(np.asarray(x, np.int64) << exponent, -32768, 32767)
        return result

    @staticmethod
    def exp_on_negative(a: Integers, integer_bits: int) -> Integers:
        """e^a for a <= 0 with so many integer bits; the result has none."""
        multiply, constant = Fixed16.multiply, Fixed16.constant
        fraction_bits = 15 - integer_bits
        quarter = 1 << (fraction_bits - 2)
        inside = (a & (quarter - 1)) - quarter
        x = Fixed16.up(inside, integer_bits) + (1 << 12)  # Taylor's series around -1/8
        x2 = multiply(x, x)
        x3, x4 = multiply(x2, x), multiply(x2, x2)
        series = rounding_shift(multiply(rounding_shift(x4, 2) + x3, constant(715827883)) + x2, 1)
        start = constant(1895147668)
        result = np.clip(start + multiply(start, x + series), -32768, 32767)
        rest = inside - a
        factors = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)  # e^-2^n, n = -2, -1, ...
        for exponent, factor in enumerate(factors, -2):
            if integer_bits > exponent:
                on = rest & (1 << (fraction_bits + exponent))
                result = np.where(on != 0, multiply(result, constant(factor)), result)
        if integer_bits > 5:
            result = np.where(a < -(1 << (20 - integer_bits)), 0, result)
        return np.where(a == 0, Fixed16.ONE, result)

    @staticmethod
    def reciprocal(a: Integers) -> Integers:
        """2 / (1 + a) for a in [0, 1], with two integer bits: Newton's division."""
        multiply, constant = Fixed16.multiply, Fixed16.constant
        total = a + Fixed16.ONE
        half = np.where(total >= 0, (total + 1) >> 1, -((1 - total) >> 1))
        x = constant(1515870810) + multiply(half, constant(-1010580540))
        for _ in range(3):
            x = x + Fixed16.up(multiply(x, (1 << 13) - multiply(half, x)), 2)
        return x

    @staticmethod
    def logistic(integer_bits: int = 3) -> npt.NDArray[np.int16]:
        """Stored results (15 fraction bits) of the inputs -32768, ..., 32767."""
        a = np.arange(-32768, 32768)
        positive = Fixed16.up(
            Fixed16.reciprocal(Fixed16.exp_on_negative(-np.minimum(np.abs(a), 32768), integer_bits)), 1
        )
        result = np.where(a > 0, positive, Fixed16.ONE - positive)
        return np.where(a == 0, 1 << 14, result).astype(np.int16)

    @staticmethod
    def tanh(integer_bits: int) -> npt.NDArray[np.int16]:
        """As logistic."""
        a = np.arange(-32768, 32768)
        exp = Fixed16.exp_on_negative(-np.abs(a), integer_bits + 1)
        t = Fixed16.up(Fixed16.reciprocal(exp) - (1 << 13), 2)
        return np.where(a == 0, 0, np.where(a < 0, -t, t)).astype(np.int16)
