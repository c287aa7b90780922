"""The quantization scheme: which ops compute in integers, and how scales and zero points follow from ranges. It is that
of Jacob et al. 2018 and the TFLite 8-bit specification. Weights are symmetric per channel. Activations are per tensor,
asymmetric for i8 and symmetric for i16 (weights stay i8: int16x8)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.ir import traits
from linnet.ir.dtypes import Quantization
from linnet.ir.function import Function, Node, Tensor
from linnet.quantization.calibrate import Range

INTEGER_OPS = traits.PRODUCTS
RECURRENT = traits.family("recurrent")
_SHAPES = traits.family("shape")
KEY = "quantize_aware"  # metadata key of graphs from quantization-aware training
SMALL = 4096  # elements; storing a smaller tensor as integers gains nothing
FLOATS_KEPT = traits.having("integers", "converts", "kept")
LIMITS = {"i8": (-128, 127), "i16": (-32768, 32767)}
LEVELS = {"i8": 256, "i16": 65536}
HALVES = {"f16": (65504.0, 2.0**-14), "bf16": (3.3895e38, 2.0**-126)}  # the largest value, the smallest normal one
# Schemes of a layer beyond a dtype: bits of weights and activations. "i16" chooses the bits of the weights by their noise.
# w16, w8 and w4 multiply floats by weights that the file holds in f16, 8 and 4 bits.
SCHEMES = {"w8a8": "i8", "w8a16": "i16", "w16a16": "i16", "w16": "f32", "w8": "f32", "w4": "f32"}
NARROW_WEIGHTS = tuple(name for name, computes in SCHEMES.items() if computes == "f32")
FEW = 0.02  # of the values may lose precision because they are below the smallest normal f16
MARGIN = 2.0  # over the largest value seen, before f16 is taken to overflow


def activation_parameters(seen: Range, dtype: str) -> Quantization:
    """Scale and zero point that cover [low, high] and zero: asymmetric for i8, symmetric for i16."""
    low, high = min(seen.low, 0.0), max(seen.high, 0.0)
    least, greatest = LIMITS[dtype]
    if dtype == "i16":
        scale = max(-low, high) / greatest
        zero = 0
    else:
        scale = (high - low) / (greatest - least)
        zero = 0
    if scale < 1e-30:  # a tensor that is always zero
        return Quantization(np.array([1.0], np.float32), np.array([0], np.int32), None, 8 if dtype == "i8" else 16)
    if dtype == "i8":
        zero = int(np.clip(np.rint(least - low / scale), least, greatest))
    bits = 8 if dtype == "i8" else 16
    return Quantization(np.array([scale], np.float32), np.array([zero], np.int32), None, bits)


def weight_parameters(
    weights: npt.NDArray[Any],
    axis: int | None,
    least: npt.NDArray[np.float64] | float = 0.0,
    bits: int = 8,
    natural: npt.NDArray[np.float32] | None = None,
    limit: int | None = None,
) -> tuple[npt.NDArray[np.signedinteger], Quantization]:
    """Symmetric integer weights, and their parameters: for each slice of `axis`, or for the whole tensor.

    least: smallest scale allowed, one number or one per slice. bits: precision of the values. They are stored in 8 bits, or
    in 16 if there are more than 8. natural: scales to use instead of `weight_scales`, in its shape. limit: the largest integer,
    if it is not that of weights.
    """
    values = np.asarray(weights, np.float32)
    if natural is None:
        natural = weight_scales(values, axis, bits, limit)
    limit = limit or weight_limit(bits)
    scale = np.maximum(natural, np.reshape(least, natural.shape if np.ndim(least) else ())).astype(np.float32)
    scale = np.where(scale >= 1e-30, scale, np.float32(1.0))  # a slice that is always zero
    whole = np.clip(np.rint(values / scale), -limit, limit)
    stored: npt.NDArray[np.signedinteger] = whole.astype(np.int8) if bits <= 8 else whole.astype(np.int16)
    flat = scale.reshape(-1)
    return stored, Quantization(flat, np.zeros(flat.shape, np.int32), axis, 8 if bits <= 8 else 16)


def weight_scales(
    weights: npt.NDArray[Any], axis: int | None, bits: int, limit: int | None = None
) -> npt.NDArray[np.float32]:
    """The scale with which each slice of `axis` uses the full range of integers, up to `limit` or that of weights. In the
    result, all other axes have size 1."""
    values = np.asarray(weights, np.float32)
    rest = tuple(i for i in range(values.ndim) if i != axis)
    peak = np.abs(values).max(axis=rest if axis is not None else None, keepdims=True, initial=0.0)  # 0 without elements
    return np.asarray(peak / float(limit or weight_limit(bits)), np.float32)


def weight_clips(weights: npt.NDArray[Any], axis: int | None, bits: int) -> npt.NDArray[np.float32]:
    """Where to cut off each slice of `axis` so that its rounding to `bits` bits has the least squared error (Sung et al.
    2015). With few bits, finer steps for most weights are worth an error of the largest ones. Shaped as `weight_scales`."""
    values, limit = np.asarray(weights, np.float32), float(weight_limit(bits))
    rest = tuple(i for i in range(values.ndim) if i != axis) if axis is not None else None
    peak = weight_scales(values, axis, bits) * np.float32(limit)
    best, least = peak, np.full(peak.shape, np.inf)
    for share in np.linspace(1.0, 0.3, 15, dtype=np.float32):
        scale = np.maximum(peak * share / np.float32(limit), np.float32(1e-30))
        error = np.square(np.clip(np.rint(values / scale), -limit, limit) * scale - values)
        total = error.sum(axis=rest, keepdims=True, dtype=np.float64)
        best, least = np.where(total < least, peak * share, best), np.minimum(total, least)
    return np.asarray(best, np.float32)


def weight_limit(bits: int) -> int:
    """The largest integer of symmetric weights. Weights that are stored in 16 bits use 12 of them: sums of 32 bits hold the
    products of at least 32 such weights with 16-bit activations, so that kernels need not multiply each weight in two parts.
    Their error is then 24 dB below that of 8 bits."""
    return 2047 if bits == 16 else (1 << (bits - 1)) - 1


def weight_axis(node: Node, rank: int) -> int | None:
    return traits.weight_axis(node.op, node.attributes, rank)


def table_of(node: Node) -> Tensor | None:
    """The constant f32 table [rows, ...] along whose first axis a node looks up, or None."""
    table = node.inputs[0] if node.op in traits.LOOKS_UP and node.inputs else None
    if table is None or table.data is None or table.dtype != "f32" or table.data.ndim < 2 or not table.data.size:
        return None
    takes = node.attribute("kind") == "take" and int(node.attribute("axis")) in (0, -table.data.ndim)
    return table if takes and not node.attribute("batch_dims") else None


def shape_arithmetic(function: Function) -> set[Tensor]:
    """Tensors that are computed only from shapes. They hold sizes, which f16 and int8 could not represent."""
    known: set[Tensor] = set()
    for node in function.nodes:
        inputs = [t for t in node.inputs if t is not None]
        if node.op in _SHAPES or (inputs and all(t in known or t.data is not None for t in inputs)):
            known.update(node.outputs)
    return known


def fits_half(dtype: str, low: float, high: float, vanishing: float = 0.0) -> bool:
    """Whether values between low and high neither become infinite nor vanish in f16 or bf16. True for other dtypes.
    vanishing: the share of non-zero values that are smaller than the smallest normal f16."""
    if dtype not in HALVES:
        return True
    if dtype == "f16" and vanishing > FEW:
        return False
    largest, smallest = HALVES[dtype]
    peak = max(-low, high)
    return peak == 0 or (smallest <= peak and peak * MARGIN <= largest)
