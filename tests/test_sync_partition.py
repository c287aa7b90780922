"""linnet.sync.shard: groups contain what an update connects, the servers' files together equal the whole bit for bit, and
variables that cannot be split are refused with the reason."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import linnet
from linnet import LAMB, LARS, LBFGS, SGD, AdaGrad, Adam, Momentum, clip, nn, ops
from linnet.cli.main import cli
from linnet.facade import Graph
from linnet.ir.function import Tensor
from linnet.sync import contract
from linnet.sync.groups import groups_of
from tests.sync_reference import Cluster
from tests.test_sync_signatures import EVERY, ROWWISE, Make, batches, build, dense, embedded, named, plain

STEPS = 4


def same_as_whole(graph: Graph, parts: linnet.sync.Parts, workers: int = 2) -> None:
    """Some steps of the same workers with one server for the whole, and with these parts."""
    whole, cluster = Cluster(graph, [graph], workers), Cluster(parts.worker, parts.servers, workers)
    given = [named(graph, batch) for batch in batches(STEPS * workers)]
    for k in range(STEPS):
        group = given[k * workers : (k + 1) * workers]
        assert whole.step(group) == cluster.step(group)
        for name in whole.shards[0]:
            if name in contract.names_in(graph.metadata, contract.COUNT):
                continue
            np.testing.assert_array_equal(whole.value(name), cluster.value(name), err_msg=name)


@pytest.mark.parametrize("name", EVERY)
def test_the_parts_do_what_the_whole_does(name: str) -> None:
    graph = build(dense, EVERY[name])
    one = name in ("lbfgs", "global_norm", "dynamic")
    same_as_whole(graph, linnet.sync.shard(graph, 1 if one else 3))
    if one:
        with pytest.raises(linnet.UsageError, match="1 parameter groups cannot be distributed over 2 servers"):
            linnet.sync.shard(graph, 2)


@pytest.mark.parametrize("servers", [2, 3])
@pytest.mark.parametrize("name", [name for name in ROWWISE if name not in ("global_norm", "lamb", "dynamic")])
def test_tables_are_split_by_rows(name: str, servers: int) -> None:
    for remote in (False, True):
        graph = build(embedded, ROWWISE[name], remote=remote)
        parts = linnet.sync.shard(graph, servers, split=["embedding/weight"])
        rows = [len(g.variables["embedding/weight"].value) for g in parts.servers]
        assert sum(rows) == 30 and max(rows) - min(rows) <= 1
        same_as_whole(graph, parts, 3)


@pytest.mark.parametrize(
    "name", ["sgd", "schedule", "nesterov", "adagrad", "adadelta", "rmsprop", "amsgrad", "adamw", "value"]
)
def test_dense_weights_are_split_where_each_row_is_by_itself(name: str) -> None:
    graph = build(dense, EVERY[name])
    same_as_whole(graph, linnet.sync.shard(graph, 3, split=["dense/weight", "dense_1/weight"]))


def test_an_optimizer_of_ones_own_is_split_by_what_it_computes() -> None:
    class Lion(linnet.Optimizer):
        slots = ("momentum",)

        def rule(self, w: Any, g: Any, rate: Any, *slots: Any, **scalars: Any) -> Any:
            return w - rate * (0.9 * slots[0] + 0.1 * g).sign(), 0.99 * slots[0] + 0.01 * g

    class RowNorm(linnet.Optimizer):
        """Each row's gradient scaled to length one."""

        def update(self, variable: Any, w: Any, g: Any, slots: Any, step: Any) -> list[Tensor]:
            length = ops.reduce(g * g, kind="sum", axis=[1]) if g.rank == 2 else g * g
            return [w - step.rate * g / ops.sqrt(length + 1e-6)]

    for optimizer in (Lion, RowNorm):
        graph = build(plain, lambda optimizer=optimizer: optimizer(0.01))  # type: ignore[misc]
        same_as_whole(graph, linnet.sync.shard(graph, 2, split=["dense/weight"]))


def reason(make: Make, model: Callable[[Graph], Any] = plain, split: str = "dense/weight") -> str:
    with pytest.raises(linnet.UsageError, match=f"'{split}' cannot be split by rows") as caught:
        linnet.sync.shard(build(model, make), 2, split=[split])
    return str(caught.value)


