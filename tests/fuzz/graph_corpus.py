"""Small graphs of all ops, which mutate_graph changes: those that tests share, converted ones, training steps, and ops whose
shapes, axes and indices are part of the data."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import linnet
from linnet import nn, ops
from linnet.facade import Graph
from linnet.file.reader import from_bytes
from linnet.file.writer import to_bytes
from linnet.ir.dtypes import Quantization, blocks_of, numpy_dtype
from linnet.ir.function import Function, Tensor, emit
from tests import graphs
from tests.test_fuzz import SEEDS

CONVERTED = 60
MOST_BYTES = 60_000


def _data_decided() -> list[Graph]:
    """One graph for each op that has a shape, an axis or an index as an operand."""

    def index(main: Function, count: int, dtype: str = "i64") -> Tensor:
        return main.placeholder("s", dtype, (count,))

    def scalar(main: Function, name: str, dtype: str = "i64") -> Tensor:
        return main.placeholder(name, dtype, ())

    def updates(main: Function) -> Tensor:
        return main.placeholder("u", "f32", (2, 4, 3))

    bodies: list[Callable[[Function, Tensor], list[Tensor]]] = [
        lambda f, x: emit("copy", [x, index(f, 2)], {"kind": "reshape"}),
        lambda f, x: emit("copy", [x, index(f, 4)], {"kind": "expand"}),
        lambda f, x: emit("copy", [f.placeholder("one", "f32", (1, 1)), index(f, 3)], {"kind": "expand"}),
        lambda f, x: emit("copy", [x, index(f, 3)], {"kind": "tile"}),
        lambda f, x: emit("copy", [x, index(f, 6)], {"kind": "pad"}),
        lambda f, x: emit("copy", [x, index(f, 3), f.placeholder("e", "i64", (3,))], {"kind": "slice"}),
        lambda f, x: emit("copy", [x, index(f, 2)], {"kind": "split", "axis": 1}, 2),
        lambda f, x: emit("copy", [x, index(f, 1)], {"kind": "unsqueeze"}),
        lambda f, x: emit("copy", [x, index(f, 1)], {"kind": "squeeze"}),
        lambda f, x: emit("reduce", [x, index(f, 1)], {"kind": "sum"}),
        lambda f, x: emit("cumsum", [x, scalar(f, "a")], {}),
        lambda f, x: emit("top_k", [x, scalar(f, "k")], {}, 2),
        lambda f, x: emit("gather", [x, index(f, 5)], {"kind": "take", "axis": 1}),
        lambda f, x: emit("gather", [x, f.placeholder("s", "i64", (2, 2))], {"kind": "nd"}),
        lambda f, x: emit("scatter", [x, f.placeholder("s", "i64", (2, 1)), updates(f)], {"kind": "nd"}),
        lambda f, x: emit("range", [scalar(f, "a"), scalar(f, "b"), scalar(f, "c")], {}),
        lambda f, x: emit("range", [scalar(f, "a", "f32"), scalar(f, "b", "f32"), scalar(f, "c", "f32")], {}),
        lambda f, x: emit("nonzero", [x], {}),
        lambda f, x: [ops.add(emit("copy", [x, index(f, 3)], {"kind": "reshape"})[0], 1.0)],
        lambda f, x: emit("shape", [emit("copy", [x, index(f, 3)], {"kind": "expand"})[0]], {}),
        lambda f, x: emit("copy", [emit("copy", [x, index(f, 3)], {"kind": "tile"})[0]] * 2, {"kind": "concat", "axis": 0}),
        lambda f, x: emit("roi_align", [emit("copy", [x], {"kind": "unsqueeze", "axes": [0]})[0],
                                        f.placeholder("r", "f32", (3, 4)), index(f, 3)], {"height": 2, "width": 3}),
        lambda f, x: emit("resize", [x, None, index(f, 1)], {"mode": "linear", "axes": [1]}),
    ]  # fmt: skip
    made = []
    for body in bodies:
        graph = Graph()
        main = graph.function()
        main.outputs = body(main, main.placeholder("x", "f32", (2, 4, 3)))
        graph.signature("infer", main)
        made.append(graph)
    return made


def _narrow() -> list[Graph]:
    """Products by weights of 4 and 8 bits in blocks, rows looked up in them, and the weights themselves as f32. Lines have an
    odd number of elements, or a last block that is not full."""
    made, rng = [], np.random.default_rng(0)
    for dtype, shape, axis, block in (
        ("i4", (9, 7), 0, 4), ("u4", (7, 9), 1, 16), ("i8", (33, 5), 0, 32), ("u8", (6, 8), 1, 3), ("i4", (5, 3), 1, 1),
    ):  # fmt: skip
        low, high = {"i4": (-8, 8), "u4": (0, 16), "i8": (-128, 128), "u8": (0, 256)}[dtype]
        grid = blocks_of(shape, axis, block)
        quantization = Quantization(
            rng.uniform(0.25, 2, grid).astype(np.float32), rng.integers(low, high, grid).astype(np.int32), axis,
            4 if dtype in ("i4", "u4") else 8, block,
        )  # fmt: skip
        graph = Graph()
        main = graph.function("main")
        w = main.constant(rng.integers(low, high, shape).astype(numpy_dtype(dtype)), "w", quantization=quantization)
        main.outputs = [
            main.emit("matmul", [main.placeholder("x", "f32", (2, shape[0])), w], {}, fold=False)[0],
            main.emit("gather", [w, main.placeholder("i", "i64", (3,))], {"dtype": "f32"}, fold=False)[0],
            main.emit("dequantize", [w], {}, fold=False)[0],
        ]
        graph.signature("infer", main)
        made.append(graph)
    return made


def _call() -> Graph:
    """x -> f(f(x)), where f calls g."""
    graph = Graph()
    inner, middle, main = graph.function("g"), graph.function("f"), graph.function("main")
    inner.outputs = [ops.relu(inner.placeholder("a", "f32", ("n", 3)))]
    for function, callee, times in ((middle, inner, 1), (main, middle, 2)):
        y = function.placeholder("x", "f32", ("n", 3))
        for _ in range(times):
            y = emit("call", [y], {"callee": callee})[0]
        function.outputs = [y]
    graph.signature("infer", main)
    return graph


def _scans() -> list[Graph]:
    """Loops that stack results of rank 7 and 8, which the file declares or not; the trips are constant, or data."""
    made = []
    for rank, trips in ((8, 0), (8, None), (8, 2), (7, 0), (7, None), (0, None)):
        graph = Graph()
        main, body = graph.function("main"), graph.function("body")
        body.placeholder("i", "i64", ())
        goes_on, s = body.placeholder("c", "bool", ()), body.placeholder("s", "f32", (1,) * rank)
        body.outputs = [goes_on, ops.relu(s), ops.add(s, 1.0)]
        x = main.placeholder("x", "f32", (1,) * rank)
        number = main.placeholder("n", "i64", ()) if trips is None else main.constant(np.int64(trips))
        last, stacked = main.emit("while", [number, None, x], {"body_function": body, "carried": 1}, 2, fold=False)
        stacked.shape = None
        main.outputs = [last, stacked, *main.emit("shape", [stacked], {}, fold=False)]
        graph.signature("infer", main)
        made.append(graph)
    return made


def _user_ops() -> list[Graph]:
    """The ops of tests/ext/user_ops.c, whose functions the driver registers."""

    def like(x: Any, **_: Any) -> Any:
        return x.dtype, x.shape

    def op(name: str, shape: Callable[..., Any], outputs: int = 1, **more: Any) -> linnet.UserOp:
        return linnet.UserOp(f"com.example.{name}", lambda *x: x[0], shape, outputs=(1, outputs), **more)

    scale, negate = op("scale", like, exact=True), op("negate", lambda x: [like(x)] * 2, 2)
    broken = op("broken", lambda *x, **_: ("f32", (2, 3)))
    describe = op("describe", lambda *x, length, **_: ("u8", (length,)))

    def positive(x: Tensor, outputs: int) -> Any:
        """The positive elements of x, and where they are."""

        def shape(x: Any, **_: Any) -> Any:
            most = linnet.UserOp.at_most(x.shape[0])
            return [("f32", (most,)), ("i64", (most,))][:outputs]

        return op("positive", shape, 2, decides_sizes=True)(x.reshape(-1), outputs=outputs)

    bodies: list[Callable[[Tensor], list[Tensor]]] = [
        lambda x: [ops.add(scale(ops.relu(x), factor=2.5), x)],
        lambda x: negate(scale(x, factor=-1.0), outputs=2),
        lambda x: [ops.relu(broken(x, how=k)) for k in (0, 8)],
        lambda x: [describe(x, length=64, text="abc", reals=(1.0, 2.0), number=3)],
        lambda x: [ops.relu(y) if y.dtype == "f32" else y for y in positive(x, 2)],
        lambda x: [ops.sum(scale(positive(x, 1), factor=3.0))],
    ]
    made = []
    for body in bodies:
        graph = Graph()
        main = graph.function("main")
        main.outputs = body(main.placeholder("x", "f32", (2, 3)))
        graph.signature("infer", main)
        made.append(graph)
    return made


def _training() -> list[Graph]:
    """Training steps of convolution with normalization, of recurrent layers, and of an embedding."""
    made = []
    for kind in ("conv", "lstm", "gru", "layer_norm"):
        graph = Graph()
        x = y = graph.placeholder("x", (2, 3, 8, 8) if kind == "conv" else (2, 5, 6))
        label = graph.placeholder("label", (2,), "i64")
        if kind == "conv":
            y = ops.relu(nn.batch_norm(nn.conv(x, 4, 3, padding=1), True))
            y = ops.mean(ops.pool(y, kind="max", kernel=[2, 2], strides=[2, 2])[0], [2, 3])
        elif kind == "layer_norm":
            y = ops.mean(nn.layer_norm(x), [1])
        else:
            made_by = nn.lstm(x, 7) if kind == "lstm" else nn.gru(x, 7)
            y = ops.mean(made_by[0] if isinstance(made_by, list | tuple) else made_by, [1])
        loss = linnet.losses.softmax_cross_entropy(nn.dense(y, 3), label).mean()
        updates = linnet.Adam(0.01).minimize(loss)
        graph.signature("train", {"x": x, "label": label}, {"loss": loss}, updates=updates)
        made.append(graph)
    return made


def _converted() -> list[Graph]:
    """Random ONNX graphs of all op families, some of them quantized."""
    from tests.onnx_graphs.judge import make

    found, seed = [], 0
    while len(found) < CONVERTED:
        case = make(random.Random(seed))
        seed += 1
        if case is None:
            continue
        try:
            graph = linnet.from_onnx(case[0])
        except linnet.Error:
            continue
        if len(to_bytes(graph)) < MOST_BYTES:
            found.append(graph)
    return found


def corpus() -> list[Graph]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        shared = [from_bytes(graphs.bytes_of(name)) for name in (*SEEDS, "training")]
        return [*shared, _call(), *_scans(), *_user_ops(), *_narrow(), *_data_decided(), *_training(), *_converted()]
