"""Reports the cost of each model: conversion (seconds, peak memory), run memory by region, planning, replanning (other shapes).
`python -m tests.report_models [--write] [--only NAME,...]`: one process per model; --write makes docs/models.md."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "models.md"
REGIONS = ("activations", "scratch", "packed_weights", "constants", "total")
Feeds = dict[str, np.ndarray]
_REPEATS = 3  # number of sessions planned; the minimum time counts


@dataclass(frozen=True)
class Subject:
    """A model of the report: its file, and one or two sets of feeds with different shapes."""

    path: Callable[[], Path]
    feeds: Callable[[], list[Feeds]]


def _subjects() -> dict[str, Subject]:
    from linnet._fetch import fetch_member
    from tests import light_nets, nets, zoo

    found = {
        name: Subject(
            lambda name=name: zoo.fetch(name),
            lambda name=name: [zoo.inputs(name, which) for which in range(len(zoo.MODELS[name].feeds))],
        )
        for name in zoo.MODELS
    }
    found |= {
        f"{name}.tflite": Subject(
            lambda source=source: fetch_member(source[0], source[2], source[1]),
            lambda source=source: _noise(fetch_member(source[0], source[2], source[1]), source[3]),
        )
        for name, source in zoo.TFLITE.items()
    }
    found |= {name: Subject(make, lambda: [nets.inputs()]) for name, make in nets.NETS.items()}
    found |= {
        name: Subject(lambda name=name: light_nets.path(name), lambda name=name: [light_nets.inputs(name)])
        for name in light_nets.STRUCTURES
    }
    return found


def _noise(path: Path, shape: tuple[int, ...] | None) -> list[Feeds]:
    """Feeds of a TFLite model: with open dimensions of 1 and then 2, or of `shape` and then one twice as long."""
    import linnet

    graph = linnet.from_tflite(path)
    inputs = linnet.Model(graph).inputs()
    rng = np.random.default_rng(1)
    sets = []
    for which in (1, 2):
        sizes = [
            [*shape[:-1], which * shape[-1]] if shape else [d or which for d in spec.shape or ()] for spec in inputs
        ]
        sets.append({
            spec.name: (100 * rng.random(size)).astype(linnet.ir.dtypes.numpy_dtype(spec.dtype))
            for spec, size in zip(inputs, sizes, strict=True)
        })  # fmt: skip
    is_open = any(spec.shape is None or None in spec.shape for spec in inputs)
    return sets if is_open else sets[:1]


def names() -> list[str]:
    """The models of the report."""
    return list(_subjects())


# ---- one model, in a process of its own ----------------------------------------------------------------------------


def _peak() -> int:
    """Peak resident bytes of this program. Read from /proc, because `getrusage` also counts the process that started it."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def worker(path: Path, feeds_file: Path) -> dict[str, Any]:
    """Measures a model. The peak of the conversion is relative to a process that has imported everything."""
    import linnet
    import linnet.converters.onnx.rewrite
    import linnet.converters.tflite.importer

    base = _peak()
    start = time.perf_counter()
    graph = linnet.from_tflite(path) if path.suffix == ".tflite" else linnet.from_onnx(path)
    converted = time.perf_counter() - start
    result: dict[str, Any] = {"file_bytes": path.stat().st_size, "convert_s": converted, "peak_bytes": _peak() - base}
    sets: dict[str, Feeds] = {}
    with np.load(feeds_file) as arrays:
        for key in arrays:
            which, name = key.split(":", 1)
            sets.setdefault(which, {})[name] = arrays[key]
    content = graph.to_bytes()
    plans: dict[str, list[float]] = {which: [] for which in sets}
    extra: dict[str, list[float]] = {which: [] for which in sets}
    for _ in range(_REPEATS):
        model = linnet.Model(content)  # a fresh model, because plans of one model share packed weights
        start = time.perf_counter()
        session = linnet.Session(model)  # plans here if all shapes are fixed
        creation = time.perf_counter() - start
        for which, feeds in sets.items():
            times = [_seconds(session, feeds) for _ in range(4)]
            plans[which].append(session.plan_info["plan_ms"])
            extra[which].append(1e3 * max(0.0, times[0] - min(times[1:]) + (creation if which == "0" else 0)))
            if which == "0":
                result["memory"] = session.memory
    again = {"replan_ms": min(plans["1"]), "again_ms": min(extra["1"])} if "1" in plans else {}
    return result | {"plan_ms": min(plans["0"]), "ready_ms": min(extra["0"])} | again


