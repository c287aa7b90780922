"""How the quantizer decides: observers, calibrators, rounding whose errors cancel, corrected biases, equalized channels, and the
search among them. The references are plain NumPy over all values that an observer saw."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet._generated.op_table import OPCODES
from linnet.ir.function import Node
from linnet.quantization.calibrators import CALIBRATORS, choose, noise
from linnet.quantization.clamps import keeps_scale
from linnet.quantization.equalize import pairs
from linnet.quantization.observe import HALF, Batches, Observation, Seen
from linnet.quantization.rounding import rounded
from linnet.quantization.rows import Rows, as_rows, from_rows

RNG = np.random.default_rng(11)


Feeds = dict[str, np.ndarray]


def seen_of(*arrays: np.ndarray) -> Seen:
    seen = Seen()
    for array in arrays:
        seen.include(array.astype(np.float32))
    return seen


def test_what_is_seen_is_what_numpy_says() -> None:
    arrays = [RNG.standard_normal((3, 1000)) * scale + 1 for scale in (0.01, 1.0, 50.0)]  # the histogram has to grow
    seen, every = seen_of(*arrays), np.concatenate([a.reshape(-1) for a in arrays]).astype(np.float32)
    assert (seen.low, seen.high) == (every.min(), every.max()) and seen.batches == 3
    assert seen.mean_low == pytest.approx(np.mean([a.min() for a in arrays]))
    assert seen.power == pytest.approx(float(np.square(every).mean()), rel=1e-4)
    assert seen.counts.sum() == every.size
    edges = (np.arange(2 * HALF + 1) - HALF) * seen.width
    assert (
        np.abs(np.histogram(every, edges)[0] - seen.counts).sum() <= every.size * 0.2
    )  # joined bins lie a bin off at most
    assert np.allclose(
        np.cumsum(np.histogram(every, edges)[0])[:: HALF // 8], np.cumsum(seen.counts)[:: HALF // 8], atol=60
    )


def test_a_joined_range_covers_both() -> None:
    a, b = seen_of(RNG.uniform(-1, 1, 500)), seen_of(RNG.uniform(0, 9, 500))
    a.join(b)
    assert a.low < -0.9 and a.high > 8.9 and a.counts.sum() == 1000
    c = Seen()
    c.join(b)
    assert (c.low, c.high) == (b.low, b.high)


@pytest.mark.parametrize("name", sorted(CALIBRATORS))
def test_calibrators_give_ranges_inside_the_extremes(name: str) -> None:
    values = np.concatenate([RNG.standard_normal(20000), [40.0, -35.0]])
    found = choose(seen_of(values), name, 256)
    assert values.min() - 1e-3 <= found.low <= 0 <= found.high <= values.max() + 1e-3
    if name in ("minmax", "mean", "moving"):
        assert found.high == pytest.approx(40.0)
    elif name in ("percentile", "entropy"):
        assert found.high < 20


def test_the_noise_is_that_of_rounded_values() -> None:
    values = RNG.laplace(size=40000).astype(np.float32)
    seen = seen_of(values)
    for low, high in ((-4.0, 4.0), (-9.0, 9.0), (-1.0, 12.0)):
        step = (high - low) / 255
        real = np.clip(np.rint(values / step) * step, low, high) - values
        assert noise(seen, low, high, 256) == pytest.approx(
            float(np.square(real).mean() / np.square(values).mean()), rel=0.1
        )


def test_auto_has_no_more_noise_than_any_other_on_its_own_terms() -> None:
    for values in (
        RNG.standard_normal(30000),
        RNG.laplace(size=30000) ** 3,
        np.abs(RNG.standard_normal(30000)),
        np.zeros(10),
    ):
        seen = seen_of(values)
        auto, plain = choose(seen, "auto", 256), choose(seen, "minmax", 256)
        power = 2.4
        assert noise(seen, auto.low, auto.high, 256, power) <= noise(seen, plain.low, plain.high, 256, power) + 1e-12


def test_constant_and_empty_tensors_have_a_range() -> None:
    assert choose(Seen(), "auto", 256).high == 0
    flat = choose(seen_of(np.full(50, 3.0)), "auto", 256)
    assert flat.high == pytest.approx(3.0, rel=0.02)


def network(kind: str) -> tuple[linnet.Graph, Node]:
    """One product of each kind, with its bias."""
    graph = linnet.Graph()

    def weights(*shape: int) -> np.ndarray:
        return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    if kind == "matmul":
        x = graph.placeholder("x", (4, 24))
        y = ops.matmul(x, graph.constant(weights(24, 10)), graph.constant(weights(10)))
    elif kind == "conv_transpose":
        x = graph.placeholder("x", (1, 6, 9, 9))
        y = ops.conv_transpose(x, graph.constant(weights(6, 4, 2, 2)), graph.constant(weights(4)), strides=[2, 2])
    else:
        group = {"conv": 1, "grouped": 2, "depthwise": 6}[kind]
        x = graph.placeholder("x", (2, 6, 9, 8))
        y = ops.conv(x, graph.constant(weights(6, 6 // group, 3, 3)), graph.constant(weights(6)), group=group,
                     pads=[1, 0, 1, 2], strides=[1, 2], dilations=[2, 1])  # fmt: skip
    graph.signature("infer", {"x": x}, {"y": y})
    function = graph.signatures["infer"].function
    return graph, function.nodes[-1]


KINDS = ("matmul", "conv", "grouped", "depthwise", "conv_transpose")


def fed(graph: linnet.Graph, count: int = 20) -> list[Feeds]:
    shape = graph.signatures["infer"].function.inputs[0].static_shape
    assert shape is not None
    mixing = RNG.standard_normal((shape[1], shape[1]))  # channels that depend on each other, with a mean

    def one() -> np.ndarray:
        made = np.moveaxis(np.tensordot(mixing, RNG.standard_normal(shape), (1, 1)), 0, 1) + 0.7
        return np.asarray(made, np.float32)

    return [{"x": one()} for _ in range(count)]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_times_weights_are_the_outputs(kind: str) -> None:
    """Means and second moments of the rows give those of the product's outputs."""
    graph, node = network(kind)
    feeds = fed(graph)
    observation = Observation(graph, [], [node])
    observation.run(Batches(feeds, ["x"]))
    rows = observation.rows[node]
    w, bias = node.inputs[1], node.inputs[2]
    assert w is not None and w.data is not None and bias is not None and bias.data is not None and rows.mean is not None
    real = as_rows(node, w.data.astype(np.float64))
    assert np.array_equal(from_rows(node, as_rows(node, w.data), w.data.shape), w.data)
    outputs = np.stack([linnet.Session(graph).run(f)["y"] for f in feeds]).astype(np.float64)
    axis = -1 if kind == "matmul" else 2
    flat = np.moveaxis(outputs, axis, 0).reshape(outputs.shape[axis], -1) - bias.data[:, None]
    assert (real @ rows.mean[:, :, None]).reshape(-1) == pytest.approx(flat.mean(axis=1), abs=0.25)
    if rows.second is not None:
        power = np.einsum("gok,gok->go", real @ rows.second, real).reshape(-1)
        assert power == pytest.approx(np.square(flat).mean(axis=1), rel=0.25)
    else:
        assert kind == "conv_transpose"


