"""Classifiers with ImageNet weights, segmentation and detection of objects, on photographs and crops of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.accuracy import metrics, pictures
from tests.accuracy.choose import confident
from tests.accuracy.entry import CALIBRATION, Array, Entry, Outputs, Sample, each
from tests.accuracy.files import mediapipe, member, of_zoo
from tests.accuracy.nets import efficientnet_lite, mobilenet_v2_dogs


def classifier(
    file: Callable[[], Path], name: str, prepare: Callable[[Array], Array], size: int, *, logits: bool = True, tests: int = 200,
    note: str = "", smallest: float = 0.6,
) -> Entry:  # fmt: skip
    """Top-1 on crops of photographs. The crops of the test are chosen so that f32 is sure of four in five."""

    def data(part: str, count: int) -> list[Sample]:
        if part == CALIBRATION:
            return each(
                name, [prepare(c) for c in pictures.crops(pictures.things(), part, count, size, smallest=smallest)]
            )
        candidates = each(
            name, [prepare(c) for c in pictures.crops(pictures.things(), part, 3 * count, size, smallest=smallest)]
        )
        return confident(file(), candidates, count, logits)

    return Entry(file, data, metrics.same_class(logits=logits), "top-1", calibrations=64, tests=tests,
                 share=metrics.sure_share(logits=logits), note=note)  # fmt: skip


def _all(part: str, count: int) -> list[Array]:
    """Whole photographs of things and people in turn, or crops when there are not enough."""
    people, things = pictures.part_of(pictures.people(), part), pictures.part_of(pictures.things(), part)
    mixed = [p for pair in zip(people, (things * 8)[: len(people)], strict=True) for p in pair]
    return mixed[:count]


def _photos(name: str, prepare: Callable[[Array], Array]) -> Callable[[str, int], list[Sample]]:
    return lambda part, count: each(name, [prepare(p) for p in _all(part, count)])


def _salient(photo: Array) -> Array:
    """As rembg prepares it: divided by its maximum, then ImageNet's mean and deviation."""
    image = pictures.fitted(photo, 320, 320)
    return pictures.planes(image, image.max() * pictures.IMAGENET[0], image.max() * pictures.IMAGENET[1])


def _yolo(outputs: Outputs) -> tuple[Array, Array]:
    """nudenet: f32 [1,4+18,2100] of centre, size and scores of classes."""
    found = next(iter(outputs.values()))[0].T
    middle, size = found[:, :2], found[:, 2:4]
    return np.concatenate([middle - size / 2, middle + size / 2], axis=1), found[:, 4:].max(axis=1)


def _people(
    name: str, height: int, width: int, prepare: Callable[[Array], Array]
) -> Callable[[str, int], list[Sample]]:
    def data(part: str, count: int) -> list[Sample]:
        return each(
            name,
            [prepare(pictures.fitted(p, height, width)) for p in pictures.part_of(pictures.people(), part)[:count]],
        )

    return data


MODELS = {
    "mobilenet_v2_dogs": classifier(
        mobilenet_v2_dogs, "input", lambda c: pictures.planes(c, 127.5, 127.5), 160, logits=False,
        note="ImageNet weights, tuned to 19 breeds of dogs, from Keras",
    ),
    "efficientnet_lite0": classifier(
        lambda: efficientnet_lite(0), "input", lambda c: pictures.planes(c, 127, 128), 224, note="ImageNet weights"
    ),
    "efficientnet_lite1": classifier(
        lambda: efficientnet_lite(1), "input", lambda c: pictures.planes(c, 127, 128), 240, tests=130,
        note="ImageNet weights",
    ),
    "u2netp": Entry(of_zoo("u2netp"), _photos("input.1", _salient), metrics.overlap(threshold=0.5), "IoU of the mask",
                    calibrations=16, tests=24),
    "selfie_segmentation": Entry(
        mediapipe("selfie_segmentation"), _people("input_1", 256, 256, pictures.last), metrics.overlap(threshold=0.5),
        "IoU of the mask", tests=80,
    ),
    "nudenet": Entry(
        member("nudenet", "3.4.2", "nudenet/320n.onnx"),
        _people("images", 320, 320, lambda p: pictures.planes(p, 0, 255)),
        metrics.detections(_yolo, threshold=0.35), "F1 of boxes at IoU 0.75", tests=110, note="YOLOv8",
    ),
}  # fmt: skip
