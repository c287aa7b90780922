"""`linnet launch -n 4 -m examples.training.distributed_mnist [--mode asynchronous] [--compression i8]`: MNIST with
several processes. Without `linnet launch` the same script is one process; it also runs under torchrun, mpirun and srun."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

import linnet
from examples import datasets
from linnet import data, nn
from linnet._fetch import FetchError
from linnet.sync import Strategy

BATCH = 25  # examples per worker


def build(rate: float, federated: bool, seed: int) -> linnet.Graph:
    """A convolutional network: the signatures of linnet.sync.signatures over {x [N, 28, 28], t i32 [N]}, and `infer` {x} ->
    scores [N, 10]. federated: the server takes the mean of the workers' local results (McMahan et al. 2017)."""
    graph = linnet.Graph(seed=seed)
    x, t = graph.placeholder("x", ("batch", 28, 28)), graph.placeholder("t", ("batch",), "i32")
    y = linnet.ops.expand_dims(x, 1)
    for filters in (8, 16):
        y = nn.max_pool(nn.conv(y, filters, 3, stride=1, padding=1, activation="relu"), 2)
    scores = nn.dense(nn.dense(nn.flatten(y), 64, activation="relu"), 10)
    loss = linnet.softmax_cross_entropy(scores, t).mean()
    own = linnet.Momentum(rate, 0.9)
    linnet.sync.signatures(
        graph, loss, linnet.SGD(1.0) if federated else own, {"x": x, "t": t},
        {"accuracy": linnet.metrics.accuracy(scores, t)}, local=own if federated else None, accumulate=not federated,
    )  # fmt: skip
    graph.signature("infer", {"x": x}, {"scores": scores})
    return graph


def scaled(batch: data.Batch) -> data.Batch:
    """Converts bytes to f32."""
    return {"x": batch["x"] / np.float32(255), "t": batch["t"]}


def main() -> int:
    """Runs `python -m examples.training.distributed_mnist`, as one process or several."""
    parser = argparse.ArgumentParser(prog="python -m examples.training.distributed_mnist", description=__doc__)
    parser.add_argument("--mode", choices=["synchronous", "asynchronous", "federated"], default="synchronous")
    parser.add_argument(
        "--compression", default="none", help="compression of gradients: none, f16, bf16, i8, topk:0.01, 1bit"
    )
    parser.add_argument("--pull-compression", default="none", help="compression of pulled values: none, f16, bf16")
    parser.add_argument("--backup", type=int, default=0, help="number of workers that a step does not wait for")
    parser.add_argument(
        "--groups", type=int, default=1, help="number of groups; the workers of a group are synchronous"
    )
    parser.add_argument(
        "--staleness", type=int, help="number of steps by which an asynchronous worker may be ahead of the slowest"
    )
    parser.add_argument(
        "--local-steps", type=int, default=1, help="steps that a worker makes alone in a federated round"
    )
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train-on", type=int, default=60_000, help="number of digits to train on")
    parser.add_argument("--test-on", type=int, default=10_000)
    parser.add_argument("--accumulate", type=int, help="batches per step (default: one per worker)")
    parser.add_argument("--data", type=Path, help="folder of the idx files (default: fetched)")
    parser.add_argument(
        "--directory", type=Path, help="folder of the run, for checkpoints, records and the server's snapshots"
    )
    parser.add_argument("--save", type=Path, help="write the trained model to this file (.lnt)")
    arguments = parser.parse_args()
    try:
        digits = datasets.mnist(arguments.data)
    except (FetchError, linnet.Error) as error:
        print(f"distributed_mnist: {error}", file=sys.stderr)
        return 1

    cluster = linnet.sync.cluster()
    strategy = Strategy(
        arguments.mode, backup=arguments.backup, groups=arguments.groups, staleness=arguments.staleness,
        local_steps=arguments.local_steps, compression=arguments.compression,
        pull_compression=arguments.pull_compression,
    )  # fmt: skip
    chosen, tested = slice(arguments.train_on), slice(arguments.test_on)
    train = data.Arrays({"x": digits.images[chosen], "t": digits.labels[chosen]}, scaled)
    test = data.Arrays({"x": digits.test_images[tested], "t": digits.test_labels[tested]}, scaled)
    loader = data.Loader(train, BATCH, seed=arguments.seed, drop_last=True, prefetch=0)
    federated = arguments.mode == "federated"
    history = linnet.fit(
        build(arguments.rate, federated, arguments.seed), loader, epochs=arguments.epochs, validation=test,
        accumulate=arguments.accumulate or (cluster.world_size if arguments.mode == "synchronous" else 1),
        directory=arguments.directory, resume=arguments.directory is not None, cluster=cluster, strategy=strategy,
    )  # fmt: skip
    if cluster.is_chief:
        accuracy = 100 * history["val_accuracy"][-1]
        print(f"MNIST: test accuracy {accuracy:.2f} % after {history.step} steps, {history.seconds:.1f} s")
        print(json.dumps({"accuracy": accuracy, "steps": history.step, **history.traffic}))
        if arguments.save:
            history.graph.save(arguments.save)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
