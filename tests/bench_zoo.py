"""Times real models (tests/zoo.py) beside ONNX Runtime, and names the steps that a scalar reference kernel computes:
`python -m tests.bench_zoo [--models a,b] [--threads N] [--dtype f32|f16|i16|i8] [--seconds S] [--json F]`."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import linnet
from tests import zoo

ROUNDS = 4


def least(run: Callable[[], Any], seconds: float) -> float:
    """The least milliseconds of a run, after one that is not counted."""
    run()
    best, end = math.inf, time.perf_counter() + seconds
    while time.perf_counter() < end or best == math.inf:
        before = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - before)
    return 1e3 * best


def references(session: linnet.Session) -> dict[str, float]:
    """The share of a run's time that each scalar reference kernel takes, those of 1 % and more."""
    total = sum(step.ms for step in session.steps) or 1.0
    found: dict[str, float] = {}
    for step in session.steps:
        if "reference" in step.kernel:
            found[step.kernel] = found.get(step.kernel, 0.0) + step.ms / total
    return {kernel: round(share, 3) for kernel, share in found.items() if share >= 0.01}


def graph_of(path: Path, name: str, dtype: str) -> Any:
    """The converted model; integers are calibrated on its test inputs."""
    graph = linnet.from_onnx(path, input_shapes=zoo.input_shapes(name))
    if dtype == "f32":
        return graph
    samples = [zoo.inputs(name)] if dtype.startswith("i") else None
    return linnet.quantize(graph, samples, dtype=dtype)


def row(name: str, threads: int, dtype: str, seconds: float) -> dict[str, Any]:
    import onnxruntime

    path, feeds = zoo.fetch(name), zoo.inputs(name)
    graph = graph_of(path, name, dtype)
    session, traced = linnet.Session(graph, threads=threads), linnet.Session(graph, threads=threads, trace=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    peer = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    own, other = math.inf, math.inf
    for _ in range(ROUNDS):
        own = min(own, least(lambda: session.run(feeds), seconds / ROUNDS))
        other = min(other, least(lambda: peer.run(None, feeds), seconds / ROUNDS))
    for _ in range(3):
        traced.run(feeds)
    return {"model": name, "ms": own, "peer_ms": other, "ratio": own / other, "references": references(traced)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(zoo.names()))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", choices=("f32", "f16", "i16", "i8"), default="f32")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each engine and model")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = []
    for name in args.models.split(","):
        try:
            found = row(name, args.threads, args.dtype, args.seconds)
        except Exception as error:  # a model that one of the two refuses does not stop the others
            print(f"{name:20s} not compared: {str(error).strip().splitlines()[0][:100]}", file=sys.stderr)
            continue
        rows.append(found)
        said = ", ".join(f"{kernel} {100 * share:.0f} %" for kernel, share in found["references"].items())
        print(
            f"{name:20s} {found['ms']:9.3f} ms, ONNX Runtime {found['peer_ms']:9.3f}, ratio {found['ratio']:.2f}  {said}"
        )
    if not rows:
        raise SystemExit("no model was compared")
    mean = math.exp(sum(math.log(found["ratio"]) for found in rows) / len(rows))
    print(
        f"{len(rows)} models at {args.dtype}, {args.threads} threads: geometric mean {mean:.3f} of ONNX Runtime's f32 time"
    )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
