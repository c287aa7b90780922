"""From the detector's probability map to line boxes: the DB post-processing for straight pages.
Connected components by union-find over pixel runs; boxes are grown by DB's formula, and joined along a row."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

_PIXEL_THRESHOLD = 0.3
_BOX_THRESHOLD = 0.5
_UNCLIP = 1.8  # DB shrinks regions in training; growing by area * ratio / perimeter reverses it
_MIN_SIDE = 3


class Box(NamedTuple):
    """A rectangle in pixels; right and bottom are exclusive."""

    left: int
    top: int
    right: int
    bottom: int


def text_boxes(probability: np.ndarray, scale: tuple[float, float], size: tuple[int, ...]) -> list[Box]:
    """Returns the line boxes of a page, from top to bottom.

    `probability` is the detector's output f32 [h,w], `scale` (x, y) is the page's pixels per pixel of it, `size` is
    the page's (H, W).
    """
    labels, count = components(probability > _PIXEL_THRESHOLD)
    ys, xs = np.nonzero(labels)
    which = labels[ys, xs] - 1
    left, top = np.full(count, labels.shape[1]), np.full(count, labels.shape[0])
    right, bottom = np.zeros(count, int), np.zeros(count, int)
    np.minimum.at(left, which, xs)
    np.minimum.at(top, which, ys)
    np.maximum.at(right, which, xs + 1)
    np.maximum.at(bottom, which, ys + 1)
    boxes = []
    for x0, y0, x1, y1 in zip(left.tolist(), top.tolist(), right.tolist(), bottom.tolist(), strict=True):
        width, height = x1 - x0, y1 - y0
        if min(width, height) < _MIN_SIDE or probability[y0:y1, x0:x1].mean() < _BOX_THRESHOLD:
            continue
        grow = width * height * _UNCLIP / (2 * (width + height))
        boxes.append(
            Box(
                max(0, math.floor((x0 - grow) * scale[0])),
                max(0, math.floor((y0 - grow) * scale[1])),
                min(size[1], math.ceil((x1 + grow) * scale[0])),
                min(size[0], math.ceil((y1 + grow) * scale[1])),
            )
        )
    return _join_rows(boxes)


def components(mask: np.ndarray) -> tuple[np.ndarray, int]:
    """Labels the 8-connected components of a bool [h,w] mask: i64 [h,w] with 0 outside and 1..count inside."""
    height, width = mask.shape
    before = np.zeros((height, width), bool)
    before[:, 1:] = mask[:, :-1]
    runs = np.cumsum(mask & ~before).reshape(height, width) * mask  # each run of pixels in a row has its own number
    pairs = [np.zeros(0, np.int64)]
    size = int(runs.max(initial=0)) + 1
    for shift in (-1, 0, 1):
        upper = runs[:-1, max(0, -shift) : width - max(0, shift)]
        lower = runs[1:, max(0, shift) : width - max(0, -shift)]
        touch = (upper > 0) & (lower > 0)
        pairs.append(upper[touch] * size + lower[touch])  # one number per pair: sorting rows takes 20 times as long
    parent = list(range(size))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    for pair in np.unique(np.concatenate(pairs)).tolist():
        first, second = sorted((root(pair // size), root(pair % size)))
        parent[second] = first
    roots = np.array([root(index) for index in range(len(parent))])
    names, numbers = np.unique(roots, return_inverse=True)
    return numbers[runs], len(names) - 1


def _join_rows(boxes: list[Box]) -> list[Box]:
    """Joins boxes in the same row, because a wide gap between words splits a line: gives one box per printed line."""
    rows: list[Box] = []
    for box in sorted(boxes, key=lambda b: b.top + b.bottom):
        if rows:
            last = rows[-1]
            overlap = min(last.bottom, box.bottom) - max(last.top, box.top)
            if overlap > 0.5 * min(last.bottom - last.top, box.bottom - box.top):
                rows[-1] = Box(min(last.left, box.left), min(last.top, box.top),
                               max(last.right, box.right), max(last.bottom, box.bottom))  # fmt: skip
                continue
        rows.append(box)
    return rows
