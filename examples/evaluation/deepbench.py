"""`python -m examples.evaluation.deepbench`: the problems of DeepBench (deepbench.toml), with GFLOP/s, GB/s and the share of this
machine's measured peak for each. `--set device,server,training --op gemm,conv,rnn` chooses some."""

from __future__ import annotations

import dataclasses
import itertools
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import linnet
from linnet import nn, ops
from linnet.cli import peaks
from linnet.session.random_inputs import random_feeds

from . import result
from .result import MEASURED, Figure, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

SETS, OPS = ("device", "server", "training"), ("gemm", "conv", "rnn")
GATES = {"rnn": 1, "gru": 3, "lstm": 4}
_SEEDED = 20
QUICK_GFLOP = 0.05  # of the largest problem that --quick runs
# Milliseconds that DeepBench reports for a Raspberry Pi 3: uint8 products by gemmlowp on four cores.
RASPBERRY = {
    "5124 x 700 x 2048 NN": 815, "35 x 700 x 2048 NN": 7.86, "3072 x 1 x 1024 NN": 14.9, "64 x 1 x 1216 NN": 0.967,
    "3072 x 1500 x 1024 NN": 517, "128 x 1500 x 1280 NN": 26.0, "3072 x 1500 x 128 NN": 97.4, "128 x 1 x 1024 NN": 0.752,
    "3072 x 1 x 128 NN": 1.37, "176 x 1500 x 1408 NN": 44.3, "4224 x 1500 x 176 NN": 181, "128 x 1 x 1408 NN": 1.04,
    "4224 x 1 x 128 NN": 2.07,
}  # fmt: skip
Graph = linnet.Graph


@dataclass(frozen=True)
class Problem:
    """One problem. flops: of its products; a multiply-accumulate counts as two. least_bytes: of its operands, as floats. rows: 1
    for a row of DeepBench's table, and 0 for a backward direction, which belongs to the row before it."""

    set: str
    op: str
    name: str
    flops: float
    least_bytes: float
    build: Callable[[], Graph]
    rows: int = 1


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
            yield Problem(which, "conv", f"{name}, back to {wanted}", flops, least, lambda what=wanted: build(what), 0)  # type: ignore[misc]


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
        yield Problem(which, "rnn", f"{name}, and back", 3 * flops, 3 * least, lambda: build(True), 0)


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


def evaluate(options: result.Options) -> Result:
    """Measures the problems one after the other, and prints a line for each."""
    given = options.given
    seconds = given.seconds if given.seconds is not None else 0.0 if options.quick else 0.2
    limit = given.most_gflop or (QUICK_GFLOP if options.quick else 100.0)
    threads = given.threads or result.cores()
    sets, kinds = chosen(given.set or ("device" if options.quick else ",".join(SETS)), SETS), chosen(given.op, OPS)
    most = peaks.measured(threads, given.isa_max or linnet.isa_names()[-1])
    found, left = list[dict[str, Any]](), 0
    print(f"{'problem':72} {'ms':>10} {'GFLOP/s':>9} {'GB/s':>7} {'of peak':>12}  kernel")
    for problem in problems(sets, kinds):
        if problem.flops > limit * 1e9:
            left += 1
            continue
        row = measure(problem, threads, seconds, given.isa_max, most)
        found.append(row | {"flops": problem.flops, "bytes": problem.least_bytes, "rows": problem.rows})
        share = "" if row["peak_share"] is None else f"{row['peak_share']:.0%} {row['peak_of']}"
        name = f"{row['set']} {row['op']} {row['problem']}"
        print(
            f"{name:72} {row['ms']:10.3f} {row['gflops']:9.1f} {row['gbs']:7.1f} {share:>12}  {row['kernel']}",
            flush=True,
        )
    if not found:
        raise SystemExit(f"no problem has at most {limit:g} GFLOP; raise --most-gflop")
    made = summary(found, left, limit, threads)
    return dataclasses.replace(made, extra={"threads": threads, "peaks": most, "rows": found})


