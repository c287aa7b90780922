"""Full-size classifiers with random, calibrated weights: MobileNetV2, ResNet-50 v1.5, EfficientNet-B0.
They are built layer by layer on real activations, so that each batch norm holds its true statistics."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from linnet._fetch import cache_dir, write_atomic

_REVISION = 1  # part of the cached file's name; increase it when a net's construction changes
_IMAGES = 16  # number of images for the statistics
_CLASSES = 1000


def mobilenet_v2() -> Path:
    """MobileNetV2 1.0: `input` f32 [1,3,224,224] -> `output` f32 [1,1000] (logits); 3.5 M parameters."""
    return _cached("mobilenet_v2", _mobilenet_v2)


def resnet50() -> Path:
    """ResNet-50 v1.5 (strided 3x3): `input` f32 [1,3,224,224] -> `output` f32 [1,1000]; 25.6 M parameters."""
    return _cached("resnet50", _resnet50)


def efficientnet_b0() -> Path:
    """EfficientNet-B0: `input` f32 [1,3,224,224] -> `output` f32 [1,1000] (logits); 5.3 M parameters."""
    return _cached("efficientnet_b0", _efficientnet_b0)


NETS: dict[str, Callable[[], Path]] = {
    "mobilenet_v2": mobilenet_v2,
    "resnet50": resnet50,
    "efficientnet_b0": efficientnet_b0,
}


def images(count: int, seed: int) -> np.ndarray:
    """`count` smooth random images of unit scale, f32 [count,3,224,224]: low frequencies, edges, noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:224, 0:224].astype(np.float32) / 224
    out = np.empty((count, 3, 224, 224), np.float32)
    for picture in out:
        for plane in picture:
            plane[:] = 0.15 * rng.standard_normal((224, 224), np.float32)
            for _ in range(8):
                a, b, phase = rng.normal(0, 12), rng.normal(0, 12), rng.uniform(0, 6.3)
                plane += rng.normal() * np.cos(a * x + b * y + phase)
                plane += rng.normal() * (a * x + b * y > rng.uniform(-8, 8))
        picture -= picture.mean()
        picture /= picture.std()
    return out


def inputs(seed: int = 1) -> dict[str, np.ndarray]:
    """The test feeds of every net here: {"input": f32 [1,3,224,224]}, an image that is not used for calibration."""
    return {"input": images(1, 1000 + seed)}


def _cached(name: str, build: Callable[[_Builder], str]) -> Path:
    path = cache_dir() / "nets" / f"{name}-r{_REVISION}.onnx"
    if not path.exists():
        builder = _Builder(seed=sum(name.encode()))
        model = builder.finish(name, build(builder))
        write_atomic(path, model.SerializeToString())
    return path


