"""Gradients of loops whose number of iterations is known only in the run and has no maximum: values, the memory that they
take, and what happens when it does not suffice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.ir.function import Tensor
from linnet.session.planned import COUNTED
from linnet.session.planner import Planner
from tests.capi import Allocator, Chain, Failure
from tests.gradient_cases import some
from tests.test_autodiff import check

X = np.float32([1, 2, 3])
LIMITS = [0.1, 5.0, 20.0, 1e4, 20.0]  # 0, 1, 3, ... iterations


def growing(x: Tensor, w: Tensor, limit: Any, maximum: int | None = None) -> Tensor:
    """Reads its captured values in every iteration."""
    start = (0, x * w)
    return linnet.while_loop(
        lambda s: s[1].sum() < limit, lambda s: (s[0] + 1, s[1] * 1.3 + ops.tanh(w * s[1]) * x), start, maximum
    )[1]


def nested(x: Tensor, w: Tensor, limit: Any, maximum: int | None = None) -> Tensor:
    """Each iteration of the outer loop has an inner loop with another number of iterations."""

    def outer(s: Any) -> Any:
        v, count, seen = s
        n, v = linnet.while_loop(
            lambda t: t[1].sum() < count + 1.5, lambda t: (t[0] + 1, t[1] * 1.1 + ops.tanh(w * v) * x), (0, v), maximum
        )
        return ops.tanh(v) * 0.5, count + 1, seen + n.cast(seen.dtype)

    one = x.sum() * 0
    v, count, seen = linnet.while_loop(lambda s: s[1] < limit, outer, (x * w, one, one), maximum)
    return v * (count + seen)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("limit", [0.1, 5.0, 1e4])
@pytest.mark.parametrize("dynamic", [False, True])
def test_finite_differences(order: int, limit: float, dynamic: bool) -> None:
    check(lambda x, w: growing(x, w, limit), some(3), some(3, seed=2), order=order, dynamic=dynamic, probes=3)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("limit", [0.5, 3.0])
def test_finite_differences_of_nested_loops(order: int, limit: float) -> None:
    check(lambda x, w: nested(x, w, limit), some(3), some(3, seed=2), order=order, probes=3)


def trainer(loop: Any, maximum: int | None, **options: Any) -> linnet.Session:
    graph = linnet.Graph()
    x, limit = graph.placeholder("x", (3,)), graph.placeholder("limit", ())
    w = graph.variable("w", np.float32([0.3, 0.2, 0.1]))
    loss = (loop(x, w, limit, maximum) ** 2).sum()
    dx, dw = linnet.gradients(loss, [x, w])
    feeds = {"x": x, "limit": limit}
    graph.signature("slopes", feeds, {"loss": loss, "dx": dx, "dw": dw})
    graph.signature("train", feeds, {"loss": loss}, updates={w: w - 1e-9 * dw})
    return linnet.Session(graph, options.pop("signature", "slopes"), **options)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("loop", "limits"), [(growing, LIMITS), (nested, [0, 1, 4, 12, 4])])
def test_the_bits_are_those_with_a_maximum(loop: Any, limits: list[float], threads: int) -> None:
    free, bounded = (trainer(loop, maximum, threads=threads) for maximum in (None, 100))
    for limit in limits:
        feeds = {"x": X, "limit": np.float32(limit)}
        expected = bounded.run(feeds)
        for name, value in free.run(feeds).items():
            assert value.tobytes() == expected[name].tobytes(), (name, limit)
            assert limit == 0 or np.abs(value).max() > 0


def counting() -> linnet.Graph:
    """A loop of n iterations, each of which keeps its number (8 bytes) and 25 floats, in a step of training."""
    graph = linnet.Graph()
    n, w = graph.placeholder("n", (), "i64"), graph.variable("w", np.ones(25, np.float32))
    _, y = linnet.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, ops.tanh(s[1]) + w), (0, w))
    (dw,) = linnet.gradients(y.sum(), [w])
    graph.signature("infer", {"n": n}, {"dw": dw}, updates={w: w - 0.01 * dw})
    return graph


def counted(**options: Any) -> linnet.Session:
    return linnet.Session(counting(), **options)


ROW = 8 + 100


def two_loops(maximum: int | None = None) -> linnet.Graph:
    """The first loop gathers rows of a variable; the gradient of the second one needs what it computes."""
    graph = linnet.Graph(seed=1)
    n = graph.placeholder("n", (), "i64")
    e, w = graph.variable("e", np.ones((50, 16), np.float32)), graph.variable("w", np.eye(16, dtype=np.float32) / 2)

    def step(s: Any) -> Any:
        row = ops.gather(e, ops.reshape(ops.minimum(s[0], 49), [1]))
        return s[0] + 1, ops.tanh(row + s[1] @ w)

    start = graph.constant(np.zeros((1, 16), np.float32))
    _, y = linnet.while_loop(lambda s: s[0] < n, step, (0, start), maximum)
    _, z = linnet.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, ops.tanh(s[1] * 1.01)), (0, y), maximum)
    loss = (y + z).sum()
    de, dw = linnet.gradients(loss, [e, w])
    graph.signature("infer", {"n": n}, {"loss": loss}, updates={e: e - 0.01 * de, w: w - 0.01 * dw})
    return graph


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("limit", [150_000, 200_000, 400_000, 1_000_000, 10_000_000])
@pytest.mark.parametrize("make", [counting, two_loops])
def test_the_iterations_that_the_plan_promises_fit(make: Any, limit: int, threads: int) -> None:
    """Any number up to it fits, with the gradient after the loop; one more is refused, and no variable changes."""
    session = linnet.Session(make(), max_bytes=limit, threads=threads)
    most, held = session.plan_info["loop_iterations"], session.memory
    if make is two_loops and limit < 200_000:
        assert most == held["loop_values"] == 0
        return
    assert most > 0 and session.memory_kept == held["total"] <= limit
    assert held["total"] == sum(held[name] for name in COUNTED)
    for count in sorted({0, 1, 2, 7, 8, 9, 10, most // 3, most // 2, most - 1, most}):
        if count <= most:
            session.run({"n": count})
            assert session.memory_kept <= limit, count
    before = {name: session.variables[name].copy() for name in session.variables}
    text = (
        rf"max_bytes= allows; expected at most {most} iterations, .* one more iteration, of \d+ bytes; raise max_bytes="
    )
    for count in (most + 1, 10**12):
        with pytest.raises(linnet.GraphError, match=text):
            session.run({"n": count})
    for name, value in before.items():
        assert session.variables[name].tobytes() == value.tobytes()
    session.run({"n": most})
    assert session.memory["loop_values"] == held["loop_values"] and session.memory_kept <= limit


@pytest.mark.parametrize(("make", "least"), [(counting, 0.87), (two_loops, 0.6)])
def test_most_of_the_memory_is_for_the_loops(make: Any, least: float) -> None:
    """The gradient of the second graph keeps rows too."""
    session = linnet.Session(make(), max_bytes=10_000_000, threads=1)
    held = session.memory
    free = 10_000_000 - (held["total"] - held["loop_values"])
    assert least < held["loop_values"] / free < 0.88
    if make is counting:
        assert abs(held["loop_values"] - session.plan_info["loop_iterations"] * ROW) < 128


def test_no_more_is_reserved_than_a_maximum_needs() -> None:
    """Of a loop whose values take more than the plan contains for each."""
    session = linnet.Session(two_loops(100_000), max_bytes=500_000_000, threads=1)
    assert session.plan_info["loop_iterations"] == 100_000 and session.memory["total"] < 50_000_000
    assert np.isfinite(session.run({"n": 100_000})["loss"])


def test_the_bound_of_a_plan_contains_the_loops() -> None:
    """linnet_plan_bound: the plan's total, and the gradient of as many iterations as are reserved."""
    planner = Planner(counting(), max_bytes=1_000_000, threads=1)
    bound = planner.plan_bounds({})
    assert not bound.unbounded and planner.memory["total"] < bound.total <= 1_000_000
    free = Planner(counting(), threads=1)
    bound = free.plan_bounds({})
    assert "number of results of a loop" in bound.unbounded and free.memory["loop_values"] == 0


