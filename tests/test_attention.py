"""The op `attention` against NumPy, its gradient against that of its parts and finite differences, the pass that finds it in
models, and where it is taken apart again."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import linnet
from linnet import nn, ops
from linnet.autodiff import gradients
from linnet.builder.mapping import pointwise
from linnet.ir.function import Tensor
from linnet.passes.attention import expand_attention, find_attention

Array = npt.NDArray[Any]
RANDOM = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def _the_same_numbers_in_any_order() -> None:
    RANDOM.bit_generator.state = np.random.default_rng(7).bit_generator.state


def some(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def expected(
    q: Array, k: Array, v: Array, mask: Array | None = None, lengths: Array | None = None, past_k: Array | None = None,
    past_v: Array | None = None, *, scale: float = 0.0, causal: str = "none", window: int = 0, cap: float = 0.0,
) -> Array:  # fmt: skip
    """The op in f64, query by query and key by key."""
    past = 0 if past_k is None else past_k.shape[-2]
    if past_k is not None and past_v is not None:
        k, v = np.concatenate([past_k, k], -2), np.concatenate([past_v, v], -2)
    s = np.float64(q @ np.swapaxes(k, -1, -2)) * (scale or q.shape[-1] ** -0.5)
    s = cap * np.tanh(s / cap) if cap else s
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == bool else s + mask
    m, n = s.shape[-2:]
    for index in np.ndindex(*s.shape[:-2]):
        most = past if past_k is not None else n
        length = most if lengths is None else int(lengths[index[0] if len(lengths) > 1 else 0])
        slots = [j for j in range(n) if j < length or (past_k is not None and j >= past)]
        for i, j in itertools.product(range(m), range(n)):
            own = i + (len(slots) - m if causal == "end" else 0)
            at = slots.index(j) if j in slots else -1
            late = causal != "none" and (at > own or (window > 0 and at <= own - window))
            if at < 0 or late:
                s[(*index, i, j)] = -np.inf
    top = s.max(-1, keepdims=True)
    weights = np.exp(s - np.where(np.isfinite(top), top, 0))
    total = weights.sum(-1, keepdims=True)
    return np.asarray(weights / np.where(total == 0, 1, total) @ v)


def run(build: Any, **feeds: Array) -> Array:
    graph = linnet.Graph()
    made = build(**{name: graph.placeholder(name, x.shape, x.dtype) for name, x in feeds.items()})
    graph.signature("infer", {t.name: t for t in graph.main.inputs}, {"y": made})
    return np.asarray(linnet.Session(graph).run(feeds)["y"])


OPTIONS: list[dict[str, Any]] = [
    {}, {"scale": 0.3}, {"causal": "start"}, {"causal": "end"}, {"cap": 1.5}, {"causal": "end", "window": 3},
    {"causal": "start", "window": 2, "cap": 2.0, "scale": 1.1},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("operands", ["plain", "bool", "float", "lengths", "past", "past and lengths"])
def test_values(options: dict[str, Any], operands: str) -> None:
    q, k, v = some(2, 3, 5, 8), some(2, 3, 9, 8), some(2, 3, 9, 4)
    given: dict[str, Array] = {}
    if "past" in operands:
        given |= {"past_key": some(2, 3, 6, 8), "past_value": some(2, 3, 6, 4)}
    if "lengths" in operands:
        given["lengths"] = np.array([2, 6], np.int32)
    n = 15 if "past" in operands else 9
    if operands == "bool":
        given["mask"] = RANDOM.random((5, n)) < 0.6
    elif operands == "float":
        given["mask"] = some(2, 1, 1, n)
    want = expected(
        q, k, v, given.get("mask"), given.get("lengths"), given.get("past_key"), given.get("past_value"), **options
    )
    got = run(lambda **t: ops.attention(**t, **options), query=q, key=k, value=v, **given)
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-6)


def test_heads_that_share_keys_and_a_query_that_sees_nothing() -> None:
    q, k, v = some(2, 2, 3, 4, 8), some(2, 2, 1, 6, 8), some(2, 2, 1, 6, 8)
    mask = np.ones((4, 6), bool)
    mask[2] = False
    got = run(ops.attention, query=q, key=k, value=v, mask=mask)
    np.testing.assert_allclose(got, expected(q, k, v, mask), rtol=0, atol=2e-6)
    assert not got[..., 2, :].any()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("lead", "of_mask"),
    [((1,), (3,)), ((1, 2), (3, 2)), ((2, 1), (3, 1, 2)), ((2,), (3, 1)), ((2,), (1, 1)), ((), (4,)), ((3, 2), (3, 1))],
)
@pytest.mark.parametrize("kind", [bool, np.float32])
def test_masks_of_more_examples_than_the_query(
    lead: tuple[int, ...], of_mask: tuple[int, ...], kind: type, causal: bool, training: bool
) -> None:
    q, k, v, added = some(*lead, 5, 8), some(*lead, 5, 8), some(*lead, 5, 4), some(*of_mask, 5, 5)
    mask = added > 0 if kind is bool else added
    want = expected(q, k, v, mask, causal="start" if causal else "none")

    def build(mask: Tensor, **t: Tensor) -> Tensor:
        return nn.scaled_dot_product_attention(**t, mask=mask, causal=causal, training=training)

    got = run(build, query=q, key=k, value=v, mask=mask)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-6)


def test_a_mask_of_an_open_number_of_examples() -> None:
    q, mask = some(1, 4, 8), RANDOM.random((3, 4, 4)) < 0.7
    graph = linnet.Graph()
    x, m = graph.placeholder("x", (1, 4, 8)), graph.placeholder("m", ("batch", 4, 4), "bool")
    graph.signature("infer", {"x": x, "m": m}, {"y": nn.scaled_dot_product_attention(x, x, x, mask=m)})
    got = linnet.Session(graph).run({"x": q, "m": mask})["y"]
    np.testing.assert_allclose(got, expected(q, q, q, mask), rtol=0, atol=2e-6)


def test_rows_behind_the_length_are_not_read() -> None:
    q, k, v = some(1, 2, 8), some(1, 6, 8), some(1, 6, 8)
    k[:, 4:], v[:, 4:] = np.nan, np.inf
    lengths = np.array([4], np.int64)
    got = run(ops.attention, query=q, key=k, value=v, lengths=lengths)
    np.testing.assert_allclose(got, expected(q, k[:, :4], v[:, :4]), rtol=0, atol=2e-6)


@pytest.mark.parametrize("length", [-1, 7])
def test_a_length_out_of_range(length: int) -> None:
    with pytest.raises(linnet.Error, match="lengths"):
        run(
            ops.attention, query=some(1, 2, 8), key=some(1, 6, 8), value=some(1, 6, 8),
            lengths=np.array([length], np.int64),
        )  # fmt: skip


# ---- gradients


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("operands", ["float", "lengths", "past and lengths", "turned"])
def test_gradients(options: dict[str, Any], operands: str) -> None:
    """Finite differences in f64 along random directions."""
    arrays = {"query": some(2, 2, 3, 4), "key": some(2, 2, 5, 4), "value": some(2, 2, 5, 3)}
    lengths = np.array([2, 3])
    if operands == "float":
        arrays["mask"] = some(2, 1, 1, 5)
    elif operands == "turned":
        arrays["key"], options = np.swapaxes(arrays["key"], -1, -2).copy(), {**options, "key_transposed": True}
    if "past" in operands:
        arrays |= {"past_key": some(2, 1, 3, 4), "past_value": some(2, 1, 3, 3)}
    arrays = {name: x.astype(np.float64) for name, x in arrays.items()}
    weights = RANDOM.standard_normal((2, 2, 3, 3))
    graph = linnet.Graph()
    given = {name: graph.placeholder(name, x.shape, x.dtype) for name, x in arrays.items()}
    more = {"lengths": graph.constant(lengths)} if "lengths" in operands else {}
    y = ops.attention(**given, **more, **options)
    loss = ops.reduce(ops.multiply(y, graph.constant(weights)), kind="sum", keep_dims=False)
    found = gradients(loss, list(given.values()))
    graph.signature("infer", given, {"loss": loss})
    graph.signature("gradients", given, dict(zip(given, found, strict=True)))
    got = linnet.Session(graph, "gradients").run(arrays)
    session = linnet.Session(graph)
    for name, x in arrays.items():
        direction = RANDOM.standard_normal(x.shape)
        ends = [session.run({**arrays, name: x + step * direction})["loss"] for step in (1e-5, -1e-5)]
        assert np.sum(got[name] * direction) == pytest.approx(float(ends[0] - ends[1]) / 2e-5, rel=1e-5, abs=1e-7), name


# ---- the pass


def layer(
    form: Any, turned: bool = False, masks: int = 0, after: Any = None, zeros: float | None = None
) -> linnet.Graph:
    """softmax(form(q k^T, masks)) v as separate ops."""
    graph = linnet.Graph()
    q = graph.placeholder("q", [2, 3, 5, 8])
    k = graph.placeholder("k", [2, 3, 8, 5] if turned else [2, 3, 5, 8])
    v = graph.placeholder("v", [2, 3, 5, 4])
    given = [graph.placeholder(f"m{i}", [2, 1, 1, 5]) for i in range(masks)]
    scores = ops.matmul(q, k, transpose_b=not turned)
    if form is not None:
        scores = pointwise([scores, *given], form, "f32")
    weights = ops.softmax(scores)
    if zeros is not None:
        weights = pointwise([weights], lambda w: w.unary("is_nan").select(zeros, w), "f32")
    results = {"y": ops.matmul(weights, v), **(after(scores, weights) if after else {})}
    graph.signature("infer", {t.name: t for t in (q, k, v, *given)}, results)
    return graph


def count(graph: linnet.Graph) -> int:
    return sum(node.op == "attention" for function in graph.functions for node in function.nodes)


def values(graph: linnet.Graph, feeds: dict[str, Array]) -> dict[str, Array]:
    return {name: np.asarray(y) for name, y in linnet.Session(graph).run(feeds).items()}


LOW = -3e38
FORMS: dict[str, tuple[Any, int]] = {
    "nothing": (None, 0),
    "a factor": (lambda s: s * 0.35, 0),
    "a divisor": (lambda s: s / 2.5, 0),
    "a mask": (lambda s, m: s * 0.35 + m, 1),
    "the mask first": (lambda s, m: m + s / 3.0, 1),
    "two masks": (lambda s, m, n: s * 0.35 + m - n * 2.0, 2),
    "the sum times a factor": (lambda s, m: (s + m) * 0.5, 1),
    "a computed mask": (lambda s, m: s * 0.35 + (1.0 - m) * -10000.0, 1),
    "a choice": (lambda s, m: (m > 0.0).select(s * 0.35, LOW), 1),
    "hidden keys": (lambda s, m: (m > 0.0).select(LOW, s * 0.35), 1),
    "causal": (lambda s: (s.iota(3, "i32") <= s.iota(2, "i32")).select(s * 0.35, LOW), 0),
    "causal, turned": (lambda s: (s.iota(2) < s.iota(3)).select(LOW, s * 0.35), 0),
    "causal and a mask": (lambda s, m: (s.iota(3) <= s.iota(2)).select(s * 0.35 + m, LOW), 1),
    "a cap": (lambda s: (s * 0.35 / 4.0).unary("tanh") * 4.0, 0),
    "a cap and a mask": (lambda s, m: (s * 0.1).unary("tanh") * 4.0 + m, 1),
}


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", FORMS)
def test_forms_that_are_found(name: str, turned: bool) -> None:
    form, masks = FORMS[name]
    graph = layer(form, turned, masks)
    feeds = {t.name: some(*t.shape) for t in graph.signatures["infer"].function.inputs}
    for mask in (feeds[name] for name in feeds if name.startswith("m")):
        mask[..., :2] = [1, -1]  # each choice leaves a key to be seen; without one, only the op gives zeros
    want = values(graph, feeds)["y"]
    for function in graph.functions:
        find_attention(function)
    assert count(graph) == 1
    assert {node.op for function in graph.functions for node in function.nodes} <= {"attention", "map"}
    np.testing.assert_allclose(values(graph, feeds)["y"], want, rtol=0, atol=2e-6)
    for function in graph.functions:
        expand_attention(function)
    assert count(graph) == 0
    np.testing.assert_allclose(values(graph, feeds)["y"], want, rtol=0, atol=2e-6)


def test_a_query_without_keys_as_exporters_write_it() -> None:
    """A row of which all is hidden is NaN after the softmax, and 0 after the map behind it."""
    graph = layer(lambda s, m: s * 0.35 + m, masks=1, zeros=0.0)
    feeds = {t.name: some(*t.shape) for t in graph.signatures["infer"].function.inputs}
    feeds["m0"][1] = -np.inf
    want = values(graph, feeds)["y"]
    for function in graph.functions:
        find_attention(function)
    assert count(graph) == 1 and not want[1].any()
    np.testing.assert_allclose(values(graph, feeds)["y"], want, rtol=0, atol=2e-6)


OTHERS: dict[str, Any] = {
    "a square": layer(lambda s: s * s),
    "a factor that is computed": layer(lambda s, m: s * m, masks=1),
    "a filler that other scores reach": layer(lambda s, m: (m > 0.0).select(s, -5.0), masks=1),
    "a choice by the score": layer(lambda s: (s > 0.0).select(s, LOW)),
    "a negative cap": layer(lambda s: (s * 0.1).unary("tanh") * -4.0),
    "a key that sees later ones": layer(lambda s: (s.iota(3) >= s.iota(2)).select(s, LOW)),
    "ones in place of NaN": layer(None, zeros=1.0),
    "weights that are read": layer(None, after=lambda s, w: {"w": w}),
    "scores that are read": layer(lambda s: s * 0.5, after=lambda s, w: {"s": s}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_forms_that_are_left(name: str) -> None:
    graph = OTHERS[name]
    before = [node.op for function in graph.functions for node in function.nodes]
    assert not any(find_attention(function) for function in graph.functions)
    assert [node.op for function in graph.functions for node in function.nodes] == before


def test_products_with_constants_are_left() -> None:
    """They are packed when the model is planned, which is faster."""
    graph = linnet.Graph()
    x = graph.placeholder("x", [7, 8])
    weights = ops.softmax(ops.matmul(x, graph.constant(some(8, 16))))
    y = ops.matmul(weights, graph.constant(some(16, 4)))
    graph.signature("infer", {"x": x}, {"y": y})
    assert not any(find_attention(function) for function in graph.functions)


def test_quantization_takes_it_apart_and_halves_keep_it() -> None:
    x = some(2, 6, 16)
    graph = linnet.Graph()
    t = graph.placeholder("x", x.shape)
    q, k, v = (nn.dense(t, 16, name=name) for name in "qkv")
    graph.signature("infer", {"x": t}, {"y": ops.attention(q, k, v)})
    samples = [{"x": x}, *({"x": some(2, 6, 16)} for _ in range(2))]
    want = values(graph, samples[0])["y"]
    for dtype, nodes, error in (("i8", 0, 0.1), ("f16", 1, 5e-3)):
        made = linnet.quantize(graph, samples, dtype, effort="fast")
        assert count(made) == nodes and count(graph) == 1
        np.testing.assert_allclose(values(made, samples[0])["y"], want, rtol=0, atol=error * np.abs(want).max())


def test_a_layer_of_nn_has_it_unless_it_trains() -> None:
    x, results = some(2, 6, 16), []
    for training in (False, True):
        graph = linnet.Graph()
        y = nn.multi_head_attention(graph.placeholder("x", x.shape), heads=4, causal=True, training=training)
        graph.signature("infer", {"x": graph.main.inputs[0]}, {"y": y})
        assert count(graph) == (not training)
        results.append(values(graph, {"x": x})["y"])
    np.testing.assert_allclose(*results, rtol=0, atol=2e-6)
