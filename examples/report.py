"""Code that the demos share: options, the loop over number formats, timing, and the table that each demo prints.
A demo gives a `Row` per number format; speed-ups are relative to the f32 row."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

DTYPES = ("f32", "f16", "i16", "i8")


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
    or digits, `milliseconds` per run."""

    dtype: str
    file_bytes: int
    memory_bytes: int
    wrong: int
    total: int
    milliseconds: float


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


def median_ms(work: Callable[[], object], seconds: float, least: int = 3) -> float:
    """Returns the median milliseconds of the runs of `work()` that fit into `seconds`, at least `least`, after an untimed one."""
    work()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < least or time.perf_counter() < end:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times)


def print_table(title: str, rows: Sequence[Row], what: str, latency: str) -> None:
    """Prints the table; `what` names the things that are counted as wrong, `latency` says what one run is."""
    table = Table(title=title)
    table.add_column("dtype")
    for heading in ("file", "memory", f"{what} wrong", f"{latency}, ms", "against f32"):
        table.add_column(heading, justify="right")
    base = next((row.milliseconds for row in rows if row.dtype == "f32"), None)
    for row in rows:
        table.add_row(
            row.dtype,
            size(row.file_bytes),
            size(row.memory_bytes),
            f"{row.wrong} of {row.total}",
            f"{row.milliseconds:.3g}" if row.milliseconds < 100 else f"{row.milliseconds:.0f}",
            f"{base / row.milliseconds:.2f} x" if base else "-",
        )
    Console().print(table)


def size(count: int) -> str:
    """Formats a number of bytes for people, in decimal units as everywhere in linnet."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"
