"""Random quantized ONNX operators, alone and in chains: DequantizeLinear -> op -> QuantizeLinear with random shapes, scales, zero
points and attributes. tests/test_onnx_quantized_random.py runs them against ONNX Runtime."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]
TYPES: dict[str, Any] = {"i8": np.int8, "u8": np.uint8}
RANGES = {"i8": (-128, 127), "u8": (0, 255)}


class Stored(NamedTuple):
    """A quantized tensor: its name, shape, scale and zero point."""

    name: str
    shape: tuple[int, ...]
    scale: float
    zero: int


class Draw:
    """The random numbers of one model, and its nodes so far."""

    def __init__(self, seed: int | Sequence[int], dtype: str, exact: bool = True) -> None:
        self.rng, self.dtype, self.exact = np.random.default_rng(seed), dtype, exact
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: dict[str, Array] = {}
        self.current: Stored | None = None  # in a chain, the input of the next operator
        self.largest = 30_000

    def size(self, low: int, high: int) -> int:
        """A size; small ones are more frequent."""
        return min(high, int(math.exp(self.rng.uniform(math.log(low), math.log(high + 1)))))

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def scale(self, low: float = -9, high: float = -3) -> float:
        power = self.rng.uniform(low, high)
        return float(np.float32(2.0 ** (round(power) if self.rng.random() < 0.15 else power)))

    def near(self, scale: float, low: float, high: float) -> float:
        """A scale for a result. Simple quotients of scales give many exact ties, whose rounding depends on the last bit."""
        if self.rng.random() < 0.5:
            return scale * 2.0 ** self.rng.uniform(low, high)
        return scale * self.pick(0.5, 2 / 3, 0.75, 0.8, 1, 1.25, 1.5, 2, 2.5, 3, 4)

    def zero(self) -> int:
        low, high = RANGES[self.dtype]
        return (
            int(self.rng.integers(low, high + 1))
            if self.rng.random() < 0.7
            else int(self.rng.choice([low, (low + high + 1) // 2]))
        )

    def space(self) -> tuple[int, ...]:
        if self.current is not None:
            return self.current.shape
        while True:
            shape = (self.pick(1, 1, 2), self.size(1, 130), self.size(1, 40), self.size(1, 40))
            if math.prod(shape) <= self.largest:
                return shape

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def node(self, op: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], domain=domain, **attributes))
        return name

    def feed(self, value: Array) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = value
        return name

    def parameters(self, x: Stored) -> tuple[str, str]:
        return self.constant(x.scale), self.constant(x.zero, TYPES[self.dtype])

    def input(self, shape: Sequence[int], scale: float | None = None) -> Stored:
        """The operator's input: the end of the chain so far, or else an input of the model."""
        if self.current is not None and self.current.shape == tuple(shape):
            return self.current
        low, high = RANGES[self.dtype]
        value = self.rng.integers(low, high + 1, tuple(shape)).astype(TYPES[self.dtype])
        return Stored(self.feed(value), tuple(shape), self.scale() if scale is None else scale, self.zero())

    def real(self, x: Stored) -> str:
        return self.node("DequantizeLinear", x.name, *self.parameters(x))

    def store(self, y: str, shape: Sequence[int], scale: float, zero: int | None = None) -> Stored:
        made = Stored("", tuple(shape), float(np.float32(scale)), self.zero() if zero is None else zero)
        return made._replace(name=self.node("QuantizeLinear", y, *self.parameters(made)))

    def weights(self, shape: Sequence[int], axis: int, zeros: bool = False) -> tuple[str, Array]:
        """(the dequantized weights, their scales): i8, per tensor or per channel."""
        low, high = (-128, 127) if self.exact else (-64, 63)
        per_axis = self.rng.random() < 0.5
        count = shape[axis] if per_axis else 1
        scales = np.float32(self.scale(-10, -5) * 2.0 ** self.rng.uniform(-2, 1, count))
        value = self.constant(self.rng.integers(low, high + 1, tuple(shape)), np.int8)
        zero = np.zeros(count, np.int8) if not zeros else self.rng.integers(-3, 4, count).astype(np.int8)
        if not per_axis:
            w = self.node("DequantizeLinear", value, self.constant(scales[0]), self.constant(zero[0], np.int8))
        else:
            w = self.node("DequantizeLinear", value, self.constant(scales), self.constant(zero, np.int8), axis=axis)
        return w, scales

    def bias(self, x: Stored, scales: Array, count: int, taps: int) -> str:
        own = np.float32(x.scale) * scales
        value = np.rint(self.rng.standard_normal(count) * 74 * 74 * math.sqrt(taps))
        scale = self.constant(own if own.size > 1 else own[0])
        name = self.constant(value, np.int32)
        return self.node("DequantizeLinear", name, scale, **({"axis": 0} if own.size > 1 else {}))

    def product_scale(self, x: Stored, scales: Array, taps: int) -> float:
        spread = 74 * math.sqrt(taps) * 2.0 ** self.rng.uniform(-1.5, 3)
        ties = self.rng.random() < 0.3  # sums over a whole number
        return (
            x.scale * float(scales.reshape(-1)[0]) * max(2, round(spread))
            if ties
            else x.scale * float(scales.mean()) * spread
        )

    def model(self, output: str) -> onnx.ModelProto:
        infos = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for n, v in self.inputs.items()
        ]
        graph = helper.make_graph(self.nodes, "net", infos, [onnx.ValueInfoProto(name=output)], self.constants)
        imports = [helper.make_opsetid("", 19), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=9)


