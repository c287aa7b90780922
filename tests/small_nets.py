"""Small nets of every kind for tests of training: convolutions with batch norm, depthwise ones, inception, an encoder, and
recurrent layers. `training` makes a graph with the signature `train` and its feeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import linnet
from linnet import nn, ops
from linnet.ir.function import Tensor

_WORDS, _CLASSES = 50, 10


def lenet(x: Tensor) -> Tensor:
    """LeNet-5."""
    x = nn.max_pool(nn.conv(x, 6, 5, padding="same", activation="relu"), 2)
    x = nn.flatten(nn.max_pool(nn.conv(x, 16, 5, activation="relu"), 2))
    return nn.dense(nn.dense(nn.dense(x, 120, activation="relu"), 84, activation="relu"), 10)


def mobile(x: Tensor) -> Tensor:
    """A small MobileNetV2: depthwise convolutions, batch norm, residuals."""
    x = nn.relu(nn.batch_norm(nn.conv(x, 8, 3, stride=2, padding=1), True))
    for out, stride, residual in ((8, 1, True), (12, 2, False), (12, 1, True)):
        y = nn.relu(nn.batch_norm(nn.conv(x, 16, 1), True))
        y = nn.relu(nn.batch_norm(nn.depthwise_conv(y, 3, stride=stride, padding=1), True))
        y = nn.batch_norm(nn.conv(y, out, 1), True)
        x = x + y if residual else y
    return nn.dense(nn.global_avg_pool(x), 10)


def alex(x: Tensor) -> Tensor:
    """A small AlexNet: groups, max pools that overlap, dropout."""
    x = nn.max_pool(nn.conv(x, 16, 5, stride=2, activation="relu"), 3, stride=2)
    x = nn.max_pool(nn.conv(x, 24, 3, padding=1, groups=2, activation="relu"), 2, stride=1)
    return nn.dense(nn.dropout(nn.dense(nn.flatten(x), 64, activation="relu"), 0.5, True), 10)


def google(x: Tensor) -> Tensor:
    """An inception module of GoogLeNet: branches, concat, average pool, dropout."""
    x = nn.conv(x, 8, 3, padding=1, activation="relu")
    a = nn.conv(x, 4, 1, activation="relu")
    b = nn.conv(nn.conv(x, 6, 1, activation="relu"), 8, 3, padding=1, activation="relu")
    c = nn.conv(nn.conv(x, 2, 1, activation="relu"), 4, 5, padding=2, activation="relu")
    d = nn.conv(nn.max_pool(x, 3, stride=1, padding=1), 4, 1, activation="relu")
    x = ops.concat([a, b, c, d], axis=1)
    x = nn.avg_pool(x, 4, stride=3)
    return nn.dense(nn.dropout(nn.flatten(x), 0.4, True), 10)


def encoder(x: Tensor) -> Tensor:
    """A layer of a transformer's encoder, with dropout."""
    x = nn.transformer_encoder_layer(nn.embedding(x, _WORDS, 32), 4, 64, dropout=0.1, training=True)
    return nn.dense(ops.reshape(x, [-1, 32]), _WORDS)


def lstm(x: Tensor) -> Tensor:
    """A language model."""
    y = nn.lstm(nn.embedding(x, _WORDS, 24), 32)[0]
    return nn.dense(ops.reshape(y, [-1, 32]), _WORDS)


def gru(x: Tensor) -> Tensor:
    """A language model."""
    y = nn.gru(nn.embedding(x, _WORDS, 24), 32)[0]
    return nn.dense(ops.reshape(y, [-1, 32]), _WORDS)


NETS: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...]]] = {
    "lenet": (lenet, (8, 1, 28, 28)),
    "mobile": (mobile, (4, 3, 32, 32)),
    "alex": (alex, (4, 3, 41, 41)),
    "google": (google, (4, 3, 16, 16)),
    "encoder": (encoder, (2, 12)),
    "lstm": (lstm, (3, 9)),
    "gru": (gru, (3, 9)),
}
"""Each with the shape of a batch: images, or ids of words."""


def training(name: str, optimizer: linnet.Optimizer, dtype: str = "f32") -> tuple[linnet.Graph, dict[str, np.ndarray]]:
    """The graph with the signature `train`, whose output is the loss, and its feeds."""
    net, shape = NETS[name]
    graph, rng, words = linnet.Graph(seed=1), np.random.default_rng(0), len(shape) == 2
    x = graph.placeholder("x", shape, "i32" if words else "f32")
    count = int(np.prod(shape)) if words else shape[0]
    target = graph.placeholder("t", (count,), "i32")
    logits = net(x if words else x.cast(dtype))
    loss = linnet.softmax_cross_entropy(logits.cast("f32"), target).mean()
    graph.signature("train", {"x": x, "t": target}, {"loss": loss}, updates=optimizer.minimize(loss))
    labels = rng.integers(0, _WORDS if words else _CLASSES, count).astype(np.int32)
    given = rng.integers(0, _WORDS, shape).astype(np.int32) if words else rng.standard_normal(shape).astype(np.float32)
    return graph, {"x": given, "t": labels}


def compare_steps(graph: linnet.Graph, feeds: dict[str, np.ndarray], device: Any, allowed: float = 1e-4) -> None:
    """Ten steps of the signature `train` on the device: none falls back, and the losses and all variables are those of the CPU,
    within a fraction of a variable's range."""

    def run(**options: Any) -> tuple[list[float], dict[str, np.ndarray], set[str]]:
        session = linnet.Session(graph, "train", **options)
        fallen = {step.op for step in session.steps if step.placed == "cannot"}
        losses = [float(session.run(feeds)["loss"]) for _ in range(10)]
        return losses, {key: np.array(session.variables[key]) for key in session.variables}, fallen

    (got, variables, fallen), (want, expected, _) = run(device=device), run()
    assert not fallen
    np.testing.assert_allclose(got, want, rtol=allowed)
    for key, value in expected.items():
        # A bias in front of batch norm has the gradient 0, but for rounding.
        span = max(float(np.abs(value).max()), 1e-2)
        np.testing.assert_allclose(variables[key], value, rtol=0, atol=allowed * span, err_msg=key)
