"""Draws digits with Pillow's built-in font, moved, turned, sheared and scaled at random, framed as in MNIST.
Training mixes them with MNIST; the committed samples and the calibration pictures consist only of them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

_SIZE = 28
_LARGE = 112  # digits are drawn at four times their size, then shrunk


def draw(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws `count` digits: pictures u8 [count,28,28], white on black, and labels u8 [count], balanced."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(count) % 10).astype(np.uint8)
    return np.stack([_draw(int(label), rng) for label in labels]), labels


@lru_cache(maxsize=32)
def _font(size: int) -> ImageFont.FreeTypeFont:
    font = ImageFont.load_default(size=size)
    assert isinstance(font, ImageFont.FreeTypeFont), "Pillow was built without FreeType"
    return font


def _draw(label: int, rng: np.random.Generator) -> np.ndarray:
    """One digit, u8 [28,28]."""
    font = _font(4 * int(rng.integers(22, 29)))
    large = Image.new("L", (_LARGE, _LARGE), 0)
    centre = tuple(_LARGE / 2 + rng.uniform(-8, 8, 2))
    ImageDraw.Draw(large).text(centre, str(label), fill=255, font=font, anchor="mm",
                               stroke_width=float(rng.integers(0, 4)))  # fmt: skip
    angle, shear = np.radians(rng.uniform(-12, 12)), rng.uniform(-0.2, 0.2)
    stretch = rng.uniform(0.85, 1.2)
    matrix = np.array([[np.cos(angle), np.sin(angle) + shear], [-np.sin(angle), np.cos(angle)]])
    matrix[0] *= stretch
    middle = np.full(2, _LARGE / 2)
    offset = middle - matrix @ middle
    coefficients = (*matrix[0], offset[0], *matrix[1], offset[1])
    large = large.transform(large.size, Image.Transform.AFFINE, coefficients, Image.Resampling.BILINEAR)
    if rng.random() < 0.5:
        large = large.filter(ImageFilter.GaussianBlur(rng.uniform(0, 2.5)))
    return np.asarray(large.resize((_SIZE, _SIZE), Image.Resampling.BOX), np.uint8)
