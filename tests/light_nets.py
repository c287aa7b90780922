"""Classifiers that exist only as structures: those of the `onnx` package (AlexNet, VGG-19, GoogLeNet, Inception v2, SqueezeNet,
DenseNet-121, ShuffleNet) and of tests.structures. They get random weights, and batch norms get their true statistics."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from linnet._fetch import cache_dir, write_atomic
from tests import nets, structures

_REVISION = 1  # part of the cached file's name; increase it when the weights change
_IMAGES = 16  # number of images for the statistics


def _light(name: str) -> Callable[[], onnx.ModelProto]:
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    return lambda: onnx.load(folder / f"light_{name}.onnx")


STRUCTURES: dict[str, Callable[[], onnx.ModelProto]] = {
    "alexnet": _light("bvlc_alexnet"),
    "vgg19": _light("vgg19"),
    "googlenet": _light("inception_v1"),
    "inception_v2": _light("inception_v2"),
    "squeezenet": _light("squeezenet"),
    "densenet121": _light("densenet121"),
    "shufflenet": _light("shufflenet"),
    "mobilenet_v3_small": structures.mobilenet_v3_small,
    "inception_v3": structures.inception_v3,
}


def path(name: str) -> Path:
    """Path of the cached model: one input f32 [1,3,224,224], one output of 1000 classes. The first call makes it."""
    file = cache_dir() / "nets" / f"{name}-light-r{_REVISION}.onnx"
    if not file.exists():
        model = with_weights(STRUCTURES[name](), np.random.default_rng(sum(name.encode())))
        write_atomic(file, model.SerializeToString())
    return file


def inputs(name: str) -> dict[str, np.ndarray]:
    """The test feeds {input name: f32 [1,3,224,224]}: an image that is not used for calibration."""
    (image,) = nets.inputs().values()
    return {onnx.load(path(name)).graph.input[0].name: image}


def with_weights(model: onnx.ModelProto, rng: np.random.Generator) -> onnx.ModelProto:
    """Replaces the model's constant weights, node by node, based on the values for some images."""
    graph = model.graph
    shapes = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    filled = {n.output[0]: tuple(shapes.pop(n.input[0])) for n in graph.node if n.op_type == "ConstantOfShape"}
    for n in graph.node:
        if n.op_type == "Reshape" and n.input[0] in filled:  # a reshaped weight: make it in the final shape
            filled[n.output[0]] = tuple(shapes[n.input[1]])
    given = {*shapes, *filled}
    (data,) = [i for i in graph.input if i.name not in {t.name for t in graph.initializer}]
    values = {data.name: nets.images(_IMAGES, 5)}
    weights: dict[str, np.ndarray] = {}
    nodes = [n for n in graph.node if n.output[0] not in given]
    last_use = {name: i for i, node in enumerate(nodes) for name in node.input}
    for i, node in enumerate(nodes):
        for place, name in enumerate(node.input):
            if name in given and name not in weights:
                shape = filled.get(name, np.shape(shapes.get(name)))
                made = _weight(node, place, shape, values, rng)
                weights[name] = shapes[name] if made is None else made.astype(np.float32)
        if node.op_type == "Reshape":  # only here: a batch of several images
            rest = weights[node.input[1]].tolist()
            whole = values[node.input[0]]
            results = [whole.reshape(_IMAGES, *rest[1:])]
        elif node.op_type == "Dropout":
            results = [values[node.input[0]]]
        else:
            results = _run(node, {name: weights[name] if name in given else values[name] for name in node.input}, model)
        spread = float(results[0].std())
        if node.op_type == "Gemm" and spread > 0:  # scales the logits to unit variance, whatever the features are
            for name in node.input[1:]:
                weights[name] = weights[name] / np.float32(spread / 2)
            results[0] = results[0] / np.float32(spread / 2)
        values.update(zip(node.output, results, strict=False))
        for name in node.input:
            if last_use[name] == i:
                values.pop(name, None)
    del graph.node[:], graph.initializer[:], graph.input[:]
    graph.node.extend(nodes)
    graph.input.append(data)
    graph.initializer.extend(numpy_helper.from_array(np.ascontiguousarray(v), name) for name, v in weights.items())
    model.ir_version = 8  # from IR version 4, weights need not be inputs
    return model


def _weight(
    node: onnx.NodeProto, place: int, shape: tuple[int, ...], values: dict[str, np.ndarray], rng: np.random.Generator
) -> np.ndarray | None:
    """Makes a weight for operand `place` of a node; None if the operand is not a weight (the shape of a Reshape)."""
    draw: dict[tuple[str, int], Callable[[], np.ndarray]] = {
        ("Conv", 1): lambda: rng.standard_normal(shape, np.float32) * math.sqrt(2 / math.prod(shape[1:])),
        ("Conv", 2): lambda: rng.normal(0, 0.1, shape),
        ("Gemm", 1): lambda: rng.standard_normal(shape, np.float32) * math.sqrt(2 / min(shape)),
        ("Gemm", 2): lambda: rng.normal(0, 0.1, shape),
        ("BatchNormalization", 1): lambda: rng.uniform(0.7, 1.3, shape),
        ("BatchNormalization", 2): lambda: rng.normal(0, 0.2, shape),
        ("BatchNormalization", 3): lambda: values[node.input[0]].mean((0, 2, 3)),
        ("BatchNormalization", 4): lambda: np.maximum(values[node.input[0]].var((0, 2, 3)), 1e-4),
        ("Unsqueeze", 0): lambda: rng.uniform(0.7, 1.3, shape),  # a scale or offset per channel, as a separate op
    }
    make = draw.get((node.op_type, place))
    return make() if make else None


def _run(node: onnx.NodeProto, feeds: dict[str, np.ndarray], model: onnx.ModelProto) -> list[np.ndarray]:
    """Computes the node's outputs with ONNX Runtime."""
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in feeds.items()
    ]
    outputs = [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)]
    one = helper.make_model(
        helper.make_graph([node], "one", infos, outputs), opset_imports=model.opset_import, ir_version=8
    )
    session = onnxruntime.InferenceSession(one.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run([node.output[0]], feeds))
