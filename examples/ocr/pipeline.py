"""Reads a page with three networks: they find the lines (DB), find those that are upside down, and recognize text (CTC).
Everything around the networks is numpy and Pillow; a network is any object with `run(feeds)`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image

from .boxes import Box, text_boxes

DET_SHAPE = (1, 3, 704, 480)  # the size of a page from page.py
CLS_SHAPE = (1, 3, 48, 192)
REC_SHAPE = (1, 3, 48, 480)  # every line has this width, squeezed or padded, so that one plan is enough
INPUT = "x"  # the input's name in all three networks
_FLIP_CONFIDENCE = 0.9


class Runner(Protocol):
    """The interface that the pipeline needs from a network; `linnet.Session` has it."""

    def run(self, feeds: dict[str, np.ndarray], /) -> dict[str, np.ndarray]:
        """Computes the outputs from the inputs, both by name."""
        ...


@dataclass
class Recorder:
    """A runner that calls another one and keeps its inputs: the calibration data for `quantize`."""

    runner: Runner
    feeds: list[dict[str, np.ndarray]] = field(default_factory=list)

    def run(self, feeds: dict[str, np.ndarray], /) -> dict[str, np.ndarray]:
        """Keeps a copy of the feeds and calls the other runner."""
        self.feeds.append({name: value.copy() for name, value in feeds.items()})
        return self.runner.run(feeds)


@dataclass(frozen=True)
class Line:
    """A recognized line: its position (page pixels), its text, and whether it was upside down."""

    box: Box
    text: str
    flipped: bool


@dataclass
class Reader:
    """The three networks and the recognizer's characters; `read` turns a page into lines."""

    detector: Runner
    classifier: Runner
    recognizer: Runner
    characters: list[str]

    def read(self, image: np.ndarray) -> list[Line]:
        """Reads a page, u8 [H,W,3] RGB; the lines are in order from top to bottom."""
        probability = _only(self.detector.run({INPUT: detector_input(image)}))[0, 0]
        scale = (image.shape[1] / probability.shape[1], image.shape[0] / probability.shape[0])
        lines = []
        for box in text_boxes(probability, scale, image.shape[:2]):
            crop = image[box.top : box.bottom, box.left : box.right]
            upright, upside_down = _only(self.classifier.run({INPUT: line_input(crop, CLS_SHAPE)}))[0]
            flipped = bool(upside_down > max(upright, _FLIP_CONFIDENCE))
            if flipped:
                crop = crop[::-1, ::-1]
            scores = _only(self.recognizer.run({INPUT: line_input(crop, REC_SHAPE)}))[0]
            lines.append(Line(box, ctc_text(scores, self.characters), flipped))
        return lines


def detector_input(image: np.ndarray) -> np.ndarray:
    """u8 [H,W,3] RGB -> f32 DET_SHAPE, BGR, with the mean and deviation that the detector was trained with."""
    height, width = DET_SHAPE[2:]
    if image.shape[:2] != (height, width):
        image = np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR))
    mean = np.array([0.485, 0.456, 0.406], np.float32)
    deviation = np.array([0.229, 0.224, 0.225], np.float32)
    value = (image[..., ::-1].astype(np.float32) / 255 - mean) / deviation
    return np.ascontiguousarray(value.transpose(2, 0, 1)[None])


def line_input(crop: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """u8 [h,w,3] RGB -> f32 `shape`, BGR in [-1, 1]: scaled to the height, zeros on the right."""
    height, width = shape[2:]
    scaled = min(width, max(1, round(height * crop.shape[1] / crop.shape[0])))
    picture = Image.fromarray(np.ascontiguousarray(crop)).resize((scaled, height), Image.Resampling.BILINEAR)
    value = np.asarray(picture, np.float32)[..., ::-1] / 127.5 - 1
    out = np.zeros(shape, np.float32)
    out[0, :, :, :scaled] = value.transpose(2, 0, 1)
    return out


def ctc_text(scores: np.ndarray, characters: list[str]) -> str:
    """Greedy CTC: f32 [T,1+len(characters)] -> text; class 0 is the blank, repeats are merged."""
    best = scores.argmax(axis=1)
    keep = (best != 0) & np.concatenate(([True], best[1:] != best[:-1]))
    return "".join(characters[index - 1] for index in best[keep])


def characters_of(model: str | Path) -> list[str]:
    """Returns the characters of a PP-OCR recognizer, from the metadata of its file; the space is the last."""
    import onnx

    for entry in onnx.load(str(model)).metadata_props:
        if entry.key == "character":
            return [*entry.value.splitlines(), " "]
    raise ValueError(f"{model} has no metadata entry 'character'; expected a PP-OCR recognizer")


def record(reader: Reader, images: list[np.ndarray]) -> dict[str, list[dict[str, np.ndarray]]]:
    """Reads `images` (u8 [H,W,3]) and returns the inputs of each network, by its name in `Reader`."""
    recorders = {name: Recorder(getattr(reader, name)) for name in ("detector", "classifier", "recognizer")}
    recording = Reader(**recorders, characters=reader.characters)
    for image in images:
        recording.read(image)
    return {name: recorder.feeds for name, recorder in recorders.items()}


def _only(outputs: dict[str, np.ndarray]) -> np.ndarray:
    (value,) = outputs.values()
    return value
