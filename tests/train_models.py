"""Models that are trained in tests and benchmarks: each is described once, and built by PyTorch and by linnet.
`MODELS[name]` describes a network over a backend's layers; `twin` makes PyTorch's, `graph_of` linnet's with its weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

import linnet
from linnet import ops
from linnet.graph import Tensor, Variable


class Twin(nn.Module):  # type: ignore[misc]
    """PyTorch's layers: the first pass over the description makes them, with PyTorch's initial values."""

    def __init__(self, describe: Callable[[Any, Any], Any], x: torch.Tensor) -> None:
        super().__init__()
        self.describe, self.layers, self.at = describe, nn.ModuleList(), 0
        with torch.no_grad():
            self.eval()(x[:1])
        self.train()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.at = 0
        result: torch.Tensor = self.describe(self, x)
        return result

    def _layer(self, make: Callable[[], nn.Module], x: torch.Tensor) -> torch.Tensor:
        if self.at == len(self.layers):
            self.layers.append(make().train(self.training))
        self.at += 1
        result: torch.Tensor = self.layers[self.at - 1](x)
        return result

    def conv(
        self, x: Any, out: int, kernel: int, stride: int = 1, pad: int = 0, group: int = 1, bias: bool = True
    ) -> Any:
        return self._layer(lambda: nn.Conv2d(x.shape[1], out, kernel, stride, pad, groups=group, bias=bias), x)

    def norm(self, x: Any) -> Any:
        return self._layer(lambda: nn.BatchNorm2d(x.shape[1]), x)

    def linear(self, x: Any, out: int) -> Any:
        return self._layer(lambda: nn.Linear(x.shape[1], out), x)

    def relu(self, x: Any) -> Any:
        return self._layer(lambda: nn.ReLU(inplace=True), x)

    def relu6(self, x: Any) -> Any:
        return self._layer(lambda: nn.ReLU6(inplace=True), x)

    def max_pool(self, x: Any, kernel: int, stride: int, pad: int = 0) -> Any:
        return self._layer(lambda: nn.MaxPool2d(kernel, stride, pad), x)

    def dropout(self, x: Any) -> Any:
        return self._layer(nn.Dropout, x)

    def flatten(self, x: Any) -> Any:
        return x.flatten(1)

    def mean(self, x: Any) -> Any:
        return x.mean((2, 3))

    def add(self, x: Any, y: Any) -> Any:
        return x + y


class Builder:
    """linnet's layers, over variables that begin with the twin's values."""

    def __init__(self, graph: linnet.Graph, twin: Twin) -> None:
        self.graph, self.layers, self.at = graph, twin.layers, 0
        self.trained: dict[str, Variable] = {}
        self.updates: dict[Variable, Tensor] = {}  # moving averages, counters

    def _layer(self) -> tuple[dict[str, Variable], Any]:
        number, layer = self.at, self.layers[self.at]
        self.at += 1
        found = {}
        for name, value in layer.state_dict().items():
            if name == "num_batches_tracked":
                continue
            found[name] = self.graph.variable(f"layers.{number}.{name}", value.numpy())
            if not name.startswith("running"):
                self.trained[found[name].name] = found[name]
        return found, layer

    def conv(
        self, x: Tensor, out: int, kernel: int, stride: int = 1, pad: int = 0, group: int = 1, bias: bool = True
    ) -> Tensor:
        found, _ = self._layer()
        return ops.conv(
            x, found["weight"].tensor(), found["bias"].tensor() if bias else None, strides=[stride] * 2, pads=[pad] * 4,
            group=group,
        )  # fmt: skip

    def norm(self, x: Tensor) -> Tensor:
        found, layer = self._layer()
        mean, variance = ops.moments(x)
        batch, _, height, width = x.static_shape or ()
        unbiased = batch * height * width / (batch * height * width - 1)
        for name, value in (("running_mean", mean), ("running_var", variance * unbiased)):
            self.updates[found[name]] = found[name] * (1 - layer.momentum) + value * layer.momentum
        weight, bias = found["weight"].tensor(), found["bias"].tensor()
        return ops.batch_norm(x, weight, bias, mean, variance, epsilon=layer.eps)

    def linear(self, x: Tensor, out: int) -> Tensor:
        found, _ = self._layer()
        return ops.matmul(x, found["weight"].tensor(), found["bias"].tensor(), transpose_b=True)

    def relu(self, x: Tensor) -> Tensor:
        self._layer()
        return ops.relu(x)

    def relu6(self, x: Tensor) -> Tensor:
        self._layer()
        return ops.clip(x, 0.0, 6.0)

    def max_pool(self, x: Tensor, kernel: int, stride: int, pad: int = 0) -> Tensor:
        self._layer()
        return ops.pool(x, kernel=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)[0]

    def dropout(self, x: Tensor) -> Tensor:
        number = self.at
        _, layer = self._layer()
        counter = self.graph.variable(f"layers.{number}.counter", np.int64(0))
        self.updates[counter] = counter + 1
        shape = list(x.static_shape or ())
        random = linnet.graph.emit("random", [counter.tensor()], {"kind": "uniform", "shape": shape, "stream": number})[
            0
        ]
        return ops.where(random >= layer.p, x / (1 - layer.p), 0.0 * x)

    def flatten(self, x: Tensor) -> Tensor:
        return ops.reshape(x, [0, -1])

    def mean(self, x: Tensor) -> Tensor:
        return ops.reduce(x, kind="mean", axes=[2, 3], keep_dims=False)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


def lenet5(m: Any, x: Any) -> Any:
    """LeCun et al., "Gradient-based learning applied to document recognition", 1998, with today's activations."""
    x = m.max_pool(m.relu(m.conv(x, 6, 5, pad=2)), 2, 2)
    x = m.flatten(m.max_pool(m.relu(m.conv(x, 16, 5)), 2, 2))
    return m.linear(m.relu(m.linear(m.relu(m.linear(x, 120)), 84)), 10)


