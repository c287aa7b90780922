"""When the quantizer gives layers more bits: how it judges outputs, and that networks which 8 bits, 16 bits or halves hurt are
repaired by few wider layers. The references are NumPy and the float graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.quantization.goal import TARGETS
from linnet.quantization.judge import Judge, Kind, Nearness, _decisions, _varying, kind_of
from linnet.quantization.observe import Batches

RNG = np.random.default_rng(23)
Feeds = dict[str, np.ndarray]


def feeds(count: int, *shape: int) -> list[Feeds]:
    return [{"x": RNG.standard_normal(shape).astype(np.float32)} for _ in range(count)]


def graph_of(kind: str, noise: np.ndarray | None = None) -> linnet.Graph:
    """x [4,6] plus noise, as classes, scores, integers or plain values."""
    graph = linnet.Graph()
    x = graph.placeholder("x", (4, 6))
    y = x if noise is None else ops.add(x, graph.constant(noise.astype(np.float32)))
    y = {
        "classes": lambda: ops.softmax(y, axis=1),
        "scores": lambda: ops.sigmoid(ops.multiply(y, graph.constant(np.float32(8)))),
        "gains": lambda: ops.sigmoid(y),
        "log": lambda: ops.log(ops.softmax(y, axis=1)),
        "integers": lambda: ops.argmax(y, 1),
        "values": lambda: ops.multiply(y, graph.constant(np.float32(3))),
    }[kind]()
    graph.signature("infer", {"x": x}, {"y": y})
    return graph


def judged(kind: str, noise: np.ndarray) -> tuple[Judge, Nearness]:
    samples = feeds(8, 4, 6)
    graph = graph_of(kind)
    judge = Judge(graph, Batches(samples, ["x"]), 8, TARGETS["i8"], 1)
    return judge, judge.compare(graph_of(kind, noise))


@pytest.mark.parametrize("kind", ["classes", "scores", "integers", "values"])
def test_an_equal_graph_is_near(kind: str) -> None:
    _, near = judged(kind, np.zeros((4, 6)))
    assert near.error == 0.0 and near.excess == 1.0


@pytest.mark.parametrize(
    ("kind", "seen"),
    [("classes", Kind(1)), ("scores", Kind(-1)), ("gains", Kind(None)), ("log", Kind(1, "log")), ("integers", Kind(None)),
     ("values", Kind(1, "logits"))],
)  # fmt: skip
def test_the_kind_of_an_output_is_seen_in_its_values(kind: str, seen: Kind) -> None:
    judge, _ = judged(kind, np.zeros((4, 6)))
    assert judge.kinds == {"y": seen}


def test_kinds_of_other_outputs() -> None:
    """Coordinates in pixels are no logits, a state is none, and pixels decide nothing."""
    several = [RNG.uniform(size=(1, 64)) for _ in range(4)]
    assert kind_of([(200 * v).astype(np.float32) for v in several]) == Kind(None)
    assert kind_of([(v.reshape(1, 1, 64) * 9).astype(np.float32) for v in several]) == Kind(None)
    assert kind_of([v.reshape(1, 1, 8, 8).astype(np.float32) for v in several]) == Kind(None)
    assert kind_of([(v.reshape(1, 4, 16) * 9).astype(np.float32) for v in several]) == Kind(2, "logits")
    assert kind_of([np.full((1, 4), np.nan, np.float32)]) == Kind(None)


def test_logits_have_an_order_too() -> None:
    """An error far below the power of the logits changes the best class of half of the rows."""
    noise = np.zeros((4, 6))
    noise[:2, 3] = 1.5
    _, near = judged("values", noise)
    assert near.loss > 0.1 and near.excess >= near.loss / TARGETS["i8"].classes * 0.999


def test_few_decisions_cannot_tell() -> None:
    samples = feeds(8, 4, 6)
    many, few = (
        Judge(graph_of("classes"), Batches(part, ["x"]), 8, TARGETS["i8"], 1) for part in (samples, samples[:2])
    )
    assert many.doubt() == "" and "2 samples with" in few.doubt() and "give 50 samples" in few.doubt()
    assert Judge(graph_of("gains"), Batches(samples[:2], ["x"]), 8, TARGETS["i8"], 1).doubt() == ""


def test_samples_that_are_judged_are_not_observed() -> None:
    samples = feeds(16, 4, 6)
    kept, held = Batches(iter(samples), ["x"]).parted(4)
    assert (kept.count, held.count) == (12, 4)
    assert [f["x"][0, 0] for f in held] == [samples[i]["x"][0, 0] for i in (3, 7, 11, 15)]
    assert len(list(kept)) == 12 and len(list(held)) == 4  # again


def test_changed_decisions_count_and_ties_do_not() -> None:
    noise = np.zeros((4, 6))
    noise[0, 3] = 50.0  # the first row always says class 3
    judge, near = judged("classes", noise)
    best = np.concatenate([np.sort(w, 1)[None] for w in judge.wanted["y"]])
    clear = best[..., -1] - best[..., -2] >= 0.1
    changed = clear[:, 0] & (np.stack(judge.wanted["y"])[:, 0].argmax(1) != 3)
    assert near.excess == pytest.approx(
        max(changed.sum() / clear.sum() / 0.01, near.error / TARGETS["i8"].scores / 0.3)
    )


def test_scores_are_compared_with_a_half() -> None:
    noise = np.zeros((4, 6))
    noise[:, 0] = -50.0
    judge, near = judged("scores", noise)
    high = np.stack(judge.wanted["y"]) > 0.5
    assert near.excess >= high[:, :, 0].sum() / high.sum() / 0.006 > 1


def test_values_are_compared_with_what_changes_in_them() -> None:
    """A constant in front of all values is no excuse for an error."""
    noise = np.full((4, 6), 0.1)
    judge, near = judged("values", noise)
    values = np.stack(judge.wanted["y"]).astype(np.float64)
    assert near.error == pytest.approx(0.09 / np.square(values - values.mean(axis=0)).mean(), rel=1e-3)
    assert near.excess == pytest.approx(near.error / TARGETS["i8"].values)


def test_an_output_that_hardly_changes_allows_a_thousandth_of_its_power() -> None:
    values = [np.full(4, 10.0), np.full(4, 10.0), np.full(4, 10.001)]
    assert _varying(values) == pytest.approx(0.1, rel=1e-3)
    assert _varying(values[:2]) == pytest.approx(100.0)


def test_other_shapes_are_other_decisions() -> None:
    assert _decisions(np.arange(3), np.arange(4), None) == (1, 1)
    assert _decisions(np.arange(3), np.arange(3), None) == (0, 3)


def test_samples_are_taken_from_all_of_the_calibration() -> None:
    samples = feeds(9, 4, 6)
    batches = Batches(samples, ["x"])
    assert len(list(batches)) == 9  # observing the ranges counts them
    judge = Judge(graph_of("values"), batches, 4, TARGETS["i8"], 1)
    assert [taken["x"][0, 0] for taken in judge.samples] == [samples[i]["x"][0, 0] for i in (0, 2, 4, 6)]


def regression(layers: int) -> linnet.Graph:
    """Products in a row, the third of which has one channel a thousand times as large as the others."""
    graph = linnet.Graph()
    x = y = graph.placeholder("x", (16, 32))
    for i in range(layers):
        w = RNG.standard_normal((32, 32)).astype(np.float32) / 6
        if i == 2:
            w[:, 0] *= 1000.0
        if i == 3:
            w[0] /= 1000.0
        y = ops.tanh(ops.matmul(y, graph.constant(w))) if i != 2 else ops.matmul(y, graph.constant(w))
    graph.signature("infer", {"x": x}, {"y": y})
    return graph


def test_few_layers_get_more_bits(tmp_path: Path) -> None:
    graph, samples = regression(8), feeds(8, 16, 32)
    made = linnet.quantize(graph, samples, "i8", table_out=tmp_path / "table.txt")
    fast = linnet.quantize(graph, samples, "i8", effort="fast")
    table = (tmp_path / "table.txt").read_text().splitlines()
    wide = [line for line in table if line.startswith("layer") and line.split("#")[0].split()[-1] != "i8"]
    tested = feeds(8, 16, 32)

    def ratio(other: linnet.Graph) -> float:
        one, two = linnet.Session(graph), linnet.Session(other)
        pairs = [(one.run(f)["y"], two.run(f)["y"]) for f in tested]
        return float(sum(np.square(a - b).sum() for a, b in pairs) / sum(np.square(a).sum() for a, _ in pairs))

    assert 1 <= len(wide) <= 3
    assert ratio(made) < 10**-2.0 and ratio(made) < ratio(fast) / 4


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_infinite_values_of_a_float_graph_stay_f32(dtype: str) -> None:
    """log(0) is minus infinity in the float graph, and its exponential is 0 again."""
    graph = linnet.Graph()
    x = graph.placeholder("x", (4, 6))
    w = graph.constant(np.eye(6, dtype=np.float32))
    graph.signature("infer", {"x": x}, {"y": ops.matmul(ops.exp(ops.log(ops.relu(x))), w)})
    samples = feeds(6, 4, 6)
    made = linnet.Session(linnet.quantize(graph, samples, dtype))
    for sample in samples:
        assert np.allclose(made.run(sample)["y"], np.maximum(sample["x"], 0), rtol=0.02, atol=1e-3)


def test_halves_that_lose_too_much_stay_f32() -> None:
    """The difference of two large sums has few bits left in f16."""
    graph = linnet.Graph()
    x = graph.placeholder("x", (8, 64))
    a = RNG.standard_normal((64, 64)).astype(np.float32)
    b = a + RNG.standard_normal((64, 64)).astype(np.float32) * 1e-3
    graph.signature(
        "infer", {"x": x}, {"y": ops.subtract(ops.matmul(x, graph.constant(a)), ops.matmul(x, graph.constant(b)))}
    )
    samples = feeds(6, 8, 64)
    floats = linnet.Session(graph)

    def error(effort: str) -> float:
        made = linnet.Session(linnet.quantize(graph, samples, "f16", effort=effort))
        pairs = [(floats.run(f)["y"], made.run(f)["y"]) for f in samples]
        return float(sum(np.square(p - q).sum() for p, q in pairs) / sum(np.square(p).sum() for p, _ in pairs))

    assert error("fast") > 1e-3 and error("normal") < 1e-4
