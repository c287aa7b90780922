"""Speech probabilities for every 32 ms, with a state that is carried over, and the spans of speech that follow from them.
Blocks, context and thresholds are those of the silero-vad package (`get_speech_timestamps`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import linnet
from linnet._fetch import fetch_member

RATE = 16000
BLOCK = 512  # samples per probability
_CONTEXT = 64  # samples of the previous block, which the network needs before each block
_THRESHOLD, _RELEASE = 0.5, 0.35  # a span begins at the first probability, and ends below the second ...
_LEAST_SILENCE, _LEAST_SPEECH = 0.1, 0.25  # ... for this many seconds; shorter spans are dropped


class Span(NamedTuple):
    """A stretch of speech, in seconds."""

    start: float
    end: float


def network() -> linnet.Session:
    """Returns the network. Raises `FetchError` if it cannot be fetched."""
    path = fetch_member("silero-vad", "silero_vad/data/silero_vad.onnx", "6.2.3")
    shapes = {"input": (1, _CONTEXT + BLOCK), "state": (2, 1, 128), "sr": ()}
    return linnet.Session(linnet.from_onnx(path, input_shapes=shapes))


def probabilities(session: linnet.Session, sound: np.ndarray) -> np.ndarray:
    """Returns f32 [n], the probability of speech per block of `sound`, f32 [samples] in -1..1 at 16 kHz; pads the last block."""
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
    """Finds the spans of speech with two thresholds; closes short gaps and drops short spans."""
    step = BLOCK / RATE
    found: list[Span] = []
    start: float | None = None
    silence: float | None = None  # start of the time during which the probability has been below the second threshold
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
