"""`python -m examples.evaluation.backup_workers`: synchronous training that does not wait for the last workers, as in section 6.3
of the TensorFlow paper (OSDI 2016): measured with eight workers of which one is slow, and simulated with 50."""

from __future__ import annotations

import dataclasses
import statistics
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

import linnet
from linnet.report import tables
from linnet.sync import Server, Worker, simulate
from linnet.sync.simulate import published

from . import result
from .result import MEASURED, SIMULATED, Figure, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

WORKERS = 50  # of the simulated cluster, besides the backup workers
BACKUPS = range(7)


@dataclasses.dataclass(frozen=True)
class Straggler:
    """Workers of which the last one may be slow. workers: their number, of which `backup` are not waited for. compute: seconds
    that a worker needs for a step, by a log-normal distribution with sigma 0.05. slowed: how often that time the last needs."""

    workers: int = 8
    backup: int = 0
    compute: float = 0.04
    slowed: float = 1.0


def model() -> bytes:
    """A softmax regression on 784 inputs, with 31 KB of gradients."""
    graph = linnet.Graph(seed=1)
    x, t = graph.placeholder("x", ("batch", 784)), graph.placeholder("t", ("batch",), "i32")
    loss = linnet.softmax_cross_entropy(linnet.nn.dense(x, 10), t).mean()
    linnet.sync.signatures(graph, loss, linnet.SGD(0.01), {"x": x, "t": t})
    return graph.to_bytes()


def round_of(data: bytes, setup: Straggler, steps: int, seed: int) -> float:
    """Median seconds between two updates of a real server, as seen by worker 0, which is never slowed."""
    marks: list[float] = []
    done = threading.Event()
    rng = np.random.default_rng(seed)
    feeds = {"x": rng.normal(size=(8, 784)).astype(np.float32), "t": rng.integers(0, 10, 8).astype(np.int32)}
    quorum = setup.workers - setup.backup
    with Server(data, workers=setup.workers, quorum=quorum, elastic=True) as server:

        def work(number: int) -> None:
            own = np.random.default_rng([seed, number])
            factor = setup.slowed if number == setup.workers - 1 else 1.0
            with Worker(data, server.address, number=number) as worker:
                while not done.is_set():
                    # Replaces computing gradients: eight workers that compute would share this machine's cores.
                    time.sleep(setup.compute * own.lognormal(0.0, 0.05) * factor)
                    worker.step(feeds)
                    if number == 0:
                        marks.append(time.perf_counter())
                        if len(marks) > steps:
                            done.set()

        threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(setup.workers)]
        for thread in threads:
            thread.start()
        done.wait()
        for thread in threads:
            thread.join()
    return statistics.median(np.diff(marks))


# The computation of the paper's Inception-v3 as `linnet simulate --published backup` fits it: some machines are slower for 20
# steps in a row.
INCEPTION = simulate.Compute(1.53, "stragglers:0.0275,0.44,20")
TRAFFIC = simulate.Traffic(pull=1.09e8, push=1.09e8, examples=32)


def simulated(total: int, backup: int, steps: int, seed: int) -> simulate.Result:
    """`total` workers that train Inception-v3, of which a step does not wait for `backup`, with linnet's 17 servers."""
    hardware = simulate.Hardware(workers=total, servers=17)
    mode = simulate.Mode("synchronous", backup=backup)
    return simulate.run(simulate.Setting(INCEPTION, TRAFFIC, hardware, mode), steps=steps, seed=seed)


def backups(number: int) -> str:
    """ "1 backup worker", "2 backup workers"."""
    return tables.count(number, "backup worker")


