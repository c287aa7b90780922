"""`python -m examples.training.conv_mnist [--fashion]`: a convolutional network on MNIST, or on Fashion-MNIST.
Batch normalization, dropout, pictures shifted at random, one cycle of the learning rate (Smith, Topin 2017), `linnet.fit`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import linnet
from examples import datasets
from linnet import data, nn
from linnet._fetch import FetchError

from . import plot

BATCH = 64


def network(x: linnet.Tensor, training: bool) -> linnet.Tensor:
    """Pictures [N, 1, 28, 28] -> logits [N, 10]."""
    for filters in (16, 32, 64):
        x = nn.conv(x, filters, 3, padding=1, bias=False)
        x = nn.max_pool(nn.relu(nn.batch_norm(x, training)), 2)
    return nn.dense(nn.dropout(nn.dense(nn.flatten(x), 128, activation="relu"), 0.3, training), 10)


def build(steps: int, seed: int) -> linnet.Graph:
    """Signatures: `train` and `eval` {x [N, 1, 28, 28], t i32 [N]} -> loss, accuracy; `infer` {x} -> scores [N, 10]."""
    graph = linnet.Graph(seed=seed)
    x, t = graph.placeholder("x", ("batch", 1, 28, 28)), graph.placeholder("t", ("batch",), "i32")
    with graph.scope("net"):
        logits = network(x, training=True)
    with graph.scope("net", reuse=True):
        scores = network(x, training=False)
    found = {
        name: {"loss": linnet.softmax_cross_entropy(y, t).mean(), "accuracy": linnet.metrics.accuracy(y, t)}
        for name, y in (("train", logits), ("eval", scores))
    }
    rate = linnet.schedules.one_cycle(4e-3, steps)
    updates = linnet.AdamW(rate, weight_decay=1e-2).minimize(found["train"]["loss"])
    graph.signature("train", {"x": x, "t": t}, found["train"], updates=updates)
    graph.signature("eval", {"x": x, "t": t}, found["eval"])
    graph.signature("infer", {"x": x}, {"scores": scores})
    return graph


def scaled(batch: data.Batch) -> data.Batch:
    """Converts bytes to f32, and adds the channel axis that conv needs."""
    return {"x": batch["x"][:, None] / np.float32(255), "t": batch["t"]}


def main() -> int:
    """Runs `python -m examples.training.conv_mnist`."""
    parser = plot.options(__doc__, "conv_mnist", epochs=8)
    parser.add_argument("--fashion", action="store_true", help="use Fashion-MNIST: clothes instead of digits")
    parser.add_argument("--data", type=Path, help="folder of the idx files (default: fetched)")
    parser.add_argument("--save", type=Path, help="write the trained model to this file (.lnt)")
    parser.add_argument("--train-on", type=int, default=60_000, help="number of pictures to train on (%(default)s)")
    arguments = parser.parse_args()
    try:
        pictures = (datasets.fashion_mnist if arguments.fashion else datasets.mnist)(arguments.data)
    except (FetchError, linnet.Error) as error:
        print(f"conv_mnist: {error}", file=sys.stderr)
        return 1
    chosen = slice(arguments.train_on)
    train = data.Arrays({"x": pictures.images[chosen], "t": pictures.labels[chosen]}, scaled)
    test = data.Arrays({"x": pictures.test_images, "t": pictures.test_labels}, scaled)
    change = [data.flip("x"), data.shift("x", 1)] if arguments.fashion else [data.shift("x", 2)]
    loader = data.Loader(train, batch_size=BATCH, seed=arguments.seed, augment=change, drop_last=True)
    graph = build(arguments.epochs * (len(train) // BATCH), arguments.seed)
    history = linnet.fit(graph, loader, epochs=arguments.epochs, validation=test)

    name = "Fashion-MNIST" if arguments.fashion else "MNIST"
    accuracy = [100 * value for value in history["val_accuracy"]]
    print(f"{name}: test accuracy {accuracy[-1]:.2f} % after {arguments.epochs} epochs")
    plot.draw(
        arguments.out, f"A convolutional network on {name}",
        {
            "loss": {"training": history["loss"], "test": history["val_loss"]},
            "accuracy, %": {"training": [100 * v for v in history["accuracy"]], "test": accuracy},
        }, step="epoch",
    )  # fmt: skip
    print(f"Picture: {arguments.out}")
    if arguments.save:
        history.graph.save(arguments.save)
        print(f"Model: {arguments.save}, which linnet-train can train further")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
