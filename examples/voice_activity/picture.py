"""Draws a PNG of a sound: its waveform with the found spans shaded, and below it the probability of speech over time.
Drawn with Pillow alone, so that the example needs no plotting library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from .detect import BLOCK, RATE, Span

_WIDTH, _HEIGHT, _MARGIN = 1200, 420, 50
_BLUE, _GREEN, _SHADE, _GREY, _BLACK = (40, 110, 220), (20, 140, 60), (214, 240, 218), (200, 200, 200), (20, 20, 20)


def draw(sound: np.ndarray, probability: np.ndarray, found: Sequence[Span], truth: Sequence[Span], path: Path) -> None:
    """Writes the picture. The spans of `truth`, if known, are lines under the waveform."""
    seconds = max(len(sound) / RATE, 1e-9)
    image = Image.new("RGB", (_WIDTH, _HEIGHT), "white")
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(size=14)

    def across(t: float) -> float:
        return _MARGIN + (_WIDTH - 2 * _MARGIN) * t / seconds

    for span in found:
        pen.rectangle((across(span.start), 20, across(span.end), _HEIGHT - 40), fill=_SHADE)
    columns = np.array_split(sound, _WIDTH - 2 * _MARGIN)
    loudest = max(float(np.abs(sound).max(initial=0)), 1e-9)
    for i, column in enumerate(columns):
        if len(column):
            high, low = (120 - 90 * float(v) / loudest for v in (column.max(), column.min()))
            pen.line((_MARGIN + i, high, _MARGIN + i, low), fill=_BLUE)
    for span in truth:
        pen.line((across(span.start), 220, across(span.end), 220), fill=_BLACK, width=3)
    top, bottom = 240, _HEIGHT - 40
    for level in (0.0, 0.5, 1.0):
        y = bottom + (top - bottom) * level
        pen.line((_MARGIN, y, _WIDTH - _MARGIN, y), fill=_GREY)
        pen.text((_MARGIN - 6, y), f"{level:g}", fill=_BLACK, font=font, anchor="rm")
    points = [(across((i + 0.5) * BLOCK / RATE), bottom + (top - bottom) * float(p)) for i, p in enumerate(probability)]
    if len(points) > 1:
        pen.line(points, fill=_GREEN, width=2)
    for second in range(int(seconds) + 1):
        pen.text((across(second), _HEIGHT - 22), f"{second} s", fill=_BLACK, font=font, anchor="mm")
    words = "waveform, found speech shaded" + (", true speech underlined" if truth else "") + "; probability of speech"
    pen.text((_MARGIN, 10), words, fill=_BLACK, font=font, anchor="lm")
    image.save(path)
