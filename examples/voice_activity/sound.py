"""A test sound (three sentences between silence, noise and a melody), and a reader for WAV files.
`espeak-ng` speaks the sentences if it is installed; otherwise a simple formant synthesiser speaks vowels."""

from __future__ import annotations

import io
import shutil
import subprocess
import wave
from pathlib import Path

import numpy as np

from .detect import RATE, Span

_SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "A small network listens, and says when somebody speaks.",
    "Good night, and thank you for listening.",
)
# The first three formants of vowels, Hz (Peterson and Barney 1952, men).
_VOWELS = ((730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240), (530, 1840, 2480), (570, 840, 2410))


def sample_sound() -> tuple[np.ndarray, list[Span], str]:
    """Returns the sound, f32 [samples] at 16 kHz, the spans of speech in it, and the name of the speaker."""
    rng = np.random.default_rng(7)
    speaker = shutil.which("espeak-ng")
    second = np.arange(RATE) / RATE
    tune = np.concatenate([0.1 * np.sin(2 * np.pi * f * second[: RATE // 2]) for f in (262, 330, 392)])
    gaps = [np.zeros(RATE), 0.05 * rng.standard_normal(3 * RATE // 2), tune, np.zeros(RATE)]
    pieces, truth, position = [gaps[0]], [], len(gaps[0])
    for sentence, gap in zip(_SENTENCES, gaps[1:], strict=True):
        spoken = _espeak(speaker, sentence) if speaker else _vowels(rng, len(sentence) // 6)
        truth.append(Span(position / RATE, (position + len(spoken)) / RATE))
        pieces += [spoken, gap]
        position += len(spoken) + len(gap)
    sound = np.concatenate(pieces) + 0.001 * rng.standard_normal(position)
    return sound.astype(np.float32), truth, "espeak-ng" if speaker else "vowels by formants"


def read_wav(data: bytes) -> np.ndarray:
    """Reads a WAV file of 16-bit samples as f32 [samples] at 16 kHz, and averages its channels. Raises ValueError."""
    try:
        with wave.open(io.BytesIO(data)) as file:
            rate, channels, width = file.getframerate(), file.getnchannels(), file.getsampwidth()
            frames = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise ValueError(f"is not a WAV file: {error}") from None
    if width != 2:
        raise ValueError(f"has samples of {8 * width} bits, expected 16 bits")
    whole = len(frames) // (2 * channels) * channels
    values = np.frombuffer(frames, "<i2", whole).reshape(-1, channels).mean(axis=1) / 32768
    return resampled(values, rate)


def resampled(values: np.ndarray, rate: int) -> np.ndarray:
    """Resamples to 16 kHz: the spectrum is cut or padded, so that there is no aliasing."""
    if rate == RATE or not len(values):
        return values.astype(np.float32)
    count = round(len(values) * RATE / rate)
    spectrum = np.fft.rfft(values)
    wanted = count // 2 + 1
    spectrum = np.pad(spectrum[:wanted], (0, max(0, wanted - len(spectrum))))
    return (np.fft.irfft(spectrum, count) * count / len(values)).astype(np.float32)


def _espeak(program: str, text: str) -> np.ndarray:
    done = subprocess.run(
        [program, "-v", "en", "-s", "150", "--stdout", text], capture_output=True, check=True, timeout=60
    )
    spoken = read_wav(done.stdout)
    loud = np.nonzero(np.abs(spoken) > 0.01)[0]  # espeak-ng ends with silence
    return spoken[loud[0] : loud[-1] + 1]


def _vowels(rng: np.random.Generator, count: int) -> np.ndarray:
    """Sends glottal pulses of falling pitch through three resonators per vowel (Klatt 1980); a syllable takes 180 ms."""
    pieces = []
    for i in range(count):
        samples = int(RATE * rng.uniform(0.13, 0.2))
        pitch = np.linspace(140, 115, samples) * (1 - 0.1 * i / count)
        phase = np.cumsum(pitch) / RATE
        source = np.diff(np.floor(phase), prepend=0) + 0.02 * rng.standard_normal(samples)
        for formant, width in zip(_VOWELS[rng.integers(len(_VOWELS))], (60, 90, 150), strict=True):
            source = _resonator(source, formant, width)
        source *= np.hanning(samples) ** 0.3 / np.abs(source).max()
        pieces += [0.3 * source, np.zeros(int(RATE * rng.uniform(0.01, 0.05)))]
    return np.concatenate(pieces)


def _resonator(x: np.ndarray, frequency: float, width: float) -> np.ndarray:
    """A two-pole filter of gain 1 at 0 Hz."""
    radius = np.exp(-np.pi * width / RATE)
    b, c = 2 * radius * np.cos(2 * np.pi * frequency / RATE), -radius * radius
    y, last, before = np.empty_like(x), 0.0, 0.0
    for i, value in enumerate(x.tolist()):
        last, before = (1 - b - c) * value + b * last + c * before, last
        y[i] = last
    return y


def load(path: Path) -> np.ndarray:
    """Calls `read_wav`, and adds the name of the file to its error. Raises ValueError, OSError."""
    try:
        return read_wav(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} {error}") from None
