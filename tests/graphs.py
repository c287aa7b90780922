"""Small graphs shared by many tests, built with linnet's op builders, one per feature of the file format.
`bytes_of(name)` returns the .lnt file and `feeds(name)` its inputs. All are seeded and the same on every machine."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterable, Mapping

import numpy as np

import linnet
from linnet._generated.op_table import OPCODES
from linnet.builder import mapping
from linnet.facade import Graph
from linnet.ir.dtypes import DTYPE_IDS, Quantization, numpy_dtype
from linnet.ir.function import Function, Tensor, emit
from linnet.quantization.table import Row, Table

F32, I32 = 1, 7
Feeds = dict[str, np.ndarray]


def pointwise(opcode: str, *operands: Tensor | float, dtype: str = "f32") -> Tensor:
    """A map with one opcode. Numbers become immediates. Registers are f32, stored as `dtype`."""
    tensors = [value for value in operands if isinstance(value, Tensor)]
    floats: list[float] = []
    program: list[int] = []
    for value in operands:
        if isinstance(value, Tensor):
            program += [OPCODES["load"][0], F32, tensors.index(value), 0, 0]
        else:
            program += [OPCODES["const"][0], F32, len(floats), 0, 0]
            floats.append(value)
    registers = [*range(len(operands)), 0, 0, 0][:3]
    program += [OPCODES[opcode][0], F32, *registers]
    compares = opcode in ("eq", "ne", "lt", "le", "gt", "ge")
    program += [OPCODES["store"][0], I32 if compares else F32, len(operands), 0, 0]
    attributes = {"program": program, "floats": floats, "dtypes": [DTYPE_IDS[dtype]]}
    return emit("map", tensors, attributes)[0]


def _weights(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.standard_normal(shape) / np.sqrt(max(1, np.prod(shape[1:])))).astype(np.float32)


def _finish(graph: Graph, function: Function, *outputs: Tensor) -> Graph:
    function.outputs += outputs
    graph.signature("infer", function)
    return graph


def mlp() -> Graph:
    """x f32 [4,8] -> matmul, bias, relu, matmul, softmax -> y f32 [4,5]."""
    rng = np.random.default_rng(1)
    graph = Graph()
    main = graph.function()
    x = main.placeholder("x", "f32", (4, 8))
    w1, b1 = main.constant(_weights(rng, 8, 16), "w1"), main.constant(_weights(rng, 16), "b1")
    hidden = pointwise("max", emit("matmul", [x, w1, b1], {})[0], 0.0)
    scores = emit("matmul", [hidden, main.constant(_weights(rng, 16, 5), "w2")], {})[0]
    return _finish(graph, main, emit("softmax", [scores], {"axis": -1}, name="y")[0])


def conv_net() -> Graph:
    """x f32 [1,3,16,16] -> conv, relu, depthwise conv, relu, pointwise conv with a residual, mean, matmul -> y f32 [1,5]."""
    rng = np.random.default_rng(2)
    graph = Graph()
    main = graph.function()
    x = main.placeholder("x", "f32", (1, 3, 16, 16))
    a = emit("conv", [x, main.constant(_weights(rng, 8, 3, 3, 3), "w1"), main.constant(_weights(rng, 8), "b1")],
             {"pads": [1] * 4, "strides": [2, 2]})[0]  # fmt: skip
    a = pointwise("max", a, 0.0)
    b = emit("conv", [a, main.constant(_weights(rng, 8, 1, 3, 3), "w2")], {"pads": [1] * 4, "group": 8})[0]
    b = pointwise("max", b, 0.0)
    c = emit("conv", [b, main.constant(_weights(rng, 8, 8, 1, 1), "w3"), main.constant(_weights(rng, 8), "b3")], {})[0]
    c = pointwise("add", c, a)
    mean = emit("reduce", [c], {"kind": "mean", "axes": [2, 3], "keep_dims": False})[0]
    w4, b4 = main.constant(_weights(rng, 8, 5), "w4"), main.constant(_weights(rng, 5), "b4")
    return _finish(graph, main, emit("matmul", [mean, w4, b4], {}, name="y")[0])


def quantized(dtype: str) -> Graph:
    """conv_net at i8, i16 or f16."""
    rng = np.random.default_rng(3)
    batches = [{"x": rng.standard_normal((1, 3, 16, 16)).astype(np.float32)} for _ in range(4)]
    return in_integers(conv_net(), batches, dtype)


def in_integers(graph: Graph, samples: Iterable[Mapping[str, np.ndarray]], dtype: str) -> Graph:
    """The graph in `dtype`, by effort fast; an i16 graph has integers even where floats would be faster."""
    table = Table([Row("*", "w16a16")]) if dtype == "i16" else None
    return linnet.quantize(graph, samples, dtype=dtype, effort="fast", table=table)


def counter() -> Graph:
    """`infer`: y = total + x; `train`: total = total + x, y = the new total. All f32 [4]."""
    graph = Graph()
    total = graph.variable("total", np.arange(4, dtype=np.float32))
    for name in ("infer", "train"):
        function = graph.function(name)
        x = function.placeholder("x", "f32", (4,))
        before = function.read(total)
        y = pointwise("add", before, x)
        if name == "train":
            y = emit("assign", [before, y], {})[0]
        function.outputs.append(y)
        graph.signature(name, function, outputs=["y"])
    return graph


def branch() -> Graph:
    """x f32 [6] -> sum(x) > 0 ? x + 1 : x * 2 -> y f32 [6]."""
    graph = Graph()
    main = graph.function()
    x = main.placeholder("x", "f32", (6,))
    branches = []
    for opcode, number in (("add", 1.0), ("mul", 2.0)):
        function = graph.function(opcode)
        function.outputs.append(pointwise(opcode, function.placeholder("v", "f32", (6,)), number))
        branches.append(function)
    total = emit("reduce", [x], {"kind": "sum", "axes": [0], "keep_dims": False})[0]
    condition = pointwise("gt", total, 0.0, dtype="bool")
    y = emit("if", [condition, x], {"then_function": branches[0], "else_function": branches[1]}, name="y")[0]
    return _finish(graph, main, y)


def loop() -> Graph:
    """x f32 [3], positive: adds x until the sum exceeds 2, at most 9 times -> y f32 [k,3], the partial sums."""
    graph = Graph()
    main = graph.function()
    x = main.placeholder("x", "f32", (3,))
    body = graph.function("body")
    body.placeholder("i", "i64", ())
    body.placeholder("go", "bool", ())
    total, step = body.placeholder("total", "f32", (3,)), body.placeholder("step", "f32", (3,))
    after = pointwise("add", pointwise("mul", total, 1.0), step)
    norm = emit("reduce", [after], {"kind": "sum", "axes": [0], "keep_dims": False})[0]
    body.outputs += [pointwise("lt", norm, 2.0, dtype="bool"), after, pointwise("mul", after, 1.0)]
    trips = main.constant(np.array(9, np.int64), "trips")
    go = main.constant(np.array(True), "go")
    y = emit("while", [trips, go, x, x], {"body_function": body, "carried": 1}, 2, name="y")[1]
    return _finish(graph, main, y)


def recurrent() -> Graph:
    """x f32 [5,2,4] (time, batch) through a matmul and a bidirectional gru of 6 units -> y f32 [5,2,2,6]."""
    graph = Graph()
    main = graph.function()
    rng = np.random.default_rng(7)
    x = main.placeholder("x", "f32", (5, 2, 4))
    gates = emit("matmul", [x, main.constant(_weights(rng, 4, 36), "w")], {})[0]
    weights = main.constant(_weights(rng, 2, 18, 6), "r")
    y = emit("recurrent", [gates, weights], {"kind": "gru", "direction": "bidirectional"}, name="y")[0]
    return _finish(graph, main, y)


def gather() -> Graph:
    """indices i64 [3] into a table f32 [5,4] -> y f32 [3,4]."""
    graph = Graph()
    main = graph.function()
    table = main.constant(_weights(np.random.default_rng(5), 5, 4), "table")
    return _finish(graph, main, emit("gather", [table, main.placeholder("indices", "i64", (3,))], {}, name="y")[0])


def data_dependent() -> Graph:
    """x f32 [2,6]: the non-zero values, reshaped to two rows -> y f32 [2,n]. n is known only at run time."""
    graph = Graph()
    main = graph.function()
    x = main.placeholder("x", "f32", (2, 6))
    flat = emit("copy", [x], {"kind": "reshape", "shape": [12]})[0]
    where = emit("nonzero", [flat], {})[0]  # i64 [1,n]
    found = emit("gather", [flat, where], {"axis": 0})[0]  # f32 [1,n]
    count = emit("shape", [where], {"start": 1, "end": 2})[0]  # i64 [1]: n
    half = main.constant(np.array([2], np.int64), "two")
    program = [
        OPCODES["load"][0], 8, 0, 0, 0, OPCODES["load"][0], 8, 1, 0, 0, OPCODES["div"][0], 8, 0, 1, 0,
        OPCODES["store"][0], 8, 2, 0, 0,
    ]  # fmt: skip
    columns = emit("map", [count, half], {"program": program, "dtypes": [DTYPE_IDS["i64"]]})[0]
    shape = emit("copy", [half, columns], {"kind": "concat", "axis": 0})[0]
    y = emit("copy", [found, shape], {"kind": "reshape"}, name="y")[0]
    return _finish(graph, main, pointwise("mul", y, 10.0))


def dynamic() -> Graph:
    """x f32 [n,3], with n set when planning -> y = x + 1."""
    graph = Graph()
    main = graph.function()
    return _finish(graph, main, pointwise("add", main.placeholder("x", "f32", ("n", 3)), 1.0))


def one_op() -> Graph:
    """x f32 [4] -> y = x + 1, for the overhead of a run without work."""
    graph = Graph()
    main = graph.function()
    return _finish(graph, main, pointwise("add", main.placeholder("x", "f32", (4,)), 1.0))


def narrow() -> Graph:
    """x f32 [3, 9] -> y f32 [3, 7]: a product by i4 weights with a scale and a zero point per block, the last of which is not
    full. A line has an odd number of elements. The file has version 2."""
    rng = np.random.default_rng(6)
    graph = Graph()
    main = graph.function()
    scale, zero = rng.uniform(0.1, 1, (3, 7)).astype(np.float32), rng.integers(-8, 8, (3, 7)).astype(np.int32)
    codes = rng.integers(-8, 8, (9, 7)).astype(numpy_dtype("i4"))
    weight = main.constant(codes, "w", quantization=Quantization(scale, zero, 0, 4, 4))
    y = main.emit("matmul", [main.placeholder("x", "f32", (3, 9)), weight], {}, fold=False)[0]
    return _finish(graph, main, y)


def detector() -> Graph:
    """x f32 [8,6], with rows of boxes and a score; each run adds other noise -> the selected boxes [m,4]."""
    graph = Graph()
    main = graph.function()
    x = main.placeholder("x", "f32", (8, 6))
    counter = main.read(graph.variable("random_counter", np.int64(0)))
    noise = emit("random", [counter], {"kind": "normal", "shape": [8, 1], "seed": 3})[0]
    parts = emit("copy", [x], {"kind": "split", "axis": 1, "shape": [4, 1, 1]}, 3)
    corner, far = emit("copy", [parts[0]], {"kind": "split", "axis": 1, "shape": [2, 2]}, 2)
    sides = emit("copy", [corner, pointwise("add", corner, pointwise("abs", far))], {"kind": "concat", "axis": 1})[0]
    boxes = emit("copy", [sides], {"kind": "reshape", "shape": [1, 8, 4]})[0]
    scores = emit(
        "copy", [pointwise("add", parts[1], pointwise("mul", noise, 1e-6))], {"kind": "reshape", "shape": [1, 1, 8]}
    )[0]
    limits = [main.constant(v) for v in (np.int64(5), np.float32(0.3), np.float32(-0.5))]
    selected = emit("nms", [boxes, scores, *limits], {})[0]
    index = emit("copy", [selected], {"kind": "slice", "axes": [1], "starts": [2], "ends": [3], "steps": [1]})[0]
    flat = emit("copy", [index], {"kind": "reshape", "shape": [-1]})[0]
    later = mapping.pointwise([counter], lambda n: n + 1)
    emit("assign", [counter, later], {}, function=main)
    return _finish(graph, main, emit("gather", [sides, flat], {"axis": 0}, name="y")[0])


def training() -> Graph:
    """A training step as "infer": x f32 [64,32] -> 6 layers, mean square, gradients, momentum -> loss; 12 variables."""
    rng = np.random.default_rng(9)
    graph = Graph()
    x = graph.placeholder("x", (64, 32))
    y: Tensor = x
    weights = [graph.variable(f"w{i}", _weights(rng, 32, 32)) for i in range(6)]
    for w in weights:
        y = linnet.ops.tanh(y @ w)
    loss = (y * y).mean()
    updates = {}
    for w, g in zip(weights, linnet.gradients(loss, weights), strict=True):
        m = graph.variable(f"{w.name}/momentum", np.zeros((32, 32), np.float32))
        updates[m] = 0.9 * m + g
        updates[w] = w - 0.1 * updates[m]
    graph.signature("infer", {"x": x}, {"loss": loss}, updates=updates)
    return graph


GRAPHS: dict[str, Callable[[], Graph]] = {
    "mlp": mlp,
    "conv_net": conv_net,
    "conv_net_i8": lambda: quantized("i8"),
    "conv_net_i16": lambda: quantized("i16"),
    "conv_net_f16": lambda: quantized("f16"),
    "counter": counter,
    "branch": branch,
    "loop": loop,
    "recurrent": recurrent,
    "gather": gather,
    "data_dependent": data_dependent,
    "detector": detector,
    "narrow": narrow,
    "dynamic": dynamic,
    "one_op": one_op,
    "training": training,
}


@functools.cache
def bytes_of(name: str) -> bytes:
    """The .lnt file of a graph."""
    return GRAPHS[name]().to_bytes()


def feeds(name: str) -> Feeds:
    """Inputs for a graph."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if name == "gather":
        return {"indices": np.array([4, 0, -2], np.int64)}
    shape = {
        "mlp": (4, 8),
        "counter": (4,),
        "branch": (6,),
        "loop": (3,),
        "recurrent": (5, 2, 4),
        "data_dependent": (2, 6),
        "detector": (8, 6),
        "narrow": (3, 9),
        "dynamic": (5, 3),
        "one_op": (4,),
        "training": (64, 32),
    }.get(name, (1, 3, 16, 16))
    x = rng.standard_normal(shape).astype(np.float32)
    return {"x": np.abs(x) * 0.1 if name == "loop" else x}
