"""Non-maximum suppression and detection post-processing of TFLite against LiteRT, on many overlapping boxes.
They include ties and limits that are met exactly, where similar kernels differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

import linnet
from tests.test_tflite_ops import reference
from tests.tflite_models import G, O, T, build


def boxes(rng: np.random.Generator, count: int) -> np.ndarray:
    """Corners of boxes around a few positions, some with swapped corners."""
    centre = rng.integers(1, 4, (count, 2)) + rng.normal(0, 0.15, (count, 2))
    size = rng.uniform(0.3, 0.7, (count, 2))
    made = np.concatenate([centre - size, centre + size], 1).astype(np.float32)
    made[::7] = made[::7][:, [2, 3, 0, 1]]
    return made


@pytest.mark.parametrize(("most", "least"), [(6, 0.3), (40, 0.6), (30, 2.0)])
@pytest.mark.parametrize("sigma", [None, 0.0, 0.5])
def test_suppression(sigma: float | None, most: int, least: float) -> None:
    """V4 without sigma, V5 with it; more boxes are requested than exist; none is good enough."""
    rng, count = np.random.default_rng(6), 50
    tensors = [
        T("b", "f32", [count, 4]), T("s", "f32", [count]), T("n", "i32", [], value=np.int32(most)),
        T("o", "f32", [], value=np.float32(0.45)), T("l", "f32", [], value=np.float32(least)), T("i", "i32", [most]),
        T("v", "f32", [most]), T("c", "i32", []),
    ]  # fmt: skip
    operands, outputs, op = ["b", "s", "n", "o", "l"], ["i", "c"], "NON_MAX_SUPPRESSION_V4"
    if sigma is not None:
        tensors.append(T("sigma", "f32", [], value=np.float32(sigma)))
        operands, outputs, op = [*operands, "sigma"], ["i", "v", "c"], "NON_MAX_SUPPRESSION_V5"
    model = build(G(tensors, [O(op, operands, outputs)], ["b", "s"], outputs))
    feeds = [boxes(rng, count), rng.permutation(np.linspace(0.1, 0.95, count)).astype(np.float32)]
    expected = reference(model, feeds)
    results = linnet.Session(linnet.from_tflite(model)).run(dict(zip("bs", feeds, strict=True)))
    for got, wanted in zip(results.values(), expected, strict=True):
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
    assert int(results["c"]) == (0 if least > 1 else int(expected[-1])) and (least > 1 or int(results["c"]) > 2)


@pytest.mark.parametrize("background", [0, 1])
@pytest.mark.parametrize("mode", ["fast", "fast, two classes", "regular", "regular, few"])
@pytest.mark.parametrize("dtype", ["f32", "u8"])
def test_detection_postprocess(dtype: str, mode: str, background: int) -> None:
    rng, count, classes = np.random.default_rng(8), 40, 5
    per_box = 2 if "two" in mode else 1
    config: dict[str, Any] = {
        "max_detections": 8, "max_classes_per_detection": per_box, "num_classes": classes, "nms_score_threshold": 0.35,
        "nms_iou_threshold": 0.5, "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0,
        "use_regular_nms": mode.startswith("regular"),
    }  # fmt: skip
    if mode == "regular, few":
        config |= {"detections_per_class": 2, "nms_score_threshold": 0.85}
    anchors = np.concatenate([rng.integers(1, 4, (count, 2)), rng.uniform(0.4, 0.9, (count, 2))], 1).astype(np.float32)
    width, slots = classes + background, 8 * per_box
    q = dtype == "u8"
    encoded, scores = rng.normal(0, 1.5, (1, count, 4)), rng.permutation(240).reshape(1, count, 6)[..., :width]
    tensors = [
        T("b", dtype, [1, count, 4], 0.05 if q else None, 128), T("s", dtype, [1, count, width], 1 / 256 if q else None),
        T("a", "f32", [count, 4], value=anchors), T("d", "f32", [1, slots, 4]), T("c", "f32", [1, slots]),
        T("v", "f32", [1, slots]), T("n", "f32", [1]),
    ]  # fmt: skip
    if q:
        stored = np.clip(np.round(anchors / 0.02), 0, 255).astype(np.uint8)
        tensors[2] = T("a", "u8", [count, 4], 0.02, value=stored)
        feeds = [
            np.clip(np.round(encoded / 0.05) + 128, 0, 255).astype(np.uint8),
            scores.astype(np.uint8),
        ]
    else:
        feeds = [encoded.astype(np.float32), (scores / 256).astype(np.float32)]
    outputs = ["d", "c", "v", "n"]
    operator = O(
        "CUSTOM:TFLite_Detection_PostProcess", ["b", "s", "a"], outputs, custom=bytes(flexbuffers.Dumps(config))
    )
    model = build(G(tensors, [operator], ["b", "s"], outputs))
    expected = reference(model, feeds)
    results = list(linnet.Session(linnet.from_tflite(model)).run(dict(zip("bs", feeds, strict=True))).values())
    found = int(expected[3][0])
    assert found >= 3 and results[3].tolist() == expected[3].tolist()
    for got, wanted in zip(results[:3], expected[:3], strict=True):
        assert got.shape == wanted.shape
        used = found * per_box  # the fast kernel leaves later entries unchanged
        np.testing.assert_allclose(got[0, :used], wanted[0, :used], rtol=1e-5, atol=1e-6)
        assert not got[0, used:].any()


def test_damaged_options_are_a_problem() -> None:
    tensors = [T("b", "f32", [1, 3, 4]), T("s", "f32", [1, 3, 2]), T("a", "f32", [3, 4], value=np.ones((3, 4), np.float32)),
               *(T(n, "f32", [1]) for n in "dcvn")]  # fmt: skip
    for custom in (b"\xff\xff\xff", bytes(flexbuffers.Dumps({"max_detections": 3})), bytes(flexbuffers.Dumps([1]))):
        operator = O("CUSTOM:TFLite_Detection_PostProcess", ["b", "s", "a"], list("dcvn"), custom=custom)
        with pytest.raises(linnet.ConversionError) as caught:
            linnet.from_tflite(build(G(tensors, [operator], ["b", "s"], list("dcvn"))))
        assert "option" in caught.value.problems[0].reason


def test_an_unknown_custom_op_is_named() -> None:
    model = build(G([T("x", "f32", [2]), T("y", "f32", [2])], [O("CUSTOM:MyOwnOp", ["x"], ["y"])], ["x"], ["y"]))
    with pytest.raises(linnet.ConversionError, match="custom op 'MyOwnOp'"):
        linnet.from_tflite(model)
