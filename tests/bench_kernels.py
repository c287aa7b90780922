"""Times every fast kernel of this machine on shapes of its family and compares the times with the modelled costs.
`python -m tests.bench_kernels [--op conv] [--threads 1] [--seconds 0.3] [--json]`. Each case is a graph with one op; the
kernels are those that the library says could run it, so a new line in a kernel list is measured without a change here.
The kernels of a case take turns, and the least time counts. `wrong` marks cases in which the plan's choice is not the
fastest. tests/test_bench_kernels.py checks that each kernel has a case."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import linnet
from examples.evaluation import deepbench
from linnet.facade import Graph
from linnet.ir.dtypes import Quantization, numpy_dtype, quantization_of_rows
from linnet.ir.function import Function, Tensor, emit
from linnet.session.choices import Choice
from linnet.session.planner import Planner
from linnet.session.random_inputs import random_feeds
from linnet.session.tune import measure
from tests.graphs import pointwise

MOST_FLOPS = 2e9  # larger problems of DeepBench say nothing more about a kernel
WRONG = 1.05  # the choice takes so much longer than the fastest kernel


Build = Callable[[Function], Tensor]
Pair = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Case:
    op: str
    name: str
    build: Build

    def model(self) -> linnet.Model:
        graph = Graph()
        main = graph.function()
        main.outputs.append(self.build(main))
        graph.signature("infer", main)
        return linnet.Model(graph)


@dataclasses.dataclass(frozen=True)
class Timing:
    """A kernel of a case. ratio: of the time to the modelled cost."""

    op: str
    case: str
    kernel: str
    chosen: bool
    us: float
    gflops: float
    gbytes: float
    ratio: float


def _values(*shape: int, dtype: str = "f32") -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(1)
    if dtype in ("i8", "u8", "i16"):
        return rng.integers(-20 if dtype[0] == "i" else 0, 20, shape).astype(
            dtype.replace("i", "int").replace("u", "uint")
        )
    if dtype in ("i32", "i64"):
        return rng.integers(-100, 100, shape).astype(dtype.replace("i", "int"))
    return rng.normal(size=shape).astype(np.float16 if dtype == "f16" else np.float32)


def _grid(*scale: float, axis: int | None = None, block: int = 0) -> Quantization:
    return Quantization(np.array(scale, np.float32), np.zeros(len(scale), np.int32), axis, 8, block)


def _x(main: Function, shape: tuple[int, ...], dtype: str = "f32", name: str = "x") -> Tensor:
    """An input; integers are quantized."""
    x = main.placeholder(name, dtype, shape)
    if dtype in ("i8", "u8", "i16"):
        x.quantization = _grid(0.05)
    return x


def _product(op: str, x: Tensor, weight: tuple[int, ...], dtype: str, axis: int, **attributes: Any) -> Tensor:
    """A product of x and constant weights: floats, or quantized per output channel with a bias. dtype w16: int16 x, and
    int16 weights over most of their range."""
    main = x.function
    if x.dtype in ("f32", "f16"):
        return emit(op, [x, main.constant(_values(*weight, dtype=dtype))], attributes)[0]
    count = weight[axis] * (attributes.get("group", 1) if op == "conv_transpose" else 1)
    scales = np.full(count, 0.01, np.float32)
    wide_values = (_values(*weight, dtype="i16").astype("i4") * 1600 + 77).astype("i2")
    w = main.constant(
        wide_values if dtype == "w16" else _values(*weight, dtype="i8"),
        quantization=Quantization(scales[: weight[axis]], np.zeros(weight[axis], np.int32), axis, 8),
    )
    wide = "i64" if x.dtype == "i16" else "i32"
    sums = Quantization(scales * np.float32(0.05), np.zeros(count, np.int32), 0)
    bias = main.constant(_values(count, dtype=wide), quantization=sums)
    y = emit(op, [x, w, bias], {**attributes, "output_dtype": x.dtype})[0]
    y.quantization = _grid(1.0)
    return y


def _activations(dtype: str) -> str:
    return "i16" if dtype == "w16" else dtype


def _conv(
    dtype: str, n: int, c: int, h: int, w: int, k: int, kernel: Pair, stride: Pair, pad: Pair, group: int = 1,
    op: str = "conv",
) -> Build:  # fmt: skip
    def build(main: Function) -> Tensor:
        weight = (k, c // group, *kernel) if op == "conv" else (c, k // group, *kernel)
        attributes = {"strides": list(stride), "pads": [*pad, *pad], "group": group}
        x = _x(main, (n, c, h, w), _activations(dtype))
        return _product(op, x, weight, dtype, 0 if op == "conv" else 1, **attributes)

    return build


def _matmul(dtype: str, m: int, n: int, k: int) -> Build:
    return lambda main: _product("matmul", _x(main, (m, k), _activations(dtype)), (k, n), dtype, 1)


def _weights(m: int, n: int, k: int) -> Build:
    """f32 by 8-bit weights with a scale for each block, as they lie in the file."""

    def build(main: Function) -> Tensor:
        grid = Quantization(np.full((k // 32, n), 0.01, np.float32), np.zeros((k // 32, n), np.int32), 0, 8, 32)
        return emit("matmul", [_x(main, (m, k)), main.constant(_values(k, n, dtype="i8"), quantization=grid)], {})[0]

    return build


def _rows(m: int, n: int, k: int) -> Build:
    """f32 by 4-bit weights with a scale for each block of a row, as ONNX's MatMulNBits has them."""

    def build(main: Function) -> Tensor:
        grid = Quantization(np.full((n, k // 32), 0.01, np.float32), np.zeros((n, k // 32), np.int32), 1, 4, 32)
        w = main.constant((_values(n, k, dtype="i8") % 8).astype(numpy_dtype("i4")), quantization=grid)
        return emit("matmul", [_x(main, (m, k)), w], {"transpose_b": True})[0]

    return build


GATES = {"rnn": 1, "gru": 3, "lstm": 4}


def _recurrent(kind: str, hidden: int, batch: int, steps: int, narrow: bool = False) -> Build:
    """narrow: weights of 8 bits, with a scale per row."""

    def build(main: Function) -> Tensor:
        rows = GATES[kind] * hidden
        p = _x(main, (steps, batch, rows))
        grid = quantization_of_rows(np.full((1, rows), 0.01 / hidden), hidden) if narrow else None
        values = _values(1, rows, hidden, dtype="i8") if narrow else _values(1, rows, hidden) / np.float32(hidden)
        w = main.constant(values, quantization=grid)
        return emit("recurrent", [p, w], {"kind": kind})[0]

    return build


def _attention(heads: int, m: int, n: int, depth: int, **attributes: Any) -> Build:
    def build(main: Function) -> Tensor:
        shapes = {"query": m, "key": n, "value": n}
        return emit("attention", [_x(main, (1, heads, k, depth), name=name) for name, k in shapes.items()], attributes)[
            0
        ]

    return build


def _recurrent_gradient(kind: str, hidden: int, batch: int, steps: int) -> Build:
    def build(main: Function) -> Tensor:
        w = main.constant(_values(1, GATES[kind] * hidden, hidden) / np.float32(hidden))
        gates = _x(main, (steps, batch, GATES[kind] * hidden), name="gates")
        y, cells, dy = (_x(main, (steps, 1, batch, hidden), name=name) for name in ("y", "cells", "dy"))
        operands = [w, gates, y, cells, None, None, None, dy]
        return emit("recurrent_gradient", operands, {"kind": kind, "direction": "forward"})[0]

    return build


def _unary(op: str, *shape: int, dtype: str = "f32", outputs: int = 1, **attributes: Any) -> Build:
    return lambda main: emit(op, [_x(main, shape, dtype)], attributes, outputs)[0]


def _norm(op: str, operands: int, *shape: int, **attributes: Any) -> Build:
    """A norm with constants per channel."""

    def build(main: Function) -> Tensor:
        channels = shape[1] if op != "layer_norm" else shape[-1]
        rest = [main.constant(np.abs(_values(channels)) + 1) for _ in range(operands)]
        return emit(op, [_x(main, shape), *rest], attributes)[0]

    return build


def _twice(op: str, first: tuple[int, ...], second: tuple[int, ...], outputs: int = 1, **attributes: Any) -> Build:
    return lambda main: emit(op, [_x(main, first), _x(main, second, name="g")], attributes, outputs)[0]


def _steps(dtype: str, *shape: int, op: str) -> Build:
    """quantize or dequantize with scale and zero point as operands."""

    def build(main: Function) -> Tensor:
        x = main.placeholder("x", "f32" if op == "quantize" else dtype, shape)
        scale, zero = main.constant(np.float32(0.05)), main.constant(_values(dtype=dtype))
        return emit(op, [x, scale, zero], {"dtype": dtype if op == "quantize" else "f32"})[0]

    return build


def _cast(to: str, count: int) -> Build:
    return lambda main: emit("cast", [_x(main, (count,))], {"dtype": to})[0]


def _map(program: str, *shapes: tuple[int, ...]) -> Build:
    return lambda main: pointwise(program, *(_x(main, shape, name=f"x{i}") for i, shape in enumerate(shapes)))


def _products(main: Function, *shape: int) -> Tensor:
    x, g = _x(main, shape), _x(main, shape, name="g")
    return emit("moments", [x, g, main.constant(_values(shape[1]))], {"kind": "products"}, 2)[0]


def _deepbench() -> Iterator[Case]:
    """The problems for devices of DeepBench (examples/evaluation/deepbench.toml)."""
    device = deepbench.table()["device"]
    for m, n, k, _ in device["gemm"]:
        if 2 * m * n * k <= MOST_FLOPS:
            for dtype in ("f32", "i8"):
                yield Case("matmul", f"deepbench {dtype} {m}x{n}x{k}", _matmul(dtype, n, m, k))
    for w, h, c, n, k, fw, fh, pw, ph, sw, sh in device["conv"]:
        name = f"deepbench {c}x{h}x{w} to {k}, {fh}x{fw}/{sh}"
        yield Case("conv", name, _conv("f32", n, c, h, w, k, (fh, fw), (sh, sw), (ph, pw)))
    for kind, hidden, batch, steps in device["rnn"]:
        name = f"deepbench {kind} {hidden} batch {batch}, {steps} steps"
        yield Case("recurrent", name, _recurrent(kind, hidden, batch, steps))


def cases() -> Iterator[Case]:
    three, one = (3, 3), (1, 1)
    for heads, m, n, depth in (
        (12, 128, 128, 32),
        (12, 128, 128, 64),
        (6, 197, 197, 64),
        (12, 512, 512, 64),
        (12, 1, 512, 64),
    ):
        yield Case("attention", f"{heads} x {m} queries, {n} keys of {depth}", _attention(heads, m, n, depth))
    yield Case("attention", "12 x 512 queries, causal", _attention(12, 512, 512, 64, causal="start"))
    for dtype in ("f32", "i8", "u8", "i16", "w16"):
        yield Case(
            "conv", f"{dtype} first 3x224x224 to 32, 3x3/2", _conv(dtype, 1, 3, 224, 224, 32, three, (2, 2), one)
        )
        yield Case("conv", f"{dtype} 96x56x56 to 24, 1x1", _conv(dtype, 1, 96, 56, 56, 24, one, one, (0, 0)))
        yield Case("conv", f"{dtype} 64x56x56 to 64, 3x3", _conv(dtype, 1, 64, 56, 56, 64, three, one, one))
        yield Case("conv", f"{dtype} 256x14x14 to 256, 3x3", _conv(dtype, 1, 256, 14, 14, 256, three, one, one))
        yield Case("conv", f"{dtype} 960x7x7 to 160, 1x1", _conv(dtype, 1, 960, 7, 7, 160, one, one, (0, 0)))
        for channels in (1, 8, 12, 16, 24, 32, 40, 96):
            yield Case(
                "conv",
                f"{dtype} depthwise {channels}x56x56, 3x3",
                _conv(dtype, 1, channels, 56, 56, channels, three, one, one, channels),
            )
        yield Case("conv", f"{dtype} depthwise 576x14x14, 3x3", _conv(dtype, 1, 576, 14, 14, 576, three, one, one, 576))
        five, two = (5, 5), (2, 2)
        yield Case("conv", f"{dtype} depthwise 96x56x56, 3x3/2", _conv(dtype, 1, 96, 56, 56, 96, three, two, one, 96))
        yield Case(
            "conv", f"{dtype} depthwise 240x12x120, 5x5", _conv(dtype, 1, 240, 12, 120, 240, five, one, two, 240)
        )
        yield Case("conv", f"{dtype} one channel 56x56, 5x5", _conv(dtype, 1, 1, 56, 56, 1, (5, 5), one, (2, 2)))
        for columns in (2, 3, 4, 8):
            yield Case(
                "conv",
                f"{dtype} 16 groups of {columns}, 28x28, 3x3",
                _conv(dtype, 1, 16 * columns, 28, 28, 16 * columns, three, one, one, 16),
            )
        for name, c, k, kernel, stride, group in (
            ("64 to 32, 2x2/2", 64, 32, (2, 2), (2, 2), 1), ("64 to 32, 4x4/2", 64, 32, (4, 4), (2, 2), 1),
            ("24 to 24, 3x3", 24, 24, three, one, 1), ("16 to 8, 3x3/2", 16, 8, three, (2, 2), 1),
            ("256 to 128, 4x4/2", 256, 128, (4, 4), (2, 2), 1), ("32 depthwise, 3x3/2", 32, 32, three, (2, 2), 32),
            ("32 depthwise, 3x3", 32, 32, three, one, 32),
        ):  # fmt: skip
            yield Case(
                "conv_transpose",
                f"{dtype} 14x14 {name}",
                _conv(dtype, 1, c, 14, 14, k, kernel, stride, (0, 0), group, "conv_transpose"),
            )
        for m, n, k in ((1, 1000, 1280), (16, 64, 64), (64, 64, 64), (128, 512, 512), (7, 33, 100)):
            yield Case("matmul", f"{dtype} {m}x{n}x{k}", _matmul(dtype, m, n, k))
    for c, k, size, kernel, stride in (  # weights that are inputs
        (64, 1, 14, 4, 2), (64, 8, 14, 4, 2), (64, 64, 14, 4, 2), (64, 128, 14, 4, 2), (256, 256, 7, 3, 1), (32, 32, 28, 3, 1),
        (8, 16, 56, 2, 2), (512, 64, 4, 3, 2),
    ):  # fmt: skip
        name = f"f32 {c}x{size}x{size} to {k}, {kernel}x{kernel}/{stride}, weights of the run"
        build = _twice("conv_transpose", (1, c, size, size), (c, k, kernel, kernel), strides=[stride, stride])
        yield Case("conv_transpose", name, build)
    for m in (1, 16, 128):
        yield Case("matmul", f"weights of 8 bits {m}x512x512", _weights(m, 512, 512))
        yield Case("matmul", f"weights of 4 bits {m}x512x512, transposed", _rows(m, 512, 512))
    yield from _deepbench()
    for kind, hidden, batch, steps in (
        ("rnn", 64, 1, 50),
        ("gru", 128, 1, 50),
        ("lstm", 128, 1, 50),
        ("lstm", 256, 16, 10),
        ("gru", 64, 8, 20),
    ):
        yield Case("recurrent", f"{kind} {hidden} batch {batch}, {steps} steps", _recurrent(kind, hidden, batch, steps))
        if batch == 1:
            name = f"{kind} {hidden}, weights of 8 bits, {steps} steps"
            yield Case("recurrent", name, _recurrent(kind, hidden, batch, steps, True))
        if kind != "gru":
            yield Case(
                "recurrent_gradient",
                f"{kind} {hidden} batch {batch}, {steps} steps",
                _recurrent_gradient(kind, hidden, batch, steps),
            )
    for dtype in ("f32", "i8"):
        for kind in ("max", "average"):
            for shape in ((1, 64, 56, 56), (1, 24, 56, 56), (1, 8, 56, 56)):
                yield Case(
                    "pool",
                    f"{dtype} {kind} {shape[1]}x56x56, 3x3/2",
                    _unary("pool", *shape, dtype=dtype, kind=kind, kernel=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
                )
        yield Case(
            "pool",
            f"{dtype} average 512x7x7, 7x7",
            _unary("pool", 1, 512, 7, 7, dtype=dtype, kind="average", kernel=[7, 7]),
        )
    for shape in ((1, 1000), (128, 64), (12, 128, 128), (8, 5)):
        yield Case("softmax", f"{list(shape)}", _unary("softmax", *shape, axis=-1))
        yield Case("layer_norm", f"{list(shape)}", _norm("layer_norm", 2, *shape, axis=-1))
    yield Case("softmax", "[1, 64, 28, 28] over 64", _unary("softmax", 1, 64, 28, 28, axis=1))
    for shape in ((1, 64, 28, 28), (4, 8, 28, 28)):
        yield Case("group_norm", f"{list(shape)}", _norm("group_norm", 2, *shape, groups=4))
        yield Case("batch_norm", f"{list(shape)}", _norm("batch_norm", 4, *shape))
        yield Case("moments", f"statistics {list(shape)}", _unary("moments", *shape, kind="statistics", outputs=2))
        yield Case("moments", f"products {list(shape)}", lambda main, s=shape: _products(main, *s))
    for dtype in ("f32", "i8"):
        for c, size in ((3, 112), (64, 28), (1, 256)):
            for mode in ("nearest", "linear"):
                yield Case(
                    "resize",
                    f"{dtype} {mode} {c}x{size}x{size} to twice",
                    _unary("resize", 1, c, size, size, dtype=dtype, mode=mode, sizes=[1, c, 2 * size, 2 * size]),
                )
    for dtype in ("f32", "i8"):
        for mode in ("nearest", "linear"):
            build = _unary("resize", 1, 28, 28, 64, dtype=dtype, mode=mode, sizes=[1, 56, 56, 64])
            yield Case("resize", f"{dtype} {mode} 28x28x64 to twice", build)
    yield Case(
        "resize", "f32 linear rows of 40000", _unary("resize", 1, 1, 2, 40000, mode="linear", sizes=[1, 1, 4, 80000])
    )
    for count in (100, 10_000, 1_000_000):
        yield Case("map", f"add {count}", _map("add", (count,), (count,)))
        yield Case("map", f"tanh {count}", _map("tanh", (count,)))
        for to in ("f16", "i8", "i32"):
            yield Case("cast", f"f32 to {to} {count}", _cast(to, count))
        for dtype in ("i8", "u8", "i16"):
            for op in ("quantize", "dequantize"):
                yield Case(op, f"{dtype} {count}", _steps(dtype, count, op=op))
    yield Case("map", "multiply 64x3136 by 64x1", _map("mul", (64, 3136), (64, 1)))
    for shape in ((256, 256), (1, 64, 56, 56), (1, 3, 224, 224), (1000, 8)):
        order = [0, *range(2, len(shape)), 1] if len(shape) == 4 else [1, 0]
        yield Case("copy", f"transpose {list(shape)}", _unary("copy", *shape, kind="transpose", perm=order))
    yield Case(
        "copy",
        "concat 2 of [1, 64, 28, 28]",
        lambda main: emit(
            "copy", [_x(main, (1, 64, 28, 28)), _x(main, (1, 64, 28, 28), name="g")], {"kind": "concat", "axis": 1}
        )[0],
    )
    yield Case("copy", "pad [1, 32, 56, 56]", _unary("copy", 1, 32, 56, 56, kind="pad", pads=[0, 0, 1, 1, 0, 0, 1, 1]))
    for shape, axes in (
        ((1, 64, 56, 56), [2, 3]),
        ((128, 512), [1]),
        ((128, 512), [0]),
        ((1_000_000,), [0]),
        ((64, 7), [1]),
    ):
        for kind in ("sum", "max"):
            yield Case("reduce", f"{kind} of {list(shape)} over {axes}", _unary("reduce", *shape, kind=kind, axes=axes))
    yield Case("reduce", "argmax of [128, 1000]", _unary("reduce", 128, 1000, kind="argmax", axes=[1]))
    for c, size, k, group in ((32, 28, 32, 1), (64, 14, 128, 1), (3, 56, 16, 1), (32, 28, 32, 32), (96, 14, 96, 96)):
        yield Case(
            "conv_gradient",
            f"{c}x{size}x{size} to {k}, {group} groups, 3x3",
            _twice(
                "conv_gradient", (2, c, size, size), (2, k, size, size), kernel=[3, 3], pads=[1, 1, 1, 1], group=group
            ),
        )
    for kind in ("max", "average"):
        yield Case(
            "pool_gradient",
            f"{kind} 64x28x28, 3x3/2",
            _twice(
                "pool_gradient",
                (2, 64, 28, 28),
                (2, 64, 14, 14),
                kind=kind,
                kernel=[3, 3],
                strides=[2, 2],
                pads=[1, 1, 1, 1],
            ),
        )


def planned(case: Case, threads: int) -> tuple[linnet.Model, Choice]:
    """The case's model, and the step of its op."""
    model = case.model()
    planner = Planner(model, threads=threads)
    planner.plan({})
    (choice, *_) = [c for c in planner.choices if c.step.op == case.op and c.candidates]
    return model, choice


def timings(case: Case, threads: int, seconds: float) -> list[Timing]:
    model, choice = planned(case, threads)
    (found,), _ = measure(model, [choice], random_feeds(model.inputs(), {}), seconds, threads=threads)
    costs, step = {c.kernel: c.cost_ns for c in choice.candidates}, choice.step
    return [
        Timing(case.op, case.name, kernel, kernel == step.kernel, ns / 1e3, step.flops / ns, step.bytes / ns, ns / costs[kernel])
        for kernel, ns in found.times.items() if ns > 0
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description="Times every fast kernel on shapes of its family.")
    parser.add_argument("--op", help="only the cases of this op")
    parser.add_argument("--case", default="", help="only cases whose name contains this text")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.3, help="per case")
    parser.add_argument("--json", action="store_true", help="print one JSON object per kernel and case")
    parser.add_argument("--wrong", action="store_true", help="only cases in which the choice is not the fastest")
    given = parser.parse_args()
    if not given.json:
        print(f"{'us':>11} {'GFLOP/s':>8} {'GB/s':>7} {'x model':>8}  kernel")
    for case in cases():
        if given.op not in (None, case.op) or given.case not in case.name:
            continue
        found = timings(case, given.threads, given.seconds)
        if given.json:
            print(*(json.dumps(dataclasses.asdict(t)) for t in found), sep="\n", flush=True)
            continue
        best = min(t.us for t in found)
        wrong = any(t.chosen and t.us > WRONG * best for t in found)
        if given.wrong and not wrong:
            continue
        print(f"{case.op}: {case.name}{'  wrong' if wrong else ''}")
        for t in found:
            print(
                f"{t.us:11.2f} {t.gflops:8.2f} {t.gbytes:7.2f} {t.ratio:8.2f}  {t.kernel}{'  chosen' if t.chosen else ''}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
