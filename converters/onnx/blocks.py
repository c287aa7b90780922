"""Constants of 4 and 8 bits with a scale per block, as linnet's tensors have them: the operand of a product or a look-up."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from linnet.ir.dtypes import Quantization, blocks_of

Array = npt.NDArray[Any]


def narrow(
    stored: Array, scale: Array, zero: Array | None, bits: int, axis: int, block: int
) -> tuple[Array, Quantization] | None:
    """(stored - zero) * scale as a constant of `bits` bits and its quantization, with the same real values. None if linnet
    cannot represent them.

    stored: integers of `bits` bits, signed if their dtype is; zero has the same type. scale and zero have one entry per block.
    The scales of linnet are positive, so a block with a negative scale is mirrored, and one with scale 0 becomes all zeros."""
    grid = blocks_of(stored.shape, axis, block)
    if bits not in (4, 8) or scale.size != np.prod(grid) or not np.isfinite(scale).all():
        return None
    signed = stored.dtype.kind == "i"
    codes, scales = stored.astype(np.int32), scale.astype(np.float32).reshape(grid)
    zeros = np.zeros(grid, np.int32) if zero is None else zero.astype(np.int32).reshape(grid)
    ends = (1 << bits) - 1 if not signed else -1  # the sum of a number and its mirror image
    spread = [np.repeat(a, block, axis).take(range(stored.shape[axis]), axis) for a in (scales, zeros)]
    codes = np.where(spread[0] < 0, ends - codes, np.where(spread[0] == 0, spread[1], codes))
    zeros = np.where(scales < 0, ends - zeros, zeros)
    scales = np.where(scales == 0, np.float32(1), np.abs(scales))
    middle = 1 << (bits - 1)
    if not signed and (zeros == middle).all():  # symmetric: signed numbers need no zero points
        codes, zeros, signed = codes - middle, np.zeros_like(zeros), True
    kinds: dict[tuple[int, bool], Any] = {
        (4, True): ml_dtypes.int4, (4, False): ml_dtypes.uint4, (8, True): np.int8, (8, False): np.uint8,
    }  # fmt: skip
    return codes.astype(np.int8 if signed else np.uint8).astype(kinds[bits, signed]), Quantization(
        scales, zeros, axis, bits, block
    )
