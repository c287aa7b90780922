"""Steps after a model (linnet.preprocess): text by CTC, masks on the photo, boxes of common detectors in photo pixels, each
against NumPy code written from its definition; and faces on a photograph with known contents."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from PIL import Image, ImageDraw, ImageFont

import linnet
from linnet._fetch import fetch_member
from linnet.facade import Graph
from linnet.ir.function import emit
from linnet.preprocess import boxes, ctc, image, keep_outputs, mask
from tests import zoo
from tests.test_preprocess import MEAN, STD, identity
from tests.test_tools_media import cli, native

# ---- text


def greedy(probabilities: np.ndarray, blank: int) -> list[int]:
    """Graves et al. 2006, best path decoding."""
    best = probabilities.argmax(axis=1).tolist()
    joined = [c for i, c in enumerate(best) if i == 0 or c != best[i - 1]]
    return [c for c in joined if c != blank]


@pytest.mark.parametrize("blank", [0, 4])
@pytest.mark.parametrize("steps", [1, 2, 40])
def test_ctc(blank: int, steps: int) -> None:
    rng = np.random.default_rng(steps)
    graph = ctc(identity((1, "t", 5)), "output", labels=list("abcde"), blank=blank)
    session = linnet.Session(graph)
    for _ in range(5):
        x = rng.random((1, steps, 5)).astype(np.float32)
        x[..., blank] += 0.4
        out = session.run({"input": x})
        expected = greedy(x[0], blank)
        assert out["text"].tolist() == expected
        assert out["text"].dtype == np.int64 and out["scores"].shape == (len(expected),)
        assert set(out["scores"].tolist()) <= set(x[0].max(axis=1).tolist())


def test_ctc_of_nothing_but_blanks_is_empty() -> None:
    x = np.zeros((1, 6, 3), np.float32)
    x[..., 0] = 1
    out = linnet.Session(ctc(identity((1, 6, 3)), "output", labels=["", "a", "b"])).run({"input": x})
    assert out["text"].shape == (0,) and out["scores"].shape == (0,)


def test_text_is_printed_by_both_tools(tmp_path: Any) -> None:
    word, alphabet = "hello world", "abcdefghijklmnopqrstuvwxyz"
    classes = ["", *alphabet, " "]
    x = np.zeros((1, 3 * len(word), 28), np.float32)
    for i, letter in enumerate(word):
        x[0, 3 * i : 3 * i + 2, classes.index(letter)] = 1  # twice, then a blank
        x[0, 3 * i + 2, 0] = 1
    np.save(tmp_path / "x.npy", x)
    ctc(identity((1, "t", 28)), "output", labels=list(alphabet)).save(tmp_path / "ocr.lnt")
    done = native(tmp_path, "ocr.lnt", "--input", "x.npy")
    assert "\n  hello world\n" in done.stdout, done.stdout + done.stderr
    code, text, error = cli(tmp_path, "ocr.lnt", "--input", "x.npy")
    assert code == 0 and "hello world" in text, error
    with pytest.raises(linnet.UsageError, match="expected 28 labels, got 5"):
        ctc(identity((1, "t", 28)), "output", labels=list("abcde"))
    with pytest.raises(linnet.UsageError, match="cannot be decoded as text"):
        ctc(identity((2, 3, 28)), "output", labels=list(alphabet))


@pytest.mark.network
def test_lines_of_text_are_read_off_pictures(tmp_path: Any) -> None:
    """PP-OCR's recognizer with its steps in the file: from a PNG to words, without Python."""
    path = zoo.at_hand(lambda: zoo.fetch("ppocr_v4_rec"))
    characters = next(entry.value for entry in onnx.load(path).metadata_props if entry.key == "character").splitlines()
    graph = image(linnet.from_onnx(path), "x", resize=(48, None), colour="BGR", mean=0.5, std=0.5, antialias=False)
    [output] = graph.signatures["infer"].outputs
    ctc(graph, output, labels=characters).save(tmp_path / "read.lnt")
    for words in ("linnet reads 2026 lines", "Hello, world!"):
        line = Image.new("RGB", (30 + 24 * len(words), 60), (255, 255, 250))
        ImageDraw.Draw(line).text((12, 8), words, fill=(20, 20, 40), font=ImageFont.load_default(36))
        line.save(tmp_path / "line.png")
        done = native(tmp_path, "read.lnt", "--input", "line.png")
        assert f"\n  {words}\n" in done.stdout, done.stdout + done.stderr


