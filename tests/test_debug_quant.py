"""`debug_quantization` and `linnet debug-quant`: in ten networks one layer was made hostile on purpose. The report must name
it, and the table that is written must restore the outputs."""

from __future__ import annotations

import inspect
import json
import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet.quantization.costs import Costs
from linnet.quantization.debug import debug_quantization
from linnet.quantization.debug_fix import FixOptions, find_fix
from linnet.quantization.table import Row, Table
from tests.hostile_nets import HOSTILE, Hostile
from tests.test_cli import refused

Command = Callable[..., Any]
FAST = (
    {"effort": "fast"} if "effort" in inspect.signature(linnet.quantize).parameters else {}
)  # without repairs of its own


def quantized(graph: linnet.Graph, case: Hostile, table: Table | str | Path | None = None) -> linnet.Graph:
    calibration = case.samples(8, first=50, calibration=True)
    return linnet.quantize(graph, calibration, case.dtype, table=table, **FAST)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", HOSTILE)
def test_the_hostile_layer_is_found_and_fixed(name: str, tmp_path: Path) -> None:
    case = HOSTILE[name]
    graph, data = case.graph(), case.samples(6)
    made = quantized(graph, case)
    report = debug_quantization(graph, made, data)
    worst = report.ranked[0]
    assert report.output_db < 15
    assert {worst.name, worst.layer} & set(case.layers), [layer.name for layer in report.ranked[:3]]
    assert worst.output_db is not None and worst.output_db < report.output_db + 3  # this layer alone explains the loss
    options = FixOptions(cost=Costs(data[0]).of)
    fix = find_fix(report, graph, made, lambda table: quantized(graph, case, table), data, options)
    assert fix.reached and len(fix.rows) <= 5
    assert fix.time is not None and fix.time <= 1.2, fix.rows
    fix.table.write(tmp_path / "fix.txt")
    restored = debug_quantization(graph, quantized(graph, case, tmp_path / "fix.txt"), data)
    assert restored.output_db == pytest.approx(fix.after, abs=0.01)
    assert restored.output_db > max(30, report.output_db + 15)


@pytest.mark.parametrize("name", HOSTILE)
def test_the_same_network_without_the_cause_needs_no_fix(name: str) -> None:
    case = HOSTILE[name]
    graph, data = case.graph(healthy=True), case.samples(6)
    made = linnet.quantize(graph, case.samples(8, first=50), case.dtype, **FAST)  # type: ignore[arg-type]
    report = debug_quantization(graph, made, data)
    assert report.output_db > 25
    fix = find_fix(report, graph, made, lambda table: made, data, FixOptions(target=20))
    assert fix.reached and fix.rows == {} and fix.tries == [] and "nothing has to be fixed" in fix.note
    # The layers' own errors, each followed to the outputs, add up to the error that is measured there.
    assert 10 * math.log10(1 / report.hurt) == pytest.approx(report.output_db, abs=5)


def test_outputs_just_below_the_limit_become_much_better() -> None:
    """Without a target, the search does not end at 30 dB if the outputs have nearly as much before it."""
    case = HOSTILE["logarithm"]
    graph, data = case.graph(healthy=True), case.samples(6)
    made = quantized(graph, case)
    report = debug_quantization(graph, made, data)
    assert 20 < report.output_db < 30
    fix = find_fix(report, graph, made, lambda table: quantized(graph, case, table), data)
    assert fix.reached and fix.after > report.output_db + 8


def two_layers() -> tuple[linnet.Graph, list[dict[str, np.ndarray]]]:
    rng = np.random.default_rng(0)
    graph = linnet.Graph()
    x = graph.placeholder("x", (2, 8))
    w, v = (graph.constant(rng.standard_normal((8, 8)).astype(np.float32)) for _ in range(2))
    y = linnet.ops.relu(linnet.ops.matmul(x, w, name="one"), name="clamped")
    graph.signature("infer", {"x": x}, {"y": linnet.ops.matmul(y, v, name="two")})
    return graph, [{"x": rng.standard_normal((2, 8)).astype(np.float32)} for _ in range(5)]