def mlp(m: Any, x: Any) -> Any:
    return m.linear(m.relu(m.linear(m.relu(m.linear(x, 512)), 512)), 10)


def alexnet(m: Any, x: Any) -> Any:
    """Krizhevsky et al., "ImageNet classification with deep convolutional neural networks", 2012, without its LRN."""
    x = m.max_pool(m.relu(m.conv(x, 96, 11, 4)), 3, 2)
    x = m.max_pool(m.relu(m.conv(x, 256, 5, pad=2, group=2)), 3, 2)
    x = m.relu(m.conv(x, 384, 3, pad=1))
    x = m.relu(m.conv(x, 384, 3, pad=1, group=2))
    x = m.flatten(m.max_pool(m.relu(m.conv(x, 256, 3, pad=1, group=2)), 3, 2))
    x = m.dropout(m.relu(m.linear(x, 4096)))
    return m.linear(m.dropout(m.relu(m.linear(x, 4096))), 1000)


def resnet18(m: Any, x: Any, classes: int = 1000) -> Any:
    """He et al., "Deep residual learning for image recognition", 2016, table 1."""
    x = m.max_pool(m.relu(m.norm(m.conv(x, 64, 7, 2, 3, bias=False))), 3, 2, 1)
    for width in (64, 128, 256, 512):
        for block in range(2):
            stride = 2 if width > 64 and block == 0 else 1
            y = m.relu(m.norm(m.conv(x, width, 3, stride, 1, bias=False)))
            y = m.norm(m.conv(y, width, 3, 1, 1, bias=False))
            if stride == 2:
                x = m.norm(m.conv(x, width, 1, 2, bias=False))
            x = m.relu(m.add(y, x))
    return m.linear(m.mean(x), classes)


def mobilenet_v2(m: Any, x: Any, classes: int = 1000) -> Any:
    """Sandler et al., "MobileNetV2: inverted residuals and linear bottlenecks", 2018, table 2."""
    x = m.relu6(m.norm(m.conv(x, 32, 3, 2, 1, bias=False)))
    width = 32
    for expand, out, count, first in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for i in range(count):
            stride, hidden = first if i == 0 else 1, width * expand
            y = x if expand == 1 else m.relu6(m.norm(m.conv(x, hidden, 1, bias=False)))
            y = m.relu6(m.norm(m.conv(y, hidden, 3, stride, 1, hidden, bias=False)))
            y = m.norm(m.conv(y, out, 1, bias=False))
            x = m.add(x, y) if stride == 1 and width == out else y
            width = out
    x = m.relu6(m.norm(m.conv(x, 1280, 1, bias=False)))
    return m.linear(m.dropout(m.mean(x)), classes)


MODELS: dict[str, tuple[Callable[..., Any], tuple[int, ...], int]] = {
    "lenet5": (lenet5, (64, 1, 28, 28), 10),
    "mlp": (mlp, (64, 784), 10),
    "mobilenet_v2": (mobilenet_v2, (8, 3, 224, 224), 1000),
    "alexnet": (alexnet, (16, 3, 227, 227), 1000),
    "resnet18": (resnet18, (8, 3, 224, 224), 1000),
}
"""Name: the description, the shape of a batch as in the benchmark, and the number of classes."""


def batch(name: str, shape: tuple[int, ...] | None = None, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Random images and labels."""
    _, usual, classes = MODELS[name]
    generator = torch.Generator().manual_seed(seed)
    shape = shape or usual
    return torch.randn(shape, generator=generator), torch.randint(0, classes, (shape[0],), generator=generator)


def twin(name: str, shape: tuple[int, ...] | None = None) -> Twin:
    """PyTorch's network, in training mode."""
    torch.manual_seed(0)
    return Twin(MODELS[name][0], batch(name, shape)[0])


def graph_of(
    name: str, peer: Twin, shape: tuple[int, ...] | None = None, rate: float = 0.01, gradients: bool = False
) -> linnet.Graph:
    """A signature `train` with inputs x and t (i64 labels), output loss and plain SGD as updates; gradients: also one output
    per trained variable, under the twin's name of it."""
    describe, usual, _ = MODELS[name]
    shape = shape or usual
    graph = linnet.Graph()
    dtype = linnet.graph.dtype_of(next(peer.parameters()).detach().numpy().dtype)
    x, t = graph.placeholder("x", shape, dtype), graph.placeholder("t", shape[:1], "i64")
    m = Builder(graph, peer)
    logits = describe(m, x)
    picked = ops.gather(ops.softmax(logits, log=True), ops.reshape(t, [-1, 1]), kind="elements", axis=1)
    loss = -picked.mean()
    made = dict(zip(m.trained.values(), linnet.gradients(loss, list(m.trained.values())), strict=True))
    updates = {**m.updates, **{v: v - rate * g for v, g in made.items()}}
    outputs = {"loss": loss, **({f"gradient of {v.name}": g for v, g in made.items()} if gradients else {})}
    graph.signature("train", {"x": x, "t": t}, outputs, updates=updates)
    return linnet.passes.run(graph)
