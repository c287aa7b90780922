"""Cases of matmul, conv and conv_transpose of quantized operands. The device's integer results must have the same bits
as the CPU's."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from linnet.conformance.case import Case, Operand, const, fed, per_axis, per_tensor
from linnet.ir.dtypes import Quantization

_MODES = ("float_rne", "tflite", "tflite_single")
_X = {"i8": (0.05, -3), "u8": (0.04, 120), "i16": (0.0007, 0)}
_Y = {"i8": (0.3, 5), "u8": (0.35, 100), "i16": (0.004, 0)}
_EPILOGUES = ("relu", "clip", "residual", "scale", "sigmoid")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Form:
    """How a case is quantized. channels: whether scales are per channel. output: the dtype of the result; "": that of x.
    zeros: whether the weights have zero points. w: the dtype of the weights."""

    channels: bool
    requant: str = "float_rne"
    output: str = ""
    zeros: bool = False
    bias: bool = True
    w: str = "i8"
    epilogue: str = ""
    usual: bool = False


def _case(
    op: str, dtype: str, shape: tuple[int, ...], weights: tuple[int, ...], axis: int, *, depth: int, **more: Any
) -> Case:
    """axis: the axis of the output channels in the weights. more: the fields of the form, and the attributes of the op."""
    form = _Form(**{field.name: more.pop(field.name) for field in dataclasses.fields(_Form) if field.name in more})
    output, w = form.output or dtype, form.w
    count = weights[axis] * (more.get("group", 1) if op == "conv_transpose" else 1)
    kept: tuple[Quantization | None, ...] = (per_tensor(*_Y[output]),) if output in _Y else ()
    step = 0.01 if w != "i16" else 4e-5
    zero = 2 if form.zeros else 0
    scheme = per_axis(weights[axis], axis, step, form.zeros) if form.channels else per_tensor(0.02, zero)
    if w == "u8":
        scheme = per_tensor(0.02, 130)
    values = "full" if dtype != "i16" else "-4000..4000"
    operands: list[Operand | None] = [
        fed(dtype, *shape, values=values, quantization=per_tensor(*_X[dtype])),
        const(w, *weights, values="full", quantization=scheme),
        const("i64" if dtype == "i16" else "i32", count, values="-3000..3000") if form.bias else None,
    ]
    given = {"requant": form.requant, **({"output_dtype": output} if output != dtype else {}), **more}
    return Case(
        op, dtype, tuple(operands), given, quantization=kept, epilogue=form.epilogue, depth=depth, usual=form.usual
    )


def _schemes() -> Iterator[tuple[str, str, bool, bool]]:
    """Yields (dtype of x, requant mode, whether scales are per channel, whether the usual list has the case)."""
    for dtype in _X:
        for mode in _MODES:
            for channels in (False, True):
                yield dtype, mode, channels, dtype == "i8" and channels and mode != "tflite_single"


def matmuls() -> Iterator[Case]:
    def case(dtype: str, m: int, k: int, n: int, *lead: int, **more: Any) -> Case:
        return _case("matmul", dtype, (*lead, m, k), (k, n), 1, depth=k, **more)

    for dtype, mode, channels, usual in _schemes():
        for m, k, n in ((1, 1, 1), (3, 5, 7), (4, 4, 4), (8, 17, 15), (17, 64, 65), (65, 129, 63), (1, 127, 67)):
            yield case(dtype, m, k, n, requant=mode, channels=channels, usual=usual)
        yield case(dtype, 5, 9, 4, 2, 3, requant=mode, channels=channels, usual=usual)
        yield case(dtype, 5, 9, 7, requant=mode, channels=channels, bias=False, usual=usual)
        if mode == "float_rne":
            yield case(dtype, 5, 19, 7, requant=mode, channels=channels, zeros=True, usual=usual)
    for dtype in _X:
        for output in ("f32", "i32" if dtype != "i16" else "i64", "i16" if dtype != "i16" else "i8"):
            for m, k, n in ((3, 5, 7), (17, 64, 65)):
                yield case(dtype, m, k, n, channels=True, output=output, usual=dtype == "i8" and output == "f32")
        if dtype != "i16":
            yield case(dtype, 9, 33, 8, channels=False, w="u8", usual=False)
    for mode in _MODES:
        for m, k, n in ((1, 64, 33), (5, 17, 8), (17, 65, 31)):
            yield case("i16", m, k, n, requant=mode, channels=True, w="i16")
    for output in ("f32", "i64", "i8"):
        yield case("i16", 9, 600, 7, channels=True, w="i16", output=output)
    yield case("i16", 5, 9, 7, channels=True, w="i16", epilogue="residual")
    for dtype in _X:
        for epilogue in _EPILOGUES:
            for m, k, n in ((5, 3, 9), (17, 64, 65)):
                usual = dtype == "i8" and epilogue == "residual"
                yield case(dtype, m, k, n, channels=True, epilogue=epilogue, usual=usual)


def _window(op: str, dtype: str, x: tuple[int, ...], out: int, kernel: tuple[int, ...], **more: Any) -> Case:
    group, channels = more.get("group", 1), x[1]
    last = more.get("channel_axis", 1) == -1
    weights = (out, channels // group, *kernel) if op == "conv" else (channels, out // group, *kernel)
    depth = channels // group
    for size in kernel:
        depth *= size
    shape = (x[0], *x[2:], x[1]) if last else x
    return _case(op, dtype, shape, weights, 0 if op == "conv" else 1, depth=depth, **more)


def convs() -> Iterator[Case]:
    for dtype, mode, channels, usual in _schemes():
        if mode == "tflite_single" and not channels:
            continue
        for axis in (1, -1):
            more: dict[str, Any] = {
                "requant": mode,
                "channels": channels,
                "channel_axis": axis,
                "usual": usual and axis == -1 and mode == "float_rne",
            }
            for count, out, side in ((1, 1, 5), (3, 5, 7), (8, 16, 9), (17, 65, 4)):
                yield _window("conv", dtype, (1, count, side, side + 1), out, (3, 3), pads=[1, 1, 1, 1], **more)
                yield _window("conv", dtype, (2, count, side, side), out, (1, 1), **more)
            yield _window("conv", dtype, (1, 5, 9, 8), 7, (3, 2), strides=[2, 1], auto_pad="same_upper", **more)
            yield _window("conv", dtype, (1, 6, 8, 7), 9, (3, 3), group=3, dilations=[2, 1], **more)
            yield _window("conv", dtype, (1, 17, 8, 9), 17, (3, 3), group=17, pads=[1, 1, 1, 1], **more)
    for dtype in _X:
        for output in ("f32", "i32" if dtype != "i16" else "i64"):
            yield _window("conv", dtype, (1, 5, 9, 7), 6, (3, 3), channels=True, output=output)
        yield _window("conv", dtype, (1, 5, 9, 7), 6, (3, 3), channels=True, zeros=True, pads=[1, 1, 1, 1])
        yield _window("conv", dtype, (1, 5, 17), 6, (3,), channels=True)
        yield _window("conv", dtype, (1, 3, 5, 6, 7), 4, (2, 3, 3), channels=True)
        for epilogue in _EPILOGUES:
            usual = dtype == "i8" and epilogue == "relu"
            yield _window("conv", dtype, (2, 5, 9, 7), 17, (3, 3), channels=True, epilogue=epilogue, usual=usual)
            yield _window("conv", dtype, (2, 5, 9, 7), 17, (1, 1), channels=True, epilogue=epilogue, channel_axis=-1)
    for mode in _MODES:
        for axis in (1, -1):
            more = {"requant": mode, "channels": True, "channel_axis": axis, "w": "i16"}
            yield _window("conv", "i16", (1, 17, 7, 6), 9, (3, 3), pads=[1, 1, 1, 1], **more)
            yield _window("conv", "i16", (2, 16, 5, 5), 33, (1, 1), **more)
            yield _window("conv", "i16", (1, 17, 8, 9), 17, (3, 3), group=17, pads=[1, 1, 1, 1], **more)
    for output in ("f32", "i64"):
        yield _window("conv", "i16", (1, 65, 4, 5), 6, (3, 3), channels=True, output=output, w="i16")


def transposed() -> Iterator[Case]:
    for dtype, mode, channels, usual in _schemes():
        if dtype == "u8" or (mode == "tflite_single" and not channels):
            continue
        for axis in (1, -1):
            more: dict[str, Any] = {
                "requant": mode, "channels": channels, "channel_axis": axis, "usual": usual and axis == -1 and mode == "tflite",
            }  # fmt: skip
            for count, out, side in ((1, 1, 3), (3, 5, 4), (8, 17, 5)):
                yield _window("conv_transpose", dtype, (1, count, side, side + 1), out, (3, 3), strides=[2, 2], **more)
            yield _window("conv_transpose", dtype, (1, 3, 4, 5), 4, (2, 3), pads=[0, 1, 1, 0], **more)
    for dtype in ("i8", "i16"):
        for epilogue in ("relu", "residual"):
            yield _window(
                "conv_transpose", dtype, (1, 5, 4, 3), 6, (3, 3), channels=True, epilogue=epilogue, strides=[2, 1]
            )
        yield _window("conv_transpose", dtype, (1, 5, 4, 3), 6, (3, 3), channels=True, output="f32")
    for mode in _MODES:
        yield _window("conv_transpose", "i16", (1, 8, 4, 5), 9, (3, 3), channels=True, requant=mode, w="i16")