def _seconds(session: Any, feeds: Feeds) -> float:
    start = time.perf_counter()
    session.run(feeds)
    return time.perf_counter() - start


def measure(name: str, folder: Path) -> dict[str, Any]:
    """The figures of one model. Raises FetchError if it cannot be fetched."""
    subject = _subjects()[name]
    path = subject.path()
    feeds = folder / f"{name}.npz"
    np.savez(
        feeds, **{f"{i}:{key}": value for i, values in enumerate(subject.feeds()) for key, value in values.items()}
    )
    command = [sys.executable, "-m", "tests.report_models", "--worker", str(path), str(feeds)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr.strip().splitlines()[-1]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# ---- the table -----------------------------------------------------------------------------------------------------


def table(rows: dict[str, dict[str, Any]]) -> str:
    """The rows as Markdown; MB are 10^6 bytes."""
    heads = ["model", "file, MB", "convert, s", "peak, MB", "peak / file", *(f"{r.replace('_', ' ')}, MB" for r in REGIONS),
             "plan, ms", "ready, ms", "plan again, ms", "ready again, ms"]  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for name, row in rows.items():
        memory = [f"{row['memory'][region] / 1e6:.2f}" for region in REGIONS]
        times = [f"{row[key]:.1f}" if key in row else "-" for key in ("plan_ms", "ready_ms", "replan_ms", "again_ms")]
        cells = [name, f"{row['file_bytes'] / 1e6:.1f}", f"{row['convert_s']:.2f}", f"{row['peak_bytes'] / 1e6:.0f}",
                 f"{row['peak_bytes'] / row['file_bytes']:.1f}", *memory, *times]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def page(rows: dict[str, dict[str, Any]], command: str) -> str:
    """Writes docs/models.md."""
    from tests import zoo
    from tests.peers.machine import machine

    about = machine("tests.report_models")
    notes = [f"- {name}: {entry.note}." for name, entry in zoo.MODELS.items() if entry.note and name in rows]
    return "\n".join([
        "<!-- generated by `python -m tests.report_models --write`; do not edit -->",
        "# What models cost",
        "",
        f"{about['processor']}, {about['cores']}, {about['isa']}, {about['date']}; f32, linnet's choice of threads: `{command}`."
        f"{about['load']}",
        "",
        "*convert* is the time that `linnet.from_onnx` or `from_tflite` takes in a fresh process. *peak* is the memory that",
        "this call adds, at its peak, to a process that has already imported linnet. The other columns of memory are the regions",
        "of a run at the first set of shapes (`Session.memory`). *plan* is the time to plan. *ready* is the extra time of the",
        "first run compared with a usual run; it includes packing of the weights. *plan again* and *ready again* are the same",
        "times after the session has changed to the second set of shapes (`tests/zoo.py`). Times are the shortest of three",
        "measurements.",
        "Every model agrees with ONNX Runtime (`tests/test_onnx_models.py`) or LiteRT (`tests/test_tflite_models.py`).",
        "",
        table(rows),
        "",
        *notes,
        "",
    ])  # fmt: skip


def main() -> None:
    import tempfile

    from linnet._fetch import FetchError

    if sys.argv[1:2] == ["--worker"]:
        print(json.dumps(worker(Path(sys.argv[2]), Path(sys.argv[3]))))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="names of models, separated by commas; all of them without it")
    parser.add_argument("--write", action="store_true", help="write docs/models.md")
    options = parser.parse_args()
    chosen = options.only.split(",") if options.only else names()
    rows = {}
    with tempfile.TemporaryDirectory(prefix="linnet-report-") as folder:
        for name in chosen:
            try:
                rows[name] = measure(name, Path(folder))
            except FetchError as error:
                print(f"{name} is left out: {error}", file=sys.stderr)
    print(table(rows))
    if options.write:
        PAGE.write_text(page(rows, " ".join(["python -m tests.report_models", *sys.argv[1:]])))


if __name__ == "__main__":
    main()