@pytest.mark.parametrize("kind", KINDS[:4])
def test_careful_rounding_lowers_the_error_of_the_outputs(kind: str) -> None:
    graph, node = network(kind)
    observation = Observation(graph, [], [node])
    observation.run(Batches(fed(graph, 40), ["x"]))
    w = node.inputs[1]
    assert w is not None and w.data is not None
    axis = 1 if kind == "matmul" else 0
    plain = rounded(node, w.data, axis, 0.0, 4, observation.rows[node], careful=False)
    careful = rounded(node, w.data, axis, 0.0, 4, observation.rows[node])
    assert plain.noise is not None and careful.noise is not None
    # The taps of a depthwise convolution see fields that hardly depend on each other here, so there may be nothing to gain.
    assert careful.noise <= (0.95 if kind != "depthwise" else 1.0) * plain.noise
    assert np.abs(careful.values).max() <= 7 and np.array_equal(careful.parameters.scale, plain.parameters.scale)


def test_the_bias_gets_what_rounding_takes_from_the_mean() -> None:
    graph, _ = network("conv_transpose")
    feeds = fed(graph, 30)
    errors = {}
    for effort in ("fast", "normal"):
        small = linnet.quantize(graph, feeds, "i16", effort=effort, weight_bits=3)
        session, exact = linnet.Session(small), linnet.Session(graph)
        difference = np.stack([session.run(f)["y"] - exact.run(f)["y"] for f in feeds])
        errors[effort] = float(np.abs(difference.mean(axis=(0, 1, 3, 4))).max())
    assert errors["normal"] < 0.3 * errors["fast"]


