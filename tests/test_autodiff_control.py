"""Gradients through cond, while_loop, scan and call: finite differences in f64 (first and second order), the values kept of a
forward loop, and recurrent networks written as loops against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.ir.function import Tensor
from tests.gradient_cases import some
from tests.test_autodiff import check

TIMES = [1, 4, 11]  # loops of at most 8 trips become nodes in C; longer ones stay loops


def rnn(x: Tensor, h: Tensor, w: Tensor, u: Tensor, reverse: bool = False) -> Tensor:
    def step(h: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        h = ops.tanh(row @ w + h @ u)
        return h, h * row.sum()

    last, rows = linnet.scan(step, h, x, reverse=reverse)
    return ops.concat([ops.reshape(last, [1, 2, 3]), rows], 0)


@pytest.mark.parametrize("time", TIMES)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_scan(time: int, reverse: bool, dynamic: bool) -> None:
    arrays = [some(time, 2, 2, low=-1, high=1), some(2, 3), some(2, 3, low=-1), some(3, 3, low=-1)]
    check(lambda *a: rnn(*a, reverse=reverse), *arrays, dynamic=dynamic, probes=4)


@pytest.mark.parametrize("time", TIMES)
def test_second_derivatives_of_scan(time: int) -> None:
    arrays = [some(time, 2, 2, low=-1, high=1), some(2, 3), some(2, 3, low=-1), some(3, 3, low=-1)]
    check(rnn, *arrays, order=2, probes=3)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("dynamic", [False, True])
def test_scan_of_structures_with_values_that_have_no_gradient(order: int, dynamic: bool) -> None:
    """A loop with a carried counter, a sequence of integers, a captured value that never changes, and a dropped one."""

    def build(x: Tensor, table: Tensor) -> Tensor:
        ids = x.function.constant(np.arange(12) % 3)

        def step(carry: dict[str, Any], row: Any) -> Any:
            chosen = ops.gather(table, row["id"])
            value = ops.tanh(carry["v"] * chosen + row["x"])
            odd = (carry["n"].cast("f64") * 0.5).cast("i64").equal(carry["n"].cast("f64").cast("i64"))
            return {"v": value, "n": carry["n"] + 1, "keep": carry["keep"]}, ops.where(odd, value, chosen * chosen)

        start = {"v": table[0] * 2, "n": 0, "keep": table[1]}
        last, rows = linnet.scan(step, start, {"x": x, "id": ids})
        return rows.sum(0) + last["keep"] * last["v"]

    check(build, some(12, 4), some(3, 4), order=order, dynamic=dynamic, probes=4)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("limit", [0.1, 5.0, 1e9])
@pytest.mark.parametrize("dynamic", [False, True])
def test_while_loop_with_a_maximum(order: int, limit: float, dynamic: bool) -> None:
    """The loop ends at once, when the condition fails, or at the maximum."""

    def build(x: Tensor, w: Tensor) -> Tensor:
        _, y = linnet.while_loop(
            lambda s: s[1].sum() < limit, lambda s: (s[0] + 1, s[1] * 1.3 + ops.tanh(w) * x), (0, x * w), 12
        )
        return y * y

    check(build, some(3), some(3, seed=2), order=order, dynamic=dynamic, probes=3)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("dynamic", [False, True])
def test_cond(order: int, sign: float, dynamic: bool) -> None:
    def build(x: Tensor, w: Tensor) -> Tensor:
        yes, both = linnet.cond(
            (x.sum() * sign) > 0.0, lambda a: (ops.tanh(a @ w), x), lambda a: (a @ w * (w.sum()), x * x * x), x
        )
        return yes.sum(0) * both.sum(0).sum() + yes.sum()

    check(build, some(2, 3), some(3, 3, seed=1), order=order, dynamic=dynamic, probes=4)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("dynamic", [False, True])
def test_nested(order: int, dynamic: bool) -> None:
    """Nested loops with a branch in each."""

    def build(x: Tensor, w: Tensor) -> Tensor:
        def inner(s: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            s = linnet.cond(v.sum() > 1.0, lambda: ops.tanh(s * v), lambda: s + w * v)
            return s, s * w

        def outer(s: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
            s, ys = linnet.scan(inner, s, row)
            return s, ys.sum(0)

        last, rows = linnet.scan(outer, w * 0.5, x)
        return last + rows.sum(0)

    check(build, some(9, 10, 2), some(2, seed=1), order=order, dynamic=dynamic, probes=4)


@pytest.mark.parametrize("order", [1, 2])
def test_call(order: int) -> None:
    def build(x: Tensor, w: Tensor) -> Tensor:
        callee = x.function.graph.function("callee")
        a, b = callee.placeholder("a", "f64", (2, 3)), callee.placeholder("b", "f64", (3, 2))
        callee.outputs = [ops.tanh(ops.matmul(a, b)), a]
        y, same = ops.call([x, w], callee=callee, outputs=2)
        z, _ = ops.call([ops.multiply(same, same), w], callee=callee, outputs=2)
        return y * z

    check(build, some(2, 3), some(3, 2, seed=1), order=order, probes=4)


def test_what_a_loop_keeps() -> None:
    """tanh is recomputed from the sum of two products, which are kept. Inference alone keeps nothing."""
    graph = linnet.Graph()
    x, h0 = graph.placeholder("x", (20, 2, 2)), graph.placeholder("h0", (2, 3))
    w, u = graph.variable("w", np.ones((2, 3), np.float32)), graph.variable("u", np.ones((3, 3), np.float32))
    last, _ = linnet.scan(lambda h, r: (ops.tanh(r @ w + h @ u), None), h0, x)
    graph.signature("infer", {"x": x, "h0": h0}, {"y": last})
    before = linnet.Session(graph, "infer").memory
    loss = last.sum()
    dw, du = linnet.gradients(loss, [w, u])
    again, _ = linnet.gradients(loss, [w, u])
    loop = next(n for n in graph.main.nodes if n.op == "while")
    assert [t.shape for t in loop.outputs] == [(2, 3), (20, 2, 3), (20, 2, 3), (20, 2, 3)]  # the two products and h
    graph.signature("infer", {"x": x, "h0": h0}, {"y": last})
    graph.signature("train", {"x": x, "h0": h0}, {"dw": dw, "du": du, "again": again})
    after = linnet.Session(graph, "infer").memory
    for region in ("activations", "scratch", "constants", "io"):
        assert after[region] == before[region], region
    feeds = {"x": some(20, 2, 2).astype("f4"), "h0": some(2, 3).astype("f4")}
    found = linnet.Session(graph, "train").run(feeds)
    np.testing.assert_array_equal(found["dw"], found["again"])


@pytest.mark.parametrize("how", ["scan", "while_loop"])
def test_a_recurrent_network_as_a_loop_trains_as_in_pytorch(how: str, torch: Any) -> None:
    """Compares gradients, and the losses of ten steps of gradient descent."""
    rng, time, batch, width, hidden = np.random.default_rng(0), 12, 3, 4, 5
    shapes = {"w": (width, hidden), "u": (hidden, hidden), "b": (hidden,), "out": (hidden, 2)}
    values = {name: (rng.standard_normal(s) * 0.5).astype(np.float32) for name, s in shapes.items()}
    inputs = rng.standard_normal((time, batch, width)).astype(np.float32)
    targets = rng.standard_normal((time, batch, 2)).astype(np.float32)
    graph = linnet.Graph()
    x, t = graph.placeholder("x", ("time", batch, width)), graph.placeholder("t", ("time", batch, 2))
    v = {name: graph.variable(name, value) for name, value in values.items()}

    def step(h: Tensor, row: Any) -> tuple[Tensor, Tensor]:
        h = ops.tanh(row[0] @ v["w"] + h @ v["u"] + v["b"])
        return h, ((h @ v["out"] - row[1]) ** 2).mean()

    start = graph.constant(np.zeros((batch, hidden), np.float32))
    if how == "scan":
        loss = linnet.scan(step, start, (x, t))[1].mean()
    else:
        last = graph.constant(np.int64(time))

        def body(s: Any) -> Any:
            h, part = step(s[1], (ops.gather(x, s[0]), ops.gather(t, s[0])))
            return s[0] + 1, h, s[2] + part / time

        loss = linnet.while_loop(lambda s: s[0] < last, body, (0, start, 0.0), maximum=100)[2]
    gradients = dict(zip(v, linnet.gradients(loss, list(v.values())), strict=True))
    updates = {v[name]: v[name] - 0.5 * g for name, g in gradients.items()}
    graph.signature("train", {"x": x, "t": t}, {"loss": loss, **gradients}, updates=updates)
    session = linnet.Session(graph, "train")
    cell = {name: torch.tensor(value, requires_grad=True) for name, value in values.items()}
    for _ in range(10):
        found = session.run({"x": inputs, "t": targets})
        h, expected = torch.zeros(batch, hidden), torch.zeros(())
        for row, target in zip(torch.tensor(inputs), torch.tensor(targets), strict=True):
            h = torch.tanh(row @ cell["w"] + h @ cell["u"] + cell["b"])
            expected = expected + ((h @ cell["out"] - target) ** 2).mean() / time
        slopes = dict(zip(cell, torch.autograd.grad(expected, list(cell.values())), strict=True))
        assert found["loss"] == pytest.approx(expected.item(), rel=1e-5)
        for name, slope in slopes.items():
            np.testing.assert_allclose(found[name], slope.numpy(), rtol=1e-4, atol=1e-6, err_msg=name)
        with torch.no_grad():
            for name, slope in slopes.items():
                cell[name] -= 0.5 * slope
