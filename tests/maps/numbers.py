"""Element types and map opcodes in NumPy, from schema/map_opcodes.toml and docs/numerics.md: an independent reference for maps.
Arrays have a register's type and are broadcast. bf16 is its bit pattern, as u16."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.ir.dtypes import numpy_dtype

Array = npt.NDArray[Any]
KINDS = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64}
FLOAT_DTYPES = ("f32", "f64", "f16", "bf16")
ULP = {
    "f32": 4e-7,
    "f64": 1e-13,
}  # tolerance of elementary functions: 3 ulp, plus the difference between NumPy and the host's libm


def saturated(x: Array, dtype: str) -> Array:
    """Converts floats to integers: truncates, saturates, and maps NaN to 0."""
    info, x = np.iinfo(numpy_dtype(dtype)), np.trunc(x.astype(np.float64))
    x = np.where(np.isnan(x), 0.0, x)
    low, high = x <= float(info.min), x >= float(info.max)
    inside = np.where(low | high, 0.0, x).astype(np.int64 if dtype != "u64" else np.uint64).astype(numpy_dtype(dtype))
    result: Array = np.where(low, info.min, np.where(high, info.max, inside)).astype(numpy_dtype(dtype))
    return result


def _odd(x: Array) -> Array:
    """Converts f64 to f32, rounding to odd: rounding the result to a shorter type then equals rounding x itself."""
    near = x.astype(np.float32)
    wrong = (near.astype(np.float64) != x) & np.isfinite(x) & np.isfinite(near) & (near.view(np.uint32) & 1 == 0)
    towards = np.where(near.astype(np.float64) < x, np.float32(np.inf), np.float32(-np.inf)).astype(np.float32)
    result: Array = np.where(wrong, np.nextafter(near, towards), near)
    return result


def _bf16(x: Array) -> Array:
    """Converts f32 to bf16 bits, to nearest even."""
    bits = x.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    result: Array = np.where(np.isnan(x), 0x7FC0, rounded).astype(np.uint16)
    return result


def loaded(x: Array, dtype: str, kind: str) -> Array:
    """Loads elements into a register."""
    if dtype == "bf16":
        x, dtype = (x.astype(np.uint32) << np.uint32(16)).view(np.float32), "f32"
    if kind in ("f32", "f64") or dtype not in FLOAT_DTYPES:
        return x.astype(KINDS[kind])  # a u64 in an i64 register is its two's complement
    return saturated(x, kind)


def stored(x: Array, kind: str, dtype: str) -> Array:
    """Stores a register as elements."""
    if dtype == "bool":
        return x != 0
    if dtype == "bf16":
        return _bf16(x if kind == "f32" else _odd(x.astype(np.float64)))
    if kind in ("f32", "f64") and dtype not in FLOAT_DTYPES:
        return saturated(x, dtype)
    if dtype == "f16" and kind != "f32":
        return x.astype(np.float64).astype(np.float16)
    return x.astype(numpy_dtype(dtype))


def cast(x: Array, source: str, kind: str) -> Array:
    return saturated(x, kind) if source in ("f32", "f64") and kind in ("i32", "i64") else x.astype(KINDS[kind])


def quantized(x: Array, scale: Array, zero: Array, low: int, high: int) -> Array:
    q = np.rint(x / scale)
    least, most = (low - zero).astype(np.float32), (high - zero).astype(np.float32)
    q = np.where(q > least, q, least)
    result: Array = np.where(q < most, q, most).astype(np.int64) + zero
    return result


# ---- opcodes


def _divide(a: Array, b: Array) -> Array:
    odd = (b == 0) | (b == -1)
    safe = np.where(odd, 1, b).astype(a.dtype)
    quotient = (a - np.fmod(a, safe)) // safe
    result: Array = np.where(b == 0, 0, np.where(b == -1, np.negative(a), quotient)).astype(a.dtype)
    return result


def _remainder(a: Array, b: Array) -> Array:
    odd = (b == 0) | (b == -1)
    result: Array = np.where(odd, 0, np.fmod(a, np.where(odd, 1, b))).astype(a.dtype)
    return result


def _modulo(a: Array, b: Array) -> Array:
    if a.dtype.kind == "i":
        r = _remainder(a, b)
        return np.where((r != 0) & ((r < 0) != (b < 0)), r + b, r).astype(a.dtype)
    r = np.fmod(a, b)
    r = np.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)
    result: Array = np.where(r == 0, np.copysign(r, b), r).astype(a.dtype)
    return result


def _power(a: Array, b: Array) -> Array:
    """Integer power: wraps; for negative exponents 1 / a^|b|, truncated."""
    a, b = np.broadcast_arrays(a, b)
    base, left, y = a.astype(np.uint64), np.where(b < 0, 0, b).astype(np.uint64), np.ones(a.shape, np.uint64)
    while left.any():
        y = np.where(left & np.uint64(1), y * base, y)
        base, left = base * base, left >> np.uint64(1)
    negative = np.where(a == 1, 1, np.where(a == -1, np.where(b & 1, -1, 1), 0))
    result: Array = np.where(b < 0, negative, y.astype(np.int64)).astype(a.dtype)
    return result


def _shift(opcode: str, a: Array, b: Array) -> Array:
    width = a.dtype.itemsize * 8
    inside = (b >= 0) & (b < width)
    by = np.where(inside, b, 0).astype(a.dtype)
    if opcode == "shift_left":
        return np.where(inside, a << by, 0).astype(a.dtype)
    if opcode == "shift_right":
        return np.where(inside, a >> by, a >> (width - 1)).astype(a.dtype)
    raw = a.view(f"u{a.dtype.itemsize}") >> by.astype(f"u{a.dtype.itemsize}")
    result: Array = np.where(inside, raw.view(a.dtype), 0).astype(a.dtype)
    return result


def fixed_multiply(x: Array, multiplier: int, shift: int, single: bool) -> Array:
    """TFLite's MultiplyByQuantizedMultiplier, with a right shift."""
    if single:
        total = 31 + shift
        y = (x.astype(np.int64) * multiplier + (1 << (total - 1))) >> total
        return np.clip(y, -(2**31), 2**31 - 1).astype(np.int32)
    left, right = max(-shift, 0), max(shift, 0)
    product = (x << np.int32(left)).astype(np.int64) * multiplier
    product = product + np.where(product >= 0, 1 << 30, 1 - (1 << 30))
    high = np.where(product >= 0, product >> 31, -((-product) >> 31)).astype(np.int32).astype(np.int64)
    mask = (1 << right) - 1
    result: Array = ((high >> right) + ((high & mask) > (mask >> 1) + (high < 0))).astype(np.int32)
    return result


