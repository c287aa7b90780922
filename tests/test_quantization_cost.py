"""The search for the cheapest quantized graph: what a graph costs, which layers get more bits, what a target, a metric of one's
own and limits of time and bytes do, and what the command says about it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import linnet
from linnet.builder import ops
from linnet.clib.errors import UsageError
from linnet.quantization import curve
from linnet.quantization.assign import Assigner, Layer, Limits, Network, Point
from linnet.quantization.costs import PROCESSORS, Cost, Costs
from linnet.quantization.goal import TARGETS, Goal, parsed
from linnet.quantization.judge import Nearness
from linnet.quantization.table import Table
from tests.native import ROOT

Feeds = dict[str, Any]


# ---- costs ----------------------------------------------------------------------------------------------------------------


def network(width: int = 64, layers: int = 6) -> linnet.Graph:
    """Products in a row on rows of 256 numbers. One channel of the third is large, so that 8 bits lose the others."""
    rng = np.random.default_rng(5)
    graph = linnet.Graph()
    x = y = graph.placeholder("x", (64, width))
    for i in range(layers):
        w = rng.standard_normal((width, width)).astype(np.float32) / math.sqrt(width)
        if i == 2:
            w[:, 0] *= 300.0
        if i == 3:
            w[0] /= 300.0
        y = ops.matmul(y, graph.constant(w), name=f"product{i}")
        y = y if i == 2 else ops.tanh(y)
    graph.signature("infer", {"x": x}, {"y": y})
    return graph


def feeds(count: int = 12, width: int = 64) -> list[Feeds]:
    rng = np.random.default_rng(6)
    return [{"x": rng.standard_normal((64, width)).astype(np.float32)} for _ in range(count)]


def decibels(graph: linnet.Graph, made: linnet.Graph, samples: list[Feeds]) -> float:
    one, two = linnet.Session(graph, threads=1), linnet.Session(made, threads=1)
    pairs = [(one.run(f)["y"].copy(), two.run(f)["y"].copy()) for f in samples]
    error = sum(np.square(a - b).sum() for a, b in pairs) / sum(np.square(a).sum() for a, _ in pairs)
    return float(-10 * np.log10(error))


def test_costs_are_those_of_the_plan() -> None:
    graph, sample = network(), feeds(1)[0]
    cost = Costs(sample).of(graph)
    session = linnet.Session(graph, threads=1)
    session.run(sample)
    assert cost.ms == pytest.approx(session.plan_info["modelled_ms"], rel=1e-3) and cost.products == {"f32": 1.0}
    assert cost.bytes == len(session.model.content)
    assert set(cost.layers) >= {f"product{i}" for i in range(6)}


def test_other_processors_have_other_costs(tmp_path: Path) -> None:
    graph, sample = network(), feeds(1)[0]
    times = [Costs(sample, name).of(graph).ms for name in ("cortex-a53", "cortex-a72", "cortex-a76")]
    assert times == sorted(times, reverse=True) and times[0] > 2 * times[2]
    rates = tmp_path / "slow.tuning"
    rates.write_text("linnet-tuning 1\n" + "".join(f"machine {n} f32 = 0.5\n" for n in linnet.isa_names()))
    assert Costs(sample, rates).of(graph).ms > 4 * Costs(sample).of(graph).ms
    with pytest.raises(UsageError, match=r"cortex-a53.*got pentium.*linnet tune --machine"):
        Costs(sample, "pentium")


def test_the_rates_of_processors_are_those_of_the_library() -> None:
    text = (ROOT / "runtime_c" / "kernel" / "machine.c").read_text()
    text = text[text.index("__aarch64__)\n/* Computed") : text.index("#elif defined(__arm__)")]
    numbers = [
        float(n)
        for n in re.findall(r"(?<![\w.-])(\d+(?:\.\d+)?)f?(?=[,}])", re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL))
    ]
    for (rates, others), block in zip(PROCESSORS.values(), np.array_split(numbers, 3), strict=True):
        rows = [tuple(block[5 * i : 5 * i + 5]) for i in range(4)]
        assert tuple(map(float, rates)) in rows and tuple(map(float, others)) == tuple(block[-6:])


# ---- which layers get more bits -------------------------------------------------------------------------------------------


class Mock:
    """Layers whose errors add up. errors: of each layer in the graph's dtype. With 16-bit activations a tenth of it is left.
    halves: the share that is left at f16. rest: the error of a node "sum", which is no product. between: the time of
    converting what it reads, unless it has the dtype of layers in f16."""

    def __init__(
        self, errors: Mapping[str, float], slow: Mapping[str, float] | None = None, rest: float = 0.0, dtype: str = "i8",
        halves: float = 0.0, between: float = 0.0,
    ) -> None:  # fmt: skip
        self.errors, self.slow, self.rest, self.dtype, self.halves = errors, slow or {}, rest, dtype, halves
        self.between = between
        self.tried: list[dict[str, str]] = []

    def scheme(self, table: Table, name: str) -> str:
        return table.dtype(name, default=self.dtype)

    def times(self, scheme: str) -> dict[str, float]:
        each = {"i8": 0.5, "w8a16": 0.8, "i16": 1.5, "f16": 1.0, "f32": 1.0}[scheme]
        return {name: each * (self.slow.get(name, 1.0) if scheme == "i8" else 1.0) for name in self.errors}

    def attempt(self, table: Table, samples: int | None) -> tuple[Nearness, Cost]:
        schemes = {name: self.scheme(table, name) for name in self.errors}
        left = {self.dtype: 1.0, "w8a16": 0.1, "f16": self.halves, "f32": 0.0}
        error = sum(self.errors[name] * left[scheme] for name, scheme in schemes.items())
        error += self.rest * left[self.scheme(table, "sum")]
        if samples is None:
            self.tried.append(schemes)
        layers = {name: self.times(scheme)[name] for name, scheme in schemes.items()}
        narrow = sum(scheme == self.dtype for scheme in schemes.values()) / len(schemes)
        size = sum({"i8": 100, "w8a16": 100, "i16": 200, "f16": 200, "f32": 400}[s] for s in schemes.values())
        converts = "f16" in schemes.values() and self.scheme(table, "sum") == self.dtype
        ms = sum(layers.values()) + self.between * converts
        products = {"w16a16" if self.dtype == "i16" else self.dtype: narrow}  # as plans call them
        return Nearness(error, max(1.0, error / 0.01)), Cost(ms, size, layers, products)

    def assigner(self, limits: Limits, best: bool = False) -> tuple[Assigner, Point]:
        plain = Cost(float(len(self.errors)), 400 * len(self.errors), self.times("f32"), {"f32": 1.0})
        layers = [Layer(name, 1.0, 100) for name in self.errors]
        ladder = ("w8a16", "f16") if self.dtype == "i8" else ("f16", "f32")
        network = Network(layers, Table(), self.dtype, ladder, self.attempt, self.times, plain)
        made = Assigner(network, limits, best)
        first = Point({}, *self.attempt(Table(), None))
        made.points.append(first)
        return made, first


def test_the_layer_with_the_error_gets_the_bits() -> None:
    mock = Mock({**{f"l{i}": 0.0005 for i in range(10)}, "bad": 0.05})
    assigner, first = mock.assigner(Limits(narrow=0.6))
    found = assigner.near_enough(first)
    assert found.near.excess == 1.0 and set(found.schemes) == {"bad"}


def test_wider_activations_are_enough_where_they_cost_less() -> None:
    mock = Mock({**{f"l{i}": 0.0001 for i in range(10)}, "bad": 0.05})
    assigner, first = mock.assigner(Limits(narrow=0.6))
    assert assigner.near_enough(first).schemes == {"bad": "w8a16"}


def test_limits_hold_and_what_lies_beyond_is_known() -> None:
    mock = Mock({f"l{i}": 0.01 for i in range(10)})
    assigner, first = mock.assigner(Limits(narrow=0.6))
    found = assigner.near_enough(first)
    assert found.cost.products["i8"] >= 0.6 and found.near.excess > 1.0
    assert assigner.beyond(first, found, 0.5) is found
    reached = [point for point in assigner.points if point.near.excess <= 1.0]
    assert reached and all(point.cost.products["i8"] < 0.6 for point in reached)


def test_half_the_error_is_worth_bits_if_the_limits_stay_far() -> None:
    """Decisions may stay as they are while the values come nearer."""
    mock = Mock({f"l{i}": 0.01 for i in range(10)})
    assigner, first = mock.assigner(Limits(narrow=0.6))
    far = first._replace(near=first.near._replace(excess=12.0))
    half, little = (
        Point({f"l{i}": "f16"}, Nearness(far.near.error * left, 9.0), far.cost) for i, left in ((0, 0.45), (1, 0.7))
    )
    for points, kept in (([far, half], half), ([far, little], far), ([far, half, little], half)):
        assigner.points = points
        assert assigner.pick(far) is kept


def test_half_of_the_products_are_enough_if_it_costs_nothing() -> None:
    """As with AVX2, where 16-bit activations take no longer."""
    mock = Mock({f"l{i}": 0.01 if i < 5 else 0.0002 for i in range(11)}, slow={f"l{i}": 1.7 for i in range(5)})
    assigner, first = mock.assigner(Limits(narrow=0.6))
    kept = assigner.near_enough(first)
    assert kept.near.excess > 1.0
    found = assigner.beyond(first, kept, 0.5)
    assert found.near.excess <= 1.0 and found.cost.ms <= assigner.plain.ms
    assert 0.5 <= found.cost.products["i8"] < 0.6 and assigner.beyond(first, kept, 0.58) is kept


def test_useless_outputs_get_more_bits_whatever_share_stays() -> None:
    """With `rest`, what lies between the products must become floats, too."""
    for rest in (0.0, 0.2):
        mock = Mock({f"l{i}": 0.1 for i in range(10)}, rest=rest)
        assigner, first = mock.assigner(Limits(narrow=0.6))
        kept = assigner.near_enough(first)
        assert kept.near.excess > 10 and kept.cost.products["i8"] >= 0.6
        found = assigner.beyond(first, kept, 0.5, ["sum"])
        assert found.near.excess <= 1.0 and found.cost.ms <= assigner.plain.ms * 1.02
        assert found.cost.products["i8"] < 0.2 and ("sum" in found.schemes) == (rest > 0)


def test_the_most_exact_within_the_time() -> None:
    mock = Mock({f"l{i}": 0.002 * (i + 1) for i in range(10)})
    assigner, first = mock.assigner(Limits(ms=6.5), best=True)
    found = assigner.near_enough(first)
    assert found.cost.ms <= 6.5 and found.near.error < first.near.error
    allowed = [point for point in assigner.points if point.cost.ms <= 6.5]
    assert found.near.error == min(point.near.error for point in allowed)


def test_what_integers_make_slower_is_f16() -> None:
    mock = Mock({f"l{i}": 1e-4 for i in range(10)}, slow={"l3": 4.0, "l7": 3.0})
    assigner, first = mock.assigner(Limits())
    found = assigner.lighter(first, "f16", narrow=0.6)
    assert found.schemes == {"l3": "f16", "l7": "f16"} and found.cost.ms < first.cost.ms
    assigner, first = mock.assigner(Limits())
    assert assigner.lighter(first, "f16", narrow=0.9).schemes == {"l3": "f16"}
    assigner, first = mock.assigner(Limits(bytes=1050))  # f16 has twice the bytes
    assert assigner.lighter(first, "f16", narrow=0.6) is first


def test_floats_spare_i16_from_being_slower_than_f32() -> None:
    """They may be less exact than 16-bit integers; then the layers with the largest errors become f32."""
    mock = Mock({**{f"l{i}": 1e-4 for i in range(10)}, "bad": 0.004, "good": 0.002}, dtype="i16", halves=3.0)
    assigner, first = mock.assigner(Limits(ms=18.0))
    assert first.near.excess == 1.0 and first.cost.ms > assigner.plain.ms
    halves = assigner.lighter(first, "f16", ["sum"])
    assert set(halves.schemes.values()) == {"f16"} and halves.near.excess > 1.0
    found = assigner.near_enough(halves)
    assert found.near.excess == 1.0 and found.cost.ms <= assigner.plain.ms
    assert {name for name, scheme in found.schemes.items() if scheme == "f32"} == {"bad"}
    assert assigner.lighter(first, "f16") is first  # with conversions between the layers there is no use in it
    sums = Mock({f"l{i}": 1e-4 for i in range(10)}, dtype="i16", rest=0.005, halves=3.0, between=0.1)
    assigner, first = sums.assigner(Limits())
    assert "sum" not in assigner.lighter(first, "f16", ["sum"]).schemes  # near enough, and fast enough
    missed = Mock({f"l{i}": 2e-3 for i in range(10)}, dtype="i16", halves=0.2)
    assigner, first = missed.assigner(Limits(ms=18.0))
    assert first.near.excess > 1.0 and assigner.near_enough(first).near.excess == 1.0  # integers that miss the limits
    far = Mock({f"l{i}": 1e-3 for i in range(10)}, dtype="i16", halves=50.0)
    assigner, first = far.assigner(Limits())
    assert assigner.lighter(first, "f16", ["sum"]) is first


@pytest.mark.parametrize("dtype", ["i8", "i16"])
def test_halves_in_integer_graphs_do_not_overflow(dtype: str) -> None:
    """A spectrogram: squares far beyond f16's range, and their logarithm. The reference is the float graph."""
    rng = np.random.default_rng(8)
    graph = linnet.Graph()
    x = graph.placeholder("x", (4, 64))
    y = ops.matmul(x, graph.constant(rng.standard_normal((64, 64)).astype(np.float32)), name="first")
    y = ops.matmul(ops.multiply(y, y), graph.constant(rng.random((64, 32)).astype(np.float32)), name="second")
    y = ops.log(ops.add(y, graph.constant(np.float32(1.0))))
    graph.signature("infer", {"x": x}, {"y": y})
    samples = [{"x": (1000 * rng.standard_normal((4, 64))).astype(np.float32)} for _ in range(8)]
    table = _rows("* f16\n")
    made = linnet.quantize(graph, samples, dtype, table=table)
    assert decibels(graph, made, samples) > 50
    assert linnet.Session(made, threads=1, max_bytes=1 << 40).run(samples[0])["y"].max() < np.inf
    # The second product computes in f32, because its operand does not fit in f16. Its weights do.
    for graph_of in (made, linnet.quantize(graph, samples, "f16")):
        second = next(n for n in graph_of.signatures["infer"].function.nodes if n.name == "second")
        x_of, w_of = second.inputs[:2]
        assert x_of is not None and x_of.dtype == "f32" and w_of is not None and w_of.node is not None
        assert w_of.node.inputs[0] is not None and w_of.node.inputs[0].dtype == "f16"