# ---- masks


@pytest.mark.network
def test_a_bird_is_cut_out_of_a_photograph(tmp_path: Any) -> None:
    """U2-Net finds the macaw, the reddest and bluest thing on the photo, in both tools; an image of the mask is written."""
    path = zoo.at_hand(lambda: zoo.fetch("u2netp"))
    graph = image(linnet.from_onnx(path), "input.1", mean=MEAN, std=STD, filter="bicubic")
    first = graph.signatures["infer"].outputs[0]
    keep_outputs(mask(graph, first), ["mask"]).save(tmp_path / "cut.lnt")
    done = native(tmp_path, "cut.lnt", "--input", zoo.shared("parrot.jpg"))
    assert done.returncode == 0 and "mask: picture -> out/mask.png" in done.stdout, done.stdout + done.stderr
    found = np.load(tmp_path / "out" / "mask.npy")
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "out" / "mask.png")), found)
    pixels = np.asarray(Image.open(zoo.shared("parrot.jpg")).convert("RGB")).astype(int)
    red = (pixels[..., 0] > 140) & (pixels[..., 1:].max(axis=-1) < 60)
    assert found.shape == pixels.shape[:2] and 0.1 < (found > 0).mean() < 0.25
    assert (found[red] > 0).mean() > 0.9, (found[red] > 0).mean()
    code, _, error = cli(tmp_path, "cut.lnt", "--input", str(zoo.shared("parrot.jpg")), "--output-dir", "py")
    assert code == 0, error
    assert (np.asarray(Image.open(tmp_path / "py" / "mask.png")) != found).mean() < 0.01


def test_outputs_may_be_left_out() -> None:
    x = np.ones((1, 3), np.float32)
    both = linnet.preprocess.top_k(identity((1, 3)), "output", 2, keep=True)
    graph = keep_outputs(both, ["classes", "output"])
    assert list(linnet.Session(graph).run({"input": x})) == ["classes", "output"]
    assert len(keep_outputs(both, ["output"]).signatures["infer"].function.nodes) == 1
    for words, names in (("no output named 'y'", ["y"]), ("no outputs to keep", []), ("no outputs to keep", "output")):
        with pytest.raises(linnet.UsageError, match=words):
            keep_outputs(both, names)


def darkness() -> Graph:
    """A segmentation "network": the darkness of the photo, at a quarter of the size, f32 [1,1,24,32]."""
    graph = Graph()
    main = graph.function()
    x = main.placeholder("input", "f32", (1, 3, 96, 128))
    y = emit("reduce", [x], {"kind": "mean", "axes": [1], "keep_dims": True})[0]
    y = emit("pool", [y], {"kind": "average", "kernel": [4, 4], "strides": [4, 4]})[0]
    main.outputs.append(linnet.ops.scale(y, -1.0, 1.0, name="output"))
    graph.signature("infer", main)
    return graph


@pytest.mark.parametrize(
    "how", [{}, {"fit": "letterbox", "pad": 255}, {"fit": "letterbox", "pad": 255, "align": "corner"}]
)
@pytest.mark.parametrize("size", [(60, 50), (200, 700), (96, 128), (431, 300)])
def test_a_mask_lies_where_the_thing_lies(how: dict[str, Any], size: tuple[int, int]) -> None:
    pixels = np.full((*size, 3), 255, np.uint8)
    y, x = np.mgrid[0 : size[0], 0 : size[1]]
    inside = ((y / size[0] - 0.6) ** 2 + (x / size[1] - 0.35) ** 2) < 0.06
    pixels[inside] = 0
    graph = mask(image(darkness(), "input", **how), "output")
    got = linnet.Session(graph).run({"input": pixels})["mask"]
    assert got.shape == size and got.dtype == np.uint8 and set(np.unique(got)) <= {0, 255}
    both, either = (inside & (got > 0)).sum(), (inside | (got > 0)).sum()
    assert both / either > 0.85, both / either


