"""Sessions on a snapshot: they run during a training step of the same store, see the last commit completely or not at all, and
report their memory. tests/c/test_shared_store.c tests many threads under ThreadSanitizer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import nn, ops
from linnet.clib.library import library
from linnet.facade import Graph
from tests.capi import NULL, Allocator, Chain, Failure, check, ffi, lib, new_struct

SIZE = 1 << 19  # enough work for two threads: a step uses parallel_for
WAIT = 30.0


def counters() -> Graph:
    """train: a and b grow by x. eval: returns both. fails: would set a, but first looks up row 9 of 4."""
    graph = Graph()
    x, i = graph.placeholder("x", ()), graph.placeholder("i", (1,), "i64")
    a, b = (graph.variable(name, np.zeros(SIZE, np.float32)) for name in "ab")
    unused = graph.variable("unused", np.ones(100, np.float32))
    graph.signature("train", {"x": x}, {}, updates={a: a + x, b: b + x, unused: unused + x})
    graph.signature("eval", {"x": x}, {"least": ops.minimum(a, b).min() + x * 0.0, "most": ops.maximum(a, b).max()})
    rows = ops.gather(graph.constant(np.zeros((4, 1), np.float32)), i)
    graph.signature("fails", {"i": i}, {"y": rows}, updates={a: a + 100.0 + rows.sum()})
    return graph


@pytest.fixture
def model() -> linnet.Model:
    return linnet.Model(counters())


ONE = {"x": np.float32(1)}


def values(session: linnet.Session) -> tuple[float, float]:
    out = session.run(ONE)
    return float(out["least"]), float(out["most"])


# ---- what a snapshot sees --------------------------------------------------------------------------------------------


def test_it_sees_what_was_committed_last(model: linnet.Model, tmp_path: Path) -> None:
    store = linnet.Store(model)
    train = linnet.Session(model, "train", store=store)
    reads = linnet.Session(model, "eval", store=store, snapshot=True)
    assert values(reads) == (0, 0)
    for i in range(3):
        train.run(ONE)
        assert values(reads) == (i + 1, i + 1)
    later = linnet.Session(model, "eval", store=store, snapshot=True)
    assert values(later) == (3, 3)
    store.save(tmp_path / "three")
    store["a"] = np.full(SIZE, 9, np.float32)
    assert values(reads) == (3, 9) == values(later)
    store.load(tmp_path / "three")
    assert values(reads) == (3, 3) == values(later)


def test_a_run_that_fails_or_is_cancelled_never_shows(model: linnet.Model) -> None:
    store = linnet.Store(model)
    reads = linnet.Session(model, "eval", store=store, snapshot=True)
    fails = linnet.Session(model, "fails", store=store)
    with pytest.raises(linnet.GraphError):
        fails.run({"i": np.array([9])})
    assert values(reads) == (0, 0)
    with pytest.raises(linnet.DeadlineExceeded):
        fails.run({"i": np.array([1])}, timeout=1e-9)
    assert values(reads) == (0, 0)
    fails.run({"i": np.array([1])})
    assert values(reads) == (0, 100)


def test_memory_that_is_written_shows_once_it_is_published(model: linnet.Model) -> None:
    store = linnet.Store(model)
    reads = linnet.Session(model, "eval", store=store, snapshot=True)
    here, error = library(), ffi.new("linnet_error *")
    for i, finish in enumerate((lambda: here.linnet_store_publish(store.pointer, error), lambda: store["b"])):
        for name in b"a", b"b":
            data = here.linnet_store_data(store.pointer, name, here.LINNET_WRITE, error)
            np.frombuffer(ffi.buffer(data, 4 * SIZE), np.float32)[:] = i + 1
            assert values(reads) == (i, i), "half of it shows"
        finish()
        assert values(reads) == (i + 1, i + 1)
    assert lib().linnet_store_publish(NULL, error) == 101


def test_a_variable_that_only_a_called_function_reads_is_in_it() -> None:
    graph = Graph()
    x, w = graph.placeholder("x", (4,)), graph.variable("w", np.ones(4, np.float32))
    callee = graph.function("callee")
    factor = callee.placeholder("factor", "f32", (4,))
    callee.outputs = [callee.read(w) * factor]
    (y,) = graph.main.emit("call", [x], {"callee": callee})
    graph.signature("infer", {"x": x}, {"y": y})
    model = linnet.Model(graph)
    store = linnet.Store(model)
    reads = linnet.Session(model, store=store, snapshot=True)
    for value in (1, 2, 3):
        store["w"] = np.full(4, value, np.float32)
        assert (reads.run({"x": np.full(4, 2, np.float32)})["y"] == 2 * value).all()
    assert reads.memory["snapshot"] >= 16


def test_bodies_segments_and_calls_read_it_too() -> None:
    graph = Graph()
    x = graph.placeholder("x", (4,))
    w = graph.variable("w", np.ones(4, np.float32))
    graph.signature("train", {}, {}, updates={w: w + 1.0})
    looped = linnet.while_loop(lambda s: s.sum() < 100.0, lambda s: s + w, x)
    chosen = linnet.cond(x.sum() > 0.0, lambda: w * 2.0, lambda: x)
    kept = ops.cast(ops.nonzero(x), dtype="f32").sum() + w
    graph.signature("infer", {"x": x}, {"looped": looped, "chosen": chosen, "kept": kept})
    model = linnet.Model(graph)
    train, reads = linnet.Session(model, "train"), linnet.Session(model)
    alone = linnet.Session(model, store=train.variables, snapshot=True)
    same = linnet.Session(model, store=train.variables)
    assert reads.variables is not train.variables
    feeds = {"x": np.ones(4, np.float32)}
    for _ in range(3):
        got, want = alone.run(feeds), same.run(feeds)
        assert all(np.array_equal(got[name], want[name]) for name in want) and set(want) == {"looped", "chosen", "kept"}
        train.run({})
    assert not np.array_equal(alone.run(feeds)["kept"], got["kept"])


def test_a_signature_that_assigns_variables_takes_none(model: linnet.Model) -> None:
    with pytest.raises(linnet.UsageError, match="'train': a signature that assigns variables cannot run on a snapshot"):
        linnet.Session(model, "train", snapshot=True)


def test_a_signature_without_variables_needs_none() -> None:
    graph = Graph()
    x = graph.placeholder("x", (2,))
    graph.signature("infer", {"x": x}, {"y": x + 1.0})
    session = linnet.Session(graph, snapshot=True)
    assert session.memory["snapshot"] == session.memory["committed"] == 0
    assert (session.run({"x": np.zeros(2, np.float32)})["y"] == 1).all()


# ---- nobody waits ----------------------------------------------------------------------------------------------------


class Held:
    """A training session whose thread stops in the middle of a step: in its `at`-th call of parallel_for."""

    def __init__(self, data: bytes, at: int) -> None:
        self.reached, self.go, self.calls, self.at = threading.Event(), threading.Event(), 0, at
        self.chain = Chain(data).make_store()
        self.chain.make_plan("train", threads=2)
        self.train_plan = self.chain.plan

        @ffi.callback("void(void *, void (*)(void *, int), void *, int)")
        def parallel_for(context: object, task: Any, argument: object, count: int) -> None:
            if self.calls == self.at:
                self.reached.set()
                self.go.wait(WAIT)
            self.calls += 1
            for i in range(count):
                task(argument, i)

        self._keep = parallel_for
        self.chain.make_session(parallel_for=parallel_for)
        self.train = self.chain.session
        lib().linnet_session_set(self.train, b"x", ffi.from_buffer(np.float32(1)), 4, NULL)
        self.status: int | None = None

    def reader(self, snapshot: int) -> Any:
        self.chain.make_plan("eval", snapshot=snapshot).make_session()
        plan = self.chain.plan
        session, self.chain.session, self.chain.plan = self.chain.session, self.train, self.train_plan
        return session, plan

    def start(self) -> threading.Thread:
        def run() -> None:
            self.status = lib().linnet_run(self.train, NULL)

        thread = threading.Thread(target=run)
        thread.start()
        assert self.reached.wait(WAIT)
        return thread


def run_within(session: Any, milliseconds: int) -> tuple[int, tuple[float, float]]:
    config = new_struct("linnet_run_config")
    config.timeout_ns = milliseconds * 1_000_000
    status = lib().linnet_run_with(session, config, NULL)
    least, most = (ffi.cast("float *", lib().linnet_session_output(session, i))[0] for i in range(2))
    return int(status), (float(least), float(most))


@pytest.fixture(params=[0, 1], ids=["before-updates", "between-updates"])
def held(request: pytest.FixtureRequest) -> Iterator[Held]:
    made = Held(counters().to_bytes(), request.param)
    yield made
    made.go.set()
    made.chain.close()


def test_a_reader_completes_in_the_middle_of_a_step(held: Held) -> None:
    """The writer is certainly inside the step: overwritten values show in the store's memory, and it holds the lock."""
    (locks, plan), (reads, other) = held.reader(0), held.reader(1)
    thread = held.start()
    try:
        memory = [
            ffi.cast("float *", lib().linnet_store_data(held.chain.store, n, lib().LINNET_READ, NULL))[0]
            for n in (b"a", b"b")
        ]
        assert sorted(memory) == [0, held.at], "the updates are not written in place one after the other"
        for _ in range(3):
            assert run_within(reads, 10_000) == (0, (0, 0))
        assert run_within(locks, 50)[0] == 702  # anyone who takes the lock waits
        assert held.status is None
    finally:
        held.go.set()
        thread.join(WAIT)
    assert held.status == 0
    assert run_within(reads, 10_000) == (0, (1, 1)) == run_within(locks, 10_000)
    for session, its in ((locks, plan), (reads, other)):
        lib().linnet_session_free(session)
        lib().linnet_plan_free(its)