def _sign(a: Array) -> Array:
    result: Array = np.where(a > 0, 1, np.where(a < 0, -1, a)).astype(a.dtype)
    return result


EXACT: dict[str, Callable[..., Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply,
    "fmod": lambda a, b: _remainder(a, b) if a.dtype.kind == "i" else np.fmod(a, b),
    "div": lambda a, b: _divide(a, b) if a.dtype.kind == "i" else a / b, "mod": _modulo,
    "min": lambda a, b: np.where((a < b) | (a != a), a, b), "max": lambda a, b: np.where((a > b) | (a != a), a, b),
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert,
    "shift_left": lambda a, b: _shift("shift_left", a, b), "shift_right": lambda a, b: _shift("shift_right", a, b),
    "shift_right_logical": lambda a, b: _shift("shift_right_logical", a, b),
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "is_nan": np.isnan, "is_inf": np.isinf, "neg": np.negative, "abs": np.abs, "sign": _sign,
    "reciprocal": lambda a: a.dtype.type(1) / a,
    "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc,
    "select": lambda a, b, c: np.where(a != 0, b, c),
}  # fmt: skip
"""Opcodes whose results are the same bits everywhere; for integers this includes `pow`."""

_erf = np.frompyfunc(math.erf, 1, 1)


def _sigmoid(a: Array) -> Array:
    e = np.exp(-np.abs(a))
    result: Array = np.where(a < 0, e, 1.0) / (1.0 + e)
    return result


ROUGH: dict[str, Callable[..., Array]] = {
    "exp": np.exp, "log": np.log, "log1p": np.log1p, "expm1": np.expm1, "tanh": np.tanh, "sigmoid": _sigmoid,
    "erf": lambda a: np.asarray(_erf(a), np.float64), "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "pow": np.power, "atan2": np.arctan2,
}  # fmt: skip
"""Elementary functions of floats, computed in f64."""


def computed(opcode: str, kind: str, arguments: list[Array]) -> Array:
    if opcode == "pow" and kind in ("i32", "i64"):
        return _power(*arguments)
    if opcode in EXACT:
        made = EXACT[opcode](*arguments)
        return made.astype(np.int32) if made.dtype == np.bool_ else made
    return ROUGH[opcode](*(a.astype(np.float64) for a in arguments)).astype(KINDS[kind])
