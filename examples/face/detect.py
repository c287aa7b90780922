"""The two networks: BlazeFace finds faces in the whole photo (arXiv 1907.05047), the mesh network places 468 points on each
(arXiv 1907.06724). Anchors, boxes and crops are those of MediaPipe's face_detection and face_landmark graphs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

import linnet
from linnet._fetch import fetch_member

_SIZE = 128  # size of the detector's input
_MESH = 192  # size of the mesh network's input
_THRESHOLD, _OVERLAP = 0.5, 0.3
_RIGHT_EYE, _LEFT_EYE = 0, 1  # indices in the six points that the detector gives


@dataclass(frozen=True)
class Face:
    """A face in pixels of the photo. box: left, top, right, bottom. points: f32 [6,2], eyes, nose, mouth, ears.
    mesh: f32 [468,2]. score: the detector's; presence: the mesh network's score; both 0..1."""

    box: tuple[float, float, float, float]
    points: np.ndarray
    score: float
    mesh: np.ndarray
    presence: float


def model_file(name: str) -> Path:
    """Returns a TFLite file of the mediapipe package. Raises `FetchError`."""
    return fetch_member("mediapipe", f"mediapipe/modules/{name}.tflite", "0.10.14")


class Faces:
    """Both networks, converted at the first use. Raises `FetchError` if they cannot be fetched."""

    def __init__(self) -> None:
        steps = linnet.preprocess
        finder = linnet.from_tflite(model_file("face_detection/face_detection_short_range"))
        # The input is the unchanged photo: the graph itself fits it into 128x128, and scales it to -1..1.
        finder = steps.image(finder, "input", fit="letterbox", mean=0.5, std=0.5)
        self.finder = linnet.Session(steps.sigmoid(finder, "classificators"))
        mesh = linnet.from_tflite(model_file("face_landmark/face_landmark"))
        self.mesh = linnet.Session(steps.sigmoid(steps.image(mesh, "input_1"), "conv2d_31"))

    def find(self, photo: np.ndarray) -> list[Face]:
        """Finds the faces of a photo, u8 [H,W,3] RGB, the highest score first."""
        results = self.finder.run({"input": photo})
        (boxes, points), scores = decode(results["regressors"][0]), results["classificators"][0, :, 0]
        size = np.array(photo.shape[1::-1], np.float32)
        fitted = np.rint(size * _SIZE / size.max())  # the size of the photo in the middle of the network's input
        scale, shift = size / fitted, (_SIZE - fitted) // 2
        faces = []
        for i in _distinct(boxes, scores):
            box = ((boxes[i].reshape(2, 2) - shift) * scale).reshape(4)
            places = (points[i] - shift) * scale
            mesh, presence = self._mesh(photo, box, places)
            left, top, right, bottom = box.tolist()
            faces.append(Face((left, top, right, bottom), places, float(scores[i]), mesh, presence))
        return faces

    def _mesh(self, photo: np.ndarray, box: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, float]:
        """Finds the points of one face, in a square around it that is rotated so that the eyes are level."""
        across = points[_LEFT_EYE] - points[_RIGHT_EYE]
        angle = math.atan2(across[1], across[0])
        side = 1.5 * max(box[2] - box[0], box[3] - box[1])
        cos, sin = math.cos(angle) * side / _MESH, math.sin(angle) * side / _MESH
        turn = np.array([[cos, -sin], [sin, cos]])  # pixels of the crop to pixels of the photo
        start = np.array([box[0] + box[2], box[1] + box[3]]) / 2 - turn @ np.array([_MESH / 2, _MESH / 2])
        affine = (turn[0, 0], turn[0, 1], start[0], turn[1, 0], turn[1, 1], start[1])
        image = Image.fromarray(photo).transform(
            (_MESH, _MESH), Image.Transform.AFFINE, affine, Image.Resampling.BILINEAR
        )
        results = self.mesh.run({"input_1": np.asarray(image)})
        mesh = results["conv2d_21"].reshape(468, 3)[:, :2] @ turn.T + start
        return mesh.astype(np.float32), float(results["conv2d_31"].reshape(()))


def anchors() -> np.ndarray:
    """Returns f32 [896,2], the centres of the detector's outputs, x and y in 0..1: 2 in each of 16x16 cells, 6 in each of 8x8."""
    rows = []
    for cells, each in ((16, 2), (8, 6)):
        y, x = np.mgrid[0:cells, 0:cells]
        centres = (np.stack([x, y], axis=-1).reshape(-1, 2) + 0.5) / cells
        rows.append(np.repeat(centres, each, axis=0))
    return np.concatenate(rows).astype(np.float32)


def decode(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Converts the detector's output f32 [896,16] to boxes f32 [896,4] and points f32 [896,6,2], in pixels of its input."""
    centres = anchors() * _SIZE
    middle, size = raw[:, 0:2] + centres, raw[:, 2:4]
    boxes = np.concatenate([middle - size / 2, middle + size / 2], axis=1)
    return boxes, raw[:, 4:].reshape(-1, 6, 2) + centres[:, None]


def _distinct(boxes: np.ndarray, scores: np.ndarray) -> list[int]:
    """Greedy non-maximum suppression: keeps the boxes that do not overlap one with a higher score."""
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    kept: list[int] = []
    for i in np.argsort(-scores):
        if scores[i] < _THRESHOLD:
            break
        low, high = np.maximum(boxes[i, :2], boxes[kept, :2]), np.minimum(boxes[i, 2:], boxes[kept, 2:])
        shared = np.prod(np.maximum(high - low, 0), axis=1)
        if not np.any(shared > _OVERLAP * (areas[i] + areas[kept] - shared)):
            kept.append(int(i))
    return kept