def test_weights_that_f16_does_not_hold_stay_f32() -> None:
    """Some vanish in f16, and the row of the table says why it has no effect."""
    rng = np.random.default_rng(8)
    graph = linnet.Graph()
    x = graph.placeholder("x", (4, 64))
    w = rng.standard_normal((64, 64)).astype(np.float32)
    w[:, ::8] *= 1e-6
    graph.signature("infer", {"x": x}, {"y": ops.matmul(x, graph.constant(w), name="product")})
    samples = [{"x": rng.standard_normal((4, 64)).astype(np.float32)} for _ in range(8)]
    with pytest.raises(UsageError, match="its weights do not fit f16"):
        linnet.quantize(graph, samples, "i8", table=_rows("product w16\n"))


# ---- goals ----------------------------------------------------------------------------------------------------------------


def test_targets_as_text() -> None:
    assert parsed("99.5%") == pytest.approx((0.005,) * 4)
    assert parsed("40 dB")[:2] == pytest.approx((1e-4, 1e-4)) and parsed("40dB").classes == math.inf
    for wrong in ("99.5", "100%", "-3dB", "good", "nan%", "0dB"):
        with pytest.raises(UsageError, match=r"99\.5%, or decibels such as 40dB"):
            parsed(wrong)
    with pytest.raises(UsageError, match="max_loss is out of range"):
        Goal(max_loss=-1.0, score=lambda graph: 1.0)
    with pytest.raises(UsageError, match="evaluate="):
        Goal(max_loss=0.1)
    assert Goal().limits("i8") == TARGETS["i8"]


