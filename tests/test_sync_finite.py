"""Finite pushes keep variables finite: sums and updates that overflow are dropped, in every mode of training and with every
encoding, and the job continues. tests/c/test_sync_finite.c tests the server's core byte by byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet import SGD, AdaGrad, Adam, Momentum, ops
from linnet.facade import Graph
from linnet.sync import Ring, RingTrainer, Server, Worker
from tests.test_sync_ring import ranks
from tests.test_sync_server import together

SIZE, HUGE = 2000, 3e38


def pushing(optimizer: linnet.Optimizer, dtype: str = "f32") -> Graph:
    """The gradient of w is the feed x; the gradient of the table, in rows, is the feed y."""
    graph = Graph(seed=1)
    x, ids, y = (
        graph.placeholder("x", (SIZE,), dtype),
        graph.placeholder("ids", (2,), "i64"),
        graph.placeholder("y", (2, 3)),
    )
    w = graph.variable("w", np.zeros(SIZE, np.float32 if dtype == "f32" else np.float64))
    table = graph.variable("table", np.zeros((10, 3), np.float32))
    loss = (w.tensor(x) * x).sum().cast("f32") + (ops.gather(table.tensor(x), ids) * y).sum()
    linnet.sync.signatures(graph, loss, optimizer, {"x": x, "ids": ids, "y": y})
    return graph


def feed(x: float, y: float = 1.0, dtype: str = "f32") -> dict[str, np.ndarray]:
    kind = np.float32 if dtype == "f32" else np.float64
    return {"x": np.full(SIZE, x, kind), "ids": np.array([3, 7]), "y": np.full((2, 3), y, np.float32)}


def check(server: Server, steps: int, dropped: int) -> None:
    """Everything is finite, this many steps were dropped, and the others were applied."""
    status = server.status()
    assert (status["steps_not_finite"], status["version"]) == (dropped, steps - dropped), status
    for spec in server.model.variables:
        assert np.isfinite(server.store[spec.name]).all(), spec.name


def train(
    graph: Graph, server: Server, pushes: list[list[dict[str, np.ndarray]]], weights: list[float]
) -> list[list[str]]:
    """The answers that each worker got for each of its pushes."""

    def work(k: int) -> list[str]:
        with Worker(graph, server.address, number=k, timeout=30) as worker:
            heard = []
            for push in pushes[k]:
                worker.step(push, weight=weights[k])
                heard.append(worker.info.outcome)
            return heard

    return together(len(pushes), work)


OPTIMIZERS = {
    "sgd": (lambda: SGD(10.0), 1e38),
    "momentum": (lambda: Momentum(10.0, 0.9), 1e38),
    "adam": (lambda: Adam(0.1), 1e30),
    "adagrad": (lambda: AdaGrad(0.1), 1.8e19),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_update_that_overflows_is_taken_back(name: str, tmp_path: Path) -> None:
    """Dense and sparse; and the journal restores a server to the same bits."""
    optimizer, large = OPTIMIZERS[name]
    graph = pushing(optimizer())
    pushes = [feed(1), feed(large), feed(1, -large), feed(2), feed(large), feed(2)]
    server = Server(graph, folder=tmp_path)
    with server:
        heard = train(graph, server, [pushes], [1.0])[0]
        assert heard[0] == heard[3] == heard[5] == "applied" and "not_finite" in heard
        check(server, 6, heard.count("not_finite"))
        kept = {spec.name: server.store[spec.name].copy() for spec in server.model.variables}
        journal = (tmp_path / "journal").read_bytes()
    again = tmp_path / "again"
    again.mkdir()
    (again / "journal").write_bytes(journal)
    with Server(graph, folder=again) as server:
        for variable, value in kept.items():
            np.testing.assert_array_equal(server.store[variable], value, err_msg=variable)


def test_what_a_large_gradient_leaves_overflows_later() -> None:
    """The momentum of an applied update: ordinary gradients after it are tested, too."""
    graph = pushing(Momentum(0.9, 0.9))
    with Server(graph) as server:
        heard = train(graph, server, [[feed(2.9e38), *[feed(1)] * 6]], [1.0])[0]
        assert heard[0] == "applied" and "not_finite" in heard
        check(server, 7, heard.count("not_finite"))


@pytest.mark.parametrize(("dtype", "large"), [("f16", 4e4), ("bf16", 2e38)])
def test_variables_of_16_bits(dtype: str, large: float) -> None:
    """Ordinary gradients make f16 overflow, so each update is tried, and not only the first one."""
    graph = Graph()
    x = graph.placeholder("x", (SIZE,))
    w = graph.variable("w", np.zeros(SIZE), dtype=dtype)
    linnet.sync.signatures(graph, (w.tensor(x).cast("f32") * x).sum(), SGD(1.0), {"x": x})
    with Server(graph) as server, Worker(graph, server.address, number=0, timeout=30) as worker:
        heard = []
        for value in (1.0, large, large, 3.0):
            worker.step({"x": np.full(SIZE, value, np.float32)})
            heard.append(worker.info.outcome)
        assert heard == ["applied", "applied", "not_finite", "applied"]
        assert np.isfinite(server.store["w"].astype(np.float64)).all()


def test_large_gradients_that_an_update_stands_are_applied() -> None:
    with Server(pushing(SGD(0.5))) as server:
        assert train(pushing(SGD(0.5)), server, [[feed(1e38), feed(-1e38), feed(0, 1e38)]], [1.0]) == [["applied"] * 3]
        check(server, 3, 0)
        np.testing.assert_array_equal(server.store["w"], np.zeros(SIZE, np.float32))
        assert server.store["table"][3, 0] == np.float32(-0.5e38) - np.float32(
            1
        )  # 1 twice, which is lost next to the large value


@pytest.mark.parametrize(("pushed", "weights"), [
    (feed(HUGE), [1.0, 1.0]), (feed(1, HUGE), [1.0, 1.0]), (feed(1), [1e300, 1.0]), (feed(1), [1e-300, 2e-300]),
    (feed(HUGE, dtype="f64"), [1e300, 1.0]), (feed(1.7e308, dtype="f64"), [1.0, 1.0]),
])  # fmt: skip
def test_a_mean_that_overflows_is_dropped(pushed: dict[str, np.ndarray], weights: list[float]) -> None:
    graph = pushing(SGD(1.0), "f32" if pushed["x"].dtype == np.float32 else "f64")
    fine = feed(1.0, dtype="f32" if pushed["x"].dtype == np.float32 else "f64")
    equal = [weights[0] == weights[1], True, weights[0] == weights[1]]
    with Server(graph, workers=2) as server:
        heard = train(graph, server, [[fine, pushed, fine]] * 2, weights)
        assert heard == [["applied" if e and i != 1 else "not_finite" for i, e in enumerate(equal)]] * 2
        check(server, 3, heard[0].count("not_finite"))


def test_backup_workers_and_groups() -> None:
    graph = pushing(SGD(1.0))
    with Server(graph, workers=3, quorum=2) as server, Worker(graph, server.address, number=2, timeout=30) as idle:
        assert train(graph, server, [[feed(HUGE), feed(1)]] * 2, [1.0, 1.0]) == [["not_finite", "applied"]] * 2
        check(server, 2, 1)
        idle.pull()
    with Server(graph, workers=2) as server:

        def work(k: int) -> list[str]:
            with Worker(graph, server.address, number=k, group=k // 2, timeout=30) as worker:
                heard = []
                for push in (feed(HUGE if k < 2 else 1), feed(1)):
                    worker.step(push)
                    heard.append(worker.info.outcome)
                return heard

        heard = together(4, work)
        assert heard == [["not_finite", "applied"]] * 2 + [["applied", "applied"]] * 2
        check(server, 4, 1)
        assert [group["not_finite"] for group in server.status()["groups"]] in ([1, 0], [0, 1])


def test_federated_rounds() -> None:
    """A worker's own changes, from one end of the number range to the other."""
    graph = pushing(SGD(1.0))
    with Server(graph) as server, Worker(graph, server.address, keep_pulled=True, timeout=30) as worker:
        for value, outcome in ((-1.0, "applied"), (HUGE, "applied"), (-HUGE, "not_finite"), (2.0, "applied")):
            worker.pull()
            worker.store["w"] = np.full(SIZE, value, np.float32)
            worker.push()
            assert worker.info.outcome == outcome
            for variable in ("w", "table"):
                assert np.isfinite(server.store[variable]).all()


