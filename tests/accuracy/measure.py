"""Measures one network in a process of its own: `python -m tests.accuracy.measure NAME OPTIONS` prints a JSON object.
The file, the data and the comparisons are the entry's; ONNX Runtime's part comes from the cache if it is there."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import linnet
from linnet._fetch import write_atomic
from tests.accuracy import ort
from tests.accuracy.cost import Peak, costs
from tests.accuracy.entry import CALIBRATION, TEST, Entry, Feeds, Outputs, Sample, digest, entries, run, unrolled
from tests.accuracy.files import results_dir

Row = dict[str, Any]


def load(path: Path, sample: Feeds) -> linnet.Graph:
    """The float graph with the shapes of a sample."""
    shapes = {name: value.shape for name, value in sample.items()}
    if path.suffix == ".tflite":
        return linnet.from_tflite(path, input_shapes=shapes)
    return linnet.from_onnx(path, input_shapes=shapes)


def caller(graph: linnet.Graph, threads: int = 2) -> Callable[[Feeds], Outputs]:
    """A function that runs a graph."""
    session = linnet.Session(graph, threads=threads)
    return lambda feeds: {name: np.array(value) for name, value in session.run(feeds).items()}


def quantized(graph: linnet.Graph, feeds: Sequence[Feeds], dtype: str, effort: str | None, **more: Any) -> linnet.Graph:
    """linnet.quantize; `effort` is passed if it has this parameter."""
    if effort and "effort" in inspect.signature(linnet.quantize).parameters:
        more["effort"] = effort
    needed = (
        None if dtype in ("f16", "bf16") and "effort" not in inspect.signature(linnet.quantize).parameters else feeds
    )
    return linnet.quantize(graph, needed, dtype, **more)


def finite(outputs: Sequence[Outputs]) -> bool:
    """Whether no floating-point output holds NaN or infinity."""
    return all(np.isfinite(v).all() for o in outputs for v in o.values() if v.dtype.kind == "f")


def kept(table: Path) -> int | None:
    """The number of rows of a table that say f32."""
    if not table.is_file():
        return None
    rows = [line.partition("#")[0].split() for line in table.read_text().splitlines()]
    return sum("f32" in row[1:] for row in rows)


def short(error: BaseException) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def _dtype(entry: Entry, graph: linnet.Graph, feeds: Sequence[Feeds], test: Sequence[Sample], expected: Sequence[Outputs],
           dtype: str, effort: str | None, peer: Path | None) -> Row:  # fmt: skip
    with tempfile.TemporaryDirectory() as temporary:
        table = Path(temporary) / "table.txt"
        begin, memory = time.perf_counter(), Peak()
        small = quantized(graph, feeds, dtype, effort, table_out=table)
        seconds, megabytes = time.perf_counter() - begin, memory.megabytes()
        rows = kept(table)
    begin = time.perf_counter()
    got = run(caller(small), test, entry.feedback)
    ran = time.perf_counter() - begin
    usual = all(np.isfinite(v).all() for o in expected for v in o.values() if v.dtype.kind == "f")
    return {
        "points": round(entry.agreement(expected, got), 3), "seconds": round(seconds, 2), "run": round(ran / len(got), 5),
        "megabytes": megabytes, "kept": rows, "nan": usual and not finite(got), **costs(graph, small, feeds[0], peer),
    }  # fmt: skip


def _onnx(path: Path, graph: linnet.Graph, folder: Path) -> Path:
    """The ONNX form of the network: the file itself, or linnet's export."""
    if path.suffix == ".onnx":
        return path
    graph.to_onnx(folder / "exported.onnx")
    return folder / "exported.onnx"


def _ort(name: str, entry: Entry, path: Path, graph: linnet.Graph, data: dict[str, list[Sample]]) -> tuple[Row, Path]:
    """ONNX Runtime's figures, and where its best file is."""
    whole = hashlib.sha256(path.read_bytes()).hexdigest()[:20], digest(data[CALIBRATION]), digest(data[TEST])
    key = hashlib.sha256(" ".join([*whole, ort.key(), entry.measure]).encode()).hexdigest()[:24]
    file = results_dir() / "ort" / f"{name}-{key}.json"
    if file.is_file():
        return dict(json.loads(file.read_text())), file.with_suffix(".onnx")
    with tempfile.TemporaryDirectory() as temporary:
        found = ort.points(entry, _onnx(path, graph, Path(temporary)), data[CALIBRATION], data[TEST],
                           file.with_suffix(".onnx"))  # fmt: skip
    if any(isinstance(value, float) for value in found.values()):
        write_atomic(file, json.dumps(found).encode())
    return dict(found), file.with_suffix(".onnx")


def measure(
    name: str, dtypes: Sequence[str], effort: str | None, samples: int | None, with_ort: bool, ort_only: bool = False
) -> Row:
    """All figures of a network."""
    entry = entries()[name]
    row: Row = {"name": name, "measure": entry.measure, "note": entry.note, "dtypes": {}, "ort": {}}
    begin = time.perf_counter()
    path = entry.file()
    data = {CALIBRATION: entry.data(CALIBRATION, entry.calibrations), TEST: entry.data(TEST, samples or entry.tests)}
    row["data_seconds"] = round(time.perf_counter() - begin, 2)
    graph = load(path, data[TEST][0][0])
    call = caller(graph)
    feeds = unrolled(call, data[CALIBRATION], entry.feedback)
    begin = time.perf_counter()
    expected = run(call, data[TEST], entry.feedback)
    row["run"] = round((time.perf_counter() - begin) / len(expected), 5)
    row["self"] = round(entry.agreement(expected, expected), 3)  # must be 100
    row["share"] = round(entry.share(expected), 4) if entry.share else None
    row["results"] = len(expected)
    peer: Path | None = None
    if with_ort:
        try:
            row["ort"], peer = _ort(name, entry, path, graph, data)
        except Exception as error:
            row["ort"] = {"error": short(error)}
    for dtype in () if ort_only else dtypes:
        try:
            row["dtypes"][dtype] = _dtype(entry, graph, feeds, data[TEST], expected, dtype, effort,
                                          peer if dtype == "i8" else None)  # fmt: skip
        except Exception as error:
            row["dtypes"][dtype] = {"error": short(error)}
    return row


def main() -> None:
    """Reads the arguments of `measure` as JSON, and prints its row as the last line."""
    arguments = json.loads(sys.argv[1])
    out = os.dup(1)
    os.dup2(2, 1)  # what libraries print is not the row
    try:
        with contextlib.redirect_stdout(sys.stderr):
            row = measure(**arguments)
    except BaseException as error:
        traceback.print_exc()
        row = {"name": arguments["name"], "error": short(error)}
    os.write(out, (json.dumps(row) + "\n").encode())


if __name__ == "__main__":
    main()
