"""linnet.decoding: greedy and beam search against all sequences, counted one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import linnet
from linnet.decoding import beam_search, greedy

TOKENS, END, MOST = 4, 0, 4


def chain(seed: int) -> np.ndarray:
    """Logits of the next token, by the two before it: f64 [tokens, tokens, tokens]."""
    return np.random.default_rng(seed).normal(0, 2, (TOKENS, TOKENS, TOKENS))


def step_of(logits: np.ndarray):  # type: ignore[no-untyped-def]
    def step(beginnings: np.ndarray) -> np.ndarray:
        assert beginnings.dtype == np.int32 and (beginnings[:, 0] == 1).all()
        before = beginnings[:, -2] if beginnings.shape[1] > 1 else np.ones(len(beginnings), int)
        return logits[before, beginnings[:, -1]]

    return step


def probability(logits: np.ndarray, ids: tuple[int, ...]) -> float:
    """log P of these tokens after the start 1."""
    total, seen = 0.0, [1, 1]
    for token in ids:
        row = logits[seen[-2], seen[-1]]
        total += row[token] - np.log(np.exp(row).sum())
        seen.append(token)
    return float(total)


def all_ended(logits: np.ndarray) -> list[tuple[float, tuple[int, ...]]]:
    found = []
    for length in range(MOST):
        for ids in itertools.product(range(1, TOKENS), repeat=length):
            found.append((probability(logits, (*ids, END)), ids))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("penalty", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("seed", range(6))
def test_a_wide_search_finds_the_best_of_all_sequences(seed: int, penalty: float) -> None:
    logits = chain(seed)
    found = beam_search(step_of(logits), 1, END, MOST, beams=TOKENS**MOST, length_penalty=penalty)
    expected = sorted(((p / ((6 + len(ids)) / 6) ** penalty, ids) for p, ids in all_ended(logits)), reverse=True)
    ended = [one for one in found if one.ended]
    assert [one.ids for one in ended[:10]] == [ids for _, ids in expected[:10]]
    np.testing.assert_allclose([one.score for one in ended[:10]], [score for score, _ in expected[:10]])
    for one in found:
        ids = (*one.ids, END) if one.ended else one.ids
        assert one.log_probability == pytest.approx(probability(logits, ids))


@pytest.mark.parametrize("seed", range(6))
def test_greedy_takes_the_best_token_each_time(seed: int) -> None:
    logits, seen = chain(seed), [1, 1]
    for _ in range(MOST):
        seen.append(int(logits[seen[-2], seen[-1]].argmax()))
        if seen[-1] == END:
            break
    found = greedy(step_of(logits), 1, END, MOST)
    assert found.ended == (seen[-1] == END)
    assert list(found.ids) == seen[2 : -1 if found.ended else None]


def test_no_search_is_better_than_the_widest() -> None:
    for seed in range(40):
        best = {beams: beam_search(step_of(chain(seed)), 1, END, MOST, beams=beams)[0] for beams in (1, 2, 4, 256)}
        assert all(one.log_probability <= best[256].log_probability + 1e-9 for one in best.values() if one.ended)


def test_a_sequence_without_an_end_is_cut_off() -> None:
    def step(beginnings: np.ndarray) -> np.ndarray:
        return np.tile([-50.0, 0, 1, 0], (len(beginnings), 1))

    found = greedy(step, 1, END, 5)
    assert found.ids == (2,) * 5 and not found.ended


@pytest.mark.parametrize(
    ("step", "arguments", "says"),
    [
        (lambda b: np.zeros((len(b) + 1, 3)), {}, "wrong shape"),
        (lambda b: np.full((len(b), 3), np.nan), {}, "NaN"),
        (lambda b: np.zeros((len(b), 3)), {"end": 3}, "not among the tokens"),
        (lambda b: np.zeros((len(b), 3)), {"beams": 0}, "beams"),
        (lambda b: np.zeros((len(b), 3)), {"most": 0}, "most"),
        (lambda b: np.zeros((len(b), 3)), {"length_penalty": -1.0}, "length_penalty"),
    ],
)
def test_wrong_arguments_are_named(step, arguments, says) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(linnet.UsageError, match=says):
        beam_search(step, **{"start": 1, "end": 0, "most": 3} | arguments)
