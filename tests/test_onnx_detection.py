"""Ops for detectors, sets and spectra against ONNX Runtime on random inputs, including data-dependent sizes.
If ONNX Runtime has no kernel, ONNX's reference evaluator or NumPy replaces it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import linnet

Arrays = dict[str, np.ndarray]


def model_of(
    op: str, inputs: Arrays, outputs: int, initial: Arrays | None = None, names: Any = None, **attributes: Any
) -> onnx.ModelProto:
    """A model of one node. inputs: fed. initial: constants. names: operands in order ("" if left out)."""
    initial = initial or {}
    names = names or [*inputs, *initial]
    results = [f"y{i}" for i in range(outputs)]
    opset = attributes.pop("opset", 20)
    node = helper.make_node(op, names, results, **attributes)
    types = {n: helper.np_dtype_to_tensor_dtype(v.dtype) for n, v in inputs.items()}
    given = [helper.make_tensor_value_info(n, types[n], [None] * v.ndim) for n, v in inputs.items()]
    made = [helper.make_empty_tensor_value_info(n) for n in results]
    tensors = [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in initial.items()]
    graph = helper.make_graph([node], "g", given, made, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    inferred = onnx.shape_inference.infer_shapes(model)
    del model.graph.output[:]
    model.graph.output.extend(inferred.graph.output)
    return model


def onnxruntime_of(model: onnx.ModelProto, feeds: Arrays) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def agree(session: linnet.Session, feeds: Arrays, expected: list[np.ndarray], atol: float = 1e-5) -> None:
    for (name, result), wanted in zip(session.run(feeds).items(), expected, strict=True):
        assert result.shape == wanted.shape and result.dtype == wanted.dtype, (name, result.shape, wanted.shape)
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=atol, err_msg=name)


def boxes_of(rng: np.random.Generator, batch: int, n: int) -> np.ndarray:
    corner = rng.random((batch, n, 2)) * 8
    return np.concatenate([corner, corner + rng.random((batch, n, 2)) * 5], 2).astype(np.float32)


@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize("most", [0, 3, 100])
def test_non_max_suppression(center: int, most: int) -> None:
    rng = np.random.default_rng(most)
    limits = {"most": np.array([most]), "iou": np.array([0.3], np.float32), "low": np.array([0.4], np.float32)}
    session = None
    for batch, classes, n in ((1, 1, 40), (2, 3, 25), (1, 2, 60), (2, 3, 25)):
        feeds = {"boxes": boxes_of(rng, batch, n), "scores": rng.random((batch, classes, n)).astype(np.float32)}
        feeds["scores"][:, :, ::3] = 0.5  # equal scores: the lower index first
        model = model_of("NonMaxSuppression", feeds, 1, limits, center_point_box=center)
        session = session or linnet.Session(linnet.from_onnx(model))
        agree(session, feeds, onnxruntime_of(model, feeds))


def test_suppression_of_nothing_and_of_nan() -> None:
    feeds = {"boxes": np.zeros((1, 6, 4), np.float32), "scores": np.full((1, 1, 6), np.nan, np.float32)}
    limits = {"most": np.array([6]), "iou": np.array([0.5], np.float32), "low": np.array([0.1], np.float32)}
    session = linnet.Session(linnet.from_onnx(model_of("NonMaxSuppression", feeds, 1, limits)))
    assert session.run(feeds)["y0"].shape == (0, 3)  # no score exceeds the limit
    feeds["scores"][0, 0, 2:4] = 0.7
    assert session.run(feeds)["y0"].tolist() == [[0, 0, 2], [0, 0, 3]]  # boxes without area do not overlap
    feeds = {"boxes": np.zeros((1, 0, 4), np.float32), "scores": np.zeros((1, 1, 0), np.float32)}
    assert session.run(feeds)["y0"].shape == (0, 3)


def soft_nms(
    boxes: np.ndarray, scores: np.ndarray, most: int, iou: float, low: float, sigma: float
) -> list[tuple[int, float]]:
    """TensorFlow's NonMaxSuppressionWithScores: takes the best score repeatedly and lowers scores of overlapping boxes."""
    alive = {i: float(s) for i, s in enumerate(scores) if s > low}
    taken: list[tuple[int, float]] = []
    while alive and len(taken) < most:
        best = max(alive, key=lambda i: (alive[i], -i))
        taken.append((best, alive.pop(best)))
        a = boxes[best]
        for i in list(alive):
            b = boxes[i]
            sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
            common = float(np.prod(np.maximum(sides, 0)))
            union = float(np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2])) - common
            if common / union > iou:
                del alive[i]
                continue
            alive[i] *= float(np.exp(-0.5 / sigma * (common / union) ** 2))
            if alive[i] <= low:
                del alive[i]
    return taken


