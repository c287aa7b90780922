"""`python -m examples.evaluation.language_model`: words per second of an LSTM language model in training, with the full and
with the sampled softmax, by the number of workers and of servers, as in section 6.4 of the TensorFlow paper (OSDI 2016)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import linnet
from linnet import init, nn, ops
from linnet.sync import simulate
from linnet.sync.simulate import measure

from . import result, workers
from .result import MEASURED, SIMULATED, Figure, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

KINDS = ("full", "sampled")
COUNTS = (1, 4, 16, 64, 256)
SERVERS = (1, 4, 32)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """A language model. vocabulary: number of words. units: of the LSTM, and the size of a word's vector. A step has `batch` rows
    of `time` words, and the sampled softmax has `samples` classes besides the words that are right."""

    vocabulary: int = 40_000
    units: int = 512
    batch: int = 16
    time: int = 20
    samples: int = 512

    @property
    def words(self) -> int:
        """Words of a step."""
        return self.batch * self.time


SMALL = Sizes(2_000, 32, 4, 6, 16)


def build(sizes: Sizes, kind: str, seed: int, remote: bool = False) -> linnet.Graph:
    """The signatures of linnet.sync.signatures over {words, next i32 [batch, time]}, and with the sampled softmax also
    {candidates i64 [samples]}. remote: the tables stay on the servers; of the full softmax, only that of words can."""
    graph = linnet.Graph(seed=seed)
    shape = (sizes.batch, sizes.time)
    words, following = (graph.placeholder(name, shape, "i32") for name in ("words", "next"))
    inputs = {"words": words, "next": following}
    y, _, _ = nn.lstm(nn.embedding(words, sizes.vocabulary, sizes.units, name="words"), sizes.units)
    y, labels = ops.reshape(y, (sizes.words, sizes.units)), ops.reshape(following, (sizes.words,))
    weight = graph.variable("softmax/weight", init.uniform((sizes.vocabulary, sizes.units), -0.05, 0.05))
    bias = graph.variable("softmax/bias", init.zeros(sizes.vocabulary))
    tables = [graph.variables["words/weight"]]
    if kind == "sampled":
        inputs["candidates"] = graph.placeholder("candidates", (sizes.samples,), "i64")
        loss = linnet.losses.sampled_softmax(
            weight, bias, y, labels, sizes.samples, candidates=inputs["candidates"]
        ).mean()
        tables.append(weight)
    else:
        loss = linnet.softmax_cross_entropy(
            ops.matmul(y, weight.tensor(), bias.tensor(), transpose_b=True), labels
        ).mean()
    linnet.sync.signatures(graph, loss, linnet.SGD(0.1), inputs, remote=tables if remote else [])
    return graph


def feeds_of(sizes: Sizes, kind: str, seed: int) -> dict[str, Any]:
    """Random words, of which the frequent ones have low numbers (log-uniform, as Zipf's law says), and random candidates."""
    rng = np.random.default_rng(seed)

    def drawn(*shape: int) -> np.ndarray:
        return np.minimum((sizes.vocabulary + 1) ** rng.random(shape) - 1, sizes.vocabulary - 1).astype(np.int64)

    text = drawn(sizes.batch, sizes.time + 1).astype(np.int32)
    feeds: dict[str, Any] = {"words": text[:, :-1], "next": text[:, 1:]}
    return feeds | ({"candidates": drawn(sizes.samples)} if kind == "sampled" else {})


def evaluate(options: result.Options) -> Result:
    """Measures a step of one worker, and real workers with tables on a server; simulates more workers and servers."""
    sizes = SMALL if options.quick else Sizes()
    cores = min(result.cores(), 8)
    figures, found = list[Figure](), dict[str, workers.Step]()
    for kind in KINDS:
        feeds = feeds_of(sizes, kind, options.seed)
        parts = linnet.sync.shard(build(sizes, kind, options.seed, remote=True), 1)
        seconds, steps = (0.1, 2) if options.quick else (10.0, 5)
        job = workers.Job(parts.servers[0], parts.worker, feeds)
        step, rates = workers.rounds(build(sizes, kind, options.seed), job, range(1, cores + 1), seconds, steps)
        found[kind] = dataclasses.replace(step, traffic=dataclasses.replace(step.traffic, examples=sizes.words))
        figures.append(Figure(f"{kind}, alone, 1 worker", sizes.words / step.median, "words/s", MEASURED))
        figures.append(Figure(f"{kind}, sent per step", step.traffic.up / 1e6, "MB", MEASURED))
        for n, rate in rates.items():
            figures.append(
                Figure(f"{kind}, this machine, {result.workers(n)}", rate * sizes.words, "words/s", MEASURED)
            )
    costs, last = measure.costs(1 if options.quick else 30), dict[str, float]()
    for kind in KINDS:
        for servers in SERVERS:
            for n in COUNTS[:3] if options.quick else COUNTS:
                machines = workers.hardware(costs, servers, n)
                made = workers.simulated(
                    found[kind], machines, simulate.Mode("asynchronous"), 10 if options.quick else 40, options.seed
                )
                last[kind] = made.examples_per_second
                name = f"{kind}, {'1 server' if servers == 1 else f'{servers} servers'}, {result.workers(n)}"
                figures.append(Figure(name, last[kind], "words/s", SIMULATED))
    most = COUNTS[2] if options.quick else COUNTS[-1]
    faster = found["full"].median / found["sampled"].median
    fewer = found["full"].traffic.up / found["sampled"].traffic.up
    return Result(
        "language_model",
        f"Training an LSTM-{sizes.units} language model with {sizes.vocabulary:,} words",
        f"A step has {sizes.batch} x {sizes.time} words, on one thread. Measured: one worker alone; and a server with the tables "
        f"and up to {cores} workers, which share this machine. Simulated: asynchronous workers and servers, each on a machine of "
        f"its own with {workers.NETWORK} Gbit/s Ethernet, with the step times and the costs of linnet's server measured "
        "here.",
        "Abadi et al., TensorFlow, OSDI 2016, section 6.4: LSTM-512-512 on the one-billion-word text, 40,000 words, 512 sampled "
        "classes; its figure has words per second of 4 to 256 workers and 1 to 32 servers, but prints no numbers",
        tuple(figures),
        f"With {sizes.samples} sampled classes of {sizes.vocabulary:,}, one worker's step takes 1/{faster:.1f} of the time and "
        f"sends 1/{fewer:.1f} of the bytes (measured); {most} workers with {SERVERS[-1]} servers would train "
        f"{result.short(last['full'])} words per second with the full softmax and {result.short(last['sampled'])} with the "
        "sampled one (simulated from the measured steps).",
    )


def draw(found: Result, canvas: Canvas) -> None:
    """Measured words per second on the left; simulated ones by workers, a line for each number of servers, on the right."""
    left, right = canvas.subplots(1, 2)
    for number, kind in enumerate(KINDS):
        x, y = result.series(found, f"{kind}, this machine")
        left.bar([n + 0.4 * number - 0.2 for n in x], y, 0.4, label=kind)
        left.set(title="workers on this machine, measured", xlabel="workers", ylabel="words/s", xticks=x)
        for servers, style in zip(SERVERS, (":", "--", "-"), strict=True):
            name = f"{kind}, {'1 server' if servers == 1 else f'{servers} servers'}"
            right.plot(*result.series(found, name), style, marker="o", markersize=4, color=f"C{number}", label=name)
    right.set(title="simulated", xlabel="workers", ylabel="words/s", xscale="log", yscale="log")
    for axes in (left, right):
        axes.legend(fontsize=8)


def main(words: Sequence[str] | None = None) -> Result:
    """Runs `python -m examples.evaluation.language_model`."""
    return result.command(result.parser("language_model", __doc__), evaluate, draw, words)


if __name__ == "__main__":
    main()