def summary(found: list[dict[str, Any]], left: int, limit: float, threads: int) -> Result:
    """The figures that stand for all problems. left: number of problems above `limit` GFLOP."""
    figures = []
    every = sum(row["rows"] for row in found)
    figures.append(Figure("problems measured", every, "of 591", MEASURED))
    for which, kind in itertools.product(SETS, OPS):
        group = [row for row in found if (row["set"], row["op"]) == (which, kind)]
        if group:
            speed = mean([row["gflops"] for row in group])
            figures.append(Figure(f"{which} {kind}, mean of {len(group)}", speed, "GFLOP/s", MEASURED))
        if shares := [100 * row["peak_share"] for row in group if row["peak_share"]]:
            figures.append(Figure(f"{which} {kind}, share of the peak", mean(shares), "%", MEASURED))
            figures.append(Figure(f"{which} {kind}, smallest share", min(shares), "%", MEASURED))
    for row in found:
        if (row["set"], row["op"]) == ("device", "gemm") and row["problem"] in RASPBERRY:
            source = f"{RASPBERRY[row['problem']]:g} ms"
            figures.append(Figure(f"device gemm {row['problem']}", row["ms"], "ms", MEASURED, source))
    shares = [row["peak_share"] for row in found if row["peak_share"]]
    more = f" {left} runs of more than {limit:g} GFLOP are left out (--most-gflop)." if left else ""
    reached = (
        f"reach {mean(shares):.0%} of this machine's peak in the geometric mean"
        if shares
        else "were timed; this build \
cannot measure the machine's peak, so no share is known"
    )
    return Result(
        "deepbench",
        "The problems of DeepBench",
        f"f32, {threads} threads, the least time of some runs. The share is that of the rate of products or of bytes that "
        "linnet-bench --peaks measures, whichever is higher; Winograd needs fewer products, so it may exceed 100 %. Problems for "
        "training are also run backwards; means are geometric.",
        "Baidu Research, DeepBench at da81ba7, which lists the problems; its times are of a Raspberry Pi 3 with four cores and "
        "uint8 products",
        tuple(figures),
        f"{every} of DeepBench's 591 problems, in {len(found)} runs with the backward ones, {reached} (measured; nothing is "
        f"simulated).{more}",
    )


def chosen(text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """The words of an option. Raises SystemExit if one is not known."""
    words = tuple(word for word in text.split(",") if word)
    if unknown := [word for word in words if word not in known]:
        raise SystemExit(f"{', '.join(unknown)}: expected {', '.join(known)}")
    return words


def mean(values: list[float]) -> float:
    """The geometric mean."""
    return float(np.exp(np.mean(np.log(values))))


def draw(found: Result, canvas: Canvas) -> None:
    """Every problem: GFLOP/s by operations for each byte, and which share of the problems reaches which share of the peak."""
    rows = found.extra["rows"]
    left, right = canvas.subplots(1, 2)
    for number, kind in enumerate(OPS):
        group = [row for row in rows if row["op"] == kind]
        if not group:
            continue
        x, y = [row["flops"] / row["bytes"] for row in group], [row["gflops"] for row in group]
        left.loglog(x, y, ".", color=f"C{number}", label=f"{kind}, {len(group)} runs")
        shares = sorted(100 * row["peak_share"] for row in group if row["peak_share"])
        if shares:
            right.step(shares, [100 * (i + 1) / len(shares) for i in range(len(shares))], where="post", label=kind)
    most = found.extra["peaks"]
    if most and most["f32_gflops"]:
        left.axhline(most["f32_gflops"], color="k", linestyle="--", label="peak of f32 products")
    left.set(title="every run", xlabel="operations per byte of the operands", ylabel="GFLOP/s")
    right.set(
        title="how many reach how much",
        xlabel="share of the peak, %",
        ylabel="runs with at most this share, %",
        xlim=(0, 150),
    )
    for axes in (left, right):
        axes.legend(fontsize=8)


def main(words: Sequence[str] | None = None) -> Result:
    """Runs `python -m examples.evaluation.deepbench`."""
    made = result.parser("deepbench", __doc__)
    made.add_argument("--set", help=f"of {','.join(SETS)} (default: all; with --quick device)")
    made.add_argument("--op", default=",".join(OPS), help="of %(default)s")
    made.add_argument("--threads", type=int, help="(default: one per core)")
    made.add_argument("--isa-max", help="use no newer instruction set than this")
    made.add_argument("--seconds", type=float, help="for each problem, and at least three runs (default: 0.2)")
    made.add_argument(
        "--most-gflop", type=float, help="larger problems are left out, and counted (default: 100; inf: none)"
    )
    return result.command(made, evaluate, draw, words)


if __name__ == "__main__":
    main()
