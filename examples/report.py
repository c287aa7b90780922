"""Code that the demos share: options, the loop over number formats, timing, and the table that each demo prints.
A demo gives a `Row` per number format; speed-ups are relative to the f32 row."""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .load import Meter

DTYPES = ("f32", "f16", "i16", "i8")
MOST_OTHERS = 0.2  # cores that others may use on a quiet machine
MOST_SPREAD = 0.15  # of the middle half of the times


@dataclass(frozen=True)
class Options:
    """The user's options: output folder, seconds of timing per row, threads (None: linnet's choice), and the device that
    runs what it can (None: the CPU)."""

    out: Path
    seconds: float
    threads: int | None
    device: str | None = None


@dataclass(frozen=True)
class Row:
    """One line of the table; memory is everything that the sessions take while running; `wrong` of `total` characters
    or digits."""

    dtype: str
    file_bytes: int
    memory_bytes: int
    wrong: int
    total: int


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """Returns a parser with the options that every demo has; `name` is the module."""
    made = argparse.ArgumentParser(prog=f"python -m {name}", description=description)
    made.add_argument("--out", type=Path, default=Path("demo-out"), help="folder for .lnt files and pictures")
    made.add_argument("--seconds", type=float, default=3.0, help="seconds of timing per row (default: 3)")
    made.add_argument("--threads", type=int, default=None, help="threads per session (default: linnet's choice)")
    made.add_argument("--device", help='device that runs what it can, for example "opencl" (default: the CPU)')
    return made


def options(args: argparse.Namespace) -> Options:
    """Parses the options and makes the output folder; ends the program if that is impossible."""
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SystemExit(
            f"cannot make the folder {args.out}: {error.strerror}; give another folder with --out"
        ) from None
    return Options(args.out, args.seconds, args.threads, args.device)


@dataclass(frozen=True)
class Timing:
    """Milliseconds of each run by number format, in the order of the rounds, and the cores that other processes used."""

    times: dict[str, list[float]]
    others: float

    def median(self, dtype: str) -> float:
        """The median of a format's runs."""
        return statistics.median(self.times[dtype])

    @property
    def spread(self) -> float:
        """How much the middle half of a format's runs differs, over their median; of the format where this is most."""
        found = [0.0]
        for times in self.times.values():
            low, middle, high = statistics.quantiles(times, n=4, method="inclusive")
            found.append((high - low) / middle)
        return max(found)

    def __str__(self) -> str:
        rounds = len(next(iter(self.times.values())))
        text = f"Medians of {rounds} rounds; each round runs every format once, in turn."
        why = []
        if self.others >= MOST_OTHERS:
            why.append(f"other processes used {self.others:.1f} of {os.cpu_count()} cores")
        if self.spread >= MOST_SPREAD:
            why.append(f"runs of one format differ by {self.spread:.0%}")
        if why:
            text += f"\nThe machine was busy: {', and '.join(why)}."
            text += "\nOn a quiet machine, times are shorter and ratios more certain."
        return text


def timed(works: Mapping[str, Callable[[], object]], seconds: float, least: int = 5) -> Timing:
    """Runs all `works` in turn: once untimed, then in rounds for `seconds` times their number, at least `least` rounds."""
    for work in works.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in works}
    meter, end, rounds = Meter(), time.perf_counter() + seconds * len(works), 0
    while rounds < least or time.perf_counter() < end:
        rounds += 1
        for name, work in works.items():
            start = time.perf_counter()
            work()
            times[name].append(1000 * (time.perf_counter() - start))
    return Timing(times, meter.others())


def print_table(title: str, rows: Sequence[Row], timing: Timing, what: str, latency: str) -> None:
    """Prints the table, and below it how it was timed; `what` names the things that are counted as wrong, `latency` says
    what one run is."""
    table = Table(title=title)
    table.add_column("dtype")
    for heading in ("file", "memory", f"{what} wrong", f"{latency}, ms", "against f32"):
        table.add_column(heading, justify="right")
    base = timing.median("f32")
    for row in rows:
        milliseconds = timing.median(row.dtype)
        table.add_row(
            row.dtype,
            size(row.file_bytes),
            size(row.memory_bytes),
            f"{row.wrong} of {row.total}",
            f"{milliseconds:.3g}" if milliseconds < 100 else f"{milliseconds:.0f}",
            f"{base / milliseconds:.2f} x",
        )
    Console().print(table)
    print(timing)


def size(count: int) -> str:
    """Formats a number of bytes for people, in decimal units as everywhere in linnet."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"
