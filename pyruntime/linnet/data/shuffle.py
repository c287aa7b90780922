"""The order of the training examples: a permutation for each epoch, computed on the fly and not stored.
linnet-train (runtime_c/tools/train_order.c) visits the same examples in the same order on every platform."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import UsageError

_U64 = np.uint64
_ROUNDS = 8


def _mix(z: Any) -> Any:
    """splitmix64's output function (Steele, Lea & Flood, "Fast splittable pseudorandom number generators", 2014)."""
    z = z + _U64(0x9E3779B97F4A7C15)
    z = (z ^ z >> _U64(30)) * _U64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> _U64(27)) * _U64(0x94D049BB133111EB)
    return z ^ z >> _U64(31)


def permutation(
    count: int, seed: int = 0, epoch: int = 0, start: int = 0, stop: int | None = None
) -> npt.NDArray[np.int64]:
    """The order of `count` examples in an epoch, from entry `start` up to but not including entry `stop` (None:
    `count`). Epochs are numbered from 0. The other entries are not computed.

    A Feistel network of eight rounds permutes the numbers below the smallest power of 4 that is at least `count`. A
    result of `count` or more is permuted again (cycle walking: Black & Rogaway, "Ciphers with arbitrary finite
    domains", 2002).
    """
    if count < 0 or not 0 <= start <= (count if stop is None else stop) <= count:
        raise UsageError(
            "these entries are out of range", code=101, expected=f"between 0 and {count}", got=f"{start} to {stop}"
        )
    for name, number in (("seed", seed), ("epoch", epoch)):
        if not 0 <= number < 1 << 64:
            raise UsageError(f"'{name}' is out of range", code=101, expected="0 to 2^64 - 1", got=str(number))
    half = max(1, (max(count - 1, 0).bit_length() + 1) // 2)
    mask, shift = _U64((1 << half) - 1), _U64(half)
    with np.errstate(over="ignore"):
        key = _mix(_mix(np.array(seed, _U64)) ^ _U64(epoch))
        value = np.arange(start, count if stop is None else stop, dtype=_U64)
        outside = np.ones(value.shape, np.bool_)
        while outside.any():
            one = value[outside]
            left, right = one >> shift, one & mask
            for turn in range(_ROUNDS):
                left, right = right, left ^ (_mix(key ^ _U64(turn << 56) ^ right) & mask)
            value[outside] = left << shift | right
            outside = value >= _U64(count)
    return value.astype(np.int64)