def test_a_session_with_bounds_reserves_for_each_shape() -> None:
    graph = linnet.Graph()
    x, n = graph.placeholder("x", (None,)), graph.placeholder("n", (), "i64")
    w = graph.variable("w", np.float32(1))
    _, y = linnet.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, ops.tanh(s[1]) + w), (0, x))
    (dw,) = linnet.gradients(y.sum(), [w])
    graph.signature("infer", {"x": x, "n": n}, {"dw": dw})
    session = linnet.Session(graph, max_bytes=1_000_000, threads=1, bounds={"x": "1..29"})
    assert session.bound is not None and "for each shape" in session.bound.unbounded
    for size in (29, 1, 5):
        found = session.run({"x": np.ones(size, np.float32), "n": 100})["dw"]
        assert np.isfinite(found) and session.memory_kept <= 1_000_000
    few, many = session.plan_info["loop_iterations"], 29 * 4 + 8
    assert 0.8e6 / many < few < 1e6 / 16


def test_a_binding_and_the_session_reserve_within_the_same_limit() -> None:
    graph = linnet.Graph()
    n, w = graph.placeholder("n", (), "i64"), graph.variable("w", np.ones(25, np.float32))
    _, y = linnet.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, ops.tanh(s[1]) + w), (0, w))
    (dw,) = linnet.gradients(y.sum(), [w])
    graph.signature("infer", {"n": n}, {"y": y, "dw": dw}, updates={w: w - 0.01 * dw})
    session = linnet.Session(graph, max_bytes=1_000_000, threads=1)
    number = session.empty("n")
    number[()] = 10
    binding = session.bind({"n": number}, ["y"])
    first = session.memory_kept
    assert 800_000 < first <= 1_000_000
    binding.run()
    session.run({"n": 10})  # a plan of its own, for what is left
    assert 0 < session.plan_info["loop_iterations"] < 1000 and first < session.memory_kept <= 1_000_000
    with pytest.raises(linnet.GraphError, match="at most"):
        session.run({"n": 1000})
    binding.run()
    assert session.memory_kept <= 1_000_000


