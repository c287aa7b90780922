"""The text of `linnet top`: its tables for reports in the form that a server writes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from rich.console import Console

from linnet.sync import dashboard


def worker(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "worker": number, "name": f"box{number}", "peer": f"127.0.0.1:{5000 + number}", "group": 0, "step": 40,
        "connected": True, "member": True, "pushed": False, "held": False, "applied": 40, "late": 0, "not_finite": 0,
        "staleness": 0, "received": 4_000_000, "sent": 4_000_000, "examples": 32, "compute_s": 4.0, "examples_per_s": 100.0,
        "loss": 0.5, "silent_s": 0.1,
    } | changes  # fmt: skip


def report(workers: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    pushed = sum(w["pushed"] for w in workers)
    group = {
        "group": 0, "step": 40, "members": len(workers), "awaited": len(workers) - pushed, "pushed": pushed,
        "last_workers": len(workers), "collect_s": 0.1, "update_s": 0.01, "loss": 0.5,
    }  # fmt: skip
    return {
        "job": "0123456789abcdef" * 2, "shard": 0, "shards": 1, "epoch": 1, "mode": "synchronous",
        "workers_wanted": len(workers), "quorum": 0, "elastic": False, "bound": -1, "version": 40, "sequence": 40,
        "saved_version": 30, "journal": 10, "members": len(workers), "connections": len(workers), "tensors": 3,
        "applied": 160, "late": 0, "not_finite": 0, "refused": 0, "dropped_readers": 0, "copies": 0, "paused": 0,
        "bytes": 4_000_000, "max_bytes": 1_000_000_000, "received": 16_000_000, "sent": 16_000_000, "uptime_s": 100.0,
        "update_s": 0.4, "groups": [group], "workers": workers,
    } | changes  # fmt: skip


def text(*arguments: Any, width: int = 200) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"), highlight=False)  # noqa: SIM115
    console.print(dashboard.view(*arguments, **({} if width == 200 else {"width": width})))
    return console.export_text()


def later(now: dict[str, Any], seconds: float, steps: int) -> dict[str, Any]:
    made = copy.deepcopy(now)
    made["uptime_s"] += seconds
    made["version"] += steps
    made["update_s"] += steps * 0.005
    for key in ("received", "sent"):
        made[key] += steps * 1_000_000
        for w in made["workers"]:
            w[key] += steps * 250_000
    for w in made["workers"]:
        w["applied"] += steps
        w["step"] += steps
    return made


def test_rates_are_differences_of_two_reports() -> None:
    then = report([worker(i) for i in range(4)])
    now = later(then, 2.0, 10)
    rows = dashboard.rows([now], [then])
    assert [row.steps_per_s for row in rows] == [5.0] * 4
    assert rows[0].received_per_s == rows[0].sent_per_s == 1_250_000
    found = text([now], [then])
    assert "1.25 MB" in found and "5.00 MB" in found
    line = next(line for line in found.splitlines() if " 0/1 " in line)
    assert [cell.strip() for cell in line.split("│")[1:5]] == ["0/1", "50", "5", "5"]


def test_bytes_of_several_servers_are_added() -> None:
    then = [report([worker(0)], shard=i, shards=2) for i in range(2)]
    now = [later(r, 1.0, 4) for r in then]
    (row,) = dashboard.rows(now, then)
    assert row.sent_per_s == 2_000_000 and row.steps_per_s == 4
    assert dashboard.rows(now, then[:1])[0].sent_per_s is None, "not known of one: not known"


def test_without_an_earlier_report_there_are_no_rates() -> None:
    now = report([worker(0)])
    assert dashboard.rows([now])[0].steps_per_s is None
    assert dashboard.rows([later(now, 1, 1) | {"epoch": 2}], [now])[0].steps_per_s is None, (
        "the server was started again"
    )


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "computing"), ({"pushed": True}, "pushed"), ({"held": True}, "held"), ({"connected": False}, "lost"),
        ({"member": False, "connected": False}, "left"),
    ],
)  # fmt: skip
def test_states_of_a_worker(changes: dict[str, Any], state: str) -> None:
    now = report([worker(0, **changes), worker(1), worker(2)])
    assert dashboard.rows([now])[0].state == state
    assert state in text([now])


def test_the_one_that_all_wait_for_is_named() -> None:
    now = report([worker(0, pushed=True), worker(1), worker(2, pushed=True)])
    assert [row.state for row in dashboard.rows([now])] == ["pushed", "awaited", "pushed"]


def test_stragglers_are_slower_than_two_thirds_of_the_median() -> None:
    speeds = (100, 90, 50, 110, 67)
    now = report([worker(i, examples_per_s=float(s)) for i, s in enumerate(speeds)])
    assert [row.slow for row in dashboard.rows([now])] == [None, None, pytest.approx(50 / 90), None, None]
    assert "slow (0.56x)" in text([now])
    assert dashboard.rows([report([worker(0, examples_per_s=0.0), worker(1)])])[0].slow is None


def test_headline_says_by_which_rule_steps_close() -> None:
    workers = [worker(i) for i in range(3)]
    assert "synchronous  3 of 3 workers  up 0:01:40" in text([report(workers)])
    assert "2 of 3 complete a step" in text([report(workers, mode="quorum", quorum=2)])
    assert "staleness at most 4" in text([report(workers, mode="asynchronous", bound=4, elastic=True)])


def test_groups_late_pushes_and_losses_that_are_none() -> None:
    now = report([worker(0, late=3, loss=None), worker(1, group=1, not_finite=2)])
    now["groups"].append(now["groups"][0] | {"group": 1})
    found = text([now])
    assert "group" in found and "2 not finite" in found


def test_trouble_is_shown_with_what_is_known() -> None:
    assert "127.0.0.1:1: refused" in text([], [], ["127.0.0.1:1: refused"])
    assert "box0" in text([report([worker(0)])], [], ["shard 1 does not answer"])


def test_of_many_workers_those_are_shown_that_hold_others_up() -> None:
    workers = [worker(i, pushed=True) for i in range(1000)]
    workers[700]["connected"] = False
    workers[300]["examples_per_s"] = 20.0
    workers[5]["pushed"] = workers[6]["pushed"] = False
    found = text([report(workers)], [], [], 17)
    assert [name in found for name in ("box700", "box300", "box5 ", "box6 ")] == [True] * 4
    assert "... and 996 others: 996 pushed" in found
    assert "box300" not in text([report(workers)], [], [], 16), "slow, but nobody waits for it"
    assert "others" not in text([report(workers[:4])], [], [], 16)
    slow = [worker(i, examples_per_s=20.0 if i == 77 else 100.0) for i in range(100)]
    assert "box77" in text([report(slow)], [], [], 16)


@pytest.mark.parametrize(("width", "lines"), [(80, 24), (120, 40)])
@pytest.mark.parametrize(("servers", "workers"), [(1, 1), (1, 60), (3, 8), (40, 200)])
def test_it_fits_the_terminal(width: int, lines: int, servers: int, workers: int) -> None:
    """One line per row, the columns that matter most, and never more lines than the terminal has."""
    team = [
        worker(i, name=f"a-machine-with-a-long-name-{i}", peer=f"[2001:db8::{i:x}]:50000", group=i % 2, step=12_345_678,
               pushed=True, examples_per_s=20.0 if i % 3 == 1 else 100.0, sent=10**10, received=10**10, late=7, not_finite=3)
        for i in range(workers)
    ]  # fmt: skip
    team[0]["pushed"] = False
    now = [
        report(team, shard=k, shards=servers, version=12_345_678, bytes=123_000_000, max_bytes=10**10, received=10**12)
        for k in range(servers)
    ]
    then = [later(r, -1.0, -3) for r in now]
    trouble = [
        "unreachable: 'a-server-with-a-long-name.example.com:12345': cannot connect; " + "check the address " * 9
    ]
    for problems in ([], trouble):
        found = text(now, then, problems, lines, width=width).splitlines()
        assert len(found) <= lines and max(map(len, found)) <= width, "\n".join(found)
        whole = "\n".join(found)
        for word in ("shard", "updates/s", "step", "state", "steps/s", "awaited" if workers > 1 else "computing"):
            assert word in whole, whole
        assert ("others: " in whole) == (workers > 20)
        assert ("other servers" in whole) == (servers == 40)
    assert ("not finite" in whole) == (width == 120)
