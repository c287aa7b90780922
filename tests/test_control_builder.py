"""linnet.cond, while_loop and scan: values against NumPy, captured values, nesting, files, and errors.
Gradients are in test_autodiff_control.py."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops


def run(graph: linnet.Graph, feeds: dict[str, Any], outputs: dict[str, Any], **options: Any) -> dict[str, Any]:
    graph.signature("infer", {n: t for n, t in PLACES[graph].items() if n in feeds}, outputs)
    return linnet.Session(graph, **options).run(feeds)


PLACES: dict[linnet.Graph, dict[str, Any]] = collections.defaultdict(dict)


def place(graph: linnet.Graph, name: str, shape: Any, dtype: str = "f32") -> Any:
    PLACES[graph][name] = graph.placeholder(name, shape, dtype)
    return PLACES[graph][name]


def some(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_is_a_recurrent_network(reference: bool, reverse: bool) -> None:
    graph = linnet.Graph()
    x, h0 = place(graph, "x", ("time", 2, 3)), place(graph, "h0", (2, 4))
    w = graph.variable("w", some(3, 4))
    u = graph.variable("u", some(4, 4, seed=1) / 4)

    def step(carry: dict[str, Any], row: Any) -> Any:
        h = ops.tanh(row @ w + carry["h"] @ u)
        return {"h": h}, (h, [h.sum(), None])

    last, (rows, (sums, nothing)) = linnet.scan(step, {"h": h0}, x, reverse=reverse)
    assert rows.shape == ("time", 2, 4) and sums.shape == ("time",) and nothing is None
    graph.signature("infer", {"x": x, "h0": h0}, {"last": last["h"], "rows": rows, "sums": sums})
    session = linnet.Session(graph, reference=reference)
    for time in (1, 3, 12):
        feeds = {"x": some(time, 2, 3, seed=2), "h0": some(2, 4, seed=3)}
        found, h, expected = session.run(feeds), feeds["h0"], []
        for t in range(time)[:: -1 if reverse else 1]:
            h = np.tanh(feeds["x"][t] @ w.value + h @ u.value)
            expected.append(h)
        np.testing.assert_allclose(found["last"], h, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found["rows"], expected[:: -1 if reverse else 1], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found["sums"], found["rows"].sum((1, 2)), rtol=1e-4, atol=1e-5)


def test_scan_over_several_sequences_or_over_none() -> None:
    graph = linnet.Graph()
    a, b = place(graph, "a", (20, 3)), place(graph, "b", (20, 3))
    total, products = linnet.scan(lambda s, x: (s + x["a"], x["a"] * x["b"]), np.zeros(3, np.float32), {"a": a, "b": b})
    start = place(graph, "start", ())
    power, _ = linnet.scan(lambda s, _: (s * 2, None), start, length=12)
    found = run(
        graph, {"a": some(20, 3), "b": some(20, 3, seed=1), "start": np.float32(3)},
        {"total": total, "products": products, "power": power},
    )  # fmt: skip
    np.testing.assert_allclose(found["total"], some(20, 3).sum(0), rtol=1e-5)
    np.testing.assert_allclose(found["products"], some(20, 3) * some(20, 3, seed=1), rtol=1e-6)
    assert found["power"] == 3 * 2**12


def test_a_length_that_only_the_run_knows() -> None:
    graph = linnet.Graph()
    n, x = place(graph, "n", (), "i64"), place(graph, "x", (9, 2))
    last, rows = linnet.scan(lambda s, r: (s + r, s), graph.constant(np.zeros(2, np.float32)), x, length=n)
    graph.signature("infer", {"n": n, "x": x}, {"last": last, "rows": rows})
    session = linnet.Session(graph)
    for count in (0, 4, 9):
        found = session.run({"n": np.int64(count), "x": some(9, 2)})
        np.testing.assert_allclose(found["last"], some(9, 2)[:count].sum(0), rtol=1e-5, atol=1e-6)
        assert found["rows"].shape == (count, 2)


def test_while_loop_until_its_condition_or_its_maximum() -> None:
    graph = linnet.Graph()
    x = place(graph, "x", ())
    for name, maximum in (("free", None), ("bounded", 5), ("computed", graph.constant(np.int64(5)))):
        count, value = linnet.while_loop(lambda s: s[1] < 1000.0, lambda s: (s[0] + 1, s[1] * 2), (0, x), maximum)
        assert count.dtype == "i64"
        graph.signature(name, {"x": x}, {"count": count, "value": value})
    for start in (3.0, 999.0, 1000.0):
        count = int(np.ceil(np.log2(1000 / start))) if start < 1000 else 0
        assert linnet.Session(graph, "free").run({"x": np.float32(start)}) == {
            "count": count,
            "value": start * 2**count,
        }
        for name in ("bounded", "computed"):
            found = linnet.Session(graph, name).run({"x": np.float32(start)})
            assert found == {"count": min(count, 5), "value": start * 2 ** min(count, 5)}


def test_cond_runs_one_branch() -> None:
    """Only the chosen branch runs: the other's square root of a negative number would give NaN, and its index would be
    refused."""
    graph = linnet.Graph()
    x, i = place(graph, "x", (3,)), place(graph, "i", (), "i64")
    inside = linnet.cond(i < 3, lambda t: (ops.gather(t, i), 1.0), lambda t: (t.sum(), 2.0), x)
    graph.signature("infer", {"x": x, "i": i}, {"y": inside[0], "which": inside[1]})
    session = linnet.Session(graph)
    for index in (2, 7):
        found = session.run({"x": some(3), "i": np.int64(index)})
        assert found["y"] == pytest.approx(some(3)[2] if index < 3 else some(3).sum(), rel=1e-5)
        assert found["which"] == (1.0 if index < 3 else 2.0)


def test_nested_bodies_capture_from_every_level(tmp_path: Path) -> None:
    graph = linnet.Graph()
    x, flip = place(graph, "x", (10, 4)), place(graph, "flip", (), "bool")
    w = graph.variable("w", some(4))
    outside = x.sum(0)

    def step(s: Any, row: Any) -> Any:
        scaled = row * w
        s = linnet.cond(flip, lambda: s + scaled, lambda: s - outside)
        k = linnet.while_loop(lambda v: v.sum() < 1.0, lambda v: v + ops.relu(w.tensor()) + 0.1, s, 3)
        return k, s

    last, rows = linnet.scan(step, graph.constant(np.zeros(4, np.float32)), x)
    graph.signature("infer", {"x": x, "flip": flip}, {"last": last, "rows": rows})
    graph.save(tmp_path / "m.lnt")
    for model in (graph, graph.copy(), tmp_path / "m.lnt"):
        session = linnet.Session(model)
        for value in (True, False):
            found = session.run({"x": some(10, 4, seed=5), "flip": np.bool_(value)})
            s, expected = np.zeros(4, np.float32), []
            for row in some(10, 4, seed=5):
                s = s + row * w.value if value else s - some(10, 4, seed=5).sum(0)
                expected.append(s)
                for _ in range(3):
                    s = s + np.maximum(w.value, 0) + np.float32(0.1) if s.sum() < 1 else s
            np.testing.assert_allclose(found["last"], s, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(found["rows"], expected, rtol=1e-4, atol=1e-5)


def test_a_result_that_stands_twice_may_be_read_once() -> None:
    graph = linnet.Graph()
    x = place(graph, "x", (3,))
    last, rows = linnet.scan(lambda s, v: ((new := s + v), new), graph.constant(np.float32(0)), x)
    for name, tensor in {"last": last, "rows": rows}.items():
        graph.signature(name, {"x": x}, {"y": tensor})
        found = linnet.Session(graph, name).run({"x": np.float32([1, 2, 3])})["y"]
        np.testing.assert_array_equal(found, 6 if name == "last" else [1, 3, 6])


def test_a_signature_takes_the_bodies_that_it_needs() -> None:
    graph = linnet.Graph()
    x = place(graph, "x", (12,))
    used, _ = linnet.scan(lambda s, v: (s + v, None), graph.constant(np.float32(0)), x)
    linnet.scan(lambda s, v: (s * v, None), graph.constant(np.float32(1)), x)
    graph.signature("infer", {"x": x}, {"y": used})
    assert [f.name for f in graph.functions] == ["infer", "scan"]


def test_errors() -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", (3, 2))
    with pytest.raises(linnet.UsageError, match=r"differ in the dtype or shape of result 0.*f32 \[3, 2\].*f32 \[2\]"):
        linnet.cond(x.sum() > 0, lambda: x * 1, lambda: x.sum(0))
    with pytest.raises(linnet.UsageError, match=r"differ in the dtype or shape of result 0.*f32 \[3, 2\].*i32"):
        linnet.cond(x.sum() > 0, lambda: x * 1, lambda: x.cast("i32"))
    with pytest.raises(linnet.UsageError, match=r"different structures.*\(\*, \*\)"):
        linnet.cond(x.sum() > 0, lambda: (x, x), lambda: x)
    with pytest.raises(linnet.UsageError, match=r"must be a bool scalar.*f32"):
        linnet.cond(x.sum(), lambda: x, lambda: x)
    with pytest.raises(linnet.UsageError, match=r"must return a bool scalar.*bool \[3, 2\]"):
        linnet.while_loop(lambda s: s > 0, lambda s: s, x)
    with pytest.raises(linnet.UsageError, match=r"dtype or shape of carried value 0.*f32 \[3, 2\].*i32"):
        linnet.while_loop(lambda s: s.sum() > 0, lambda s: s.cast("i32"), x)
    with pytest.raises(linnet.UsageError, match=r"carried value 1.*f32 \[3, 2\].*f32 \[2\]"):
        linnet.scan(lambda s, r: ((s[0] + 1, s[1].sum(0)), None), (x, x), x)
    with pytest.raises(linnet.UsageError, match=r"structure of the state.*\(\*, \*\)"):
        linnet.scan(lambda s, r: (s[0], None), (x, x), x)
    with pytest.raises(linnet.UsageError, match=r"differ in length.*\[3, 2\].*\[4\]"):
        linnet.scan(lambda s, r: (s, None), x, (x, graph.placeholder("y", (4,))))
    with pytest.raises(linnet.UsageError, match=r"cannot determine the number of iterations"):
        linnet.scan(lambda s, r: (s, None), x)
    with pytest.raises(linnet.UsageError, match=r"must return a pair"):
        linnet.scan(lambda s, r: s, x, x)
    with pytest.raises(linnet.UsageError, match=r"cannot determine the graph"):
        linnet.while_loop(lambda s: s < 3, lambda s: s + 1, 0)
    assert not graph.bodies
    kept = []
    linnet.scan(lambda s, r: (s, kept.append(r)), x, x)
    with pytest.raises(linnet.UsageError, match=r"belongs to function 'scan'"):
        graph.signature("infer", {"x": x}, {"y": x + kept[0]})


def test_random_numbers_in_a_loop_differ_by_iteration_and_by_step() -> None:
    graph = linnet.Graph(seed=3)
    x = graph.placeholder("x", (12, 200))
    v = graph.variable("v", np.ones(200, np.float32))

    def step(_: None, row: Any) -> tuple[None, Any]:
        return None, linnet.nn.dropout(row * v, 0.5, training=True)

    _, kept = linnet.scan(step, None, x)
    (slope,) = linnet.gradients(kept.sum(), [v])
    updates = graph.side_updates_of([kept])
    assert len(updates) == 1
    graph.signature("train", {"x": x}, {"kept": kept, "slope": slope}, updates=updates)
    session = linnet.Session(graph, "train")
    first, second = (session.run({"x": np.ones((12, 200), np.float32)}) for _ in range(2))
    rows = np.concatenate([first["kept"], second["kept"]])
    assert set(np.unique(rows)) == {0, 2} and len(np.unique(rows, axis=0)) == 24
    np.testing.assert_array_equal(first["slope"], first["kept"].sum(0))  # the same masks in reverse
    with pytest.raises(linnet.UsageError, match="from inside a branch or loop"):
        linnet.cond(x.sum() > 0, lambda: graph.side_update(v, v * 2) or x, lambda: x)
