"""Clients and hosts in one process, over connections that delay, split, cut and swallow what they carry (tests/sim_hosts): seeded
runs, in which training over three hosts has the bits of one process or fails as it should. A failing run prints its seed."""
# Dear: hundreds of runs break, also under sanitizers.

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet import nn
from tests.native import SANITIZED, build, run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chain of layers over three tasks, with a constant large enough to travel by itself, and its training step."""
    graph, rng = linnet.Graph(seed=3), np.random.default_rng(5)
    x, target = graph.placeholder("x", (4, 32)), graph.placeholder("target", (4, 8))
    with graph.device("/job:worker/task:0"):
        y = nn.dense(x @ graph.constant(rng.standard_normal((32, 16), np.float32)), 24, activation="relu", name="a")
    with graph.device("/job:worker/task:1"):
        y = nn.dense(y, 24, activation="relu", name="b")
    with graph.device("/job:worker/task:2"):
        loss = ((nn.dense(y, 8, name="c") - target) ** 2).mean()
    feeds = {"x": x, "target": target}
    graph.signature("train", feeds, {"loss": loss}, updates=linnet.Momentum(0.1, 0.9).minimize(loss))
    made = tmp_path_factory.mktemp("hosts")
    graph.save(made / "model.lnt")
    for name in ("pieces1", "pieces2"):
        (made / name).mkdir()
    return made


def _simulate(kind: str, folder: Path, first: int, count: int) -> dict[str, int]:
    program = build(kind, "host_sim") / "host_sim"
    text = run([str(program), str(folder), str(first), str(count)], env=SANITIZED, timeout=3000)
    print(text)
    kept = [path.name for path in folder.glob("pieces?/*")]
    assert kept and all(re.fullmatch("[0-9a-f]{64}.lnt", name) for name in kept), kept  # nothing is left half written
    return {name: int(number) for number, name in re.findall(r"(\d+) (\w+)", text)}


def test_hosts_that_break(folder: Path) -> None:
    found = _simulate("release", folder, 1, 300)
    assert found["runs"] == 300 == found["finished"] + found["failed"] and found["repeated"] == found["failed"] > 50
    assert found["finished"] > 50 and found["cuts"] > 100 and min(found["stops"], found["silences"]) > 3


@pytest.mark.more
@pytest.mark.parametrize("kind", ["address", "thread"])
def test_hosts_that_break_sanitized(folder: Path, kind: str) -> None:
    assert _simulate(kind, folder, 1_001, 100)["runs"] == 100


@pytest.mark.soak
@pytest.mark.parametrize("part", range(20))
def test_ten_thousand_runs(folder: Path, part: int) -> None:
    assert _simulate("release", folder, 10_000 + 500 * part, 500)["runs"] == 500
