"""`python -m examples.search.digits`: the learning rate and the width of a small convolutional network that reads drawn digits,
in a file of at most 25 kB. Trials that learn worse than the others are pruned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import optuna

import linnet
from examples.mnist_small.digits import draw
from linnet import nn, search

from . import outcome

BYTES = 25_000
_TEST = 500


def graph_of(width: int, rate: float, seed: int) -> linnet.Graph:
    """Signatures: `train` and `eval` {x [N, 1, 28, 28], t i32 [N]} -> loss, accuracy; `infer` {x} -> scores [N, 10]."""
    graph = linnet.Graph(seed=seed)
    x, t = graph.placeholder("x", ("batch", 1, 28, 28)), graph.placeholder("t", ("batch",), "i32")
    y = nn.max_pool(nn.conv(x, width, 3, padding=1, activation="relu"), 2)
    y = nn.max_pool(nn.conv(y, 2 * width, 3, padding=1, activation="relu"), 2)
    scores = nn.dense(nn.flatten(y), 10)
    outputs = {"loss": linnet.softmax_cross_entropy(scores, t).mean(), "accuracy": linnet.metrics.accuracy(scores, t)}
    graph.signature("train", {"x": x, "t": t}, outputs, updates=linnet.Adam(rate).minimize(outputs["loss"]))
    graph.signature("eval", {"x": x, "t": t}, outputs)
    graph.signature("infer", {"x": x}, {"scores": scores})
    return graph


class Digits:
    """The function of the search, with its data."""

    def __init__(self, count: int, epochs: int, seed: int) -> None:
        images, labels = draw(count + _TEST, 1)
        x, t = images[:, None] / np.float32(255), labels.astype(np.int32)
        self.train, self.test = {"x": x[:count], "t": t[:count]}, {"x": x[count:], "t": t[count:]}
        self.epochs, self.seed = epochs, seed

    def __call__(self, trial: optuna.Trial) -> tuple[linnet.History, dict[str, float]]:
        rate = trial.suggest_float("rate", 1e-5, 1e-1, log=True)
        width = trial.suggest_int("width", 1, 16)
        history = linnet.fit(
            graph_of(width, rate, self.seed), self.train, epochs=self.epochs, batch_size=50, validation=self.test,
            seed=self.seed, callbacks=[search.Pruning(trial)], progress=False,
        )  # fmt: skip
        return history, {"accuracy": history["val_accuracy"][-1]}


def main(words: list[str] | None = None) -> int:
    """Runs the command, or with `words` instead of its arguments; returns the exit status."""
    parser = outcome.options("digits", __doc__, trials=30)
    parser.add_argument("--digits", type=int, default=2000, help="digits to train on (%(default)s)")
    parser.add_argument("--epochs", type=int, default=4, help="epochs of each trial (%(default)s)")
    given = parser.parse_args(words)
    Path(given.out).mkdir(parents=True, exist_ok=True)
    settings = search.Settings(
        ["accuracy"], limits={"bytes": BYTES}, trials=given.trials, seed=given.seed, journal=given.out / "study.journal"
    )
    function = Digits(given.digits, given.epochs, given.seed)
    found = search.run(function, settings, lambda row: outcome.line(row, settings))
    outcome.finish(found, given.out, "Learning rate and width of a digit classifier")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