def test_a_step_completes_in_the_middle_of_a_reader(model: linnet.Model) -> None:
    """A long computation on a snapshot sees one state from beginning to end."""
    graph = Graph()
    limit = graph.placeholder("limit", (), "i64")
    w = graph.variable("w", np.ones(4, np.float32))
    graph.signature("train", {}, {"y": w * 1.0}, updates={w: w + 1.0})
    _, total = linnet.while_loop(
        lambda s: s[0] < limit, lambda s: (s[0] + 1, s[1] + w), (np.int64(0), graph.constant(np.zeros(4, np.float32)))
    )
    graph.signature("infer", {"limit": limit}, {"total": total})
    long = linnet.Model(graph)
    train = linnet.Session(long, "train")
    reads = linnet.Session(long, store=train.variables, snapshot=True)
    reads.run({"limit": np.int64(1)})
    results: list[Any] = []
    trips = np.int64(1_000_000)
    thread = threading.Thread(target=lambda: results.append(reads.run({"limit": trips})["total"]))
    thread.start()
    time.sleep(0.02)
    steps = 0
    while thread.is_alive():
        train.run({}, timeout=WAIT)
        steps += 1
    thread.join()
    assert steps > 2
    assert (results[0] == results[0][0]).all() and results[0][0] % 1_000_000 == 0