def test_what_cannot_be_bounded_is_not_reserved() -> None:
    """After nested loops, nobody knows in advance how much memory the gradient takes. The memory then grows in the run."""
    session = trainer(nested, None, max_bytes=20_000_000, threads=1)
    assert session.plan_info["loop_iterations"] == session.memory["loop_values"] == 0
    kept = session.memory_kept
    session.run({"x": X, "limit": np.float32(5)})
    assert kept < session.memory_kept <= 20_000_000


def test_the_limit_at_the_command_line(tmp_path: Path, linnet_command: Any) -> None:
    """`linnet plan` says how many iterations fit, `run` and `bench` take the same limit, and errors name the option."""
    path, number = tmp_path / "m.lnt", tmp_path / "n.npy"
    counting().save(path)
    limit = ("--max-bytes", 1_000_000, "--threads", 1)
    found = linnet_command("plan", path, *limit).stdout
    most = linnet.Session(path, max_bytes=1_000_000, threads=1).plan_info["loop_iterations"]
    assert "reserved for values of loops" in found and f"at most {most:,} iterations of loops" in found
    assert "no bound" not in found and "no bound" in linnet_command("plan", path).stdout
    for count, code in ((most, 0), (most + 1, 1)):
        np.save(number, np.int64(count))
        ran = linnet_command("run", path, "--input", f"n={number}", *limit)
        assert ran.returncode == code, ran.stderr
    assert f"at most {most} iterations" in ran.stderr and "raise --max-bytes" in ran.stderr
    for command in ("plan", "bench"):
        ran = linnet_command(command, path, "--max-bytes", 1000)
        assert ran.returncode == 1 and "at most 1000 bytes" in ran.stderr and "--max-bytes" in ran.stderr, ran.stderr


def test_the_error_in_c_names_the_field() -> None:
    with Chain(counting().to_bytes()) as chain:
        chain.make_store().make_plan(max_bytes=200_000).make_session().set({"n": np.int64(1_000_000)})
        with pytest.raises(Failure, match=r"than linnet_plan_config.max_bytes allows; .* of 108 bytes; raise linnet_p"):
            chain.run()


