"""Renders pages of text: the page that the demo reads, and others to calibrate quantization.
Only Pillow's built-in scalable font is used, so a page is the same on every machine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT = 480, 704  # both multiples of 32, as the detector requires
MARGIN, PITCH, FONT_SIZE = 28, 40, 22
SPACE = 15  # pixels between words; the recognizer was made for Chinese and misses narrow spaces
LINES = (HEIGHT - 2 * MARGIN) // PITCH

DEMO_LINES = (
    "Harbour log, 14 March 2026",
    "The tide turned at 06:35 and",
    "nine boats left before dawn.",
    "Wind from the west, 12 knots;",
    "the barometer stood at 1013.",
    "Two crates of lamps, 48 bolts",
    "and 350 metres of new rope",
    "were taken on board at noon.",
    "A heron watched the quay for",
    "57 minutes, then flew south.",
    "Repairs: winch, pump, radio.",
    "Costs came to 2846.90 euros,",
    "which is 73 less than before.",
    "Keys 4, 9 and 16 are missing!",
    "Please ask the night watch",
    "to count everything twice.",
)
DEMO_FLIPPED = (5, 12)  # these lines are printed upside down

_VOCABULARY = """
garden silver machine window between orange bridge quickly number copper valley people yellow kitchen
morning quiet jacket travel pencil summer frozen market zebra dozen puzzle whisper velvet oxygen jungle
basket clever planet rocket simple thunder under village winter expert figure humble invite kettle lemon
Monday Friday April October Paris Vienna Quebec Zurich Kenya Norway Berlin Dublin Geneva Tokyo Lisbon
a an of to in on by we he it is as at or if so up do go my no
"""
_WORDS = tuple(_VOCABULARY.split())


@dataclass(frozen=True)
class Page:
    """A picture and its text: `image` u8 [H,W,3] RGB, `lines` from top to bottom."""

    image: np.ndarray
    lines: tuple[str, ...]


def demo_page() -> Page:
    """Returns the page that the demo reads: 16 lines, two of them upside down."""
    return _render(DEMO_LINES, DEMO_FLIPPED, seed=7)


def calibration_pages(count: int, seed: int = 100) -> list[Page]:
    """Returns pages of random words and numbers that have no line of the demo's page."""
    return [_calibration_page(seed + index) for index in range(count)]


def _calibration_page(seed: int) -> Page:
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(LINES):
        words: list[str] = []
        while len(" ".join(words)) < 21:
            kind = rng.random()
            if kind < 0.15:
                words.append(str(rng.integers(0, 10000)))
            elif kind < 0.22:
                words.append(f"{rng.integers(0, 1000)}.{rng.integers(0, 100):02d}")
            elif kind < 0.27:
                words.append(f"{rng.integers(0, 24):02d}:{rng.integers(0, 60):02d}")
            else:
                words.append(_WORDS[rng.integers(len(_WORDS))] + rng.choice(["", "", "", "", ",", "."]))
        lines.append(" ".join(words)[:29].rstrip())
    flipped = tuple(int(i) for i in rng.choice(LINES, 2, replace=False))
    return _render(tuple(lines), flipped, seed)


def _render(lines: tuple[str, ...], flipped: tuple[int, ...], seed: int) -> Page:
    """Prints the lines on slightly uneven, noisy paper; lines in `flipped` are rotated by 180 degrees."""
    font = ImageFont.load_default(size=FONT_SIZE)
    ink = Image.new("L", (WIDTH, HEIGHT), 0)
    for index, text in enumerate(lines):
        strip = Image.new("L", (WIDTH - MARGIN, PITCH), 0)
        x = 8.0
        for word in text.split(" "):
            ImageDraw.Draw(strip).text((x, PITCH // 2), word, fill=255, font=font, anchor="lm")
            x += font.getlength(word) + SPACE
        if index in flipped:
            # Rotated about its own middle, so that the line keeps its place on the page.
            box = strip.getbbox()
            assert box is not None
            strip.paste(strip.crop(box).rotate(180), box)
        ink.paste(strip, (MARGIN // 2, MARGIN + index * PITCH))
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    shade = rng.uniform(-8, 8) * x / WIDTH + rng.uniform(-8, 8) * y / HEIGHT
    paper = (np.array([244, 240, 230]) + shade[..., None]) + rng.normal(0, 2.5, (HEIGHT, WIDTH, 1))
    cover = np.asarray(ink, np.float64)[..., None] / 255
    image = paper * (1 - cover) + np.array([35, 35, 50]) * cover
    return Page(np.clip(image, 0, 255).astype(np.uint8), lines)
