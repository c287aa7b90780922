"""Agreement of a network's results with f32's, in points of 100. NaN and infinity agree with nothing.
Each function here makes an `Agreement`, from (f32's outputs, others) to points; `None` as a name is the first output."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tests.accuracy.entry import Agreement, Array, Outputs

MARGIN = 0.1  # results count where f32's two best probabilities differ by at least this
Boxes = Callable[[Outputs], tuple[Array, Array]]  # corners f32 [N,4] (left, top, right, bottom) and scores f32 [N]


def _of(outputs: Outputs, name: str | None) -> Array:
    return next(iter(outputs.values())) if name is None else outputs[name]


def _column(outputs: Sequence[Outputs], name: str | None) -> Array:
    """The output `name` of all runs, f64, concatenated over the first axis."""
    return np.concatenate([np.atleast_1d(_of(o, name)).astype(np.float64) for o in outputs])


def probabilities(scores: Array, logits: bool) -> Array:
    """Rows of probabilities: the scores themselves, or their softmax."""
    if not logits:
        return scores
    power = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(power / power.sum(axis=-1, keepdims=True))


def margins(scores: Array, logits: bool) -> Array:
    """The difference of the two largest probabilities in each row."""
    best = np.sort(probabilities(scores, logits), axis=-1)
    return np.asarray(best[..., -1] - best[..., -2])


def same_class(name: str | None = None, *, logits: bool = False, margin: float = MARGIN) -> Agreement:
    """The share of rows whose largest element is where f32's is, among the rows in which f32 is sure."""

    def points(expected: Sequence[Outputs], got: Sequence[Outputs]) -> float:
        a, b = _column(expected, name), _column(got, name)
        sure = margins(a, logits) >= margin
        right = (a.argmax(axis=-1) == b.argmax(axis=-1)) & np.isfinite(b).all(axis=-1)
        return 100 * float(right[sure].mean())

    return points


def sure_share(
    name: str | None = None, *, logits: bool = False, margin: float = MARGIN
) -> Callable[[Sequence[Outputs]], float]:
    """The share of rows in which f32's two best probabilities differ by `margin`."""
    return lambda expected: float((margins(_column(expected, name), logits) >= margin).mean())


def same_decision(name: str | None = None, threshold: float = 0.5, margin: float = MARGIN) -> Agreement:
    """The share of probabilities on the same side of the threshold, among those that are `margin` / 2 away from it in f32."""

    def points(expected: Sequence[Outputs], got: Sequence[Outputs]) -> float:
        a, b = _column(expected, name), _column(got, name)
        sure = np.abs(a - threshold) >= margin / 2
        right = ((a >= threshold) == (b >= threshold)) & np.isfinite(b)
        return 100 * float(right[sure].mean())

    return points


def sure_decisions(
    name: str | None = None, threshold: float = 0.5, margin: float = MARGIN
) -> Callable[[Sequence[Outputs]], float]:
    """The share of probabilities that `same_decision` counts."""
    return lambda expected: float((np.abs(_column(expected, name) - threshold) >= margin / 2).mean())


def overlap(name: str | None = None, threshold: float = 0.5) -> Agreement:
    """Intersection over union of what is above the threshold, in all results together."""

    def points(expected: Sequence[Outputs], got: Sequence[Outputs]) -> float:
        both = either = 0
        for one, other in zip(expected, got, strict=True):
            a, b = _of(one, name) >= threshold, _of(other, name)
            b = (b >= threshold) & np.isfinite(b)
            both, either = both + int((a & b).sum()), either + int((a | b).sum())
        return 100 * both / either if either else 0.0

    return points


def cosine(name: str | None = None) -> Agreement:
    """The mean cosine of each row with f32's."""

    def points(expected: Sequence[Outputs], got: Sequence[Outputs]) -> float:
        a = np.stack([_of(o, name).astype(np.float64).ravel() for o in expected])
        b = np.stack([_of(o, name).astype(np.float64).ravel() for o in got])
        lost = ~np.isfinite(b).all(axis=1)
        b = np.nan_to_num(b, nan=0.0, posinf=0.0, neginf=0.0)
        length = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        found = np.where(lost, 0.0, (a * b).sum(axis=1) / np.maximum(length, 1e-30))
        return 100 * float(np.maximum(found, 0).mean())

    return points


def fidelity(name: str | None = None) -> Agreement:
    """100 less the error in percent of f32's result: 100 * (1 - |got - f32| / |f32|), over all results together."""

    def points(expected: Sequence[Outputs], got: Sequence[Outputs]) -> float:
        a, b = _column(expected, name), _column(got, name)
        if not np.isfinite(b).all():
            return 0.0
        return max(0.0, 100 * (1 - float(np.linalg.norm(b - a) / np.linalg.norm(a))))

    return points


def within(tolerance: float, name: str | None = None) -> Agreement:
    """The share of elements that differ from f32's by at most `tolerance`."""

    def points(expected: Sequence[Outputs], got: Sequence[Outputs]) -> float:
        with np.errstate(invalid="ignore"):
            return 100 * float((np.abs(_column(expected, name) - _column(got, name)) <= tolerance).mean())

    return points


