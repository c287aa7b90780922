"""TFLite ops one by one, on files made here, against LiteRT's reference kernels: integers bit for bit, floats to 1e-5 of the
range. Without ai-edge-litert the comparison is skipped."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import linnet
from tests.tflite_models import G, O, T, build

litert = pytest.importorskip(
    "ai_edge_litert.interpreter", reason="LiteRT is the reference: pip install ai-edge-litert (22 MB)"
)


def reference(model: bytes, feeds: Sequence[np.ndarray], reference_kernel: bool = True) -> list[np.ndarray]:
    """Computes outputs with LiteRT's reference kernels."""
    resolver = litert.OpResolverType
    try:
        if not reference_kernel:
            raise ValueError
        interpreter = litert.Interpreter(
            model_content=model, num_threads=1, experimental_op_resolver_type=resolver.BUILTIN_REF
        )
    except ValueError:  # a few ops have only one kernel, which is not a reference kernel
        kinds = resolver.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        interpreter = litert.Interpreter(model_content=model, num_threads=1, experimental_op_resolver_type=kinds)
    details = interpreter.get_input_details()
    interpreter.allocate_tensors()
    for detail, feed in zip(details, feeds, strict=True):
        interpreter.set_tensor(detail["index"], feed)
    interpreter.invoke()
    return [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]


def random(t: T, rng: np.random.Generator) -> np.ndarray:
    shape = tuple(t.shape)
    if t.dtype == "f32":
        return rng.standard_normal(shape).astype(np.float32)
    if t.dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    dtype = {"i8": np.int8, "u8": np.uint8, "i16": np.int16, "i32": np.int32, "i64": np.int64}[t.dtype]
    low, high = (-20, 20) if t.dtype in ("i32", "i64") else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return rng.integers(low, high + 1, shape).astype(dtype)


@dataclasses.dataclass
class Case:
    """One operator."""

    name: str
    tensors: Sequence[T]
    operator: O
    tolerance: float = 1e-5
    reference_kernel: bool = (
        True  # False: LRN's reference kernel sums one channel less than the optimized one and TensorFlow
    )

    def model(self) -> bytes:
        constants = {t.name for t in self.tensors if t.value is not None}
        inputs = [n for n in self.operator.inputs if n and n not in constants]
        return build(G(self.tensors, [self.operator], inputs, self.operator.outputs))


CASES: list[Case] = []


def case(name: str, op: str, tensors: Sequence[T], outputs: Sequence[str] = ("y",), tolerance: float = 1e-5,
         reference_kernel: bool = True, **options: Any) -> None:  # fmt: skip
    inputs = [t.name for t in tensors if t.name not in outputs]
    CASES.append(Case(name, tensors, O(op, inputs, outputs, options), tolerance, reference_kernel))


INT = {"i8": (-128, 127), "u8": (0, 255), "i16": (-32768, 32767)}
rng = np.random.default_rng(7)


def q(name: str, dtype: str, shape: Sequence[int], scale: float, zero: int = 0) -> T:
    if dtype == "u8":
        zero += 128
    if dtype == "i16":
        zero, scale = 0, scale / 200
    return T(name, dtype, shape, None if dtype == "f32" else scale, zero)


def c(name: str, value: Any, dtype: Any = np.int32, **keys: Any) -> T:
    array = np.asarray(value, dtype)
    names = {np.int32: "i32", np.int8: "i8", np.uint8: "u8", np.float32: "f32", np.int64: "i64", np.float16: "f16"}
    return T(name, names[dtype], array.shape, value=array, **keys)


