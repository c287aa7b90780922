"""Calibrators choose the range of a tensor stored as integers from the values seen: min-max, mean of extremes, moving
average, percentile, least squared error, entropy (Migacz 2017), or `auto`, which takes the range with the least noise."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import UsageError
from linnet.quantization.observe import HALF, Seen

Counts = npt.NDArray[np.float64]
_PERCENTILE = 99.99  # of the values that lie inside, on each side
_FRACTIONS = tuple(np.linspace(0.3, 1.0, 36))  # of the extremes that a search tries
_POWER = 2.4  # of errors, for `auto`: values that are cut off weigh more than their squares (as Li et al. 2021)


@dataclasses.dataclass(frozen=True)
class Choice:
    """A range, the calibrator that chose it, and its noise: the mean squared error divided by the mean square of the
    values."""

    low: float
    high: float
    calibrator: str
    noise: float


def choose(seen: Seen, calibrator: str, levels: int) -> Choice:
    """The range that a calibrator chooses for a tensor with this many levels (256 for i8). Raises UsageError if no
    calibrator has this name."""
    if calibrator not in CALIBRATORS:
        raise UsageError("there is no such calibrator", code=101, expected=", ".join(CALIBRATORS), got=calibrator)
    if not seen.batches:
        return Choice(0.0, 0.0, calibrator, 0.0)
    low, high, name = CALIBRATORS[calibrator](seen, levels)
    if min(low, 0.0) == max(high, 0.0) and seen.low != seen.high:  # nothing is left inside
        low, high, name = seen.low, seen.high, "minmax"
    return Choice(low, high, name, noise(seen, low, high, levels))


def noise(seen: Seen, low: float, high: float, levels: int, power: float = 2.0) -> float:
    """The noise of a range: the errors from rounding inside the range and from clipping outside it, relative to the
    power of the values. It is 0 if all values are 0."""
    if not seen.width or seen.power < 1e-60:
        return 0.0
    return _noise(*_histogram(seen), low, high, levels, power) / _norm(seen, power)


def _norm(seen: Seen, power: float) -> float:
    if power == 2.0:
        return seen.power
    counts, centres = _histogram(seen)
    return float((counts * np.abs(centres) ** power).sum() / max(counts.sum(), 1))


def _histogram(seen: Seen) -> tuple[Counts, Counts]:
    """Counts and centres of the bins that are not empty. Centres are clipped to the extremes that were seen."""
    used = np.flatnonzero(seen.counts)
    centres = (used - HALF + 0.5) * seen.width
    return seen.counts[used].astype(np.float64), np.clip(centres, seen.low, seen.high)


def _noise(counts: Counts, centres: Counts, low: float, high: float, levels: int, power: float) -> float:
    low, high = min(low, 0.0), max(high, 0.0)
    step = (high - low) / (levels - 1)
    cut = np.maximum(np.maximum(low - centres, centres - high), 0.0)
    # The mean of |e|^p over one step, in which errors are uniform; a value outside has its distance instead.
    rounding = (step / 2) ** power / (power + 1)
    exact = (low == 0.0) & (centres <= 0.0) | (high == 0.0) & (centres >= 0.0)  # zero itself is exact
    error = np.where(cut > step / 2, cut**power, np.where(exact & (np.abs(centres) < step / 2), 0.0, rounding))
    return float((counts * error).sum() / max(counts.sum(), 1))


def _minmax(seen: Seen, levels: int) -> tuple[float, float, str]:
    return seen.low, seen.high, "minmax"


def _mean(seen: Seen, levels: int) -> tuple[float, float, str]:
    return seen.mean_low, seen.mean_high, "mean"


def _moving(seen: Seen, levels: int) -> tuple[float, float, str]:
    return seen.moving_low, seen.moving_high, "moving"


def _percentile(seen: Seen, levels: int) -> tuple[float, float, str]:
    if not seen.width:
        return seen.low, seen.high, "percentile"
    share = np.cumsum(seen.counts) / seen.counts.sum()
    outside = (100 - _PERCENTILE) / 100
    first, last = int(np.searchsorted(share, outside)), int(np.searchsorted(share, 1 - outside))
    low, high = (first - HALF) * seen.width, (last + 1 - HALF) * seen.width
    return max(low, seen.low), min(high, seen.high), "percentile"


def _least(seen: Seen, levels: int, power: float, name: str) -> tuple[float, float, str]:
    """Searches the fraction of the range with the least error: first the same fraction for both ends, then one for each
    end."""
    if not seen.width:
        return seen.low, seen.high, name
    counts, centres = _histogram(seen)

    def cost(ends: tuple[float, float]) -> float:
        return _noise(counts, centres, *ends, levels, power)

    best = min(((seen.low * f, seen.high * f) for f in reversed(_FRACTIONS)), key=cost)
    best = min(((seen.low * f, best[1]) for f in reversed(_FRACTIONS)), key=cost)
    best = min(((best[0], seen.high * f) for f in reversed(_FRACTIONS)), key=cost)
    return *best, name


def _mse(seen: Seen, levels: int) -> tuple[float, float, str]:
    return _least(seen, levels, 2.0, "mse")


def _entropy(seen: Seen, levels: int) -> tuple[float, float, str]:
    """The ends between which the quantized distribution is nearest to the original one (Kullback-Leibler
    divergence)."""
    if not seen.width:
        return seen.low, seen.high, "entropy"
    counts, centres = _histogram(seen)
    best, least = (seen.low, seen.high), np.inf
    for fraction in reversed(_FRACTIONS):
        low, high = min(seen.low * fraction, 0.0), max(seen.high * fraction, 0.0)
        if high - low < seen.width * levels / 4:
            continue
        inside = np.clip(centres, low, high)
        cells = np.minimum(((inside - low) / (high - low) * levels).astype(np.int64), levels - 1)
        clipped = (centres < low) | (centres > high)
        kept = np.where(clipped, 0.0, counts)
        mass, members = np.bincount(cells, kept, levels), np.bincount(cells[~clipped], minlength=levels)
        p = np.where(clipped, 0.0, counts)
        ends = np.flatnonzero(~clipped)
        if not ends.size:
            continue
        p[ends[0]] += counts[centres < low].sum()
        p[ends[-1]] += counts[centres > high].sum()
        q = np.where(clipped, 0.0, mass[cells] / np.maximum(members[cells], 1))
        p, q = p[~clipped] / p.sum(), q[~clipped] / max(q.sum(), 1e-30)
        divergence = float((p * np.log(np.maximum(p, 1e-12) / np.maximum(q, 1e-12))).sum())
        if divergence < least - 1e-6:
            best, least = (low, high), divergence
    return *best, "entropy"


def _auto(seen: Seen, levels: int) -> tuple[float, float, str]:
    """The candidate with the least noise, with large errors weighted more."""
    made = [_minmax(seen, levels), _mean(seen, levels), _percentile(seen, levels), _least(seen, levels, _POWER, "mse")]
    if not seen.width:
        return made[0]
    counts, centres = _histogram(seen)
    return min(made, key=lambda found: _noise(counts, centres, found[0], found[1], levels, _POWER))


CALIBRATORS: dict[str, Callable[[Seen, int], tuple[float, float, str]]] = {
    "auto": _auto, "minmax": _minmax, "mean": _mean, "moving": _moving, "percentile": _percentile, "mse": _mse,
    "entropy": _entropy,
}  # fmt: skip
