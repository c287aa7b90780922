"""Cases of reductions, softmax, norms, cumsum and top_k: ops on lines of elements."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from linnet.conformance.case import Case, Operand, const, fed, given, per_tensor
from linnet.conformance.cases_maps import SIZES

_KINDS = ("sum", "mean", "max", "min", "prod", "l1", "l2", "sum_square", "log_sum", "log_sum_exp", "argmax", "argmin")
_INTEGER_KINDS = ("sum", "mean", "max", "min", "prod", "l1", "sum_square", "argmax", "argmin")
_SHAPES: tuple[tuple[tuple[int, ...], list[int]], ...] = (
    ((1,), [0]), ((63,), []), ((64, 3), [0]), ((3, 65), [1]), ((2, 5, 7), [1]), ((2, 3, 129), [-1]), ((2000,), [0]),
    ((17, 1, 16), [2]), ((4, 257, 2), [1]),
)  # fmt: skip
FLOATS = ("f32", "f16", "bf16")


def _values(kind: str) -> str:
    return {"prod": "near_one", "log_sum": "positive"}.get(kind, "normal")


def reductions() -> Iterator[Case]:
    for dtype in FLOATS:
        for kind in _KINDS if dtype == "f32" else ("sum", "mean", "max", "log_sum_exp", "argmin"):
            usual = (dtype == "f32" and kind in ("sum", "max", "argmax", "log_sum_exp")) or (dtype, kind) == (
                "f16",
                "mean",
            )
            for shape, axes in _SHAPES:
                count = shape[axes[0]] if axes else math.prod(shape)
                at = axes or ([0] if kind.startswith("arg") else [])
                attributes: dict[str, Any] = {"kind": kind, "axes": at, "keep_dims": len(shape) == 3}
                yield Case(
                    "reduce", dtype, (fed(dtype, *shape, values=_values(kind)),), attributes, depth=count, usual=usual
                )
            if kind in ("sum", "max", "min", "argmax", "argmin", "log_sum_exp"):
                x = fed(dtype, 6, 70, values="special")
                yield Case("reduce", dtype, (x,), {"kind": kind, "axes": [1]}, depth=70, usual=usual)
    x = fed("f32", 2, 3, 4, 5, 2, 3)
    for axes in ([0, 2, 4], [1, 3, 5], [0, 1], [-1, -2], [], [0, 1, 2, 3, 4, 5], [2]):
        yield Case("reduce", "f32", (x,), {"kind": "mean", "axes": axes, "keep_dims": False}, depth=120, usual=True)
        if axes:
            yield Case(
                "reduce", "f32", (x, given(axes)), {"kind": "sum"}, depth=120, usual=True, note="axes are an operand"
            )
    for dtype in ("i8", "u8", "i16", "i32", "i64", "bool"):
        for kind in (
            ("sum", "max", "min") if dtype == "bool" else _INTEGER_KINDS if dtype != "i16" else _INTEGER_KINDS[:4]
        ):
            usual = dtype == "i8" and kind in ("sum", "max")
            if dtype in ("u8", "i64") and kind in ("prod", "sum_square", "argmin", "min"):
                continue
            for shape, axes in (((3, 17, 2), [1]), ((65,), [0]), ((4, 129), [-1]), ((1, 1, 1), [1])):
                attributes = {"kind": kind, "axes": axes}
                if kind.startswith("arg"):
                    attributes["select_last_index"] = True
                values = "full" if dtype != "i64" else "normal"
                yield Case("reduce", dtype, (fed(dtype, *shape, values=values),), attributes, usual=usual)
    for dtype, scale in (("i8", 0.05), ("i16", 0.001)):
        q = fed(dtype, 5, 33, values="full", quantization=per_tensor(scale, -3 if dtype == "i8" else 0))
        for kind in ("mean", "max"):
            yield Case(
                "reduce", dtype, (q,), {"kind": kind, "axes": [1]}, depth=33, dtypes=("f32",), note="real values"
            )


def softmaxes() -> Iterator[Case]:
    for dtype in FLOATS:
        for log in (False, True):
            for size in (*SIZES, 2000):
                yield Case("softmax", dtype, (fed(dtype, 3, size),), {"log": log}, depth=size, usual=dtype == "f32")
            for axis in (0, 1, 2):
                yield Case("softmax", dtype, (fed(dtype, 5, 65, 7),), {"axis": axis, "log": log}, usual=dtype == "f32")
            yield Case("softmax", dtype, (fed(dtype, 9, 33, values="special"),), {"log": log}, usual=dtype == "f32")


def layer_norms() -> Iterator[Case]:
    for dtype in FLOATS:
        for size in SIZES[1:]:
            affine = (fed(dtype, 5, size), const(dtype, size), const(dtype, size))
            yield Case("layer_norm", dtype, affine, depth=size, usual=dtype == "f32")
        for scaled, biased, rms in (
            (True, False, True),
            (False, False, False),
            (True, True, True),
            (False, False, True),
        ):
            operands = (fed(dtype, 5, 67), const(dtype, 67) if scaled else None, const(dtype, 67) if biased else None)
            yield Case("layer_norm", dtype, operands, {"rms": rms}, depth=67, usual=dtype == "f32" and scaled)
        both = (fed(dtype, 2, 5, 13), const(dtype, 5, 13), const(dtype, 5, 13))
        yield Case("layer_norm", dtype, both, {"axis": 1, "epsilon": 0.01}, depth=65, usual=dtype == "f32")
        yield Case("layer_norm", dtype, (fed(dtype, 3, 1500), const(dtype, 1500), const(dtype, 1500)), depth=1500)
    affine = (fed("f32", 5, 33), const("f32", 33), const("f32", 33))
    yield Case("layer_norm", "f32", affine, outputs=3, depth=33)


def other_norms() -> Iterator[Case]:
    for dtype in FLOATS:
        for axis in (1, -1):
            for channels, side in ((3, 5), (8, 7), (17, 4), (64, 3), (65, 2)):
                x = fed(dtype, 2, *((channels, side, side + 1) if axis == 1 else (side, side + 1, channels)))
                normal, positive = fed(dtype, channels), fed(dtype, channels, values="positive")
                attributes: dict[str, Any] = {"channel_axis": axis}
                yield Case("batch_norm", dtype, (x, normal, normal, normal, positive), attributes, usual=dtype == "f32")
                for groups in {0, 1, channels if channels % 2 else channels // 2}:
                    affine = (x, const(dtype, channels), const(dtype, channels))
                    yield Case("group_norm", dtype, affine, {"groups": groups, **attributes}, depth=channels * side * side,
                               usual=dtype == "f32" and axis == 1)  # fmt: skip
                yield Case("group_norm", dtype, (x,), attributes, depth=side * side)


def running_sums() -> Iterator[Case]:
    for dtype in (*FLOATS, "i32", "i64"):
        for exclusive, reverse, product in (
            (False, False, False),
            (True, False, False),
            (False, True, False),
            (True, True, True),
        ):
            attributes = {"exclusive": exclusive, "reverse": reverse, "product": product}
            attributes = {name: True for name, on in attributes.items() if on}
            for shape, axis in (((1,), 0), ((5, 7), 1), ((64, 3), 0), ((3, 65, 2), 1), ((2, 257), -1)):
                values = ("near_one" if product else "normal") if dtype in FLOATS else "-2..3" if product else "normal"
                yield Case("cumsum", dtype, (fed(dtype, *shape, values=values), given(axis)), attributes, depth=max(shape),
                           usual=dtype in ("f32", "i32") and not exclusive)  # fmt: skip


def largest() -> Iterator[Case]:
    for dtype in (*FLOATS, "i8", "u8", "i16", "i32", "i64"):
        for most in (True, False):
            for shape, axis, k in (((7,), 0, 7), ((1, 7), -1, 1), ((3, 17), 1, 3), ((5, 64), 1, 8), ((3, 65, 2), 1, 5),
                                   ((2, 257), 1, 64)):  # fmt: skip
                attributes = {"axis": axis, "largest": most}
                x = fed(dtype, *shape, values="normal" if dtype in FLOATS else "full")
                yield Case("top_k", dtype, (x, given([k])), attributes, 2, usual=dtype in ("f32", "i8"))
            ties = Operand(dtype, (4, 33), "0..4") if dtype not in ("bf16",) else fed(dtype, 4, 33, values="special")
            yield Case("top_k", dtype, (ties, given([9])), {"largest": most}, 2, usual=dtype == "f32")