def test_padded_and_soft_suppression() -> None:
    """Features needed by TFLite's NON_MAX_SUPPRESSION_V4 and V5: a fixed number of rows, and scores lowered by overlap."""
    from linnet.facade import Graph
    from linnet.ir.function import emit

    rng = np.random.default_rng(3)
    boxes, scores = boxes_of(rng, 1, 30), rng.random((1, 1, 30)).astype(np.float32)
    for sigma in (0.0, 0.5):
        graph = Graph()
        main = graph.function()
        operands = [main.placeholder("boxes", "f32", (1, 30, 4)), main.placeholder("scores", "f32", (1, 1, 30))]
        operands += [main.constant(v) for v in (np.int64(40), np.float32(0.6), np.float32(0.2))]
        main.outputs += emit("nms", operands, {"padded": True, "soft_sigma": sigma}, 3, function=main)
        assert [t.shape for t in main.outputs] == [(40, 3), (40,), ()]
        graph.signature("infer", main, outputs=["selected", "scores", "count"])
        result = linnet.Session(graph).run({"boxes": boxes, "scores": scores})
        expected = soft_nms(boxes[0], scores[0, 0], 40, 0.6, 0.2, sigma or 1e30)
        n = int(result["count"])
        assert n == len(expected) < 40
        assert result["selected"][:n].tolist() == [[0, 0, i] for i, _ in expected]
        np.testing.assert_allclose(result["scores"][:n], [s for _, s in expected], rtol=1e-5)
        assert not result["selected"][n:].any() and not result["scores"][n:].any()


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("half", ["half_pixel", "output_half_pixel"])
def test_roi_align(mode: str, ratio: int, half: str) -> None:
    rng = np.random.default_rng(7)
    session = None
    for n in (3, 5):
        rois = rng.random((n, 4)).astype(np.float32) * 20 - 3
        rois[:, 2:] = rois[:, :2] + rng.random((n, 2)).astype(np.float32) * 15
        feeds = {
            "x": rng.standard_normal((2, 3, 12, 14)).astype(np.float32),
            "rois": rois,
            "batch": rng.integers(0, 2, n),
        }
        model = model_of(
            "RoiAlign", feeds, 1, mode=mode, output_height=3, output_width=4, sampling_ratio=ratio, spatial_scale=0.7,
            coordinate_transformation_mode=half,
        )  # fmt: skip
        session = session or linnet.Session(linnet.from_onnx(model))
        agree(session, feeds, onnxruntime_of(model, feeds))


def test_regions_are_range_checked() -> None:
    feeds = {"x": np.zeros((2, 1, 4, 4), np.float32), "rois": np.zeros((1, 4), np.float32), "batch": np.array([2])}
    session = linnet.Session(linnet.from_onnx(model_of("RoiAlign", feeds, 1)))
    with pytest.raises(linnet.Error, match=r"batch index of a region.*got 2"):
        session.run(feeds)
    feeds["batch"][0] = 0
    feeds["rois"][0, 2:] = 1e30
    with pytest.raises(linnet.Error, match="number of samples per bin"):
        session.run(feeds)
    feeds["rois"][:] = np.nan
    assert session.run(feeds)["y0"].shape == (1, 1, 1, 1)


def test_max_roi_pool() -> None:
    rng = np.random.default_rng(8)
    rois = np.concatenate([rng.integers(0, 2, (6, 1)), rng.integers(0, 20, (6, 4))], 1).astype(np.float32)
    rois[:, 3:] = np.maximum(rois[:, 3:], rois[:, 1:3])
    feeds = {"x": rng.standard_normal((2, 3, 11, 13)).astype(np.float32), "rois": rois}
    model = model_of("MaxRoiPool", feeds, 1, pooled_shape=[3, 2], spatial_scale=0.5)
    agree(linnet.Session(linnet.from_onnx(model)), feeds, onnxruntime_of(model, feeds))


