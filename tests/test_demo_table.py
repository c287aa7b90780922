"""The table of the demos: formats are timed in turn, and the line below says whether the machine was busy."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples import report
from examples.mnist_small import demo as digits


def test_formats_are_timed_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that gets slower and slower does not make the format slow that comes last."""
    order: list[str] = []
    clock = [0.0]
    monkeypatch.setattr(report.time, "perf_counter", lambda: clock[0])

    def work(name: str, cost: float) -> None:
        order.append(name)
        clock[0] += cost * (1 + clock[0] / 10)

    costs = {"f32": 0.2, "f16": 0.2, "i16": 0.2, "i8": 0.1}
    found = report.timed({name: lambda n=name: work(n, costs[n]) for name in costs}, seconds=2.0)  # type: ignore[misc]
    rounds = len(found.times["f32"])
    assert rounds >= 5 and order == list(costs) * (rounds + 1)
    assert found.median("i8") < 0.7 * found.median("f32") and found.median("f16") < 1.1 * found.median("f32")
    assert "runs of one format differ by" in str(found), "it was slow at the end"


def test_a_quiet_and_a_busy_machine() -> None:
    steady = {"f32": [10.0, 10.1, 9.9, 10.0, 10.2], "i8": [5.0, 5.0, 5.1, 5.0, 4.9]}
    assert str(report.Timing(steady, 0.05)) == "Medians of 5 rounds; each round runs every format once, in turn."
    busy = str(report.Timing(steady, 1.4))
    assert "The machine was busy: other processes used 1.4 of " in busy and "differ" not in busy
    shaky = str(report.Timing({**steady, "i8": [5.0, 9.0, 5.0, 8.0, 5.0]}, 0.0))
    assert "The machine was busy: runs of one format differ by 60%." in shaky


def test_the_load_of_others_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work of this process is not that of others; work of another process is."""
    from examples import load

    ticks, own = [1000], [5.0]
    monkeypatch.setattr(load, "busy_ticks", lambda: ticks[0])
    monkeypatch.setattr(load, "_own_seconds", lambda: own[0])
    monkeypatch.setattr(load.os, "sysconf", lambda name: 100)
    monkeypatch.setattr(load.time, "monotonic", iter([0.0, 2.0, 4.0]).__next__)
    meter = load.Meter()
    ticks[0], own[0] = 1200, 7.0
    assert meter.others() == 0.0
    ticks[0], own[0] = 1800, 9.0
    assert meter.others() == 1.0


def test_the_digits_demo_prints_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = digits.run(report.Options(tmp_path, 0.05, None))
    said = capsys.readouterr().out
    assert [row.dtype for row in rows] == list(report.DTYPES) and all(row.wrong <= 1 for row in rows)
    assert "against f32" in said and "Medians of " in said
    assert sorted(path.name for path in tmp_path.glob("*.png")) == sorted(f"mnist_small-{d}.png" for d in report.DTYPES)