def test_figures_by_hand() -> None:
    graph, samples = two_layers()
    made = linnet.quantize(graph, samples, "i8", **FAST)  # type: ignore[arg-type]
    report = debug_quantization(graph, made, samples, draw=True)
    layers = {layer.name: layer for layer in report.layers}
    assert report.samples == 5 and {"clamped", "two"} <= set(layers)
    exact = linnet.Session(graph)
    ours = linnet.Session(made)
    wanted = np.concatenate([exact.run(s)["y"] for s in samples]).astype(np.float64)
    got = np.concatenate([ours.run(s)["y"] for s in samples]).astype(np.float64)
    sqnr = 10 * np.log10((wanted**2).sum() / ((wanted - got) ** 2).sum())
    assert report.output_db == pytest.approx(sqnr, abs=1e-6) == layers["two"].sqnr_db
    clamped = layers["clamped"]
    floats = np.concatenate([exact.run(s, fetches=["clamped"])["clamped"] for s in samples])
    assert clamped.seen == (floats.min(), floats.max()) and clamped.zeros[0] == (floats == 0).mean()
    assert clamped.range is not None and clamped.range[1] == pytest.approx(floats.max(), rel=0.01)
    assert clamped.saturated == 0 and clamped.layer == "one" and clamped.dtype == "i8"
    assert clamped.histogram is not None
    assert sum(clamped.histogram.exact) == sum(clamped.histogram.quantized) == 5 * 16
    assert json.dumps(report.to_dict(), default=str)


def test_what_lies_beyond_the_range_counts_as_saturated() -> None:
    graph, samples = two_layers()
    made = linnet.quantize(graph, [{"x": s["x"] * np.float32(0.2)} for s in samples], "i8", **FAST)  # type: ignore[arg-type]
    report = debug_quantization(graph, made, samples)
    clamped = next(layer for layer in report.layers if layer.name == "clamped")
    assert clamped.range is not None
    floats = np.concatenate([linnet.Session(graph).run(s, fetches=["clamped"])["clamped"] for s in samples])
    step = clamped.range[1] / 255
    assert (
        clamped.saturated == pytest.approx((floats > clamped.range[1] + step / 2).mean()) and clamped.saturated > 0.05
    )
    assert any(row["op"] == "matmul" and row["saturated"] > 0 for row in report.special)


