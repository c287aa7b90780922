"""Small networks in which one layer was made hostile to 8 or 16 bits on purpose, each by another cause and with another
structure. `healthy=True` gives the same structure without the cause."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import linnet
from linnet import ops
from linnet.ir.function import Tensor

Array = npt.NDArray[np.float32]
Feeds = dict[str, Array]
Maker = Callable[["Net", bool], tuple[dict[str, Tensor], Tensor]]


class Net:
    """A graph under construction with a seeded generator of weights."""

    def __init__(self, seed: int) -> None:
        self.graph, self.rng = linnet.Graph(), np.random.default_rng(seed)

    def weight(self, *shape: int) -> Array:
        inputs = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
        return (self.rng.standard_normal(shape) * np.sqrt(2 / inputs)).astype(np.float32)

    def conv(self, x: Tensor, weight: Array, name: str, bias: Array | None = None, **more: object) -> Tensor:
        pads = [(weight.shape[2] - 1) // 2] * 4
        values = [self.graph.constant(weight, f"{name}_w")] + (
            [] if bias is None else [self.graph.constant(bias, f"{name}_b")]
        )
        return ops.conv(x, *values, pads=pads, name=name, **more)  # type: ignore[arg-type]

    def matmul(self, x: Tensor, weight: Array, name: str) -> Tensor:
        return ops.matmul(x, self.graph.constant(weight, f"{name}_w"), name=name)

    def head(self, x: Tensor, channels: int, name: str = "head") -> Tensor:
        """Ten scores of a picture: a product with the means of its channels."""
        return self.matmul(ops.mean(x, [2, 3], name="pooled"), self.weight(channels, 10), name)


@dataclass(frozen=True)
class Hostile:
    """layers: names of the tensors or layers of which the worst has to be one. dtype: to which the model is quantized. scale:
    of the inputs in calibration, by name; the other samples keep their scale."""

    make: Maker
    layers: tuple[str, ...]
    dtype: str = "i8"
    scale: float = 1.0

    def graph(self, healthy: bool = False) -> linnet.Graph:
        net = Net(7)
        inputs, y = self.make(net, healthy)
        net.graph.signature("infer", inputs, {"y": y})
        return net.graph

    def samples(self, count: int = 8, first: int = 0, calibration: bool = False) -> list[Feeds]:
        net = Net(7)
        inputs, _ = self.make(net, False)
        made = []
        for i in range(first, first + count):
            rng = np.random.default_rng(100 + i)
            feeds = {name: rng.standard_normal(t.static_shape).astype(np.float32) for name, t in inputs.items()}
            if calibration and self.scale != 1.0:
                feeds[list(feeds)[-1]] *= np.float32(self.scale)
            made.append(feeds)
        return made


def _channel(net: Net, healthy: bool) -> tuple[dict[str, Tensor], Tensor]:
    """Channel 2 of the second convolution is 1000 times as large, and its reader takes that back."""
    x = net.graph.placeholder("x", (1, 3, 16, 16))
    a, b, c = net.weight(12, 3, 3, 3), net.weight(12, 12, 3, 3), net.weight(12, 12, 3, 3)
    if not healthy:
        b[2] *= 1000
        c[:, 2] /= 1000
    y = ops.relu(net.conv(x, a, "first"), name="first_relu")
    y = ops.relu(net.conv(y, b, "second"), name="second_relu")
    return {"x": x}, net.head(ops.relu(net.conv(y, c, "third"), name="third_relu"), 12)


def _input(net: Net, healthy: bool) -> tuple[dict[str, Tensor], Tensor]:
    """One feature of the input is 500 times as large as the others."""
    x = net.graph.placeholder("x", (4, 32))
    size = np.ones(32, np.float32)
    a = net.weight(32, 48)
    if not healthy:
        size[5] = 500
        a[5] /= 500
    y = ops.multiply(x, net.graph.constant(size), name="features")
    y = ops.tanh(net.matmul(y, a, "in"), name="in_tanh")
    y = ops.tanh(net.matmul(y, net.weight(48, 48), "middle"), name="middle_tanh")
    return {"x": x}, net.matmul(y, net.weight(48, 6), "out")


def _bias(net: Net, healthy: bool) -> tuple[dict[str, Tensor], Tensor]:
    """A residual stream in which one channel is near 1e4."""
    x = net.graph.placeholder("x", (1, 8, 12, 12))
    bias = np.zeros(8, np.float32)
    c = net.weight(8, 8, 3, 3)
    if not healthy:
        bias[1] = 1e4
        c[:, 1] *= 1e-4
    y = ops.sigmoid(net.conv(x, net.weight(8, 8, 3, 3), "stem"), name="stem_sigmoid")
    y = ops.add(net.conv(y, net.weight(8, 8, 1, 1), "branch", bias), y, name="stream")
    return {"x": x}, net.head(ops.sigmoid(net.conv(y, c, "after"), name="after_sigmoid"), 8)


def _norm(net: Net, healthy: bool) -> tuple[dict[str, Tensor], Tensor]:
    """A normalization that was written as E[x^2] - E[x]^2, of values with a mean far from 0."""
    x = net.graph.placeholder("x", (1, 64, 64))
    y = net.matmul(x, net.weight(64, 64), "project")
    y = ops.add(y, net.graph.constant(np.full(64, 0 if healthy else 60, np.float32)), name="shifted")
    squares = ops.matmul(
        ops.multiply(y, y, name="squares"), net.graph.constant(np.full((64, 1), 1 / 64, np.float32)), name="moment"
    )
    mean = ops.mean(y, [2], keep_dims=True, name="mean")
    variance = ops.subtract(squares, ops.multiply(mean, mean, name="mean2"), name="variance")
    spread = ops.sqrt(ops.add(ops.absolute(variance, name="positive"), 0.1, name="floor"), name="spread")
    y = ops.divide(ops.subtract(y, mean, name="centred"), spread, name="normed")
    return {"x": x}, net.matmul(y, net.weight(64, 8), "out")


def _range(net: Net, healthy: bool) -> tuple[dict[str, Tensor], Tensor]:
    """The second input was calibrated with values 30 times too small."""
    x, z = net.graph.placeholder("x", (4, 24)), net.graph.placeholder("z", (4, 24))
    a = ops.tanh(net.matmul(x, net.weight(24, 32), "left"), name="left_tanh")
    b = ops.tanh(ops.multiply(net.matmul(z, net.weight(24, 32), "right"), 0.5), name="right_tanh")
    y = ops.relu(net.matmul(ops.concat([a, b], axis=1), net.weight(64, 32), "joined"), name="joined_relu")
    return {"x": x, "z": z}, net.matmul(y, net.weight(32, 5), "out")


def _concat(net: Net, healthy: bool) -> tuple[dict[str, Tensor], Tensor]:
    """Branches of ranges 200 and 0.5 share one scale in a concat."""
    x = net.graph.placeholder("x", (1, 4, 16, 16))
    wide = 1 if healthy else 400
    a, c = net.weight(8, 4, 3, 3) * np.float32(wide), net.weight(16, 1, 3, 3)
    c[:8] /= wide
    left = ops.relu(net.conv(x, a, "wide"), name="wide_relu")
    right = ops.relu(net.conv(x, net.weight(8, 4, 1, 1), "narrow"), name="narrow_relu")
    y = ops.concat([left, right], axis=1, name="packed")
    return {"x": x}, net.head(ops.relu(net.conv(y, c, "depthwise", group=16), name="depthwise_relu"), 16)


def _attention(net: Net, healthy: bool) -> tuple[dict[str, Tensor], Tensor]:
    """One channel of the keys is 300 times as large, and that of the queries as small."""
    x = net.graph.placeholder("x", (1, 24, 32))
    q, k = net.weight(32, 32), net.weight(32, 32)
    if not healthy:
        k[:, 3] *= 300
        q[:, 3] /= 300
    queries, keys = net.matmul(x, q, "queries"), net.matmul(x, k, "keys")
    scores = ops.matmul(queries, keys, transpose_b=True, name="scores")
    seen = ops.softmax(ops.multiply(scores, 0.3), name="attention")
    y = ops.add(ops.matmul(seen, net.matmul(x, net.weight(32, 32), "values"), name="mixed"), x, name="stream")
    return {"x": x}, net.matmul(y, net.weight(32, 8), "out")


def _groups(net: Net, healthy: bool) -> tuple[dict[str, Tensor], Tensor]:
    """A transposed convolution in two groups, whose weights have one scale; those of the first group are 300 times as large."""
    x = net.graph.placeholder("x", (1, 8, 8, 8))
    y = ops.relu(net.conv(x, net.weight(8, 8, 3, 3), "stem"), name="stem_relu")
    w = net.weight(8, 4, 2, 2)
    gain = np.ones((1, 8, 1, 1), np.float32)
    if not healthy:
        w[:4] *= 300
        gain[:, :4] /= 300
    y = ops.conv_transpose(y, net.graph.constant(w, "up_w"), strides=[2, 2], group=2, name="up")
    y = ops.tanh(ops.multiply(y, net.graph.constant(gain)), name="up_tanh")
    return {"x": x}, net.head(ops.relu(net.conv(y, net.weight(8, 8, 3, 3), "last"), name="last_relu"), 8)


def _logarithm(net: Net, healthy: bool) -> tuple[dict[str, Tensor], Tensor]:
    """Powers over many decades are stored between a product and a logarithm."""
    x = net.graph.placeholder("x", (1, 128, 40))
    decades = np.logspace(0, 0 if healthy else -5, 40, dtype=np.float32)
    y = net.matmul(x, np.diag(decades).astype(np.float32), "bands")
    y = net.matmul(ops.multiply(y, y, name="powers"), np.eye(40, dtype=np.float32), "bank")
    y = ops.log(ops.add(ops.absolute(y), 1e-9 if not healthy else 0.1), name="levels")
    return {"x": x}, net.matmul(ops.tanh(ops.multiply(y, 0.1)), net.weight(40, 6), "out")


def _overflow(net: Net, healthy: bool) -> tuple[dict[str, Tensor], Tensor]:
    """A sum of squares that f16 cannot hold."""
    x = net.graph.placeholder("x", (2, 64))
    y = net.matmul(x, net.weight(64, 64) * np.float32(1 if healthy else 60), "large")
    squares = ops.sum(ops.multiply(y, y, name="squares"), [1], keep_dims=True, name="sum")
    y = ops.divide(y, ops.sqrt(squares, name="length"), name="unit")
    return {"x": x}, net.matmul(y, net.weight(64, 8), "out")


HOSTILE = {
    "channel": Hostile(_channel, ("second", "second_relu")),
    "input": Hostile(_input, ("features", "in")),
    "bias": Hostile(_bias, ("stream", "branch", "after")),
    "norm": Hostile(_norm, ("squares", "shifted", "moment")),
    "range": Hostile(_range, ("right",), scale=1 / 30),
    "concat": Hostile(_concat, ("packed", "narrow", "narrow_relu", "wide_relu")),
    "attention": Hostile(_attention, ("keys", "scores")),
    "groups": Hostile(_groups, ("up",)),
    "logarithm": Hostile(_logarithm, ("bank", "powers", "bands")),
    "overflow": Hostile(_overflow, ("squares", "sum"), "f16", scale=1 / 60),
}
