"""Compares modelled with measured times: for each model and dtype the time of a run and the order of its steps.
`python -m tests.bench_costs [--tuning machine.tuning] [--models NAME,...] [--dtypes f32,i8] [--threads N] [--json F]`."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import linnet
from linnet.session.session import Session
from linnet.session.tune import Timed, run_again
from tests import light_nets, nets, zoo

DTYPES = ("f32", "f16", "i16", "i8")
_ZOO = (
    "ppocr_v4_det", "ppocr_v4_rec", "ppocr_cls", "yunet", "dtln_1", "nsnet2", "scrfd_500m", "efficientword", "oww_embedding",
    "nudenet", "mtcnn_pnet", "ppocr_v6_det", "ppocr_v6_rec", "swift_f0", "chords_cnn", "magika", "basic_pitch",
)  # fmt: skip
_LIGHT = ("squeezenet", "shufflenet", "densenet121", "alexnet")
Source = Callable[[], tuple[Path, dict[str, np.ndarray]]]
MODELS: dict[str, Source] = {
    **{name: (lambda name=name: (nets.NETS[name](), nets.inputs())) for name in nets.NETS},  # type: ignore[misc]
    **{name: (lambda name=name: (light_nets.path(name), light_nets.inputs(name))) for name in _LIGHT},  # type: ignore[misc]
    **{name: (lambda name=name: (zoo.fetch(name), zoo.inputs(name))) for name in _ZOO},  # type: ignore[misc]
}


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's, without ties; 1 for fewer than three numbers."""
    if len(a) < 3:
        return 1.0
    ranks = [np.argsort(np.argsort(np.asarray(values))) for values in (a, b)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def compare(
    graph: linnet.Graph, feeds: dict[str, np.ndarray], threads: int, tuning: bytes | None, seconds: float
) -> dict[str, float]:
    """Milliseconds of a run, measured (the least of many) and modelled, and how the orders of the steps agree. Steps of
    one call (the key of tuning files) count once."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.lnt"
        graph.save(path)
        model = linnet.Model(path)
        plain, traced = (Session(model, threads=threads, tuning=tuning, trace=trace) for trace in (False, True))
        for session in (plain, traced):
            session.run(feeds)
        timed, least, end = Timed(traced), float("inf"), time.perf_counter() + seconds
        turns = 0
        while turns < 5 or time.perf_counter() < end:
            begin = time.perf_counter_ns()
            run_again(plain)
            least = min(least, time.perf_counter_ns() - begin)
            timed.turn()
            turns += 1
        steps = traced.steps
        first = {key: i for i, key in reversed(list(enumerate(timed.keys)))}
        order = rank_correlation(
            [steps[i].modelled_ms for i in first.values()], [timed.least[i] for i in first.values()]
        )
        return {"measured": least / 1e6, "modelled": plain.plan_info["modelled_ms"], "order": order}


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line per model and dtype, and how many are within 25 % and 40 %."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench_costs", description=__doc__)
    parser.add_argument("--tuning", type=Path, help="rates that `linnet tune --machine` measured")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each line")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    tuning = options.tuning.read_bytes() if options.tuning else None
    found: dict[str, dict[str, float]] = {}
    for name in options.models.split(","):
        path, feeds = MODELS[name]()
        graph = linnet.from_onnx(path)
        for dtype in options.dtypes.split(","):
            calibration = {"calibration": [feeds]} if dtype.startswith("i") else {}
            made = graph if dtype == "f32" else linnet.quantize(graph, dtype=dtype, effort="fast", **calibration)
            row = found[f"{name} {dtype}"] = compare(made, feeds, options.threads, tuning, options.seconds)
            ratio = row["modelled"] / row["measured"]
            print(f"{name:18} {dtype:4} {row['measured']:9.3f} ms, modelled {row['modelled']:9.3f}, ratio {ratio:5.2f}, "
                  f"order of steps {row['order']:.2f}", flush=True)  # fmt: skip
    ratios = np.asarray([row["modelled"] / row["measured"] for row in found.values()])
    ordered = sum(row["order"] >= 0.9 for row in found.values())
    within = {most: int(((ratios >= 1 - most) & (ratios <= 1 / (1 - most))).sum()) for most in (0.25, 0.4)}
    print(f"{len(ratios)} runs: within 25 %: {within[0.25]}, within 40 %: {within[0.4]}, order at least 0.9: {ordered}, "
          f"geometric mean {np.exp(np.log(ratios).mean()):.3f}")  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
