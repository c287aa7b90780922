"""Cases of copy, gather and scatter: every kind, with elements of 1, 2, 4 and 8 bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from linnet.conformance.case import Case, Operand, fed, given, per_tensor
from linnet.conformance.cases_maps import SIZES

_ALL = ("f32", "f16", "bf16", "i8", "u8", "i16", "i32", "i64", "bool")
_SHAPES = ((3, 5, 7), (4, 8, 16), (1, 17, 63), (5, 1, 64), (2, 65, 3))


def copies() -> Iterator[Case]:
    for dtype in _ALL:
        yield from _copies_of(dtype)


def _copy(of: str, x: tuple[int, ...], kind: str, outputs: int = 1, times: int = 1, **attributes: Any) -> Case:
    operands = tuple(fed(of, *x) for _ in range(times))
    return Case("copy", of, operands, {"kind": kind, **attributes}, outputs, usual=of in ("f32", "i8"))


def _copies_of(dtype: str) -> Iterator[Case]:
    for size in SIZES:
        yield _copy(dtype, (3, size), "transpose", perm=[1, 0])
        yield _copy(dtype, (size, 2), "concat", times=3, axis=0)
    for shape in _SHAPES:
        for perm in ([0, 2, 1], [2, 1, 0], [1, 0, 2], [1, 2, 0]):
            yield _copy(dtype, shape, "transpose", perm=perm)
        for axis in (0, 1, -1):
            yield _copy(dtype, shape, "concat", times=2, axis=axis)
        sizes = [1, shape[-1] - 1] if shape[-1] > 1 else [1]
        yield _copy(dtype, shape, "split", outputs=len(sizes), axis=-1, shape=sizes)
        yield _copy(dtype, shape, "slice", starts=[0, 1], ends=[99, 99], axes=[0, 2], steps=[1, 2])
        yield _copy(dtype, shape, "slice", starts=[-1], ends=[-99], axes=[2], steps=[-1])
        yield _copy(dtype, shape, "tile", shape=[2, 1, 3])
        yield _copy(dtype, shape, "expand", shape=[2, 1, *shape])
        yield _copy(dtype, shape, "reshape", shape=[-1])
        for mode in ("constant", "edge", "reflect", "wrap"):
            if mode != "reflect" or min(shape) > 1:
                yield _copy(dtype, shape, "pad", pads=[0, 1, 1, 0, 0, 1] if mode == "reflect" else [1, 0, 2, 0, 1, 1],
                            pad_mode=mode, value=1.0 if mode == "constant" else 0.0)  # fmt: skip
        yield _copy(dtype, shape, "pad", pads=[0, 0, -1, 0, 2, 0])
    yield _copy(dtype, (2, 3, 4, 5, 2), "transpose", perm=[4, 2, 0, 3, 1])
    yield _copy(dtype, (1, 3, 1, 5), "squeeze", axes=[0, 2])
    yield _copy(dtype, (3, 5), "unsqueeze", axes=[0, 2])
    yield _copy(dtype, (3, 5), "identity")
    for mode in ("dcr", "crd"):
        yield _copy(dtype, (2, 8, 3, 5), "depth_to_space", block=2, depth_mode=mode, axis=1)
    yield _copy(dtype, (1, 3, 5, 18), "depth_to_space", block=3, axis=-1)
    yield _copy(dtype, (2, 3, 4, 6), "space_to_depth", block=2, axis=1)
    yield _copy(dtype, (2, 4, 6, 3), "space_to_depth", block=2, axis=-1)
    same = {"f32": "i32", "f16": "i16", "i8": "u8", "i32": "f32", "i16": "bf16"}
    if dtype in same:
        yield _copy(dtype, (3, 5), "bitcast", dtype=same[dtype])


def _indices(dtype: str, size: int, shape: tuple[int, ...], constant: bool = False) -> Operand:
    return Operand(dtype, shape, f"{-size}..{size}", constant)


# dtype, shape of the indices, axis: x is [7, 9, 5].
_SHORTER = [
    (dtype, shape, axis)
    for dtype in ("f32", "f16", "i8", "i64")
    for shape, axis in (
        ((4, 9, 3), 0),
        ((3, 16, 4), 1),
        ((7, 8, 17), 2),
        ((1, 1, 1), 1),
        ((5, 13, 5), 1),
        ((6, 9, 64), 2),
    )
]


def gathers() -> Iterator[Case]:
    for dtype in _ALL:
        for index in ("i32", "i64"):
            usual = dtype == "f32" or (dtype == "i8" and index == "i32")
            for size in (1, 5, 17, 64, 65):
                x = fed(dtype, size, 7)
                for shape in ((3,), (2, 5), ()):
                    yield Case("gather", dtype, (x, _indices(index, size, shape)), {"axis": 0}, usual=usual)
                yield Case("gather", dtype, (x, _indices(index, 7, (4,), True)), {"axis": 1}, usual=usual)
                yield Case(
                    "gather", dtype, (x, _indices(index, size, (3, 7))), {"kind": "elements", "axis": 0}, usual=usual
                )
                pairs = np.stack([np.arange(6) % size, np.arange(6)], -1)
                yield Case("gather", dtype, (x, given(pairs, index, constant=False)), {"kind": "nd"}, usual=usual)
        usual = dtype == "f32"
        x = fed(dtype, 3, 4, 5)
        yield Case("gather", dtype, (x, _indices("i64", 4, (3, 2, 1))), {"kind": "nd", "batch_dims": 1}, usual=usual)
        yield Case("gather", dtype, (x, _indices("i64", 5, (3, 4, 9))), {"kind": "elements", "axis": 2}, usual=usual)
    table = fed("i8", 9, 5, values="full", quantization=per_tensor(0.05, 3))
    yield Case("gather", "i8", (table, _indices("i32", 9, (4,))), {"dtype": "f32"}, note="real values")
    for dtype, lengths, axis in _SHORTER:
        indices = _indices("i64", (7, 9, 5)[axis], lengths)
        yield Case("gather", dtype, (fed(dtype, 7, 9, 5), indices), {"kind": "elements", "axis": axis}, usual=dtype == "f32",
                   note="shorter indices")  # fmt: skip


def scatters() -> Iterator[Case]:
    for dtype in _ALL:
        usual = dtype in ("f32", "i32")
        for size in (4, 5, 17, 64, 65):
            x, once = (
                fed(dtype, size, 7),
                given(np.arange(size - 1, -1, -1)[:, None].repeat(3, 1), "i64", constant=False),
            )
            yield Case(
                "scatter", dtype, (x, once, fed(dtype, size, 3)), {"axis": 0}, usual=usual, note="each index once"
            )
            rows = given(np.arange(0, size, 2)[:, None], "i32" if size % 2 else "i64", constant=False)
            yield Case("scatter", dtype, (x, rows, fed(dtype, -(-size // 2), 7)), {"kind": "nd"}, usual=usual)
        if dtype == "bool":
            continue
        for reduction in ("add", "mul", "max", "min"):
            values = "near_one" if dtype in ("f32", "f16", "bf16") else "-3..4" if dtype != "u8" else "0..4"
            x, many = fed(dtype, 9, 5, values=values), _indices("i64", 9, (20, 5))
            yield Case("scatter", dtype, (x, many, fed(dtype, 20, 5, values=values)), {"axis": 0, "reduction": reduction},
                       depth=20, usual=usual and reduction == "add")  # fmt: skip
    for dtype, shape, axis in _SHORTER:
        size, numbers = (7, 9, 5)[axis], np.arange(shape[axis])
        turned = numbers.reshape([-1 if d == axis else 1 for d in range(3)]) % size
        operands = (
            fed(dtype, 7, 9, 5),
            given(np.broadcast_to(turned, shape), "i64", constant=False),
            fed(dtype, *shape),
        )
        yield Case(
            "scatter",
            dtype,
            operands,
            {"axis": axis},
            usual=dtype == "f32",
            note="shorter indices, the last update wins",
        )
