"""The op `random` and the ONNX ops based on it: Philox's published answers, the same bits everywhere, and distributions.
Tests of distributions use fixed seeds, and bounds that a correct generator exceeds for one seed in a million."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import linnet
from linnet.facade import Graph
from linnet.ir.function import emit

MASK = 0xFFFFFFFF
WORST = 5.0  # standard deviations


def philox(counter: tuple[int, ...], key: tuple[int, int]) -> list[int]:
    """Philox4x32-10 as in the paper (Salmon et al. 2011), one block."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        a, b = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & MASK, (a >> 32) ^ c3 ^ k1, a & MASK
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return [c0, c1, c2, c3]


def graph_of(kind: str, shape: tuple[int, ...], seed: int = 0, stream: int = 0, counter: int | None = None) -> Graph:
    graph = Graph()
    main = graph.function()
    operands = [] if counter is None else [main.read(graph.variable("counter", np.int64(counter)))]
    attributes = {"kind": kind, "seed": seed, "stream": stream, "shape": shape}
    main.outputs += emit("random", operands, attributes, 1, function=main, name="y")
    graph.signature("infer", main)
    return graph


def draw(
    kind: str, shape: tuple[int, ...], seed: int = 0, stream: int = 0, counter: int = 0, **options: object
) -> np.ndarray:
    return next(iter(linnet.Session(graph_of(kind, shape, seed, stream, counter), **options).run({}).values()))  # type: ignore[arg-type]


def test_known_answers_of_random123() -> None:
    assert philox((0, 0, 0, 0), (0, 0)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox((MASK,) * 4, (MASK,) * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    digits = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)
    assert philox(*digits) == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


@pytest.mark.parametrize("seed, stream, counter", [(0, 0, 0), (-1, 7, 3), (0x123456789ABCDEF0, 0x9ABCDEF0, -2)])
def test_bits_are_philox(seed: int, stream: int, counter: int) -> None:
    words = [counter & MASK, counter >> 32 & MASK]
    key = (seed & MASK, seed >> 32 & MASK)
    expected = [w for block in range(5) for w in philox((block, stream, words[0], words[1]), key)]
    assert draw("bits", (3, 6), seed, stream, counter).reshape(-1).tolist() == expected[:18]


@pytest.mark.parametrize("kind", ["bits", "uniform", "normal"])
def test_same_bits_on_every_isa_and_thread_count(kind: str) -> None:
    expected = draw(kind, (37, 1001), 5, 2, 9, threads=1, isa_max="scalar")
    for isa in linnet.isa_names():
        for threads in (1, 2):
            assert np.array_equal(draw(kind, (37, 1001), 5, 2, 9, threads=threads, isa_max=isa), expected)


def test_uniform_is_24_bits_of_each_word() -> None:
    bits, uniform = draw("bits", (999,), 11), draw("uniform", (999,), 11)
    assert np.array_equal(uniform, ((bits >> 8) * 2.0**-24).astype(np.float32))


def test_normal_is_box_muller() -> None:
    bits = draw("bits", (4000,), 3).reshape(-1, 2)
    radius = np.sqrt(-2 * np.log(bits[:, 0] * 2.0**-32 + 2.0**-33))
    angle = bits[:, 1].astype(np.int32) * (np.pi * 2.0**-31)
    expected = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1)
    np.testing.assert_allclose(draw("normal", (4000,), 3), expected, rtol=2e-5, atol=2e-6)


def kolmogorov_smirnov(values: np.ndarray, distribution: object) -> float:
    """sqrt(n) times the largest distance of the empirical distribution function; above 2.7 for one seed in a million."""
    x = np.sort(values.astype(np.float64).reshape(-1))
    f = np.array([distribution(v) for v in x])  # type: ignore[operator]
    n = len(x)
    steps = np.arange(n + 1) / n
    return float(np.sqrt(n) * max(np.abs(f - steps[1:]).max(), np.abs(f - steps[:-1]).max()))


def test_distributions() -> None:
    n = 20000
    uniform, normal = draw("uniform", (n,), 17), draw("normal", (n,), 17)
    assert kolmogorov_smirnov(uniform, lambda v: v) < 2.7
    assert kolmogorov_smirnov(normal, lambda v: 0.5 * math.erfc(-v / math.sqrt(2))) < 2.7
    assert abs(uniform.mean() - 0.5) < WORST * math.sqrt(1 / 12 / n)
    assert abs(uniform.var() - 1 / 12) < WORST * math.sqrt(1 / 180 / n)
    assert abs(normal.mean()) < WORST / math.sqrt(n) and abs(normal.var() - 1) < WORST * math.sqrt(2 / n)
    for lag in (1, 2, 3, 4, 1000):  # neighbours, and their neighbours, are uncorrelated
        assert abs(np.mean(normal[lag:] * normal[:-lag])) < WORST / math.sqrt(n - lag)
    for other in ({"seed": 18}, {"stream": 1}, {"counter": 1}):
        assert abs(np.mean(normal * draw("normal", (n,), **{"seed": 17, **other}))) < WORST / math.sqrt(n)


