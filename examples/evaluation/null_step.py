"""`python -m examples.evaluation.null_step`: a training step that fetches parameters, computes nothing and sends an update, with
1 to 100 workers, as in section 6.2 of the TensorFlow paper (OSDI 2016): one value, a dense model, and rows of a table."""

from __future__ import annotations

import dataclasses
import os
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from linnet.sync import simulate
from linnet.sync.simulate import measure, published

from . import null_workers, processes, result
from .result import MEASURED, SIMULATED, Figure, Result, workers

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

MB = 10**6
ROW = 1024  # bytes of a row of a table
ROWS = 32  # that a sparse step fetches
SERVERS = 16  # of the simulated cluster, as in the paper
COUNTS = (1, 2, 5, 10, 25, 50, 100)


@dataclasses.dataclass(frozen=True)
class Case:
    """What a step fetches: `count` pieces of `size` bytes from a table of `table` bytes. source: the paper's curve for it."""

    name: str
    count: int
    size: int
    table: int
    source: str = ""


def cases(quick: bool) -> list[Case]:
    """The kinds of steps."""
    dense = MB if quick else 100 * MB
    tables = (MB, 4 * MB) if quick else (100 * MB, 1000 * MB, 4000 * MB)
    found = [Case("scalar", 1, 4, 4, "scalar"), Case(f"dense {dense // MB} MB", 1, dense, dense, "dense 100 MB")]
    return found + [Case(f"sparse {table // MB:,} MB", ROWS, ROW, table, "sparse 1 GB") for table in tables]


def workers_of(case: Case, counts: Sequence[int]) -> list[int]:
    """The numbers of workers that fit this machine. Each worker of a dense step holds the model, its gradient and a buffer."""
    pages = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4e9
    held = 3 * case.table if case.count == 1 else 8 * MB
    return [n for n in counts if (n + 1) * held < 0.5 * pages]


def measured(case: Case, count: int, engine: str, folder: Path, quick: bool) -> float:
    """The median over rounds of the median step in ms of real servers and workers, each a process on this machine."""
    steps = 4 if quick else max(3, min(500, 50_000_000 // max(case.count * case.size, 100_000)) // count)
    with ExitStack() as stack:
        server, work, env = null_workers.commands(engine, case, count, folder)
        address = processes.line(stack.enter_context(processes.started(server, env))).strip()
        running = processes.Engine([[*words, address] for words in work], stack, env)
        running.measure(2)
        rounds = [statistics.median(running.measure(steps)) / 1e3 for _ in range(1 if quick else 5)]
    return statistics.median(rounds)


def simulated(case: Case, count: int, costs: dict[str, float], seed: int) -> float:
    """Milliseconds of a step with 16 servers on 10 Gbit/s Ethernet that cost what linnet's server costs here. As in the paper,
    only what is fetched is bulk data."""
    small = 4.0 * SERVERS
    if case.count == 1:
        traffic = simulate.Traffic(max(small, case.size), small)
    else:
        traffic = simulate.Traffic(small, small, rows=case.count, row_bytes=case.size, table=case.table)
    hardware = simulate.Hardware(workers=count, servers=SERVERS, **costs)
    setting = simulate.Setting(simulate.Compute(0.0), traffic, hardware)
    return 1e3 * simulate.run(setting, steps=20, seed=seed).median


def paper() -> dict[str, dict[int, float]]:
    """{curve: {number of workers: the paper's milliseconds}}; the paper's figures are those that `linnet simulate` compares."""
    curves = published.null_step(steps=1).series
    return {s.label: {int(n): ms for n, ms in zip(s.x, s.published, strict=True) if ms is not None} for s in curves}


def evaluate(options: result.Options) -> Result:
    """Measures each kind of step with every number of workers, and simulates the same numbers with 16 servers."""
    counts = (1, 3) if options.quick else COUNTS
    engine, printed = null_workers.best_engine(), paper()
    costs = measure.costs(1 if options.quick else 30)
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(options.quick):
            for n in workers_of(case, counts):
                ms = measured(case, n, engine, Path(folder), options.quick)
                figures.append(Figure(f"{case.name}, {workers(n)}", ms, "ms", MEASURED))
    for case in cases(options.quick):
        for n in counts:
            ms = "" if options.quick and case.name != "scalar" else printed[case.source].get(n, "")
            figures.append(
                Figure(
                    f"{case.name}, {workers(n)}, {SERVERS} servers", simulated(case, n, costs, options.seed), "ms", SIMULATED,
                    f"{ms:g} ms" if ms else "",
                )
            )  # fmt: skip
    found = {figure.name: figure.value for figure in figures}
    first, *_, largest = (case.name for case in cases(options.quick) if case.count > 1)
    most = counts[-1]
    return Result(
        "null_step",
        "Null step by the number of workers",
        f"Measured: one server and all workers ({'C' if engine == 'linnet' else 'Python'} programs), each a process, share this "
        f"machine and its loopback. Simulated: {SERVERS} servers and as many machines as workers on 10 Gbit/s Ethernet, with the "
        "costs of linnet's server that were measured here.",
        "Abadi et al., TensorFlow, OSDI 2016, section 6.2: 16 servers and up to 100 workers in a shared cluster",
        tuple(figures),
        f"A step that fetches one value takes {result.short(found['scalar, 1 worker'])} ms with one worker and "
        f"{result.short(found[f'scalar, {most} workers'])} ms with {most} (measured); {ROWS} rows of a table take "
        f"{result.short(found[f'{first}, 1 worker'])} ms from {first.split(' ', 1)[1]} and "
        f"{result.short(found[f'{largest}, 1 worker'])} ms from {largest.split(' ', 1)[1]} (measured): only the rows "
        f"travel. With {SERVERS} servers, {most} workers would take "
        f"{result.short(found[f'scalar, {most} workers, {SERVERS} servers'])} ms for one value (simulated).",
    )


def draw(found: Result, canvas: Canvas) -> None:
    """A panel for each kind: step time over workers, on logarithmic axes."""
    names = result.labels(found)
    panels = {kind: [name for name in names if name.startswith(kind)] for kind in ("scalar", "dense", "sparse")}
    printed = paper()
    for axes, (kind, shown) in zip(canvas.subplots(1, 3), panels.items(), strict=True):
        for number, name in enumerate(shown):
            colour = f"C{number}"
            for kind_of, style in ((MEASURED, "o-"), (SIMULATED, "--")):
                curve = result.series(found, name, kind_of)
                axes.loglog(*curve, style, color=colour, label=f"{name}, {kind_of}", markersize=4)
        points = printed[{"scalar": "scalar", "dense": "dense 100 MB", "sparse": "sparse 1 GB"}[kind]]
        axes.loglog(list(points), list(points.values()), "k^", label="OSDI 2016")
        axes.set(title=kind, xlabel="workers", ylabel="step, ms")
        axes.legend(fontsize=7)


def main(words: Sequence[str] | None = None) -> Result:
    """Runs `python -m examples.evaluation.null_step`."""
    return result.command(result.parser("null_step", __doc__), evaluate, draw, words)


if __name__ == "__main__":
    main()
