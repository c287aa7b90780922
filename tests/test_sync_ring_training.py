"""Training over a ring: the same bits in every rank, the numbers of one process that accumulates, weights, moving averages,
random numbers, and continuing after the loss of a rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import nn
from linnet.sync import Ring, RingTrainer
from tests.test_sync_ring import ranks

RANKS, STEPS = 3, 6


def model(optimizer: linnet.Optimizer | None = None, *, dropout: float = 0.0, normalized: bool = False) -> bytes:
    """8 -> 16 -> 3, optionally with batch normalization and dropout. Signatures of linnet.sync, and `accumulate`, `apply`."""
    graph = linnet.Graph(seed=3)
    x, t = graph.placeholder("x", ("batch", 8)), graph.placeholder("t", ("batch",), "i32")
    y = nn.dense(x, 16, activation="tanh")
    y = nn.batch_norm(y, True) if normalized else y
    y = nn.dropout(y, dropout, True) if dropout else y
    scores = nn.dense(y, 3)
    loss = linnet.softmax_cross_entropy(scores, t).mean()
    linnet.sync.signatures(
        graph, loss, optimizer or linnet.Adam(0.01), {"x": x, "t": t}, {"scores": scores}, accumulate=True
    )
    return graph.to_bytes()


def batch(step: int, rank: int, size: int = 16) -> dict[str, np.ndarray]:
    random = np.random.default_rng([step, rank])
    x = random.normal(size=(size, 8)).astype(np.float32)
    return {"x": x, "t": (x[:, :3].argmax(1)).astype(np.int32)}


def train(tmp_path: Path, content: bytes, size: int = RANKS, **options: Any) -> list[Any]:
    """The variables and losses of each rank after STEPS steps."""

    def work(rank: int) -> tuple[dict[str, np.ndarray], list[float]]:
        with Ring(f"unix:{tmp_path}/ring", rank, size, timeout=20) as ring:
            trainer = RingTrainer(content, ring, threads=1)
            losses = [float(trainer.step(batch(step, rank), **options)["loss"]) for step in range(STEPS)]
            assert trainer.steps == STEPS
            return trainer.store.as_dict(), losses

    found = ranks(size, work)
    for result in found:
        if isinstance(result, Exception):
            raise result
    return found


@pytest.mark.parametrize(
    ("optimizer", "dropout"), [(linnet.SGD(0.1), 0.5), (linnet.Adam(0.01, clip=linnet.clip.by_global_norm(0.1)), 0.0)]
)
def test_ranks_equal_one_another_and_one_process(optimizer: linnet.Optimizer, dropout: float, tmp_path: Path) -> None:
    content = model(optimizer, dropout=dropout)
    found = train(tmp_path, content)
    for variables, losses in found[1:]:
        assert losses == found[0][1]
        for name, value in variables.items():
            assert value.tobytes() == found[0][0][name].tobytes(), name
    alone = linnet.Model(content)
    store = linnet.Store(alone)
    adding = linnet.Session(alone, "accumulate", store=store, threads=1)
    applying = linnet.Session(alone, "apply", store=store, threads=1)
    for step in range(STEPS):
        losses = [float(adding.run(batch(step, rank))["loss"]) for rank in range(RANKS)]
        applying.run({})
        assert abs(np.mean(losses) - found[0][1][step]) < 1e-5
    for name, value in found[0][0].items():
        if "accumulated" not in name:
            np.testing.assert_allclose(value, store[name], rtol=0, atol=1e-5, err_msg=name)


def test_parts_of_different_sizes_are_weighed(tmp_path: Path) -> None:
    """With weights of 8 and 24 the step equals that of one batch of 32."""
    content = model(linnet.SGD(0.5))
    whole = batch(0, 0, 32)
    parts = [{k: v[:8] for k, v in whole.items()}, {k: v[8:] for k, v in whole.items()}]

    def work(rank: int) -> tuple[dict[str, np.ndarray], float]:
        with Ring(f"unix:{tmp_path}/ring", rank, 2, timeout=20) as ring:
            trainer = RingTrainer(content, ring, threads=1)
            out = trainer.step(parts[rank], weight=len(parts[rank]["x"]))
            assert out["scores"].shape == (8 if rank == 0 else 24, 3)  # this rank's own
            return trainer.store.as_dict(), float(out["loss"])

    found = ranks(2, work)
    session = linnet.Session(content, "train", threads=1)
    assert abs(float(session.run(whole)["loss"]) - found[0][1]) < 1e-6
    for name, value in found[0][0].items():
        np.testing.assert_allclose(value, session.variables[name], rtol=0, atol=1e-6, err_msg=name)


def test_moving_averages_are_those_of_all_ranks(tmp_path: Path) -> None:
    content = model(normalized=True)
    found = train(tmp_path, content)
    averages = (linnet.Model(content).metadata("sync.average") or "").split("\n")
    assert averages != [""]
    start = linnet.Store(linnet.Model(content))
    for variables, _ in found[1:]:
        for name, value in variables.items():
            assert value.tobytes() == found[0][0][name].tobytes(), name
    for name in averages:
        assert not np.array_equal(found[0][0][name], start[name])


def test_gradients_that_are_not_finite_change_nothing(tmp_path: Path) -> None:
    content = model(normalized=True)

    def work(rank: int) -> None:
        with Ring(f"unix:{tmp_path}/ring", rank, 2, timeout=20) as ring:
            trainer = RingTrainer(content, ring, threads=1)
            trainer.step(batch(0, rank))
            before = trainer.store.as_dict()
            bad = batch(1, rank)
            if rank == 1:
                bad["x"][3, 3] = np.nan
            assert np.isnan(trainer.step(bad)["loss"])
            assert (trainer.steps, trainer.not_finite) == (2, 1)
            for name, value in trainer.store.as_dict().items():
                np.testing.assert_array_equal(value, before[name])
            assert np.isfinite(trainer.step(batch(2, rank))["loss"])

    assert ranks(2, work) == [None, None]


def test_rank_0s_variables_are_taken(tmp_path: Path) -> None:
    content = model()

    def work(rank: int) -> dict[str, np.ndarray]:
        store = linnet.Store(linnet.Model(content))
        for name in store:
            if store[name].dtype == np.float32:
                store[name] = store[name] + np.float32(rank + 1)
        with Ring(f"unix:{tmp_path}/ring", rank, 2, timeout=20) as ring:
            return RingTrainer(store.model, ring, store=store, threads=1).store.as_dict()

    found = ranks(2, work)
    start = linnet.Store(linnet.Model(content))
    for name, value in found[1].items():
        expected = start[name] + np.float32(1) if start[name].dtype == np.float32 else start[name]
        np.testing.assert_array_equal(value, expected)


def test_the_others_go_on_when_a_rank_leaves(tmp_path: Path) -> None:
    """A rank's steps that the others did not make are undone: all get the bits of the new rank 0 and continue from its step."""
    content = model()

    def work(rank: int) -> Any:
        ring = Ring(f"unix:{tmp_path}/a", rank, 4, timeout=10)
        trainer = RingTrainer(content, ring, threads=1)
        reported = False
        while trainer.steps < 8:
            if rank == 1 and trainer.steps == 4:
                ring.close()
                return "left"
            try:
                trainer.step(batch(trainer.steps, ring.rank))
            except linnet.SyncError as error:
                assert error.op_index == 1 and not reported
                reported = True
                ring = ring.without(1, f"unix:{tmp_path}/b")
                trainer.go_on(ring)
                assert trainer.steps == 4
        assert reported
        ring.close()
        return {name: value.tobytes() for name, value in trainer.store.as_dict().items()}

    found = ranks(4, work)
    assert found[1] == "left"
    assert found[0] == found[2] == found[3] and isinstance(found[0], dict), found


def test_what_a_ring_cannot_train(tmp_path: Path) -> None:
    with Ring("unix:unused", 0, 1) as ring:
        graph = linnet.Graph()
        x = graph.placeholder("x", (2,))
        graph.signature("infer", {"x": x}, {"y": x + 1.0})
        with pytest.raises(linnet.UsageError, match="no signatures for distributed training"):
            RingTrainer(graph, ring)
        graph = linnet.Graph()
        ids = graph.placeholder("ids", (4,), "i64")
        loss = nn.embedding(ids, 10, 3).sum()
        linnet.sync.signatures(graph, loss, linnet.SGD(0.1), {"ids": ids})
        with pytest.raises(linnet.UsageError, match=r"supports only dense gradients.*linnet.sync.Server"):
            RingTrainer(graph, ring)
        trainer = RingTrainer(model(), ring)
        with pytest.raises(linnet.UsageError, match="weight"):
            trainer.step(batch(0, 0), weight=0)

    def work(rank: int) -> None:
        with Ring(f"unix:{tmp_path}/ring", rank, 2, timeout=10) as ring:
            RingTrainer(model(linnet.SGD(0.1 + rank)), ring)

    for error in ranks(2, work):
        assert isinstance(error, linnet.FileError) and "different models" in str(error)
