"""Sizes, steps and counts that are 0 or negative are refused by converters, by the builder and by the C library. ONNX Runtime
refuses each ONNX model of this file, too."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import linnet
from linnet import ops
from tests.tflite_models import G, O, T, build

onnxruntime.set_default_logger_severity(4)
IMAGE = np.ones((1, 4, 6, 6), np.float32)
Case = tuple[str, dict[str, Any], list[Any], list[Any], int]  # op, attributes, constant operands, new values, outputs


def onnx_model(op: str, attributes: dict[str, Any], x: np.ndarray, constants: list[Any], outputs: int) -> bytes:
    names = ["" if c is None else f"c{i}" for i, c in enumerate(constants)]
    node = helper.make_node(op, ["x", *names] if x.size else names, [f"y{i}" for i in range(outputs)], **attributes)
    values = [numpy_helper.from_array(c, n) for c, n in zip(constants, names, strict=True) if c is not None]
    inputs = [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)] if x.size else []
    results = [onnx.ValueInfoProto(name=f"y{i}") for i in range(outputs)]
    for result in results:
        result.type.tensor_type.elem_type = TensorProto.FLOAT
    if op == "NonMaxSuppression":
        results[0].type.tensor_type.elem_type = TensorProto.INT64
    graph = helper.make_graph([node], "g", inputs, results, values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return model.SerializeToString()


F, I64 = np.float32, np.int64
NONE = np.zeros(0, F)
# op, right attributes, x, right constants, and what is made wrong: an attribute, or the number of a constant
ONNX: list[tuple[str, dict[str, Any], np.ndarray, list[Any], str | int, str]] = [
    ("GroupNormalization", {"num_groups": 2}, IMAGE, [np.ones(2, F), np.zeros(2, F)], "num_groups", "num_groups"),
    ("STFT", {}, np.ones((1, 16, 1), F), [I64(4), None, I64(8)], 0, "frame_step"),
    ("STFT", {}, np.ones((1, 16, 1), F), [I64(4), np.ones(8, F), None], 0, "frame_step"),
    ("Split", {"num_outputs": 2, "axis": 1}, IMAGE, [], "num_outputs", "num_outputs"),
    ("Conv", {"strides": [1, 1]}, IMAGE, [np.ones((4, 4, 3, 3), F)], "strides", "strides"),
    ("Conv", {"dilations": [1, 1]}, IMAGE, [np.ones((4, 4, 3, 3), F)], "dilations", "dilations"),
    ("Conv", {"group": 2}, IMAGE, [np.ones((4, 2, 3, 3), F)], "group", "group"),
    ("ConvTranspose", {"strides": [1, 1]}, IMAGE, [np.ones((4, 4, 3, 3), F)], "strides", "strides"),
    ("ConvTranspose", {"group": 2}, IMAGE, [np.ones((4, 2, 3, 3), F)], "group", "group"),
    ("MaxPool", {"kernel_shape": [2, 2]}, IMAGE, [], "kernel_shape", "kernel_shape"),
    ("AveragePool", {"kernel_shape": [2, 2], "strides": [1, 1]}, IMAGE, [], "strides", "strides"),
    ("LpPool", {"kernel_shape": [2, 2], "p": 2}, IMAGE, [], "kernel_shape", "kernel_shape"),
    ("DepthToSpace", {"blocksize": 2}, IMAGE, [], "blocksize", "blocksize"),
    ("SpaceToDepth", {"blocksize": 2}, IMAGE, [], "blocksize", "blocksize"),
    ("LRN", {"size": 3}, IMAGE, [], "size", "size"),
    ("Slice", {}, IMAGE, [np.array([0]), np.array([2]), np.array([2]), np.array([1])], 3, "steps"),
    ("Range", {}, NONE, [F(0), F(5), F(1)], 2, "delta"),
    ("Col2Im", {"strides": [1, 1]}, np.ones((1, 4, 9), F), [np.array([4, 4]), np.array([2, 2])], "strides", "strides"),
    ("Col2Im", {}, np.ones((1, 4, 9), F), [np.array([4, 4]), np.array([2, 2])], 1, "block_shape"),
    ("HannWindow", {}, NONE, [I64(8)], 0, "size"),
    ("HammingWindow", {}, NONE, [I64(8)], 0, "size"),
    ("BlackmanWindow", {}, NONE, [I64(8)], 0, "size"),
    ("MelWeightMatrix", {}, NONE, [I64(8), I64(16), I64(8192), F(0), F(4096)], 2, "sample_rate"),
    ("LSTM", {"hidden_size": 2}, np.ones((3, 1, 4), F), [np.ones((1, 8, 4), F), np.ones((1, 8, 2), F)], "hidden_size",
     "hidden_size"),
    ("GRU", {"hidden_size": 2}, np.ones((3, 1, 4), F), [np.ones((1, 6, 4), F), np.ones((1, 6, 2), F)], "hidden_size",
     "hidden_size"),
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(ONNX)))
def test_onnx_models_with_a_size_of_0_are_refused(index: int) -> None:
    op, attributes, x, constants, place, name = ONNX[index]
    outputs = 2 if op == "Split" else 1
    linnet.from_onnx(onnx.load_from_string(onnx_model(op, attributes, x, constants, outputs)))
    for wrong in (0,) if name in ("delta", "steps") else (0, -1):
        bad, given = copy.deepcopy(constants), copy.deepcopy(attributes)
        if isinstance(place, int):
            bad[place] = bad[place] * 0 + bad[place].dtype.type(wrong)
        elif isinstance(given[place], list):
            given[place][-1] = wrong
        else:
            given[place] = wrong
        model = onnx_model(op, given, x, bad, outputs)
        with pytest.raises(linnet.ConversionError, match=rf"{name}.*(at least 1|must not be)"):
            linnet.from_onnx(onnx.load_from_string(model))
        with pytest.raises(Exception, match="ONNXRuntimeError"):
            session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
            session.run(None, {"x": x} if x.size else {})


def test_a_split_into_another_number_of_parts() -> None:
    model = onnx_model("Split", {"num_outputs": 3, "axis": 1}, IMAGE, [], 2)
    with pytest.raises(linnet.ConversionError, match="num_outputs is 3, but the node has 2 outputs"):
        linnet.from_onnx(onnx.load_from_string(model))


def test_a_step_of_0_that_is_known_only_in_the_run() -> None:
    """The step of STFT is an input. ONNX Runtime fixes the results for the steps that are right."""
    node = helper.make_node("STFT", ["x", "step", "", "length"], ["y"])
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 1])]
    inputs += [helper.make_tensor_value_info(n, TensorProto.INT64, []) for n in ("step", "length")]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = linnet.Session(linnet.from_onnx(model))
    reference = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(0).standard_normal((1, 16, 1)).astype(F)
    for step, length in ((1, 16), (3, 8), (4, 8), (16, 5)):
        feeds = {"x": x, "step": np.array(step), "length": np.array(length)}
        np.testing.assert_allclose(session.run(feeds)["y"], reference.run(None, feeds)[0], atol=1e-4)
    for step in (0, -1):
        with pytest.raises(linnet.Error, match="delta that is not 0"):
            session.run({"x": x, "step": I64(step), "length": I64(8)})


def tflite(op: str, options: dict[str, Any], x: T, constants: list[T], shape: list[int], outputs: int = 1) -> bytes:
    made = [T(f"y{i}", x.dtype, shape) for i in range(outputs)]
    names = [c.name for c in constants]
    operands = [*names, "x"] if op == "SPLIT" else ["x", *names]
    return build(
        G([x, *constants, *made], [O(op, operands, [t.name for t in made], options)], ["x"], [t.name for t in made])
    )


def numbers(values: list[int]) -> T:
    return T("c", "i32", [len(values)], value=np.array(values, np.int32))


WINDOW = {"padding": 1, "stride_w": 1, "stride_h": 1, "filter_w": 2, "filter_h": 2, "activation": "none"}
KERNEL = {"padding": 1, "stride_w": 1, "stride_h": 1, "dilation_w": 1, "dilation_h": 1, "activation": "none"}
WEIGHTS = [T("w", "f32", [4, 2, 2, 4], value=np.ones((4, 2, 2, 4), F)), T("b", "f32", [4], value=np.zeros(4, F))]
X4 = T("x", "f32", [1, 4, 4, 4])
TFLITE: dict[str, tuple[str, Callable[[int], bytes]]] = {
    "DEPTH_TO_SPACE": ("block", lambda v: tflite("DEPTH_TO_SPACE", {"block": v}, X4, [], [1, 8, 8, 1])),
    "SPACE_TO_DEPTH": ("block", lambda v: tflite("SPACE_TO_DEPTH", {"block": v}, X4, [], [1, 2, 2, 16])),
    "MAX_POOL_2D stride": ("stride_w", lambda v: tflite("MAX_POOL_2D", {**WINDOW, "stride_w": v}, X4, [], [1, 3, 3, 4])),
    "AVERAGE_POOL_2D filter": ("filter_h", lambda v: tflite("AVERAGE_POOL_2D", {**WINDOW, "filter_h": v}, X4, [], [1, 3, 3, 4])),
    "CONV_2D stride": ("stride_h", lambda v: tflite("CONV_2D", {**KERNEL, "stride_h": v}, X4, WEIGHTS, [1, 3, 3, 4])),
    "CONV_2D dilation": ("dilation_w", lambda v: tflite("CONV_2D", {**KERNEL, "dilation_w": v}, X4, WEIGHTS, [1, 3, 3, 4])),
    "SPACE_TO_BATCH_ND": ("block_shape", lambda v: tflite(
        "SPACE_TO_BATCH_ND", {}, X4, [numbers([1, v]), T("p", "i32", [2, 2], value=np.zeros((2, 2), np.int32))], [1, 4, 4, 4])),
    "BATCH_TO_SPACE_ND": ("block_shape", lambda v: tflite(
        "BATCH_TO_SPACE_ND", {}, X4, [numbers([1, v]), T("p", "i32", [2, 2], value=np.zeros((2, 2), np.int32))], [1, 4, 4, 4])),
    "STRIDED_SLICE": ("strides", lambda v: tflite("STRIDED_SLICE", {}, X4, [
        T(n, "i32", [4], value=np.array(a, np.int32)) for n, a in (("b", [0] * 4), ("e", [1, 4, 4, 4]), ("s", [1, 1, 1, v]))
    ], [1, 4, 4, 4])),
    "RESIZE_BILINEAR": ("size", lambda v: tflite("RESIZE_BILINEAR", {}, X4, [numbers([8, 8 * v])], [1, 8, 8, 4])),
}  # fmt: skip


@pytest.mark.parametrize("name", TFLITE)
def test_tflite_models_with_a_size_of_0_are_refused(name: str) -> None:
    what, model = TFLITE[name]
    linnet.from_tflite(model(2 if name.endswith(("DEPTH", "SPACE")) else 1))
    for wrong in (0,) if what == "strides" else (0, -1):
        with pytest.raises(linnet.ConversionError, match=rf"{what}.*(at least 1|must not be)"):
            linnet.from_tflite(model(wrong))


def test_a_tflite_split_into_another_number_of_parts() -> None:
    axis = T("c", "i32", [], value=np.int32(3))
    linnet.from_tflite(tflite("SPLIT", {"count": 2}, X4, [axis], [1, 4, 4, 2], 2))
    for count in (-1, 3):
        with pytest.raises(linnet.ConversionError, match=f"num_splits is {count}, but there are 2 outputs"):
            linnet.from_tflite(tflite("SPLIT", {"count": count}, X4, [axis], [1, 4, 4, 2], 2))


BUILT: dict[str, Callable[[linnet.Tensor, int], Any]] = {
    "conv strides": lambda x, v: ops.conv(x, np_constant(x, (4, 4, 3, 3)), strides=[v, 1]),
    "conv dilations": lambda x, v: ops.conv(x, np_constant(x, (4, 4, 3, 3)), dilations=[1, v]),
    "conv group": lambda x, v: ops.conv(x, np_constant(x, (4, 4, 3, 3)), group=v),
    "conv_transpose strides": lambda x, v: ops.conv_transpose(x, np_constant(x, (4, 4, 3, 3)), strides=[v, 1]),
    "conv_gradient kernel": lambda x, v: ops.conv_gradient(x, x, kernel=[v, 1]),
    "pool kernel": lambda x, v: ops.pool(x, kernel=[v, 2]),
    "pool_gradient kernel": lambda x, v: ops.pool_gradient(x, x, kernel=[v, 1]),
    "lp pool": lambda x, v: ops.pool(x, kernel=[2, 2], kind="lp", p=v),
    "depth_to_space": lambda x, v: ops.copy([x], kind="depth_to_space", block=v),
    "space_to_depth": lambda x, v: ops.copy([x], kind="space_to_depth", block=v),
    "split": lambda x, v: ops.split(x, v, 1),
    "lrn": ops.lrn,
    "roi_align": lambda x, v: ops.roi_align(x, np_constant(x, (1, 4)), x.function.constant(np.zeros(1, I64)), height=v),
    "one_hot": lambda x, v: ops.one_hot(x.cast("i64"), min(v, -1)),
    "bincount": lambda x, v: ops.bincount(x.cast("i64"), min(v, -1)),
    "segment_sum": lambda x, v: ops.segment_sum(x, x.function.constant(np.zeros(1, I64)), min(v, -1)),
    "group_norm": lambda x, v: ops.group_norm(x, groups=min(v, -1)),  # 0 stands for one group per channel
    "tile": lambda x, v: ops.tile(x, [1, 1, 1, min(v, -1)]),
}  # fmt: skip


def np_constant(x: linnet.Tensor, shape: tuple[int, ...]) -> linnet.Tensor:
    return x.function.constant(np.ones(shape, F))


@pytest.mark.parametrize("name", BUILT)
@pytest.mark.parametrize("value", [0, -1])
def test_the_builder_and_the_library_refuse_them(name: str, value: int) -> None:
    """With an open shape, the library refuses the file when it is planned."""
    for shape in ((1, 4, 6, 6), ("n", 4, 6, 6), (None, None, None, None), None):
        graph = linnet.Graph()
        x = graph.placeholder("x", shape)
        with pytest.raises(linnet.Error) as raised:
            made = BUILT[name](x, value)
            graph.signature("infer", {"x": x}, {"y": made[0] if isinstance(made, list) else made})
            linnet.Session(graph.to_bytes()).run({"x": IMAGE})
        assert raised.value.code in (101, 104, 302, 303) and "unknown_shape" not in str(raised.value)
