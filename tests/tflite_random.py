"""Random TFLite operators on quantized integers, alone and in chains, with random shapes, scales, zero points and options.
`draw` makes the parts of one operator, `chain` a network; tests/test_tflite_random.py runs them against LiteRT."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.tflite_models import G, O, T, build

Array = np.ndarray[Any, Any]
RANGES = {"i8": (-128, 127), "u8": (0, 255), "i16": (-32768, 32767)}
TYPES = {"i8": np.int8, "u8": np.uint8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "f32": np.float32}
ACTIVATIONS = ("none", "none", "relu", "relu6", "relu_n1_to_1")


class Draw:
    """The random numbers of one case, and the tensors named so far."""

    def __init__(self, seed: int | Sequence[int], dtype: str) -> None:
        self.rng, self.dtype = np.random.default_rng(seed), dtype
        self.tensors: list[T] = []
        self.operators: list[O] = []
        self.largest = 40_000  # most elements of an operand
        self.current: T | None = None  # in a chain, the input of the next operator

    def size(self, low: int, high: int) -> int:
        """A size; small ones are more frequent, so that the ends of vectors and blocks occur."""
        return min(high, int(math.exp(self.rng.uniform(math.log(low), math.log(high + 1)))))

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def scale(self, low: float = -9, high: float = -3) -> float:
        power = self.rng.uniform(low, high)
        return float(
            np.float32(2.0 ** (round(power) if self.rng.random() < 0.15 else power))
        )  # whole powers cause ties

    def zero(self) -> int:
        if self.dtype == "i16":
            return 0
        low, high = RANGES[self.dtype]
        return (
            int(self.rng.integers(low, high + 1)) if self.rng.random() < 0.7 else int(self.rng.choice([low, 0, high]))
        )

    def tensor(self, shape: Sequence[int], scale: float | None = None, zero: int | None = None, dtype: str = "") -> T:
        """An activation of the case's type with a quantization."""
        dtype = dtype or self.dtype
        name = f"t{len(self.tensors)}"
        if dtype in RANGES:
            made = T(
                name,
                dtype,
                list(shape),
                self.scale() if scale is None else scale,
                self.zero() if zero is None else zero,
            )
        else:
            made = T(name, dtype, list(shape))
        self.tensors.append(made)
        return made

    def like(self, other: T, shape: Sequence[int]) -> T:
        return self.tensor(shape, other.scale, other.zero)

    def input(self, shape: Sequence[int], scale: float | None = None) -> T:
        """The operator's input: the end of the chain so far, or else an input of the model."""
        if self.current is not None and list(self.current.shape) == list(shape):
            return self.current
        return self.tensor(shape, scale)

    def constant(self, value: Any, dtype: str = "i32", **quantization: Any) -> T:
        array = np.asarray(value, TYPES[dtype])
        made = T(f"c{len(self.tensors)}", dtype, list(array.shape), value=array, **quantization)
        self.tensors.append(made)
        return made

    def integers(self, shape: Sequence[int], dtype: str = "i8", narrow: bool = True) -> Array:
        low, high = RANGES[dtype]
        return self.rng.integers(low + (narrow and dtype != "u8"), high + 1, tuple(shape)).astype(TYPES[dtype])

    def add(self, op: str, inputs: Sequence[T | None], outputs: Sequence[T], **options: Any) -> list[T]:
        self.operators.append(O(op, ["" if t is None else t.name for t in inputs], [t.name for t in outputs], options))
        return list(outputs)

    def space(self) -> list[int]:
        """[batch, height, width, channels] with at most `largest` elements."""
        if self.current is not None:
            return list(self.current.shape)
        while True:
            shape = [self.pick(1, 1, 2, 3), self.size(1, 40), self.size(1, 40), self.size(1, 130)]
            if math.prod(shape) <= self.largest:
                return shape

    def shape(self, rank: int | None = None) -> list[int]:
        if self.current is not None:
            return list(self.current.shape)
        while True:
            rank_ = rank or int(self.rng.integers(1, 5))
            shape = [self.size(1, 40) for _ in range(rank_ - 1)] + [self.size(1, 130)]
            if math.prod(shape) <= self.largest:
                return shape

    def product_scale(self, x: T, w_scale: float, taps: int) -> float:
        """A scale for the result: the sums fill the range, fall short of it, or exceed it a few times."""
        x_spread = {"i8": 74.0, "u8": 74.0, "i16": 19000.0}[self.dtype]
        y_spread = {"i8": 74.0, "u8": 74.0, "i16": 19000.0}[self.dtype]
        real = float(x.scale) * w_scale * x_spread * 74.0 * math.sqrt(taps)
        return float(np.float32(real / y_spread * 2.0 ** self.rng.uniform(-2, 3)))

    def weights(self, x: T, shape: Sequence[int], axis: int, taps: int, per_axis: bool) -> tuple[T, T, float]:
        """(weight, bias, a typical scale for the result). u8 has one scale and zero point; i8 has no zero point."""
        outs = shape[axis]
        kind = "u8" if self.dtype == "u8" else "i8"
        middle = self.scale(-10, -5)
        scales = (
            (middle * 2.0 ** self.rng.uniform(-2, 1, outs)).astype(np.float32) if per_axis else np.float32([middle])
        )
        quantization: dict[str, Any] = {"scale": scales if per_axis else float(scales[0]), "zero": 0, "axis": axis}
        if kind == "u8":
            quantization["zero"] = int(self.rng.integers(100, 157))
        w = self.constant(self.integers(shape, kind), kind, **quantization)
        spread = 74.0 * 74.0 * math.sqrt(taps) * (200 if self.dtype == "i16" else 1)
        values = np.rint(self.rng.standard_normal(outs) * spread)
        own = (np.float32(x.scale) * scales).astype(np.float32)
        wide = "i64" if self.dtype == "i16" else "i32"
        bias = self.constant(values, wide, scale=own if per_axis else float(own[0]), zero=0)
        return w, bias, middle


