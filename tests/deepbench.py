"""`python -m tests.deepbench`: times the problems of DeepBench (tests/deepbench.toml) and prints GFLOP/s, GB/s and the share of
the machine's measured peak for each. `--set device,server,training --op gemm,conv,rnn --threads 1 --seconds 0.2`."""

from __future__ import annotations

import argparse
import itertools
import json
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import linnet
from linnet import nn, ops
from linnet.cli import peaks
from linnet.session.random_inputs import random_feeds

SETS, OPS = ("device", "server", "training"), ("gemm", "conv", "rnn")
GATES = {"rnn": 1, "gru": 3, "lstm": 4}
_SEEDED = 20
Graph = linnet.Graph


@dataclass(frozen=True)
class Problem:
    """One problem. flops: of its products; a multiply-accumulate counts as two. least_bytes: of its operands, as floats."""

    set: str
    op: str
    name: str
    flops: float
    least_bytes: float
    build: Callable[[], Graph]


def table() -> Any:
    """{set: {op: rows}}, whose columns the file describes."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


def problems(sets: tuple[str, ...] = SETS, kinds: tuple[str, ...] = OPS) -> Iterator[Problem]:
    """The problems in the table's order. Those for training are also run backwards: convolutions to their input and to their
    weights, layers of an RNN to both; the table's products have those of both directions in it."""
    rows = table()
    for which, kind in itertools.product(sets, kinds):
        for row in rows[which][kind]:
            yield from {"gemm": _gemm, "conv": _conv, "rnn": _rnn}[kind](which, *row)


def _weights(graph: Graph, training: bool, *shape: int) -> Any:
    """Weights: constants for inference, which are packed once, and inputs for training, where they change in each run."""
    if training:
        return graph.placeholder("w", shape)
    values = np.random.default_rng(_SEEDED).standard_normal(shape, np.float32)
    return graph.constant(values / np.float32(np.sqrt(shape[-1])))


def _gemm(which: str, m: int, n: int, k: int, transposed: str) -> Iterator[Problem]:
    """C[m,n] = A B of columns is, of rows, the transposed product: activations [n,k] by weights [k,m]."""
    training, a_t, b_t = which == "training", transposed[0] == "T", transposed[1] == "T"

    def build() -> Graph:
        graph = Graph()
        x = graph.placeholder("x", (k, n) if b_t else (n, k))
        w = _weights(graph, training, *((m, k) if a_t else (k, m)))
        y = ops.matmul(x, w, transpose_a=b_t, transpose_b=a_t)
        graph.signature("infer", {"x": x} | ({"w": w} if training else {}), {"y": y})
        return graph

    yield Problem(which, "gemm", f"{m} x {n} x {k} {transposed}", 2.0 * m * n * k, 4.0 * (m * n + n * k + k * m), build)


def _conv(
    which: str, w: int, h: int, c: int, n: int, k: int, fw: int, fh: int, pw: int, ph: int, sw: int, sh: int
) -> Iterator[Problem]:
    out_w, out_h = (w + 2 * pw - fw) // sw + 1, (h + 2 * ph - fh) // sh + 1
    flops = 2.0 * n * k * out_w * out_h * c * fw * fh
    least = 4.0 * (n * c * w * h + n * k * out_w * out_h + k * c * fw * fh)

    def build(wanted: str) -> Graph:
        graph = Graph()
        x = graph.placeholder("x", (n, c, h, w))
        weights = _weights(graph, which == "training", k, c, fh, fw)
        y = ops.conv(x, weights, strides=[sh, sw], pads=[ph, pw, ph, pw])
        inputs = {"x": x} | ({"w": weights} if which == "training" else {})
        if wanted:
            inputs["dy"] = graph.placeholder("dy", y.static_shape)
            (y,) = linnet.gradients(y, [x if wanted == "input" else weights], seed=inputs["dy"])
        graph.signature("infer", inputs, {"y": y})
        return graph

    name = f"{n} x {c} x {h} x {w} to {k}, {fh} x {fw} / {sh} x {sw}"
    yield Problem(which, "conv", name, flops, least, lambda: build(""))
    if which == "training":
        for wanted in ("input", "weights"):
            yield Problem(which, "conv", f"{name}, back to {wanted}", flops, least, lambda what=wanted: build(what))  # type: ignore[misc]


