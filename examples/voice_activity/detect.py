"""Speech probabilities, 32 ms at a time with a state carried on, and the spans of time that they make.
Blocks, context and thresholds are those of the silero-vad package (`get_speech_timestamps`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import linnet
from linnet._fetch import fetch_member

RATE = 16000
BLOCK = 512  # samples per probability
_CONTEXT = 64  # samples of the block before, which the network wants in front
_THRESHOLD, _RELEASE = 0.5, 0.35  # a span begins at the first, and ends below the second ...
_LEAST_SILENCE, _LEAST_SPEECH = 0.1, 0.25  # ... for so many seconds; shorter spans are dropped


class Span(NamedTuple):
    """A stretch of speech, in seconds."""

    start: float
    end: float


def network() -> linnet.Session:
    """The network. Raises `FetchError` where it cannot be had."""
    path = fetch_member("silero-vad", "silero_vad/data/silero_vad.onnx", "6.2.3")
    shapes = {"input": (1, _CONTEXT + BLOCK), "state": (2, 1, 128), "sr": ()}
    return linnet.Session(linnet.from_onnx(path, input_shapes=shapes))


def probabilities(session: linnet.Session, sound: np.ndarray) -> np.ndarray:
    """f32 [n] of speech for each block of `sound`, f32 [samples] in -1..1 at 16 kHz; the last block is padded."""
    blocks = np.pad(sound, (_CONTEXT, -len(sound) % BLOCK)).astype(np.float32)
    state, rate = np.zeros((2, 1, 128), np.float32), np.array(RATE, np.int64)
    found = []
    for start in range(0, len(blocks) - _CONTEXT, BLOCK):
        piece = blocks[None, start : start + _CONTEXT + BLOCK]
        results = session.run({"input": piece, "state": state, "sr": rate})
        state = results["stateN"]
        found.append(results["output"][0, 0])
    return np.array(found, np.float32)


def spans(probability: np.ndarray) -> list[Span]:
    """The spans of speech, by two thresholds: short gaps are bridged, short spans dropped."""
    step = BLOCK / RATE
    found: list[Span] = []
    start: float | None = None
    silence: float | None = None  # since when the probability has been below the release
    for i, value in enumerate(probability.tolist()):
        now = i * step
        if value >= _THRESHOLD:
            start = now if start is None else start
            silence = None
        elif value < _RELEASE and start is not None:
            silence = now if silence is None else silence
            if now + step - silence >= _LEAST_SILENCE:
                found.append(Span(start, silence))
                start = silence = None
    if start is not None:
        found.append(Span(start, len(probability) * step))
    return [span for span in found if span.end - span.start >= _LEAST_SPEECH]