def test_what_is_not_separable_is_refused_with_the_reason() -> None:
    assert "other rows, in the update's reduce" in reason(lambda: LAMB(0.1))
    assert "other rows, in the update's reduce" in reason(lambda: LARS(0.1))
    assert "other rows" in reason(lambda: Adam(0.1, clip=clip.by_norm(1.0)))
    assert "update also involves 'dense/bias', 'dense_1/weight', 'dense_1/bias'" in reason(lambda: LBFGS(0.1))
    assert "update also involves 'dense/bias'" in reason(lambda: Adam(clip=clip.by_global_norm(1.0)))
    assert "its update also involves" in reason(lambda: Adam(loss_scale=linnet.DynamicLossScale()))
    assert "other rows" in reason(lambda: SGD(0.1, clip=clip.by_norm(1.0)), embedded, "embedding/weight")

    class Numbered(linnet.Optimizer):
        def rule(self, w: Any, g: Any, rate: Any, *slots: Any, **scalars: Any) -> Any:
            return w - rate * g * (w.iota(0) + 1).cast("f32")

    class Spread(linnet.Optimizer):
        slots = ("all",)

        def update(self, variable: Any, w: Any, g: Any, slots: Any, step: Any) -> list[Tensor]:
            if g.rank != 2:
                return [w, *slots]
            turned = ops.transpose(g, [1, 0])
            return [w - step.rate * ops.matmul(ops.matmul(g, turned), g), *slots]

    assert "uses the number of a row" in reason(lambda: Numbered(0.1))
    assert "other rows, in the update's copy" in reason(lambda: Spread(0.1))
    with pytest.raises(linnet.UsageError, match="it has only 4 rows for 5 servers"):
        linnet.sync.shard(build(plain, SGD), 5, split=["dense_1/bias"])
    with pytest.raises(linnet.UsageError, match="no such parameter to split"):
        linnet.sync.shard(build(plain, Adam), 2, split=["dense/weight/adam/m"])
    with pytest.raises(linnet.UsageError, match="number of servers is out of range"):
        linnet.sync.shard(build(plain, Adam), 0)
    with pytest.raises(linnet.UsageError, match="no signature named 'update/all'"):
        linnet.sync.shard(Graph(), 1)


def groups(make: Make) -> list[list[str]]:
    graph = build(plain, make)
    return groups_of(graph.signatures[contract.UPDATE].function).groups


def test_groups_are_what_an_update_ties_together() -> None:
    names = ["dense/weight", "dense/bias", "dense_1/weight", "dense_1/bias"]
    assert groups(SGD) == [[name] for name in names]
    assert groups(lambda: Adam(0.1)) == [[n, f"{n}/adam/m", f"{n}/adam/v"] for n in names]
    for make in (lambda: LBFGS(0.1), lambda: SGD(0.1, clip=clip.by_global_norm(1.0))):
        assert [sorted(set(g) & set(names)) for g in groups(make)] == [sorted(names)]
    graph = build(plain, Adam)
    assert groups_of(graph.signatures[contract.UPDATE].function).shared == ["adam/step"]


def test_files_hold_what_their_owner_needs_alone(tmp_path: Path) -> None:
    graph = build(embedded, lambda: Adam(0.1, lazy=True), remote=True)
    graph.save(tmp_path / "whole.lnt")
    parts = linnet.sync.shard(tmp_path / "whole.lnt", 2)
    digest = linnet.Model(tmp_path / "whole.lnt").metadata("digest")
    assert not parts.kept_whole
    assert set(parts.worker.variables) == {"dense/weight", "dense/bias"}
    assert set(parts.worker.signatures) == {"grad", "ids"}
    paths = parts.save(tmp_path / "parts")
    assert [p.name for p in paths] == ["server-0.lnt", "server-1.lnt", "worker.lnt"]
    held = [
        set(g.variables) - {"embedding/weight", "embedding/weight/adam/m", "embedding/weight/adam/v"}
        for g in parts.servers
    ]
    assert held[0] & held[1] == {"adam/step"}
    for k, path in enumerate(paths[:2]):
        loaded = Graph.load(path)
        first, rows = loaded.metadata["sync.first_row/embedding/weight"], loaded.metadata["sync.rows/embedding/weight"]
        assert (loaded.metadata["sync.shard"], first, rows) == (f"{k}/2", str(15 * k), "30")
        value = graph.variables["embedding/weight"].value[15 * k : 15 * k + 15]
        np.testing.assert_array_equal(loaded.variables["embedding/weight"].value, value)
        assert loaded.metadata["sync.job"] == digest and list(loaded.signatures) == [contract.UPDATE]
    again = linnet.sync.Parts([Graph.load(p) for p in paths[:2]], Graph.load(paths[2]), {})
    same_as_whole(graph, again)


def test_large_tables_are_split_by_themselves_or_kept_with_the_reason() -> None:
    parts = linnet.sync.shard(build(embedded, lambda: Adam(0.1, lazy=True)), 2)
    assert [g.variables["embedding/weight"].shape for g in parts.servers] == [(15, 4), (15, 4)]
    parts = linnet.sync.shard(build(embedded, lambda: LAMB(0.1)), 2)
    assert [*parts.kept_whole] == ["embedding/weight"] and "other rows" in parts.kept_whole["embedding/weight"]
    assert sum("embedding/weight" in g.variables for g in parts.servers) == 1


def test_averages_and_states_are_with_one_server_each() -> None:
    graph = build(dense, lambda: Momentum(0.1, loss_scale=64.0))
    parts = linnet.sync.shard(graph, 2)
    names = [name for g in parts.servers for name in contract.names_in(g.metadata, contract.AVERAGE)]
    assert sorted(names) == ["batch_norm/mean", "batch_norm/variance"]
    parts = linnet.sync.shard(build(dense, EVERY["dynamic"]), 1)
    assert parts.servers[0].metadata[contract.READ] == "loss_scale/scale"
    assert parts.servers[0].metadata[contract.NOT_FINITE] == "update"