# ---- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1])
def test_every_byte_of_it_is_stated(threads: int) -> None:
    data = counters().to_bytes()
    allocator = Allocator()
    with Chain(data, allocator) as chain:
        chain.make_store().make_plan("eval", snapshot=1, threads=threads).make_session().set(ONE).run()
        info = chain.info()
        assert info.total == allocator.bytes
        assert info.snapshot > 2 * 4 * SIZE and info.snapshot < 2 * 4 * SIZE + 1000
        assert info.committed == 2 * 4 * SIZE  # without variables that the signature does not read
        plain = Chain(data)
        plain.make_plan("eval", threads=threads)
        assert info.total - info.snapshot - info.committed - plain.info().total < 1000
        plain.close()
        held = lib().linnet_store_bytes(chain.store)
        assert held == info.variables + info.committed
        # When the last snapshot is closed, the next commit frees what the store kept for it.
        lib().linnet_session_free(chain.session)
        chain.session = NULL
        one = np.zeros(SIZE, np.float32)
        check(lib().linnet_store_write(chain.store, b"a", ffi.from_buffer(one), one.nbytes, chain.error), chain.error)
        assert lib().linnet_store_bytes(chain.store) == info.variables
        chain.make_session().set(ONE).run()
        assert info.total == allocator.bytes
    assert not allocator.live and not allocator.faults


def test_any_allocation_may_fail() -> None:
    graph = Graph()
    w = graph.variable("w", np.ones(4, np.float32))
    graph.signature("eval", {}, {"y": w * 2.0})
    data, counted, fail_at = graph.to_bytes(), 0, 0
    while True:
        allocator = Allocator(fail_at=fail_at)
        try:
            chain = Chain.__new__(Chain)
            chain.model = chain.store = chain.plan = chain.session = NULL
            chain.__init__(data, allocator)  # type: ignore[misc]
            chain.make_store().make_plan("eval", snapshot=1).make_session().run()
        except Failure as failure:
            assert failure.status == 401, failure
            counted += 1
        finally:
            chain.close()
        assert not allocator.live and not allocator.faults
        if not allocator.failed:
            break
        fail_at += 1
    assert counted > 5


