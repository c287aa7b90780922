"""Recipes for pictures, and calibration from folders: the numbers against Pillow and NumPy, which files are taken, and what
`linnet convert` makes of both."""

from __future__ import annotations

import json
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import linnet
from linnet.preprocess import recipe
from linnet.quantization.samples import calibration_samples
from tests.test_preprocess import MEAN, STD, identity, photo, pillow

Command = Callable[..., Any]


def network(shape: tuple[Any, ...] = (1, 3, 32, 32)) -> linnet.Graph:
    """A convolution with stride 4, a ReLU and the mean over the picture."""
    rng = np.random.default_rng(0)
    graph = linnet.Graph()
    x = graph.placeholder("x", shape)
    weight = rng.standard_normal((6, 3, 4, 4), np.float32) * np.float32(0.2)
    y = linnet.ops.mean(linnet.ops.relu(linnet.ops.conv(x, graph.constant(weight), strides=[4, 4])), [2, 3])
    graph.signature("infer", {"x": x}, {"y": y})
    return graph


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """12 pictures of two classes and of different sizes, beside files that are no samples."""
    root = tmp_path / "pictures"
    for i in range(12):
        file = root / ("cats" if i % 2 else "dogs") / f"{i:02}.{'png' if i % 3 else 'bmp'}"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(photo(40 + i, 60, i, smooth=True)).save(file)
    (root / "list.txt").write_text("words")
    (root / "dogs" / ".hidden.png").write_bytes(b"")
    return root


def prepared(pixels: np.ndarray, scaling: str) -> np.ndarray:
    """[1, 3, 32, 32] from a photo that is wider than high, by Pillow and NumPy."""
    if scaling == "imagenet":
        height = 37  # 32 * 256 / 224
        width = int(height * pixels.shape[1] / pixels.shape[0])
        sized = pillow(pixels, height, width)
        top, left = round((height - 32) / 2), round((width - 32) / 2)
        values = (sized[top : top + 32, left : left + 32] / 255 - np.array(MEAN)) / np.array(STD)
    else:
        sized = pillow(pixels, 32, 32).astype(np.float64)
        values = {"unit": sized / 255, "symmetric": sized / 127.5 - 1, "raw": sized}[scaling]
    return values.transpose(2, 0, 1)[None]


LEVELS = {
    "imagenet": 1 / 255 / 0.224,
    "unit": 1 / 255,
    "symmetric": 2 / 255,
    "raw": 1.0,
}  # what one level of a pixel makes


@pytest.mark.parametrize(("scaling", "level"), LEVELS.items())
def test_recipes_against_pillow(scaling: str, level: float) -> None:
    pixels = photo(50, 80, smooth=True)
    found = linnet.Session(recipe(identity((1, 3, 32, 32)), scaling)).run({"input": pixels})["output"]
    expected = prepared(pixels, scaling)
    assert np.abs(found - expected).max() <= 1.01 * level  # one level, where Pillow rounds a half up
    assert (np.abs(found - expected) > 0.01 * level).mean() < 0.02


def test_details_of_a_recipe() -> None:
    pixels = photo(32, 32)
    run = lambda graph: linnet.Session(graph).run({"input": pixels})["output"]  # noqa: E731
    raw = run(recipe(identity((1, 3, 32, 32)), "raw"))
    np.testing.assert_array_equal(run(recipe(identity((1, 3, 32, 32)), "raw,colour=BGR")), raw[:, ::-1])
    np.testing.assert_array_equal(run(recipe(identity((1, 32, 32, 3)), "raw")), raw.transpose(0, 2, 3, 1))
    np.testing.assert_allclose(
        run(recipe(identity((1, 3, 32, 32)), "raw,input=input,mean=1:2:3,std=4")),
        (raw - np.array([1, 2, 3]).reshape(1, 3, 1, 1)) / 4, rtol=0, atol=1e-4,
    )  # fmt: skip
    both = [run(recipe(identity((1, 3, 32, 32)), f"imagenet,resize=32,colour={c}")) for c in ("RGB", "BGR")]
    np.testing.assert_array_equal(both[0], both[1][:, ::-1])  # mean and std follow the colours
    grey = run(recipe(identity((1, 1, 32, 32)), "imagenet,resize=32"))
    expected = (np.asarray(Image.fromarray(pixels).convert("L")) / 255 - 0.449) / 0.226
    np.testing.assert_allclose(grey[0, 0], expected, rtol=0, atol=1e-5)
    open_size = recipe(identity(("n", 3, "h", "w")), "unit,fit=shortest,resize=32,crop=24:20")
    assert run(open_size).shape == (1, 3, 24, 20)


def test_the_bare_model_stays_as_a_signature() -> None:
    graph, pixels = recipe(network(), "unit"), photo(40, 40)
    x = linnet.Session(recipe(identity((1, 3, 32, 32)), "unit")).run({"input": pixels})["output"]
    made, bare = (linnet.Session(graph, s).run({"x": v})["y"] for s, v in (("infer", pixels), ("raw", x)))
    np.testing.assert_array_equal(made, bare)
    assert "raw" not in recipe(network(), "unit", keep=None).signatures


