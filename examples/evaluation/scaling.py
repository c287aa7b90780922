"""`python -m examples.evaluation.scaling`: images per second of GoogLeNet in training by the number of workers, as section 6.3 of
the TensorFlow paper (OSDI 2016) shows for Inception-v3: measured up to the cores of this machine, simulated up to 200 workers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import linnet
from linnet import nn
from linnet.sync import simulate
from linnet.sync.simulate import measure

from . import networks, result, workers
from .result import MEASURED, SIMULATED, Figure, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

SERVERS = 17  # as in the paper
COUNTS = (1, 2, 5, 10, 25, 50, 100, 200)
MOST = 8  # real workers
BATCH = 8  # images of a worker's step
MODES = ("synchronous", "asynchronous")


def small(seed: int, batch: int = BATCH) -> linnet.Graph:
    """A small convolutional network on 32x32 images, for --quick."""
    graph = linnet.Graph(seed=seed)
    x, t = graph.placeholder("x", (batch, 3, 32, 32)), graph.placeholder("t", (batch,), "i32")
    y = nn.max_pool(nn.conv(x, 16, 3, padding=1, activation="relu"), 2)
    y = nn.max_pool(nn.conv(y, 32, 3, padding=1, activation="relu"), 2)
    loss = linnet.softmax_cross_entropy(nn.dense(nn.flatten(y), 10), t).mean()
    linnet.sync.signatures(graph, loss, linnet.SGD(0.01), {"x": x, "t": t})
    return graph


def feeds_of(graph: linnet.Graph, seed: int) -> dict[str, Any]:
    """Random images, and labels of ten classes."""
    rng = np.random.default_rng(seed)
    shape = next(tuple(v.shape) for v in graph.signatures["grad"].function.inputs if v.name == "x")
    return {"x": rng.standard_normal(shape, np.float32), "t": rng.integers(0, 10, shape[0]).astype(np.int32)}


def evaluate(options: result.Options) -> Result:
    """Measures one worker alone and as many as there are cores, and simulates more, synchronous and asynchronous."""
    graph = small(options.seed) if options.quick else networks.training("GoogLeNet", BATCH, options.seed)
    feeds, cores = feeds_of(graph, options.seed), min(result.cores(), MOST)
    seconds, steps = (0.1, 2) if options.quick else (15.0, 5)
    step, rates = workers.rounds(graph, workers.Job(graph, graph, feeds), range(1, cores + 1), seconds, steps)
    step = dataclasses.replace(step, traffic=dataclasses.replace(step.traffic, examples=BATCH))
    figures = [Figure("alone, 1 worker", BATCH / step.median, "images/s", MEASURED)]
    for n, rate in rates.items():
        figures.append(Figure(f"this machine, {result.workers(n)}", rate * BATCH, "images/s", MEASURED))
    costs = measure.costs(1 if options.quick else 30)
    gains = {}
    for kind in MODES:
        for n in COUNTS[:4] if options.quick else COUNTS:
            machines = workers.hardware(costs, SERVERS, n)
            found = workers.simulated(step, machines, simulate.Mode(kind), 10 if options.quick else 100, options.seed)
            source = "2,300 images/s" if kind == "asynchronous" and n == 200 else ""
            figures.append(
                Figure(f"{kind}, {result.workers(n)}", found.examples_per_second, "images/s", SIMULATED, source)
            )
            gains[kind] = (n, found.speedup)
    here = {figure.name: figure.value for figure in figures}
    real = here[f"this machine, {result.workers(cores)}"] / here["alone, 1 worker"]
    (most, gain), (_, other) = (gains[kind] for kind in MODES)
    return Result(
        "scaling",
        f"Training {'a small network' if options.quick else 'GoogLeNet'} on more workers",
        f"A worker computes {BATCH} images per step on one thread and sends {step.traffic.up / 1e6:.1f} MB. Measured: the server "
        f"and up to {cores} workers share this machine. Simulated: {SERVERS} servers and as many machines as workers on "
        f"{workers.NETWORK} Gbit/s Ethernet, with the step times and the costs of linnet's server that were measured here.",
        "Abadi et al., TensorFlow, OSDI 2016, section 6.3: Inception-v3, 17 servers, up to 200 workers with a K40 each",
        tuple(figures),
        f"{result.workers(cores)} on this machine train {real:.2f} times as fast as one that computes alone (measured); {most} "
        f"workers would train {result.short(gain)} times as fast if they are synchronous, and {result.short(other)} times if "
        "they are asynchronous (simulated from the measured step).",
    )


def draw(found: Result, canvas: Canvas) -> None:
    """Measured images per second on the left, simulated ones on the right, each beside perfect scaling."""
    left, right = canvas.subplots(1, 2)
    one = found.value("alone, 1 worker")
    x, y = result.series(found, "this machine")
    left.bar(x, y, color="C0", width=0.5, label="workers on this machine")
    left.plot([0, *x], [0, *(one * n for n in x)], "k:", label="one worker alone, times workers")
    left.set(title="measured", xlabel="workers", ylabel="images/s", xticks=x)
    for kind in MODES:
        right.plot(*result.series(found, kind), "o-", label=kind, markersize=4)
    counts = result.series(found, MODES[0])[0]
    right.plot(counts, [one * n for n in counts], "k:", label="one worker alone, times workers")
    right.set(title="simulated", xlabel="workers", ylabel="images/s", xscale="log", yscale="log")
    for axes in (left, right):
        axes.legend(fontsize=8)


def main(words: Sequence[str] | None = None) -> Result:
    """Runs `python -m examples.evaluation.scaling`."""
    return result.command(result.parser("scaling", __doc__), evaluate, draw, words)


if __name__ == "__main__":
    main()
