"""Changed commands, changed pieces and changed recipes do not harm a host: it answers, stays within its memory, and gives
everything back. The driver (tests/fuzz/fuzz_remote_host.c) has sanitizers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from tests.native import build, run
from tests.remote_host import host
from tests.test_remote import small


def _loops() -> linnet.Graph:
    """Another piece of the same inputs and outputs: a branch in a loop, so it has four functions."""
    graph = linnet.Graph()
    x = graph.placeholder("x", (8, 64))

    w = [graph.constant(np.full((64, 64), 1 / scale, np.float32), f"w{scale}") for scale in (32, 48)]

    def step(state: Any) -> Any:
        i, y = state
        return i + 1, linnet.cond(y.sum() > 600.0, lambda: y @ w[1], lambda: ops.relu(y @ w[0]) + x)

    _, y = linnet.while_loop(lambda state: state[1].max() < 30.0, step, (0, x), maximum=9)
    graph.signature("infer", {"x": x}, {"y": y})
    return graph


@pytest.fixture(scope="module", params=["layers", "loops"])
def piece(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A piece as a client sends it."""
    folder = tmp_path_factory.mktemp("pieces")
    graph = small(64) if request.param == "layers" else _loops()
    with host("127.0.0.1:0", "--folder", str(folder)) as there:
        linnet.Session(graph, **there.all).run({"x": np.ones((8, 64), np.float32)})
    (path,) = folder.glob("*.lnt")
    return path


def _fuzz(count: int, seed: int, piece: Path, *folder: Path) -> None:
    driver = build("address", "fuzz_remote_host") / "fuzz_remote_host"
    text = run([str(driver), str(count), str(seed), str(piece), *map(str, folder)])
    assert int(text.split()[0]) >= count


def test_changed_commands(piece: Path) -> None:
    _fuzz(3_000, 1, piece)


def test_changed_commands_with_a_folder(piece: Path, tmp_path: Path) -> None:
    _fuzz(1_500, 2, piece, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(8))
def test_changed_commands_at_length(seed: int, piece: Path, tmp_path: Path) -> None:
    _fuzz(125_000, 100 + seed, piece, *[tmp_path][seed % 2 :])
