"""Fixed-point arithmetic of the TFLite kernels, for tables that are computed during conversion.
Definitions: TFLite's quantization_util and gemmlowp's fixedpoint.h. linnet's C library has the same functions (requant.h)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

RANGES = {"i8": (-128, 127), "u8": (0, 255), "i16": (-32768, 32767)}
LIMITS = {**RANGES, "i32": (-(1 << 31), (1 << 31) - 1)}  # ranges of all integer types that QUANTIZE produces
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
    """gemmlowp's RoundingDivideByPOT: rounds half away from zero."""
    x = np.asarray(x, np.int64)
    mask = (1 << exponent) - 1
    result: Integers = (x >> exponent) + ((x & mask) > (mask >> 1) + (x < 0))
    return result


def round_away(x: Any) -> npt.NDArray[Any]:
    """Rounds to the nearest integer, half away from zero, like C's round."""
    result: npt.NDArray[Any] = np.trunc(x) + np.where(np.abs(x - np.trunc(x)) >= 0.5, np.sign(x), 0)
    return result


def table_16(function: Callable[[Any], Any], scale: float, zero: int) -> npt.NDArray[np.int16]:
    """A table of 513 values. 16-bit kernels interpolate between them (LUTPopulate).

    The values are function values at (v - zero) * scale for v = -32768, -32640, ..., 32767. They have the scale 2 /
    65535. Each value is shifted by half of the error in the middle of its interval."""
    ends = [scale * (edge - zero) for edge in (-32768, 32767)]
    step = (ends[1] - ends[0]) / 512
    at = ends[0] + np.arange(512) * step
    factor = 65536 / (2 / 65535 * 32767 + 2 / 65535 * 32768)
    value, middle, behind = (function(v) * factor for v in (at, at + step / 2, ends[0] + np.arange(1, 513) * step))
    error = round_away((behind + round_away(value)) / 2) - round_away(middle)
    whole = np.append(round_away(value) - round_away(error / 2), round_away(np.array(function(ends[1]) * factor)))
    result: npt.NDArray[np.int16] = np.clip(whole, -32768, 32767).astype(np.int16)
    return result


def table_of_floats(function: Callable[[Any], Any], scale: np.float32, out_scale: np.float32) -> npt.NDArray[np.int16]:
    """Like table_16, but computed in f32 and with a scale for the result, as some kernels fill their tables. Zero
    points are 0."""
    f = np.float32
    least, most = f(scale * f(-32768)), f(scale * f(32767))
    step = f(f(most - least) / f(512))
    factor = f(65536) / f(f(out_scale * f(32767)) - f(out_scale * f(-32768)))
    at = least + np.arange(513, dtype=f) * step
    value, behind = (np.asarray(function(v), f) * factor for v in (at[:-1], at[1:]))
    middle = round_away(np.asarray(function(at[:-1] + step / f(2)), f) * factor)
    error = round_away((behind + round_away(value)) / f(2)) - middle
    last = round_away(np.asarray(function(np.array([most], f)), f) * factor)
    whole = np.append(round_away(value) - round_away(error / f(2)), last)
    result: npt.NDArray[np.int16] = np.clip(whole, -32768, 32767).astype(np.int16)
    return result


class Fixed:
    """gemmlowp's fixed-point functions on arrays of 16- or 32-bit values. Results have no integer bits: `one` represents 1."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.one, self.least = (1 << bits - 1) - 1, -(1 << bits - 1)

    def constant(self, raw: int) -> int:
        """Converts a 32-bit constant to this width."""
        return raw if self.bits == 32 else min(int(rounding_shift(raw, 16)), self.one)

    def multiply(self, a: Any, b: Any) -> Integers:
        """SaturatingRoundingDoublingHighMul of two arrays."""
        product, width = np.asarray(a, np.int64) * np.asarray(b, np.int64), self.bits - 1
        nudged = product + np.where(product >= 0, 1 << width - 1, 1 - (1 << width - 1))
        result: Integers = np.minimum(np.where(nudged >= 0, nudged >> width, -((-nudged) >> width)), self.one)
        return result

    def up(self, x: Any, exponent: int) -> Integers:
        """x * 2^exponent, saturated."""
        result: Integers = np.clip(np.asarray(x, np.int64) << exponent, self.least, self.one)
        return result

    def exp_on_negative(self, a: Integers, integer_bits: int) -> Integers:
        """e^a for a <= 0, where a has `integer_bits` integer bits."""
        multiply, constant = self.multiply, self.constant
        fraction_bits = self.bits - 1 - integer_bits
        quarter = 1 << (fraction_bits - 2)
        inside = (a & (quarter - 1)) - quarter
        x = self.up(inside, integer_bits) + (1 << self.bits - 4)  # Taylor series around -1/8
        x2 = multiply(x, x)
        x3, x4 = multiply(x2, x), multiply(x2, x2)
        series = rounding_shift(multiply(rounding_shift(x4, 2) + x3, constant(715827883)) + x2, 1)
        start = constant(1895147668)
        result = np.clip(start + multiply(start, x + series), self.least, self.one)
        rest = inside - a
        factors = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)  # e^-2^n, n = -2, -1, ...
        for exponent, factor in enumerate(factors, -2):
            if integer_bits > exponent:
                on = rest & (1 << (fraction_bits + exponent))
                result = np.where(on != 0, multiply(result, constant(factor)), result)
        if integer_bits > 5:
            result = np.where(a < -(1 << (self.bits + 4 - integer_bits)), 0, result)
        return np.where(a == 0, self.one, result)

    def reciprocal(self, a: Integers) -> Integers:
        """2 / (1 + a) for a in [0, 1], with two integer bits, by Newton's method."""
        multiply, constant = self.multiply, self.constant
        total = a + self.one
        half = np.where(total >= 0, (total + 1) >> 1, -((1 - total) >> 1))
        x = constant(NEWTON[0]) + multiply(half, constant(NEWTON[1]))
        for _ in range(3):
            x = x + self.up(multiply(x, (1 << self.bits - 3) - multiply(half, x)), 2)
        return x