@pytest.mark.parametrize("compression", ["f16", "bf16", "i8", "topk:0.01", "1bit"])
def test_what_compression_makes_of_large_gradients(compression: str) -> None:
    """With error feedback, which may overflow itself: a step is applied or dropped, and no overflow ends the job."""
    graph = pushing(SGD(1e-3))
    random = np.random.default_rng(1)
    with Server(graph) as server, Worker(graph, server.address, compression=compression, timeout=30) as worker:
        for step in range(12):
            push = feed(0)
            push["x"] = random.choice([-1, 1], SIZE).astype(np.float32) * np.float32(3.4e38 if step < 6 else 1)
            worker.step(push)
            for variable in ("w", "table"):
                assert np.isfinite(server.store[variable]).all()
        assert worker.info.applied + worker.info.not_finite == 12 and worker.info.applied >= 6
        assert worker.info.outcome == "applied" and worker.info.links[0].reconnects == 0


def test_a_ring_drops_what_overflows(tmp_path: Path) -> None:
    """Sums, weights, and updates: the same in all ranks."""
    graph = Graph(seed=1)
    x = graph.placeholder("x", (SIZE,))
    loss = (graph.variable("w", np.zeros(SIZE, np.float32)).tensor(x) * x).sum()
    linnet.sync.signatures(graph, loss, Momentum(10.0, 0.9), {"x": x})

    def work(rank: int) -> tuple[int, np.ndarray]:
        with Ring(f"unix:{tmp_path}/ring", rank, 2, timeout=20) as ring:
            trainer = RingTrainer(graph, ring, threads=1)
            # The update overflows first, while w is 0 and the loss is still finite.
            for value, weight in ((1e38, 1), (1, 1), (HUGE, 1), (1, 2e38), (1, 1e-44), (1, 1)):
                trainer.step({"x": np.full(SIZE, value, np.float32)}, weight=weight)
                for spec in trainer.model.variables:
                    assert np.isfinite(trainer.store[spec.name]).all(), (spec.name, value, weight)
            return trainer.not_finite, trainer.store["w"].copy()

    first, second = ranks(2, work)
    assert first[0] == second[0] == 3  # tiny but equal weights still give a mean
    np.testing.assert_array_equal(first[1], second[1])
