"""`python -m tests.accuracy.debug_quant [NAME ...]`: what the first suggestion of `linnet debug-quant` gives real networks
that lose much if every layer has 8 bits. Loss and time before and after the rows that it prints; loss on test data, which
it does not see."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Sequence

import linnet
from linnet.quantization.agreement import Agreement, decibel
from linnet.quantization.costs import Costs
from linnet.quantization.debug import debug_quantization
from linnet.quantization.debug_fix import FixOptions, find_fix
from linnet.quantization.debug_measure import relative_noise
from linnet.quantization.debug_report import Fix
from linnet.quantization.entry import Settings, quantized
from linnet.quantization.goal import Goal
from tests.accuracy.entry import CALIBRATION, TEST, Feeds, Outputs, entries, run, unrolled
from tests.accuracy.measure import caller, load

MISSES = ("dtln_2", "iris_landmark", "swift_f0", "ppocr_v4_det", "oww_melspectrogram")
LIMIT, SECONDS = 16, 120.0  # the defaults of the command
TURNS, LEAST_SECONDS = 7, 1.0


@dataclasses.dataclass(frozen=True)
class Found:
    """points: before and after, of 100. db: SQNR of the test outputs. modelled, measured: time after over that before;
    measured is None if nothing was timed."""

    name: str
    points: tuple[float, float]
    db: tuple[float, float]
    modelled: float
    measured: float | None
    fix: Fix
    seconds: float

    @property
    def halved(self) -> bool:
        """Whether at most half of the lost points are still lost."""
        return 100 - self.points[1] <= (100 - self.points[0]) / 2


def noise(expected: Sequence[Outputs], got: Sequence[Outputs]) -> float:
    """The SQNR of all outputs together, in dB."""
    sums = {name: Agreement() for name in expected[0]}
    for wanted, theirs in zip(expected, got, strict=True):
        for name, total in sums.items():
            total.add(wanted[name], theirs[name])
    return decibel(1.0, relative_noise(sums.values()))


def ratio(before: linnet.Graph, after: linnet.Graph, feeds: Feeds) -> float:
    """The shortest time of a run of `after` over that of `before`, measured in turns."""
    calls = [caller(graph, threads=1) for graph in (before, after)]
    taken: list[list[float]] = [[], []]
    end = time.perf_counter() + LEAST_SECONDS
    while len(taken[0]) < TURNS or time.perf_counter() < end:
        for call, times in zip(calls, taken, strict=True):
            begin = time.perf_counter()
            call(feeds)
            times.append(time.perf_counter() - begin)
    return min(taken[1]) / min(taken[0])


def measured(name: str, timed: bool = True, seconds: float = SECONDS) -> Found:
    """Quantizes a network to 8 bits in all layers, asks for a fix, and applies its rows."""
    entry = entries()[name]
    path = entry.file()
    calibration, test = entry.data(CALIBRATION, entry.calibrations), entry.data(TEST, entry.tests)
    graph = load(path, test[0][0])
    call = caller(graph)
    feeds, expected = unrolled(call, calibration, entry.feedback), run(call, test, entry.feedback)
    made = quantized(graph, feeds, "i8", Goal(), Settings(effort="fast"))
    if made.again is None:
        raise RuntimeError("nothing was observed")
    begin = time.monotonic()
    report = debug_quantization(graph, made.graph, feeds, limit=LIMIT, seconds=seconds / 2)
    cost = Costs(feeds[0]).of
    left = seconds - (time.monotonic() - begin)
    options = FixOptions(limit=LIMIT, cost=cost, seconds=max(1.0, left))
    fix = find_fix(report, graph, made.graph, made.again, feeds, options)
    took = time.monotonic() - begin
    fixed = made.again(fix.table)
    outputs = [run(caller(small), test, entry.feedback) for small in (made.graph, fixed)]
    before, after = (entry.agreement(expected, got) for got in outputs)
    return Found(
        name, (before, after), (noise(expected, outputs[0]), noise(expected, outputs[1])),
        cost(fixed).ms / cost(made.graph).ms, ratio(made.graph, fixed, feeds[0]) if timed else None, fix, took,
    )  # fmt: skip


def line(found: Found) -> str:
    """The row of a network."""
    real = "" if found.measured is None else f"{found.measured:.2f}"
    return (
        f"{found.name:<22}{found.points[0]:8.2f}{found.points[1]:8.2f}{found.db[0]:8.1f}{found.db[1]:8.1f}"
        f"{found.modelled:10.2f}{real:>10}{len(found.fix.rows):6}{found.seconds:7.1f}  {'yes' if found.halved else 'NO'}"
    )


def main(words: Sequence[str] | None = None) -> int:
    """Prints a row per network; returns 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.accuracy.debug_quant", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"networks; without any {', '.join(MISSES)}")
    parser.add_argument("--rows", action="store_true", help="also print the rows, and what was tried")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long to measure layers and to try them")
    options = parser.parse_args(words)
    print(
        f"{'network':<22}{'points':>8}{'after':>8}{'dB':>8}{'after':>8}{'modelled':>10}{'measured':>10}  rows      s  halved"
    )
    for name in options.names or MISSES:
        found = measured(name, seconds=options.seconds)
        print(line(found), flush=True)
        for key, value in found.fix.rows.items() if options.rows else ():
            print(f"    {key} {value}")
        for attempt in found.fix.tries if options.rows else ():
            print(f"    tried {attempt.layer}: {attempt.rows} {attempt.output_db}")
        if options.rows and found.fix.note:
            print(f"    {found.fix.note}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
