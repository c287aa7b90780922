"""How the quantizer judges detectors: only the candidates that count are compared. The outputs are those of a small graph whose
weights decide which candidates are objects; the references are NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.quantization.detections import candidates_of, joined_of
from linnet.quantization.goal import TARGETS
from linnet.quantization.judge import Judge, Nearness
from linnet.quantization.observe import Batches

ROWS = 96  # candidates
OBJECTS = (5, 40)


def outputs(form: str, samples: int = 4) -> dict[str, list[np.ndarray]]:
    rng = np.random.default_rng(7)
    scores = np.full((samples, 1, ROWS, 1), -6.0)
    scores[:, :, OBJECTS, :] = 3.0
    scores += rng.uniform(-0.5, 0.5, scores.shape)
    scores = 1 / (1 + np.exp(-scores)) if form == "scores" else scores
    boxes = rng.standard_normal((samples, 1, ROWS, 4))
    return {"s": list(scores.astype(np.float32)), "b": list(boxes.astype(np.float32))}


@pytest.mark.parametrize("form", ["scores", "sigmoid"])
def test_scores_and_boxes_belong_together(form: str) -> None:
    found = candidates_of(outputs(form))
    assert {name: one.form for name, one in found.items()} == {"s": form, "b": ""}
    for one in found.values():
        for which in one.counted:
            assert (
                set(OBJECTS) <= set(np.flatnonzero(which)) and which.sum() == 4
            )  # the objects, and the best of the others


def test_what_is_no_detector() -> None:
    made = outputs("sigmoid")
    assert not candidates_of({"s": made["s"]})  # no boxes
    assert not candidates_of({"b": made["b"]})
    assert not candidates_of(
        {"s": [v[:, :50] for v in made["s"]], "b": [v[:, :50] for v in made["b"]]}
    )  # few candidates
    assert not candidates_of({**made, "s": [v + 8 for v in made["s"]]})  # a mask: many are above a half
    assert not candidates_of({**made, "s": [v - 9 for v in made["s"]]})  # no object on any sample
    assert not candidates_of({**made, "b": [v[..., :2] for v in made["b"]]})  # two numbers are no box
    assert not candidates_of({**made, "s": [v.astype(np.int64) for v in made["s"]]})


def test_distances_are_those_of_the_objects() -> None:
    made = outputs("sigmoid")
    boxes = candidates_of(made)["b"]
    moved = made["b"][0].copy()
    others = [i for i in range(ROWS) if not boxes.counted[0][i]]
    moved[:, others] += 100.0
    assert boxes.distance(0, moved) == 0.0
    moved[:, OBJECTS[0]] += 0.5
    held = np.concatenate([v[0][which].astype(np.float64) for v, which in zip(made["b"], boxes.counted, strict=True)])
    power = np.square(held - held.mean(axis=0)).mean()
    assert boxes.distance(0, moved) == pytest.approx(0.5**2 / 4 / power, rel=1e-5)
    assert boxes.distance(0, moved[:, :50]) == 1.0 and boxes.decisions(0, moved) == (0, 0)


def test_decisions_are_those_that_f32_is_sure_of() -> None:
    made = outputs("scores")
    made["s"][0][0, 40] = 0.55
    scores = candidates_of(made)["s"]
    changed = made["s"][0].copy()
    changed[0, 40] = 0.45  # a tie
    assert scores.decisions(0, changed) == (0, 2)
    changed[0, 5], changed[0, 6] = 0.3, 0.9
    assert scores.decisions(0, changed) == (2, 3)
    assert scores.decisions(0, changed[:, :50]) == (1, 1)


def yolo(across: bool, coordinates: float = 320.0, objectness: bool = False) -> list[np.ndarray]:
    """[1, 4 + numbers, candidates] if across, or [1, candidates, 4 + numbers], of four samples: centre and size of each box, then
    three scores of classes, behind one that says whether there is an object at all."""
    rng = np.random.default_rng(19)
    boxes = rng.uniform(0, coordinates, (4, 1, ROWS, 4))
    classes = rng.uniform(0.8 if objectness else 0.0, 1.0 if objectness else 0.1, (4, 1, ROWS, 3))
    first = rng.uniform(0, 0.1, (4, 1, ROWS, 1))
    (first if objectness else classes)[:, :, OBJECTS] = 0.9
    found = np.concatenate([boxes, *([first] if objectness else []), classes], axis=3).astype(np.float32)
    return list(np.swapaxes(found, 2, 3) if across else found)


@pytest.mark.parametrize("across", [True, False])
@pytest.mark.parametrize("coordinates", [320.0, 1.0])
@pytest.mark.parametrize("objectness", [True, False])
def test_boxes_and_scores_in_one_array_are_taken_apart(across: bool, coordinates: float, objectness: bool) -> None:
    values = yolo(across, coordinates, objectness)
    one = joined_of({"y": values})["y"]
    assert one.across == across and np.flatnonzero(~one.scores).tolist() == [0, 1, 2, 3]
    apart = [one.parts("y", v) for v in values]
    rows = np.swapaxes(values[2], 1, 2) if across else values[2]
    np.testing.assert_array_equal(apart[2]["y (boxes)"], rows[..., :4])
    np.testing.assert_array_equal(apart[2]["y (scores)"], rows[..., 4:])
    found = candidates_of({part: [v[part] for v in apart] for part in apart[0]})
    assert {name: held.form for name, held in found.items()} == {"y (boxes)": "", "y (scores)": "scores"}
    for which in found["y (boxes)"].counted:
        assert set(OBJECTS) <= set(np.flatnonzero(which)) and which.sum() == 4


def test_what_does_not_join_boxes_and_scores() -> None:
    values = yolo(True)
    assert not joined_of({"y": [v[:, :4] for v in values]})  # no scores
    assert not joined_of({"y": [v * 2 for v in values]})  # numbers beyond 1 are no scores
    assert not joined_of({"y": [v[0] for v in values]})
    notes = (
        np.random.default_rng(3).uniform(0, 1, (4, 1, 172, 88)) ** 40
    )  # notes of a song: all are scores, few are high
    assert not joined_of({"y": list(notes.astype(np.float32))})


def test_a_judge_compares_the_boxes_of_objects_in_joined_outputs() -> None:
    """x [1,1] times the output of a sample: the error of the background's boxes does not count."""
    value = yolo(True)[0]
    noise = np.random.default_rng(5).standard_normal(value.shape).astype(np.float32) * 20
    noise[:, 4:] = 0

    def made(error: np.ndarray) -> linnet.Graph:
        graph = linnet.Graph()
        x = graph.placeholder("x", (1, 1))
        graph.signature(
            "infer", {"x": x}, {"y": ops.multiply(graph.constant(value + error), ops.reshape(x, (1, 1, 1)))}
        )
        return graph

    feeds = [{"x": np.full((1, 1), 1 - 0.01 * i, np.float32)} for i in range(8)]
    judge = Judge(made(np.zeros_like(value)), Batches(feeds, ["x"]), 8, TARGETS["i8"], 1)
    assert set(judge.candidates) == {"y (boxes)", "y (scores)"} and not judge.lost(made(noise))
    counted = judge.candidates["y (boxes)"].counted[0]
    assert judge.compare(made(np.where(counted, 0, noise))).excess == 1.0
    assert judge.compare(made(np.where(counted, noise, 0))).excess > 1.0


