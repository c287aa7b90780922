"""Models whose weights are variables of a store: they run with the kernels, the bits and the packed bytes of the frozen file,
pack a variable again only after it was written, and give right results after each kind of write. tests/c/test_packed_variables.c
tests the sharing and many threads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet import nn, ops
from linnet.clib.library import library
from linnet.facade import Graph
from linnet.ir.function import Tensor
from tests.capi import Allocator, Chain

RNG = np.random.default_rng(5)
IMAGE = RNG.standard_normal((2, 8, 12, 12)).astype(np.float32)
LINE = RNG.standard_normal((6, 3, 16)).astype(np.float32)
FEW = RNG.standard_normal((2, 40)).astype(np.float32)


def _halves(graph: Graph, x: Tensor) -> Tensor:
    w = graph.variable("w", RNG.standard_normal((40, 48)).astype(np.float16), trainable=False)
    return ops.cast(ops.cast(x, dtype="f16") @ w, dtype="f32")


def _transposed(graph: Graph, x: Tensor) -> Tensor:
    w = graph.variable("w", RNG.standard_normal((50, 40)).astype(np.float32))
    return ops.matmul(x, w, transpose_b=True)


def _shared_by_two(graph: Graph, x: Tensor) -> Tensor:
    w = graph.variable("w", RNG.standard_normal((40, 40)).astype(np.float32))
    return x @ w + (x + 1.0) @ w


NETS: dict[str, tuple[np.ndarray, Callable[[Graph, Tensor], Tensor]]] = {
    "conv": (IMAGE, lambda _, x: nn.conv(x, 20, 3, padding=1)),
    "depthwise": (IMAGE, lambda _, x: nn.conv(x, 8, 3, groups=8)),
    "conv_transpose": (IMAGE, lambda _, x: nn.conv_transpose(x, 6, 3, stride=2)),
    "dense": (FEW, lambda _, x: nn.dense(x, 50)),
    "transposed": (FEW, _transposed),
    "lstm": (LINE, lambda _, x: nn.lstm(x, 24)[0]),
    "halves": (FEW, _halves),
    "shared_by_two": (FEW, _shared_by_two),
}


def built(net: str) -> tuple[Graph, dict[str, np.ndarray]]:
    feed, layer = NETS[net]
    graph = Graph()
    x = graph.placeholder("x", feed.shape)
    graph.signature("infer", {"x": x}, {"y": layer(graph, x)})
    return graph, {"x": feed}


def packs(store: linnet.Store) -> int:
    return int(library().linnet_store_packs(store.pointer))


@pytest.mark.parametrize("net", NETS)
def test_as_the_frozen_file(net: str) -> None:
    graph, feeds = built(net)
    served, frozen = linnet.Session(graph, threads=1), linnet.Session(graph.freeze(), threads=1)
    served.run(feeds), frozen.run(feeds)
    assert [s.kernel for s in served.steps] == [s.kernel for s in frozen.steps]
    assert served.memory["packed_weights"] == frozen.memory["packed_weights"] > 0
    assert served.memory["scratch"] == frozen.memory["scratch"]
    assert served.run(feeds)["y"].tobytes() == frozen.run(feeds)["y"].tobytes()
    copies = packs(served.variables)
    assert copies >= 1
    for name in served.variables:  # other values, written one by one, and all of them are seen
        served.variables[name] = served.variables[name] * 2 + 1
    now = linnet.Session(graph.freeze(served.variables.as_dict()), threads=1)
    assert served.run(feeds)["y"].tobytes() == now.run(feeds)["y"].tobytes()
    assert packs(served.variables) == 2 * copies, "each copy once more, although two variables of it were written"
    served.run(feeds)
    assert packs(served.variables) == 2 * copies


@pytest.mark.parametrize("net", NETS)
def test_every_byte_is_counted(net: str) -> None:
    graph, feeds = built(net)
    allocator = Allocator()
    with Chain(graph.to_bytes(), allocator, copy=False) as chain:
        chain.make_store().make_plan(allocator=allocator.struct).make_session()
        info = chain.info()
        assert allocator.bytes == info.total and info.packed_weights > 0
        for _ in range(2):
            chain.set(feeds).run()
            assert allocator.bytes == info.total
    assert not allocator.live and not allocator.faults


def trained() -> Graph:
    """infer: x @ w @ v. train: adds x to w. v never changes."""
    graph = Graph()
    x = graph.placeholder("x", (40, 40))
    w, v = (graph.variable(n, RNG.standard_normal((40, 40)).astype(np.float32)) for n in "wv")
    graph.signature("infer", {"x": x}, {"y": (x @ w) @ v})
    graph.signature("train", {"x": x}, {"loss": ((x @ w) @ v).sum()}, updates={w: w + x})
    return graph


def test_only_what_was_written_is_packed_again(tmp_path: Path) -> None:
    graph = trained()
    model = linnet.Model(graph)
    store = linnet.Store(model)
    train, infer = linnet.Session(model, "train", store=store), linnet.Session(model, store=store)
    feeds = {"x": np.eye(40, dtype=np.float32)}

    def check(expected: int) -> None:
        want = store["w"] @ store["v"]
        for _ in range(2):
            assert np.allclose(infer.run(feeds)["y"], want, atol=1e-4)
        assert packs(store) == expected

    check(2)
    train.run(feeds)  # packs v, which it only reads, for its own product
    check(4)
    train.run(feeds)
    check(5)
    store.save(tmp_path / "saved")
    check(5)
    store["v"] = store["v"] * 2
    check(6)
    store.load(tmp_path / "saved")  # only w, because only what changed since the store was made is saved
    check(7)
    snapshot = linnet.Session(model, store=store, snapshot=True)
    before = packs(store)
    assert np.allclose(snapshot.run(feeds)["y"], infer.run(feeds)["y"]) and packs(store) == before + 2
    train.run(feeds)  # here v has changed
    assert packs(store) == before + 3
    assert np.allclose(snapshot.run(feeds)["y"], store["w"] @ store["v"], atol=1e-4) and packs(store) == before + 4


@pytest.mark.parametrize("net", ["conv", "depthwise", "conv_transpose", "dense", "lstm"])
def test_a_write_of_any_one_variable_is_seen(net: str) -> None:
    """Weights and bias may be packed into one copy."""
    graph, feeds = built(net)
    session = linnet.Session(graph, threads=1)
    session.run(feeds)
    assert len(session.variables) >= 2
    for name in [*session.variables] * 2:
        before = session.run(feeds)["y"].copy()
        session.variables[name] = session.variables[name] * 2 + 1
        after = session.run(feeds)["y"]
        now = linnet.Session(graph.freeze(session.variables.as_dict()), threads=1)
        assert after.tobytes() == now.run(feeds)["y"].tobytes() != before.tobytes(), name


def test_a_snapshot_has_copies_of_its_own(tmp_path: Path) -> None:
    """A copy packed from the store holds newer values than a snapshot that has not run since."""
    graph = trained()
    model = linnet.Model(graph)
    store = linnet.Store(model)
    train, live = linnet.Session(model, "train", store=store), linnet.Session(model, store=store)
    frozen = linnet.Session(model, store=store, snapshot=True)
    feeds = {"x": np.eye(40, dtype=np.float32)}
    copies = []
    for _ in range(3):
        for session in (live, frozen, live):
            np.testing.assert_allclose(session.run(feeds)["y"], store["w"] @ store["v"], rtol=1e-4, atol=1e-4)
        copies.append(packs(store))
        train.run(feeds)
    assert copies[0] == 4, "two for the store, two for the snapshot"


def test_bodies_branches_and_later_segments() -> None:
    graph = Graph()
    x = graph.placeholder("x", (40, 40))
    w = graph.variable("w", np.eye(40, dtype=np.float32) * 2)
    looped = linnet.while_loop(lambda s: s.sum() < 1e4, lambda s: s @ w, x)
    chosen = linnet.cond(x.sum() > 0.0, lambda: x @ w, lambda: w @ x)
    later = ops.gather(x, ops.nonzero(x)[0]) @ w  # its shape depends on data
    graph.signature("infer", {"x": x}, {"looped": looped, "chosen": chosen, "later": later})
    served, frozen = linnet.Session(graph, threads=1), linnet.Session(graph.freeze(), threads=1)
    feeds = {"x": np.eye(40, k=1, dtype=np.float32)}
    for times in 2, 3:
        got, want = served.run(feeds), frozen.run(feeds)
        assert all(got[k].tobytes() == want[k].tobytes() for k in want)
        made = packs(served.variables)
        served.run(feeds)
        assert made == packs(served.variables) > 0
        served.variables["w"] = np.eye(40, dtype=np.float32) * (times + 1)
        frozen = linnet.Session(graph.freeze(served.variables.as_dict()), threads=1)


def test_a_limit_that_has_no_room_for_copies() -> None:
    graph, feeds = trained(), {"x": np.eye(40, dtype=np.float32)}
    roomy = linnet.Session(graph, threads=1)
    least = roomy.memory["total"] - roomy.memory["packed_weights"] // 4
    tight = linnet.Session(graph, threads=1, max_bytes=least)
    assert tight.memory["packed_weights"] == 0 and tight.memory["total"] <= least
    assert np.allclose(tight.run(feeds)["y"], roomy.run(feeds)["y"], atol=1e-5)
    assert packs(tight.variables) == 0 and packs(roomy.variables) == 2
