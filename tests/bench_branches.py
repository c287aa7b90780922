"""Times networks with independent branches on one thread and on several: `python -m tests.bench_branches [--threads N]`.
With --library NAME=PATH (the linnet-bench of another build, may be repeated) and --models, it compares builds on .lnt files."""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import tempfile
from pathlib import Path

from tests import branch_nets
from tests.native import build

NETS = {
    "lstms_64": lambda: branch_nets.lstms(4, 40, 32, 64),
    "lstms_256": lambda: branch_nets.lstms(4, 40, 256, 256),
    "towers_14x14": lambda: branch_nets.towers(4, 6, 16, 14),
    "towers_28x28": lambda: branch_nets.towers(4, 6, 32, 28),
    "towers_56x56": lambda: branch_nets.towers(4, 6, 16, 56),
    "towers_112x112": lambda: branch_nets.towers(4, 3, 16, 112),
}


def measured(tool: Path, model: Path, threads: int, seconds: float) -> tuple[float, float]:
    """Median and least milliseconds of a run, in a process of its own."""
    words = [str(tool), str(model), "--threads", str(threads), "--seconds", str(seconds), "--json"]
    found = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return found["median_ms"], found["min_ms"]


def compared(variants: dict[str, tuple[Path, int]], model: Path, rounds: int, seconds: float) -> dict[str, list[float]]:
    """{variant: [median, least] of all rounds}; the variants take turns."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
    for turn in range(rounds):
        for name in list(variants)[:: 1 if turn % 2 else -1]:
            found[name].append(measured(variants[name][0], model, variants[name][1], seconds))
    return {name: [statistics.median(x[0] for x in got), min(x[1] for x in got)] for name, got in found.items()}


def report(model: str, found: dict[str, list[float]]) -> float:
    """Prints a line, and returns the ratio of the second variant's median to the first's."""
    (first, a), *others = found.items()
    line = f"{model:20} {first} {a[0]:.4f} ms"
    for name, b in others:
        line += f"; {name} {b[0]:.4f} ms, {b[0] / a[0]:.3f} of it ({b[1] / a[1]:.3f} by the least times)"
    print(line, flush=True)
    return next(iter(found[name] for name, _ in others))[0] / a[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--library", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--models", nargs="*", type=Path, default=[])
    options = parser.parse_args()
    tool = build("release", "linnet-bench") / "linnet-bench"
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        if options.models:
            variants = {
                name: (Path(path), options.threads) for name, path in (x.split("=", 1) for x in options.library)
            }
            files = {path.stem: path for path in options.models}
        else:
            variants = {f"{n} threads" if n > 1 else "1 thread": (tool, n) for n in (1, options.threads)}
            files = {name: Path(folder, f"{name}.lnt") for name in NETS}
            for name, path in files.items():
                NETS[name]().save(path)
        for name, path in files.items():
            ratios.append(report(name, compared(variants, path, options.rounds, options.seconds)))
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    print(f"geometric mean {mean:.3f}, from {min(ratios):.3f} to {max(ratios):.3f}")


if __name__ == "__main__":
    main()
