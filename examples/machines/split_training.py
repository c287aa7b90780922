"""`python -m examples.machines.split_training`: AlexNet was split over two GPUs in 2012, and here a small AlexNet is split over
two processes. Each has half of the filters of each layer and trains them; one process alone gets the same bits."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import numpy as np

import linnet
from examples.mnist_small.digits import draw
from linnet import nn, ops

from . import hosts

BATCH = 32
Halves = list[linnet.Tensor]


def build(seed: int) -> linnet.Graph:
    """The signature `train` {x u8 [32, 28, 28], t i32 [32]} -> loss, and the share of right answers.

    As in the paper (Krizhevsky, Sutskever, Hinton 2012), the third convolution and the dense layers read both halves, and
    the other convolutions only their own half.
    """
    graph = linnet.Graph(seed=seed)
    x, t = graph.placeholder("x", (BATCH, 28, 28), "u8"), graph.placeholder("t", (BATCH,), "i32")

    def each(name: str, layer: Callable[[linnet.Tensor], linnet.Tensor], halves: Sequence[linnet.Tensor]) -> Halves:
        """One layer on both tasks."""
        made = []
        for task, half in enumerate(halves):
            with graph.device(f"/job:worker/task:{task}"), graph.scope(f"{name}_{task}"):
                made.append(layer(half))
        return made

    def both(name: str, halves: Halves) -> Halves:
        """Each task gets the other's half too."""
        return each(name, lambda _: ops.concat(halves, 1), halves)

    def conv(filters: int, size: int) -> Callable[[linnet.Tensor], linnet.Tensor]:
        return lambda half: nn.conv(half, filters, size, padding="same", activation="relu")

    def dense(half: linnet.Tensor) -> linnet.Tensor:
        return nn.dense(half, 128, activation="relu")

    def pool(half: linnet.Tensor) -> linnet.Tensor:
        return nn.max_pool(half, 2)

    pictures = each("picture", lambda half: ops.expand_dims(half.cast("f32") / 255, 1), [x, x])
    y = each("pool_1", pool, each("conv_1", conv(16, 5), pictures))
    y = each("pool_2", pool, each("conv_2", conv(32, 5), y))
    y = each("conv_3", conv(48, 3), both("both_3", y))
    y = each("pool_5", pool, each("conv_5", conv(32, 3), each("conv_4", conv(48, 3), y)))
    y = each("dense_6", dense, both("both_6", each("flat", nn.flatten, y)))
    y = each("dense_7", dense, both("both_7", y))
    with graph.device("/job:worker/task:0"), graph.scope("dense_8"):
        scores = nn.dense(ops.concat(y, 1), 10)
    loss, right = linnet.softmax_cross_entropy(scores, t).mean(), linnet.metrics.accuracy(scores, t)
    updates = linnet.Adam(1e-3).minimize(loss)
    graph.signature("train", {"x": x, "t": t}, {"loss": loss, "right": right}, updates=updates)
    return graph


def main() -> int:
    """Runs `python -m examples.machines.split_training`."""
    parser = argparse.ArgumentParser(prog="python -m examples.machines.split_training", description=__doc__)
    parser.add_argument("--epochs", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--digits", type=int, default=1280, help="number of drawn digits to train on (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and digits (%(default)s)")
    arguments = parser.parse_args()
    images, labels = draw(max(arguments.digits, BATCH), arguments.seed)
    graph, order = build(arguments.seed), np.random.default_rng(arguments.seed)
    with hosts.several(2) as devices:
        split = linnet.Session(graph, "train", cluster={"worker": devices}, threads=1)
        alone = linnet.Session(graph, "train", threads=1)
        trained = {name: np.asarray(alone.variables[name]) for name in alone.variables if "adam" not in name}
        for task, device in enumerate(devices):
            steps = sum(step.device == device and step.op != "transfer" for step in split.steps)
            weights = sum(value.nbytes for name, value in trained.items() if f"_{task}/" in name)
            print(f"Task {task} is {device}: {steps} nodes of each step, {weights:,} bytes of weights.")
        rest = sum(value.nbytes for name, value in trained.items() if name.startswith("dense_8"))
        print(f"The last layer, {rest:,} bytes, is on task 0.")

        same = True
        for epoch in range(1, arguments.epochs + 1):
            losses, right = [], []
            for rows in order.permutation(len(images))[: len(images) // BATCH * BATCH].reshape(-1, BATCH):
                feeds = {"x": images[rows], "t": labels[rows].astype(np.int32)}
                ours, theirs = split.run(feeds), alone.run(feeds)
                same = same and all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)
                losses.append(float(ours["loss"]))
                right.append(float(ours["right"]))
            print(f"epoch {epoch}: loss {np.mean(losses):.3f}, {100 * np.mean(right):.1f} % right")
        print(
            f"{hosts.between(split):,} bytes travel between the two in each step; a batch has {BATCH * (28 * 28 + 4):,} bytes."
        )
        same = same and all(
            np.asarray(split.variables[n]).tobytes() == np.asarray(alone.variables[n]).tobytes() for n in trained
        )
    print(f"Losses and weights {'have the bits' if same else 'differ from those'} of one process.")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(hosts.run(main))
