"""`python -m examples.training.softmax_mnist`: softmax regression on MNIST, as in TensorFlow's introduction:
y = softmax(x @ W + b), loss -sum(y_ * log(y)), gradient descent by 0.01, 1,000 steps of 100 digits, weights from zero."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

import linnet
from examples import datasets
from linnet import ops
from linnet._fetch import FetchError

from . import plot


def build() -> linnet.Graph:
    """Signatures: `train` {x [N, 784], y_ [N, 10] one-hot} -> loss; `infer` {x} -> y, the probabilities."""
    graph = linnet.Graph()
    x = graph.placeholder("x", ("batch", 784))
    y_ = graph.placeholder("y_", ("batch", 10))
    weights = graph.variable("W", linnet.init.zeros((784, 10)))
    biases = graph.variable("b", linnet.init.zeros(10))
    y = ops.softmax(x @ weights + biases)
    loss = -(y_ * ops.log(y)).sum()
    graph.signature("train", {"x": x, "y_": y_}, {"loss": loss}, updates=linnet.SGD(0.01).minimize(loss))
    graph.signature("infer", {"x": x}, {"y": y})
    return graph


def main() -> int:
    """Runs `python -m examples.training.softmax_mnist`."""
    parser = plot.options(__doc__, "softmax_mnist", steps=1000, batch=100)
    parser.add_argument("--data", type=Path, help="folder of MNIST's idx files (default: fetched)")
    arguments = parser.parse_args()
    try:
        digits = datasets.mnist(arguments.data)
    except (FetchError, linnet.Error) as error:
        print(f"softmax_mnist: {error}", file=sys.stderr)
        return 1
    pixels = digits.images.reshape(-1, 784).astype(np.float32) / 255
    one_hot = np.eye(10, dtype=np.float32)[digits.labels]
    test_pixels = digits.test_images.reshape(-1, 784).astype(np.float32) / 255

    model = linnet.Model(build().to_bytes())
    store = linnet.Store(model)
    train, infer = (linnet.Session(model, name, store=store) for name in ("train", "infer"))
    rng = np.random.default_rng(arguments.seed)
    losses, accuracies = [], []
    start = time.perf_counter()
    for step in range(1, arguments.steps + 1):
        chosen = rng.integers(0, len(pixels), arguments.batch)
        found = train.run({"x": pixels[chosen], "y_": one_hot[chosen]})
        losses.append(float(found["loss"]) / arguments.batch)
        if step % 50 == 0 or step == arguments.steps:
            right = infer.run({"x": test_pixels})["y"].argmax(1) == digits.test_labels
            accuracies.append((step, 100 * float(right.mean())))
    taken = time.perf_counter() - start
    print(f"{arguments.steps} steps in {taken:.2f} s: test accuracy {accuracies[-1][1]:.2f} %")
    plot.draw(
        arguments.out, "Softmax regression on MNIST",
        {
            "loss per digit": {"each step": losses, "mean of 25": plot.smooth(losses)},
            "test accuracy, %": {"accuracy": tuple(zip(*accuracies, strict=True))},
        },
    )  # fmt: skip
    print(f"Picture: {arguments.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