def conv(r: Draw, op: str) -> Stored:
    shape = r.space()
    x = r.input(shape)
    depthwise = op == "depthwise Conv"
    group = shape[1] if depthwise else 1
    outs = shape[1] * r.pick(1, 1, 2) if depthwise else r.size(1, 130)
    kernel = [min(r.pick(1, 1, 2, 3, 3, 5), d) for d in shape[2:]]
    stride = r.pick(1, 1, 2, 3)
    pads = [int(r.rng.integers(0, k)) for k in kernel]
    sizes = [(d + 2 * p - k) // stride + 1 for d, p, k in zip(shape[2:], pads, kernel, strict=True)]
    taps = shape[1] // group * math.prod(kernel)
    while outs * math.prod(sizes) * taps * shape[0] > 4e6 and outs > 1 and not depthwise:
        outs //= 2
    w, scales = r.weights([outs, shape[1] // group, *kernel], 0)
    operands = [r.real(x), w] + ([r.bias(x, scales, outs, taps)] if r.rng.random() < 0.8 else [])
    y = r.node("Conv", *operands, kernel_shape=kernel, pads=pads * 2, strides=[stride] * 2, group=group)
    scale = r.product_scale(x, scales, taps)
    if op == "Conv Relu":
        y = r.node("Relu", y)
    return r.store(y, (shape[0], outs, *sizes), scale)


def matmul(r: Draw, op: str) -> Stored:
    depth, rows, columns = r.size(1, 5000), r.size(1, 12), r.size(1, 130)
    if r.current is not None:
        depth = math.prod(r.current.shape[1:])
        x = r.current._replace(
            name=r.node("Reshape", r.current.name, r.constant([r.current.shape[0], depth], np.int64))
        )
        x = x._replace(shape=(x.shape[0], depth))
        rows = x.shape[0]
    else:
        x = r.input((rows, depth))
    if op == "Gemm":
        w, scales = r.weights([columns, depth], 0)
        operands = [r.real(x), w] + ([r.bias(x, scales, columns, depth)] if r.rng.random() < 0.8 else [])
        y = r.node("Gemm", *operands, transB=1)
    else:
        w, scales = r.weights([depth, columns], 1, zeros=True)
        y = r.node("MatMul", r.real(x), w)
    return r.store(y, (rows, columns), r.product_scale(x, scales, depth))


def binary(r: Draw, op: str) -> Stored:
    shape = r.space()
    a = r.input(shape)
    other = r.pick(shape, shape, (1, shape[1], 1, 1), (1, 1, 1, 1), shape[1:])
    b = Stored(r.feed(r.rng.integers(RANGES[r.dtype][0], RANGES[r.dtype][1] + 1, other).astype(TYPES[r.dtype])), other,
               r.near(a.scale, -3, 3), r.zero())  # fmt: skip
    y = r.node(op, r.real(a), r.real(b))
    near = a.scale * b.scale * 74 if op == "Mul" else max(a.scale, b.scale)
    return r.store(y, shape, r.near(near, -1, 1.5))


def unary(r: Draw, op: str) -> Stored:
    shape = r.space()
    x = r.input(shape)
    near, zero = r.near(x.scale, -1.5, 1.5), None
    attributes: dict[str, Any] = {}
    operands = [r.real(x)]
    if op == "LeakyRelu":
        attributes["alpha"] = r.pick(0.01, 0.1, 0.3, -0.2, 1.5)
    if op == "Clip":
        operands += [r.constant(np.float32(-20 * x.scale)), r.constant(np.float32(r.pick(6.0, 50 * x.scale)))]
    if op in ("Sigmoid", "Softmax"):
        near, zero = r.pick(1 / 256, 1 / 255), RANGES[r.dtype][0]
    if op == "Tanh":
        near = 1 / 128
    if op == "Softmax":
        attributes["axis"] = r.pick(-1, 1)
    return r.store(r.node(op, *operands, **attributes), shape, near, zero)


def pool(r: Draw, op: str) -> Stored:
    shape = r.space()
    x = r.input(shape)
    if op == "GlobalAveragePool":
        return r.store(r.node(op, r.real(x)), (*shape[:2], 1, 1), r.near(x.scale, -2, 0.5))
    kernel, stride = [min(r.pick(1, 2, 3, 5, 7), d) for d in shape[2:]], r.pick(1, 2, 3)
    pads = [int(r.rng.integers(0, k)) for k in kernel]
    sizes = [(d + 2 * p - k) // stride + 1 for d, p, k in zip(shape[2:], pads, kernel, strict=True)]
    attributes: dict[str, Any] = {"kernel_shape": kernel, "pads": pads * 2, "strides": [stride] * 2}
    if op == "AveragePool":
        attributes["count_include_pad"] = r.pick(0, 1)
    y = r.node(op, r.real(x), **attributes)
    if op == "MaxPool" or r.rng.random() < 0.4:
        return r.store(y, (*shape[:2], *sizes), x.scale, x.zero)
    return r.store(y, (*shape[:2], *sizes), r.near(x.scale, -1, 0.5))


def resize(r: Draw, op: str) -> Stored:
    shape = r.space()
    x = r.input(shape)
    factors = r.pick((2.0, 2.0), (2.0, 2.0), (1.5, 3.0), (0.5, 0.5), (2.3, 1.7), (4.0, 1.0))
    sizes = [max(1, math.floor(d * np.float32(f))) for d, f in zip(shape[2:], factors, strict=True)]
    mode, coordinates = op.split()[1], r.pick("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        attributes["nearest_mode"] = "floor"
    y = r.node("Resize", r.real(x), "", "", r.constant([*shape[:2], *sizes], np.int64), **attributes)
    if r.rng.random() < 0.5:
        return r.store(y, (*shape[:2], *sizes), x.scale, x.zero)
    return r.store(y, (*shape[:2], *sizes), r.near(x.scale, -1, 1))


def concat(r: Draw, op: str) -> Stored:
    shape = r.space()
    parts = [r.input(shape)]
    for _ in range(int(r.rng.integers(1, 3))):
        other = (shape[0], r.size(1, 20), *shape[2:])
        value = r.rng.integers(RANGES[r.dtype][0], RANGES[r.dtype][1] + 1, other).astype(TYPES[r.dtype])
        parts.append(Stored(r.feed(value), other, r.near(parts[0].scale, -1, 1), r.pick(parts[0].zero, r.zero())))
    channels = sum(p.shape[1] for p in parts)
    return r.store(
        r.node("Concat", *(r.real(p) for p in parts), axis=1),
        (shape[0], channels, *shape[2:]),
        r.near(parts[0].scale, -1, 1),
    )


def mean(r: Draw, op: str) -> Stored:
    shape = r.space()
    x = r.input(shape)
    y = r.node("ReduceMean", r.real(x), r.constant([2, 3], np.int64), keepdims=1)
    return r.store(y, (*shape[:2], 1, 1), r.near(x.scale, -2, 0))


OPS: dict[str, Callable[[Draw, str], Stored]] = {
    **dict.fromkeys(("Conv", "depthwise Conv", "Conv Relu"), conv),
    **dict.fromkeys(("MatMul", "Gemm"), matmul),
    **dict.fromkeys(("Add", "Sub", "Mul"), binary),
    **dict.fromkeys(("Relu", "LeakyRelu", "Clip", "Sigmoid", "Tanh", "HardSwish", "Softmax", "Elu", "Abs"), unary),
    **dict.fromkeys(("MaxPool", "AveragePool", "GlobalAveragePool"), pool),
    **dict.fromkeys(("Resize nearest", "Resize linear", "Resize cubic"), resize),
    "Concat": concat,
    "ReduceMean": mean,
}
LINKS = (
    "Conv", "depthwise Conv", "Conv Relu", "Add", "Mul", "Relu", "LeakyRelu", "Clip", "Sigmoid", "MaxPool", "AveragePool",
    "Concat", "Resize linear", "Resize nearest",
)  # fmt: skip


def chain(r: Draw) -> Stored:
    """Two to seven operators in a chain."""
    r.largest = 6000
    for _ in range(int(r.rng.integers(2, 8))):
        kind = r.pick(*LINKS)
        r.current = OPS[kind](r, kind)
        if math.prod(r.current.shape) > 60_000:
            break
    if r.rng.random() < 0.3 and math.prod(r.current.shape[1:]) <= 5000:
        kind = r.pick("Gemm", "MatMul")
        return OPS[kind](r, kind)
    return r.current
