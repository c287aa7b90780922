"""`python -m examples.evaluation.placement`: one graph over three machines, placed by hand, by linnet's costs and by its search.
Section 3.3 of the TensorFlow paper (OSDI 2016) describes placement; the figures are modelled and measured milliseconds."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import linnet
from examples.machines import hosts
from linnet import nn, ops
from linnet.placing.costs import quiet
from linnet.placing.schedule import Budget, schedule
from linnet.placing.search import local

from . import result
from .result import MEASURED, MODELLED, Figure, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

TOWERS = ("left", "right")
WAYS = ("one machine", "by hand", "by cost", "by search")
BEST = "best of the search's predictions"


def build(side: int, channels: int, seed: int) -> linnet.Graph:
    """Two towers of convolutions over one image f32 [1, 3, side, side], and a classifier over both: the signature `infer` {x} ->
    scores [1, 10]. The nodes of a tower have its name."""
    graph = linnet.Graph(seed=seed)
    x = graph.placeholder("x", (1, 3, side, side))
    made = []
    for name in TOWERS:
        with graph.scope(name):
            y = nn.conv(x, channels, 3, stride=2, padding=1, activation="relu")
            for _ in range(6):
                y = nn.conv(y, channels, 3, padding=1, activation="relu")
            made.append(nn.global_avg_pool(y))
    graph.signature("infer", {"x": x}, {"scores": nn.dense(ops.concat(made, 1), 10)})
    return graph


def run_ms(sessions: dict[str, linnet.Session], feeds: dict[str, Any], seconds: float) -> dict[str, float]:
    """The median milliseconds of a run of each session; they take turns for `seconds`, and each runs at least three times."""
    times: dict[str, list[float]] = {name: [] for name in sessions}
    for session in sessions.values():
        session.run(feeds)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(next(iter(times.values()))) < 3:
        for name, session in sessions.items():
            begin = time.perf_counter()
            session.run(feeds)
            times[name].append(time.perf_counter() - begin)
    return {name: 1e3 * statistics.median(values) for name, values in times.items()}


def placements(graph: linnet.Graph, devices: Sequence[str], seconds: float, seed: int) -> tuple[dict[str, Any], float]:
    """{way: linnet.Placement}, and the milliseconds of the best placement that a search by the predictions alone finds. One
    machine is the one that is fastest alone, by the predictions; by hand, each tower has a host."""
    options = linnet.SessionOptions(threads=1)
    by_cost = linnet.place(graph, devices, options=options)
    alone = min(by_cost.machines, key=lambda share: share.alone_ms).machine
    given: dict[str, dict[str, str]] = {
        "one machine": {"*": alone},
        "by hand": {f"{tower}/*": device for tower, device in zip(TOWERS, devices, strict=True)} | {"*": "cpu"},
    }
    made: dict[str, Any] = {
        way: linnet.place(graph, devices, options=dataclasses.replace(options, placement=places))
        for way, places in given.items()
    }
    made["by cost"] = by_cost
    made["by search"] = linnet.place(graph, devices, options=options, search=seconds, seed=seed)
    found = {by_cost.chosen: schedule(by_cost.costs, by_cost.chosen).ns}
    local(by_cost.costs, found, Budget(steps=int(2000 * max(seconds, 0.1))), np.random.default_rng(seed))
    return made, min(found.values()) / 1e6


def evaluate(options: result.Options) -> Result:
    """Starts two hosts on this machine, or takes those of LINNET_HOSTS, places the graph in each way, and runs it."""
    side, channels = (32, 8) if options.quick else (96, 64)
    seconds = 0.3 if options.quick else 20.0
    graph = build(side, channels, options.seed)
    feeds = {"x": np.random.default_rng(options.seed).standard_normal((1, 3, side, side), np.float32)}
    figures = []
    with hosts.several(2) as devices, quiet():
        made, least = placements(graph, devices, seconds, options.seed)
        costs = made["by cost"].costs
        modelled = {way: made[way].ms for way in WAYS}
        sessions = {
            way: linnet.Session(graph, threads=1, devices=list(devices), placement=made[way].places) for way in WAYS
        }
        ms = run_ms(sessions, feeds, seconds / 2)
        scores = [session.run(feeds)["scores"] for session in sessions.values()]
        crossing = {way: schedule(costs, made[way].chosen).crossing for way in WAYS}
    for way in WAYS:
        figures.append(Figure(f"{way}, modelled", modelled[way], "ms", MODELLED))
        figures.append(Figure(f"{way}, measured", ms[way], "ms", MEASURED))
        figures.append(Figure(f"{way}, bytes between machines", crossing[way] / 1e3, "kB", MODELLED))
    figures.append(Figure(BEST, least, "ms", MODELLED))
    if not all(np.allclose(scores[0], other, rtol=1e-3, atol=1e-5) for other in scores[1:]):
        raise SystemExit("the placements give different results; please report this with the seed")
    best = min(WAYS, key=lambda way: ms[way])
    return Result(
        "placement",
        "One graph over three machines",
        f"Two towers of {channels}-channel convolutions over a {side} x {side} image, f32, one thread on each machine. Unless "
        "LINNET_HOSTS names others, the hosts are two processes on this machine, so they share its cores with the client. "
        "Modelled: by what the hosts say that nodes take, and by the measured way to them. All placements give the same scores.",
        "Abadi et al., TensorFlow, OSDI 2016, section 3.3, describes placement by constraints and by costs and prints no times",
        tuple(figures),
        f"A run takes {', '.join(f'{result.short(ms[way])} ms {said(way)}' for way in WAYS)} (measured); the predictions are "
        f"{', '.join(result.short(modelled[way]) for way in WAYS)} ms (modelled). The fastest run is {said(best)}.",
        {"places": {way: made[way].places for way in WAYS}, "lanes": lanes(made["by search"], costs)},
    )


def said(way: str) -> str:
    """A way to place nodes, as part of a sentence."""
    return "on one machine" if way == "one machine" else f"placed {way}"


def lanes(placed: Any, costs: Any) -> list[tuple[str, float, float]]:
    """(machine, start in ms, length in ms) of each node in the modelled run of a placement."""
    run = schedule(costs, placed.chosen)
    names = ["this machine", *(f"host {m}" for m in range(1, len(costs.machines)))]
    return [
        (names[at], start / 1e6, (end - start) / 1e6)
        for at, start, end in zip(placed.chosen, run.starts, run.ends, strict=True)
    ]


def draw(found: Result, canvas: Canvas) -> None:
    """Modelled and measured milliseconds on the left; on the right, when each machine computes by the search's placement."""
    left, right = canvas.subplots(1, 2)
    for number, kind in enumerate((MODELLED, MEASURED)):
        at = [i + 0.4 * number - 0.2 for i in range(len(WAYS))]
        bars = left.bar(at, [found.value(f"{way}, {kind}") for way in WAYS], 0.4, label=kind)
        left.bar_label(bars, [result.short(found.value(f"{way}, {kind}")) for way in WAYS], fontsize=8)
    left.axhline(found.value(BEST), color="k", linestyle="--", label=BEST)
    left.set(title="a run", ylabel="ms", xticks=range(len(WAYS)), xticklabels=WAYS)
    left.margins(y=0.25)
    left.legend(fontsize=8)
    machines = ["this machine", "host 1", "host 2"]
    for machine, start, length in found.extra["lanes"]:
        at = machines.index(machine)
        right.barh(at, length, 0.6, start, color=f"C{at}", edgecolor="white", linewidth=0.5)
    right.set(title="placed by search, modelled", xlabel="ms", yticks=range(3), yticklabels=machines, ylim=(2.6, -0.6))


def main(words: Sequence[str] | None = None) -> Result:
    """Runs `python -m examples.evaluation.placement`."""
    return result.command(result.parser("placement", __doc__), evaluate, draw, words)


if __name__ == "__main__":
    raise SystemExit(hosts.run(lambda: 0 if main() else 1))
