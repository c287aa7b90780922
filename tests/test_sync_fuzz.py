"""Mutated sessions of the sync protocol and random bytes, in random pieces, under AddressSanitizer and UBSan: into the stream,
and into the cores of server and worker. `make soak` runs 10 million of the first, and a million of each other."""
# Dear: thousands of damaged sessions are played to a sanitized program.

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.facade import Graph
from tests.native import ROOT, SANITIZED, build, run

_FUZZERS = sorted(path.stem for path in (ROOT / "tests" / "fuzz").glob("fuzz_sync_*.c"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the variables of tests/fuzz/sync_frames.h."""
    graph = Graph()
    x = graph.placeholder("x", (4,), "i64")
    shapes = {"a": (), "b": (10,), "c": (100, 16), "d": (50, 60)}
    a, b, c, d = (graph.variable(name, np.zeros(shape, np.float32)).tensor(x) for name, shape in shapes.items())
    e = graph.variable("e", np.zeros(8, np.float32), trainable=False)
    loss = a + b.sum() + ops.gather(c, x).sum() + d.sum() + e.tensor(x).sum()
    graph.side_update(e, e.tensor(x) * 0.5, along=loss)
    linnet.sync.signatures(graph, loss, linnet.SGD(1.0), {"x": x})
    path = tmp_path_factory.mktemp("fuzz") / "model.lnt"
    graph.save(path)
    return path


def _fuzz(name: str, count: int, seed: int, model: Path) -> dict[str, int]:
    """{outcome: count}."""
    arguments = [str(count), str(seed), *([str(model)] if name == "fuzz_sync_worker" else [])]
    text = run([str(build("address", name) / name), *arguments], env=SANITIZED, timeout=3000)
    found = re.match(r"(\d+) inputs: (\d+) fine; (\d+) frames, (\d+) messages; refused(.*)", text)
    assert found, text
    return {
        "inputs": int(found[1]), "fine": int(found[2]), "frames": int(found[3]), "messages": int(found[4]),
        **{words.strip(): int(number) for words, number in re.findall(r"([a-z ]+) (\d+)", found[5])},
    }  # fmt: skip


@pytest.mark.parametrize("name", _FUZZERS)
def test_changed_sessions(name: str, model: Path) -> None:
    count = 100_000 if name == "fuzz_sync_stream" else 10_000
    found = _fuzz(name, count, 1, model)
    print(f"{name}: {found}")
    assert found["inputs"] == count
    # Some must be refused and some accepted, and every check of a header must be reached.
    assert count // 50 < found["fine"] < count * 9 // 10
    assert found["frames"] > count // 50 and found["messages"] > count // 50
    assert {"malformed", "checksum", "version", "unexpected frame", "unknown tensor", "wrong length"} <= found.keys()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 22))
@pytest.mark.parametrize("name", _FUZZERS)
def test_changed_sessions_at_length(name: str, seed: int, model: Path) -> None:
    _fuzz(name, 500_000 if name == "fuzz_sync_stream" else 50_000, seed, model)
