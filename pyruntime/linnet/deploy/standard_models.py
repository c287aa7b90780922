"""The models of `linnet report`: published architectures with seeded random weights. Trained models of the same
architecture take the same time, because no kernel is faster for some weights than for others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from linnet import nn
from linnet.facade import Graph
from linnet.ir.function import Tensor

_CLASSES: Final = 1000

# Expansion, channels, number of blocks and stride of the first one: table 2 of "MobileNetV2: Inverted Residuals and Linear
# Bottlenecks", arXiv:1801.04381.
_MOBILENET: Final = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip
# Channels inside a block, number of blocks and stride of the first one: table 1 of "Deep Residual Learning for Image
# Recognition", arXiv:1512.03385, with the stride at the 3x3 convolution.
_RESNET: Final = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))


def mobilenet_v2() -> Graph:
    """MobileNetV2 1.0: `input` f32 [1,3,224,224] -> `output` f32 [1,1000]. Batch norms are folded, as converters do."""
    graph = Graph()
    x = image = graph.placeholder("input", (1, 3, 224, 224))
    x = nn.conv(x, 32, 3, stride=2, padding=1, activation="relu6")
    channels = 32
    for expansion, filters, blocks, first in _MOBILENET:
        for block in range(blocks):
            stride = first if block == 0 else 1
            y = x if expansion == 1 else nn.conv(x, expansion * channels, 1, activation="relu6")
            y = nn.depthwise_conv(y, 3, stride=stride, padding=1, activation="relu6")
            y = nn.conv(y, filters, 1)
            x = x + y if stride == 1 and channels == filters else y
            channels = filters
    x = nn.conv(x, 1280, 1, activation="relu6")
    return _finished(graph, image, nn.dense(nn.global_avg_pool(x), _CLASSES))


def resnet50() -> Graph:
    """ResNet-50 v1.5: `input` f32 [1,3,224,224] -> `output` f32 [1,1000]. Batch norms are folded, as converters do."""
    graph = Graph()
    image = graph.placeholder("input", (1, 3, 224, 224))
    x = nn.max_pool(nn.conv(image, 64, 7, stride=2, padding=3, activation="relu"), 3, stride=2, padding=1)
    for width, blocks, first in _RESNET:
        for block in range(blocks):
            stride = first if block == 0 else 1
            y = nn.conv(x, width, 1, activation="relu")
            y = nn.conv(y, width, 3, stride=stride, padding=1, activation="relu")
            y = nn.conv(y, 4 * width, 1)
            x = nn.relu(y + (x if block else nn.conv(x, 4 * width, 1, stride=stride)))
    return _finished(graph, image, nn.dense(nn.global_avg_pool(x), _CLASSES))


def kws() -> Graph:
    """A keyword spotter, DS-CNN-S of "Hello Edge", arXiv:1711.07128: `input` f32 [1,1,49,10] -> `output` f32 [1,12]."""
    graph = Graph()
    sound = graph.placeholder("input", (1, 1, 49, 10))
    x = nn.conv(sound, 64, (10, 4), stride=2, padding="same", activation="relu")
    for _ in range(4):
        x = nn.depthwise_conv(x, 3, padding=1, activation="relu")
        x = nn.conv(x, 64, 1, activation="relu")
    return _finished(graph, sound, nn.softmax(nn.dense(nn.global_avg_pool(x), 12)))


def lstm() -> Graph:
    """Two LSTM layers of 128 units over 50 steps: `input` f32 [1,50,64] -> `output` f32 [1,10]."""
    graph = Graph()
    steps = graph.placeholder("input", (1, 50, 64))
    return _finished(graph, steps, nn.dense(nn.lstm(steps, 128, layers=2)[0][:, -1], 10))


MODELS: Final[dict[str, Callable[[], Graph]]] = {
    "mobilenet_v2": mobilenet_v2, "kws": kws, "lstm": lstm, "resnet50": resnet50,
}  # fmt: skip
DEFAULT: Final = ("mobilenet_v2", "kws", "lstm")


def _finished(graph: Graph, x: Tensor, y: Tensor) -> Graph:
    graph.signature("infer", {"input": x}, {"output": y})
    return graph.freeze()