@pytest.mark.parametrize("ordered", [0, 1])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int8])
def test_unique(ordered: int, axis: int | None, dtype: type) -> None:
    rng = np.random.default_rng(9)
    session = None
    for n in (7, 40, 1):
        shape = {None: (n, 2, 3), 0: (n, 2, 3), 1: (2, n, 3), -1: (2, 3, n)}[axis]
        feeds = {"x": rng.integers(0, 3 if axis is None else 2, shape).astype(dtype)}
        attributes = {} if axis is None else {"axis": axis}
        model = model_of("Unique", feeds, 4, sorted=ordered, **attributes)
        if axis is not None:
            shape_of = model.graph.input[0].type.tensor_type.shape.dim
            for i, d in enumerate(shape):
                if i != axis % 3:
                    shape_of[i].dim_value = d
        session = session or linnet.Session(linnet.from_onnx(model))
        agree(session, feeds, onnxruntime_of(model, feeds))


@pytest.mark.parametrize("ordered", [0, 1])
def test_unique_counts_every_nan_as_one_value(ordered: int) -> None:
    """As NumPy has it. Along an axis, two rows are equal if they have NaN in the same places."""
    x = np.float32([3, np.nan, 1, np.nan, 3, np.nan, 0])
    model = model_of("Unique", {"x": x}, 4, sorted=ordered)
    y, first, inverse, counts = linnet.Session(linnet.from_onnx(model)).run({"x": x}).values()
    expected = ([0, 1, 3, np.nan], [6, 2, 0, 1], [2, 3, 1, 3, 2, 3, 0], [1, 1, 2, 3])
    if not ordered:
        expected = ([3, np.nan, 1, 0], [0, 1, 2, 6], [0, 1, 2, 1, 0, 1, 3], [2, 3, 1, 1])
    for found, wanted in zip((y, first, inverse, counts), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    rows = np.float32([[1, np.nan], [np.nan, 1], [1, np.nan], [1, 2]])
    model = model_of("Unique", {"x": rows}, 4, sorted=ordered, axis=0)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 2
    results = linnet.Session(linnet.from_onnx(model)).run({"x": rows})
    y, first, inverse, counts = results.values()
    np.testing.assert_array_equal(y[inverse], rows)
    assert sorted(counts.tolist()) == [1, 1, 2] and counts[inverse[0]] == 2 and len(y) == 3


def test_unique_of_nothing() -> None:
    feeds = {"x": np.zeros(0, np.float32)}
    results = linnet.Session(linnet.from_onnx(model_of("Unique", feeds, 4))).run(feeds)
    assert [v.shape for v in results.values()] == [(0,)] * 4


@pytest.mark.parametrize("groups", [(1, 1), (2, 1), (2, 4)])
@pytest.mark.parametrize("masked", [False, True])
def test_deform_conv(groups: tuple[int, int], masked: bool) -> None:
    rng = np.random.default_rng(10)
    group, offset_group = groups
    fill = lambda *s: rng.standard_normal(s).astype(np.float32)  # noqa: E731
    feeds = {"x": fill(2, 4, 9, 10), "w": fill(6, 4 // group, 3, 2), "offset": fill(2, offset_group * 12, 5, 9) * 2}
    feeds["b"] = fill(6)
    if masked:
        feeds["mask"] = rng.random((2, offset_group * 6, 5, 9)).astype(np.float32)
    model = model_of(
        "DeformConv", feeds, 1, group=group, offset_group=offset_group, pads=[1, 0, 1, 0], strides=[2, 1], dilations=[1, 1],
    )  # fmt: skip
    shapes = {n: v.shape for n, v in feeds.items()}
    try:
        expected = onnxruntime_of(model, feeds)
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        expected = ReferenceEvaluator(model).run(None, feeds)
    agree(linnet.Session(linnet.from_onnx(model, shapes)), feeds, expected, atol=1e-4)


def col2im(x: np.ndarray, image: Any, block: Any, strides: Any, dilations: Any, pads: Any, counts: Any) -> np.ndarray:
    """Adds every element at the position given by its block's place and its place in the block."""
    dims = len(image)
    x = x.reshape(x.shape[0], -1, *block, *counts)
    y = np.zeros((*x.shape[:2], *image), x.dtype)
    for at in np.ndindex(*x.shape[2:]):
        place = [at[dims + i] * strides[i] + at[i] * dilations[i] - pads[i] for i in range(dims)]
        if all(0 <= p < n for p, n in zip(place, image, strict=True)):
            y[(..., *place)] += x[(..., *at)]
    return y


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_col2im(dims: int) -> None:
    rng = np.random.default_rng(11)
    image, block = np.array([7, 6, 5][:dims]), np.array([3, 2, 2][:dims])
    strides, dilations, pads = [2, 1, 1][:dims], [1, 2, 1][:dims], [1, 0, 1][:dims] + [0, 1, 0][:dims]
    counts = [
        (image[i] + pads[i] + pads[dims + i] - (block[i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in range(dims)
    ]
    x = rng.standard_normal((2, 3 * int(block.prod()), int(np.prod(counts)))).astype(np.float32)
    fixed = {"image": image, "block": block}
    model = model_of("Col2Im", {"x": x}, 1, fixed, strides=strides, dilations=dilations, pads=pads)
    expected = [col2im(x, image, block, strides, dilations, pads, counts)]
    agree(linnet.Session(linnet.from_onnx(model)), {"x": x}, expected)
    open_model = model_of("Col2Im", {"x": x, **fixed}, 1, strides=strides, dilations=dilations, pads=pads)
    for info in open_model.graph.input[1:]:
        info.type.tensor_type.shape.dim[0].dim_value = dims
    agree(linnet.Session(linnet.from_onnx(open_model)), {"x": x, **fixed}, expected)


@pytest.mark.parametrize("n", [1, 2, 3, 6, 17])
def test_det(n: int) -> None:
    rng = np.random.default_rng(n)
    x = rng.standard_normal((4, 2, n, n))
    x[0, 0, 0] = 0  # singular
    if n > 1:
        x[1, :, 0, 0] = 0  # needs pivoting
    model = model_of("Det", {"x": x}, 1)
    model.graph.input[0].type.tensor_type.shape.CopyFrom(
        helper.make_tensor_value_info("x", 1, [None, 2, n, n]).type.tensor_type.shape
    )
    (result,) = linnet.Session(linnet.from_onnx(model)).run({"x": x}).values()
    np.testing.assert_allclose(result, np.linalg.det(x), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("parts, onesided, constant", [(1, 1, True), (1, 0, True), (2, 0, False), (1, 1, False)])
def test_stft(parts: int, onesided: int, constant: bool) -> None:
    rng = np.random.default_rng(12)
    x = rng.standard_normal((2, 100, parts)).astype(np.float32)
    fixed = {"step": np.array(7), "window": np.hanning(24).astype(np.float32), "length": np.array(24)}
    model = model_of("STFT", {"x": x}, 1, fixed, onesided=onesided)
    expected = onnxruntime_of(model, {"x": x})
    feeds = {"x": x}
    if not constant:
        feeds |= fixed
        model = model_of("STFT", feeds, 1, onesided=onesided)
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_value = parts
    session = linnet.Session(linnet.from_onnx(model))
    agree(session, feeds, expected, atol=1e-4)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
def test_tf_idf(mode: str) -> None:
    rng = np.random.default_rng(13)
    attributes = {
        "mode": mode, "min_gram_length": 1, "max_gram_length": 3, "max_skip_count": 2, "ngram_counts": [0, 3, 9],
        "ngram_indexes": [0, 2, 1, 3, 5, 4, 6, 7], "pool_int64s": [1, 2, 5, 1, 2, 2, 1, 3, 3, 1, 2, 3, 4, 4, 1],
        "weights": [0.5 + i for i in range(8)],
    }  # fmt: skip
    session = None
    for shape in ((2, 12), (3, 1), (1, 30)):
        feeds = {"x": rng.integers(1, 6, shape)}
        model = model_of("TfIdfVectorizer", feeds, 1, **attributes)
        session = session or linnet.Session(linnet.from_onnx(model))
        agree(session, feeds, onnxruntime_of(model, feeds))
