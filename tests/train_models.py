"""Models that tests and benchmarks train: each is described once and built with PyTorch and with linnet. `MODELS[name]`
describes a network in terms of a backend's layers. `twin` makes PyTorch's, `graph_of` linnet's with its weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import linnet
from examples.evaluation.networks import alexnet, googlenet, overfeat, oxfordnet
from linnet import ops
from linnet.ir.function import Tensor, Variable
from tests.with_torch import torch

# isort: split
from examples.evaluation import in_torch  # needs PyTorch; without it, the import above skips the test module

nn = torch.nn


class Twin(in_torch.Network):  # type: ignore[misc]
    """PyTorch's layers, with those of the other networks."""

    def norm(self, x: Any) -> Any:
        return self._layer(lambda: nn.BatchNorm2d(x.shape[1]), x)

    def embedding(self, x: Any, count: int, width: int) -> Any:
        return self._layer(lambda: nn.Embedding(count, width), x)

    def positions(self, x: Any, longest: int) -> Any:
        return x + self._layer(lambda: nn.Embedding(longest, x.shape[-1]), torch.arange(x.shape[1]))

    def lstm(self, x: Any, units: int) -> Any:
        return self._layer(lambda: nn.LSTM(x.shape[-1], units), x)[0]

    def encoder(self, x: Any, heads: int, hidden: int) -> Any:
        def make() -> nn.Module:
            return nn.TransformerEncoderLayer(x.shape[-1], heads, hidden, 0.0, "gelu", batch_first=True)

        return self._layer(make, x)

    def tokens(self, x: Any) -> Any:
        return x.reshape(-1, x.shape[-1])

    def relu6(self, x: Any) -> Any:
        return self._layer(lambda: nn.ReLU6(inplace=True), x)

    def add(self, x: Any, y: Any) -> Any:
        return x + y


