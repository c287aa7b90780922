"""Compares published curves with what this simulator computes from the stated hardware. Each comparison lists its
assumptions, which no source states. No published result is used as an input unless a comparison says so."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Final

import numpy as np

from linnet.sync.simulate.compute import Compute
from linnet.sync.simulate.run import run
from linnet.sync.simulate.setting import Hardware, Mode, Setting, Traffic


@dataclasses.dataclass(frozen=True)
class Series:
    """One curve: x, the simulated values, and the published value at each x (None: none)."""

    label: str
    x: tuple[float, ...]
    simulated: tuple[float, ...]
    published: tuple[float | None, ...] = ()


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One published result and its simulation. stated: what the source says about the hardware. assumed: what the
    source does not say, and how this was chosen. log: whether the axes (x, y) of a plot are logarithmic."""

    name: str
    title: str
    source: str
    stated: tuple[str, ...]
    assumed: tuple[str, ...]
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    log: tuple[bool, bool] = (False, False)


# Data rate of one task: gRPC moves 0.9 GB/s between two tasks (TensorFlow issue 6116) on any link; 10 GbE carries 1.2.
GRPC = 0.9e9
# Costs of TensorFlow's servers, fitted to the null step with one value: 8.8 - 1.8 ms are the messages of 99 workers.
_TENSORFLOW = Hardware(
    servers=16, latency=50e-6, worker_rate=GRPC, server_rate=GRPC, message=44e-6, worker_message=20e-6,
    receive=0, send=0, aggregate=0, apply=0, row=15e-6, overhead=1e-3,
)  # fmt: skip
_OSDI = "Abadi et al., TensorFlow: a system for large-scale machine learning, OSDI 2016"


def null_step(steps: int = 30, seed: int = 0) -> Comparison:
    """Section 6.2: a synchronous step without computation, 16 servers, 1 to 100 workers, in milliseconds."""
    counts = (1, 2, 5, 10, 25, 50, 100)
    tiny = 16 * 4.0
    kinds: list[tuple[str, Traffic, float, dict[int, float]]] = [
        ("scalar", Traffic(tiny, tiny), 0.0, {1: 1.8, 100: 8.8}),
        ("dense 100 MB", Traffic(1e8, tiny), 0.0, {1: 147, 100: 613}),
        ("dense 1 GB", Traffic(1e9, tiny), 0.0, {1: 1010, 100: 7160}),
        ("sparse 1 GB", Traffic(tiny, tiny, rows=32, row_bytes=4096, table=1e9), 3e-3, {1: 5, 100: 20}),
        ("sparse 16 GB", Traffic(tiny, tiny, rows=32, row_bytes=4096, table=16e9), 3e-3, {1: 5, 100: 20}),
    ]
    series = []
    for label, traffic, lookup, printed in kinds:
        found = []
        for n in counts:
            hardware = dataclasses.replace(_TENSORFLOW, workers=n, overhead=_TENSORFLOW.overhead + lookup)
            found.append(1e3 * run(Setting(Compute(0.0), traffic, hardware), steps=steps, seed=seed).median)
        series.append(Series(label, counts, tuple(found), tuple(printed.get(n) for n in counts)))
    return Comparison(
        "null-step",
        "Null step, 16 servers",
        _OSDI + ", section 6.2",
        (
            "16 servers",
            "scalar: one 4-byte value per server; dense: the whole model is fetched; sparse: 32 random rows",
        ),
        (
            "0.9 GB/s between two tasks: gRPC as measured in TensorFlow issue 6116, below the machines' 10 GbE",
            "44 us of server time per message and 1 ms of each step outside the server: fitted to both ends of the "
            "scalar curve",
            "only the fetch transfers bulk data, because 16 ports cannot move 100 MB both ways for 100 workers in "
            "613 ms",
            "rows of 4 kB; 15 us per row and 3 ms for the lookup on the worker: fitted to 5 and 20 ms",
        ),
        "workers",
        "step, ms",
        tuple(series),
        (True, True),
    )


# Inception-v3 on K40s. 27.2 M parameters with the auxiliary head; batch 32.
_INCEPTION = Traffic(pull=1.09e8, push=1.09e8, examples=32)
_K40 = Compute(1.53, "stragglers:0.0275,0.44,20")
_INCEPTION_SERVERS = dataclasses.replace(
    _TENSORFLOW, servers=17, aggregate=0.7e-9, apply=1.47e-9, overhead=0, overlap=0.3
)
_INCEPTION_ASSUMED = (
    "1.53 s for a batch of 32 on a K40; 2.75 % of the workers take 0.44 of that longer, for 20 steps at a time: "
    "fitted to the backup curve",
    "0.7 ns of server time to add a byte of a gradient, 1.47 ns to apply one: fitted to the backup curve and to "
    "2,300 images/s",
    "30 % of the computation overlaps with transfers, because TensorFlow sends what is ready: fitted; 0.9 GB/s "
    "between two tasks",
)


def _inception(workers: int, mode: Mode) -> Setting:
    return Setting(_K40, _INCEPTION, dataclasses.replace(_INCEPTION_SERVERS, workers=workers), mode)


