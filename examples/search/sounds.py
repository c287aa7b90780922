"""Eight words that espeak-ng speaks in many voices, with noise, as mel coefficients. Training and test have other voices.
Without espeak-ng there are no words: apt-get install espeak-ng."""

from __future__ import annotations

import shutil
import subprocess
from itertools import product
from pathlib import Path

import numpy as np

from examples.voice_activity.sound import read_wav

RATE = 16_000
WORDS = ("yes", "no", "up", "down", "left", "right", "on", "off")
FRAMES, COEFFICIENTS = 49, 10
_WINDOW, _STEP, _BANDS = 640, 320, 40
_COPIES = 3  # sounds of one utterance, with another place and noise each
_TRAIN = (
    "en-gb+m1",
    "en-gb+m3",
    "en-gb+f2",
    "en-us+m2",
    "en-us+m5",
    "en-us+f1",
    "en-us+f3",
    "en-029+m4",
    "en-gb-x-rp+f4",
)
_TEST = ("en-gb+m7", "en-us+f5", "en-gb-scotland+m6", "en-gb-x-gbcwmd+f2")


class NoSpeakerError(Exception):
    """espeak-ng is not installed."""


def words(test: bool, rounds: int, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients f32 [N, 1, 49, 10], about normalized, and labels i32 [N]. rounds: how often each voice says each word, each
    time at another speed and pitch; each utterance stands in three sounds. The result is kept in `folder`."""
    kept = folder / f"words-{'test' if test else 'train'}-{rounds}.npz"
    if kept.exists():
        with np.load(kept) as arrays:
            return arrays["x"], arrays["t"]
    speaker = shutil.which("espeak-ng")
    if speaker is None:
        raise NoSpeakerError("espeak-ng speaks the words, and is not installed; get it with: apt-get install espeak-ng")
    rng = np.random.default_rng(2 if test else 1)
    found, labels = [], []
    for voice, (label, word), _ in product(_TEST if test else _TRAIN, enumerate(WORDS), range(rounds)):
        speed, pitch = int(rng.integers(110, 220)), int(rng.integers(20, 80))
        command = [speaker, "-v", voice, "-s", str(speed), "-p", str(pitch), "--stdout", word]
        spoken = read_wav(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
        for _ in range(_COPIES):
            found.append(coefficients(_placed(spoken, rng)))
            labels.append(label)
    x, t = np.stack(found)[:, None], np.array(labels, np.int32)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(kept, x=x, t=t)
    return x, t


def _placed(spoken: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One second with the word somewhere in it, and noise."""
    loud = np.nonzero(np.abs(spoken) > 0.02)[0]
    spoken = spoken[loud[0] : loud[-1] + 1][:RATE]
    sound = rng.standard_normal(RATE) * 10 ** rng.uniform(-3, -1.3)
    at = int(rng.integers(0, RATE - len(spoken) + 1))
    sound[at : at + len(spoken)] += spoken * rng.uniform(0.4, 1.2)
    return sound


def _mel() -> np.ndarray:
    """Triangular filters of equal width in mel, from 60 Hz to 7600 Hz: [bins, bands]."""
    low, high = (2595 * np.log10(1 + f / 700) for f in (60, 7600))
    edges = 700 * (10 ** (np.linspace(low, high, _BANDS + 2) / 2595) - 1)
    bins = np.fft.rfftfreq(_WINDOW, 1 / RATE)[:, None]
    rise = (bins - edges[:-2]) / np.diff(edges)[:-1]
    fall = (edges[2:] - bins) / np.diff(edges)[1:]
    return np.clip(np.minimum(rise, fall), 0, None)


_FILTERS = _mel()
_COSINES = np.cos(np.pi / _BANDS * (np.arange(_BANDS)[:, None] + 0.5) * np.arange(COEFFICIENTS))


def coefficients(sound: np.ndarray) -> np.ndarray:
    """The first ten mel-frequency cepstral coefficients of 49 windows of 40 ms: f32 [49, 10]."""
    windows = np.lib.stride_tricks.sliding_window_view(sound, _WINDOW)[::_STEP] * np.hanning(_WINDOW)
    power = np.abs(np.fft.rfft(windows)) ** 2
    found = np.log(power @ _FILTERS + 1e-6) @ _COSINES
    return (found / np.array([120.0] + [25.0] * (COEFFICIENTS - 1))).astype(np.float32)