def as_linnet(name: str, value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Converts a parameter of PyTorch, or its gradient, to linnet's form: the gates of an LSTM are in ONNX's order there."""
    if not name.endswith("_l0"):
        return value
    i, f, g, o = np.split(value, 4)
    return np.concatenate([i, o, f, g])


class Builder:
    """linnet's layers, over variables that start with the twin's values."""

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
            found[name] = self.graph.variable(f"layers.{number}.{name}", as_linnet(name, value.numpy()))
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

    def embedding(self, x: Tensor, count: int, width: int) -> Tensor:
        return ops.gather(self._layer()[0]["weight"].tensor(), x)

    def positions(self, x: Tensor, longest: int) -> Tensor:
        return x + self._layer()[0]["weight"][: (x.static_shape or ())[1]]

    def lstm(self, x: Tensor, units: int) -> Tensor:
        found = {name: v.tensor() for name, v in self._layer()[0].items()}
        bias = found["bias_ih_l0"] + found["bias_hh_l0"]
        p = ops.matmul(x, found["weight_ih_l0"], bias, transpose_b=True)
        y = ops.recurrent(p, ops.expand_dims(found["weight_hh_l0"], 0), kind="lstm")[0]
        return ops.squeeze(y, 1)

    def encoder(self, x: Tensor, heads: int, hidden: int) -> Tensor:
        found = {name: v.tensor() for name, v in self._layer()[0].items()}

        def linear(x: Tensor, name: str, end: str = ".") -> Tensor:
            return ops.matmul(x, found[f"{name}{end}weight"], found[f"{name}{end}bias"], transpose_b=True)

        def norm(x: Tensor, name: str) -> Tensor:
            return ops.layer_norm(x, found[f"{name}.weight"], found[f"{name}.bias"])[0]

        batch, time, width = x.static_shape or ()
        split = ops.reshape(linear(x, "self_attn.in_proj", "_"), [batch, time, 3, heads, width // heads])
        query, key, value = (ops.squeeze(t, 0) for t in ops.split(ops.transpose(split, [2, 0, 3, 1, 4]), 3, 0))
        y = linnet.nn.scaled_dot_product_attention(query, key, value)
        y = linear(ops.reshape(ops.transpose(y, [0, 2, 1, 3]), [batch, time, width]), "self_attn.out_proj")
        x = norm(x + y, "norm1")
        return norm(x + linear(ops.gelu(linear(x, "linear1")), "linear2"), "norm2")

    def tokens(self, x: Tensor) -> Tensor:
        return ops.reshape(x, [-1, (x.static_shape or ())[-1]])

    def relu(self, x: Tensor) -> Tensor:
        self._layer()
        return ops.relu(x)

    def relu6(self, x: Tensor) -> Tensor:
        self._layer()
        return ops.clip(x, 0.0, 6.0)

    def max_pool(self, x: Tensor, kernel: int, stride: int, pad: int = 0) -> Tensor:
        self._layer()
        return ops.pool(x, kernel=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)[0]

    def concat(self, *x: Tensor) -> Tensor:
        return ops.concat(list(x), 1)

    def dropout(self, x: Tensor) -> Tensor:
        number = self.at
        _, layer = self._layer()
        counter = self.graph.variable(f"layers.{number}.counter", np.int64(0))
        self.updates[counter] = counter + 1
        shape = list(x.static_shape or ())
        random = linnet.ir.function.emit(
            "random", [counter.tensor()], {"kind": "uniform", "shape": shape, "stream": number}
        )[0]
        return ops.where(random >= layer.p, x / (1 - layer.p), 0.0 * x)

    def flatten(self, x: Tensor) -> Tensor:
        return ops.reshape(x, [0, -1])

    def mean(self, x: Tensor) -> Tensor:
        return ops.reduce(x, kind="mean", axis=[2, 3], keep_dims=False)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


def lenet5(m: Any, x: Any) -> Any:
    """LeCun et al., "Gradient-based learning applied to document recognition", 1998, with today's activations."""
    x = m.max_pool(m.relu(m.conv(x, 6, 5, pad=2)), 2, 2)
    x = m.flatten(m.max_pool(m.relu(m.conv(x, 16, 5)), 2, 2))
    return m.linear(m.relu(m.linear(m.relu(m.linear(x, 120)), 84)), 10)


def mlp(m: Any, x: Any) -> Any:
    return m.linear(m.relu(m.linear(m.relu(m.linear(x, 512)), 512)), 10)


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


def lstm_lm(m: Any, x: Any, vocabulary: int = 10000, units: int = 512) -> Any:
    """A language model over [time, batch] (Zaremba et al., "Recurrent neural network regularization", 2014): one layer."""
    return m.linear(m.tokens(m.lstm(m.embedding(x, vocabulary, units), units)), vocabulary)


def transformer(m: Any, x: Any, vocabulary: int = 2000, width: int = 256, heads: int = 8, layers: int = 4) -> Any:
    """The encoder of Vaswani et al., "Attention is all you need", 2017, with GELU, over [batch, time]; a class per token."""
    x = m.positions(m.embedding(x, vocabulary, width), 512)
    for _ in range(layers):
        x = m.encoder(x, heads, 4 * width)
    return m.linear(m.tokens(x), vocabulary)


MODELS: dict[str, tuple[Callable[..., Any], tuple[int, ...], int]] = {
    "lenet5": (lenet5, (64, 1, 28, 28), 10),
    "mlp": (mlp, (64, 784), 10),
    "mobilenet_v2": (mobilenet_v2, (8, 3, 224, 224), 1000),
    "alexnet": (alexnet, (16, 3, 227, 227), 1000),
    "overfeat": (overfeat, (128, 3, 231, 231), 1000),
    "oxfordnet": (oxfordnet, (64, 3, 224, 224), 1000),
    "googlenet": (googlenet, (128, 3, 224, 224), 1000),
    "resnet18": (resnet18, (8, 3, 224, 224), 1000),
    "lstm_lm": (lstm_lm, (20, 20), 10000),
    "transformer": (transformer, (16, 64), 2000),
}
"""Name: the description, the shape of a batch in the benchmark, and the number of classes."""
SEQUENCES = ("lstm_lm", "transformer")  # inputs are ids below the number of classes, each with a label


def batch(name: str, shape: tuple[int, ...] | None = None, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Random images (or ids) and labels."""
    _, usual, classes = MODELS[name]
    generator = torch.Generator().manual_seed(seed)
    shape = shape or usual
    if name in SEQUENCES:
        ids = torch.randint(0, classes, (2, *shape), generator=generator)
        return ids[0], ids[1].reshape(-1)
    return torch.randn(shape, generator=generator), torch.randint(0, classes, (shape[0],), generator=generator)


def twin(name: str, shape: tuple[int, ...] | None = None) -> Twin:
    """PyTorch's network, in training mode."""
    torch.manual_seed(0)
    return Twin(MODELS[name][0], batch(name, shape)[0])


def graph_of(
    name: str, peer: Twin, shape: tuple[int, ...] | None = None, rate: float = 0.01, gradients: bool = False
) -> linnet.Graph:
    """A signature `train` with inputs x and t (i64 labels), output loss and plain SGD as updates.

    gradients: also one output per trained variable, under the twin's name."""
    describe, usual, _ = MODELS[name]
    shape = shape or usual
    graph = linnet.Graph()
    words = name in SEQUENCES
    dtype = linnet.ir.dtypes.dtype_of(next(peer.parameters()).detach().numpy().dtype)
    x = graph.placeholder("x", shape, "i64" if words else dtype)
    t = graph.placeholder("t", (int(np.prod(shape)),) if words else shape[:1], "i64")
    m = Builder(graph, peer)
    logits = describe(m, x)
    loss = linnet.softmax_cross_entropy(logits, t).mean()
    wanted = linnet.gradients(loss, list(m.trained.values())) if gradients else []
    updates = {**m.updates, **linnet.SGD(rate).minimize(loss, list(m.trained.values()))}
    outputs = {"loss": loss, **{f"gradient of {v.name}": g for v, g in zip(m.trained.values(), wanted, strict=False)}}
    graph.signature("train", {"x": x, "t": t}, outputs, updates=updates)
    return linnet.passes.run(graph)