def detector(background: float = 0.0, box: float = 0.0, score: float = 0.0) -> linnet.Graph:
    """x [1,4] to scores [1,96,1] and boxes [1,96,4], with errors of the boxes of background and objects, and of the scores."""
    graph = linnet.Graph()
    x = graph.placeholder("x", (1, 4))
    rng = np.random.default_rng(3)
    weights = rng.standard_normal((4, ROWS * 4)).astype(np.float32)
    objects = np.isin(np.arange(ROWS), OBJECTS)[None, :, None]
    error = np.where(objects, box, background) * rng.standard_normal((1, ROWS, 4))
    boxes = ops.add(
        ops.reshape(ops.matmul(x, graph.constant(weights)), (1, ROWS, 4)), graph.constant(error.astype(np.float32))
    )
    level = np.where(objects, 3.0 - score, -6.0).astype(np.float32)
    scores = ops.add(
        ops.multiply(ops.mean(boxes, [2], keep_dims=True), graph.constant(np.float32(0.01))),
        graph.constant(level),
    )
    graph.signature("infer", {"x": x}, {"scores": scores, "boxes": boxes})
    return graph


def judged(**errors: float) -> Nearness:
    rng = np.random.default_rng(11)
    feeds = [{"x": rng.standard_normal((1, 4)).astype(np.float32)} for _ in range(8)]
    judge = Judge(detector(), Batches(feeds, ["x"]), 8, TARGETS["i8"], 1)
    assert set(judge.candidates) == {"scores", "boxes"} and judge.doubt() == ""
    return judge.compare(detector(**errors))


def test_boxes_of_the_background_do_not_count_and_those_of_objects_do() -> None:
    assert judged(background=0.02).excess == 1.0
    near, far = judged(background=0.02, box=0.02), judged(box=1.0)
    assert near.excess == 1.0 < far.excess
    assert judged(score=4.0).excess > 1.0  # objects are lost