def test_without_a_counter_it_is_a_constant() -> None:
    session = linnet.Session(graph_of("normal", (2, 3), 4))
    first = next(iter(session.run({}).values()))
    assert np.array_equal(first, next(iter(session.run({}).values())))
    assert np.array_equal(first, draw("normal", (2, 3), 4))


@pytest.mark.parametrize("shape", [(-1,), (1 << 40, 1), (1,) * 9])
def test_impossible_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(linnet.Error, match=r"random|dimension"):
        graph_of("uniform", shape)


# ---- ONNX


def model_of(
    nodes: list[onnx.NodeProto], inputs: dict[str, list[int]], outputs: list[str], **initial: object
) -> onnx.ModelProto:
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    results = [helper.make_empty_tensor_value_info(n) for n in outputs]
    tensors = [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in initial.items()]
    graph = helper.make_graph(nodes, "g", given, results, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])


def test_runs_draw_on_and_the_counter_repeats() -> None:
    nodes = [
        helper.make_node("RandomNormal", [], ["a"], shape=[50], seed=1.0),
        helper.make_node("RandomUniformLike", ["x"], ["b"], low=-3.0, high=5.0),
        helper.make_node("RandomUniformLike", ["x"], ["c"], low=-3.0, high=5.0),
    ]
    model = model_of(nodes, {"x": [40]}, ["a", "b", "c"])
    x = np.zeros(40, np.float32)
    session = linnet.Session(linnet.from_onnx(model))
    first, second = session.run({"x": x}), session.run({"x": x})
    assert not np.array_equal(first["a"], second["a"]) and not np.array_equal(first["b"], first["c"])
    assert -3 <= first["b"].min() < -1 and 3 < first["b"].max() < 5
    assert session.variables["random_counter"] == 2
    session.variables["random_counter"] = np.int64(0)
    again = session.run({"x": x})
    assert all(np.array_equal(first[n], again[n]) for n in first)
    other = linnet.Session(linnet.from_onnx(model)).run({"x": x})
    assert all(np.array_equal(first[n], other[n]) for n in first)


def test_iterations_of_a_loop_draw_different_numbers() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["going"]),
            helper.make_node("RandomNormal", [], ["r"], shape=[8]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
        ],
        [
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("r", TensorProto.FLOAT, [8]),
        ],
    )
    model = model_of([helper.make_node("Loop", ["n", ""], ["y"], body=body)], {}, ["y"], n=np.int64(6))
    session = linnet.Session(linnet.from_onnx(model))
    rows = np.concatenate([session.run({})["y"] for _ in range(3)])
    assert rows.shape == (18, 8) and len(np.unique(rows)) == 18 * 8


def test_bernoulli_and_multinomial() -> None:
    n = 20000
    nodes = [
        helper.make_node("Bernoulli", ["p"], ["b"]),
        helper.make_node("Multinomial", ["logits"], ["m"], sample_size=n),
    ]
    weights = np.array([[1, 2, 3, 4], [4, 0, 0, 1]], np.float32)
    model = model_of(nodes, {"p": [n]}, ["b", "m"], logits=np.log(np.maximum(weights, 1e-30)))
    p = np.linspace(0, 1, n, dtype=np.float32)
    result = linnet.Session(linnet.from_onnx(model)).run({"p": p})
    assert set(np.unique(result["b"])) == {0.0, 1.0}
    assert abs(result["b"].sum() - p.sum()) < WORST * math.sqrt(float((p * (1 - p)).sum()))
    assert result["m"].shape == (2, n) and result["m"].dtype == np.int32
    for row, drawn in zip(weights / weights.sum(1, keepdims=True), result["m"], strict=True):
        found = np.bincount(drawn, minlength=4)
        assert (np.abs(found - n * row) <= WORST * np.sqrt(n * row * (1 - row))).all()


@pytest.mark.parametrize("training", [True, False])
def test_dropout(training: bool) -> None:
    n, ratio = 20000, 0.3
    nodes = [helper.make_node("Dropout", ["x", "ratio", "mode"], ["y", "mask"], seed=1)]
    model = model_of(nodes, {"x": [n]}, ["y", "mask"], ratio=np.float32(ratio), mode=np.bool_(training))
    x = np.linspace(1, 2, n, dtype=np.float32)
    result = linnet.Session(linnet.from_onnx(model)).run({"x": x})
    mask = result["mask"]
    if not training:
        assert mask.all() and np.array_equal(result["y"], x)
        return
    assert abs(mask.sum() - n * (1 - ratio)) < WORST * math.sqrt(n * ratio * (1 - ratio))
    np.testing.assert_allclose(result["y"], np.where(mask, x / (1 - ratio), 0), rtol=1e-6)
