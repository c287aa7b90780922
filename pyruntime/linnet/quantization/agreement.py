"""How well results agree with those of another model, over all samples: signal-to-noise ratio, cosine, largest
difference, and how often the best class is the same."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import UsageError
from linnet.ir.dtypes import has_floats

Array = npt.NDArray[Any]

# `max_bytes` of sessions that measure what 16 bits lose: a bound that nothing reaches. Plans with a bound keep f16 and bf16
# values in 16 bits on every machine, so what overflows elsewhere overflows here.
KEEPS_HALVES = 1 << 50


def decibel(signal: float, noise: float) -> float:
    """10 log10(signal / noise). Infinity if there is no noise; minus infinity if the noise is not finite or there is no
    signal."""
    if not math.isfinite(noise):
        return -math.inf
    if noise <= 0.0:
        return math.inf
    return 10.0 * math.log10(signal / noise) if signal > 0.0 and math.isfinite(signal) else -math.inf


class Agreement:
    """Sums over the samples for one output. If the output is a list of scores for each example, each row given to `add`
    is one example."""

    def __init__(self) -> None:
        self.signal = self.noise = self.other = self.product = self.largest = 0.0
        self.count = self.equal = self.rows = self.same = 0
        self.integers = True

    def add(self, wanted: Array, got: Array, batch: int = 1) -> None:
        """wanted, got: real numbers, with the same number of elements. batch: the number of examples in them. Raises
        UsageError if the sizes differ."""
        if wanted.size != got.size:
            raise UsageError(
                "the outputs differ in size", code=104, expected=str(list(wanted.shape)), got=str(list(got.shape)),
                hint="compare models of the same network, on the same inputs",
            )  # fmt: skip
        self.integers = self.integers and wanted.dtype.kind in "iub" and got.dtype.kind in "iub"
        a, b = wanted.astype(np.float64).reshape(-1), got.astype(np.float64).reshape(-1)
        good = np.isfinite(a) & np.isfinite(b)
        self.noise += math.inf if (np.isfinite(a) & ~good).any() else float(np.square(a[good] - b[good]).sum())
        self.signal += float(np.square(a[good]).sum())
        self.other += float(np.square(b[good]).sum())
        self.product += float((a[good] * b[good]).sum())
        if a.size:
            self.largest = max(self.largest, float(np.abs(a[good] - b[good]).max(initial=0.0)))
        self.largest = math.inf if not math.isfinite(self.noise) else self.largest
        self.count += a.size
        self.equal += int((a == b).sum())
        rows = score_rows(wanted, batch)
        if rows:
            best = a.reshape(rows, -1).argmax(1), np.where(np.isnan(b), -np.inf, b).reshape(rows, -1).argmax(1)
            self.rows += rows
            self.same += int((best[0] == best[1]).sum())

    @property
    def sqnr(self) -> float:
        """The power of the wanted values divided by the power of the differences, in dB."""
        return decibel(self.signal, self.noise)

    @property
    def cosine(self) -> float:
        size = math.sqrt(self.signal * self.other)
        return self.product / size if size else (1.0 if self.signal == self.other else 0.0)

    @property
    def top1(self) -> float | None:
        """Share of the examples whose best class is the same, or None if the output is not a list of scores."""
        return self.same / self.rows if self.rows else None

    def figures(self) -> dict[str, float | None]:
        """All figures by name. `equal` is the share of equal integers, or None for other dtypes. Integers may be the
        numbers of classes, whose distances mean nothing; for them, all other figures are None."""
        if self.integers and self.count:
            equal = self.equal / self.count
            return {"top1": None, "sqnr_db": None, "cosine": None, "largest": None, "equal": equal}
        return {
            "top1": self.top1, "sqnr_db": self.sqnr, "cosine": self.cosine, "largest": self.largest, "equal": None,
        }  # fmt: skip


def score_rows(values: Array, batch: int = 1) -> int:
    """If the values are a list of two or more scores for each example, the number of these lists, else 0."""
    if not has_floats(values):
        return 0
    lead = batch if values.ndim > 1 and values.shape[0] == batch else 1
    rest = values.shape[1:] if values.ndim > 1 and lead == values.shape[0] else values.shape
    wide = [d for d in rest if d != 1]
    return lead if len(wide) == 1 else 0


def batch_of(feeds: Any) -> int:
    """The number of examples in a sample: the first dimension, if all inputs of rank 2 or more share it, else 1."""
    found = {np.shape(value)[0] for value in feeds.values() if np.ndim(value) > 1}
    return int(found.pop()) if len(found) == 1 else 1
