"""Random cases of every op that computes in integers: shapes around the tiles, scales, zero points, all three requantizations,
i8, u8 and i16 by i8, u8 and i16, and the ops that load, move and store integers. `batch(seed, count)` gives cases as the
conformance check builds them (linnet/conformance/case.py), many of which fit one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from linnet.conformance.case import EPILOGUES, Case, Operand
from linnet.ir.dtypes import Quantization, numpy_dtype

KINDS = (("i8", "i8"), ("u8", "i8"), ("i8", "u8"), ("u8", "u8"), ("i16", "i8"), ("i16", "i16"))
MODES = ("float_rne", "tflite", "tflite_single")
_CHANNELS = (1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 24, 31, 33, 37)
_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13)
_RANGES = {"i8": (-128, 127), "u8": (0, 255), "i16": (-32768, 32767)}


class Draw:
    """Draws the numbers of one case."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def of(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def between(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def scale(self, low: float = -10, high: float = -3) -> float:
        return float(np.float32(2.0 ** self.rng.uniform(low, high)))

    def integers(self, dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """All values, only small ones, only the ends, or mostly the lower end."""
        low, high = _RANGES[dtype]
        match self.between(0, 5):
            case 0:
                low, high = max(low, -9), min(high, 9)
            case 1:
                return np.where(self.rng.random(shape) < 0.5, low, high).astype(numpy_dtype(dtype))
            case 2 if dtype == "i16":
                high = 32639  # 256 * 127 + 127: the largest number of two signed bytes
        return self.rng.integers(low, high + 1, shape).astype(numpy_dtype(dtype))

    def zero(self, dtype: str, often: float) -> int:
        return self.between(*_RANGES[dtype]) if self.chance(often) else 0

    def tensor(self, dtype: str, often: float = 0.7) -> Quantization:
        return Quantization(np.array([self.scale()], np.float32), np.array([self.zero(dtype, often)], np.int32))

    def operand(self, dtype: str, shape: tuple[int, ...], q: Quantization | None, constant: bool = False) -> Operand:
        return Operand(dtype, shape, "drawn", constant, q, self.integers(dtype, shape))


def _product(
    d: Draw, op: str, x: tuple[int, ...], w: tuple[int, ...], axis: int, depth: int, **attributes: Any
) -> Case:
    """axis: of the output channels in w. depth: products of a sum."""
    x_dtype, w_dtype = d.of(*KINDS)
    group = attributes.get("group", 1)
    count = w[axis] * (group if op == "conv_transpose" else 1)
    wide, constant = x_dtype == "i16", d.chance(0.8)
    per_axis = d.chance(0.6) and not (op == "conv_transpose" and group > 1) and len(w) > 1
    scales = np.array([d.scale() for _ in range(w[axis] if per_axis else 1)], np.float32)
    zeros = np.zeros(scales.size, np.int32)
    if w_dtype == "u8" or d.chance(0.15):
        zeros[:] = [d.zero(w_dtype, 1)] * scales.size if d.chance(0.7) else [d.zero(w_dtype, 1) for _ in scales]
    kept, x_q = Quantization(scales, zeros, axis if per_axis else None), d.tensor(x_dtype, 0.1 if wide else 0.7)
    output = d.of(x_dtype, x_dtype, "i8", "u8", "i16", "f32", "i64" if wide else "i32")
    y_q = None
    if output in _RANGES:
        spread = float(np.ptp(_RANGES[x_dtype])) * float(np.ptp(_RANGES[w_dtype])) * depth**0.5 / 12
        step = (
            float(x_q.scale[0])
            * float(scales.max())
            * max(spread, 1.0)
            / float(np.ptp(_RANGES[output]))
            * d.scale(-1, 4)
        )
        step = max(step, float(x_q.scale[0]) * float(scales.max()) / 16)
        y_q = Quantization(np.array([step], np.float32), np.array([d.zero(output, 0.7)], np.int32))
    operands = [d.operand(x_dtype, x, x_q), d.operand(w_dtype, w, kept, constant)]
    if d.chance(0.7):
        limit = 1 << d.between(3, 44 if wide else 24)
        bias = d.rng.integers(-limit, limit, count)
        narrow = not wide or (limit < 1 << 31 and d.chance(0.3))
        bias_dtype = "i32" if narrow else "i64"
        operands.append(Operand(bias_dtype, (count,), "drawn", constant, data=bias.astype(numpy_dtype(bias_dtype))))
    epilogue = d.of(*EPILOGUES, "", "") if output not in ("i32", "i64") and d.chance(0.3) else ""
    given = {**attributes, "requant": d.of(*MODES), "output_dtype": output}
    return Case(op, x_dtype, tuple(operands), given, quantization=(y_q,), epilogue=epilogue, depth=depth)


def conv(d: Draw) -> Case:
    op = d.of("conv", "conv", "conv", "conv_transpose")
    spatial = d.of(1, 2, 2, 2, 3)
    depthwise = op == "conv" and d.chance(0.3)
    group = d.of(*_CHANNELS) if depthwise else d.of(1, 1, 1, 2, 3)
    inner = 1 if depthwise else d.of(*_CHANNELS)
    outer = 1 if depthwise else d.of(*_CHANNELS)
    most = 3 if spatial == 3 else 5
    kernel = [1 if d.chance(0.3) else d.between(1, most) for _ in range(spatial)]
    strides = [d.of(1, 1, 2, 3) for _ in range(spatial)]
    dilations = [d.of(1, 1, 2) for _ in range(spatial)]
    pads = [d.between(0, k - 1) for k in kernel] * 2
    sizes = [d.of(*_SIZES[: 6 if spatial == 3 else 11]) for _ in range(spatial)]
    sizes = [max(n, (k - 1) * dil + 1 - 2 * p) for n, k, dil, p in zip(sizes, kernel, dilations, pads, strict=False)]
    last = d.chance(0.5)
    batch = d.of(1, 1, 2)
    x = (batch, *sizes, group * inner) if last else (batch, group * inner, *sizes)
    attributes = {
        "strides": strides,
        "dilations": dilations,
        "pads": pads,
        "group": group,
        "channel_axis": -1 if last else 1,
    }
    if op == "conv_transpose":
        pads = [min(p, ((n - 1) * s + (k - 1) * dil) // 2) for p, n, s, k, dil
                in zip(pads, sizes, strides, kernel, dilations, strict=False)] * 2  # fmt: skip
        attributes["pads"] = pads
        if group == 1 and d.chance(0.4):  # windows that meet without overlap
            attributes |= {"strides": kernel, "dilations": [1] * spatial, "pads": [0] * (2 * spatial)}
    w = (group * outer, inner, *kernel) if op == "conv" else (group * inner, outer, *kernel)
    return _product(d, op, x, w, 0 if op == "conv" else 1, int(inner * np.prod(kernel)), **attributes)


def matmul(d: Draw) -> Case:
    m, n, k = d.of(*_CHANNELS), d.of(*_CHANNELS, 64, 65), d.of(*_CHANNELS, 64, 65, 129, 600, 1100)
    lead = tuple(d.between(1, 3) for _ in range(d.of(0, 0, 0, 1, 2)))
    turn_a, turn_b = d.chance(0.2), d.chance(0.4)
    a = (*lead, k, m) if turn_a else (*lead, m, k)
    b = (n, k) if turn_b else (k, n)
    if lead and d.chance(0.4):
        b = (*lead, *b)
    return _product(d, "matmul", a, b, len(b) - 2 if turn_b else len(b) - 1, k, transpose_a=turn_a, transpose_b=turn_b)


def _plain(d: Draw) -> tuple[str, tuple[int, ...], Quantization]:
    """dtype, shape of rank 4, and quantization per tensor."""
    dtype = d.of(*_RANGES)
    shape = (d.of(1, 1, 2), d.of(*_CHANNELS), d.of(*_SIZES), d.of(*_SIZES))
    return dtype, shape, d.tensor(dtype)


def pool(d: Draw) -> Case:
    dtype, shape, q = _plain(d)
    last = d.chance(0.5)
    spatial = shape[1:3] if last else shape[2:]
    kernel = [d.between(1, min(4, n)) for n in spatial]
    attributes: dict[str, Any] = {
        "kind": d.of("max", "average"), "kernel": kernel, "strides": [d.of(1, 2, 3) for _ in kernel],
        "pads": [d.between(0, k - 1) for k in kernel] * 2, "channel_axis": -1 if last else 1,
    }  # fmt: skip
    if attributes["kind"] == "average":
        attributes["count_include_pad"] = d.chance(0.5)
    return Case("pool", dtype, (d.operand(dtype, shape, q),), attributes, quantization=(q,))


def reduce(d: Draw) -> Case:
    dtype, shape, q = _plain(d)
    axes = sorted({d.between(0, 3) for _ in range(d.between(1, 3))})
    kind = d.of("sum", "mean", "max", "min", "l1", "l2", "sum_square")
    given: dict[str, Any] = {"kind": kind, "axes": axes, "keep_dims": d.chance(0.5)}
    x = d.operand(dtype, shape, q)
    if d.chance(0.7):
        return Case("reduce", dtype, (x,), given, dtypes=("f32",), note="real values")
    kept: tuple[Quantization | None, ...] = (q,) if kind in ("max", "min") else ()
    return Case("reduce", dtype, (x,), given, quantization=kept)


def copy(d: Draw) -> Case:
    dtype, shape, q = _plain(d)
    x = d.operand(dtype, shape, q)
    match d.between(0, 3):
        case 0:
            given: dict[str, Any] = {"kind": "transpose", "perm": [int(v) for v in d.rng.permutation(4)]}
        case 1:
            axis = d.between(0, 3)
            start = d.between(0, shape[axis] - 1)
            given = {"kind": "slice", "starts": [start], "ends": [shape[axis]], "axes": [axis], "steps": [d.of(1, 2)]}
        case 2:
            given = {"kind": "pad", "pads": [d.between(0, 3) for _ in range(8)]}
        case _:
            return Case("copy", dtype, (x, d.operand(dtype, shape, q)), {"kind": "concat", "axis": d.between(0, 3)},
                        quantization=(q,))  # fmt: skip
    return Case("copy", dtype, (x,), given, quantization=(q,))


def gather(d: Draw) -> Case:
    dtype, shape, q = _plain(d)
    axis = d.between(0, 3)
    at = d.rng.integers(0, shape[axis], (d.of(1, 3, 17),))
    places = Operand("i64", at.shape, "drawn", d.chance(0.5), data=at.astype(np.int64))
    return Case("gather", dtype, (d.operand(dtype, shape, q), places), {"axis": axis}, quantization=(q,))


def resize(d: Draw) -> Case:
    dtype, shape, q = _plain(d)
    last = d.chance(0.5)
    given = {"mode": d.of("nearest", "linear", "linear"), "axes": [1, 2] if last else [2, 3],
             "coordinates": d.of("half_pixel", "asymmetric", "align_corners"),
             "sizes": [d.between(1, 17), d.between(1, 17)]}  # fmt: skip
    return Case("resize", dtype, (d.operand(dtype, shape, q),), given, quantization=(q,))


def convert(d: Draw) -> Case:
    """quantize and dequantize, per tensor and per channel."""
    dtype, shape, q = _plain(d)
    axis = d.between(0, 3)
    if d.chance(0.5):
        scales = np.array([d.scale() for _ in range(shape[axis])], np.float32)
        q = Quantization(scales, np.array([d.zero(dtype, 0.7) for _ in scales], np.int32), axis)
    given = {"axis": axis}
    if d.chance(0.5):
        return Case("dequantize", dtype, (d.operand(dtype, shape, q),), given)
    values = (d.rng.standard_normal(shape) * 10.0 ** d.between(-2, 3)).astype(np.float32)
    return Case("quantize", dtype, (Operand("f32", shape, "drawn", data=values),), {**given, "dtype": dtype},
                quantization=(q,))  # fmt: skip


_BODIES: tuple[Callable[..., Any], ...] = (
    lambda a, b: a + b, lambda a, b: a * b, lambda a, b: (a + b).max(0.0), lambda a, b: a * b.sigmoid() + 0.25,
    lambda a, b: a - b * 0.5, lambda a, b: (a * 0.125).tanh() + b,
)  # fmt: skip


def pointwise(d: Draw) -> Case:
    """Maps that load integers of one or two grids and store integers or floats. b may be broadcast."""
    dtype, shape, q = _plain(d)
    other = d.of(*_RANGES)
    small = tuple(n if d.chance(0.7) else 1 for n in shape)
    operands = (d.operand(dtype, shape, q), d.operand(other, small, d.tensor(other)))
    target = d.of("f32", *_RANGES)
    kept = None if target == "f32" else d.tensor(target)
    return Case("map", dtype, operands, {}, quantization=(kept,), dtypes=(target,), body=d.of(*_BODIES))


FAMILIES: tuple[Callable[[Draw], Case], ...] = (
    conv, conv, conv, conv, matmul, matmul, pool, reduce, copy, gather, resize, convert, pointwise, pointwise,
)  # fmt: skip


def batch(seed: int, count: int) -> list[Case]:
    """The cases [seed, seed + count). The families take turns."""
    made = []
    for number in range(seed, seed + count):
        case = FAMILIES[number % len(FAMILIES)](Draw(number))
        made.append(Case(**{**vars(case), "id": f"{case.op}.{number}"}))
    return made
