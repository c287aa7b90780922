"""Trains on MNIST with four workers and compressed gradients, with the aggregation written in Python: what each encoding costs in
accuracy and saves in bytes. `python -m tests.sync_convergence` prints the table of docs/distributed.md."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

import linnet
from examples import datasets
from linnet import nn
from linnet.sync.compression import Compression, decode, encode

WORKERS = 4
BATCH = 32  # per worker
CHOICES = ("none", "f16", "bf16", "i8", "topk:0.01", "1bit")


@dataclass(frozen=True)
class Outcome:
    """Results of one training: the final accuracy on the test set in percent, and the bytes that one worker sends per step."""

    accuracy: float
    bytes_per_step: float
    loss: float


def network(optimizer: linnet.Optimizer, seed: int) -> tuple[linnet.Graph, list[str]]:
    """784-256-10; signatures `grad` (x, t -> loss, gradient/<variable>), `update` (gradient/<variable>), `eval`."""
    graph = linnet.Graph(seed=seed)
    x, t = graph.placeholder("x", ("batch", 784)), graph.placeholder("t", ("batch",), "i32")
    scores = nn.dense(nn.dense(x, 256, activation="relu"), 10)
    loss = linnet.softmax_cross_entropy(scores, t).mean()
    variables = graph.trainable_variables
    found = linnet.gradients(loss, variables)
    graph.signature(
        "grad", {"x": x, "t": t},
        {"loss": loss, **{f"gradient/{v.name}": g for v, g in zip(variables, found, strict=True)}},
    )  # fmt: skip
    given = {v: graph.placeholder(f"gradient/{v.name}", v.value.shape) for v in variables}
    graph.signature("update", {p.name: p for p in given.values()}, {}, updates=optimizer.apply(given))
    graph.signature("eval", {"x": x, "t": t}, {"accuracy": linnet.metrics.accuracy(scores, t)})
    return graph, [v.name for v in variables]


def momentum(epochs: int, pictures: int) -> linnet.Optimizer:
    """The learning rate falls to 0 (Loshchilov, Hutter 2017), so that the accuracy does not depend on the last steps."""
    steps = epochs * (pictures // (WORKERS * BATCH))
    return linnet.Momentum(linnet.schedules.cosine(0.05, steps=steps), 0.9)


def train(
    pictures: datasets.Pictures,
    compression: str | Compression,
    *,
    epochs: int,
    seed: int = 1,
) -> Outcome:
    """Synchronous training. Each worker keeps its residuals; the mean of the received gradients is applied."""
    graph, names = network(momentum(epochs, len(pictures.images)), seed)
    model = linnet.Model(graph)
    store = linnet.Store(model)
    grad = linnet.Session(model, "grad", store=store, threads=1)
    update = linnet.Session(model, "update", store=store, threads=1)
    images = pictures.images.reshape(len(pictures.images), -1)
    residuals = [
        {name: np.zeros(graph.variables[name].value.shape, np.float32) for name in names} for _ in range(WORKERS)
    ]
    sent, steps, losses = 0, 0, []
    for epoch in range(epochs):
        order = np.random.default_rng(seed + epoch).permutation(len(images))
        for start in range(0, len(order) - WORKERS * BATCH + 1, WORKERS * BATCH):
            sums = {name: np.zeros(graph.variables[name].value.shape, np.float32) for name in names}
            for worker in range(WORKERS):
                take = order[start + worker * BATCH : start + (worker + 1) * BATCH]
                out = grad.run({"x": images[take] / np.float32(255), "t": pictures.labels[take]})
                losses.append(float(out["loss"]))
                for name in names:
                    message = encode(out[f"gradient/{name}"], compression, residuals[worker][name])
                    sent += len(message)
                    decode(message, sums[name].shape, compression, add_to=sums[name], weight=1 / WORKERS)
            update.run({f"gradient/{name}": total for name, total in sums.items()})
            steps += 1
    check = linnet.Session(model, "eval", store=store, threads=1)
    test = {"x": pictures.test_images.reshape(-1, 784) / np.float32(255), "t": pictures.test_labels}
    return Outcome(100 * float(check.run(test)["accuracy"]), sent / steps / WORKERS, float(np.mean(losses[-400:])))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("choices", nargs="*", default=CHOICES)
    arguments = parser.parse_args()
    pictures = datasets.mnist()
    print("| compression | accuracy, % | bytes per step and worker | of plain |\n|---|---|---|---|")
    plain = 0.0
    for choice in arguments.choices:
        found = [train(pictures, choice, epochs=arguments.epochs, seed=1 + seed) for seed in range(arguments.seeds)]
        size = float(np.mean([f.bytes_per_step for f in found]))
        plain = plain or size
        accuracy = float(np.mean([f.accuracy for f in found]))
        print(f"| {choice} | {accuracy:.2f} | {size:,.0f} | 1/{plain / size:.1f} |", flush=True)


if __name__ == "__main__":
    main()