def score(of: Callable[[Outputs], float]) -> Agreement:
    """100 less the mean error, in percent of f32's, of a positive number that `of` finds in each result."""

    def points(expected: Sequence[Outputs], got: Sequence[Outputs]) -> float:
        a, b = np.array([of(o) for o in expected]), np.array([of(o) for o in got])
        error = np.where(np.isfinite(b), np.abs(b - a) / np.abs(a), 1.0)
        return 100 * (1 - float(np.minimum(error, 1).mean()))

    return points


def landmarks(decode: Callable[[Outputs], Array], part: float = 0.02) -> Agreement:
    """The share of points (f32 [N,2] of `decode`) within `part` of the size of the box around f32's points.
    Points that are NaN in f32's result do not count."""

    def points(expected: Sequence[Outputs], got: Sequence[Outputs]) -> float:
        near = []
        for one, other in zip(expected, got, strict=True):
            a, b = decode(one).astype(np.float64), decode(other).astype(np.float64)
            a, b = a[np.isfinite(a).all(axis=1)], b[np.isfinite(a).all(axis=1)]
            size = float((a.max(axis=0) - a.min(axis=0)).max())
            with np.errstate(invalid="ignore"):
                near.append(np.linalg.norm(a - b, axis=1) <= part * size)
        return 100 * float(np.concatenate(near).mean())

    return points


def edit_distance(a: Sequence[int], b: Sequence[int]) -> int:
    """The smallest number of insertions, deletions and replacements that turn `a` into `b`."""
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + int(letter != other))
    return row[-1]


def ctc(scores: Array) -> list[int]:
    """Greedy CTC: [T,C] -> characters; class 0 is the blank, repeats are merged."""
    best = scores.argmax(axis=1)
    keep = (best != 0) & np.concatenate(([True], best[1:] != best[:-1]))
    return [int(c) for c in best[keep]]


def reading(name: str | None = None) -> Agreement:
    """100 less the character error rate against f32's reading; scores f32 [1,T,C] of CTC."""

    def points(expected: Sequence[Outputs], got: Sequence[Outputs]) -> float:
        wrong = length = 0
        for one, other in zip(expected, got, strict=True):
            a, scores = ctc(_of(one, name)[0]), _of(other, name)[0]
            wrong += edit_distance(a, ctc(scores)) if np.isfinite(scores).all() else len(a)
            length += len(a)
        return 100 * max(0.0, 1 - wrong / length)

    return points


def areas_shared(a: Array, b: Array) -> Array:
    """Intersection over union of each box of `a` f32 [N,4] with each of `b` f32 [M,4]: f32 [N,M]."""
    low, high = np.maximum(a[:, None, :2], b[None, :, :2]), np.minimum(a[:, None, 2:], b[None, :, 2:])
    common = np.clip(high - low, 0, None).prod(axis=2)
    areas = [np.clip(x[:, 2:] - x[:, :2], 0, None).prod(axis=1) for x in (a, b)]
    return np.asarray(common / np.maximum(areas[0][:, None] + areas[1][None] - common, 1e-12))


def suppressed(boxes: Array, scores: Array, least: float, iou: float = 0.4) -> tuple[Array, Array]:
    """Non-maximum suppression: the boxes with a score of at least `least` that no better one covers, best first."""
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] >= least][:300]
    boxes, scores = boxes[order], scores[order]
    shared, keep = areas_shared(boxes, boxes), np.ones(len(boxes), bool)
    for i in range(len(boxes)):
        if keep[i]:
            keep[i + 1 :] &= shared[i, i + 1 :] <= iou
    return boxes[keep], scores[keep]


def detections(decode: Boxes, threshold: float = 0.6, slack: float = 0.1, iou: float = 0.75) -> Agreement:
    """F1 of the boxes: each above the threshold must have its like (IoU) in the other result, where `slack` less is enough."""

    def count(one: Outputs, other: Outputs) -> tuple[int, int]:
        mine, theirs = suppressed(*decode(one), threshold)[0], suppressed(*decode(other), threshold - slack)[0]
        if not len(mine) or not len(theirs):
            return 0, len(mine)
        return int((areas_shared(mine, theirs).max(axis=1) >= iou).sum()), len(mine)

    def points(expected: Sequence[Outputs], got: Sequence[Outputs]) -> float:
        hits = total = 0
        for one, other in zip(expected, got, strict=True):
            finite = {k: np.nan_to_num(v, nan=0, posinf=0, neginf=0) for k, v in other.items()}
            for found, wanted in (count(one, finite), count(finite, one)):
                hits, total = hits + found, total + wanted
        return 100 * hits / total if total else 0.0

    return points


def both(*parts: Agreement) -> Agreement:
    """The mean of several."""
    return lambda expected, got: float(np.mean([part(expected, got) for part in parts]))