@pytest.mark.parametrize("target", ["30dB", "45dB"])
def test_a_target_is_reached_on_other_samples(target: str) -> None:
    graph, samples = network(), feeds(20)
    made = linnet.quantize(graph, samples[:12], "i8", target=target)
    assert decibels(graph, made, samples[12:]) > float(target[:-2]) - 1
    dtypes = {n.inputs[0].dtype for n in made.signatures["infer"].function.nodes if n.op == "matmul"}
    assert "i8" in dtypes or target == "45dB"


def test_a_metric_of_ones_own_drives_the_search(tmp_path: Path) -> None:
    graph, samples = network(), feeds(20)
    session = linnet.Session(graph, threads=1)
    wanted = [session.run(f)["y"].copy() for f in samples]
    calls = []

    def evaluate(run: Callable[[Feeds], Any]) -> dict[str, float]:
        calls.append(1)
        worst = max(float(np.abs(run(f)["y"] - w).max()) for f, w in zip(samples, wanted, strict=True))
        return {"score": 1.0 - worst, "calls": 1.0}

    plain = linnet.quantize(graph, samples, "i8")
    made = linnet.quantize(graph, samples, "i8", max_loss=0.02, evaluate=evaluate, curve_out=tmp_path / "curve.json")
    before = evaluate(lambda f: linnet.Session(plain, threads=1).run(f))["score"]
    after = evaluate(lambda f: linnet.Session(made, threads=1).run(f))["score"]
    assert before < 0.98 <= after and len(calls) > 4
    chosen = [line for line in json.loads((tmp_path / "curve.json").read_text()) if line["chosen"]]
    assert [line["loss"] <= 0.02 for line in chosen] == [True]


