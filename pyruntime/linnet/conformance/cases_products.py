"""Cases of matmul, conv and conv_transpose of floats, with epilogues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from linnet.conformance.case import EPILOGUES, Case, const, fed

FLOATS = ("f32", "f16", "bf16")
_TILES = (
    (1, 1, 1), (3, 5, 7), (4, 4, 4), (5, 3, 9), (7, 8, 16), (8, 17, 15), (9, 16, 17), (15, 13, 63), (16, 64, 64),
    (17, 65, 65), (63, 31, 3), (64, 257, 64), (65, 129, 67), (1, 127, 65), (65, 127, 1),
)  # fmt: skip
_BATCHES = (
    ((5,), (5,)),
    ((5,), (5, 7)),
    ((7, 5), (5,)),
    ((3, 7, 5), (5, 4)),
    ((3, 7, 5), (3, 5, 4)),
    ((2, 1, 4, 5), (3, 5, 6)),
    ((7, 5), (2, 3, 5, 4)),
    ((2, 3, 17, 9), (2, 3, 9, 65)),
    ((4, 16), (2, 16)),  # transposed b
)


def matmuls() -> Iterator[Case]:
    for dtype in FLOATS:
        usual = dtype == "f32"
        for m, k, n in _TILES:
            for ta, tb in ((False, False), (True, False), (False, True), (True, True)):
                a, b = (k, m) if ta else (m, k), (n, k) if tb else (k, n)
                turned = {"transpose_a": ta, "transpose_b": tb} if ta or tb else {}
                yield Case("matmul", dtype, (fed(dtype, *a), const(dtype, *b)), turned, depth=k, usual=usual)
            yield Case("matmul", dtype, (fed(dtype, m, k), fed(dtype, k, n)), depth=k, usual=usual, note="both fed")
            biased = (fed(dtype, m, k), const(dtype, k, n), const(dtype, n))
            yield Case("matmul", dtype, biased, depth=k, usual=usual)
        for left, right in _BATCHES:
            turned = {"transpose_b": True} if left[-1] != right[-2 if len(right) > 1 else -1] else {}
            yield Case("matmul", dtype, (fed(dtype, *left), fed(dtype, *right)), turned, depth=left[-1], usual=usual)
        biased = (fed(dtype, 5, 7), const(dtype, 7, 6), const(dtype, 1))
        yield Case("matmul", dtype, biased, depth=7, usual=usual)
        for epilogue in _epilogues(dtype):
            for m, k, n in ((5, 3, 9), (16, 64, 64), (65, 129, 67)):
                biased = (fed(dtype, m, k), const(dtype, k, n), const(dtype, n))
                yield Case("matmul", dtype, biased, depth=k, epilogue=epilogue, usual=usual and epilogue in _QUICK)


_QUICK = ("relu", "residual", "sigmoid")


def _epilogues(dtype: str) -> Sequence[str]:
    return tuple(EPILOGUES) if dtype == "f32" else ("clip", "tanh")


def _window(
    op: str, dtype: str, x: tuple[int, ...], out: int, kernel: tuple[int, ...], bias: bool = True, epilogue: str = "",
    usual: bool = False, **attributes: Any,
) -> Case:  # fmt: skip
    """x: the shape [n, c, d...]. It is given with the channels at axis 1 even if the case has them last."""
    group, channels = attributes.get("group", 1), x[1]
    last = attributes.get("channel_axis", 1) == -1
    shape = (x[0], *x[2:], x[1]) if last else x
    weights = (out, channels // group, *kernel) if op == "conv" else (channels, out // group, *kernel)
    depth = channels // group
    for size in kernel:
        depth *= size
    operands = (fed(dtype, *shape), const(dtype, *weights), const(dtype, out) if bias else None)
    return Case(op, dtype, operands, attributes, depth=depth, epilogue=epilogue, usual=usual)


def convs() -> Iterator[Case]:
    for dtype in FLOATS:
        for axis in (1, -1):
            yield from _convs_of(dtype, {} if axis == 1 else {"channel_axis": axis}, dtype == "f32")
        for epilogue in _epilogues(dtype):
            for axis in (1, -1):
                q = dtype == "f32" and axis == 1 and epilogue in _QUICK
                yield _window("conv", dtype, (2, 5, 9, 7), 17, (3, 3), epilogue=epilogue, usual=q, channel_axis=axis)
                yield _window("conv", dtype, (1, 16, 8, 9), 65, (1, 1), epilogue=epilogue, channel_axis=axis)


def _convs_of(dtype: str, axis: dict[str, Any], usual: bool) -> Iterator[Case]:
    def case(x: tuple[int, ...], out: int, kernel: tuple[int, ...], bias: bool = True, **attributes: Any) -> Case:
        return _window("conv", dtype, x, out, kernel, bias, usual=usual, **attributes, **axis)

    for channels, out, side in (
        (1, 1, 5),
        (3, 4, 7),
        (4, 5, 8),
        (7, 8, 9),
        (8, 16, 11),
        (16, 17, 13),
        (5, 63, 4),
        (17, 64, 3),
        (9, 65, 5),
    ):
        yield case((1, channels, side, side + 1), out, (3, 3), pads=[1, 1, 1, 1])
        yield case((1, channels, side, side + 1), out, (1, 1))
        yield case((2, channels, side, side), out, (3, 2), False, strides=[2, 1])
    yield case((2, 5, 9, 8), 7, (1, 1), strides=[2, 3])
    yield case((1, 65, 7, 9), 67, (1, 1), False)
    yield case((1, 3, 13, 11), 5, (3, 3), dilations=[2, 3], pads=[2, 0, 1, 3])
    yield case((1, 3, 13, 11), 5, (5, 4), pads=[4, 3, 4, 3], strides=[3, 2])
    for mode in ("same_upper", "same_lower", "valid"):
        yield case((1, 4, 10, 7), 6, (4, 3), auto_pad=mode, strides=[2, 2])
    yield case((1, 6, 8, 7), 9, (3, 3), group=3, pads=[1, 1, 1, 1])
    for channels in (3, 8, 17, 65):
        yield case((2, channels, 9, 8), channels, (3, 3), group=channels, pads=[1, 1, 1, 1])
    yield case((1, 4, 9, 9), 8, (3, 3), group=4, strides=[2, 2])
    for size in (4, 17, 65):
        yield case((2, 3, size), 5, (3,), pads=[1, 1])
        yield case((1, 4, size), 4, (2,), group=4, dilations=[2])
    yield case((1, 3, 5, 6, 7), 4, (2, 3, 3), pads=[0, 1, 1, 0, 1, 1])
    yield case((2, 4, 4, 5, 5), 8, (3, 2, 1), group=2, strides=[1, 2, 2])


def transposed() -> Iterator[Case]:
    for dtype in FLOATS:
        for axis in (1, -1):
            yield from _transposed_of(dtype, {} if axis == 1 else {"channel_axis": axis}, dtype == "f32" and axis == 1)
        for epilogue in _epilogues(dtype):
            yield _window("conv_transpose", dtype, (2, 5, 4, 7), 6, (3, 3), epilogue=epilogue, strides=[2, 2],
                          usual=dtype == "f32" and epilogue == "relu")  # fmt: skip


def _transposed_of(dtype: str, axis: dict[str, Any], usual: bool) -> Iterator[Case]:
    def case(x: tuple[int, ...], out: int, kernel: tuple[int, ...], bias: bool = True, **attributes: Any) -> Case:
        return _window("conv_transpose", dtype, x, out, kernel, bias, usual=usual, **attributes, **axis)

    for channels, out, side in ((1, 1, 3), (3, 4, 5), (4, 5, 4), (8, 17, 7), (17, 16, 3), (5, 65, 4)):
        yield case((1, channels, side, side + 1), out, (3, 3), pads=[1, 1, 1, 1])
        yield case((2, channels, side, side), out, (2, 2), False, strides=[2, 2])
        yield case((1, channels, side, side), out, (3, 2), strides=[2, 3], output_padding=[1, 2])
    yield case((1, 3, 5, 4), 6, (3, 3), dilations=[2, 1])
    yield case((1, 6, 5, 4), 9, (3, 3), group=3, strides=[2, 1])
    yield case((1, 8, 5, 4), 8, (3, 3), group=8, strides=[2, 2], pads=[1, 0, 0, 1])
    for mode in ("same_upper", "same_lower"):
        yield case((1, 3, 5, 4), 4, (4, 3), auto_pad=mode, strides=[2, 2])
    yield case((1, 3, 5, 4), 4, (3, 3), strides=[2, 2], output_shape=[10, 8])
    yield case((2, 3, 17), 5, (3,), strides=[2])
    yield case((1, 3, 3, 4, 5), 4, (2, 3, 2), strides=[1, 2, 2])
