"""Lines and pages of text in the fonts of the machine (DejaVu, or Pillow's own). Calibration and test have other words."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from tests.accuracy.entry import CALIBRATION, Array

_FONTS = Path("/usr/share/fonts/truetype/dejavu")
_NAMES = ("DejaVuSans", "DejaVuSerif", "DejaVuSansMono", "DejaVuSans-Bold", "DejaVuSerif-Italic", "DejaVuSansCondensed")
_WORDS = {
    CALIBRATION: """garden silver machine window between orange bridge quickly number copper valley people yellow kitchen
    morning quiet jacket travel pencil summer frozen market zebra dozen puzzle whisper velvet oxygen jungle basket clever
    Monday Friday April October Paris Vienna Quebec Zurich a of in to we he it is the as""",
    "test": """harbour journey expert figure humble invite kettle lemon planet rocket simple thunder under village winter
    Kenya Norway Berlin Dublin Geneva Tokyo Lisbon January Sunday question express fabric object victory sandwich wizard
    through quarter judge boxes Ex. No. and or if so up do go at by on lamp quay jazz flew""",
}


@functools.cache
def _font(which: int, size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    path = _FONTS / f"{_NAMES[which % len(_NAMES)]}.ttf"
    return ImageFont.truetype(str(path), size) if path.is_file() else ImageFont.load_default(size)


def words(part: str, rng: np.random.Generator, most: int) -> str:
    """Random words and numbers, at most `most` characters."""
    vocabulary, text = _WORDS[part].split(), ""
    while True:
        kind = rng.random()
        word = str(rng.choice(vocabulary))
        if kind < 0.2:
            word = str(rng.choice([f"{rng.integers(10000)}", f"{rng.integers(24):02}:{rng.integers(60):02}",
                                   f"{rng.integers(1000) / 10}", f"#{rng.integers(100)}"]))  # fmt: skip
        elif kind < 0.3:
            word = word.upper()
        elif kind < 0.4:
            word += str(rng.choice([",", ";", ".", "!", "?"]))
        longer = f"{text} {word}".strip()
        if len(longer) > most:
            return text or longer[:most]
        text = longer


def _drawn(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, ink: Array, paper: Array) -> Image.Image:
    left, top, right, bottom = font.getbbox(text)
    page = Image.new("RGB", (int(right - left) + 12, int(bottom - top) + 10), tuple(int(v) for v in paper))
    ImageDraw.Draw(page).text((6 - left, 5 - top), text, tuple(int(v) for v in ink), font)
    return page


def _colours(rng: np.random.Generator) -> tuple[Array, Array]:
    dark, light = rng.integers(0, 90, 3), rng.integers(180, 256, 3)
    return (light, dark) if rng.random() < 0.2 else (dark, light)


def _noisy(image: Array, rng: np.random.Generator) -> Array:
    return np.clip(image + rng.normal(0, rng.uniform(0, 8), image.shape), 0, 255).astype(np.uint8)


def line(part: str, number: int, most: int = 24) -> Array:
    """A line of text, u8 [h,w,3]."""
    rng = np.random.default_rng([number, part == CALIBRATION])
    picture = _drawn(words(part, rng, most), _font(int(rng.integers(6)), int(rng.integers(22, 40))), *_colours(rng))
    return _noisy(np.asarray(picture.rotate(rng.uniform(-1, 1), expand=False)), rng)


def page(part: str, number: int, height: int, width: int) -> Array:
    """Several lines at random places and sizes, u8 [height,width,3]."""
    rng = np.random.default_rng([number, height, width, part == CALIBRATION])
    ink, paper = _colours(rng)
    picture = Image.new("RGB", (width, height), tuple(int(v) for v in paper))
    y = int(rng.integers(4, 24))
    while True:
        size = int(rng.integers(14, 34))
        text = _drawn(
            words(part, rng, int(rng.integers(4, max(6, width // size)))), _font(int(rng.integers(6)), size), ink, paper
        )
        if y + text.height > height:
            return _noisy(np.asarray(picture), rng)
        picture.paste(text, (int(rng.integers(2, max(3, width - text.width))), y))
        y += text.height + int(rng.integers(4, 20))


def line_input(image: Array, height: int, width: int) -> Array:
    """u8 [h,w,3] -> f32 [1,3,height,width], BGR in [-1, 1]: scaled to the height, zeros on the right."""
    scaled = min(width, max(1, round(height * image.shape[1] / image.shape[0])))
    picture = Image.fromarray(np.ascontiguousarray(image)).resize((scaled, height), Image.Resampling.BILINEAR)
    out = np.zeros((1, 3, height, width), np.float32)
    out[0, :, :, :scaled] = (np.asarray(picture, np.float32)[..., ::-1] / 127.5 - 1).transpose(2, 0, 1)
    return out
