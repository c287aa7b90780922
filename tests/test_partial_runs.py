"""Session.run(feeds, fetches): only the inputs and steps that the fetches need are used; one plan per feeds, fetches and
shapes; and threads that run different signatures over one store at the same time."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import nn, ops

X = np.float32([1, 2, 3, 4])


def branches() -> linnet.Graph:
    """`cheap` needs x. `dear` needs y, an index that may be out of range, and a loop that stacks."""
    graph = linnet.Graph()
    x, y, i = graph.placeholder("x", (4,)), graph.placeholder("y", ("n",)), graph.placeholder("i", (), "i64")
    cheap = ops.relu(x, name="cheap")
    dear = ops.softmax(ops.scale(y, 2.0, name="doubled"), name="soft")
    picked = ops.gather(y, i, name="picked")
    last, rows = linnet.scan(lambda s, v: (s + v, ops.tanh(s * v)), graph.constant(np.float32(0)), y)
    feeds = {"x": x, "y": y, "i": i}
    graph.signature("infer", feeds, {"cheap": cheap, "dear": dear, "picked": picked, "last": last, "rows": rows})
    return graph


def test_only_what_the_fetches_need_is_executed() -> None:
    session = linnet.Session(branches(), trace=True)
    assert session.run({"x": X}, ["cheap"])["cheap"].tolist() == X.tolist()  # nothing else must be fed
    assert [(step.name, step.runs) for step in session.steps] == [("cheap", 1)]
    with pytest.raises(linnet.UsageError, match=r"no value is given for input 'y'"):
        session.run({"x": X}, ["dear"])
    whole = {"x": X, "y": X, "i": np.int64(9)}
    with pytest.raises(linnet.GraphError, match="9"):
        session.run(whole)
    found = session.run(whole, ["dear", "last"])  # the out-of-range index is not used
    assert found["last"] == 10 and list(found) == ["dear", "last"]
    assert not {"picked", "cheap"} & {step.name for step in session.steps}
    assert session.run({"y": X}, ["doubled"])["doubled"].tolist() == (2 * X).tolist()  # any tensor may be fetched
    assert "softmax" not in {step.op for step in session.steps}


def test_of_a_loop_only_what_is_read_is_made() -> None:
    graph = branches()
    long = {"y": np.linspace(0, 1, 1000, dtype=np.float32)}
    memory = {}
    for name in ("last", "rows"):
        session = linnet.Session(graph)
        session.run(long, [name])
        memory[name] = session.memory["activations"] + session.memory["io"]
    assert (
        memory["rows"] >= memory["last"] + 3000
    )  # 1,000 rows of 4 bytes, less the alignment padding of the smaller plan


def test_updates_are_made_whatever_is_fetched() -> None:
    graph = linnet.Graph()
    x, v = graph.placeholder("x", (4,)), graph.variable("v", np.zeros(4, np.float32))
    graph.signature("train", {"x": x}, {"sum": x.sum(), "max": x.max()}, updates={v: v + x})
    session = linnet.Session(graph, "train")
    session.run({"x": X}, ["sum"])
    session.run({"x": X}, [])
    np.testing.assert_array_equal(session.variables["v"], 2 * X)


def test_one_plan_per_feeds_fetches_and_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    session = linnet.Session(branches())
    made = []
    plan = session._make_plan
    monkeypatch.setattr(session, "_make_plan", lambda *a, **k: made.append(a) or plan(*a, **k))
    for _ in range(3):
        for size in (2, 5):
            feeds = {"y": np.ones(size, np.float32)}
            for fetches in (["dear"], ["last"], ["dear", "last"]):
                assert set(session.run(feeds, fetches)) == set(fetches)
        session.run({"x": X}, ["cheap"])
    assert len(made) == 7  # two shapes for each of three fetches, and one more


@pytest.mark.parametrize("shared", [False, True], ids=["a session each", "sessions shared"])
def test_threads_run_different_signatures_over_one_store(shared: bool) -> None:
    """Every update keeps b = 2 a and c = a a. A reader never sees anything else, and no update is lost."""
    graph = linnet.Graph()
    size, each = 256, 500
    a, b, c = (graph.variable(n, np.zeros(size, np.float32)) for n in "abc")
    step = graph.placeholder("step", ())
    new = a + step
    graph.signature("train", {"step": step}, {"sum": new.sum()}, updates={a: new, b: b + step * 2, c: new * new})
    graph.signature("back", {"step": step}, {}, updates={a: a - step, b: (a - step) * 2, c: (a - step) ** 2})
    graph.signature("read", {}, {"a": a.tensor() * 1, "b": b.tensor() * 1, "c": c.tensor() * 1})
    graph.signature(
        "check", {}, {"wrong": abs(b - a * 2).max() + abs(c - a * a).max(), "other": ops.softmax(a.tensor())}
    )
    model = linnet.Model(graph.to_bytes())
    store = linnet.Store(model)
    sessions = {name: linnet.Session(model, name, store=store, threads=1) for name in model.signatures}
    failures: list[Any] = []

    def work(name: str) -> None:
        session = sessions[name] if shared else linnet.Session(model, name, store=store, threads=1)
        feeds = {"step": np.float32(1)} if name in ("train", "back") else {}
        for i in range(each * (2 if name == "train" else 1)):
            found = session.run(feeds, ["wrong"] if name == "check" and i % 2 else None)
            if name == "read" and not (np.array_equal(found["b"], 2 * found["a"]) and len(set(found["a"])) == 1):
                failures.append(found)
            if name == "check" and found["wrong"] != 0:
                failures.append(found)

    threads = [threading.Thread(target=work, args=(name,)) for name in sorted(model.signatures) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    np.testing.assert_array_equal(store["a"], np.full(size, 2 * each, np.float32))
    np.testing.assert_array_equal(store["c"], store["a"] ** 2)


def test_inference_beside_training_sees_whole_steps_only() -> None:
    """Every result computed while another thread trains equals, bit for bit, the result after some number of steps, which only
    grows. This includes packed copies of the weights and moving averages."""
    graph = linnet.Graph(seed=1)
    x, t = graph.placeholder("x", (16, 64)), graph.placeholder("t", (16,), "i32")

    def net(training: bool) -> linnet.Tensor:
        with graph.scope("net", reuse=not training):
            hidden = nn.dense(nn.batch_norm(x, training), 128, activation="relu")
            return nn.dense(nn.dropout(nn.dense(hidden, 128, activation="tanh"), 0.1, training), 5)

    loss = linnet.softmax_cross_entropy(net(True), t).mean()
    updates = linnet.Adam(1e-3).minimize(loss)
    graph.signature("train", {"x": x, "t": t}, {"loss": loss}, updates=updates)
    graph.signature("infer", {"x": x}, {"logits": net(False)})
    model, steps = linnet.Model(graph), 150
    rng = np.random.default_rng(0)
    batch = {"x": rng.normal(size=(16, 64)).astype(np.float32), "t": rng.integers(0, 5, 16).astype(np.int32)}
    asked = {"x": batch["x"]}

    store = linnet.Store(model)
    train, infer = (linnet.Session(model, name, store=store, threads=1) for name in ("train", "infer"))
    expected = {infer.run(asked)["logits"].tobytes(): 0}
    for step in range(steps):
        train.run(batch)
        expected[infer.run(asked)["logits"].tobytes()] = step + 1
    assert len(expected) == steps + 1

    store = linnet.Store(model)
    train = linnet.Session(model, "train", store=store, threads=2)
    answers: list[list[bytes]] = [[], []]
    done, began = threading.Event(), threading.Barrier(len(answers) + 1)

    def serve(own: list[bytes]) -> None:
        infer = linnet.Session(model, "infer", store=store, threads=1)
        own.append(infer.run(asked)["logits"].tobytes())
        began.wait()
        while not done.is_set():
            own.append(infer.run(asked)["logits"].tobytes())
        own.append(infer.run(asked)["logits"].tobytes())

    servers = [threading.Thread(target=serve, args=(own,)) for own in answers]
    for server in servers:
        server.start()
    began.wait()
    for step in range(steps):
        train.run(batch)
        if step % 25 == 0:  # all threads get a turn, however busy the machine is
            before = [len(own) for own in answers]
            while any(len(own) == n for own, n in zip(answers, before, strict=True)):
                time.sleep(0)
    done.set()
    for server in servers:
        server.join()
    for own in answers:
        seen = [expected.get(answer, -1) for answer in own]
        assert -1 not in seen, "an answer of a half-made step"
        assert seen == sorted(seen) and seen[0] == 0 and seen[-1] == steps
        assert len(set(seen)) > 3, "the threads did not take turns"
