"""Compares the results of a device with those of the CPU: integers bit for bit, and floats within a tolerance. NaN and
infinities must be at the same places."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.conformance.case import FLOATS, Case

Array = npt.NDArray[Any]
_RANGE = {"f32": 2e-5, "f16": 2e-5, "bf16": 2e-5, "f64": 1e-12}  # tolerance as a fraction of the largest result
_UNITS = 4  # tolerance of f16 and bf16 in units in the last place
_EPSILON = {"f16": 2.0**-10, "bf16": 2.0**-7}
_MOVES = ("copy", "gather", "top_k")  # ops that compute nothing
_LONG = 256  # numbers in a sum, from which on the tolerance grows with the root of their number


@dataclasses.dataclass(frozen=True)
class Difference:
    """worst: the largest difference; for floats, it is divided by the largest result. where: the index of a result that
    differs most, () if the shapes or dtypes differ. wrong: how many results are outside the tolerance."""

    worst: float
    wrong: int = 0
    where: tuple[int, ...] = ()
    got: str = ""
    expected: str = ""

    @property
    def text(self) -> str:
        at = ", ".join(map(str, self.where))
        many = "1 result differs" if self.wrong == 1 else f"{self.wrong} results differ, most"
        return f"{many} at [{at}]: got {self.got}, expected {self.expected}"


def compared(case: Case, dtype: str, got: Array, want: Array) -> Difference:
    """Compares an output of a case. `wrong` is 0 if it agrees."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return Difference(math.inf, 1, (), f"{got.dtype}{list(got.shape)}", f"{want.dtype}{list(want.shape)}")
    if got.size == 0:
        return Difference(0.0)
    if dtype not in FLOATS:
        return _integers(got, want)
    a, b = real(got, dtype), real(want, dtype)
    finite = np.isfinite(b)
    places = np.isnan(a) != np.isnan(b)
    places |= np.isinf(b) & (a != b)
    places |= finite & ~np.isfinite(a)
    if places.any():
        return _at(places, np.where(places, np.inf, 0), a, b, math.inf)
    span = float(np.abs(b[finite]).max(initial=0.0)) or 1.0
    off = np.where(finite, np.abs(np.where(finite, a, 0) - np.where(finite, b, 0)), 0.0)
    return _at(off > _tolerance(case, dtype, b, span), off, a, b, float(off.max()) / span)


def _tolerance(case: Case, dtype: str, b: Array, span: float) -> Array:
    if case.op in _MOVES:
        return np.zeros(b.shape)
    allowed = np.full(b.shape, _RANGE[dtype] * max(1.0, math.sqrt(case.depth / _LONG)) * span)
    if dtype in _EPSILON:
        unit = _EPSILON[dtype]
        allowed += _UNITS * unit * np.abs(np.where(np.isfinite(b), b, 0))
        if case.epilogue or case.op == "recurrent":  # the reference rounds before the epilogue, and states at each step
            allowed += 2 * unit * span
    return allowed


def _integers(got: Array, want: Array) -> Difference:
    wrong = got != want
    if not wrong.any():
        return Difference(0.0)
    off = np.where(wrong, np.abs(got.astype(np.float64) - want.astype(np.float64)), 0)
    return _at(wrong, off, got, want, float(off.max()))


def _at(wrong: Array, off: Array, got: Array, want: Array, worst: float) -> Difference:
    count = int(wrong.sum())
    if not count:
        return Difference(worst)
    at = np.unravel_index(int(np.argmax(np.where(wrong, off, -1))), off.shape)
    return Difference(worst, count, tuple(int(i) for i in at), _number(got[at]), _number(want[at]))


def _number(value: Any) -> str:
    return f"{float(value):.9g}" if isinstance(value, np.floating) else str(value)


def real(array: Array, dtype: str) -> Array:
    """Floats of any dtype as f64, without NumPy's warnings about some NaN."""
    with np.errstate(invalid="ignore"):
        return array.astype(np.float64)
