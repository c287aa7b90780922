"""Writes sequences with a model that scores the next token: greedy, and by beam search. The model is any function, such as a
few lines around Session.run, so decoding needs nothing from the graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.clib.arguments import at_least, check_all
from linnet.clib.errors import UsageError

__all__ = ["Written", "beam_search", "greedy"]

Array = npt.NDArray[Any]
Step = Callable[[Array], npt.ArrayLike]


@dataclasses.dataclass(frozen=True)
class Written:
    """A sequence that was written. ids: its tokens, without the start and without the end. log_probability: of all its tokens,
    the end included. score: what beam_search orders by. ended: whether it has an end, or was cut off."""

    ids: tuple[int, ...]
    log_probability: float
    score: float
    ended: bool


def greedy(step: Step, start: int, end: int, most: int) -> Written:
    """The sequence that takes the most probable token each time.

    step: takes the beginnings, i32 [1, length] (the start first), and returns the scores of the next token, float [1,
        tokens]: logits or log-probabilities. start, end: their ids. most: the largest number of tokens to write.
    """
    return beam_search(step, start, end, most, beams=1)[0]


def beam_search(
    step: Step, start: int, end: int, most: int, *, beams: int = 4, length_penalty: float = 0.0
) -> list[Written]:
    """The best sequences that a beam search finds, best first, at most `beams` of them.

    step: as for greedy, for several beginnings at once: i32 [rows, length] -> float [rows, tokens]. beams: how many
        beginnings are kept after each token.
    length_penalty: a in the score log P / ((5 + length) / 6)^a, with the end counted (Wu et al. 2016); 0: log P itself,
        which prefers short sequences. The search ends when no beginning can become better than the worst sequence kept.
    Raises UsageError if the scores have another shape or are NaN.
    """
    at_least("beams", beams, 1)
    at_least("most", most, 1)
    if not length_penalty >= 0:
        raise UsageError("length_penalty is negative", code=101, expected="0 or more", got=repr(length_penalty))

    def score(log_probability: float, length: int) -> float:
        return float(log_probability / ((5 + length) / 6) ** length_penalty)

    beginnings, sums = np.full((1, 1), start, np.int32), np.zeros(1)
    written: list[Written] = []
    for length in range(1, most + 1):
        totals = sums[:, None] + _log_softmax(step(beginnings), len(beginnings))
        tokens = totals.shape[1]
        if not 0 <= end < tokens:
            raise UsageError(
                "the end is not among the tokens", code=101, tensor="end", expected=f"0..{tokens - 1}", got=str(end)
            )
        order = np.argsort(-totals, axis=None, kind="stable")[: 2 * beams]  # of which at most half are ends
        kept: list[tuple[int, int]] = []
        for rank, at in enumerate(order):
            row, token = divmod(int(at), tokens)
            total = float(totals[row, token])
            if token != end:
                if len(kept) < beams:
                    kept.append((row, token))
            elif rank < beams:
                ids = tuple(map(int, beginnings[row, 1:]))
                written.append(Written(ids, total, score(total, length), True))
        written = sorted(written, key=lambda one: -one.score)[:beams]
        rows = [row for row, _ in kept]
        sums = np.array([totals[row, token] for row, token in kept])
        if not kept:
            return written
        beginnings = np.concatenate([beginnings[rows], np.array([[token] for _, token in kept], np.int32)], axis=1)
        # A beginning loses with each token, but a longer sequence may have a better score.
        if len(written) == beams and score(float(sums.max()), most) <= written[-1].score:
            return written
    cut = [
        Written(tuple(map(int, ids[1:])), float(total), score(float(total), most), False)
        for ids, total in zip(beginnings, sums, strict=True)
    ]
    return sorted([*written, *cut], key=lambda one: (not one.ended, -one.score))[:beams]


def _log_softmax(scores: npt.ArrayLike, rows: int) -> Array:
    found = np.asarray(scores, np.float64)
    if found.ndim != 2 or len(found) != rows or found.shape[1] == 0:
        raise UsageError(
            "the scores of the next token have the wrong shape", code=104, tensor="step", expected=f"[{rows}, tokens]",
            got=str(list(found.shape)), hint="return one row for each beginning",
        )  # fmt: skip
    if np.isnan(found).any():
        raise UsageError("the scores of the next token are NaN", code=101, tensor="step", hint="check the model's loss")
    found = found - found.max(axis=1, keepdims=True)
    made: Array = found - np.log(np.exp(found).sum(axis=1, keepdims=True))
    return made


check_all(globals(), ("beam_search", "greedy"))
