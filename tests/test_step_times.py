"""The times of steps are medians: an interruption in one run does not change them. The C half is in test_step_times.c."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet.session import step_times
from linnet.session.step_times import medians, timed_steps
from tests.graphs import bytes_of
from tests.test_tool_style import tool

Command = Callable[..., Any]


def test_medians() -> None:
    """Step 0 is interrupted in the third run. Step 1 runs in two of five runs, on a device. Step 2 never runs."""
    totals = [(10, 22, 90022, 90033, 90045), (100, 100, 100, 300, 300)]
    runs = [(1, 2, 3, 4, 5), (1, 1, 1, 2, 2)]
    readings = [
        [(runs[0][k], totals[0][k], 0), (runs[1][k], totals[1][k], 2 * totals[1][k]), (0, 0, 0)] for k in range(5)
    ]
    assert medians(readings) == [(12, 0), (150, 300), (0, 0)]


def test_an_interruption_blames_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program interrupts the first step once, for a second. `Session.steps` has means; `timed_steps` does not."""
    session = linnet.Session(bytes_of("mlp"), threads=1, trace=True)
    feeds = {spec.name: np.zeros(spec.shape or (), np.float32) for spec in session.inputs}
    real, count = step_times._totals, 0

    def interrupted(traced: linnet.Session) -> Any:
        nonlocal count
        count += 1
        (runs, ns, device), *rest = real(traced)
        return [(runs, ns + (10**9 if count > 2 else 0), device), *rest]

    monkeypatch.setattr(step_times, "_totals", interrupted)
    steps = timed_steps(session, lambda: session.run(feeds), 5)
    assert [step.name for step in steps] == [step.name for step in session.steps]
    assert 0 < steps[0].ms < 500 and all(step.runs == 5 for step in steps)


def test_the_sum_beside_the_run(tmp_path: Path, linnet_command: Command) -> None:
    (tmp_path / "m.lnt").write_bytes(bytes_of("mlp"))
    words = (tmp_path / "m.lnt", "--seconds", "0.01", "--threads", "1")
    report = json.loads(linnet_command("bench", *words, "--json").stdout)
    assert report["steps_ms"] == pytest.approx(sum(op["ms"] for op in report["ops"])) and report["steps_ms"] > 0
    assert "the medians of the ops add up to" in linnet_command("bench", *words).stdout
    native = json.loads(tool("linnet-bench", *words, "--json", cwd=tmp_path).stdout)
    assert native["steps_ms"] == pytest.approx(sum(op["ms"] for op in native["ops"]), abs=1e-5)
    text = tool("linnet-bench", *words, "--ops", cwd=tmp_path).stdout
    assert "the sum of the steps' medians" in text
