"""MobileNetV3-small and Inception v3 as ONNX graphs with weight shapes but no weights, like the light models of the onnx package.
`tests.light_nets` adds weights. Layers: Howard et al. 2019, table 2; Szegedy et al. 2015, as in torchvision."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class _Structure:
    """Emits nodes and tracks the number of channels of every value."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.shapes: list[onnx.TensorProto] = []
        self.channels = {"input": 3}

    def node(self, op: str, inputs: list[str], channels: int, **attributes: Any) -> str:
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        self.channels[name] = channels
        return name

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.shapes)}"
        self.shapes.append(numpy_helper.from_array(np.array(shape, np.int64), f"{name}/shape"))
        self.nodes.append(helper.make_node("ConstantOfShape", [f"{name}/shape"], [name]))
        return name

    def conv(self, x: str, out: int, kernel: tuple[int, int], stride: int, pads: tuple[int, int], **more: Any) -> str:
        groups, bias = more.get("group", 1), more.pop("bias", False)
        names = [x, self.weight(out, self.channels[x] // groups, *kernel), *([self.weight(out)] if bias else [])]
        return self.node("Conv", names, out, kernel_shape=kernel, strides=[stride] * 2, pads=[*pads, *pads], **more)

    def norm(self, x: str) -> str:
        channels = self.channels[x]
        return self.node("BatchNormalization", [x, *(self.weight(channels) for _ in range(4))], channels, epsilon=1e-3)

    def act(self, op: str, x: str) -> str:
        return self.node(op, [x], self.channels[x])

    def pool(self, op: str, x: str, kernel: int, stride: int, pad: int = 0) -> str:
        return self.node(op, [x], self.channels[x], kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)

    def concat(self, *parts: str) -> str:
        return self.node("Concat", list(parts), sum(self.channels[p] for p in parts), axis=1)

    def linear(self, x: str, out: int) -> str:
        return self.node("Gemm", [x, self.weight(out, self.channels[x]), self.weight(out)], out, transB=1)

    def model(self, last: str) -> onnx.ModelProto:
        values = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in (("input", [1, 3, 224, 224]), (last, [1, 1000]))
        ]
        graph = helper.make_graph(self.nodes, "structure", values[:1], values[1:], self.shapes)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def mobilenet_v3_small() -> onnx.ModelProto:
    s = _Structure()

    def block(x: str, kernel: int, wide: int, out: int, squeeze: bool, act: str, stride: int) -> str:
        y = s.act(act, s.norm(s.conv(x, wide, (1, 1), 1, (0, 0)))) if wide != s.channels[x] else x
        pad = kernel // 2
        y = s.act(act, s.norm(s.conv(y, wide, (kernel, kernel), stride, (pad, pad), group=wide)))
        if squeeze:
            middle = max(8, (wide // 4 + 4) // 8 * 8)
            gate = s.node("GlobalAveragePool", [y], wide)
            gate = s.act("Relu", s.conv(gate, middle, (1, 1), 1, (0, 0), bias=True))
            gate = s.act("HardSigmoid", s.conv(gate, wide, (1, 1), 1, (0, 0), bias=True))
            y = s.node("Mul", [y, gate], wide)
        y = s.norm(s.conv(y, out, (1, 1), 1, (0, 0)))
        return s.node("Add", [x, y], out) if stride == 1 and s.channels[x] == out else y

    x = s.act("HardSwish", s.norm(s.conv("input", 16, (3, 3), 2, (1, 1))))
    for row in (
        (3, 16, 16, True, "Relu", 2), (3, 72, 24, False, "Relu", 2), (3, 88, 24, False, "Relu", 1),
        (5, 96, 40, True, "HardSwish", 2), (5, 240, 40, True, "HardSwish", 1), (5, 240, 40, True, "HardSwish", 1),
        (5, 120, 48, True, "HardSwish", 1), (5, 144, 48, True, "HardSwish", 1), (5, 288, 96, True, "HardSwish", 2),
        (5, 576, 96, True, "HardSwish", 1), (5, 576, 96, True, "HardSwish", 1),
    ):  # fmt: skip
        x = block(x, *row)
    x = s.act("HardSwish", s.norm(s.conv(x, 576, (1, 1), 1, (0, 0))))
    x = s.node("Flatten", [s.node("GlobalAveragePool", [x], 576)], 576)
    return s.model(s.linear(s.act("HardSwish", s.linear(x, 1024)), 1000))


def inception_v3() -> onnx.ModelProto:
    s = _Structure()

    def conv(x: str, out: int, kernel: int | tuple[int, int], stride: int = 1, same: bool = True) -> str:
        sides = (kernel, kernel) if isinstance(kernel, int) else kernel
        pads = (sides[0] // 2, sides[1] // 2) if same else (0, 0)
        return s.act("Relu", s.norm(s.conv(x, out, sides, stride, pads)))

    def chain(x: str, *layers: tuple[int, int | tuple[int, int]]) -> str:
        for out, kernel in layers:
            x = conv(x, out, kernel)
        return x

    x = conv(conv("input", 32, 3, 2, same=False), 32, 3, same=False)
    x = s.pool("MaxPool", conv(x, 64, 3), 3, 2)
    x = s.pool("MaxPool", conv(conv(x, 80, 1), 192, 3, same=False), 3, 2)
    for width in (32, 64, 64):
        mean = conv(s.pool("AveragePool", x, 3, 1, 1), width, 1)
        x = s.concat(conv(x, 64, 1), chain(x, (48, 1), (64, 5)), chain(x, (64, 1), (96, 3), (96, 3)), mean)
    x = s.concat(
        conv(x, 384, 3, 2, same=False),
        conv(chain(x, (64, 1), (96, 3)), 96, 3, 2, same=False),
        s.pool("MaxPool", x, 3, 2),
    )
    for c in (128, 160, 160, 192):
        mean = conv(s.pool("AveragePool", x, 3, 1, 1), 192, 1)
        x = s.concat(
            conv(x, 192, 1), chain(x, (c, 1), (c, (1, 7)), (192, (7, 1))),
            chain(x, (c, 1), (c, (7, 1)), (c, (1, 7)), (c, (7, 1)), (192, (1, 7))), mean,
        )  # fmt: skip
    x = s.concat(
        conv(conv(x, 192, 1), 320, 3, 2, same=False),
        conv(chain(x, (192, 1), (192, (1, 7)), (192, (7, 1))), 192, 3, 2, same=False),
        s.pool("MaxPool", x, 3, 2),
    )
    for _ in range(2):
        mean = conv(s.pool("AveragePool", x, 3, 1, 1), 192, 1)
        one, two = conv(x, 384, 1), chain(x, (448, 1), (384, 3))
        x = s.concat(
            conv(x, 320, 1),
            conv(one, 384, (1, 3)),
            conv(one, 384, (3, 1)),
            conv(two, 384, (1, 3)),
            conv(two, 384, (3, 1)),
            mean,
        )
    return s.model(s.linear(s.node("Flatten", [s.node("GlobalAveragePool", [x], 2048)], 2048), 1000))