class _Builder:
    """Emits ONNX nodes and computes their values on the calibration images at the same time.

    A value is named by a string; `self.values[name]` is its f32 NCHW array for `_IMAGES` images. `drop` removes a value as
    soon as it is no longer needed, so that memory stays small.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.values: dict[str, np.ndarray] = {"input": images(_IMAGES, seed)}

    def conv(self, x: str, channels: int, kernel: int, stride: int = 1, groups: int = 1, bias: bool = False) -> str:
        """A convolution with He-normal weights, "same" padding of (kernel - 1) / 2 on every side."""
        value = self.values[x]
        shape = (channels, value.shape[1] // groups, kernel, kernel)
        weight = self.rng.standard_normal(shape, np.float32) * np.float32(math.sqrt(2 / math.prod(shape[1:])))
        names = [x, self._weight("conv.weight", weight)]
        if bias:
            names.append(self._weight("conv.bias", np.asarray(self.rng.normal(0, 0.1, channels), np.float32)))
        pad = (kernel - 1) // 2
        return self._node("Conv", names, self._conv_value, kernel_shape=[kernel] * 2, strides=[stride] * 2,
                          pads=[pad] * 4, group=groups)  # fmt: skip

    def batch_norm(self, x: str, scale: float = 1.0) -> str:
        """Inference-mode BatchNormalization (unfolded) with the statistics of `x`; the output has a standard deviation near
        `scale`."""
        value = self.values.pop(x)
        channels = value.shape[1]
        mean = value.mean(axis=(0, 2, 3))
        variance = np.maximum(value.var(axis=(0, 2, 3)), 1e-4)
        gamma = np.asarray(scale * self.rng.uniform(0.7, 1.3, channels), np.float32)
        beta = np.asarray(scale * self.rng.normal(0, 0.2, channels), np.float32)
        names = [x] + [
            self._weight(f"bn.{what}", array.astype(np.float32))
            for what, array in (("scale", gamma), ("bias", beta), ("mean", mean), ("variance", variance))
        ]
        factor = (gamma / np.sqrt(variance + 1e-5)).reshape(-1, 1, 1)
        offset = (beta - mean * factor[:, 0, 0]).reshape(-1, 1, 1)
        value *= factor
        value += offset
        return self._node("BatchNormalization", names, lambda _: value, epsilon=1e-5)

    def relu(self, x: str) -> str:
        return self._node("Relu", [x], lambda node: np.maximum(self.values[x], 0))

    def relu6(self, x: str) -> str:
        low, high = (self._weight("clip", np.float32(limit), shared=True) for limit in (0, 6))
        return self._node("Clip", [x, low, high], lambda node: np.clip(self.values[x], 0, 6))

    def sigmoid(self, x: str) -> str:
        return self._node("Sigmoid", [x], lambda node: 1 / (1 + np.exp(-self.values[x])))

    def silu(self, x: str) -> str:
        """x * sigmoid(x), as the two nodes that exporters write."""
        out = self.mul(x, gate := self.sigmoid(x))
        self.drop(x, gate)
        return out

    def mul(self, a: str, b: str) -> str:
        return self._node("Mul", [a, b], lambda node: self.values[a] * self.values[b])

    def add(self, a: str, b: str) -> str:
        return self._node("Add", [a, b], lambda node: self.values[a] + self.values[b])

    def max_pool(self, x: str) -> str:
        """3x3, stride 2, padding 1."""
        return self._node("MaxPool", [x], self._conv_value, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)

    def global_pool(self, x: str) -> str:
        return self._node("GlobalAveragePool", [x], lambda node: self.values[x].mean((2, 3), keepdims=True))

    def squeeze_excite(self, x: str, middle: int) -> str:
        """Scales each channel by a sigmoid of a two-layer net of the channel means."""
        gate = self.silu(self.conv(self.global_pool(x), middle, 1, bias=True))
        return self.mul(x, self.sigmoid(self.conv(gate, self.values[x].shape[1], 1, bias=True)))

    def classifier(self, x: str) -> str:
        """Global mean, flatten and Gemm. The logits have standard deviation 2 over classes and differ between images."""
        flat = self._node("Flatten", [pooled := self.global_pool(x)], lambda _: self.values[pooled][:, :, 0, 0], axis=1)
        features = self.values[flat]
        weight = self.rng.standard_normal((_CLASSES, features.shape[1]), np.float32)
        # Half of the mean over all images goes into the bias; otherwise one class would win on every image.
        bias = -0.5 * (weight @ features.mean(axis=0))
        weight_scale = 2 / (features @ weight.T + bias).std()
        weight, bias = weight * weight_scale, bias * weight_scale
        names = [flat, self._weight("fc.weight", weight), self._weight("fc.bias", bias)]
        return self._node("Gemm", names, lambda _: features @ weight.T + bias, transB=1)

    def drop(self, *names: str) -> None:
        for name in names:
            self.values.pop(name, None)

    def finish(self, name: str, output: str) -> onnx.ModelProto:
        """The checked model, opset 17, batch 1; its output is renamed to `output`."""
        self.nodes[-1].output[0] = "output"
        assert output.startswith(self.nodes[-1].op_type)
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 3, 224, 224])],
            [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, _CLASSES])],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        model.producer_name = "linnet tests"
        onnx.checker.check_model(model, full_check=True)
        return model

    def _weight(self, what: str, value: np.ndarray | np.float32, shared: bool = False) -> str:
        name = f"{what}.{value:g}" if shared else f"{what}.{len(self.weights)}"
        if not shared or all(w.name != name for w in self.weights):
            self.weights.append(numpy_helper.from_array(np.asarray(value, np.float32), name))
        return name

    def _node(
        self,
        op: str,
        names: list[str],
        value: Callable[[onnx.NodeProto], np.ndarray],
        **attributes: Any,
    ) -> str:
        name = f"{op}_{len(self.nodes)}"
        node = helper.make_node(op, names, [name], name=name, **attributes)
        self.nodes.append(node)
        self.values[name] = value(node).astype(np.float32, copy=False)
        return name

    def _conv_value(self, node: onnx.NodeProto) -> np.ndarray:
        """Runs one windowed node with ONNX Runtime on the current values."""
        import onnxruntime  # needed only to build a net that is not cached

        x = self.values[node.input[0]]
        weights = [w for w in self.weights[-2:] if w.name in node.input]
        graph = helper.make_graph(
            [node],
            "one",
            [helper.make_tensor_value_info(node.input[0], TensorProto.FLOAT, x.shape)],
            [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)],
            weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return session.run(None, {node.input[0]: x})[0]


def _mobilenet_v2(b: _Builder) -> str:
    x = b.relu6(b.batch_norm(b.conv("input", 32, 3, 2)))
    channels = 32
    for expand, out, repeat, first_stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):  # fmt: skip
        for index in range(repeat):
            stride = first_stride if index == 0 else 1
            y = x
            if expand != 1:
                y = b.relu6(b.batch_norm(b.conv(y, channels * expand, 1)))
            y = b.relu6(b.batch_norm(b.conv(y, channels * expand, 3, stride, groups=channels * expand)))
            residual = stride == 1 and channels == out
            y = b.batch_norm(b.conv(y, out, 1), scale=0.5 if residual else 1.0)
            x, channels = (b.add(x, y) if residual else y), out
            b.values = {x: b.values[x]}
    return b.classifier(b.relu6(b.batch_norm(b.conv(x, 1280, 1))))


def _resnet50(b: _Builder) -> str:
    x = b.max_pool(b.relu(b.batch_norm(b.conv("input", 64, 7, 2))))
    for stage, (width, repeat) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for index in range(repeat):
            stride = 2 if index == 0 and stage > 0 else 1
            y = b.relu(b.batch_norm(b.conv(x, width, 1)))
            y = b.relu(b.batch_norm(b.conv(y, width, 3, stride)))
            y = b.batch_norm(b.conv(y, 4 * width, 1), scale=0.7)
            if index == 0:
                x = b.batch_norm(b.conv(x, 4 * width, 1, stride), scale=0.7)
            x = b.relu(b.add(y, x))
            b.values = {x: b.values[x]}
    return b.classifier(x)


def _efficientnet_b0(b: _Builder) -> str:
    x = b.silu(b.batch_norm(b.conv("input", 32, 3, 2)))
    channels = 32
    for expand, kernel, first_stride, out, repeat in (
        (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3),
        (6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1),
    ):  # fmt: skip
        for index in range(repeat):
            stride = first_stride if index == 0 else 1
            wide = channels * expand
            y = x
            if expand != 1:
                y = b.silu(b.batch_norm(b.conv(y, wide, 1)))
            y = b.silu(b.batch_norm(b.conv(y, wide, kernel, stride, groups=wide)))
            y = b.squeeze_excite(y, max(1, channels // 4))
            residual = stride == 1 and channels == out
            y = b.batch_norm(b.conv(y, out, 1), scale=0.5 if residual else 1.0)
            x, channels = (b.add(x, y) if residual else y), out
            b.values = {x: b.values[x]}
    return b.classifier(b.silu(b.batch_norm(b.conv(x, 1280, 1))))