def conv(r: Draw, op: str) -> list[T]:
    depthwise = op == "DEPTHWISE_CONV_2D"
    shape = r.space()
    x = r.input(shape)
    kh, kw = r.pick(1, 1, 2, 3, 3, 5, 7), r.pick(1, 1, 2, 3, 3, 5, 7)
    stride, dilation, same = r.pick(1, 1, 2, 3), r.pick(1, 1, 1, 2), r.pick(True, False)
    if stride > 1:
        dilation = 1
    sizes = []
    for d, k in ((shape[1], kh), (shape[2], kw)):
        reach = (k - 1) * dilation + 1
        if not same and reach > d:
            same = True
    for d, k in ((shape[1], kh), (shape[2], kw)):
        reach = (k - 1) * dilation + 1
        sizes.append(-(-d // stride) if same else (d - reach) // stride + 1)
    options: dict[str, Any] = {
        "padding": 0 if same else 1, "stride_h": stride, "stride_w": stride, "dilation_h": dilation,
        "dilation_w": dilation, "activation": r.pick(*ACTIVATIONS),
    }  # fmt: skip
    per_axis = r.dtype != "u8" and r.rng.random() < 0.7
    if depthwise:
        multiplier = r.pick(1, 1, 1, 2, 3)
        outs, taps = shape[3] * multiplier, kh * kw
        w, bias, scale = r.weights(x, [1, kh, kw, outs], 3, taps, per_axis)
        options["multiplier"] = multiplier
    else:
        outs, taps = r.size(1, 130), kh * kw * shape[3]
        while outs * sizes[0] * sizes[1] * shape[0] * taps > 4e6 and outs > 1:
            outs = max(1, outs // 2)
        w, bias, scale = r.weights(x, [outs, kh, kw, shape[3]], 0, taps, per_axis)
    y = r.tensor([shape[0], *sizes, outs], r.product_scale(x, scale, taps))
    return r.add(op, [x, w, bias], [y], **options)


def transpose_conv(r: Draw, op: str) -> list[T]:
    r.largest = 4000
    shape = r.space()
    x = r.input(shape)
    kh, kw, stride, same, outs = (
        r.pick(1, 2, 3, 4, 5),
        r.pick(1, 2, 3, 4),
        r.pick(1, 2, 3),
        r.pick(True, False),
        r.size(1, 40),
    )
    size = [shape[0]]
    for d, k in ((shape[1], kh), (shape[2], kw)):
        size.append(d * stride if same else (d - 1) * stride + max(k, stride))
    size.append(outs)
    taps = kh * kw * shape[3]
    w, bias, scale = r.weights(x, [outs, kh, kw, shape[3]], 0, taps, r.dtype != "u8" and r.rng.random() < 0.7)
    y = r.tensor(size, r.product_scale(x, scale, taps))
    return r.add(
        op,
        [r.constant(size), w, x, bias],
        [y],
        padding=0 if same else 1,
        stride_h=stride,
        stride_w=stride,
    )


def fully_connected(r: Draw, op: str) -> list[T]:
    depth, rows, outs = r.size(1, 5000), r.size(1, 12), r.size(1, 130)
    shape = [rows, depth]
    if r.current is not None:
        shape = list(r.current.shape)
        rows, depth = shape[0], math.prod(shape[1:])
    x = r.input(shape)
    w, bias, scale = r.weights(x, [outs, depth], 0, depth, r.dtype != "u8" and r.rng.random() < 0.4)
    y = r.tensor([rows, outs], r.product_scale(x, scale, depth))
    operands = [x, w, bias] if r.rng.random() < 0.8 else [x, w, None]
    return r.add(op, operands, [y], activation=r.pick(*ACTIVATIONS))


def batch_matmul(r: Draw, op: str) -> list[T]:
    depth, rows, columns, batch = r.size(1, 2000), r.size(1, 20), r.size(1, 40), r.pick(1, 1, 2, 5)
    adjoint_x, adjoint_y = r.pick(False, False, True), r.pick(False, True)
    a = r.input([batch, depth, rows] if adjoint_x else [batch, rows, depth])
    b_shape = [batch, columns, depth] if adjoint_y else [batch, depth, columns]
    b_scale = r.scale()
    if r.rng.random() < 0.3:
        b = r.constant(r.integers(b_shape, r.dtype), r.dtype, scale=b_scale, zero=0 if r.dtype == "i16" else r.zero())
    else:
        b = r.tensor(b_shape, b_scale)
    spread = 74.0 if r.dtype != "i16" else 19000.0
    y = r.tensor([batch, rows, columns], r.product_scale(a, b_scale * spread / 74.0, depth))
    return r.add(op, [a, b], [y], adjoint_x=adjoint_x, adjoint_y=adjoint_y)


def broadcast(r: Draw, shape: list[int]) -> list[int]:
    kind = r.pick("same", "same", "same", "scalar", "row", "some")
    if kind == "same":
        return shape
    if kind == "scalar":
        return [1] * len(shape)
    if kind == "row":
        return [1] * (len(shape) - 1) + shape[-1:]
    return [d if r.rng.random() < 0.5 else 1 for d in shape]


def binary(r: Draw, op: str) -> list[T]:
    shape = r.shape()
    if op in ("MAXIMUM", "MINIMUM"):
        a = r.input(shape)
        b, y = r.like(a, broadcast(r, shape)), r.like(a, shape)
        return r.add(op, [a, b], [y])
    a, b = r.input(shape), r.tensor(broadcast(r, shape))
    near = max(float(a.scale), float(b.scale)) * 2.0 ** r.rng.uniform(-1, 2)
    if r.dtype == "i16" and op in ("ADD", "SUB"):
        near = max(float(a.scale), float(b.scale)) * 2.0 ** r.rng.uniform(0, 2)
    if op == "MUL":
        near = float(a.scale) * float(b.scale) * {"i16": 19000.0}.get(r.dtype, 74.0) * 2.0 ** r.rng.uniform(-1, 2)
    if op == "SQUARED_DIFFERENCE":
        near = near * near / max(float(a.scale), float(b.scale)) / 2
        near = (
            max(float(a.scale), float(b.scale)) ** 2 * {"i16": 19000.0}.get(r.dtype, 74.0) * 2.0 ** r.rng.uniform(0, 3)
        )
    y = r.tensor(shape, float(np.float32(near)))
    swapped = r.rng.random() < 0.3
    options = {} if op == "SQUARED_DIFFERENCE" else {"activation": r.pick(*ACTIVATIONS)}
    return r.add(op, [b, a] if swapped else [a, b], [y], **options)


def quotient(r: Draw, op: str) -> list[T]:
    """Ops that TFLite computes with Newton's divisions and logarithms in fixed point."""
    shape = r.shape()
    x = r.input(shape)
    if op != "DIV":
        scale, zero = {
            "LOG_SOFTMAX": (16 / 256, {"i8": 127, "u8": 255}),
            "L2_NORMALIZATION": (1 / 128, {"i8": 0, "u8": 128}),
        }[op]
        options = {"activation": "none"} if op == "L2_NORMALIZATION" else {}
        return r.add(op, [x], [r.tensor(shape, scale, zero[r.dtype])], **options)
    divisor = r.integers(broadcast(r, shape), r.dtype)
    b = r.constant(np.where(divisor == 3, 4, divisor), r.dtype, scale=r.scale(), zero=3)
    y = r.tensor(shape, float(np.float32(float(x.scale) / b.scale / 20 * 2.0 ** r.rng.uniform(-1, 1))))
    return r.add(op, [x, b], [y], activation=r.pick(*ACTIVATIONS))


def prelu(r: Draw, op: str) -> list[T]:
    shape = r.space()
    x = r.input(shape)
    slope_shape = [1, 1, shape[3]] if r.rng.random() < 0.7 else [1, shape[2], shape[3]]
    narrow = "i8" if r.dtype == "i16" else r.dtype  # the kernel reads i8 with i16
    slope = r.constant(r.integers(slope_shape, narrow), narrow, scale=r.scale(-10, -6), zero=r.zero())
    y = r.tensor(shape, float(x.scale) * 2.0 ** r.rng.uniform(-1, 1))
    return r.add(op, [x, slope], [y])


FUNCTIONS = ("LOGISTIC", "TANH", "ELU", "EXP", "LOG", "SQRT", "RSQRT", "GELU")
POSITIVE = ("LOG", "SQRT", "RSQRT")  # number of operands


def unary(r: Draw, op: str) -> list[T]:
    shape = r.shape()
    options: dict[str, Any] = {}
    x = r.input(shape)
    near = float(x.scale) * 2.0 ** r.rng.uniform(-1.5, 1.5)
    y_zero = None
    if op == "LEAKY_RELU":
        options["alpha"] = float(r.pick(0.01, 0.1, 0.2, 0.3, -0.1, -0.7, -2.5, 1.3, 0.0))
    if op in ("LOGISTIC", "TANH"):
        near, y_zero = {"LOGISTIC": 1 / 256, "TANH": 1 / 128}[op], {"i8": -128, "u8": 0, "i16": 0}[r.dtype]
        if op == "TANH" and r.dtype != "i16":
            y_zero += 128
        if r.dtype == "i16":
            near = 1 / 32768
    if op == "GELU":
        options["approximate"] = bool(r.pick(True, False))
    y = r.tensor(shape, near, y_zero)
    return r.add(op, [x], [y], **options)


def softmax(r: Draw, op: str) -> list[T]:
    shape = r.shape()
    x = r.input(shape, r.scale(-8, 0) / (256 if r.dtype == "i16" else 1))
    scale, zero = {"i8": (1 / 256, -128), "u8": (1 / 256, 0), "i16": (1 / 32768, 0)}[r.dtype]
    return r.add(op, [x], [r.tensor(shape, scale, zero)], beta=float(r.pick(1.0, 1.0, 0.5, 2.0)))


def pool(r: Draw, op: str) -> list[T]:
    shape = r.space()
    x = r.input(shape)
    same, stride = r.pick(True, False), r.pick(1, 2, 3)
    kh, kw = (min(k, d) for k, d in ((r.size(1, 12), shape[1]), (r.size(1, 12), shape[2])))
    size = [-(-d // stride) if same else (d - k) // stride + 1 for d, k in ((shape[1], kh), (shape[2], kw))]
    y = r.like(x, [shape[0], *size, shape[3]])
    return r.add(op, [x], [y], padding=0 if same else 1, stride_h=stride, stride_w=stride, filter_h=kh, filter_w=kw,
                 activation=r.pick(*ACTIVATIONS))  # fmt: skip


def reduce(r: Draw, op: str) -> list[T]:
    shape = r.shape(int(r.rng.integers(2, 5)))
    x = r.input(shape)
    count = int(r.rng.integers(1, len(shape) + 1))
    axes = sorted(int(a) for a in r.rng.choice(len(shape), count, replace=False))
    if op == "MEAN" and len(shape) == 4 and r.rng.random() < 0.5:
        axes = [1, 2]
    keep = bool(r.pick(True, False))
    size = [1 if i in axes else d for i, d in enumerate(shape) if keep or i not in axes]
    taken = math.prod(shape[a] for a in axes)
    if op in ("REDUCE_MAX", "REDUCE_MIN"):
        y = r.like(x, size)
    elif op == "MEAN":
        y = r.pick(r.like, lambda x, s: r.tensor(s, float(x.scale) * 2.0 ** r.rng.uniform(-2, 1)))(x, size)
    else:
        y = r.tensor(size, float(np.float32(float(x.scale) * math.sqrt(taken) * 2.0 ** r.rng.uniform(0, 2))))
    return r.add(op, [x, r.constant(axes)], [y], keep_dims=keep)


def quantize(r: Draw, op: str) -> list[T]:
    shape = r.shape()
    if op == "QUANTIZE":
        x = r.tensor(shape, dtype="f32")
        return r.add(op, [x], [r.tensor(shape, r.scale(-8, -2) / (256 if r.dtype == "i16" else 1))])
    if op == "DEQUANTIZE":
        x = r.input(shape)
        return r.add(op, [x], [r.tensor(shape, dtype="f32")])
    x = r.input(shape)
    other = r.pick(*({"i8": ("i8", "u8"), "u8": ("i8", "u8"), "i16": ("i16", "i8")}[r.dtype]))
    scale = (
        float(x.scale)
        * 2.0 ** r.rng.uniform(-2, 2)
        * {("i16", "i8"): 256, ("i8", "i16"): 1 / 256}.get((r.dtype, other), 1)
    )
    mine, r.dtype = r.dtype, other
    y = r.tensor(shape, float(np.float32(scale)))
    r.dtype = mine
    return r.add("QUANTIZE", [x], [y])


def resize(r: Draw, op: str) -> list[T]:
    shape = r.space()
    x = r.input(shape)
    size = [r.size(1, 40), r.size(1, 40)]
    if r.rng.random() < 0.4:
        size = [shape[1] * 2, shape[2] * 2]
    corners, half = r.pick((False, False), (False, True), (True, False))
    y = r.like(x, [shape[0], *size, shape[3]])
    return r.add(op, [x, r.constant(size)], [y], align_corners=corners, half_pixel_centers=half)


def concatenation(r: Draw, op: str) -> list[T]:
    shape = r.shape()
    axis = int(r.rng.integers(len(shape)))
    parts = [r.input(shape)]
    for _ in range(int(r.rng.integers(1, 4))):
        other = [r.size(1, 20) if i == axis else d for i, d in enumerate(shape)]
        parts.append(r.tensor(other, *((None, None) if r.dtype == "u8" else (parts[0].scale, parts[0].zero))))
    size = [sum(p.shape[i] for p in parts) if i == axis else d for i, d in enumerate(shape)]
    return r.add(op, parts, [r.like(parts[0], size)], axis=axis, activation="none")


ALL = ("i8", "u8", "i16")
OPS: dict[str, Callable[[Draw], list[T]]] = {}
DTYPES: dict[str, Sequence[str]] = {}  # types that the op's reference kernel supports and computes correctly


def family(function: Callable[[Draw, str], list[T]], dtypes: Sequence[str], *names: str) -> None:
    for name in names:
        OPS[name] = lambda r, name=name: function(r, name)  # type: ignore[misc]
        DTYPES[name] = dtypes


family(conv, ALL, "CONV_2D", "DEPTHWISE_CONV_2D")
family(transpose_conv, ALL, "TRANSPOSE_CONV")
family(fully_connected, ALL, "FULLY_CONNECTED")
family(batch_matmul, ("i8", "i16"), "BATCH_MATMUL")
family(binary, ALL, "ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM")
family(binary, ("i8",), "SQUARED_DIFFERENCE")
family(prelu, ALL, "PRELU")
family(unary, ALL, "LEAKY_RELU", "RELU", "RELU6", "LOGISTIC", "TANH", "GELU")
family(unary, ("i8", "u8"), "HARD_SWISH", "RELU_N1_TO_1")
family(unary, ("i8", "i16"), "ABS", "EXP", "LOG", "SQRT", "RSQRT")
family(unary, ("i8",), "ELU")
family(softmax, ALL, "SOFTMAX")
family(pool, ALL, "AVERAGE_POOL_2D", "MAX_POOL_2D")
family(reduce, ALL, "MEAN", "REDUCE_MAX", "REDUCE_MIN")
family(reduce, ("u8",), "SUM")  # for i8 and i16, LiteRT 2.3's reference kernel gives numbers unrelated to the sums
family(quantize, ALL, "QUANTIZE", "DEQUANTIZE", "requantize")
family(resize, ALL, "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
family(concatenation, ALL, "CONCATENATION")
family(quotient, ("i8", "u8"), "DIV", "LOG_SOFTMAX", "L2_NORMALIZATION")
FLOATS = ("LOG_SOFTMAX", "L2_NORMALIZATION")  # computed in floats and rounded; all others give the same bits

LINKS = (
    "CONV_2D", "DEPTHWISE_CONV_2D", "CONV_2D", "DEPTHWISE_CONV_2D", "ADD", "MUL", "SUB", "PRELU", "LEAKY_RELU", "RELU",
    "RELU6", "HARD_SWISH", "LOGISTIC", "TANH", "AVERAGE_POOL_2D", "MAX_POOL_2D", "RESIZE_BILINEAR", "CONCATENATION",
    "RESIZE_NEAREST_NEIGHBOR", "requantize", "SOFTMAX", "MEAN", "SQUARED_DIFFERENCE", "ABS", "MAXIMUM",
)  # fmt: skip


def chain(r: Draw) -> list[T]:
    """Two to seven operators in a chain, optionally a fully connected one at the end."""
    r.largest = 6000
    kinds = [k for k in LINKS if r.dtype in DTYPES[k]]
    outputs: list[T] = []
    for _ in range(int(r.rng.integers(2, 8))):
        before = r.current
        outputs = OPS[r.pick(*kinds)](r)
        r.current = outputs[0]
        assert before is None or any(before.name in o.inputs for o in r.operators)
        if r.current.dtype != r.dtype or len(r.current.shape) != 4 or math.prod(r.current.shape) > 60_000:
            break
    last = r.current
    image = last is not None and last.dtype == r.dtype and len(last.shape) == 4
    if last is not None and image and r.rng.random() < 0.3 and math.prod(last.shape[1:]) <= 5000:
        outputs = OPS["FULLY_CONNECTED"](r)
    return outputs


def model(r: Draw, outputs: Sequence[T]) -> tuple[bytes, list[T]]:
    """The file of the drawn model, and its inputs."""
    made = {name for o in r.operators for name in o.outputs}
    inputs = [t for t in r.tensors if t.value is None and t.name not in made]
    return build(G(r.tensors, r.operators, [t.name for t in inputs], [t.name for t in outputs])), inputs


def feeds(r: Draw, inputs: Sequence[T]) -> dict[str, Array]:
    found: dict[str, Array] = {}
    positive = {o.inputs[0] for o in r.operators if o.op in POSITIVE}
    for t in inputs:
        if t.dtype == "f32":
            found[t.name] = r.rng.standard_normal(tuple(t.shape)).astype(np.float32)
            continue
        found[t.name] = r.integers(t.shape, t.dtype, narrow=False)
        if any(
            o.op == "DIV" and o.inputs[0] == t.name for o in r.operators
        ):  # near 0 the kernel shifts by more than 31 bits
            away = found[t.name].astype(np.int64) - t.zero
            found[t.name] = np.where(
                abs(away) < 32, t.zero + (32 if t.zero < np.mean(RANGES[t.dtype]) else -32), found[t.name]
            )
            found[t.name] = found[t.name].astype(TYPES[t.dtype])
        elif t.name in positive:  # LiteRT refuses others
            found[t.name] = np.maximum(found[t.name], min(t.zero + 1, RANGES[t.dtype][1]))
        elif r.rng.random() < 0.3:  # like activations: few large ones
            middle = float(np.mean(RANGES[t.dtype]))
            found[t.name] = ((found[t.name] - middle) * 0.25 + t.zero).clip(*RANGES[t.dtype]).astype(TYPES[t.dtype])
    return found
