"""linnet.fit with Strategy("ring"): the training of one process that accumulates, validation by worker 0, resuming, stopping."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import nn
from linnet.facade import Graph
from linnet.sync import Cluster, Strategy
from tests.test_sync_fit import together

WORKERS, BATCH = 4, 5
RING = Strategy("ring")


def examples(count: int = 160) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    t = rng.integers(0, 3, count)
    return {"x": (rng.standard_normal((count, 6)) + 2 * np.eye(3, 6)[t]).astype(np.float32), "t": t.astype(np.int32)}


def build() -> Graph:
    """A dense network with dropout."""
    graph = Graph(seed=3)
    x, t = graph.placeholder("x", ("batch", 6)), graph.placeholder("t", ("batch",), "i32")
    hidden = nn.dense(x, 12, activation="tanh", name="hidden")
    scores = nn.dense(nn.dropout(hidden, 0.2, True), 3, name="out")
    with graph.scope("out", reuse=True):
        weight, bias = (graph.variables[f"out/{n}"] for n in ("weight", "bias"))
    plain = hidden @ weight.tensor(hidden) + bias.tensor(hidden)
    check = {"loss": linnet.softmax_cross_entropy(plain, t).mean(), "accuracy": linnet.metrics.accuracy(plain, t)}
    loss = linnet.softmax_cross_entropy(scores, t).mean()
    linnet.sync.signatures(graph, loss, linnet.Momentum(0.1, 0.9), {"x": x, "t": t}, evaluate=check, accumulate=True)
    return graph


def ring(folder: Path, **arguments: Any) -> list[linnet.History]:
    return together(folder, build, strategy=RING, **{"data": examples(), "batch_size": BATCH, **arguments})


def test_a_ring_is_one_process_that_accumulates(tmp_path: Path) -> None:
    one = linnet.fit(build(), examples(), batch_size=BATCH, epochs=3, accumulate=WORKERS, validation=examples(50))
    found = ring(tmp_path, epochs=3, accumulate=WORKERS, validation=examples(50))
    for history in found:
        assert (history.step, history.epoch) == (one.step, one.epoch) == (24, 3)
        for name in one.store:
            if "accumulated" not in name:
                np.testing.assert_allclose(history.store[name], one.store[name], rtol=0, atol=1e-5, err_msg=name)
                assert history.store[name].tobytes() == found[0].store[name].tobytes(), name
    np.testing.assert_allclose(found[0]["val_loss"], one["val_loss"], atol=1e-5)
    assert not any("val_loss" in record for history in found[1:] for record in history.records)


def test_a_ring_goes_on_from_worker_0s_checkpoint(tmp_path: Path) -> None:
    whole = ring(tmp_path, epochs=3)
    place = tmp_path / "run"
    assert ring(tmp_path, epochs=1, directory=place, resume=True)[0].step == 8
    again = ring(tmp_path, epochs=3, directory=place, resume=True)
    assert [(history.step, history.epoch) for history in again] == [(24, 3)] * WORKERS
    for name in whole[0].store:
        assert again[0].store[name].tobytes() == again[3].store[name].tobytes() == whole[0].store[name].tobytes(), name


def test_early_stopping_ends_the_ring(tmp_path: Path) -> None:
    class Enough(linnet.Callback):
        def on_step(self, run: Any, metrics: Mapping[str, float]) -> None:
            if run.company.cluster.is_chief and run.step == 5:
                run.stop("enough")

    found = ring(tmp_path, epochs=100, callbacks=[Enough()])
    assert found[0].stopped == "enough" and found[0].step == 5
    assert all(history.stopped.startswith("worker 0 has ended") and history.step == 5 for history in found[1:])


def test_what_makes_no_ring_is_refused(tmp_path: Path) -> None:
    for options in ({"backup": 1}, {"groups": 2}, {"compression": "i8"}, {"staleness": 1}):
        with pytest.raises(linnet.UsageError, match="is not valid for ring training"):
            Strategy("ring", **options)  # type: ignore[arg-type]
    server = Cluster("server", 0, 2, (f"unix:{tmp_path}/s",), source="test")
    with pytest.raises(linnet.UsageError, match="a ring has no servers"):
        linnet.fit(build(), examples(), cluster=server, strategy=RING)
