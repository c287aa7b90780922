"""Cases of pools, resize and recurrent, and of ops that no device takes yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from linnet.conformance.case import Case, Operand, const, fed, given, per_tensor

FLOATS = ("f32", "f16", "bf16")


def pools() -> Iterator[Case]:
    for dtype in FLOATS:
        for axis in (1, -1):
            for kind in ("max", "average", "lp"):
                if axis == -1 and dtype != "f32" and kind == "lp":
                    continue
                usual = dtype == "f32" and (axis == 1 or kind == "max")
                yield from _pools_of(dtype, kind, axis, usual)
        yield Case("pool", dtype, (fed(dtype, 2, 3, 9, 8),), {"kind": "max", "kernel": [2, 3], "strides": [2, 2]}, 2,
                   usual=dtype == "f32")  # fmt: skip
    for dtype, zero in (("i8", -3), ("u8", 120), ("i16", 0)):
        for axis in (1, -1):
            for kind in ("max", "average"):
                yield from _pools_of(dtype, kind, axis, dtype == "i8" and axis == -1, zero)


def _pools_of(dtype: str, kind: str, axis: int, usual: bool, zero: int = 0) -> Iterator[Case]:
    integer = dtype not in FLOATS
    scheme = per_tensor(0.05, zero) if integer else None

    def case(space: tuple[int, ...], kernel: list[int], channels: int = 5, **attributes: Any) -> Case:
        shape = (2, channels, *space) if axis == 1 else (2, *space, channels)
        x = fed(dtype, *shape, values="full" if integer else "normal", quantization=scheme)
        depth = 1
        for size in kernel:
            depth *= size
        kept = (scheme,) if integer else ()
        return Case("pool", dtype, (x,), {"kind": kind, "kernel": kernel, "channel_axis": axis, **attributes},
                    quantization=kept, depth=depth, usual=usual)  # fmt: skip

    for channels, side in ((1, 4), (3, 7), (16, 8), (17, 9), (65, 5)):
        yield case((side, side + 1), [2, 2], channels, strides=[2, 2])
        yield case((side, side + 1), [3, 3], channels, pads=[1, 1, 1, 1])
    yield case((9, 8), [3, 2], strides=[2, 3], ceil_mode=True)
    yield case((8, 8), [8, 8])
    yield case((17,), [3], strides=[2], pads=[1, 1])
    yield case((4, 5, 6), [2, 3, 2], strides=[1, 2, 2])
    for mode in ("same_upper", "same_lower", "valid"):
        yield case((9, 7), [3, 2], strides=[2, 2], auto_pad=mode)
    if kind == "average":
        yield case((9, 7), [3, 3], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=True)
    if kind == "max":
        yield case((11, 9), [3, 3], dilations=[2, 2])
    if kind == "lp":
        yield case((9, 7), [3, 3], p=3)


def resizes() -> Iterator[Case]:
    def case(dtype: str, shape: tuple[int, ...], usual: bool = False, **attributes: Any) -> Case:
        return Case("resize", dtype, (fed(dtype, *shape),), attributes, depth=16, usual=usual)

    for dtype in (*FLOATS, "i8", "u8", "i16", "i32"):
        usual = dtype in ("f32", "i8")
        for sizes in ([6, 10], [17, 3], [5, 64], [2, 2], [65, 7]):
            yield case(
                dtype,
                (1, 3, 5, 7),
                usual,
                mode="nearest",
                coordinates="asymmetric",
                nearest="floor",
                axes=[2, 3],
                sizes=sizes,
            )
            yield case(dtype, (1, 3, 5, 7), usual, mode="linear", axes=[2, 3], sizes=sizes)
            yield case(dtype, (1, 5, 7, 3), usual, mode="linear", axes=[1, 2], sizes=sizes)
            if dtype in ("f32", "f16", "u8"):
                yield case(dtype, (1, 3, 5, 7), usual, mode="cubic", axes=[2, 3], sizes=sizes)
    for mode in ("nearest", "linear", "cubic"):
        for coordinates in ("half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"):
            yield case("f32", (2, 3, 5, 7), True, mode=mode, coordinates=coordinates, axes=[2, 3], sizes=[9, 4])
    for nearest in ("round_prefer_floor", "round_prefer_ceil", "ceil"):
        yield case("f32", (1, 2, 5, 8), True, mode="nearest", nearest=nearest, axes=[2, 3], sizes=[10, 4])
    yield case("f32", (1, 2, 9, 8), True, mode="linear", antialias=True, axes=[2, 3], sizes=[4, 3])
    yield case(
        "f32", (1, 2, 9, 8), True, mode="cubic", antialias=True, exclude_outside=True, axes=[2, 3], sizes=[4, 17]
    )
    yield case("f32", (2, 9, 4), True, mode="linear", axes=[1], scales=[1.7])
    yield case("f32", (1, 2, 3, 4, 5), True, mode="linear", axes=[2, 3, 4], sizes=[5, 7, 3])


_GATES = {"rnn": 1, "gru": 3, "lstm": 4}


def recurrents() -> Iterator[Case]:
    def case(dtype: str, kind: str, direction: str, hidden: int, lengths: bool = False, states: bool = True,
             **attributes: Any) -> Case:  # fmt: skip
        d, batch, time = 2 if direction == "bidirectional" else 1, 3, 5
        start = fed(dtype, d, batch, hidden, values="unit") if states else None
        operands: tuple[Operand | None, ...] = (
            fed(dtype, time, batch, d * _GATES[kind] * hidden, values="unit"),
            const(dtype, d, _GATES[kind] * hidden, hidden, values="unit"),
            start,
            start if kind == "lstm" else None,
            given([5, 3, 1], "i32", constant=False) if lengths else None,
        )
        made = {"kind": kind, "direction": direction, **attributes}
        return Case(
            "recurrent", dtype, operands, made, 3 if kind == "lstm" else 2, depth=hidden * time, usual=dtype == "f32"
        )

    for dtype in FLOATS:
        for kind in _GATES:
            for direction in ("forward", "reverse", "bidirectional"):
                for lengths in (False, True):
                    for hidden in (3, 8, 17):
                        yield case(dtype, kind, direction, hidden, lengths)
            yield case(dtype, kind, "forward", 5, states=False)
            yield case(dtype, kind, "forward", 5, clip=0.4)
        yield case(dtype, "gru", "forward", 5, linear_before_reset=True)
        yield case(dtype, "lstm", "forward", 5, input_forget=True)


def refused() -> Iterator[Case]:
    """Ops whose sizes depend on data, and ops that no device takes yet. A device is allowed to take them."""
    boxes = given([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 2, 1, 3]]], "f32", constant=False)
    yield Case("nms", "f32", (boxes, fed("f32", 1, 1, 3, values="positive"), given([3]), given(0.5, "f32")), usual=True)
    for dtype in ("f32", "i32", "bool"):
        yield Case("nonzero", dtype, (Operand(dtype, (3, 17), "0..2"),), usual=True)
    for dtype in ("f32", "i32", "i64"):
        ends = [given(value, dtype, constant=False) for value in (1, 18, 2)]
        yield Case("range", dtype, tuple(ends), usual=True)
    counter = given(3, constant=False)
    for kind in ("bits", "uniform", "normal"):
        yield Case(
            "random",
            "u32" if kind == "bits" else "f32",
            (counter,),
            {"kind": kind, "shape": [3, 17], "seed": 5},
            usual=True,
        )
    for count in (1, 3, 4, 5, 127):
        for kind in ("bits", "uniform", "normal"):
            dtype, how = "u32" if kind == "bits" else "f32", {"kind": kind, "shape": [count], "seed": -7, "stream": 2}
            yield Case("random", dtype, (given(2**40 + 1, constant=False),), how, usual=count == 5)
    rois = given([[0, 0, 5, 5], [1, 1, 3, 6]], "f32", constant=False)
    for kind in ("avg", "max"):
        operands = (fed("f32", 1, 3, 8, 9), rois, given([0, 0], constant=False))
        yield Case(
            "roi_align", "f32", operands, {"kind": kind, "height": 3, "width": 2, "sampling_ratio": 2}, usual=True
        )