def backup(steps: int = 3000, seed: int = 0) -> Comparison:
    """Section 6.3: 50 workers and 0 to 6 backup workers: seconds per step, and the speed-up relative to the number of
    machines."""
    counts = tuple(range(7))
    times = [
        run(_inception(50 + b, Mode("synchronous", backup=b, late="drop")), steps=steps, seed=seed).mean for b in counts
    ]
    normalized = [100 * (times[0] / t * 50 / (50 + b) - 1) for b, t in zip(counts, times, strict=True)]
    return Comparison(
        "backup",
        "Backup workers, Inception-v3, 50 workers",
        _OSDI + ", section 6.3",
        (
            "50 workers with a K40 and 5 cores each, 17 servers with 8 cores",
            "t(0)/t(b) * 50/(50+b) is the normalized speed-up",
        ),
        _INCEPTION_ASSUMED,
        "backup workers",
        "step, s; gain, %",
        (
            Series("step, s", counts, tuple(times), (None, None, None, None, 1.93, None, None)),
            Series("normalized speed-up, %", counts, tuple(normalized), (0.0, None, None, 9.5, None, None, None)),
        ),
    )


def inception(steps: int = 100, seed: int = 0) -> Comparison:
    """Section 6.3: images per second of Inception-v3 over the number of workers, with 17 servers."""
    counts = (1, 25, 50, 100, 200, 300, 400)
    series = []
    for mode, printed in ((Mode("asynchronous"), {200: 2300.0}), (Mode("synchronous"), {})):
        found = [run(_inception(n, mode), steps=steps, seed=seed).examples_per_second for n in counts]
        series.append(Series(mode.kind, counts, tuple(found), tuple(printed.get(n) for n in counts)))
    alone = _INCEPTION.examples / _K40.mean
    series.append(Series("linear", counts, tuple(alone * n for n in counts), (None,) * len(counts)))
    return Comparison(
        "inception",
        "Inception-v3, 17 servers",
        _OSDI + ", section 6.3",
        (
            "up to 200 workers with a K40 and 5 cores each, 17 servers with 8 cores",
            "2,300 images/s at 200, diminishing returns",
        ),
        _INCEPTION_ASSUMED,
        "workers",
        "images/s",
        tuple(series),
    )


def dense(steps: int = 100, seed: int = 0) -> Comparison:
    """10x to 40x with 50 replicas: the speed-up of 50 synchronous replicas over the ratio of computation to transfer in
    a step."""
    ratios = (0.5, 1, 2, 4, 8, 16, 32)
    found = []
    for ratio in ratios:
        seconds = ratio * _INCEPTION.pull / GRPC
        setting = dataclasses.replace(_inception(50, Mode("synchronous")), compute=Compute(seconds, "lognormal:0.05"))
        found.append(run(setting, steps=steps, seed=seed).speedup)
    images = [
        run(_inception(50, Mode(kind)), steps=steps * 5, seed=seed).speedup for kind in ("synchronous", "asynchronous")
    ]
    own = round(_K40.mean / (_INCEPTION.pull / GRPC), 1)
    return Comparison(
        "dense",
        "Dense models, 50 replicas",
        "Dean, talks of 2015 and 2016: 10x to 40x with 50 replicas, 40x for Inception with 50 GPUs",
        ("50 replicas; the source does not say whether Inception's were synchronous",),
        (*_INCEPTION_ASSUMED, "the curve: steps with 5 % scatter, everything else as for Inception"),
        "seconds of computation per second of transfer, one worker",
        "speed-up with 50 replicas",
        (
            Series("dense model", ratios, tuple(found), (None,) * len(ratios)),
            Series("Inception-v3, sync", (own,), (images[0],), (40.0,)),
            Series("Inception-v3, async", (own,), (images[1],), (None,)),
        ),
        (True, True),
    )


def sparse(steps: int = 60, seed: int = 0) -> Comparison:
    """300x with 500 nodes, and more than 1,000 useful replicas: a model in which only touched rows are transferred."""
    counts = (1, 10, 50, 100, 250, 500, 1000, 2000)
    found = []
    for n in counts:
        hardware = dataclasses.replace(_TENSORFLOW, workers=n, servers=100, apply=1e-9)
        traffic = Traffic(pull=1e6, push=1e6, rows=500, row_bytes=512, table=1e11)
        setting = Setting(Compute(0.5, "lognormal:0.13"), traffic, hardware)
        found.append(run(setting, steps=steps, seed=seed).speedup)
    printed = {500: 300.0}
    return Comparison(
        "sparse",
        "Sparse models, synchronous replicas",
        "Dean, talks of 2015 and 2016: RankBrain 300x with 500 nodes, sparse models with 1,000 replicas and more",
        ("500 nodes",),
        (
            "a step of 0.5 s that touches 500 rows of 512 bytes, plus 1 MB of dense parameters; 100 servers",
            "servers as fitted to the null step",
            "steps with 13 % scatter (log-normal): fitted to 300x with 500",
        ),
        "workers",
        "speed-up",
        (
            Series("simulated", counts, tuple(found), tuple(printed.get(n) for n in counts)),
            Series("linear", counts, tuple(float(n) for n in counts), (None,) * len(counts)),
        ),
        (True, True),
    )


EXPERIMENTS: Final[dict[str, Callable[..., Comparison]]] = {
    "null-step": null_step, "backup": backup, "inception": inception, "dense": dense, "sparse": sparse,
}  # fmt: skip


def best_backup(comparison: Comparison) -> tuple[int, int]:
    """The number of backup workers with the shortest step, and the number with the best normalized speed-up."""
    step, gain = comparison.series
    return int(np.argmin(step.simulated)), int(np.argmax(gain.simulated))
