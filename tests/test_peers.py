"""The benchmark beside other runtimes: engines take turns, a busy machine is refused, a failure becomes a cell, and tables and
bars say what was measured. Two engines really run, on a tiny network."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import linnet
from tests import benchmark_page
from tests.peers import __main__ as command
from tests.peers import convert, environments, load, measure, networks, report, worker
from tests.peers.engines import ENGINES
from tests.peers.measure import Case

IDLE, FULL = load.Load(0.01), load.Load(1.5, (("cc1", 0.9), ("python", 0.6)))


def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> networks.Network:
    """A convolution with a relu, in a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    weight = np.random.default_rng(3).standard_normal((4, 3, 3, 3), np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Relu", ["c"], ["y"])]
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 3, 10, 10]), ("y", [1, 4, 8, 8]))
    ]
    graph = helper.make_graph(nodes, "tiny", infos[:1], infos[1:], [numpy_helper.from_array(weight, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return networks.of_model("tiny", model)


def figures(engine: str, threads: int = 1, **more: float) -> dict[str, float]:
    """What a worker might say."""
    time = {"linnet": 1.0, "onnxruntime": 2.0, "openvino": 0.8}.get(engine, 4.0) / threads
    return {
        "runs": 10, "min_ms": time, "median_ms": 1.1 * time, "p95_ms": 1.5 * time, "load_ms": 20, "cold_ms": 90.0,
        "peak_mb": 30.0, "share": 0.99, "others": 0.0, "cores": float(threads), "difference": 1e-5, "range": 2.0,
        "correlation": 0.99, **more,
    }  # fmt: skip


def interleaved(engines: list[str], nets: list[str], rounds: int = 2, threads: tuple[int, ...] = (1,)) -> list[Case]:
    """Cases that a stand-in measured; ncnn fails."""
    cases = [Case(net, engine, count) for net in nets for count in threads for engine in engines]

    def work(case: Case, seconds: float) -> dict[str, Any]:
        if case.engine == "ncnn":
            raise environments.Unavailable("extract gives -100")
        return figures(case.engine, case.threads)

    measure.interleave(cases, rounds, 0.1, work=work, others=lambda: IDLE)
    return cases


def made(cases: list[Case]) -> dict[str, Any]:
    facts = {case.engine: {"version": "1.2"} for case in cases}
    return report.collected(cases, facts, 2, 0.1, None)


def test_two_engines_measure_a_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Real workers, one of which has an engine that this environment lacks, and one a reference of another shape."""
    network = tiny(monkeypatch, tmp_path)
    np.save(tmp_path / "other.npy", np.zeros(3, np.float32))
    cases = [
        Case("tiny", "linnet", 1, convert.file_of("linnet", network), network.input(), network.reference()),
        Case("tiny", "onnxruntime", 1, convert.file_of("onnxruntime", network), network.input(), network.reference()),
        Case("tiny", "openvino", 1, network.onnx, network.input(), network.reference()),
        Case("odd", "linnet", 1, convert.file_of("linnet", network), network.input(), tmp_path / "other.npy"),
    ]
    measure.interleave(cases, 1, 0.02, busy=True)
    ours, peer, absent, odd = (case.row() for case in cases)
    assert ours["runs"] >= 3 and ours["min_ms"] <= ours["median_ms"] <= ours["p95_ms"] < ours["cold_ms"]
    assert ours["difference"] <= 1e-5 * ours["range"] and peer["difference"] == 0 and 0 < peer["share"] <= 1
    assert 0 < peer["load_ms"] < peer["cold_ms"] and peer["peak_mb"] > 1
    assert "openvino" in absent["error"] and "256 numbers instead of 3" in odd["error"]
    assert not any("min_ms" in row for row in (absent, odd))


def test_engines_take_turns() -> None:
    """Every round runs every case once in the same order, after one run that does not count. A failure is not repeated."""
    order: list[tuple[str, str, float]] = []

    def work(case: Case, seconds: float) -> dict[str, Any]:
        order.append((case.network, case.engine, seconds))
        if case.engine == "mnn" and case.network == "b":
            raise environments.Unavailable("no")
        return figures(case.engine)

    cases = [Case(net, engine, 1) for net in ("a", "b") for engine in ("linnet", "mnn")]
    measure.interleave(cases, 2, 0.5, work=work, others=lambda: IDLE)
    one = [("a", "linnet"), ("a", "mnn"), ("b", "linnet")]
    assert [entry[:2] for entry in order] == [*one, ("b", "mnn"), *one, *one]
    assert [entry[2] for entry in order] == [0.0] * 4 + [0.5] * 6
    assert [len(case.rounds) for case in cases] == [2, 2, 2, 0]


def test_other_results_are_a_failure() -> None:
    """Of a converter that misread the network. At int8, results must only correlate."""
    cases = [Case(name, "linnet", 1) for name in ("a", "a_int8", "b_int8", "c_int8")]
    more = {  # differences of a range of 2
        "a": {"difference": 0.03}, "a_int8": {"difference": 1.1}, "b_int8": {"correlation": 0.5}, "c_int8": {"correlation": 0.7},
    }  # fmt: skip

    def work(case: Case, seconds: float) -> dict[str, Any]:
        return figures(case.engine, **more[case.network])

    measure.interleave(cases, 1, 0.1, work=work, others=lambda: IDLE)
    said = "gives other results: the"
    assert [case.error for case in cases] == [
        f"{said} largest difference is 0.015 of the range", "", f"{said}ir correlation is 0.50", ""
    ]  # fmt: skip


def test_figures_of_rounds_are_combined() -> None:
    case = Case("a", "linnet", 1)
    case.rounds = [figures("linnet", min_ms=2.0, median_ms=3.0, share=0.99, difference=1e-3),
                   figures("linnet", min_ms=1.5, median_ms=5.0, share=0.93, difference=2e-3),
                   figures("linnet", min_ms=1.7, median_ms=4.0, share=0.95, difference=1e-3)]  # fmt: skip
    row = case.row()
    assert (row["min_ms"], row["median_ms"], row["share"], row["difference"], row["runs"]) == (1.5, 4.0, 0.93, 2e-3, 30)


def test_a_busy_machine_is_refused() -> None:
    """Before anything runs, with what is busy and the option that measures nevertheless."""
    calls: list[str] = []

    def work(case: Case, seconds: float) -> dict[str, Any]:
        calls.append(case.engine)
        return figures(case.engine)

    cases = [Case("a", "linnet", 1)]
    with pytest.raises(load.Busy, match=r"use 1\.50 of \d+ cores: cc1 \(0\.90\), python \(0\.60\).*--busy"):
        measure.interleave(cases, 1, 0.1, work=work, others=lambda: FULL)
    assert calls == []
    measure.interleave(cases, 1, 0.1, busy=True, work=work, others=lambda: FULL)
    assert len(cases[0].rounds) == 1


def test_a_process_that_got_too_little_is_refused() -> None:
    """A measurement is repeated twice; then the machine is busy. A share of 0.9 is enough."""
    shares = iter([1.0, 0.5, 0.89, 0.9, 0.5, 0.6, 0.7])

    def work(case: Case, seconds: float) -> dict[str, Any]:
        return figures(case.engine, share=next(shares), others=0.3)

    cases = [Case("net", "linnet", 2)]
    with pytest.raises(load.Busy, match=r"linnet on net with 2 threads got 0\.70 of the processor time.*--busy"):
        measure.interleave(cases, 2, 0.1, work=work, others=lambda: IDLE)
    assert [found["share"] for found in cases[0].rounds] == [0.9]


def test_an_engine_may_keep_itself_waiting() -> None:
    """Threads that wait for each other are no reason to refuse: nobody else used the machine."""
    cases = [Case("net", "linnet", 2)]
    measure.interleave(
        cases, 1, 0.1, work=lambda case, _: figures(case.engine, share=0.6, others=0.02), others=lambda: IDLE
    )
    assert cases[0].row()["share"] == 0.6 and made(cases)["disturbed_share"] is None


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="reads /proc")
def test_the_load_of_others_is_seen() -> None:
    code = "import time\nprint(flush=True)\nend = time.time() + 20\nwhile time.time() < end: pass"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as loop:
        assert loop.stdout is not None
        loop.stdout.readline()
        meter = load.Meter()
        seen, metered = load.of_others(0.5), meter.others()
        loop.kill()
    assert (
        metered > load.MOST_LOAD and seen.cores > load.MOST_LOAD and any("python" in name for name, _ in seen.processes)
    )


def test_a_share_counts_waiting() -> None:
    """The clock of the scheduler runs on while this process computes."""
    before, start = worker.scheduled(), worker.clock()
    while worker.clock() < start + 0.05:
        pass
    after = worker.scheduled()
    assert 0 < after[0] - before[0] <= 0.2 and after[1] >= before[1]


def test_what_cannot_be_installed_or_converted_has_a_cell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Other engines and networks go on."""
    network = tiny(monkeypatch, tmp_path)

    def install(name: str) -> dict[str, Any]:
        if name == "mnn":
            raise environments.Unavailable("cannot be installed: no such version")
        return {"digest": "0", "seconds": 1.0, "megabytes": 2, "packages": {}}

    monkeypatch.setattr(environments, "install", install)
    int8 = networks.Network("tiny_int8", network.onnx, network.shape, network)
    cases = measure.cases([network, int8], ["linnet", "onnxruntime", "ncnn", "mnn"], [1], None)
    errors = {(case.network, case.engine): case.error for case in cases if case.error}
    assert errors["tiny", "mnn"] == errors["tiny_int8", "mnn"] == "cannot be installed: no such version"
    assert errors["tiny", "ncnn"] == "cannot be converted: its environment has no pnnx"
    assert errors["tiny_int8", "ncnn"] == "its package has no tool that quantizes"
    assert not {("tiny", "linnet"), ("tiny_int8", "linnet"), ("tiny", "onnxruntime")} & {*errors}
    assert dict(measure.versions(["linnet", "mnn"])) == {
        "linnet": {"version": linnet.__version__},
        "mnn": {"error": "cannot be installed: no such version"},
    }
    kept = measure.cases([network], ["linnet", "onnxruntime"], [1], "avx2")
    assert [case.error for case in kept] == ["", "cannot be kept to an instruction set"]


def test_the_tables() -> None:
    """Ratios to the fastest peer, their geometric means, the fastest in bold, and what fails."""
    found = made(interleaved(["linnet", "onnxruntime", "openvino", "ncnn"], ["a", "b", "b_int8"], threads=(1, 2)))
    assert report.ratio(found, "a", 1) == (pytest.approx(1.25), "openvino")
    assert report.mean_ratio(found, 2, False) == report.mean_ratio(found, 1, True) == pytest.approx(1.25)
    text = report.section(found)
    assert "| a | 1.25 | openvino |" in text and "| **geometric mean, int8** | **1.25** | |" in text
    assert "| a | 1.00 / 1.10 / 1.50 | 2.00 / 2.20 / 3.00 | **0.80 / 0.88 / 1.20** | fails |" in text
    assert "| a | 20 / 90, 30 | 20 / 90, 30 | 20 / 90, 30 | fails |" in text and "5.0e-06" in text
    assert "- ncnn on a, b, b_int8: `extract gives -100`" in text
    assert "busy" not in text
    case = Case("a", "linnet", 1)
    case.rounds = [figures("linnet"), figures("linnet", share=0.5, others=0.4)]
    busy = report.section(made([case]))
    assert "**The machine was busy**" in busy and "as little as 0.50" in busy


def test_a_network_without_linnet_or_peers_has_no_ratio() -> None:
    found = made(interleaved(["linnet", "ncnn"], ["a"]))
    assert report.ratio(found, "a", 1) is None and report.mean_ratio(found, 1, False) is None
    assert "| a | - | - |" in report.section(found)


def test_the_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The JSON can be read again, and the page and the bars are made from it."""
    page = tmp_path / "benchmarks.md"
    page.write_text("")
    monkeypatch.setattr(report, "JSON", tmp_path / "peers.json")
    monkeypatch.setattr(report, "SVG", tmp_path / "peers.svg")
    monkeypatch.setattr(benchmark_page, "PAGE", page)
    readme = tmp_path / "README.md"
    readme.write_text("\n\n".join(["above", *report.MARKS, "below"]))
    monkeypatch.setattr(report, "README", readme)
    monkeypatch.setattr(sys, "argv", ["tests.peers", "--rounds", "2", "--json", str(tmp_path / "x.json")])
    assert report.read() is None
    found = made(interleaved(["linnet", "onnxruntime", "ncnn"], ["a", "b"]))
    assert found["machine"]["command"] == "python -m tests.peers --rounds 2"
    report.write(found)
    assert report.read() == json.loads(json.dumps(found))
    assert page.read_text() == benchmark_page.current() and report.section(found) in page.read_text()
    lines = readme.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("above", "below") and any(line.startswith("| a | ") for line in lines)
    bars = ET.parse(tmp_path / "peers.svg").getroot().findall("{*}rect")
    assert len(bars) == 1 + 3 + 4  # background, legend, two engines on two networks
    known = (
        str(Path.home()),
        str(tmp_path),
        platform.node(),
    )
    written = page.read_text() + (tmp_path / "peers.json").read_text()
    assert not [text for text in known if len(text) > 3 and text in written]


def test_the_committed_plot_is_current() -> None:
    """After `make bench-peers`: docs/peers.json, docs/peers.svg and docs/benchmarks.md agree."""
    found = report.read()
    assert report.SVG.is_file() == (found is not None)
    assert found is None or report.SVG.read_text() == report.svg(found)


def test_every_engine_has_requirements_and_a_converter() -> None:
    """And every requirement is pinned."""
    known = environments.requirements()
    assert {*ENGINES} == {*convert._FILES} and {*ENGINES} - {"linnet"} <= {*known}
    packages = [package for entry in known.values() for key in entry for package in entry[key]]
    assert len(packages) > 10 and all("==" in package for package in packages)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(SystemExit, match="--nets: vgg is not one of mobilenet_v2"):
        command._names("vgg", networks.NAMES, "--nets")


def test_the_readme_has_the_table_of_the_committed_figures() -> None:
    """After a new run `make bench-peers` has written it."""
    text, found = (report.ROOT / "README.md").read_text(), report.read()
    assert found is not None and report.in_readme(text, found) == text


def test_the_tables_of_other_benchmarks_stay_in_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text(benchmark_page.PAGE.read_text())
    monkeypatch.setattr(benchmark_page, "PAGE", page)
    before = benchmark_page.blocks()
    assert all(before.values()) and set(before) == {"figures", "training", "sync"}
    benchmark_page.put("training", "| new |")
    assert benchmark_page.blocks() == {**before, "training": "| new |"}
    assert page.read_text() == benchmark_page.current()