def test_a_mask_without_a_photo_keeps_its_size() -> None:
    x = np.random.default_rng(0).standard_normal((1, 5, 7, 3)).astype(np.float32)
    graph = mask(identity((1, 5, 7, 3)), "output", layout="NHWC", channel=2, activation="softmax", threshold=0.3)
    expected = np.exp(x[0, ..., 2]) / np.exp(x[0]).sum(-1) > 0.3
    np.testing.assert_array_equal(linnet.Session(graph).run({"input": x})["mask"], expected * 255)
    with pytest.raises(linnet.UsageError, match="layout does not match the output"):
        mask(identity((1, 5, 7)), "output")
    with pytest.raises(linnet.UsageError, match="'input' is not an image"):
        mask(identity((1, 1, 5, 7)), "output", input="input")


# ---- boxes


def outputs_only(arrays: dict[str, np.ndarray], height: int, width: int) -> Graph:
    """A "network" with constant outputs, whatever the photo; its input is f32 [1,3,height,width]."""
    graph = Graph()
    main = graph.function()
    x = main.placeholder("input", "f32", (1, 3, height, width))
    nothing = linnet.ops.multiply(linnet.ops.mean(x), main.constant(np.float32(0)))
    for name, value in arrays.items():
        main.outputs.append(linnet.ops.add(main.constant(value.astype(np.float32)), nothing, name=name))
    graph.signature("infer", main, outputs=list(arrays))
    return graph


def select(found: np.ndarray, scores: np.ndarray, least: float, most: float, limit: int) -> list[tuple[int, int]]:
    """Greedy suppression per class, then the best of all: (class, box) in order. found: [M,4] corners, scores: [C,M]."""
    kept: list[tuple[int, int]] = []
    for c in range(len(scores)):
        mine: list[int] = []
        for i in sorted(np.flatnonzero(scores[c] > least), key=lambda i: (-scores[c][i], i)):
            a = found[i]
            for j in mine:
                b = found[j]
                sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
                common = float(sides.prod()) if (sides > 0).all() else 0.0
                if common > most * (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - common):
                    break
            else:
                mine.append(int(i))
        kept += [(c, i) for i in mine[:limit]]
    return sorted(kept, key=lambda k: -scores[k[0]][k[1]])[:limit]


