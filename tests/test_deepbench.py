"""The table of DeepBench's problems and the program that times them: problems are graphs of the right shapes, and the figures
that are printed follow from the time."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import linnet
from examples.evaluation import deepbench


def test_the_table_has_every_problem() -> None:
    counts = {(p.set, p.op): 0 for p in deepbench.problems()}
    for problem in deepbench.problems():
        counts[problem.set, problem.op] += 1
        assert problem.flops > 0 and problem.least_bytes > 0
    assert counts == {
        ("device", "gemm"): 13, ("device", "conv"): 17, ("device", "rnn"): 3,
        ("server", "gemm"): 75, ("server", "conv"): 107, ("server", "rnn"): 69,
        ("training", "gemm"): 160, ("training", "conv"): 3 * 94, ("training", "rnn"): 2 * 53,
    }  # fmt: skip


def test_names_are_unique_but_for_repeated_rows() -> None:
    """A row that DeepBench lists twice is measured twice; different problems never have the same name."""
    named: dict[tuple[str, str, str], float] = {}
    for p in deepbench.problems():
        assert named.setdefault((p.set, p.op, p.name), p.flops) == p.flops


@pytest.mark.parametrize("kind", deepbench.OPS)
@pytest.mark.parametrize("which", deepbench.SETS)
def test_the_smallest_problem_runs(which: str, kind: str) -> None:
    smallest = min(deepbench.problems((which,), (kind,)), key=lambda p: p.flops)
    row = deepbench.measure(smallest, 1, 0.0, None, None)
    assert row["ms"] > 0 and row["runs"] >= 3
    assert row["gflops"] == pytest.approx(smallest.flops / row["ms"] / 1e6)


@pytest.mark.parametrize("transposed", ["NN", "TN", "NT"])
def test_a_product_is_that_of_its_row(transposed: str) -> None:
    """C[m,n] = A B in columns, as BLAS stores them, is the transposed product in rows."""
    (problem,) = deepbench._gemm("training", 5, 3, 7, transposed)
    session = linnet.Session(problem.build())
    rng = np.random.default_rng(3)
    feeds = {spec.name: rng.standard_normal(spec.shape, np.float32) for spec in session.inputs}
    x, w = feeds["x"], feeds["w"]
    a = w if transposed[0] == "T" else w.T  # [m, k]
    b = x if transposed[1] == "T" else x.T  # [k, n]
    assert a.shape == (5, 7) and b.shape == (7, 3)
    np.testing.assert_allclose(session.run(feeds)["y"].T, a @ b, rtol=1e-4, atol=1e-5)


def test_the_table_has_591_problems() -> None:
    assert sum(problem.rows for problem in deepbench.problems()) == 591


def test_the_program_prints_and_writes_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--set", "device", "--op", "rnn", "--seconds", "0", "--most-gflop", "0.1", "--threads", "1"]
    deepbench.main([*words, "--out", str(tmp_path)])
    said = capsys.readouterr().out
    assert "rnn 64, batch 1, 96 steps" in said and "1 runs of more than 0.1 GFLOP" in said
    rows = json.loads((tmp_path / "deepbench.json").read_text())["extra"]["rows"]
    assert [row["op"] for row in rows] == ["rnn", "rnn"]
    assert all(0 < row["peak_share"] < 10 for row in rows)


def test_wrong_words_are_refused() -> None:
    with pytest.raises(SystemExit, match="fft: expected gemm, conv, rnn"):
        deepbench.main(["--op", "fft"])
