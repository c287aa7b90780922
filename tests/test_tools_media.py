"""Images and sound as inputs of linnet-run and `linnet run`: every kind of file, EXIF orientation, damage, and the output.
Pillow and the wave module write the files and are the reference; the two tools are also compared with each other."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
import wave
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

import linnet
from linnet.data import media
from linnet.facade import Graph
from linnet.ir.function import emit
from tests.native import SANITIZED, build, run

RGB = np.random.default_rng(5).integers(0, 256, (23, 37, 3), dtype=np.uint8)
SMOOTH = np.stack([*np.meshgrid(np.arange(61) * 4, np.arange(45) * 5, indexing="ij"), np.full((61, 45), 90)], -1)


def echo(folder: Path) -> Path:
    """A model that returns the pixels of its photo as f32 [1, H, W, 3]."""
    graph = Graph()
    main = graph.function()
    x = main.placeholder("x", "f32", (1, "h", "w", 3))
    main.outputs.append(emit("copy", [x], {"kind": "identity"}, name="y")[0])
    graph.signature("infer", main)
    path = folder / "echo.lnt"
    linnet.preprocess.image(graph, "x", scale=1.0).save(path)
    return path


def native(folder: Path, *arguments: object, kind: str = "release") -> subprocess.CompletedProcess[str]:
    folder_of_outputs = [] if "--output-dir" in arguments else ["-o", "out"]
    command = [str(build(kind, "linnet-run") / "linnet-run"), *map(str, arguments), *folder_of_outputs]
    env = {**os.environ, **SANITIZED}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False, env=env)


def decoded(folder: Path, file: Path) -> np.ndarray:
    """The pixels that linnet-run reads, u8 [H, W, 3]."""
    done = native(folder, echo(folder), "--input", file)
    if "built without" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return np.load(folder / "out" / "y.npy")[0].astype(np.uint8)


def test_the_tool_names_the_decoders_that_it_lacks(tmp_path: Path) -> None:
    """A build without decoders still runs models and says what to install; the library itself never links decoders."""
    tools = Path(__file__).parent.parent / "runtime_c" / "tools"
    library = build("release") / "liblinnet.a"
    include = Path(__file__).parent.parent / "runtime_c" / "include"
    kept = [
        str(tools / f"{name}.c")
        for name in (
            "clock",
            "feeds",
            "help",
            "inputs",
            "linnet_run",
            "media",
            "media_bmp",
            "media_jpeg",
            "media_picture",
            "media_png",
            "messages",
            "npy",
            "open",
            "options",
            "results",
            "run",
            "trace",
            "trace_events",
            "trace_hosts",
            "values",
            "words",
        )
    ]
    tool = tmp_path / "bare"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{include}"]
    run(["cc", *flags, *kept, str(library), "-lm", "-lpthread", "-o", str(tool)])
    model = echo(tmp_path)
    for kind, words in (("jpg", "libjpeg-dev"), ("png", "libpng-dev")):
        Image.fromarray(RGB).save(tmp_path / f"x.{kind}")
        done = subprocess.run(
            [tool, model, "--input", tmp_path / f"x.{kind}"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 1 and f"install {words} and build again" in done.stderr, done.stderr
    Image.fromarray(RGB).save(tmp_path / "x.bmp")
    subprocess.run(
        [tool, model, "--input", tmp_path / "x.bmp", "--output-dir", tmp_path / "o"], check=True, capture_output=True
    )
    np.testing.assert_array_equal(np.load(tmp_path / "o" / "y.npy")[0], RGB)
    needed = run(["readelf", "-d", str(build("release", "linnet-run") / "linnet-run")])
    if sys.platform == "linux" and Path("/usr/include/jpeglib.h").exists():
        assert "libjpeg" in needed


@pytest.mark.parametrize("mode", ["RGB", "L", "1", "P", "RGBA", "LA", "I;16"])
@pytest.mark.parametrize("kind", ["png", "bmp"])
def test_lossless_pictures(mode: str, kind: str, tmp_path: Path) -> None:
    picture = Image.fromarray(RGB)
    if mode == "I;16":
        deep = RGB[..., 0].astype(np.uint16) * 256 + 77
        picture, expected = Image.fromarray(deep), np.repeat(RGB[..., :1], 3, axis=2)
    elif mode == "P":
        picture = picture.quantize(13)
        expected = np.asarray(picture.convert("RGB"))
    else:
        picture = picture.convert(mode)
        expected = np.asarray(picture.convert("RGB"))
    if kind == "bmp" and mode in ("I;16", "LA"):
        with pytest.raises(OSError):
            picture.save(tmp_path / "x.bmp")
        return
    path = tmp_path / f"x.{kind}"
    picture.save(path)
    np.testing.assert_array_equal(media.read_image(path), expected)
    np.testing.assert_array_equal(decoded(tmp_path, path), expected)


def test_sixteen_bit_colours_keep_their_high_byte(tmp_path: Path) -> None:
    """16-bit RGB, which Pillow cannot write: the file is made by hand."""
    rows = b"".join(b"\0" + (row.astype(np.uint16) * 256 + 200).astype(">u2").tobytes() for row in RGB)
    head = struct.pack(">IIBBBBB", RGB.shape[1], RGB.shape[0], 16, 2, 0, 0, 0)
    path = tmp_path / "deep.png"
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(rows)) + _chunk(b"IEND", b"")
    )
    np.testing.assert_array_equal(media.read_image(path), RGB)
    np.testing.assert_array_equal(decoded(tmp_path, path), RGB)


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("progressive", [False, True])
def test_jpeg(mode: str, progressive: bool, tmp_path: Path) -> None:
    """Two versions of libjpeg-turbo may differ by one in a colour; in practice they agree."""
    path = tmp_path / "x.jpg"
    Image.fromarray(SMOOTH.astype(np.uint8)).convert(mode).save(path, quality=92, progressive=progressive)
    with Image.open(path) as opened:
        expected = np.asarray(opened.convert("RGB")).astype(int)
    np.testing.assert_array_equal(media.read_image(path), expected)
    assert np.abs(decoded(tmp_path, path) - expected).max() <= 2


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["jpg", "png"])
def test_orientation(orientation: int, kind: str, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    exif[0x010F] = "a maker whose name is long enough to lie elsewhere"
    path = tmp_path / f"x.{kind}"
    Image.fromarray(SMOOTH.astype(np.uint8)).save(path, exif=exif, **({"quality": 95} if kind == "jpg" else {}))
    with Image.open(path) as opened:
        expected = np.asarray(ImageOps.exif_transpose(opened)).astype(int)
    assert (expected.shape[:2] == (61, 45)) == (orientation < 5)
    np.testing.assert_array_equal(media.read_image(path), expected)
    assert np.abs(decoded(tmp_path, path).astype(int) - expected).max() <= 2


def _files(kind: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(RGB).save(buffer, {"jpg": "JPEG"}.get(kind, kind))
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["jpg", "png", "bmp"])
def test_damaged_pictures_are_refused_or_read(kind: str, tmp_path: Path) -> None:
    """Both tools refuse truncated files. With flipped bytes there is no crash (under AddressSanitizer), and one line on
    refusal."""
    content, model = _files(kind), echo(tmp_path)
    path = tmp_path / f"bad.{kind}"
    for length in (20, 60, len(content) // 2, len(content) - 40):
        path.write_bytes(content[:length])
        done = native(tmp_path, model, "--input", path, kind="address")
        assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, (length, done.stderr)
        with pytest.raises(linnet.UsageError, match=f"bad.{kind}"):
            media.read_image(path)
    rng = np.random.default_rng(zlib.crc32(kind.encode()))
    for _ in range(40):
        damaged = bytearray(content)
        for at in rng.integers(2, len(content), 3):
            damaged[at] = rng.integers(256)
        path.write_bytes(damaged)
        done = native(tmp_path, model, "--input", path, kind="address")
        assert done.returncode in (0, 1) and len(done.stderr.splitlines()) <= 1, done.stderr
        try:
            media.read_image(path)
        except linnet.UsageError as error:
            assert "bad." in str(error)


@pytest.mark.parametrize("kind", ["png", "bmp", "jpg"])
def test_huge_pictures_are_refused_before_they_are_decoded(kind: str, tmp_path: Path) -> None:
    content = bytearray(_files(kind))
    if kind == "png":
        head = struct.pack(">IIBBBBB", 40000, 40000, 8, 2, 0, 0, 0)
        content[8:33] = _chunk(b"IHDR", head)
    elif kind == "bmp":
        content[18:26] = struct.pack("<ii", 40000, 40000)
    else:
        at = content.index(b"\xff\xc0") + 5
        content[at : at + 4] = struct.pack(">HH", 40000, 40000)
    path = tmp_path / f"huge.{kind}"
    path.write_bytes(content)
    done = native(tmp_path, echo(tmp_path), "--input", path)
    assert done.returncode == 1 and "40000 x 40000 pixels, more than the limit of 100 million" in done.stderr, (
        done.stderr
    )
    with pytest.raises(linnet.UsageError, match=r"100 million|exceeds limit"):
        media.read_image(path)


def test_what_takes_no_picture_says_how_it_would(tmp_path: Path) -> None:
    graph = Graph()
    main = graph.function()
    main.outputs.append(emit("copy", [main.placeholder("x", "f32", (1, 3, 8, 8))], {"kind": "identity"}, name="y")[0])
    graph.signature("infer", main)
    graph.save(tmp_path / "raw.lnt")
    Image.fromarray(RGB).save(tmp_path / "x.png")
    _sound(tmp_path / "x.wav", np.zeros(10, np.int16))
    for file, function in (("x.png", "linnet.preprocess.image"), ("x.wav", "linnet.preprocess.audio")):
        done = native(tmp_path, "raw.lnt", "--input", file)
        assert done.returncode == 1 and function in done.stderr, done.stderr
        code, _, error = cli(tmp_path, "raw.lnt", "--input", file)
        assert code == 1 and function in error
    (tmp_path / "words.txt").write_text("no picture at all")
    for code, error in (
        (lambda d: (d.returncode, d.stderr))(native(tmp_path, "raw.lnt", "--input", "words.txt")),
        cli(tmp_path, "raw.lnt", "--input", "words.txt")[::2],
    ):
        assert code == 1 and "JPEG, PNG or BMP" in error and len(error.splitlines()) == 1


def test_a_photo_that_was_not_given(tmp_path: Path) -> None:
    model = echo(tmp_path)
    done = native(tmp_path, model)
    assert done.returncode == 1 and "input 'x' (u8 [?, ?, 3]) was not given; give --input x=FILE" in done.stderr
    done = native(tmp_path, model, "--random")
    assert done.returncode == 1 and "for example --shape x=480,640,3" in done.stderr
    done = native(tmp_path, model, "--random", "--shape", "x=4,5,3")
    assert done.returncode == 0 and np.load(tmp_path / "out" / "y.npy").shape == (1, 4, 5, 3)
    code, _, error = cli(tmp_path, str(model))
    assert code == 1 and "no value is given for input 'x'" in error


def cli(folder: Path, *arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "linnet", "run", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


def classifier() -> Graph:
    """The mean of each colour plane, as three classes."""
    graph = Graph()
    main = graph.function()
    x = main.placeholder("x", "f32", (1, 3, 16, 16))
    main.outputs.append(emit("reduce", [x], {"kind": "mean", "axes": [2, 3], "keep_dims": False}, name="y")[0])
    graph.signature("infer", main)
    graph = linnet.preprocess.image(graph, "x")
    return linnet.preprocess.top_k(graph, "y", 2, labels=["rose", "grass green", "sky"])


def test_labels_are_printed_by_both_tools(tmp_path: Path) -> None:
    classifier().save(tmp_path / "classes.lnt")
    photo = np.zeros((30, 40, 3), np.uint8)
    photo[..., 1], photo[..., 2] = 51, 204
    Image.fromarray(photo).save(tmp_path / "photo=1.png")
    done = native(tmp_path, "classes.lnt", "--input", "x=photo=1.png")
    assert done.returncode == 0 and "   0.8000  sky\n   0.2000  grass green\n" in done.stdout, done.stdout + done.stderr
    done = native(tmp_path, "classes.lnt", "--input", "x=photo=1.png", "--json")
    native_found = json.loads(done.stdout)["found"]
    code, text, error = cli(tmp_path, "classes.lnt", "--input", "x=photo=1.png", "--json")
    assert code == 0, error
    found = json.loads(text)["found"]["classes"]
    assert [entry["label"] for entry in found] == ["sky", "grass green"]
    np.testing.assert_allclose([entry["score"] for entry in found], [0.8, 0.2], atol=1e-6)
    assert [e["label"] for e in native_found["classes"]] == ["sky", "grass green"] and native_found.keys() == {
        "classes"
    }
    assert np.float32(native_found["classes"][0]["score"]) == np.float32(found[0]["score"])
    code, text, _ = cli(tmp_path, "classes.lnt", "--input", "x=photo=1.png")
    assert code == 0 and "grass green" in text


def _sound(path: Path, samples: np.ndarray, rate: int = 16000, channels: int = 1) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(samples.dtype.itemsize)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