def quotients(tops: Any, bottoms: Any, fixed: int, shift: int) -> Integers:
    """tops / bottoms * fixed * 2^(shift - 31), as in TFLite's DivElementwise: multiplies by the reciprocal of the divisor in Q31.
    A division by 0, which TFLite refuses, saturates."""
    whole = Fixed(32)
    a, b = (np.array(v, np.int64) for v in np.broadcast_arrays(tops, bottoms))
    a = np.where(b < 0, -a, a)
    size = np.maximum(abs(b), 1)
    zeros = 32 - np.frexp(size.astype(np.float64))[1].astype(np.int64)  # leading zero bits of 32
    inverse = whole.up(whole.reciprocal((size << zeros) - (1 << 31)), 1)
    room = 31 - np.frexp(np.where(a >= 0, a, -a - 1).astype(np.float64))[1].astype(np.int64)
    high = whole.multiply(whole.multiply(a << room, inverse), fixed)
    right = np.clip(31 - zeros + room - shift, 0, 31)
    mask = (np.int64(1) << right) - 1
    rounded = (high >> right) + ((high & mask) > (mask >> 1) + (high < 0))
    return np.where(b == 0, np.sign(a) * (1 << 30), rounded)


def inverse_root(value: int) -> tuple[int, int]:
    """(multiplier, left shift) of 1 / sqrt(value), by Newton's method (GetInvSqrtQuantizedMultiplierExp)."""
    if value <= 1:
        return (1 << 31) - 1, 0
    fixed, shift = Fixed(32), 11
    while value >= 1 << 29:
        value, shift = value // 4, shift + 1
    pairs = (31 - value.bit_length()) // 2 - 1
    shift, value = shift - pairs, value << 2 * pairs
    half, x = rounding_shift(value >> 1, 1), np.asarray(1 << 28, np.int64)
    for _ in range(5):
        cube = fixed.up(fixed.multiply(fixed.multiply(x, x), x), 6)
        x = fixed.up(fixed.multiply((1 << 28) + (1 << 27), x) - fixed.multiply(half, cube), 3)
    found = int(fixed.multiply(x, 1518500250))  # sqrt(2) / 2
    return (found << -shift, 0) if shift < 0 else (found, -shift)


def multiply(x: int, fixed: int, shift: int) -> int:
    """MultiplyByQuantizedMultiplier with double rounding, for one number."""
    high = doubling_high_multiply(x << max(shift, 0), fixed)
    return int(rounding_shift(high, max(-shift, 0)))


NEWTON = (1515870810, -1010580540)  # 48/17 and -32/17 with two integer bits: the initial values of a division
_SHORT = Fixed(16)
_INPUTS = np.arange(-32768, 32768)


def logistic_table(integer_bits: int = 3) -> npt.NDArray[np.int16]:
    """gemmlowp's logistic, with 15 fraction bits, for the 16-bit inputs -32768, ..., 32767."""
    positive = _SHORT.up(_SHORT.reciprocal(_SHORT.exp_on_negative(-np.abs(_INPUTS), integer_bits)), 1)
    result = np.where(_INPUTS > 0, positive, _SHORT.one - positive)
    return np.where(_INPUTS == 0, 1 << 14, result).astype(np.int16)


def tanh_table(integer_bits: int) -> npt.NDArray[np.int16]:
    """gemmlowp's tanh, in the form of logistic_table."""
    t = _SHORT.up(_SHORT.reciprocal(_SHORT.exp_on_negative(-np.abs(_INPUTS), integer_bits + 1)) - (1 << 13), 2)
    return np.where(_INPUTS == 0, 0, np.where(_INPUTS < 0, -t, t)).astype(np.int16)