for d in ("f32", "i8", "u8", "i16"):
    a, b2 = q("a", d, [2, 5, 7, 3], 0.043, 5), q("b", d, [2, 5, 7, 3], 0.031, -9)
    row = q("b", d, [3], 0.031, -9)
    for op in ("ADD", "SUB", "MUL"):
        for act in ("none", "relu", "relu6"):
            case(f"{op} {d} {act}", op, [a, b2, q("y", d, [2, 5, 7, 3], 0.07, -3)], activation=act)
        case(f"{op} {d} broadcast", op, [a, row, q("y", d, [2, 5, 7, 3], 0.07, -3)], activation="none")
    for op in ("MAXIMUM", "MINIMUM"):
        case(f"{op} {d}", op, [a, q("b", d, [2, 5, 7, 3], 0.043, 5), q("y", d, [2, 5, 7, 3], 0.043, 5)])
    for op in ("LOGISTIC", "TANH"):
        scale, zero = (1 / 256, -128) if op == "LOGISTIC" else (1 / 128, 0)
        if d == "i16":
            scale = 200 / 32768
        case(f"{op} {d}", op, [q("x", d, [40, 64], 0.05, 4), q("y", d, [40, 64], scale, zero)])
    for op in ("RELU", "RELU6"):
        case(f"{op} {d}", op, [q("x", d, [4, 64], 0.05, 4), q("y", d, [4, 64], 0.03, -100)])
    if d != "i16":
        case(f"HARD_SWISH {d}", "HARD_SWISH", [q("x", d, [4, 64], 0.05, 4), q("y", d, [4, 64], 0.03, -100)])
        case(f"L2_NORMALIZATION {d}", "L2_NORMALIZATION", [q("x", d, [4, 64], 0.05, 4),
             q("y", d, [4, 64], 1 / 128, 0)], activation="none")  # fmt: skip
    case(f"LEAKY_RELU {d}", "LEAKY_RELU", [q("x", d, [4, 64], 0.05, 4), q("y", d, [4, 64], 0.04, 10)], alpha=0.2)
    for scale in (0.06, 0.5, 0.003):
        case(f"SOFTMAX {d} {scale}", "SOFTMAX", [q("x", d, [6, 40], scale, 4), q("y", d, [6, 40], 1 / 256 if d != "i16" else
             200 / 32768, -128)], beta=1.0)  # fmt: skip
    for length, scale in ((2, 0.003), (3, 0.003), (16, 0.003), (255, 0.05), (256, 0.05)):
        case(f"SOFTMAX {d} of {length}", "SOFTMAX", [q("x", d, [5, length], scale, 4), q("y", d, [5, length], 1 / 256 if d
             != "i16" else 200 / 32768, -128)], beta=1.0)  # fmt: skip
    x = q("x", d, [2, 9, 11, 4], 0.05, 4)
    for padding in (0, 1):
        size = [2, 5, 6, 4] if padding == 0 else [2, 4, 5, 4]
        for op in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
            case(f"{op} {d} {padding}", op, [x, q("y", d, size, 0.05, 4)], padding=padding, stride_w=2, stride_h=2,
                 filter_w=3, filter_h=3 if padding == 0 else 2, activation="relu")  # fmt: skip
    for keep in (True, False):
        size = [2, 1, 1, 4] if keep else [2, 4]
        case(f"MEAN {d} {keep}", "MEAN", [x, c("axes", [1, 2]), q("y", d, size, 0.02, -7)], keep_dims=keep)
    case(f"MEAN {d} axis 2", "MEAN", [x, c("axes", [2]), q("y", d, [2, 9, 4], 0.05, 4)], keep_dims=False)
    case(f"REDUCE_MAX {d}", "REDUCE_MAX", [x, c("axes", [1, 3]), q("y", d, [2, 11], 0.05, 4)], keep_dims=False)
    if d == "i16":
        case(f"RESIZE_BILINEAR {d}", "RESIZE_BILINEAR", [x, c("size", [13, 7]), q("y", d, [2, 13, 7, 4], 0.05)],
             align_corners=False, half_pixel_centers=True)  # fmt: skip
    if d in ("f32", "i8", "u8"):
        if d != "i8":  # LiteRT 2.3's reference kernel gives -1 for every int8 sum
            case(f"SUM {d}", "SUM", [x, c("axes", [1, 2]), q("y", d, [2, 4], 0.9, 0)], keep_dims=False)
        for corners, half in ((False, False), (False, True), (True, False)):
            for op in ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"):
                case(f"{op} {d} {corners} {half}", op, [x, c("size", [13, 7]), q("y", d, [2, 13, 7, 4], 0.05, 4)],
                     align_corners=corners, half_pixel_centers=half)  # fmt: skip
    case(f"PAD {d}", "PAD", [x, c("pads", [[0, 0], [1, 2], [0, 3], [0, 0]]), q("y", d, [2, 12, 14, 4], 0.05, 4)])
    case(f"TRANSPOSE {d}", "TRANSPOSE", [x, c("perm", [0, 3, 1, 2]), q("y", d, [2, 4, 9, 11], 0.05, 4)])
    case(f"STRIDED_SLICE {d}", "STRIDED_SLICE", [x, c("begin", [0, 1, -3, 0]), c("end", [0, 8, 0, 2]),
         c("strides", [1, 3, 1, 1]), q("y", d, [2, 3, 3], 0.05, 4)], begin_mask=1, end_mask=5, shrink_mask=8)  # fmt: skip
    case(f"CONCATENATION {d}", "CONCATENATION", [x, q("z", d, [2, 9, 11, 2], 0.05, 4), q("y", d, [2, 9, 11, 6], 0.05, 4)],
         axis=3, activation="none")  # fmt: skip
    if d != "i16":
        case(
            f"SPACE_TO_DEPTH {d}",
            "SPACE_TO_DEPTH",
            [q("x", d, [1, 4, 6, 3], 0.05), q("y", d, [1, 2, 3, 12], 0.05)],
            block=2,
        )
        case(
            f"DEPTH_TO_SPACE {d}",
            "DEPTH_TO_SPACE",
            [q("x", d, [1, 2, 3, 12], 0.05), q("y", d, [1, 4, 6, 3], 0.05)],
            block=2,
        )
        case(f"GATHER {d}", "GATHER", [x, c("i", [[1, 0], [3, 3]]), q("y", d, [2, 9, 11, 2, 2], 0.05, 4)], axis=3)
        case(f"SPLIT {d}", "SPLIT", [c("axis", 3), x, q("y", d, [2, 9, 11, 2], 0.05, 4), q("z", d, [2, 9, 11, 2], 0.05, 4)],
             outputs=["y", "z"], count=2)  # fmt: skip
    for mode in (0, 1):
        if d in ("f32", "i8"):
            case(f"MIRROR_PAD {d} {mode}", "MIRROR_PAD", [x, c("pads", [[0, 0], [1, 2], [3, 0], [0, 0]]),
                 q("y", d, [2, 12, 14, 4], 0.05, 4)], mode=mode)  # fmt: skip

for d in ("i8", "u8", "i16"):
    case(f"QUANTIZE {d}", "QUANTIZE", [T("x", "f32", [3, 50]), q("y", d, [3, 50], 0.02, 3)])
    case(f"DEQUANTIZE {d}", "DEQUANTIZE", [q("x", d, [3, 50], 0.02, 3), T("y", "f32", [3, 50])], tolerance=0)
    other = "u8" if d == "i8" else "i8"
    case(f"requantize {d}", "QUANTIZE", [q("x", d, [3, 50], 0.02, 3), q("y", other, [3, 50], 0.033, -4)])
