"""`python -m examples.search.keywords`: depth, width, kernel and expansion of a keyword spotter in 8 bits, for at most 100 kB
and 5 ms on a Cortex-A53. There is no board here: qemu counts instructions, and a count stands in for the time."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import optuna

import linnet
from linnet import nn, search

from . import outcome, sounds
from .instructions import Counter, CountError

CPU = "cortex-a53"
BYTES = 100_000
MILLISECONDS = 5
PER_MILLISECOND = 1_200_000  # a core at 1.2 GHz, as in a Raspberry Pi 3, if it executes one instruction per cycle
SPACE = {
    "depth": {"low": 1, "high": 5}, "width": {"low": 8, "high": 64, "step": 8}, "kernel": {"choices": [3, 5]},
    "expansion": {"low": 1, "high": 4},
}  # fmt: skip


def network(x: linnet.Tensor, space: dict[str, Any], training: bool) -> linnet.Tensor:
    """Coefficients [N, 1, 49, 10] -> scores [N, 8]: inverted residuals (Sandler et al. 2018, arXiv:1801.04381) behind the first
    convolution of "Hello Edge" (arXiv:1711.07128)."""
    width, kernel = space["width"], space["kernel"]

    def norm(y: linnet.Tensor, active: bool = True) -> linnet.Tensor:
        y = nn.batch_norm(y, training, momentum=0.9)
        return nn.relu(y) if active else y

    x = norm(nn.conv(x, width, (10, 4), stride=2, padding="same", bias=False))
    for _ in range(space["depth"]):
        y = norm(nn.conv(x, width * space["expansion"], 1, bias=False))
        y = norm(nn.depthwise_conv(y, kernel, padding=kernel // 2, bias=False))
        x = x + norm(nn.conv(y, width, 1, bias=False), active=False)
    return nn.dense(nn.global_avg_pool(x), len(sounds.WORDS))


def graph_of(space: dict[str, Any], steps: int, seed: int) -> linnet.Graph:
    """Signatures: `train` and `eval` {x, t i32 [N]} -> loss, accuracy; `infer` {x} -> scores."""
    graph = linnet.Graph(seed=seed)
    x = graph.placeholder("x", ("batch", 1, sounds.FRAMES, sounds.COEFFICIENTS))
    t = graph.placeholder("t", ("batch",), "i32")
    with graph.scope("net"):
        learnt = network(x, space, True)
    with graph.scope("net", reuse=True):
        scores = network(x, space, False)
    found = {
        name: {"loss": linnet.softmax_cross_entropy(y, t).mean(), "accuracy": linnet.metrics.accuracy(y, t)}
        for name, y in (("train", learnt), ("eval", scores))
    }
    updates = linnet.Adam(linnet.schedules.one_cycle(1e-2, steps)).minimize(found["train"]["loss"])
    graph.signature("train", {"x": x, "t": t}, found["train"], updates=updates)
    graph.signature("eval", {"x": x, "t": t}, found["eval"])
    graph.signature("infer", {"x": x}, {"scores": scores})
    return graph


class Keywords:
    """The function of the search: trains, quantizes to 8 bits, and gives the accuracy on voices that training has not heard,
    and the instructions of a run."""

    def __init__(self, rounds: int, epochs: int, seed: int, folder: Path) -> None:
        self.counter = Counter(CPU, folder)
        x, t = sounds.words(False, rounds, folder)
        self.train = {"x": x, "t": t}
        self.test, self.labels = sounds.words(True, rounds, folder)
        self.epochs, self.seed = epochs, seed

    def __call__(self, trial: optuna.Trial) -> tuple[linnet.Graph, dict[str, float]]:
        batch = 32
        steps = self.epochs * (len(self.train["t"]) // batch)
        graph = graph_of(trial.params, steps, self.seed)
        history = linnet.fit(
            graph, self.train, epochs=self.epochs, batch_size=batch, seed=self.seed, progress=False, threads=1
        )
        samples = [{"x": sound[None]} for sound in self.train["x"][::8]]
        small = linnet.quantize(history.graph.freeze(), samples, dtype="i8", effort="fast", machine=CPU)
        scores = linnet.Session(small).run({"x": self.test})["scores"]
        accuracy = float(np.mean(scores.argmax(axis=1) == self.labels))
        return small, {"accuracy": accuracy, "instructions": self.counter.count(small.to_bytes())}


def main(words: list[str] | None = None) -> int:
    """Runs the command, or with `words` instead of its arguments; returns the exit status."""
    parser = outcome.options("keywords", __doc__, trials=24)
    parser.add_argument("--rounds", type=int, default=3, help="how often each voice says each word (%(default)s)")
    parser.add_argument("--epochs", type=int, default=12, help="epochs of each trial (%(default)s)")
    given = parser.parse_args(words)
    Path(given.out).mkdir(parents=True, exist_ok=True)
    settings = search.Settings(
        {"accuracy": "maximize", "instructions": "minimize"},
        limits={"bytes": BYTES, "instructions": MILLISECONDS * PER_MILLISECOND},
        trials=given.trials, seed=given.seed, space=SPACE, journal=given.out / "study.journal",
    )  # fmt: skip
    try:
        function = Keywords(given.rounds, given.epochs, given.seed, given.out)
        found = search.run(function, settings, lambda row: outcome.line(row, settings))
    except (CountError, sounds.NoSpeakerError, linnet.Error) as error:
        print(f"keywords: {error}", file=sys.stderr)
        return 1
    outcome.finish(found, given.out, f"A keyword spotter for a {CPU}")
    print(
        f"{MILLISECONDS * PER_MILLISECOND:,} instructions stand in for {MILLISECONDS} ms of a {CPU} at "
        f"{PER_MILLISECOND / 1e6:g} GHz, at one instruction per cycle. Only a board can say how long it takes:\n"
        "give boards=['pi@raspberrypi.local'] and the limit 'ms' for that (docs/search.md)."
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