def _rnn(which: str, cell: str, hidden: int, batch: int, steps: int) -> Iterator[Problem]:
    """A layer with as many inputs as hidden units: the products of inputs and of hidden states."""
    flops = 2.0 * steps * batch * GATES[cell] * hidden * 2 * hidden
    least = 4.0 * (2 * steps * batch * hidden + 2 * GATES[cell] * hidden * hidden)

    def build(back: bool) -> Graph:
        graph = Graph()
        x = graph.placeholder("x", (steps, batch, hidden))
        y = getattr(nn, cell)(x, hidden, time_major=True, name="layer")[0]
        outputs = {"y": y}
        if back:
            wanted = [x, *graph.variables.values()]
            outputs = {f"d{i}": d for i, d in enumerate(linnet.gradients(y, wanted))}
        graph.signature("infer", {"x": x}, outputs)
        return graph

    name = f"{cell} {hidden}, batch {batch}, {steps} steps"
    yield Problem(which, "rnn", name, flops, least, lambda: build(False))
    if which == "training":
        yield Problem(which, "rnn", f"{name}, and back", 3 * flops, 3 * least, lambda: build(True))


def measure(problem: Problem, threads: int, seconds: float, isa_max: str | None, most: Any) -> dict[str, Any]:
    """The least time of some runs of a problem within `seconds`, at least three, and what follows from it. most: the peaks of
    the machine, or None."""
    model = linnet.Model(problem.build())
    session = linnet.Session(model, threads=threads, isa_max=isa_max)
    given = random_feeds(session.inputs, {})
    feeds = {name: session.empty(name) for name in given}
    for name, value in given.items():
        feeds[name][...] = value
    bound, times, end = session.bind(feeds), list[float](), time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        begin = time.perf_counter()
        bound.run()
        times.append(time.perf_counter() - begin)
    ms = min(times) * 1e3
    kernel = max(session.steps, key=lambda step: step.modelled_ms).kernel
    facts = {"flops": problem.flops, "bytes": problem.least_bytes, "device": "cpu", "kernel": kernel}
    return {
        "set": problem.set, "op": problem.op, "problem": problem.name, "ms": ms, "kernel": kernel, "runs": len(times),
    } | peaks.shares(facts, ms, most)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", default="device", help="of " + ",".join(SETS))
    parser.add_argument("--op", default=",".join(OPS), help="of " + ",".join(OPS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--isa-max")
    parser.add_argument("--seconds", type=float, default=0.2, help="for each problem")
    parser.add_argument("--most-gflop", type=float, default=20.0, help="larger problems are left out, and counted")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    asked = [tuple(word for word in text.split(",") if word) for text in (options.set, options.op)]
    for words, known in zip(asked, (SETS, OPS), strict=True):
        if unknown := [word for word in words if word not in known]:
            parser.error(f"{', '.join(unknown)}: expected {', '.join(known)}")
    most = peaks.measured(options.threads, options.isa_max or linnet.isa_names()[-1])
    found, left = list[dict[str, Any]](), 0
    print(f"{'problem':72} {'ms':>10} {'GFLOP/s':>9} {'GB/s':>7} {'of peak':>12}  kernel")
    for problem in problems(*asked):
        if problem.flops > options.most_gflop * 1e9:
            left += 1
            continue
        row = measure(problem, options.threads, options.seconds, options.isa_max, most)
        found.append(row)
        share = "" if row["peak_share"] is None else f"{row['peak_share']:.0%} {row['peak_of']}"
        name = f"{row['set']} {row['op']} {row['problem']}"
        print(
            f"{name:72} {row['ms']:10.3f} {row['gflops']:9.1f} {row['gbs']:7.1f} {share:>12}  {row['kernel']}",
            flush=True,
        )
    for kind in asked[1]:
        shares = [row["peak_share"] for row in found if row["op"] == kind and row["peak_share"]]
        if shares:
            mean = float(np.exp(np.mean(np.log(shares))))
            print(
                f"{kind}: {len(shares)} problems, geometric mean of the shares {mean:.0%}, smallest {min(shares):.0%}"
            )
    if left:
        print(f"{left} problems of more than {options.most_gflop:g} GFLOP are left out (--most-gflop)")
    if options.json:
        options.json.write_text(json.dumps({"threads": options.threads, "peaks": most, "rows": found}, indent=1))


if __name__ == "__main__":
    main()