def test_groups_and_single_samples_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A generator is read once; tensors in many small groups, with time for none but the worst layer of each, give the same."""
    case = HOSTILE["bias"]
    graph, data = case.graph(), case.samples(4)
    made = quantized(graph, case)
    whole = debug_quantization(graph, made, data)
    monkeypatch.setattr("linnet.quantization.debug_measure.GROUP", 3000)
    parts = debug_quantization(graph, made, (s for s in data), seconds=0)
    assert [layer.sqnr_db for layer in whole.layers] == [layer.sqnr_db for layer in parts.layers]
    assert [layer.local_db for layer in whole.layers] == [layer.local_db for layer in parts.layers]
    assert sum(layer.hurt is None for layer in whole.layers) == 0
    with pytest.raises(linnet.UsageError, match="no sample"):
        debug_quantization(graph, made, [])
    with pytest.raises(linnet.UsageError, match="number of samples"):
        debug_quantization(graph, made, data, limit=0)
    other, _ = two_layers()
    with pytest.raises(linnet.UsageError, match="no float tensor of the same name"):
        debug_quantization(other, made, data)


def test_layers_left_in_float() -> None:
    graph, samples = two_layers()
    table = Table([Row("two", "f32")])
    made = linnet.quantize(graph, samples, "i8", table=table, **FAST)  # type: ignore[arg-type]
    report = debug_quantization(graph, made, samples, table=table)
    assert [(left.layer, left.dtype, left.why) for left in report.left] == [("two", "f32", "the table says f32")]


def test_a_target(tmp_path: Path) -> None:
    """A target that the default does not reach takes more layers; one that cannot be reached says so."""
    case = HOSTILE["attention"]
    graph, data = case.graph(), case.samples(4)
    made = quantized(graph, case)
    report = debug_quantization(graph, made, data)
    default = find_fix(report, graph, made, lambda table: quantized(graph, case, table), data)
    more = find_fix(report, graph, made, lambda table: quantized(graph, case, table), data, FixOptions(target=36))
    assert more.reached and more.after >= 36 > default.after and len(more.rows) > len(default.rows)
    with pytest.raises(linnet.UsageError, match="not finite"):
        find_fix(report, graph, made, lambda table: made, data, FixOptions(target=math.nan))


@pytest.fixture
def hostile(tmp_path: Path) -> tuple[Path, Path]:
    """A model with one hostile layer as a file, and its calibration data."""
    case = HOSTILE["groups"]
    case.graph().save(tmp_path / "net.lnt")
    np.savez(tmp_path / "data.npz", x=np.stack([s["x"] for s in case.samples(8, first=50)]))
    return tmp_path / "net.lnt", tmp_path / "data.npz"


def test_the_command(hostile: tuple[Path, Path], tmp_path: Path, linnet_command: Command) -> None:
    model, data = hostile
    page, figures, table = tmp_path / "page.html", tmp_path / "figures.json", tmp_path / "fix.txt"
    done = linnet_command(
        "debug-quant", model, "--calibration", data, "--html", page, "--json", figures, "--table-out", table,
        "--effort", "fast",
    )  # fmt: skip
    assert done.returncode == 0 and done.stderr == "debug-quant: quantizing to i8\n", done.stderr
    answer, row, *others = done.stdout.splitlines()
    assert re.fullmatch(
        r"fix: [\d.]+ dB -> [\d.]+ dB with 1 row; [\d.]+ of the time, \+\S+ \S+ \(tried \d+ tables?\)", answer
    )
    assert row.split()[:2] == ["layer", "up"] and max(map(len, others[2:])) <= 80
    assert "worst layer: up, alone" in done.stdout
    found = json.loads(figures.read_text())
    assert found["layers"][0]["name"] == "up" and found["fix"]["reached"] and list(found["fix"]["rows"]) == ["layer up"]
    assert found["layers"][0]["histogram"]["exact"] and found["output_db"] == pytest.approx(found["fix"]["before"])
    assert [row.pattern for row in Table.read(table).rows] == ["up"]
    text = page.read_text()
    for drawing in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        assert len(ElementTree.fromstring(drawing)) > 5
    assert (
        text.count("<svg") == len(found["layers"])
        and "<script" not in text
        and "http" not in text
        and "nan" not in text
    )
    made = tmp_path / "made.lnt"
    done = linnet_command(
        "quantize", model, "-o", made, "--calibration", data, "--table", table, "--effort", "fast", "--json"
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["comparison"]["models"][1]["agreement"]["y"]["sqnr_db"] == pytest.approx(
        found["fix"]["after"], abs=0.1
    )
    assert [(row["layer"], row["why"]) for row in report["kept"]] == [
        ("up", "--table says so"), ("pooled", "what it reads or gives stays in floats"),
    ]  # fmt: skip
    done = linnet_command("debug-quant", model, "--quantized", made, "--data", data, "--no-fix")
    assert done.returncode == 0 and "fix:" not in done.stdout and "the table" not in done.stdout.splitlines()[0]


def test_wrong_command_lines(hostile: tuple[Path, Path], tmp_path: Path, linnet_command: Command) -> None:
    model, data = hostile
    refused(linnet_command("debug-quant", model), "no data is given", "--calibration", status=2)
    refused(linnet_command("debug-quant", model, "--dtype", "f32", "--data", data), "quantizes nothing", status=2)
    refused(linnet_command("debug-quant", model, "--data", data), "needs calibration")
    more = ("--table-out", tmp_path / "t.txt", "--no-fix", "--calibration", data)
    refused(linnet_command("debug-quant", model, *more), "--table-out has no effect", status=2)
