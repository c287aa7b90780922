"""Cases of matmul of floats by quantized weights of 4 and 8 bits, which stay narrow. The scales are per tensor, per
slice along either axis, or per block along either axis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from linnet.conformance.case import Case, const, fed
from linnet.ir.dtypes import Quantization, blocks_of

_VALUES = {"i8": "full", "u8": "full", "i4": "-8..8", "u4": "0..16"}
_SIZES = ((1, 1, 1), (3, 5, 7), (4, 4, 4), (5, 31, 9), (8, 33, 17), (1, 65, 63), (17, 64, 65), (65, 127, 67))
_SCHEMES = ("tensor", "columns", "rows", "blocks", "column blocks")


def _scheme(scheme: str, shape: tuple[int, ...], along: int, zeros: bool, dtype: str) -> Quantization:
    """along: the axis of the sum in the weights."""
    bits = int(dtype[1:])
    middle = 2 ** (bits - 1) if dtype[0] == "u" else 0
    axis = along if scheme in ("rows", "blocks") else 1 - along
    block = {"blocks": 16, "column blocks": 4}.get(scheme, 0)
    counts = (1,) if scheme == "tensor" else blocks_of(shape, axis, block) if block else (shape[axis],)
    number = np.arange(int(np.prod(counts)))
    scale = (0.01 * (1 + number % 11)).astype(np.float32).reshape(counts)
    zero = (middle + (number % 3 if zeros else 0 * number)).astype(np.int32).reshape(counts)
    return Quantization(scale, zero, None if scheme == "tensor" else axis, bits, block)


def _case(
    dtype: str,
    w: str,
    size: tuple[int, int, int],
    scheme: str,
    turned: bool,
    zeros: bool,
    bias: bool = False,
    **more: Any,
) -> Case:
    """more: further fields of the case."""
    m, k, n = size
    shape = (n, k) if turned else (k, n)
    quantization = _scheme(scheme, shape, 1 if turned else 0, zeros, w)
    operands = [fed(dtype, m, k), const(w, *shape, values=_VALUES[w], quantization=quantization)]
    operands += [const(dtype, n)] if bias else []
    attributes: dict[str, Any] = {"transpose_b": True} if turned else {}
    return Case("matmul", dtype, tuple(operands), attributes, depth=k, note=f"{w} by {scheme}", **more)


def weights() -> Iterator[Case]:
    for w in _VALUES:
        for scheme in _SCHEMES:
            for turned in (False, True):
                for size in _SIZES:
                    usual = w in ("i8", "u4") and scheme in ("columns", "blocks")
                    yield _case("f32", w, size, scheme, turned, zeros=w[0] == "u", bias=size[0] % 2 == 1, usual=usual)
    for dtype in ("f16", "bf16"):
        for w in _VALUES:
            for scheme in ("columns", "blocks"):
                for turned in (False, True):
                    for size in _SIZES[4:]:
                        yield _case(dtype, w, size, scheme, turned, zeros=w == "u4")
    for epilogue in ("relu", "residual"):
        yield _case("f32", "i8", (17, 64, 65), "columns", False, zeros=False, epilogue=epilogue)
        yield _case("f32", "u4", (5, 33, 9), "blocks", True, zeros=True, epilogue=epilogue, bias=True)
