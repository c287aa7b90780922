"""Draws the recognized text beside the page: a box around every line, and its text in the same place on the right.
Upside-down lines have orange boxes; wrong letters are red."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from .pipeline import Line

_BLUE, _ORANGE, _RED, _BLACK = (40, 110, 220), (230, 120, 20), (220, 30, 30), (20, 20, 20)
_HEADER = 34


def annotate(image: np.ndarray, lines: Sequence[Line], written: Sequence[str], title: str, path: Path) -> None:
    """Writes a PNG: the page u8 [H,W,3] with boxes on the left, the recognized text on the right, a title."""
    height, width = image.shape[:2]
    canvas = Image.new("RGB", (2 * width, height + _HEADER), "white")
    canvas.paste(Image.fromarray(image), (0, _HEADER))
    draw = ImageDraw.Draw(canvas)
    draw.text((8, _HEADER // 2), title, fill=_BLACK, font=ImageFont.load_default(size=18), anchor="lm")
    font = ImageFont.load_default(size=20)
    for line, truth in zip(lines, _match(lines, written), strict=True):
        left, top, right, bottom = line.box
        colour = _ORANGE if line.flipped else _BLUE
        draw.rectangle((left, top + _HEADER, right - 1, bottom - 1 + _HEADER), outline=colour, width=2)
        x, y = float(width + 16), _HEADER + (top + bottom) / 2
        for text, right_text in _pieces(line.text, truth):
            draw.text((x, y), text, fill=_BLACK if right_text else _RED, font=font, anchor="lm")
            x += draw.textlength(text, font=font)
    canvas.save(path)


def _match(lines: Sequence[Line], written: Sequence[str]) -> list[str]:
    """Returns for each recognized line the true line that is most similar."""
    best = []
    for line in lines:
        ratios = [SequenceMatcher(None, line.text, truth, autojunk=False).ratio() for truth in written]
        best.append(written[int(np.argmax(ratios))])
    return best


def _pieces(text: str, truth: str) -> list[tuple[str, bool]]:
    """Splits `text` into runs of characters that agree with `truth` (True) or differ from it (False)."""
    pieces, end = [], 0
    for start, _, size in SequenceMatcher(None, text, truth, autojunk=False).get_matching_blocks():
        if start > end:
            pieces.append((text[end:start], False))
        if size:
            pieces.append((text[start : start + size], True))
        end = start + size
    return pieces