def test_the_largest_groups_go_first_to_where_there_is_most_room() -> None:
    graph = Graph()
    x = graph.placeholder("x", (1,))
    sizes = [7, 5, 4, 3, 1]
    made = [graph.variable(f"v{n}", np.ones(100 * n, np.float32)) for n in sizes]
    loss = sum((v.tensor(x).sum() for v in made[1:]), made[0].tensor(x).sum())
    linnet.sync.signatures(graph, loss, SGD(0.1), {"x": x})
    held = [sorted(v for v in g.variables if v[0] == "v") for g in linnet.sync.shard(graph, 2, split=()).servers]
    assert held == [["v3", "v7"], ["v1", "v4", "v5"]]


def test_a_table_of_gigabytes_costs_nothing_before_it_is_used(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    graph = Graph()
    i = graph.placeholder("i", ("n",), "i32")
    rows = nn.embedding(i, 1 << 24, 64, start=linnet.init.zeros, name="table")
    linnet.sync.signatures(
        graph, (rows * rows).mean(), AdaGrad(0.1), {"i": i}, remote=[graph.variables["table/weight"]]
    )
    graph.save(tmp_path / "whole.lnt")
    parts = linnet.sync.shard(tmp_path / "whole.lnt", 3)
    assert [g.variables["table/weight"].shape[0] for g in parts.servers] == [5592405, 5592405, 5592406]
    assert sum(path.stat().st_size for path in [*parts.save(tmp_path), tmp_path / "whole.lnt"]) < 50_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000  # KB, for 8 GB


def test_the_command_writes_the_files(tmp_path: Path) -> None:
    model, out = str(tmp_path / "m.lnt"), str(tmp_path / "parts")
    build(embedded, lambda: LAMB(0.1)).save(model)
    done = CliRunner().invoke(cli, ["shard", model, "--servers", "2", "-o", out])
    lines = done.output.splitlines()
    assert done.exit_code == 0 and len(lines) == 4, done.output
    assert lines[0].startswith(f"{out}/server-0.lnt: 4 variables, 0.0 MB"), lines
    assert lines[3].startswith("kept whole: 'embedding/weight' cannot be split by rows")
    build(embedded, lambda: Adam(0.1, lazy=True)).save(model)
    done = CliRunner().invoke(
        cli, ["shard", model, "--servers", "2", "-o", out, "--rows", "embedding/weight", "--json"]
    )
    files = json.loads(done.output)["files"]
    assert files[1]["rows"]["embedding/weight"] == "15" and not files[2]["rows"]
    done = CliRunner().invoke(cli, ["shard", model, "--servers", "2", "-o", model])
    assert isinstance(done.exception, linnet.FileError) and "cannot write to" in str(done.exception)


def test_parts_become_one_model_again(tmp_path: Path) -> None:
    graph = build(embedded, lambda: Adam(0.1, lazy=True), remote=True)
    parts = linnet.sync.shard(graph, 3)
    whole, cluster = Cluster(graph, [graph]), Cluster(parts.worker, parts.servers)
    for batch in batches(3):
        whole.step([named(graph, batch)])
        cluster.step([named(graph, batch)])
    files = parts.save(tmp_path)
    for k, store in enumerate(cluster.shards):
        store.save(tmp_path / f"{k}.ckpt")
    of_files = linnet.sync.merge(graph, [(files[k], tmp_path / f"{k}.ckpt") for k in range(3)])
    of_stores = linnet.sync.merge(graph, list(zip(parts.servers, cluster.shards, strict=True)))
    for name in whole.shards[0]:
        np.testing.assert_array_equal(of_files.variables[name].value, whole.value(name))
        np.testing.assert_array_equal(of_stores.variables[name].value, whole.value(name))
    graph.save(tmp_path / "whole.lnt")
    words = ["merge", str(tmp_path / "whole.lnt"), "-o", str(tmp_path / "trained.lnt")]
    done = CliRunner().invoke(cli, [*words, *(f"{files[k]}={tmp_path / f'{k}.ckpt'}" for k in range(3))])
    assert done.exit_code == 0 and "variables of 3 servers" in done.output, done.output
    assert Graph.load(tmp_path / "trained.lnt").to_bytes() == of_files.to_bytes()
    assert "expected SERVER.lnt=SNAPSHOT" in str(CliRunner().invoke(cli, [*words, "server.lnt"]).exception)
    with pytest.raises(linnet.UsageError, match=r"expected 30 rows, starting at 0, got 0 to 9, 20 to 29"):
        linnet.sync.merge(graph, [(parts.servers[k], cluster.shards[k]) for k in (2, 0)])
    with pytest.raises(linnet.UsageError, match="belongs to a different model"):
        linnet.sync.merge(build(plain, SGD), [(parts.servers[0], cluster.shards[0])])
