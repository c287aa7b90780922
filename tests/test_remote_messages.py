"""What hosts and their clients send in a run: one message to each host and one answer, and little besides the values."""

from __future__ import annotations

import numpy as np

import linnet
from tests.remote_counts import counted
from tests.remote_host import host
from tests.test_remote import same

SIDE = 64
VALUE = 4 * 8 * SIDE  # bytes of a value


def layers(count: int) -> linnet.Graph:
    """Products one after the other, whose steps are called layer0, layer1, ..."""
    graph, rng = linnet.Graph(), np.random.default_rng(7)
    x = y = graph.placeholder("x", (8, SIDE))
    for i in range(count):
        with graph.scope(f"layer{i}"):
            y = linnet.ops.relu(y @ graph.constant(rng.standard_normal((SIDE, SIDE)).astype(np.float32) / 8, "w"))
    graph.signature("infer", {"x": x}, {"y": y})
    return graph


def feed(seed: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).standard_normal((8, SIDE)).astype(np.float32)}


def test_a_run_is_one_message() -> None:
    graph = layers(2)
    with host() as there, counted(there.address) as counts:
        session = linnet.Session(graph, devices=[counts.name], placement={"*": counts.name})
        expected = linnet.Session(graph).run(feed(0))
        for _ in range(2):
            counts.clear()
            assert same(session.run(feed(0)), expected)
            assert counts.by["HELLO"].messages == {"SUBMIT": 1, "ANSWER": 1}
            assert 2 * VALUE < counts.by["HELLO"].bytes <= 2 * VALUE + 2 * 200
