"""Looks for ordinary shapes that fall to slow kernels: `python -m tests.slow_shapes [--op conv] [--dtypes f32,i8] [--all]`.
Each case is a graph with one layer, planned and timed in several dtypes. A case is slow if its kernel is a scalar
reference, if it takes longer than twice the time of f32, or if it does less than 1/8 of the work per second that is
usual for its op in f32."""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import linnet
from linnet.facade import Graph
from linnet.ir.dtypes import numpy_dtype
from linnet.ir.function import Function, Tensor, emit
from linnet.session.choices import Choice
from linnet.session.planner import Planner
from linnet.session.random_inputs import random_feeds
from linnet.session.tune import Timed
from tests.bench_kernels import GATES, _grid, _values, _x

DTYPES = ("f32", "f16", "bf16", "i16", "w16", "i8")  # i16 has weights of 8 bits, w16 of 16
HALVES = ("f16", "bf16")
FLOATS = ("f32", *HALVES)
LESS = 8  # times less work per second than usual
LONGER = 2  # times as long as f32

Build = Callable[[Function, str], Tensor]


@dataclasses.dataclass(frozen=True)
class Shape:
    """A layer. build adds it to a function in a dtype. dtypes: those that the op has."""

    op: str
    name: str
    build: Build
    dtypes: Sequence[str] = DTYPES


@dataclasses.dataclass(frozen=True)
class Found:
    """A planned and timed layer. gflops: operations per nanosecond. reference: the kernel is the scalar reference."""

    shape: Shape
    dtype: str
    kernel: str
    reference: bool
    us: float
    gflops: float


def _input(main: Function, shape: tuple[int, ...], dtype: str, name: str = "x") -> Tensor:
    return _x(main, shape, "i16" if dtype == "w16" else dtype, name)


def _floats(main: Function, dtype: str, *shape: int) -> Tensor:
    """A constant of floats; integer layers have it in f32."""
    stored = dtype if dtype in HALVES else "f32"
    return main.constant((_values(*shape) * np.float32(0.05)).astype(numpy_dtype(stored)))


def _weighted(
    op: str, main: Function, dtype: str, x: Tensor, weight: tuple[int, ...], axis: int, **more: Any
) -> Tensor:
    """A product of x and constants. A transposed convolution with groups has one scale for all of its weights."""
    turned = op == "conv_transpose" and more.get("group", 1) > 1
    count = weight[axis] * (more["group"] if turned else 1)
    if dtype in FLOATS:
        return emit(op, [x, _floats(main, dtype, *weight), _floats(main, dtype, count)], more)[0]
    scales = 1 if turned else weight[axis]
    wide = (_values(*weight, dtype="i16").astype("i4") * 1600 + 77).astype("i2")
    w = main.constant(
        wide if dtype == "w16" else _values(*weight, dtype="i8"),
        quantization=_grid(*[0.01] * scales, axis=None if turned else axis),
    )
    sums = _grid(*[0.01 * 0.05] * scales, axis=None if turned else 0)
    bias = main.constant(_values(count, dtype="i64" if x.dtype == "i16" else "i32"), quantization=sums)
    y = emit(op, [x, w, bias], {**more, "output_dtype": x.dtype})[0]
    y.quantization = _grid(1.0)
    return y