@pytest.mark.parametrize(
    ("spec", "shape", "words"),
    [
        ("torch", (1, 3, 32, 32), r"expected imagenet \(torchvision's.*raw or 0\.\.255.*got 'torch'"),
        ("unit,size=3", (1, 3, 32, 32), r"expected input=\.\.\., colour=.*got 'size=3'"),
        ("unit,resize=big", (1, 3, 32, 32), "'resize'.*separated by colons"),
        ("unit,input=z", (1, 3, 32, 32), "no input named 'z'"),
        ("unit,fit=cover", (1, 3, 32, 32), "unknown fit; expected stretch"),
        ("unit", (8, 3, 32, 32), "8 pictures at a time; expected a batch of 1"),
        ("imagenet", (1, 3, None, None), r"height and width open.*input_shapes={'input': \(1, 3, 224, 224\)}"),
        ("unit", (1, 10), "no input can be a picture.*got|as arrays"),
    ],
)
def test_wrong_recipes(spec: str, shape: tuple[Any, ...], words: str) -> None:
    with pytest.raises(linnet.UsageError, match=words):
        recipe(identity(shape), spec)


def test_a_recipe_needs_one_picture_without_steps() -> None:
    graph = linnet.Graph()
    a, b = graph.placeholder("a", (1, 3, 8, 8)), graph.placeholder("b", (1, 3, 8, 8))
    graph.signature("infer", {"a": a, "b": b}, {"y": a + b})
    with pytest.raises(linnet.UsageError, match=r"several inputs may be pictures.*add input=a"):
        recipe(graph, "unit")
    made = recipe(graph, "unit,input=b")
    assert made.signatures["infer"].function.inputs[1].dtype == "u8"
    with pytest.raises(linnet.UsageError, match="'b' takes pictures already"):
        recipe(made, "unit,input=b")
    with pytest.raises(linnet.UsageError, match="one input only"):
        calibration_samples(graph, Path(), image="unit,input=b")


def test_pictures_are_spread_and_sorted(pictures: Path) -> None:
    every = list(calibration_samples(network(), pictures, image="unit"))
    assert len(every) == 12 and all(sample["x"].shape == (1, 3, 32, 32) for sample in every)
    read = sorted(path for path in pictures.rglob("*") if path.suffix in (".png", ".bmp") and path.name[0] != ".")
    expected = prepared(np.asarray(Image.open(read[1])), "unit")
    assert np.abs(every[1]["x"] - expected).max() <= 1.01 / 255
    few = calibration_samples(network(), pictures, 3, image="unit")
    for _ in range(2):  # they can be read again
        for sample, i in zip(few, (0, 4, 8), strict=True):
            np.testing.assert_array_equal(sample["x"], every[i]["x"])
    with pytest.raises(linnet.UsageError, match="1 or more"):
        calibration_samples(network(), pictures, 0, image="unit")


def test_a_graph_with_steps_takes_the_pictures_themselves(pictures: Path) -> None:
    """The numbers are the same as if the recipe is given beside the graph."""
    graph = recipe(network(), "symmetric")
    samples = list(calibration_samples(graph, pictures))
    assert samples[0]["x"].dtype == np.uint8 and samples[0]["x"].shape[1:] == (60, 3)
    x = photo(44, 50, 99, smooth=True)
    after = linnet.quantize(graph, samples)
    before = recipe(
        linnet.quantize(network(), calibration_samples(network(), pictures, image="symmetric")), "symmetric"
    )
    found, same, exact = (linnet.Session(g).run({"x": x})["y"] for g in (after, before, graph))
    np.testing.assert_array_equal(found, same)
    assert 0 < np.abs(found - exact).max() < 0.05 * np.abs(exact).max()


def test_open_sizes_take_the_size_of_the_recipe(pictures: Path) -> None:
    graph = network(("n", 3, "h", "w"))
    (sample,) = calibration_samples(graph, pictures, 1, image="unit,fit=letterbox,resize=48:40")
    assert sample["x"].shape == (1, 3, 48, 40)
    (sample,) = calibration_samples(network((1, 3, 32, "w")), pictures, 1, image="unit,resize=32:24")
    assert sample["x"].shape == (1, 3, 32, 24)


def test_unreadable_files_are_named_and_left_out(pictures: Path) -> None:
    notes: list[str] = []
    (pictures / "dogs" / "00.bmp").write_bytes(b"BM")
    samples = calibration_samples(network(), pictures, image="unit", note=notes.append)
    assert len(list(samples)) == 11 == len(list(samples))
    (note,) = notes
    assert "1 of 12 samples" in note and str(pictures / "dogs" / "00.bmp") in note
    for path in pictures.rglob("*.*"):
        path.write_bytes(b"nothing")
    with pytest.raises(linnet.UsageError, match=r"no sample.*12 files, the first with: .*01\.png"):
        list(calibration_samples(network(), pictures, image="unit"))


