"""Steps behind a model (linnet.preprocess): text by CTC, masks on the photo, boxes of the usual detectors in photo pixels, each
against NumPy written from its definition; faces on a photograph whose contents are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import linnet
from linnet.graph import Graph, emit
from linnet.preprocess import ctc, image, mask
from tests.test_preprocess import identity
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
    with pytest.raises(linnet.UsageError, match="cannot be read as text"):
        ctc(identity((2, 3, 28)), "output", labels=list(alphabet))


# ---- masks


def darkness() -> Graph:
    """A segmentation "network": how dark the photo is, at a quarter of the size, f32 [1,1,24,32]."""
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
    with pytest.raises(linnet.UsageError, match="layout of the output"):
        mask(identity((1, 5, 7)), "output")
    with pytest.raises(linnet.UsageError, match="'input' is no photo"):
        mask(identity((1, 1, 5, 7)), "output", input="input")