def test_reserved_memory_is_counted_exactly_and_any_allocation_may_fail() -> None:
    data, k, failed = counting().to_bytes(), 0, True
    while failed:
        allocator = Allocator(fail_at=k)
        with Chain.__new__(Chain) as chain:
            try:
                chain.__init__(data, allocator)  # type: ignore[misc]
                chain.make_store().make_plan(max_bytes=200_000, threads=1).make_session()
                info = chain.info()
                assert info.total == allocator.bytes or allocator.failed
                chain.set({"n": np.int64(info.loop_iterations)}).run()
                assert info.loop_iterations > 1000 or allocator.failed
            except Failure as failure:
                assert failure.status == 401, failure
        failed = allocator.failed
        assert not allocator.live and not allocator.faults, f"allocation {k}"
        k += 1
    assert k > 20


def test_without_max_bytes_the_memory_grows_with_the_iterations() -> None:
    session = counted(threads=1)
    kept = {}
    for count in (10, 1000, 20_000, 10):
        session.run({"n": count})
        kept[count] = session.memory_kept
        assert count < 1000 or count * ROW < kept[count] - kept.get(10, 0) + 10 * ROW
    assert 1000 * ROW < kept[1000] < 4 * 1000 * ROW + 300_000 and kept[20_000] < 4 * 20_000 * ROW


def test_inference_keeps_nothing() -> None:
    graph = linnet.Graph()
    x, limit = graph.placeholder("x", (3,)), graph.placeholder("limit", ())
    w = graph.variable("w", np.float32([0.3, 0.2, 0.1]))
    y = growing(x, w, limit)
    graph.signature("infer", {"x": x, "limit": limit}, {"y": y})
    before = linnet.Session(graph, "infer").memory
    linnet.gradients((y * y).sum(), [w])
    graph.signature("infer", {"x": x, "limit": limit}, {"y": y})
    after = linnet.Session(graph, "infer")
    assert after.plan_info["segments"] == 1
    for region in ("activations", "scratch", "constants", "io"):
        assert after.memory[region] == before[region], region


def test_a_loop_that_never_ends_has_no_gradient() -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", ())
    y = linnet.while_loop(lambda s: graph.constant(np.array(True)), lambda s: s * 2, x)
    before = len(graph.main.nodes)
    with pytest.raises(
        linnet.GraphError, match=r"while cannot be differentiated.*never ends.*give while_loop a maximum"
    ):
        linnet.gradients(y, [x])
    assert len(graph.main.nodes) == before and not graph.bodies


def test_a_recurrent_model_learns_from_sequences_of_any_length() -> None:
    """The number of words is data: padded rows of one shape, and how many of them count. The target is the sign of the mean."""
    graph = linnet.Graph(seed=3)
    x, count = graph.placeholder("x", (40, 2)), graph.placeholder("count", (), "i64")
    target = graph.placeholder("target", ())
    w, u = graph.variable("w", linnet.init.glorot((2, 4))), graph.variable("u", linnet.init.glorot((4, 4)))
    out, start = graph.variable("out", linnet.init.glorot((4, 1))), graph.constant(np.zeros((1, 4), np.float32))

    def step(s: Any) -> Any:
        return s[0] + 1, ops.tanh(ops.gather(x, ops.reshape(s[0], [1])) @ w + s[1] @ u)

    _, last = linnet.while_loop(lambda s: s[0] < count, step, (0, start))
    loss = ((ops.tanh(last @ out) - target) ** 2).mean()
    slopes = linnet.gradients(loss, [w, u, out])
    graph.signature(
        "train", {"x": x, "count": count, "target": target}, {"loss": loss},
        updates={v: v - 0.05 * g for v, g in zip((w, u, out), slopes, strict=True)},
    )  # fmt: skip
    session, rng, losses = linnet.Session(graph, "train", max_bytes=1_000_000), np.random.default_rng(0), []
    for _ in range(600):
        sign, length = rng.choice([-1.0, 1.0]), int(rng.integers(0, 41))
        rows = rng.normal(0.5 * sign, 0.5, (40, 2)).astype(np.float32)
        feeds = {"x": rows, "count": length, "target": np.float32(sign)}
        found = session.run(feeds)["loss"]
        assert length > 0 or found == 1
        losses.append(found)
        assert session.memory_kept <= 1_000_000
    assert np.mean(losses[-100:]) < np.mean(losses[:50]) / 3