def conv(name: str, x: tuple[int, ...], out: int, kernel: Sequence[int], *, op: str = "conv", **more: Any) -> Shape:
    """A convolution of x, with channels on axis 1 or on more["channel_axis"]."""
    spatial = len(kernel)
    channels = x[more.get("channel_axis", 1)]
    group = more.get("group", 1)
    weight = (out, channels // group) if op == "conv" else (channels, out // group)
    more.setdefault("pads", [0] * (2 * spatial))
    more.setdefault("strides", [1] * spatial)

    def build(main: Function, dtype: str) -> Tensor:
        return _weighted(op, main, dtype, _input(main, x, dtype), (*weight, *kernel), int(op != "conv"), **more)

    return Shape(op, name, build)


def up(name: str, x: tuple[int, ...], out: int, kernel: int, stride: int, pad: int = 0, **more: Any) -> Shape:
    """A transposed convolution over two dimensions."""
    text = f"{name}: {'x'.join(map(str, x[1:]))} to {out}, {kernel}x{kernel}/{stride}"
    fields = {"strides": [stride] * 2, "pads": [pad] * 4, **more}
    return conv(text, x, out, (kernel, kernel), op="conv_transpose", **fields)


def unary(op: str, name: str, x: tuple[int, ...], dtypes: Sequence[str] = DTYPES, **more: Any) -> Shape:
    """An op without constants, which gives integers the scale of its input."""

    def build(main: Function, dtype: str) -> Tensor:
        (y,) = emit(op, [_input(main, x, dtype)], more)
        if dtype not in FLOATS and y.dtype in ("i8", "i16"):
            y.quantization = _grid(0.05)
        return y

    return Shape(op, name, build, [d for d in dtypes if d != "w16"])


def norm(op: str, name: str, x: tuple[int, ...], operands: int, channels: int, **more: Any) -> Shape:
    def build(main: Function, dtype: str) -> Tensor:
        rest = [main.constant((np.abs(_values(channels)) + 1).astype(numpy_dtype(dtype))) for _ in range(operands)]
        return emit(op, [_input(main, x, dtype), *rest], more)[0]

    return Shape(op, name, build, FLOATS)


def recurrent(kind: str, hidden: int, batch: int, steps: int, direction: str = "forward") -> Shape:
    ways = 2 if direction == "bidirectional" else 1

    def build(main: Function, dtype: str) -> Tensor:
        p = _input(main, (steps, batch, ways * GATES[kind] * hidden), dtype)
        w = _floats(main, dtype, ways, GATES[kind] * hidden, hidden)
        return emit("recurrent", [p, w], {"kind": kind, "direction": direction})[0]

    return Shape("recurrent", f"{kind} {hidden}, batch {batch}, {steps} steps, {direction}", build, FLOATS)


def matmul(name: str, a: tuple[int, ...], b: tuple[int, ...], constant: bool = True, **more: Any) -> Shape:
    """A product with constants, or with a second input."""

    def build(main: Function, dtype: str) -> Tensor:
        x = _input(main, a, dtype)
        if constant:
            return _weighted("matmul", main, dtype, x, b, len(b) - 1, **more)
        integer = dtype not in FLOATS
        (y,) = emit(
            "matmul", [x, _input(main, b, dtype, "b")], {**more, **({"output_dtype": x.dtype} if integer else {})}
        )
        if integer:
            y.quantization = _grid(1.0)
        return y

    return Shape("matmul", name, build, DTYPES if constant else [d for d in DTYPES if d != "w16"])


def shapes() -> Iterator[Shape]:
    """Layers such as networks have."""
    last: dict[str, Any] = {"channel_axis": -1}
    same = {"pads": [1, 1, 1, 1]}
    two = {"strides": [2, 2]}
    yield conv("3x3", (1, 64, 28, 28), 64, (3, 3), **same)
    yield conv("3x3, channels last", (1, 28, 28, 64), 64, (3, 3), **same, **last)
    yield conv("3x3/2, end padding", (1, 32, 57, 57), 48, (3, 3), **two, pads=[0, 0, 1, 1])
    yield conv("first 3x3/2 of 3", (1, 3, 112, 112), 16, (3, 3), **two, pads=[0, 0, 1, 1])
    yield conv("first 7x7/2 of 1", (1, 1, 96, 96), 16, (7, 7), **two, pads=[3, 3, 3, 3])
    yield conv("odd channels, 37 to 53", (1, 37, 28, 28), 53, (3, 3), **same)
    yield conv("to one channel, 3x3", (1, 32, 56, 56), 1, (3, 3), **same)
    yield conv("to 2 channels, 1x1", (1, 64, 56, 56), 2, (1, 1))
    yield conv("dilated by 2", (1, 64, 28, 28), 64, (3, 3), dilations=[2, 2], pads=[2, 2, 2, 2])
    yield conv("1x7", (1, 32, 28, 28), 32, (1, 7), pads=[0, 3, 0, 3])
    yield conv("1-d, 5", (1, 64, 200), 64, (5,), pads=[2, 2])
    yield conv("1-d, channels last, dilated by 4", (1, 200, 64), 64, (3,), dilations=[4], pads=[8, 0], **last)
    yield conv("3-d, 3x3x3", (1, 16, 8, 20, 20), 24, (3, 3, 3), pads=[1] * 6)
    yield conv("3-d, 1x3x3", (1, 16, 8, 20, 20), 24, (1, 3, 3), pads=[0, 1, 1, 0, 1, 1])
    for channels in (8, 33, 64):
        yield conv(f"depthwise {channels}, 3x3", (1, channels, 40, 40), channels, (3, 3), **same, group=channels)
    yield conv("depthwise, channels last", (1, 40, 40, 64), 64, (3, 3), **same, **last, group=64)
    yield conv("depthwise 3x3/2, end padding", (1, 64, 41, 41), 64, (3, 3), **two, pads=[0, 0, 1, 1], group=64)
    yield conv("depthwise 5x5/2", (1, 64, 40, 40), 64, (5, 5), **two, pads=[2, 2, 2, 2], group=64)
    yield conv("depthwise 9x9", (1, 64, 28, 28), 64, (9, 9), pads=[4] * 4, group=64)
    yield conv("depthwise, dilated by 2", (1, 64, 40, 40), 64, (3, 3), dilations=[2, 2], pads=[2] * 4, group=64)
    yield conv("depthwise, multiplier 2", (1, 32, 40, 40), 64, (3, 3), **same, group=32)
    yield conv("depthwise, multiplier 8 of 3", (1, 3, 80, 80), 24, (3, 3), **same, group=3)
    yield conv("depthwise 1-d, 31", (1, 64, 400), 64, (31,), pads=[15, 15], group=64)
    yield conv("depthwise 3-d", (1, 32, 8, 20, 20), 32, (3, 3, 3), pads=[1] * 6, group=32)
    for group in (2, 8, 16):
        yield conv(f"{group} groups", (1, 64, 28, 28), 64, (3, 3), **same, group=group)
    yield conv("3 groups of 8 to 11", (1, 24, 28, 28), 33, (3, 3), **same, group=3)
    yield conv("grouped 1x1, 4 groups", (1, 96, 28, 28), 96, (1, 1), group=4)
    yield conv("grouped 1-d, 16 groups", (1, 128, 200), 128, (9,), pads=[4, 4], group=16)
    yield up("decoder", (1, 64, 28, 28), 32, 2, 2)
    yield up("decoder, channels last", (1, 28, 28, 64), 32, 2, 2, **last)
    yield up("mask head", (1, 16, 72, 72), 2, 2, 2)
    yield up("mask head, one channel", (1, 16, 72, 72), 1, 2, 2)
    yield up("decoder", (1, 32, 28, 28), 16, 3, 2, 1, output_padding=[1, 1])
    yield up("few channels", (1, 8, 56, 56), 4, 3, 2, 1, output_padding=[1, 1])
    yield up("decoder", (1, 64, 20, 20), 64, 4, 2, 1)
    yield up("few channels", (1, 3, 56, 56), 3, 4, 2, 1)
    yield up("many channels", (1, 256, 8, 8), 128, 4, 2, 1)
    yield up("text detection", (1, 24, 80, 80), 24, 2, 2)
    yield up("text detection, one channel", (1, 24, 80, 80), 1, 2, 2)
    yield up("generator", (1, 512, 4, 4), 256, 4, 2, 1)
    yield up("no stride", (1, 24, 40, 40), 24, 3, 1, 1)
    yield up("depthwise", (1, 32, 32, 32), 32, 3, 2, 1, group=32, output_padding=[1, 1])
    yield up("depthwise bilinear", (1, 16, 40, 40), 16, 4, 2, 1, group=16)
    yield up("depthwise", (1, 64, 20, 20), 64, 2, 2, group=64)
    yield up("4 groups", (1, 64, 20, 20), 64, 4, 2, 1, group=4)
    yield conv("1-d, 8/4", (1, 64, 100), 32, (8,), op="conv_transpose", strides=[4], pads=[2, 2])
    yield conv("1-d, 16/8 to 1", (1, 64, 200), 1, (16,), op="conv_transpose", strides=[8], pads=[4, 4])
    yield conv("3-d, 2x2x2/2", (1, 32, 6, 12, 12), 16, (2, 2, 2), op="conv_transpose", strides=[2, 2, 2])
    yield matmul("classifier", (1, 512), (512, 1000))
    yield matmul("64 rows", (64, 128), (128, 128))
    yield matmul("odd, 7x33x101", (7, 101), (101, 33))
    yield matmul("one column", (400, 128), (128, 1))
    yield matmul("two inputs", (4, 64, 64), (4, 64, 64), constant=False)
    yield matmul("two inputs, second transposed", (4, 64, 32), (4, 64, 32), constant=False, transpose_b=True)
    yield matmul("a vector by a matrix, two inputs", (1, 256), (256, 256), constant=False)
    for kind in ("max", "average"):
        for name, size, kernel, more in (
            ("3x3/2", (1, 32, 40, 40), (3, 3), {**two, **same}),
            ("2x2/2, channels last", (1, 40, 40, 32), (2, 2), {**two, **last}),
            ("5x5/1", (1, 32, 20, 20), (5, 5), {"pads": [2, 2, 2, 2]}),
            ("1-d, 2/2", (1, 32, 400), (2,), {"strides": [2]}),
            ("3-d, 2x2x2/2", (1, 16, 8, 20, 20), (2, 2, 2), {"strides": [2, 2, 2]}),
            ("global", (1, 128, 10, 10), (10, 10), {}),
            ("17 channels", (1, 17, 40, 40), (2, 2), two),
        ):
            yield unary("pool", f"{kind} {name}", size, kind=kind, kernel=list(kernel), **more)
    for mode in ("nearest", "linear", "cubic"):
        for coordinates in ("half_pixel", "align_corners", "asymmetric"):
            name = f"{mode}, {coordinates}, twice"
            yield unary("resize", name, (1, 32, 20, 20), mode=mode, coordinates=coordinates, sizes=[1, 32, 40, 40])
        yield unary("resize", f"{mode}, 1.5 times", (1, 3, 60, 60), mode=mode, sizes=[1, 3, 90, 90])
        yield unary("resize", f"{mode}, to half", (1, 32, 40, 40), mode=mode, sizes=[1, 32, 20, 20])
        yield unary("resize", f"{mode}, channels last", (1, 20, 20, 32), mode=mode, sizes=[1, 40, 40, 32])
        yield unary("resize", f"{mode}, 1-d", (1, 32, 200), mode=mode, sizes=[1, 32, 400])
    for kind in ("sum", "mean", "max", "min", "l2", "prod", "sum_square", "log_sum_exp", "l1", "argmax"):
        for name, size, axes in (
            ("last axis", (64, 400), [1]), ("first axis", (400, 64), [0]), ("spatial", (1, 64, 20, 20), [2, 3]),
            ("channels", (1, 64, 20, 20), [1]),
        ):  # fmt: skip
            if kind != "argmax" or len(axes) == 1:
                yield unary("reduce", f"{kind}, {name}", size, kind=kind, axes=axes)
    for axis, size in ((1, (64, 400)), (1, (1, 21, 40, 40)), (3, (1, 40, 40, 21)), (0, (400, 64))):
        yield unary("softmax", f"{list(size)} over axis {axis}", size, FLOATS, axis=axis)
    yield norm("layer_norm", "[64, 384]", (64, 384), 2, 384, axis=-1)
    yield norm("layer_norm", "[64, 33]", (64, 33), 2, 33, axis=-1)
    yield norm("group_norm", "32 groups", (1, 64, 20, 20), 2, 64, groups=32)
    yield norm("group_norm", "each channel", (1, 33, 20, 20), 2, 33, groups=33)
    yield norm("batch_norm", "[1, 64, 20, 20]", (1, 64, 20, 20), 4, 64)
    for kind in GATES:
        yield recurrent(kind, 128, 1, 20)
        yield recurrent(kind, 63, 3, 20, "bidirectional")


def planned(shape: Shape, dtype: str, isa: str | None = None) -> tuple[linnet.Model, int, Choice]:
    """The model of a layer, and the number and the choice of the layer's step."""
    graph = Graph()
    main = graph.function()
    main.outputs.append(shape.build(main, dtype))
    graph.signature("infer", main)
    model = linnet.Model(graph)
    planner = Planner(model, threads=1, isa_max=isa)
    planner.plan({})
    at, choice = next((i, c) for i, c in enumerate(planner.choices) if c.step.op == shape.op and c.candidates)
    return model, at, choice


def timed(shape: Shape, dtype: str, seconds: float, isa: str | None = None) -> Found:
    """The step of the layer as the library plans it, and its shortest time."""
    model, at, choice = planned(shape, dtype, isa)
    session = linnet.Session(model, threads=1, trace=True, isa_max=isa)
    session.run(random_feeds(model.inputs(), {}))
    runs, end = Timed(session), time.perf_counter() + seconds
    for _ in range(3):
        runs.turn()
    while time.perf_counter() < end:
        runs.turn()
    ns = max(float(runs.least[at]), 1.0)
    chosen = next(c for c in choice.candidates if c.chosen)
    return Found(shape, dtype, chosen.kernel, chosen.reference, ns / 1e3, choice.step.flops / ns)


def slow(found: Sequence[Found]) -> dict[tuple[str, str, str], str]:
    """Why a layer is slow, for (op, name, dtype)."""
    single = {(f.shape.op, f.shape.name): f for f in found if f.dtype == "f32"}
    usual = {op: float(np.median([f.gflops for f in single.values() if f.shape.op == op])) for op, _ in single}
    answer = {}
    for f in found:
        same, why = single.get((f.shape.op, f.shape.name)), []
        if f.reference:
            why.append("reference")
        if same is not None and f.us > LONGER * same.us:
            why.append(f"{f.us / same.us:.1f} times the time of f32")
        if f.gflops * LESS < usual.get(f.shape.op, 0.0):
            why.append(f"{f.gflops / usual[f.shape.op]:.2f} of the usual rate")
        if why:
            answer[f.shape.op, f.shape.name, f.dtype] = ", ".join(why)
    return answer


def main() -> int:
    parser = argparse.ArgumentParser(description="Looks for ordinary shapes that fall to slow kernels.")
    parser.add_argument("--op", help="only the layers of this op")
    parser.add_argument("--shape", default="", help="only layers whose name contains this text")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="separated by commas")
    parser.add_argument("--seconds", type=float, default=0.02, help="for each layer and dtype")
    parser.add_argument("--isa", help="the most that kernels may use, such as avx2")
    parser.add_argument("--all", action="store_true", help="also layers that are not slow")
    given = parser.parse_args()
    found = [
        timed(shape, dtype, given.seconds, given.isa)
        for shape in shapes()
        if given.op in (None, shape.op) and given.shape in shape.name
        for dtype in given.dtypes.split(",")
        if dtype in shape.dtypes
    ]
    reasons = slow(found)
    for f in found:
        why = reasons.get((f.shape.op, f.shape.name, f.dtype), "")
        if given.all or why:
            name = f"{f.shape.op} {f.shape.name}"
            print(f"{f.us:9.1f} us {f.gflops:7.2f} GFLOP/s {f.dtype:4} {name:58} {f.kernel:32} {why}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