def to_photo(points: np.ndarray, photo: tuple[int, int], canvas: tuple[int, int]) -> np.ndarray:
    """Maps x, y pairs in the last axis from a letterbox to the photo."""
    factor = min(canvas[0] / photo[0], canvas[1] / photo[1])
    new = [round(side * factor) for side in photo]
    shift = [(canvas[1] - new[1]) // 2, (canvas[0] - new[0]) // 2]
    scale = [new[1] / photo[1], new[0] / photo[0]]
    return (points.reshape(*points.shape[:-1], -1, 2) - shift) / scale


def candidates(
    rng: np.random.Generator, count: int, classes: int, size: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Overlapping boxes around a few things, f32 [M,4] as centres and sizes, and scores [C,M]."""
    things = rng.uniform(0.2, 0.8, (6, 2)) * (size[1], size[0])
    centres = things[rng.integers(0, 6, count)] + rng.normal(0, 6, (count, 2))
    spans = rng.uniform(20, 60, (count, 2))
    return np.concatenate([centres, spans], 1).astype(np.float32), rng.random((classes, count)).astype(np.float32)


def corners(centred: np.ndarray) -> np.ndarray:
    return np.concatenate([centred[:, :2] - centred[:, 2:] / 2, centred[:, :2] + centred[:, 2:] / 2], 1)


@pytest.mark.parametrize("layout", ["v8", "v5"])
@pytest.mark.parametrize("classes", [1, 5])
@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize("size", [(150, 400), (300, 90)])
def test_yolo(layout: str, classes: int, multi_label: bool, size: tuple[int, int]) -> None:
    rng = np.random.default_rng(classes)
    centred, scores = candidates(rng, 120, classes, (96, 128))
    if layout == "v8":
        raw = np.concatenate([centred.T, scores])[None]
    else:
        objectness = rng.random((120, 1)).astype(np.float32)
        raw = np.concatenate([centred, objectness, scores.T], 1)[None]
        scores = scores * objectness.T
    graph = image(outputs_only({"y": raw}, 96, 128), "input", fit="letterbox")
    names = [f"thing {i}" for i in range(classes)]
    graph = boxes.yolo(graph, "y", layout=layout, labels=names, multi_label=multi_label, limit=20)
    got = linnet.Session(graph).run({"input": np.zeros((*size, 3), np.uint8)})
    if not multi_label:
        scores = np.where(np.arange(classes)[:, None] == scores.argmax(axis=0), scores, -1)
    expected = select(corners(centred), scores, 0.25, 0.45, 20)
    assert list(got) == ["boxes", "scores", "classes"] and len(expected) > 3
    assert got["classes"].tolist() == [c for c, _ in expected]
    np.testing.assert_allclose(got["scores"], [scores[c, i] for c, i in expected], rtol=1e-6)
    where = to_photo(corners(centred)[[i for _, i in expected]], size, (96, 128)).reshape(-1, 4)
    np.testing.assert_allclose(got["boxes"], np.clip(where, 0, [size[1], size[0]] * 2), atol=1e-2)


def test_nothing_found_is_empty() -> None:
    raw = np.concatenate([np.full((4, 10), 30.0), np.full((3, 10), 0.01)])[None]
    graph = boxes.yolo(image(outputs_only({"y": raw}, 96, 128), "input"), "y")
    got = linnet.Session(graph).run({"input": np.zeros((50, 60, 3), np.uint8)})
    assert got["boxes"].shape == (0, 4) and got["scores"].shape == (0,) and got["classes"].shape == (0,)


@pytest.mark.parametrize("coding", ["mediapipe", "ssd"])
def test_ssd(coding: str) -> None:
    rng = np.random.default_rng(9)
    anchors = boxes.mediapipe_anchors(128, [8, 16, 16, 16])
    assert anchors.shape == (896, 4) and anchors[0].tolist() == [1 / 32, 1 / 32, 1, 1]
    assert anchors[512].tolist() == [1 / 16, 1 / 16, 1, 1] and anchors[512 + 5].tolist() == [1 / 16, 1 / 16, 1, 1]
    if coding == "ssd":
        anchors[:, 2:] = rng.uniform(0.1, 0.4, (896, 2))
    raw = rng.normal(0, 1, (896, 8 if coding == "mediapipe" else 4)).astype(np.float32)
    logits = rng.normal(-3, 2, (896, 2)).astype(np.float32)
    logits[0] = 400  # is cut
    places = anchors.astype(np.float64) * 128
    if coding == "mediapipe":
        raw[:, 2:4] = rng.uniform(10, 40, (896, 2))
        centred = np.concatenate([places[:, :2] + raw[:, :2], raw[:, 2:4]], 1)
        scores = 1 / (1 + np.exp(-np.clip(logits.T.astype(np.float64), -100, 100)))
    else:
        swapped = raw[:, [1, 0, 3, 2]].astype(np.float64)
        centred = np.concatenate(
            [swapped[:, :2] / 10 * places[:, 2:] + places[:, :2], np.exp(swapped[:, 2:] / 5) * places[:, 2:]], 1
        )
        scores = 1 / (1 + np.exp(-np.clip(logits.T[1:].astype(np.float64), -100, 100)))
    graph = image(outputs_only({"b": raw[None], "s": logits[None]}, 128, 128), "input", fit="letterbox")
    graph = boxes.ssd(graph, "b", "s", anchors, coding=coding, multi_label=True, score_threshold=0.4)
    got = linnet.Session(graph).run({"input": np.zeros((64, 128, 3), np.uint8)})
    expected = select(corners(centred), scores, 0.4, 0.45, 100)
    rows = [i for _, i in expected]
    assert len(rows) > 10
    np.testing.assert_allclose(got["scores"], [scores[c, i] for c, i in expected], rtol=1e-5)
    where = corners(centred)[rows] - [0, 32, 0, 32]
    np.testing.assert_allclose(got["boxes"], np.clip(where, 0, [128, 64] * 2), atol=1e-3)
    if coding == "mediapipe":
        points = (raw[:, 4:].reshape(-1, 2, 2) + places[:, None, :2])[rows] - [0, 32]
        np.testing.assert_allclose(got["keypoints"], points, atol=1e-3)
    with pytest.raises(linnet.UsageError, match=r"anchors have the wrong shape; expected \[896, 4\]"):
        boxes.ssd(outputs_only({"b": raw[None], "s": logits[None]}, 128, 128), "b", "s", anchors[:5])


@pytest.mark.parametrize("kind", ["scrfd", "yunet"])
def test_faces_by_strides(kind: str) -> None:
    """Decodes every cell with loops over rows, columns and anchors."""
    rng = np.random.default_rng(4)
    arrays: dict[str, np.ndarray] = {}
    outputs: dict[int, list[str]] = {}
    found, scores, points = [], [], []
    per_cell = 2 if kind == "scrfd" else 1
    for stride in (8, 16, 32):
        count = (64 // stride) * (96 // stride) * per_cell
        columns = {"score": 1, "box": 4, "kps": 10} if kind == "scrfd" else {"cls": 1, "obj": 1, "box": 4, "kps": 10}
        outputs[stride] = [f"{name}_{stride}" for name in columns]
        made = {name: rng.random((1, count, n)).astype(np.float32) * 1.2 - 0.1 for name, n in columns.items()}
        made["box"] = np.abs(made["box"])
        arrays |= {f"{name}_{stride}": value for name, value in made.items()}
        box, kps = made["box"][0].astype(np.float64), made["kps"][0].reshape(-1, 5, 2)
        i = 0
        for row in range(64 // stride):
            for column in range(96 // stride):
                for _ in range(per_cell):
                    at = np.array([column, row]) * stride
                    if kind == "scrfd":
                        found.append([*(at - box[i, :2] * stride), *(at + box[i, 2:] * stride)])
                        scores.append(made["score"][0, i, 0])
                    else:
                        middle, span = at + box[i, :2] * stride, np.exp(box[i, 2:]) * stride
                        found.append([*(middle - span / 2), *(middle + span / 2)])
                        scores.append(
                            np.sqrt(np.clip(made["cls"][0, i, 0], 0, 1) * np.clip(made["obj"][0, i, 0], 0, 1))
                        )
                    points.append(at + kps[i] * stride)
                    i += 1
    network = image(outputs_only(arrays, 64, 96), "input")
    decode = boxes.scrfd if kind == "scrfd" else boxes.yunet
    graph = decode(network, outputs, score_threshold=0.3, iou_threshold=0.4)
    got = linnet.Session(graph).run({"input": np.zeros((128, 96, 3), np.uint8)})
    assert list(got) == ["boxes", "scores", "keypoints"]
    expected = [i for _, i in select(np.array(found), np.array([scores]), 0.3, 0.4, 100)]
    np.testing.assert_allclose(got["scores"], np.array(scores)[expected], rtol=1e-5)
    doubled = np.array(found)[expected] * [1, 2, 1, 2]
    np.testing.assert_allclose(got["boxes"], np.clip(doubled, 0, [96, 128] * 2), atol=1e-3)
    np.testing.assert_allclose(got["keypoints"], np.array(points)[expected] * [1, 2], atol=1e-3)


def test_wrong_use_of_boxes() -> None:
    raw = {"y": np.zeros((1, 8, 10))}
    for words, call in (
        ("no output named 'z'", lambda g: boxes.yolo(g, "z")),
        ("unknown layout; expected 'v8' or 'v5'", lambda g: boxes.yolo(g, "y", layout="v2")),
        ("unknown option 'threshold'", lambda g: boxes.yolo(g, "y", threshold=0.5)),
        ("expected 4 labels, got 1", lambda g: boxes.yolo(g, "y", labels=["one"])),
        ("unknown coding", lambda g: boxes.ssd(g, "y", "y", np.zeros((8, 4)), coding="centernet")),
        ("each stride needs 2 or 3 output names", lambda g: boxes.scrfd(g, {8: ["y"]})),
        ("each stride needs 4 output names", lambda g: boxes.yunet(g, {8: ["y"]})),
        ("is not an image", lambda g: boxes.yolo(g, "y", input="input")),
    ):
        with pytest.raises(linnet.UsageError, match=words):
            call(outputs_only(raw, 64, 64))
    with pytest.raises(linnet.UsageError, match="one image at a time"):
        boxes.yolo(outputs_only({"y": np.zeros((2, 8, 10))}, 64, 64), "y")


# ---- a face on a photograph

FACE = (175, 130, 355, 335)  # x0, y0, x1, y1 of the face in grace_hopper.bmp, estimated by eye


def _detector(name: str) -> tuple[Graph, str]:
    """A real face detector with its steps, and the name of its input."""
    strides = (8, 16, 32)
    if name == "mediapipe":
        path = zoo.at_hand(lambda: fetch_member("mediapipe", "*/face_detection_short_range.tflite", "0.10.14"))
        graph = image(linnet.from_tflite(path), "input", fit="letterbox", mean=0.5, std=0.5, antialias=False)
        anchors = boxes.mediapipe_anchors(128, [8, 16, 16, 16])
        made = boxes.ssd(
            graph, "regressors", "classificators", anchors, score_threshold=0.5, iou_threshold=0.3, labels=["face"]
        )
        return made, "input"
    network = linnet.from_onnx(zoo.at_hand(lambda: zoo.fetch(name)))
    if name == "yunet":
        graph = image(network, "input", fit="letterbox", align="corner", colour="BGR", scale=1.0, antialias=False)
        names = {s: [f"{k}_{s}" for k in ("cls", "obj", "bbox", "kps")] for s in strides}
        return boxes.yunet(graph, names, score_threshold=0.6, iou_threshold=0.3, labels=["face"]), "input"
    graph = image(
        network, "input.1", fit="letterbox", resize=640, align="corner", mean=0.5, std=128 / 255, antialias=False
    )
    names = {s: [f"{k}_{s}" for k in ("score", "bbox", "kps")] for s in strides}
    return boxes.scrfd(graph, names, score_threshold=0.5, iou_threshold=0.4, labels=["face"]), "input.1"


@pytest.mark.network
@pytest.mark.parametrize("name", ["mediapipe", "yunet", "scrfd_500m"])
def test_a_face_is_found_on_a_photograph(name: str, tmp_path: Any) -> None:
    """One face on the portrait and none on the cat, in linnet-run and in Python; keypoints are inside the box."""
    graph, input_name = _detector(name)
    graph.save(tmp_path / "face.lnt")
    done = native(tmp_path, "face.lnt", "--input", zoo.shared("grace_hopper.bmp"))
    assert done.returncode == 0, done.stderr
    [box] = np.load(tmp_path / "out" / "boxes.npy")
    sides = np.minimum(box[2:], FACE[2:]) - np.maximum(box[:2], FACE[:2])
    area = (box[2] - box[0]) * (box[3] - box[1]) + (FACE[2] - FACE[0]) * (FACE[3] - FACE[1])
    assert sides.min() > 0 and sides.prod() / (area - sides.prod()) > 0.75, box
    assert any(line.endswith("face") and f"x {box[0]:.1f} to {box[2]:.1f}" in line for line in done.stdout.splitlines())
    [points] = np.load(tmp_path / "out" / "keypoints.npy")
    assert (points > box[:2]).all() and (points < box[2:]).all()
    done = native(tmp_path, "face.lnt", "--input", f"{input_name}={zoo.shared('cat.bmp')}")
    assert done.returncode == 0 and "nothing found" in done.stdout, done.stdout + done.stderr