def test_limits_of_time_and_bytes() -> None:
    graph, samples = network(), feeds()
    costs = Costs(samples[0])
    plain = costs.of(graph)
    with pytest.raises(UsageError, match=r"within max_ms; expected at most 1e-06 ms, got .* ms at least"):
        linnet.quantize(graph, samples, "i8", max_ms=1e-6)
    with pytest.raises(UsageError, match=r"within max_bytes; expected at most 1000 bytes"):
        linnet.quantize(graph, samples, "i8", max_bytes=1000)
    most = int(plain.bytes * 0.42)
    made = linnet.quantize(graph, samples, "i8", max_bytes=most)
    free = linnet.quantize(graph, samples, "i8", target="45dB")
    assert costs.of(made).bytes <= most < costs.of(free).bytes
    assert (
        decibels(graph, made, samples)
        > decibels(graph, linnet.quantize(graph, samples, "i8", effort="fast"), samples) + 1
    )
    with pytest.raises(UsageError, match="normal or best"):
        linnet.quantize(graph, samples, "i8", effort="fast", target="40dB")


@pytest.mark.parametrize("effort", ["fast", "normal"])
@pytest.mark.parametrize("machine", [None, "cortex-a72"])
def test_i16_is_not_slower_than_f32(machine: str | None, effort: str) -> None:
    """Weights and activations of 16 bits take longer than floats here, so they become f16."""
    graph, samples = network(256, 4), feeds(8, 256)
    made = linnet.quantize(graph, samples, "i16", machine=machine, effort=effort)
    costs = Costs(samples[0], machine)
    assert costs.of(made).ms <= 1.02 * costs.of(graph).ms
    assert decibels(graph, made, samples) > 40
    asked = linnet.quantize(graph, samples, "i16", machine=machine, table=Table.read(_rows("* w16a16")))
    assert costs.of(asked).products == {"w16a16": 1.0}