case("QUANTIZE i16 i32", "QUANTIZE", [T("x", "i16", [3, 50], 0.001), T("y", "i32", [3, 50], 3e-7)])
case("QUANTIZE i32 i16", "QUANTIZE", [T("x", "i32", [3, 50], 0.05), T("y", "i16", [3, 50], 0.0009)])
case("QUANTIZE i32 i8", "QUANTIZE", [T("x", "i32", [3, 50], 0.05), T("y", "i8", [3, 50], 0.02, -3)])
case("CONCATENATION of scales", "CONCATENATION", [T("a", "u8", [20, 30], 0.05, 100), T("b", "u8", [20, 40], 0.031, 140),
     T("d", "u8", [20, 5], 0.04, 120), T("y", "u8", [20, 75], 0.04, 120)], axis=1, activation="none")  # fmt: skip
case("PRELU i8", "PRELU", [q("x", "i8", [2, 5, 4, 3], 0.05, 4), c("s", [[[9, -70, 100]]], np.int8, scale=0.01, zero=-3),
     q("y", "i8", [2, 5, 4, 3], 0.04, 1)])  # fmt: skip
for op in ("EXP", "SIN", "COS", "FLOOR", "CEIL", "ROUND", "ABS", "NEG", "ELU", "SQUARE"):
    case(f"{op} f32", op, [T("x", "f32", [40]), T("y", "f32", [40])])
for op in ("LESS", "GREATER_EQUAL", "EQUAL"):
    case(f"{op} i8", op, [q("a", "i8", [40], 0.1, 3), q("b", "i8", [40], 0.1, 3), T("y", "bool", [40])])
for op in ("FLOOR_DIV", "FLOOR_MOD"):
    case(f"{op} i32", op, [T("a", "i32", [40]), c("b", np.r_[-20:0, 1:21]), T("y", "i32", [40])])
case("ARG_MAX i8", "ARG_MAX", [q("x", "i8", [6, 30], 0.1), c("axis", 1), T("y", "i32", [6])], output_type=2)
case("CUMSUM", "CUMSUM", [T("x", "f32", [6, 5]), c("axis", 0), T("y", "f32", [6, 5])], exclusive=True, reverse=True)
case("PACK", "PACK", [T("a", "f32", [3, 4]), T("b", "f32", [3, 4]), T("y", "f32", [3, 2, 4])], axis=1, count=2)
case(
    "SELECT_V2", "SELECT_V2", [T("m", "bool", [4, 1]), T("a", "f32", [4, 3]), T("b", "f32", [3]), T("y", "f32", [4, 3])]
)
for exact in (True, False):
    case(f"GELU {exact}", "GELU", [T("x", "f32", [40]), T("y", "f32", [40])], approximate=not exact)
case("BATCH_TO_SPACE_ND", "BATCH_TO_SPACE_ND", [T("x", "f32", [8, 2, 3, 2]), c("b", [2, 2]), c("c", [[0, 1], [1, 0]]),
     T("y", "f32", [2, 3, 5, 2])])  # fmt: skip
case("SPACE_TO_BATCH_ND", "SPACE_TO_BATCH_ND", [T("x", "f32", [2, 3, 5, 2]), c("b", [2, 2]), c("c", [[0, 1], [1, 0]]),
     T("y", "f32", [8, 2, 3, 2])])  # fmt: skip


def weights(d: str, shape: Sequence[int], axis: int, outs: int) -> tuple[T, T]:
    """A weight and a bias for activations of a dtype at scale 0.05 (i16: 0.05 / 200)."""
    if d == "f32":
        return c("w", rng.standard_normal(shape), np.float32), c("bias", rng.standard_normal(outs), np.float32)
    if d == "u8":
        w = c("w", rng.integers(0, 256, shape), np.uint8, scale=0.02, zero=121)
        return w, c("bias", rng.integers(-2000, 2000, outs), np.int32, scale=0.05 * 0.02)
    scale = rng.uniform(0.005, 0.03, outs).astype(np.float32)
    w = c("w", rng.integers(-127, 128, shape), np.int8, scale=scale, zero=0, axis=axis)
    wide = d == "i16"
    own = np.float32(0.05 / 200 if wide else 0.05) * scale
    return w, c("bias", rng.integers(-2000, 2000, outs), np.int64 if wide else np.int32, scale=own, zero=0)