def test_channels_between_two_products_are_equalized() -> None:
    """One channel is a hundred times as large as the others: alone, it takes all of the 8 bits."""
    graph = linnet.Graph()
    x = graph.placeholder("x", (1, 8, 12, 12))
    first = (RNG.standard_normal((16, 8, 3, 3)) / 8).astype(np.float32)
    second = (RNG.standard_normal((6, 16, 3, 3)) / 12).astype(np.float32)
    first[3] *= 100
    second[:, 3] /= 100
    hidden = ops.relu(ops.conv(x, graph.constant(first), pads=[1] * 4))
    graph.signature("infer", {"x": x}, {"y": ops.conv(hidden, graph.constant(second))})
    assert len(pairs(graph.signatures["infer"].function)) == 1
    feeds = [{"x": RNG.standard_normal((1, 8, 12, 12)).astype(np.float32)} for _ in range(16)]
    exact, test = linnet.Session(graph), feeds[0]
    want = exact.run(test)["y"]

    def error(effort: str) -> float:
        return float(
            np.abs(linnet.Session(linnet.quantize(graph, feeds, "i8", effort=effort)).run(test)["y"] - want).mean()
        )

    assert error("normal") < 0.5 * error("fast")


def test_samples_that_come_once_serve_several_passes() -> None:
    graph, _ = network("conv")
    feeds = fed(graph, 5)

    def once() -> Iterator[Feeds]:
        yield from feeds

    a, b = (linnet.quantize(graph, samples, "i8").to_bytes() for samples in (feeds, once()))
    assert a == b


@pytest.mark.parametrize(
    ("samples", "text"),
    [
        ([], "no calibration batch"),
        ([{"x": np.zeros((2, 6, 9, 8), np.float32)}], "all zero"),
        ([{"x": np.full((2, 6, 9, 8), np.nan, np.float32)}], "NaN"),
        ([np.zeros(3)], "not a mapping"),
    ],
)
def test_bad_samples_are_named(samples: list[Feeds], text: str) -> None:
    graph, _ = network("conv")
    with pytest.raises(linnet.Error, match=text):
        linnet.quantize(graph, samples, "i8")


def test_constant_samples_are_named() -> None:
    graph, _ = network("conv")
    with pytest.warns(UserWarning, match="constant: 'x' is always 2"):
        linnet.quantize(graph, [{"x": np.full((2, 6, 9, 8), 2, np.float32)}] * 2, "i8")


def test_rows_of_unknown_layout_are_left_out() -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", (24, 4))
    y = ops.matmul(x, graph.constant(RNG.standard_normal((24, 5)).astype(np.float32)), transpose_a=True)
    graph.signature("infer", {"x": x}, {"y": y})
    node = graph.signatures["infer"].function.nodes[-1]
    rows = Rows(node)
    rows.include(np.ones((24, 4), np.float32))
    rows.settle()
    assert rows.mean is None
    feeds = [{"x": RNG.standard_normal((24, 4)).astype(np.float32)} for _ in range(4)]
    small = linnet.quantize(graph, feeds, "i8")
    assert np.abs(linnet.Session(small).run(feeds[0])["y"] - linnet.Session(graph).run(feeds[0])["y"]).max() < 0.5


def test_which_maps_keep_the_scale() -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", (2, 6))
    slope = graph.constant(np.linspace(0.1, 0.6, 6, dtype=np.float32))
    other = graph.placeholder("z", (2, 6))
    kept = [ops.relu(x), ops.leaky_relu(x, 0.1), x * 3.0, -x, abs(x) * slope, ops.where(x > 0.0, x, x * (slope * 2.0))]
    lost = [ops.clip(x, 0.0, 6.0), x + 1.0, x * x, ops.sigmoid(x), ops.where(x > 1.0, x, x * slope), x * other]
    graph.signature("infer", {"x": x, "z": other}, {f"y{i}": y for i, y in enumerate([*kept, *lost])})
    nodes = {n.outputs[0]: n for n in graph.signatures["infer"].function.nodes if n.op == "map"}
    found = [keeps_scale(nodes[t]) for t in graph.signatures["infer"].function.outputs]
    assert found == [True] * len(kept) + [False] * len(lost)


def test_divisions_by_constants_become_products_in_integer_maps() -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", (1, 8, 16, 16))
    w = graph.constant((RNG.standard_normal((8, 8, 1, 1)) / 3).astype(np.float32))
    y = ops.conv(x, w)
    y = y * ops.clip(y + 3.0, 0.0, 6.0) / 6.0
    graph.signature("infer", {"x": x}, {"y": ops.conv(y, w)})
    feeds = [{"x": RNG.standard_normal((1, 8, 16, 16)).astype(np.float32)} for _ in range(6)]
    small = linnet.quantize(graph, feeds, "i8")
    (hard,) = [n for n in small.signatures["infer"].function.nodes if n.op == "map" and n.outputs[0].dtype == "i8" and len(
        n.attributes["program"]) > 20]  # fmt: skip
    words = hard.attributes["program"]
    assert OPCODES["div"][0] not in words[::5] and OPCODES["mul"][0] in words[::5]
    want, got = (linnet.Session(g).run(feeds[0])["y"] for g in (graph, small))
    assert np.abs(got - want).max() < 0.05 * np.abs(want).max()