def test_folders_without_samples(pictures: Path, tmp_path: Path) -> None:
    with pytest.raises(
        linnet.UsageError, match=r"how pictures become its input; expected --image.*imagenet .*raw or 0\.\.255"
    ):
        calibration_samples(network(), pictures)
    (tmp_path / "empty").mkdir()
    for options, kind in (({"image": "unit"}, "pictures"), ({}, "arrays")):
        with pytest.raises(
            linnet.UsageError, match=f"no {kind} for calibration; expected files of type .*got no sample"
        ):
            calibration_samples(network(), tmp_path / "empty", **options)
    np.save(tmp_path / "empty" / "a.npy", np.zeros(3))
    with pytest.raises(linnet.UsageError, match="got 1 arrays"):
        calibration_samples(network(), tmp_path / "empty", image="unit")


def test_folders_of_arrays(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((3, 32, 32), np.float32) for _ in range(4)]
    np.save(tmp_path / "a.npy", arrays[0])
    np.save(tmp_path / "b.npy", arrays[1][None])
    np.savez(tmp_path / "c.npz", x=arrays[2][None], more=0)
    np.savez(tmp_path / "d.npz", y=arrays[3])
    notes: list[str] = []
    found = list(calibration_samples(network(), tmp_path, note=notes.append))
    assert [s["x"].shape for s in found] == [(1, 3, 32, 32)] * 3 and "d.npz" in notes[0]
    for sample, array in zip(found, arrays, strict=False):
        np.testing.assert_array_equal(sample["x"][0], array)
    np.savez(tmp_path / "all.npz", x=np.stack(arrays)[:, None])
    assert len(list(calibration_samples(network(), tmp_path / "all.npz"))) == 4
    few = list(calibration_samples(network(), tmp_path / "all.npz", 2))
    np.testing.assert_array_equal(few[1]["x"][0], arrays[2])


def test_folders_of_sounds(tmp_path: Path) -> None:
    graph = linnet.Graph()
    mel = graph.placeholder("mel", (1, 40, "frames"))
    graph.signature("infer", {"mel": mel}, {"loudness": mel.mean([2])})
    graph = linnet.preprocess.audio(graph, "mel", linnet.preprocess.Features(mels=40), rate=16000)
    tone = (8000 * np.sin(np.arange(8000) / 5)).astype(np.int16)
    with wave.open(str(tmp_path / "tone.wav"), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(16000)
        sound.writeframes(tone.tobytes())
    (sample,) = calibration_samples(graph, tmp_path)
    np.testing.assert_allclose(sample["mel"], tone / 32768, rtol=0, atol=1e-6)


def test_the_command(pictures: Path, tmp_path: Path, linnet_command: Command) -> None:
    source, out = tmp_path / "net.lnt", tmp_path / "i8.lnt"
    network().save(source)
    (pictures / "dogs" / "00.bmp").write_bytes(b"BM")
    options = ("--calibration", pictures, "--dtype", "i8")
    done = linnet_command("convert", source, "-o", out, *options)
    assert done.returncode == 1 and "--image" in done.stderr and "imagenet (torchvision's" in done.stderr
    done = linnet_command("convert", source, "-o", out, *options, "--image", "unit")
    assert done.returncode == 0 and done.stderr.startswith("linnet: note: 1 of 12 samples cannot be read"), done.stderr
    Image.fromarray(photo(50, 70, 3, smooth=True)).save(tmp_path / "photo.png")
    runs = [linnet_command("run", out, "--input", tmp_path / "photo.png", "-o", tmp_path / "out")]
    assert runs[0].returncode == 0, runs[0].stderr
    pixels = np.asarray(Image.open(tmp_path / "photo.png"))
    exact = linnet.Session(recipe(network(), "unit")).run({"x": pixels})["y"]
    assert np.abs(np.load(tmp_path / "out" / "y.npy") - exact).max() < 0.05 * np.abs(exact).max()
    assert set(linnet.Graph.load(out).signatures) == {"infer", "raw"}
    network().to_onnx(tmp_path / "net.onnx")
    check = ("convert", "--check", tmp_path / "net.onnx", *options, "--samples", 3, "--json")
    report = json.loads(linnet_command(*check, "--image", "unit").stdout)
    assert report["converts"] and report["dtype"] == "i8"
    assert linnet_command(*check).returncode == 1
    done = linnet_command("convert", source, "-o", out, "--samples", 3, "--dtype", "f16")
    assert done.returncode == 2 and "--samples has no effect" in done.stderr
    done = linnet_command("convert", source, "-o", tmp_path / "f32.lnt", "--image", "unit")
    assert done.returncode == 0
    done = linnet_command("convert", tmp_path / "f32.lnt", "-o", tmp_path / "again.lnt", *options, "--samples", 5)
    assert done.returncode == 0, done.stderr  # the file says how pictures become its input
