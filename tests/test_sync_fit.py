"""linnet.fit in a job of several processes: the same bits as one process that accumulates, for every arrangement of servers; each
mode learns; runs resume from the servers' snapshots. Workers are threads here, and processes in the last tests."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import data, nn, ops
from linnet.facade import Graph
from linnet.sync import Cluster, Strategy
from linnet.training import History

WORKERS, BATCH = 4, 5
TABLE = "embedding/weight"


def examples(count: int = 160) -> dict[str, Any]:
    """Points in the plane with one of three labels, and three word numbers that encode the same."""
    rng = np.random.default_rng(0)
    t = rng.integers(0, 3, count)
    x = rng.standard_normal((count, 6)) + 2 * np.eye(3, 6)[t]
    words = rng.integers(0, 10, (count, 3)) + 10 * t[:, None]
    return {"x": x.astype(np.float32), "i": words.astype(np.int32), "t": t.astype(np.int32)}


def build(
    optimizer: Callable[[], linnet.Optimizer] = lambda: linnet.Adam(0.02, clip=linnet.clip.by_value(1.0)),
    remote: bool = False,
    **options: Any,
) -> Graph:
    """A table and a layer with dropout: signatures of linnet.sync over {x, i, t}, and `infer`."""
    graph = Graph(seed=3)
    x, t = graph.placeholder("x", ("batch", 6)), graph.placeholder("t", ("batch",), "i32")
    i = graph.placeholder("i", ("batch", 3), "i32")
    rows = nn.embedding(i, 30, 4, start=linnet.init.normal)
    both = ops.concat([nn.flatten(rows), x], 1)
    layer = nn.dense(both, 12, activation="tanh", name="hidden")
    scores = nn.dense(nn.dropout(layer, 0.2, True), 3, name="out")
    with graph.scope("out", reuse=True):
        weight, bias = (graph.variables[f"out/{n}"] for n in ("weight", "bias"))
    plain = layer @ weight.tensor(layer) + bias.tensor(layer)
    loss = linnet.softmax_cross_entropy(scores, t).mean()
    check = {"loss": linnet.softmax_cross_entropy(plain, t).mean(), "accuracy": linnet.metrics.accuracy(plain, t)}
    linnet.sync.signatures(
        graph, loss, optimizer(), {"x": x, "i": i, "t": t}, evaluate=check, accumulate=True,
        remote=[graph.variables[TABLE]] if remote else [], **options,
    )  # fmt: skip
    return graph


def together(
    folder: Path, make: Callable[[], Graph] = build, servers: int = 0, strategy: Strategy | None = None,
    workers: int = WORKERS, **arguments: Any,
) -> list[History]:  # fmt: skip
    """The results of `fit` in each process of a job, workers first; here each is a thread. servers: 0 for one inside worker 0."""
    addresses = tuple(f"unix:{folder}/{k}" for k in range(max(servers, 1)))
    places = [
        Cluster("worker", rank, workers, addresses, hosts_server=not servers and not rank, source="test")
        for rank in range(workers)
    ]
    places += [Cluster("server", rank, workers, addresses, source="test") for rank in range(servers)]
    found: list[Any] = [None] * len(places)

    def work(k: int) -> None:
        try:
            found[k] = linnet.fit(
                make(), **{"data": examples(), "batch_size": BATCH, **arguments}, cluster=places[k], strategy=strategy
            )
        except BaseException as error:
            found[k] = error

    threads = [threading.Thread(target=work, args=(k,), daemon=True) for k in range(len(places))]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 60
    while any(thread.is_alive() for thread in threads):
        failed = [result for result in found if isinstance(result, BaseException)]
        if failed:
            raise failed[0]  # the others would wait for it
        assert time.monotonic() < until, "a process of the job does not end"
        time.sleep(0.01)
    for result in found:
        if isinstance(result, BaseException):
            raise result
    return found


def same(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """All variables that both have are equal bit for bit, except accumulators and counters of processes."""
    names = [n for n in expected if "accumulated" not in n and n != "random/counter" and n in found]
    assert any(name.startswith("hidden") for name in names)
    for name in names:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


def alone(**arguments: Any) -> History:
    return linnet.fit(build(), **{"data": examples(), "batch_size": BATCH, **arguments})


@pytest.mark.parametrize("servers", [0, 1, 3])
def test_workers_are_one_process_that_accumulates(servers: int, tmp_path: Path) -> None:
    one = alone(epochs=3, accumulate=WORKERS, validation=examples(50))
    found = together(tmp_path, servers=servers, epochs=3, accumulate=WORKERS, validation=examples(50))
    for history in found[:WORKERS]:
        assert (history.step, history.epoch) == (one.step, one.epoch) == (24, 3)
        parameters = {name: one.store[name] for name in ("hidden/weight", "hidden/bias", "out/weight", TABLE)}
        same(history.store, parameters)
    assert found[0]["val_loss"] == one["val_loss"] and not any("val_loss" in r for h in found[1:] for r in h.records)
    if servers == 0:
        same(found[0].store, one.store)  # including the optimizer's state
    assert found[0].traffic["applied"] == 24 and found[0].traffic["late"] == 0
    for history in found[:WORKERS]:
        np.testing.assert_allclose(history["loss"], one["loss"], rtol=1e-6)  # of all workers
    for history in found[WORKERS:]:
        assert history.step == 24 and history["loss"][-1] > 0


def test_remote_tables_are_local_ones(tmp_path: Path) -> None:
    one = alone(epochs=2, accumulate=WORKERS)
    for servers in (0, 2):
        found = together(tmp_path, lambda: build(remote=True), servers, epochs=2, accumulate=WORKERS)
        assert TABLE not in found[0].store
        same(found[0].store, one.store)
        if not servers:
            trained = found[0].graph.variables[TABLE].value
            np.testing.assert_array_equal(trained, one.store[TABLE])
            continue
        with pytest.raises(linnet.UsageError, match="this variable is on the servers"):
            _ = found[0].graph
        parts = linnet.sync.shard(build(remote=True), servers)
        whole = linnet.sync.merge(
            build(remote=True), list(zip(parts.servers, [h.store for h in found[WORKERS:]], strict=True))
        )
        same({name: v.value for name, v in whole.variables.items()}, one.store)


MODES = {
    "backup": Strategy(backup=1),
    "groups": Strategy(groups=2),
    "asynchronous": Strategy("asynchronous"),
    "bounded": Strategy("asynchronous", staleness=2),
    "federated": Strategy("federated", local_steps=4),
    "i8": Strategy(compression="i8"),
    "topk": Strategy(compression="topk:0.1"),
    "1bit": Strategy(compression="1bit"),
}


@pytest.mark.parametrize("name", MODES)
def test_every_mode_learns(name: str, tmp_path: Path) -> None:
    strategy = MODES[name]

    def make() -> Graph:
        if strategy.mode == "federated":
            return build(lambda: linnet.SGD(1.0), local=linnet.Momentum(0.1, 0.9))
        return build(lambda: linnet.Momentum(0.1, 0.9))

    found = together(tmp_path, make, strategy=strategy, epochs=12, validation=examples())
    assert found[0]["val_accuracy"][-1] > 0.9, found[0].records
    assert found[0]["val_loss"][-1] < found[0]["val_loss"][0]
    if name == "backup":
        assert sum(h.traffic["applied"] for h in found) <= 3 * found[0].step  # of four workers


def test_a_run_goes_on_from_the_servers_snapshots(tmp_path: Path) -> None:
    whole = together(tmp_path, epochs=3)
    for servers in (0, 2):
        place = tmp_path / f"run-{servers}"
        common = {"servers": servers, "directory": place, "resume": True}
        first = together(tmp_path, epochs=1, **common)
        assert first[0].step == 8 and (place / "server-0").is_dir()
        again = together(tmp_path, epochs=3, **common)
        assert (again[0].step, again[0].epoch) == (24, 3)
        same(again[0].store, {name: whole[0].store[name] for name in ("hidden/weight", "out/bias", TABLE)})
        assert [r["epoch"] for r in again[0].records] == [1, 2, 3]
        with pytest.raises(linnet.UsageError, match="holds"):
            together(tmp_path, **{**common, "resume": False}, workers=1, epochs=4)


@pytest.mark.parametrize("servers", [0, 2])
def test_early_stopping_ends_the_job(tmp_path: Path, servers: int) -> None:
    class Enough(linnet.Callback):
        def on_step(self, run: Any, metrics: Mapping[str, float]) -> None:
            if run.company.cluster.is_chief and run.step == 5:
                run.stop("enough")

    found = together(tmp_path, epochs=100, callbacks=[Enough()], strategy=Strategy(lost=5.0), servers=servers)
    assert found[0].stopped == "enough" and found[0].step == 5
    assert all(h.stopped.startswith("the job is over") for h in found[1:WORKERS])


def test_what_makes_no_job_is_refused(tmp_path: Path) -> None:
    place = Cluster("worker", 0, 2, (f"unix:{tmp_path}/s",), hosts_server=True, source="test")

    def refused(match: str, graph: Graph | None = None, **arguments: Any) -> None:
        with pytest.raises(linnet.UsageError, match=match):
            linnet.fit(graph or build(), examples(), cluster=place, **arguments)

    refused("accumulate does not match the number of workers; expected 1 or 2, got 3", accumulate=3)
    refused("a job with several processes always trains", train="accumulate")
    refused("cannot be divided into groups", strategy=Strategy(groups=3))
    refused("cannot be divided into groups", strategy=Strategy(backup=2))
    refused("federated rounds do not support remote tables", build(remote=True), strategy=Strategy("federated"))
    refused("an epoch has fewer batches than the number of workers", batch_size=160)
    plain = Graph()
    x = plain.placeholder("x", (3,))
    w = plain.variable("w", np.ones(3, np.float32))
    loss = (x * w).sum()
    plain.signature("train", {"x": x}, {"loss": loss}, updates=linnet.SGD().minimize(loss))
    refused("no signature 'grad' for distributed training", plain)
    for options, match in (
        ({"mode": "both"}, "unknown mode"), ({"mode": "asynchronous", "backup": 1}, "backup is not valid"),
        ({"staleness": 3}, "staleness is not valid"), ({"local_steps": 2}, "local_steps is not valid"),
        ({"compression": "zip"}, "unknown compression"), ({"durability": "maybe"}, "durability is not valid"),
    ):  # fmt: skip
        with pytest.raises(linnet.UsageError, match=match):
            Strategy(**options)  # type: ignore[arg-type]


def test_a_loss_that_is_not_finite_ends_the_job_with_the_step(tmp_path: Path) -> None:
    bad = examples()
    bad["x"][77] = np.nan
    with pytest.raises(linnet.TrainingError, match=r"output 'loss' became nan in step \d+ .*'x'"):
        together(tmp_path, workers=1, servers=1, data=bad, epochs=1)


def test_a_feed_is_shared_out_by_batches() -> None:
    from linnet.training.feeding import feed_of, share_of

    specs = linnet.Model(build()).inputs("train")
    arrays = examples(23)
    loader = data.Loader(data.Arrays(arrays), 2, seed=1)

    def stream(epoch: int) -> Any:
        return loader.batches(epoch)

    every = [batch["t"].tolist() for batch in loader.batches(4)]
    for given in (loader, stream):
        feed = feed_of(given, specs, batch_size=2, shuffle=True, seed=1)
        for rank in range(5):
            share = share_of(feed, rank, 5)
            for start in (0, 1, 2):
                found = [(batch["t"].tolist(), last) for batch, last in share.epoch(4, start)]
                assert [t for t, _ in found] == every[rank:10:5][start:]
                assert [last for _, last in found] == [False, True][start:]


def test_cluster_of_one_is_no_cluster() -> None:
    same(linnet.fit(build(), examples(), cluster=linnet.sync.cluster(env={})).store, alone(batch_size=32).store)
    assert dataclasses.asdict(Strategy())["mode"] == "synchronous"
