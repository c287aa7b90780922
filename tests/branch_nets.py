"""Networks whose graphs fall into branches that need nothing of each other: for tests and the benchmark of steps that run side
by side. All have random weights and the one input `x`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import linnet
from linnet import nn, ops
from linnet.ir.function import Tensor


def conv(x: Tensor, channels: int, kernel: int = 3) -> Tensor:
    return nn.conv(x, channels, kernel, padding=kernel // 2, activation="relu")


def tower(x: Tensor, depth: int, channels: int) -> Tensor:
    for _ in range(depth):
        x = conv(x, channels)
    return x


def towers(count: int = 4, depth: int = 4, channels: int = 16, size: int = 14) -> linnet.Graph:
    """Towers of convolutions over one input."""
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", (1, channels, size, size))
    joined = ops.concat([tower(x, depth, channels) for _ in range(count)], axis=1)
    graph.signature("infer", {"x": x}, {"y": ops.mean(joined, axis=(2, 3))})
    return graph


def lstms(count: int = 4, steps: int = 30, inputs: int = 24, size: int = 48) -> linnet.Graph:
    """LSTMs over one sequence: their last states."""
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", (1, steps, inputs))
    last = [nn.lstm(x, size)[1] for _ in range(count)]
    graph.signature("infer", {"x": x}, {"y": ops.concat(last, axis=-1)})
    return graph


def interleaved() -> linnet.Graph:
    """Three towers whose nodes alternate. The last one is as long as the others together."""
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", (1, 16, 14, 14))
    parts = [x, x, x]
    for k in range(6):
        parts = [conv(part, 16) if k < depth else part for part, depth in zip(parts, (3, 3, 6), strict=True)]
    graph.signature("infer", {"x": x}, {"y": ops.concat(parts, axis=1)})
    return graph


def uneven() -> linnet.Graph:
    """A long branch and a short one: two threads do more in one step after another."""
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", (1, 32, 56, 56))
    graph.signature("infer", {"x": x}, {"y": tower(x, 4, 32) + conv(x, 32)})
    return graph


def nested() -> linnet.Graph:
    """Two branches, each of which falls into two, with a shortcut around one of them; then another such pair."""
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", (1, 12, 16, 16))
    y = x
    for _ in range(2):
        halves = []
        for depth in (2, 3):
            z = conv(y, 12)
            halves.append(conv(z + tower(z, depth, 12) + tower(z, depth, 12), 12))
        y = halves[0] + ops.exp(-halves[1])
    graph.signature("infer", {"x": x}, {"y": y})
    return graph


def views() -> linnet.Graph:
    """Branches over parts of one value, whose first steps could overwrite it, and whose results are parts of another."""
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", (4, 64, 64))
    scaled = x * 0.5 + 1.0
    w = [graph.constant(np.random.default_rng(i).standard_normal((64, 64)).astype(np.float32) / 8) for i in range(4)]
    parts = []
    for i, part in enumerate(ops.split(scaled, 4)):
        z = ops.tanh(part * 2.0) @ w[i]
        parts.append(ops.sigmoid(ops.exp(ops.tanh(z @ w[i])) @ w[i] + part))
    graph.signature("infer", {"x": x}, {"y": ops.concat(parts, axis=0)})
    return graph


def residual() -> linnet.Graph:
    """One branch begins with a step that could overwrite a value which the end of the other one reads."""
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", (64, 96))
    w = [graph.constant(np.random.default_rng(i).standard_normal((96, 96)).astype(np.float32) / 10) for i in range(8)]
    shared = ops.tanh(x @ w[0]) @ w[1]
    long, short = shared, ops.tanh(shared * 2.0)
    for i in range(2, 7):
        long, short = ops.tanh(long @ w[i]), short @ w[7] if i < 6 else short
    graph.signature("infer", {"x": x}, {"y": ops.exp((long + shared) @ w[7]) - ops.tanh(short @ w[2]) @ w[3]})
    return graph


def heads() -> linnet.Graph:
    """A trunk and three heads of different kinds. Each head is an output, and so is a value inside one of them."""
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", (1, 8, 20, 20))
    trunk = tower(x, 2, 16)
    inside = tower(trunk, 2, 16)
    first = ops.softmax(ops.mean(tower(inside, 1, 16), axis=(2, 3)))
    second = nn.max_pool(tower(trunk, 3, 16), 2)
    third = ops.transpose(conv(tower(trunk, 2, 16), 4, 1), [0, 2, 3, 1])
    graph.signature("infer", {"x": x}, {"first": first, "inside": inside, "second": second, "third": third})
    return graph


def looks_up(rows: int = 50) -> linnet.Graph:
    """Two tables of `rows` words, each looked up in a branch of its own: a word that is not in them is an error."""
    graph = linnet.Graph(seed=1)
    x = graph.placeholder("x", (1, 20), "i64")
    w = graph.constant(np.random.default_rng(3).standard_normal((96, 96)).astype(np.float32) / 10)
    sums = []
    for i in range(2):
        table = graph.constant(np.random.default_rng(i).standard_normal((rows + i, 96)).astype(np.float32))
        z = ops.gather(table, x, name=f"words{i}")
        for _ in range(4):
            z = ops.tanh(z @ w)
        sums.append(z)
    graph.signature("infer", {"x": x}, {"y": sums[0] * sums[1]})
    return graph


ALL: dict[str, Callable[[], linnet.Graph]] = {
    "towers": towers, "lstms": lstms, "interleaved": interleaved, "nested": nested, "views": views,
    "residual": residual, "heads": heads, "looks_up": looks_up,
}  # fmt: skip