def _rows(text: str) -> Path:
    import tempfile

    path = Path(tempfile.mkdtemp()) / "table.txt"
    path.write_text(text + "\n")
    return path


# ---- the curve and the command --------------------------------------------------------------------------------------------


def test_the_curve(tmp_path: Path) -> None:
    graph, samples = network(), feeds()
    linnet.quantize(graph, samples, "i8", target="45dB", curve_out=tmp_path / "c.svg")
    linnet.quantize(graph, samples, "i8", target="45dB", curve_out=tmp_path / "c.json")
    lines = json.loads((tmp_path / "c.json").read_text())
    assert lines[0]["how"] == "f32" and lines[0]["error_db"] is None and sum(line["chosen"] for line in lines) == 1
    circles = ElementTree.parse(tmp_path / "c.svg").getroot().findall("{http://www.w3.org/2000/svg}circle")
    assert len(circles) == len(lines) - 1
    with pytest.raises(UsageError, match=r"\.svg or \.json"):
        curve.write(tmp_path / "c.pdf", [])
    with pytest.raises(UsageError, match="cannot write the curve"):
        curve.write(tmp_path / "none" / "c.svg", [])


def test_the_command(tmp_path: Path, linnet_command: Callable[..., Any]) -> None:
    network().save(tmp_path / "net.lnt")
    np.savez(tmp_path / "data.npz", x=np.stack([f["x"] for f in feeds()]))
    script = tmp_path / "data.py"
    script.write_text(
        f"import numpy as np\nx = np.load({str(tmp_path / 'data.npz')!r})['x']\n\n"
        "def samples():\n    return [{'x': v} for v in x]\n\n"
        "def score(run):\n    return float(np.mean([np.abs(run({'x': v})['y']).mean() for v in x]))\n"
    )
    same = (
        "quantize",
        tmp_path / "net.lnt",
        "-o",
        tmp_path / "out.lnt",
        "--calibration",
        f"{script}:samples",
        "--threads",
        "1",
    )
    done = linnet_command(*same, "--target", "45dB", "--curve", tmp_path / "c.svg")
    assert done.returncode == 0, done.stderr
    assert "What can be had" in done.stdout and (tmp_path / "c.svg").read_text().startswith("<svg")
    assert max(map(len, done.stdout.partition("What can be had")[2].splitlines())) <= 80
    done = linnet_command(*same, "--max-loss", "0.5%", "--eval", f"{script}:score", "--for", "cortex-a72", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [line["loss"] <= 0.005 for line in report["curve"] if line["chosen"]] == [True]
    for words, message in (
        (("--max-loss", "1%"), "--max-loss needs a figure"),
        (("--max-loss", "little", "--eval", f"{script}:score"), "--max-loss is not a number"),
        (("--target", "good"), "the target of quantization cannot be read"),
        (("--for", "z80"), "the machine to quantize for is unknown"),
    ):
        done = linnet_command(*same, *words)
        assert done.returncode in (1, 2) and message in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_what_is_not_reached_is_said_first(tmp_path: Path) -> None:
    """Rows of the user keep all layers in 8 bits, which loses a channel: the table says so above its rows."""
    keep = tmp_path / "keep.txt"
    keep.write_text("product* i8\n")
    linnet.quantize(network(), feeds(), "i8", table=keep, table_out=tmp_path / "t.txt")
    said = re.search(
        r"^# The outputs miss the limits for i8 \(an error [\d.]+ dB below their values\); another dtype reaches them\.$",
        (tmp_path / "t.txt").read_text(), re.MULTILINE,
    )  # fmt: skip
    assert said is not None
