"""The four networks of convnet-benchmarks and of table 1 of the TensorFlow paper, each described once in terms of a backend's
layers. `Layers` makes linnet's; in_torch.py makes PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import linnet
from linnet import nn, ops
from linnet.ir.function import Tensor


class Layers:
    """linnet's layers, with weights drawn from the graph's seed. Images are [batch, channels, height, width]."""

    def conv(self, x: Tensor, out: int, kernel: int, stride: int = 1, pad: int = 0, group: int = 1) -> Tensor:
        return nn.conv(x, out, kernel, stride=stride, padding=pad, groups=group)

    def linear(self, x: Tensor, out: int) -> Tensor:
        return nn.dense(x, out)

    def relu(self, x: Tensor) -> Tensor:
        return ops.relu(x)

    def max_pool(self, x: Tensor, kernel: int, stride: int, pad: int = 0) -> Tensor:
        return nn.max_pool(x, kernel, stride=stride, padding=pad)

    def concat(self, *x: Tensor) -> Tensor:
        return ops.concat(list(x), 1)

    def dropout(self, x: Tensor) -> Tensor:
        return nn.dropout(x, 0.5, True)

    def flatten(self, x: Tensor) -> Tensor:
        return nn.flatten(x)

    def mean(self, x: Tensor) -> Tensor:
        return nn.global_avg_pool(x)


def alexnet(m: Any, x: Any) -> Any:
    """Krizhevsky et al., "ImageNet classification with deep convolutional neural networks", 2012, without its LRN."""
    x = m.max_pool(m.relu(m.conv(x, 96, 11, 4)), 3, 2)
    x = m.max_pool(m.relu(m.conv(x, 256, 5, pad=2, group=2)), 3, 2)
    x = m.relu(m.conv(x, 384, 3, pad=1))
    x = m.relu(m.conv(x, 384, 3, pad=1, group=2))
    x = m.flatten(m.max_pool(m.relu(m.conv(x, 256, 3, pad=1, group=2)), 3, 2))
    x = m.dropout(m.relu(m.linear(x, 4096)))
    return m.linear(m.dropout(m.relu(m.linear(x, 4096))), 1000)


def overfeat(m: Any, x: Any) -> Any:
    """Sermanet et al., "OverFeat: integrated recognition, localization and detection", 2013, the fast model."""
    x = m.max_pool(m.relu(m.conv(x, 96, 11, 4)), 2, 2)
    x = m.max_pool(m.relu(m.conv(x, 256, 5)), 2, 2)
    x = m.relu(m.conv(m.relu(m.conv(x, 512, 3, pad=1)), 1024, 3, pad=1))
    x = m.flatten(m.max_pool(m.relu(m.conv(x, 1024, 3, pad=1)), 2, 2))
    return m.linear(m.relu(m.linear(m.relu(m.linear(x, 3072)), 4096)), 1000)


def oxfordnet(m: Any, x: Any) -> Any:
    """Simonyan and Zisserman, "Very deep convolutional networks for large-scale image recognition", 2014, table 1, A."""
    for widths in ((64,), (128,), (256, 256), (512, 512), (512, 512)):
        for width in widths:
            x = m.relu(m.conv(x, width, 3, pad=1))
        x = m.max_pool(x, 2, 2)
    return m.linear(m.relu(m.linear(m.relu(m.linear(m.flatten(x), 4096)), 4096)), 1000)


def googlenet(m: Any, x: Any) -> Any:
    """Szegedy et al., "Going deeper with convolutions", 2014, table 1, without its LRN and its auxiliary classifiers."""
    x = m.max_pool(m.relu(m.conv(x, 64, 7, 2, 3)), 3, 2, 1)
    x = m.max_pool(m.relu(m.conv(m.relu(m.conv(x, 64, 1)), 192, 3, pad=1)), 3, 2, 1)
    for widths in (
        (64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64), (), (192, 96, 208, 16, 48, 64), (160, 112, 224, 24, 64, 64),
        (128, 128, 256, 24, 64, 64), (112, 144, 288, 32, 64, 64), (256, 160, 320, 32, 128, 128), (),
        (256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128),
    ):  # fmt: skip
        if not widths:
            x = m.max_pool(x, 3, 2, 1)
            continue
        one, reduce3, three, reduce5, five, pooled = widths
        a = m.relu(m.conv(x, one, 1))
        b = m.relu(m.conv(m.relu(m.conv(x, reduce3, 1)), three, 3, pad=1))
        c = m.relu(m.conv(m.relu(m.conv(x, reduce5, 1)), five, 5, pad=2))
        x = m.concat(a, b, c, m.relu(m.conv(m.max_pool(x, 3, 1, 1), pooled, 1)))
    return m.linear(m.mean(x), 1000)


NETWORKS: dict[str, tuple[Callable[[Any, Any], Any], int, int]] = {
    "AlexNet": (alexnet, 227, 128),
    "OverFeat": (overfeat, 231, 128),
    "OxfordNet": (oxfordnet, 224, 64),
    "GoogLeNet": (googlenet, 224, 128),
}
"""Name: the description, the height and width of an image, and the batch of convnet-benchmarks."""
CLASSES = 1000


def training(name: str, batch: int, seed: int = 0, side: int = 0) -> linnet.Graph:
    """A network with the signatures of linnet.sync.signatures over {x f32 [batch, 3, height, width], t i32 [batch]}: `train` is a
    step of SGD, and `grad` gives the gradients that a worker sends. side: height and width, if not the usual one."""
    describe, usual, _ = NETWORKS[name]
    side = side or usual
    graph = linnet.Graph(seed=seed)
    x, t = graph.placeholder("x", (batch, 3, side, side)), graph.placeholder("t", (batch,), "i32")
    loss = linnet.softmax_cross_entropy(describe(Layers(), x), t).mean()
    linnet.sync.signatures(graph, loss, linnet.SGD(0.01), {"x": x, "t": t})
    return graph
