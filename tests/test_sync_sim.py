"""The cores of server and worker in a simulated network with its own clock (tests/sim): thousands of seeded runs, in all
modes, with connections and processes that die at any moment. A failing run prints how to repeat it."""
# Dear: hundreds of simulated clusters break, also under sanitizers.

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.facade import Graph
from tests.native import SANITIZED, build, run

# As in tests/sim/sim.h.
CELLS, BIG, ROWS, WIDTH, PUSHED_ROWS = 6 * 128, 3000, 2048, 2, 1100


def _files(folder: Path) -> None:
    """A model whose gradients are its inputs, for one server and for two."""
    graph = Graph()
    cells, everything = graph.placeholder("cells", (CELLS,)), graph.placeholder("all", (BIG,))
    rows, ids = graph.placeholder("rows", (PUSHED_ROWS, WIDTH)), graph.placeholder("ids", (PUSHED_ROWS,), "i64")
    counts = graph.variable("counts", np.zeros(CELLS, np.float32))
    big = graph.variable("big", np.zeros(BIG, np.float32))
    table = graph.variable("table", np.zeros((ROWS, WIDTH), np.float32))
    loss = (counts.tensor(cells) * cells).sum() + (big.tensor(cells) * everything).sum()
    loss = loss + (ops.gather(table.tensor(cells), ids) * rows).sum()
    inputs = {"cells": cells, "all": everything, "rows": rows, "ids": ids}
    linnet.sync.signatures(graph, loss, linnet.SGD(1.0), inputs)
    for count in (1, 2):
        parts = linnet.sync.shard(graph, count, split=[])
        parts.worker.save(folder / f"worker_of_{count}.lnt")
        for k, server in enumerate(parts.servers):
            server.save(folder / f"server_{k}_of_{count}.lnt")


def _simulate(kind: str, folder: Path, first: int, count: int) -> dict[str, int]:
    program = build(kind, "sync_sim") / "sync_sim"
    text = run([str(program), str(folder), str(first), str(count)], env=SANITIZED, timeout=3000)
    print(text)
    numbers = re.findall(r"(\d+) (runs|faults|cuts|workers|servers|torn|updates|overflows|steps)", text)
    return {name: int(number) for number, name in numbers}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("sim")
    _files(made)
    return made


def test_clusters_that_break(folder: Path) -> None:
    found = _simulate("release", folder, 1, 300)
    assert found["runs"] == 300 and found["steps"] > 10_000
    assert min(found["cuts"], found["workers"], found["servers"], found["torn"], found["overflows"]) > 30


def test_clusters_under_sanitizers(folder: Path) -> None:
    assert _simulate("address", folder, 1_000_000, 50)["runs"] == 50


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_clusters_at_length(part: int, folder: Path) -> None:
    assert _simulate("release", folder, 10_000 + 1000 * part, 1000)["runs"] == 1000


@pytest.mark.soak
def test_clusters_at_length_under_sanitizers(folder: Path) -> None:
    assert _simulate("address", folder, 2_000_000, 500)["runs"] == 500