def evaluate(options: result.Options) -> Result:
    """Measures a slow worker with 0 to 3 backup workers, and simulates 0 to 6 backup workers beside 50."""
    steps, rounds, compute = (4, 1, 0.01) if options.quick else (60, 5, 0.04)
    figures, data = [], model()
    setups = {f"no slow worker, {backups(0)}": Straggler(compute=compute)}
    setups |= {f"one slow worker, {backups(b)}": Straggler(backup=b, compute=compute, slowed=5.0) for b in range(4)}
    times: dict[str, list[float]] = {name: [] for name in setups}
    for number in range(rounds):  # in turn, so that a machine that becomes slower is slower for all
        for name, setup in setups.items():
            times[name].append(round_of(data, setup, steps, options.seed + number))
    for name, found in times.items():
        figures.append(Figure(name, 1e3 * statistics.median(found), "ms", MEASURED))
    many = 60 if options.quick else 3000
    paper = published.backup(steps=many, seed=options.seed).series
    for label, unit, curve in (("TensorFlow's servers", "s", paper[0]), ("TensorFlow's servers, gain", "%", paper[1])):
        for b, value, printed in zip(BACKUPS, curve.simulated, curve.published, strict=True):
            source = "" if printed is None or b == 0 else f"{printed:g} {unit}"
            figures.append(Figure(f"{label}, {backups(b)}", value, unit, SIMULATED, source))
    own = [simulated(WORKERS + b, b, many, options.seed).mean for b in BACKUPS]
    gains = [100 * (own[0] / t * WORKERS / (WORKERS + b) - 1) for b, t in zip(BACKUPS, own, strict=True)]
    figures += [Figure(f"linnet's servers, {backups(b)}", t, "s", SIMULATED) for b, t in zip(BACKUPS, own, strict=True)]
    figures += [
        Figure(f"linnet's servers, gain, {backups(b)}", g, "%", SIMULATED) for b, g in zip(BACKUPS, gains, strict=True)
    ]
    ms = {figure.name: figure.value for figure in figures}
    base, slow, best = (ms[name] for name in list(setups)[:3])
    shortest, fairest = int(np.argmin(own)), int(np.argmax(gains))
    return Result(
        "backup_workers",
        "Synchronous steps with backup workers",
        f"Measured: a real server and eight workers on this machine, which sleep for {1e3 * compute:g} ms in place of computing; "
        f"the slow one sleeps five times as long. Simulated: {WORKERS} workers and as many more as there are backup workers, "
        f"17 servers, {many} steps of Inception-v3. The gain counts the backup workers' machines: "
        f"t(0) / t(b) * {WORKERS} / ({WORKERS} + b) - 1.",
        "Abadi et al., TensorFlow, OSDI 2016, section 6.3: 50 workers with a K40 each; the computation's times and the costs of "
        "TensorFlow's servers are fitted to it",
        tuple(figures),
        f"One slow worker of eight makes a step {slow / base:.1f} times as long, and one backup worker makes it "
        f"{best / base:.2f} times as long as without a slow worker (measured); beside {WORKERS} workers, {shortest} backup "
        f"workers give the shortest step, {100 * (1 - own[shortest] / own[0]):.0f} % less than none, and {fairest} the best gain "
        f"per machine, {gains[fairest]:.1f} % (simulated with linnet's servers).",
    )


def draw(found: Result, canvas: Canvas) -> None:
    """Measured steps on the left; simulated steps and gains over the number of backup workers."""
    left, middle, right = canvas.subplots(1, 3)
    x, y = result.series(found, "one slow worker", MEASURED)
    left.bar(x, y, color="C0", width=0.6, label="one of eight workers is slow")
    left.axhline(found.value(f"no slow worker, {backups(0)}"), color="k", linestyle="--", label="no worker is slow")
    left.set(title="8 workers, measured", xlabel="backup workers", ylabel="step, ms", xticks=x, ylim=(0, 1.35 * max(y)))
    for number, label in enumerate(("TensorFlow's servers", "linnet's servers")):
        middle.plot(*result.series(found, label), "o-", color=f"C{number}", label=label)
        right.plot(*result.series(found, f"{label}, gain"), "o-", color=f"C{number}", label=label)
    middle.plot([4], [1.93], "k^", label="OSDI 2016")
    right.plot([3], [9.5], "k^", label="OSDI 2016")
    middle.set(title="50 workers, simulated", xlabel="backup workers", ylabel="step, s")
    right.set(title="50 workers, simulated", xlabel="backup workers", ylabel="gain per machine, %")
    for axes in (left, middle, right):
        axes.legend(fontsize=8)


def main(words: Sequence[str] | None = None) -> Result:
    """Runs `python -m examples.evaluation.backup_workers`."""
    return result.command(result.parser("backup_workers", __doc__), evaluate, draw, words)


if __name__ == "__main__":
    main()
