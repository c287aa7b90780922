"""The list of passes (runtime_c/plan/compile/passes.inc): its lines fit together, docs/architecture.md has them, and a plan says
what each pass changed. tests/c/test_passes.c breaks each fact."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.session.planner import Planner
from tests import pass_list

Command = Callable[..., subprocess.CompletedProcess[str]]


def network() -> linnet.Graph:
    """A convolution and a map after it, over an open batch."""
    g = linnet.Graph()
    x, w = g.placeholder("x", (None, 3, 16, 16)), g.constant(np.ones((8, 3, 3, 3), np.float32))
    g.signature("infer", {"x": x}, {"y": ops.relu(ops.conv(x, w, pads=[1, 1, 1, 1]))})
    return g


def test_the_page_has_the_list() -> None:
    assert pass_list.parts()[1] == pass_list.page(), "run: python -m tests.pass_list --write"


def test_a_pass_needs_only_what_holds() -> None:
    """Each fact that a line needs has been given by an earlier line, and has not ended since."""
    facts, known = set[str](), pass_list.facts()
    for p in pass_list.passes():
        assert set(p.needs) <= facts, p.name
        assert set(p.ends) <= facts and p.does.endswith("."), p.name
        facts = (facts - set(p.ends)) | set(p.gives)
        assert facts <= set(known), p.name
    assert {name for p in pass_list.passes() for name in p.needs} | {"PORTS"} == set(known), "a fact that nobody needs"


def test_each_pass_has_a_file() -> None:
    """A pass is in the file of its name, with no other; what builds the program may have several passes in a file."""
    own = {p.name: p.file for p in pass_list.passes() if p.file.startswith("passes/")}
    assert own == {path.stem: f"passes/{path.name}" for path in (pass_list.PLAN / "passes").glob("*.c")}


def test_a_plan_says_what_each_pass_changed() -> None:
    planner = Planner(network(), threads=1)
    planner.plan({"x": (2, 3, 16, 16)})
    steps = planner.plan_info["steps"]
    changes = {change.name: change for change in planner.passes}
    assert list(changes) == [p.name for p in pass_list.passes()]
    assert changes["expand"].nodes[0] == 0 and changes["expand"].added == changes["expand"].nodes[1] > 0
    assert changes["fuse"].fused == 1 and changes["fuse"].removed - changes["fuse"].added == 1
    assert changes["ports"].nodes[1] == steps
    assert not changes["places"].ran and not changes["frame"].ran and not changes["resume"].ran
    ran = [change for change in planner.passes if change.ran]
    for before, after in itertools.pairwise(ran):
        assert before.nodes[1] == after.nodes[0] and before.values[1] == after.values[0]
    for change in ran:
        assert change.nodes[1] - change.nodes[0] == change.added - change.removed
    memory = planner.memory
    assert ran[-1].bytes[1] == memory["activations"] + memory["io"]
    assert planner.plan_info["steps"] == steps


def test_a_reference_plan_leaves_passes_out() -> None:
    planner = Planner(network(), threads=1, reference=True)
    planner.plan({"x": (1, 3, 16, 16)})
    left_out = {change.name for change in planner.passes if not change.ran}
    assert {p.name for p in pass_list.passes() if p.when == "FAST"} <= left_out


def test_only_order_moves_nodes() -> None:
    """In a signature that updates a variable, a node that frees memory moves before one that takes more."""
    g = linnet.Graph()
    x, v = g.placeholder("x", (8, 8)), g.variable("v", np.zeros((8, 8), np.float32))
    large, small = ops.tile(x, (16, 16)), (x @ v).sum()
    g.signature("infer", {"x": x}, {"y": ops.softmax(large, axis=1).sum() + small}, updates={v: v - x @ x})
    planner = Planner(g, threads=1)
    planner.plan({"x": (8, 8)})
    moved = {change.name: change.moved for change in planner.passes}
    assert moved.pop("order") > 0 and not any(moved.values())


def test_a_plan_keeps_nothing_unasked() -> None:
    from linnet.session.changes import changes_of

    planner = Planner(network(), threads=1)
    planner.plan({"x": (1, 3, 16, 16)})
    assert changes_of(planner._current_plan()) == []


@pytest.mark.parametrize("shape", ["x=2,3,16,16", "x=1..2,3,16,16"])
def test_the_command(tmp_path: Path, shape: str, linnet_command: Command) -> None:
    path = tmp_path / "net.lnt"
    path.write_bytes(network().to_bytes())
    text = linnet_command("plan", path, "--passes", "--input", shape).stdout
    assert " fuse " in text and " expand " in text and "Memory" not in text
    assert "left out, because this plan does not need them: resume, places" in text
    report = json.loads(linnet_command("plan", path, "--passes", "--input", shape, "--json").stdout)
    assert [row["name"] for row in report["passes"]] == [p.name for p in pass_list.passes()]
    assert "passes" not in json.loads(linnet_command("plan", path, "--input", shape, "--json").stdout)