for d in ("f32", "i8", "u8", "i16"):
    x = q("x", d, [2, 9, 11, 4], 0.05, 4)
    for padding, act, step, dilation in ((0, "relu6", 2, 1), (1, "none", 1, 2), (0, "relu", 1, 1)):
        h, w_ = ((9 + step - 1) // step, (11 + step - 1) // step) if padding == 0 else (5, 7)
        w, bias = weights(d, [6, 3, 3, 4], 0, 6)
        common = {
            "padding": padding,
            "stride_w": step,
            "stride_h": step,
            "dilation_w": dilation,
            "dilation_h": dilation,
        }
        case(
            f"CONV_2D {d} {padding} {act}",
            "CONV_2D",
            [x, w, bias, q("y", d, [2, h, w_, 6], 0.09, -8)],
            activation=act,
            **common,
        )
        w, bias = weights(d, [1, 3, 3, 8], 3, 8)
        case(f"DEPTHWISE_CONV_2D {d} {padding} {act}", "DEPTHWISE_CONV_2D", [x, w, bias, q("y", d, [2, h, w_, 8], 0.05, -8)],
             multiplier=2, activation=act, **common)  # fmt: skip
    if d != "u8":
        w, bias = weights(d, [5, 3, 3, 4], 0, 5)
        for padding, size in ((0, [2, 18, 22, 5]), (1, [2, 19, 23, 5])):
            tensors = [c("size", size), w, x, bias, q("y", d, size, 0.09, -8)]
            case(f"TRANSPOSE_CONV {d} {padding}", "TRANSPOSE_CONV", tensors, padding=padding, stride_w=2, stride_h=2)
    w, bias = weights(d, [7, 44], 0, 7)
    if d in ("i8", "i16"):
        w.scale, bias.scale = 0.013, 0.013 * (0.05 / 200 if d == "i16" else 0.05)
    case(f"FULLY_CONNECTED {d}", "FULLY_CONNECTED", [q("x", d, [9, 44], 0.05, 4), w, bias, q("y", d, [9, 7], 0.2, -8)],
         activation="relu")  # fmt: skip
for d in ("f32", "i8"):
    case(f"BATCH_MATMUL {d}", "BATCH_MATMUL", [q("a", d, [2, 5, 8], 0.05, 4), q("b", d, [2, 8, 6], 0.04, -2),
         q("y", d, [2, 5, 6], 0.2, 3)], adjoint_x=False, adjoint_y=False)  # fmt: skip


F = ("f32", [2, 5, 7, 3])
case("CONV_3D", "CONV_3D", [T("x", "f32", [1, 4, 6, 5, 2]), c("w", rng.standard_normal((2, 3, 3, 2, 4)), np.float32),
     c("bias", [1, 2, 3, 4], np.float32), T("y", "f32", [1, 2, 3, 3, 4])], padding=0, stride_d=2, stride_h=2, stride_w=2,
     activation="relu")  # fmt: skip
case("FAKE_QUANT", "FAKE_QUANT", [T("x", *F), T("y", *F)], tolerance=1e-4, min=-1.3, max=1.6, bits=8)
case("L2_POOL_2D", "L2_POOL_2D", [T("x", *F), T("y", "f32", [2, 4, 6, 3])], padding=1, stride_w=1, stride_h=1, filter_w=2,
     filter_h=2)  # fmt: skip
case("LRN", "LOCAL_RESPONSE_NORMALIZATION", [T("x", "f32", [1, 3, 3, 9]), T("y", "f32", [1, 3, 3, 9])], radius=2, bias=1.5,
     alpha=0.3, beta=0.6, reference_kernel=False)  # fmt: skip
case("SLICE", "SLICE", [T("x", *F), c("b", [0, 1, 2, 0]), c("s", [-1, 3, 4, 2]), T("y", "f32", [2, 3, 4, 2])])
case("SPLIT_V", "SPLIT_V", [T("x", *F), c("s", [2, -1, 1]), c("a", 2), T("y", "f32", [2, 5, 2, 3]),
     T("z", "f32", [2, 5, 4, 3]), T("u", "f32", [2, 5, 1, 3])], outputs=["y", "z", "u"], count=3)  # fmt: skip
case("UNPACK", "UNPACK", [T("x", *F), *(T(n, "f32", [2, 5, 7]) for n in "yzu")], outputs=list("yzu"), count=3, axis=-1)
case("EXPAND_DIMS", "EXPAND_DIMS", [T("x", *F), c("a", -2), T("y", "f32", [2, 5, 7, 1, 3])])
case("SQUEEZE", "SQUEEZE", [T("x", "f32", [1, 4, 1, 3]), T("y", "f32", [1, 4, 3])], axes=[-2])
case("RESHAPE", "RESHAPE", [T("x", *F), c("s", [10, -1]), T("y", "f32", [10, 21])])
case("TILE", "TILE", [T("x", "f32", [2, 3]), c("m", [3, 2]), T("y", "f32", [6, 6])])
case("BROADCAST_TO", "BROADCAST_TO", [T("x", "f32", [2, 1]), c("s", [4, 2, 3]), T("y", "f32", [4, 2, 3])])
case("REVERSE_V2", "REVERSE_V2", [T("x", *F), c("a", [2]), T("y", *F)])
case(
    "PADV2", "PADV2", [T("x", "f32", [2, 3]), c("p", [[1, 0], [0, 2]]), c("v", 7.5, np.float32), T("y", "f32", [3, 5])]
)
case("GATHER_ND", "GATHER_ND", [T("x", *F), c("i", [[0, 4], [1, 2]]), T("y", "f32", [2, 7, 3])])
case(
    "SCATTER_ND", "SCATTER_ND", [c("i", [[1], [3], [1]]), T("u", "f32", [3, 4]), c("s", [5, 4]), T("y", "f32", [5, 4])]
)
case("EMBEDDING_LOOKUP", "EMBEDDING_LOOKUP", [c("i", [2, 0]), T("x", "f32", [3, 4]), T("y", "f32", [2, 4])])
case("DYNAMIC_UPDATE_SLICE", "DYNAMIC_UPDATE_SLICE", [T("x", "f32", [5, 4]), T("u", "f32", [2, 3]), c("i", [4, 1]),
     T("y", "f32", [5, 4])])  # fmt: skip
case("ONE_HOT", "ONE_HOT", [c("i", [[1, 3], [0, 5]]), c("d", 4), T("on", "f32", []), c("off", -1.0, np.float32),
     T("y", "f32", [2, 2, 4])], axis=-1)  # fmt: skip
case("TOPK_V2", "TOPK_V2", [T("x", "f32", [4, 9]), c("k", 3), T("y", "f32", [4, 3]), T("z", "i32", [4, 3])],
     outputs=["y", "z"])  # fmt: skip
case("CAST", "CAST", [T("x", "i32", [9]), T("y", "f32", [9])])
case("LOG_SOFTMAX f32", "LOG_SOFTMAX", [T("x", "f32", [4, 9]), T("y", "f32", [4, 9])])
case("LOG_SOFTMAX i8", "LOG_SOFTMAX", [q("x", "i8", [4, 9], 0.05), q("y", "i8", [4, 9], 16 / 256, 127)])
case("POW", "POW", [c("a", rng.uniform(0.1, 3, 20), np.float32), T("b", "f32", [20]), T("y", "f32", [20])])
case("SQUARED_DIFFERENCE", "SQUARED_DIFFERENCE", [T("a", *F), T("b", "f32", [3]), T("y", *F)])
case("DIV", "DIV", [T("a", *F), c("b", [2, -3, 0.5], np.float32), T("y", *F)], activation="relu_n1_to_1")
case("REDUCE_MIN", "REDUCE_MIN", [T("x", *F), c("a", [1, -1]), T("y", "f32", [2, 1, 7, 1])], keep_dims=True)
case("REDUCE_PROD", "REDUCE_PROD", [T("x", *F), c("a", [3]), T("y", "f32", [2, 5, 7])], keep_dims=False)
for op in ("REDUCE_ANY", "REDUCE_ALL"):
    case(op, op, [T("x", "bool", [6, 2]), c("a", [1]), T("y", "bool", [6])], keep_dims=False)
for op in ("LOGICAL_AND", "LOGICAL_OR"):
    case(op, op, [T("a", "bool", [40]), T("b", "bool", [40]), T("y", "bool", [40])])
case("LOGICAL_NOT", "LOGICAL_NOT", [T("a", "bool", [40]), T("y", "bool", [40])])
case("SHAPE", "SHAPE", [T("x", *F), T("y", "i32", [4])], output_type=2)
case("ADD_N", "ADD_N", [T("a", *F), T("b", *F), T("d", *F), T("y", *F)])
for op in ("ABS", "RSQRT", "GELU", "ELU", "EXP", "LOG"):
    positive = op in ("RSQRT", "LOG")
    tensors = [q("x", "i8", [4, 64], 0.02, -128 if positive else 3), q("y", "i8", [4, 64], 0.02, -90)]
    case(f"{op} i8", op, tensors, **({"approximate": False} if op == "GELU" else {}))
case("BATCH_MATMUL i16", "BATCH_MATMUL", [T("a", "i16", [2, 5, 8], 2e-4), T("b", "i16", [2, 8, 6], 3e-4), T("y", "i16",
     [2, 5, 6], 0.01)], adjoint_x=False, adjoint_y=False)  # fmt: skip
case("BATCH_MATMUL i16 i8", "BATCH_MATMUL", [T("a", "i16", [2, 5, 8], 2e-4), c("b", rng.integers(-127, 128, (6, 8)), np.int8,
     scale=0.03), T("y", "i16", [2, 5, 6], 0.002)], adjoint_x=False, adjoint_y=True)  # fmt: skip
case("BATCH_MATMUL adjoint", "BATCH_MATMUL", [T("a", "f32", [2, 8, 5]), T("b", "f32", [2, 6, 8]), T("y", "f32", [2, 5, 6])],
     adjoint_x=True, adjoint_y=True)  # fmt: skip
case("FULLY_CONNECTED 4-D", "FULLY_CONNECTED", [T("x", "f32", [2, 3, 4]), c("w", rng.standard_normal((5, 4)), np.float32),
     T("y", "f32", [2, 3, 5])], keep_dims=True, activation="none")  # fmt: skip
case("int32 ADD", "ADD", [T("a", "i32", [9]), T("b", "i32", [9]), T("y", "i32", [9])], activation="relu")


def computed(name: str, op: str, x: T, operands: Sequence[Any], y: Sequence[int], **options: Any) -> None:
    """A case whose integer operands are known only at run time: each is the sum of a constant and an input of zeros."""
    COMPUTED.append((name, op, x, [np.asarray(v, np.int32) for v in operands], y, options))


COMPUTED: list[tuple[str, str, T, list[np.ndarray], Sequence[int], dict[str, Any]]] = []
X = T("x", "f32", [5, 7, 6])
computed("SLICE", "SLICE", X, [[1, 0, 2], [3, -1, 2]], [3, 7, 2])
computed("PAD", "PAD", X, [[[1, 0], [0, 2], [3, 1]]], [6, 9, 10])
computed("STRIDED_SLICE", "STRIDED_SLICE", X, [[1, 0, -1], [4, 0, 0]], [3, 4], begin_mask=2, end_mask=2, shrink_mask=4,
         strides=[1, 2, 1])  # fmt: skip
computed("STRIDED_SLICE back", "STRIDED_SLICE", X, [[4, 6], [0, -8]], [4, 7, 6], strides=[-1, -1])
computed("STRIDED_SLICE ellipsis", "STRIDED_SLICE", X, [[0, 2], [0, 5]], [5, 7, 3], ellipsis_mask=1, strides=[1, 1])

P = [T("x", "f32", [3, 6, 4]), T("y", "f32", [3, 6, 4])]
case("MATRIX_DIAG", "MATRIX_DIAG", [T("x", "f32", [3, 4]), T("y", "f32", [3, 4, 4])])
for m, n in ((4, 4), (3, 5), (5, 3)):
    case(f"MATRIX_SET_DIAG {m} {n}", "MATRIX_SET_DIAG", [T("x", "f32", [2, m, n]), T("d", "f32", [2, min(m, n)]),
         T("y", "f32", [2, m, n])])  # fmt: skip
case("REVERSE_SEQUENCE", "REVERSE_SEQUENCE", [P[0], c("n", [2, 6, 0, 3]), P[1]], sequence_axis=1, batch_axis=2)
case("REVERSE_SEQUENCE i8", "REVERSE_SEQUENCE", [T("x", "u8", [2, 5, 3]), c("n", [5, 3]), T("y", "u8", [2, 5, 3])],
     sequence_axis=1, batch_axis=0)  # fmt: skip
case("SEGMENT_SUM", "SEGMENT_SUM", [T("x", "f32", [6, 4]), c("i", [0, 0, 1, 2, 3, 3]), T("y", "f32", [4, 4])])
for kind in ("SUM", "PROD", "MAX", "MIN"):
    for d in ("f32", "i32"):
        case(f"UNSORTED_SEGMENT_{kind} {d}", f"UNSORTED_SEGMENT_{kind}", [T("x", d, [6, 4]), c("i", [2, 0, -1, 2, 4, 0]),
             c("n", 5), T("y", d, [5, 4])])  # fmt: skip
case("UNSORTED_SEGMENT_SUM 2-D", "UNSORTED_SEGMENT_SUM", [T("x", "f32", [3, 2, 4]), c("i", [[1, 0], [2, 2], [0, -1]]),
     c("n", 3), T("y", "f32", [3, 4])])  # fmt: skip
case("SPARSE_TO_DENSE", "SPARSE_TO_DENSE", [c("i", [[0, 1], [2, 3]]), c("s", [3, 4]), T("v", "f32", [2]), T("d", "f32", []),
     T("y", "f32", [3, 4])])  # fmt: skip
case("SPARSE_TO_DENSE 1-D", "SPARSE_TO_DENSE", [c("i", [1, 4]), c("s", [6]), T("v", "f32", []), T("d", "f32", []),
     T("y", "f32", [6])])  # fmt: skip
for combiner in (0, 1, 2):
    case(f"EMBEDDING_LOOKUP_SPARSE {combiner}", "EMBEDDING_LOOKUP_SPARSE", [c("i", [1, 3, 0, 1]),
         c("n", [[0, 0], [2, 0], [2, 1], [3, 0]]), c("s", [4, 2]), c("w", [1.0, 2.0, 0.5, 3.0], np.float32),
         T("x", "f32", [5, 3]), T("y", "f32", [4, 3])], combiner=combiner)  # fmt: skip
case(
    "UNIQUE",
    "UNIQUE",
    [T("x", "i32", [30]), T("y", "i32", [30]), T("z", "i32", [30])],
    outputs=["y", "z"],
    index_type=2,
)
case("BUCKETIZE", "BUCKETIZE", [T("x", "f32", [3, 40]), T("y", "i32", [3, 40])], boundaries=[-1.0, -0.5, 0.0, 0.3, 2.0])
case("BROADCAST_ARGS", "BROADCAST_ARGS", [c("a", [2, 1, 3]), c("b", [4, 1]), T("y", "i32", [3])])
case("BITCAST i32 i16", "BITCAST", [T("x", "i32", [5]), T("y", "i16", [5, 2])])
case("BITCAST i16 i32", "BITCAST", [T("x", "i16", [5, 2]), T("y", "i32", [5])])
case("BITCAST u8 i64", "BITCAST", [T("x", "u8", [5, 8]), T("y", "i64", [5])])
case("BITCAST i8 u8", "BITCAST", [T("x", "i8", [5, 8]), T("y", "u8", [5, 8])])
case("BITCAST f32 i32", "BITCAST", [T("x", "f32", [5, 8]), T("y", "i32", [5, 8])])
case("CONV_3D_TRANSPOSE same", "CONV_3D_TRANSPOSE", [c("s", [1, 4, 6, 6, 3]), c("w", rng.standard_normal((3, 3, 3, 3, 2)),
     np.float32), T("x", "f32", [1, 2, 3, 3, 2]), T("y", "f32", [1, 4, 6, 6, 3])], padding=0, stride_d=2, stride_h=2,
     stride_w=2)  # fmt: skip
case("CONV_3D_TRANSPOSE valid", "CONV_3D_TRANSPOSE", [c("s", [1, 4, 5, 5, 3]), c("w", rng.standard_normal((3, 3, 3, 3, 2)),
     np.float32), T("x", "f32", [1, 2, 3, 3, 2]), c("b", [1, -2, 3], np.float32), T("y", "f32", [1, 4, 5, 5, 3])], padding=1,
     stride_d=1, stride_h=1, stride_w=1)  # fmt: skip
case(
    "GATHER batch",
    "GATHER",
    [T("x", *F), c("i", rng.integers(0, 5, (2, 4))), T("y", "f32", [2, 4, 7, 3])],
    axis=1,
    batch_dims=1,
)
case("GATHER batch axis 2", "GATHER", [T("x", *F), c("i", rng.integers(0, 7, (2, 4))), T("y", "f32", [2, 5, 4, 3])], axis=2,
     batch_dims=1)  # fmt: skip
case("EMBEDDING_LOOKUP hybrid", "EMBEDDING_LOOKUP", [c("i", [2, 0]), c("x", rng.integers(-127, 128, (3, 4)), np.int8, scale=0.02),
     T("y", "f32", [2, 4])])  # fmt: skip
case("EMBEDDING_LOOKUP hybrid rows", "EMBEDDING_LOOKUP", [c("i", [2, 0]), c("x", rng.integers(-127, 128, (3, 4)), np.int8,
     scale=[0.02, 0.03, 0.04]), T("y", "f32", [2, 4])])  # fmt: skip


def stored(name: str, shape: Sequence[int], axis: int | None, outs: int = 1) -> T:
    """An i8 weight of a hybrid product."""
    scale = 0.02 if axis is None else rng.uniform(0.005, 0.03, outs)
    return c(name, rng.integers(-127, 128, shape), np.int8, scale=scale, zero=0, axis=axis or 0)


def bias(outs: int) -> T:
    return c("bias", rng.standard_normal(outs), np.float32)


for asymmetric in (False, True):
    kind = "asymmetric" if asymmetric else "symmetric"
    for axis in (None, 0):
        case(f"FULLY_CONNECTED hybrid {kind} {axis}", "FULLY_CONNECTED", [T("x", "f32", [5, 44]), stored("w", [7, 44], axis, 7),
             bias(7), T("y", "f32", [5, 7])], activation="relu", asymmetric=asymmetric)  # fmt: skip
    case(f"BATCH_MATMUL hybrid {kind}", "BATCH_MATMUL", [T("x", "f32", [2, 5, 8]), stored("w", [2, 8, 6], None),
         T("y", "f32", [2, 5, 6])], adjoint_x=False, adjoint_y=False, asymmetric=asymmetric)  # fmt: skip
    case(f"BATCH_MATMUL hybrid {kind} adjoint", "BATCH_MATMUL", [T("x", "f32", [2, 8, 5]), stored("w", [6, 8], None),
         T("y", "f32", [2, 5, 6])], adjoint_x=True, adjoint_y=True, asymmetric=asymmetric)  # fmt: skip
for d, low in (("i4", -8), ("i2", -2)):
    case(f"FULLY_CONNECTED hybrid {d}", "FULLY_CONNECTED", [T("x", "f32", [5, 64]), T("w", d, [7, 64], 0.05,
         value=rng.integers(low, -low, (7, 64)).astype(np.int8)), bias(7), T("y", "f32", [5, 7])], activation="none")  # fmt: skip
for padding, size in ((0, [2, 5, 6]), (1, [2, 4, 5])):
    common = {"padding": padding, "stride_w": 2, "stride_h": 2, "activation": "relu6"}
    x = T("x", "f32", [2, 9, 11, 4])
    for axis in (None, 0):
        case(f"CONV_2D hybrid {padding} {axis}", "CONV_2D", [x, stored("w", [6, 3, 3, 4], axis, 6), bias(6),
             T("y", "f32", [*size, 6])], dilation_w=1, dilation_h=1, **common)  # fmt: skip
    case(f"CONV_2D hybrid {padding} groups", "CONV_2D", [x, stored("w", [6, 3, 3, 2], 0, 6), bias(6),
         T("y", "f32", [*size, 6])], dilation_w=1, dilation_h=1, **common)  # fmt: skip
    case(f"DEPTHWISE_CONV_2D hybrid {padding}", "DEPTHWISE_CONV_2D", [x, stored("w", [1, 3, 3, 8], 3, 8), bias(8),
         T("y", "f32", [*size, 8])], multiplier=2, dilation_w=1, dilation_h=1, **common)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_op_agrees_with_the_reference_kernel(case: Case) -> None:
    model = case.model()
    given = np.random.default_rng(3)
    known = {t.name: t for t in case.tensors}
    names = [n for n in case.operator.inputs if n and known[n].value is None]
    feeds = [random(known[n], given) for n in names]
    expected = reference(model, feeds, case.reference_kernel)
    results = linnet.Session(linnet.from_tflite(model)).run(dict(zip(names, feeds, strict=True)))
    for got, wanted in zip(results.values(), expected, strict=True):
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
        difference = np.abs(got.astype(np.float64) - wanted.astype(np.float64))
        if wanted.dtype == np.float32:
            span = float(np.abs(wanted).max()) or 1.0
            assert float(difference.max()) <= case.tolerance * span
        else:
            assert wanted.dtype == bool or wanted.min() != wanted.max(), "the case says nothing"
            assert not difference.any(), f"{(difference > 0).mean():.2%} differ, by at most {difference.max()}"


@pytest.mark.parametrize("part", ["COMPLEX_ABS", "REAL", "IMAG", "CAST"])
@pytest.mark.parametrize("sizes", [(1, 16), (4, 16), (8, 8)])
def test_fourier_transforms_agree(sizes: tuple[int, int], part: str) -> None:
    """Complex numbers are moved between the two ops, as tf.signal does."""
    height, width = sizes
    bins = width // 2 + 1
    tensors = [
        T("x", "f32", [3, 4, 12]), c("n", sizes), T("z", "complex64", [3, height, bins]), c("p", [1, 0, 2]),
        T("t", "complex64", [height, 3, bins]), T("y", "f32", [height, 3, bins]),
    ]  # fmt: skip
    operators = [O("RFFT2D", ["x", "n"], ["z"]), O("TRANSPOSE", ["z", "p"], ["t"]), O(part, ["t"], ["y"])]
    model = build(G(tensors, operators, ["x"], ["y"]))
    x = np.random.default_rng(3).standard_normal((3, 4, 12)).astype(np.float32)
    if height < 4:
        x = np.ascontiguousarray(x)
    (wanted,) = reference(model, [x])
    got = linnet.Session(linnet.from_tflite(model)).run({"x": x})["y"]
    assert got.shape == wanted.shape
    assert float(np.abs(got - wanted).max()) <= 1e-5 * float(np.abs(wanted).max())


def test_an_op_that_does_not_know_complex_numbers_refuses_them() -> None:
    tensors = [
        T("x", "f32", [4, 16]), c("n", [4, 16]), T("z", "complex64", [4, 9]), T("w", "complex64", [4, 9]), T("y", "f32", [4, 9]),
    ]  # fmt: skip
    operators = [O("RFFT2D", ["x", "n"], ["z"]), O("SQUARE", ["z"], ["w"]), O("REAL", ["w"], ["y"])]
    with pytest.raises(linnet.ConversionError) as caught:
        linnet.from_tflite(build(G(tensors, operators, ["x"], ["y"])))
    assert [(p.op, p.reason) for p in caught.value.problems] == [("SQUARE", "it does not support complex operands")]


@pytest.mark.parametrize("keep", [False, True])
def test_weights_quantized_by_blocks_agree(keep: bool) -> None:
    """Two blocks of 32 per row. LiteRT's optimized resolver supports them, its reference resolver does not."""
    given = np.random.default_rng(9)
    w, scale = given.integers(-8, 8, (6, 64)).astype(np.int8), given.uniform(0.01, 0.05, (6, 2)).astype(np.float16)
    tensors = [
        T("x", "f32", [1, 3, 64]), T("s", "f16", [6, 2], value=scale), T("w", "i4", [6, 64], value=w, blocks=("s", 32)),
        T("y", "f32", [1, 3, 6] if keep else [3, 6]),
    ]  # fmt: skip
    options = {"activation": "none", "keep_dims": keep, "asymmetric": True}
    model = build(G(tensors, [O("FULLY_CONNECTED", ["x", "w", ""], ["y"], options)], ["x"], ["y"]))
    x = given.standard_normal((1, 3, 64)).astype(np.float32)
    (wanted,), got = reference(model, [x], False), linnet.Session(linnet.from_tflite(model)).run({"x": x})["y"]
    assert got.shape == wanted.shape
    assert float(np.abs(got - wanted).max()) <= 1e-5 * float(np.abs(wanted).max())


@pytest.mark.parametrize("first", [0, 1])
def test_unique_keeps_nan(first: int) -> None:
    """Each NaN is a value of its own, as in TensorFlow. LiteRT takes a NaN for the value that it happens to be compared with."""
    x = np.float32([3, np.nan, 1, np.nan, 3, np.nan, 0])[first:]
    tensors = [T("x", "f32", x.shape), T("y", "f32", x.shape), T("z", "i32", x.shape)]
    model = build(G(tensors, [O("UNIQUE", ["x"], ["y", "z"], {"index_type": 2})], ["x"], ["y", "z"]))
    found = linnet.Session(linnet.from_tflite(model)).run({"x": x})
    expected = np.float32([np.nan, 1, np.nan, 3, np.nan, 0] if first else [3, np.nan, 1, np.nan, np.nan, 0])
    np.testing.assert_array_equal(found["y"], expected)
    np.testing.assert_array_equal(found["y"][found["z"]], x)


@pytest.mark.parametrize("op", ["RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL", "MULTINOMIAL"])
@pytest.mark.parametrize("seeds", [(7, 0), (-3, 1 << 20)])
def test_random_numbers_are_those_of_the_first_run(op: str, seeds: tuple[int, int]) -> None:
    """Later runs draw other numbers of the same distribution."""
    weights = np.float32([[0.1, 1.5, -0.3, 0.7], [2, -1, 0, 0.5]])
    drawing = op == "MULTINOMIAL"
    tensors = [c("w", weights, np.float32), c("n", 1001 if drawing else [3, 333])]
    tensors += [T("y", "i32" if drawing else "f32", [2, 1001] if drawing else [3, 333])]
    operator = O(op, ["w", "n"] if drawing else ["n"], ["y"], {"seed": seeds[0], "seed2": seeds[1]})
    model = build(G(tensors, [operator], [], ["y"]))
    (wanted,), session = reference(model, [], False), linnet.Session(linnet.from_tflite(model))
    first, second = session.run({})["y"], session.run({})["y"]
    assert (first.shape, first.dtype) == (wanted.shape, wanted.dtype)
    assert float(np.abs(first.astype(np.float64) - wanted).max()) <= (0 if drawing else 2e-6)
    assert not np.array_equal(first, second)
    share = np.mean(second.astype(np.float64))
    assert abs(share - float(wanted.mean())) < 0.1


@pytest.mark.parametrize("name", [case[0] for case in COMPUTED])
def test_operands_may_be_computed_while_running(name: str) -> None:
    _, op, x, operands, shape, options = next(case for case in COMPUTED if case[0] == name)
    options = dict(options)
    strides = options.pop("strides", None)
    tensors, operators, inputs = [x, T("y", "f32", shape)], [], ["x"]
    for i, value in enumerate(operands):
        tensors += [T(f"z{i}", "i32", value.shape), c(f"c{i}", value), T(f"o{i}", "i32", value.shape)]
        operators.append(O("ADD", [f"z{i}", f"c{i}"], [f"o{i}"], {"activation": "none"}))
        inputs.append(f"z{i}")
    names = ["x", *(f"o{i}" for i in range(len(operands)))]
    if strides is not None:
        tensors.append(c("strides", strides))
        names.append("strides")
    model = build(G(tensors, [*operators, O(op, names, ["y"], options)], inputs, ["y"]))
    feeds = [random(x, np.random.default_rng(3)), *(np.zeros_like(v) for v in operands)]
    (wanted,) = reference(model, feeds)
    got = linnet.Session(linnet.from_tflite(model)).run(dict(zip(inputs, feeds, strict=True)))["y"]
    assert list(wanted.shape) == list(shape)
    np.testing.assert_array_equal(got, wanted)