def test_plans_for_several_shapes_share_one() -> None:
    graph = Graph()
    x = graph.placeholder("x", ("n", 300))
    w = graph.variable("w", np.zeros((300, 1000), np.float32))
    graph.signature("train", {}, {}, updates={w: w + 1.0})
    graph.signature("infer", {"x": x}, {"y": ops.matmul(x, w).sum()})
    model = linnet.Model(graph)
    train = linnet.Session(model, "train")
    reads = linnet.Session(model, store=train.variables, snapshot=True)
    grown = []
    for n in (1, 2, 3, 1, 2):
        train.run({})
        assert reads.run({"x": np.ones((n, 300), np.float32)})["y"] == n * 300_000 * (len(grown) + 1)
        grown.append(reads.memory_kept)
    assert reads.memory["snapshot"] > 1_200_000
    assert grown[2] - grown[0] < 300_000, "outputs, but no copy of the variables for every shape"
    assert grown[0] > 3 * 1_200_000


def test_a_session_of_other_variables_shares_none(model: linnet.Model) -> None:
    graph = Graph()
    a, b = (graph.variable(name, np.zeros(8, np.float32)) for name in "ab")
    graph.signature("a", {}, {"y": a + 1.0})
    graph.signature("b", {}, {"y": b + 1.0})
    with Chain(graph.to_bytes()) as chain:
        chain.make_store().make_plan("a", snapshot=1).make_session()
        first, plan = chain.session, chain.plan
        with pytest.raises(Failure, match="share_snapshot is a session that reads other variables"):
            chain.make_plan("b", snapshot=1).make_session(share_snapshot=first)
        lib().linnet_session_free(first)
        lib().linnet_plan_free(plan)


def test_a_table_of_zeros_stays_one() -> None:
    import resource

    graph = Graph()
    rows = graph.placeholder("rows", (2,), "i32")
    table = nn.embedding(rows, 1_000_000, 64, start=linnet.init.zeros, name="table")
    graph.signature("infer", {"rows": rows}, {"y": table})
    session = linnet.Session(graph, snapshot=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    session.run({"rows": np.array([1, 2], np.int32)})
    assert session.memory["snapshot"] > 256e6
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # kB


def test_the_plan_command_counts_it(linnet_command: Any, tmp_path: Path) -> None:
    path = tmp_path / "counters.lnt"
    path.write_bytes(counters().to_bytes())
    plain = linnet_command("plan", path, "--signature", "eval")
    assert plain.returncode == 0 and "snapshot" not in plain.stdout, plain
    done = linnet_command("plan", path, "--signature", "eval", "--snapshot")
    assert f"kept by the store for snapshots │ {2 * 4 * SIZE:,}" in " ".join(done.stdout.split()), done


# ---- training on many machines ---------------------------------------------------------------------------------------


def test_servers_and_workers_commit_too() -> None:
    from linnet.sync import Server, Worker

    graph = Graph(seed=1)
    x, t = graph.placeholder("x", ("batch", 4)), graph.placeholder("t", ("batch",), "i32")
    loss = linnet.softmax_cross_entropy(nn.dense(x, 3, name="layer"), t).mean()
    weight = graph.variables["layer/weight"]
    graph.signature("look", {}, {"w": weight * 1.0})
    linnet.sync.signatures(graph, loss, linnet.SGD(0.5), {"x": x, "t": t})
    model = linnet.Model(graph.to_bytes())
    stores = linnet.Store(model), linnet.Store(model)
    looks = [linnet.Session(model, "look", store=store, snapshot=True) for store in stores]
    before = [look.run({})["w"] for look in looks]
    feeds = {"x": np.ones((6, 4), np.float32), "t": np.zeros(6, np.int32)}
    with Server(model, store=stores[0]) as server, Worker(model, server.address, number=0, store=stores[1]) as worker:
        for _ in range(3):
            worker.step(feeds)
            seen = [look.run({})["w"] for look in looks]
            assert all(not np.array_equal(a, b) for a, b in zip(seen, before, strict=True))
            assert np.array_equal(seen[0], seen[1]) and np.array_equal(seen[1], stores[1]["layer/weight"])
            before = seen
