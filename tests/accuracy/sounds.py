"""Speech, noise and tunes at 16 kHz, f32. `espeak-ng` speaks; calibration and test have other sentences and voices."""

from __future__ import annotations

import functools
import shutil
import subprocess

import numpy as np

from examples.voice_activity.sound import read_wav
from linnet._fetch import FetchError
from tests.accuracy.entry import CALIBRATION, Array

RATE = 16000
_SENTENCES = """The quick brown fox jumps over the lazy dog.|A small network listens, and says when somebody speaks.
Good night, and thank you for listening.|Seven boats left the harbour before dawn.|Please close the window when it rains.
My sister plays the violin on Sundays.|The train to Vienna leaves at a quarter past nine.|How much is a kilo of apples?
Nobody knew why the lights went out.|Turn left behind the old church, then walk uphill.|The soup needs salt, and more pepper.
We have not seen such a winter in forty years.|Could you repeat the last number?|Her letters arrived in a blue envelope.
The museum is closed on Monday.|Ten thousand people watched the match.|Water boils at a lower temperature in the mountains.
He sold his bicycle and bought a guitar.|Open the second drawer, and take the yellow folder.|It was cheaper than we expected.
The children built a castle of wet sand.|Call me back in twenty minutes.|This machine has never been repaired.
They danced until the music stopped.|Which of these keys opens the cellar?|The answer surprised even the teacher."""
SENTENCES = tuple(s for line in _SENTENCES.splitlines() for s in line.split("|"))
_VOICES = {
    CALIBRATION: ("en-us", "en-gb-scotland", "de", "en+f3"),
    "test": ("en", "en+m3", "en+f2", "en-gb-x-rp", "fr", "en+f4"),
}


@functools.cache
def spoken(text: str, voice: str, speed: int = 150, pitch: int = 50) -> Array:
    """The sound of a text, f32, without silence at both ends. Raises `FetchError` without espeak-ng."""
    program = shutil.which("espeak-ng")
    if program is None:
        raise FetchError("espeak-ng is not installed; it is in Debian's package of this name")
    command = [program, "-v", voice, "-s", str(speed), "-p", str(pitch), "--stdout", text]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60)
    sound = read_wav(done.stdout)
    loud = np.nonzero(np.abs(sound) > 0.01)[0]
    return sound[loud[0] : loud[-1] + 1]


def sentence(part: str, rng: np.random.Generator) -> Array:
    """A random sentence of a part: even ones calibrate, odd ones test."""
    mine = SENTENCES[part == CALIBRATION :: 2]
    voice = str(rng.choice(_VOICES[part]))
    return spoken(mine[rng.integers(len(mine))], voice, int(rng.integers(13, 19)) * 10, int(rng.integers(3, 8)) * 10)


def tune(rng: np.random.Generator, samples: int, rate: int = RATE) -> Array:
    """Notes with overtones that decay, f32 [samples]: one to three at a time."""
    t, found = np.arange(samples) / rate, np.zeros(samples)
    start = 0.0
    while start < samples / rate:
        length = rng.uniform(0.2, 0.7)
        for _ in range(rng.integers(1, 4)):
            pitch = 440 * 2 ** ((rng.integers(36, 90) - 69) / 12)
            age = np.clip(t - start, 0, None)
            envelope = (t >= start) * np.exp(-age / length) * np.minimum(1, age * 100)
            partials = [np.sin(2 * np.pi * k * pitch * t) / k**1.3 for k in range(1, 9) if k * pitch < rate / 2]
            found += rng.uniform(0.05, 0.2) * envelope * np.sum(partials, axis=0)
        start += length
    return found.astype(np.float32)


def noise(rng: np.random.Generator, samples: int) -> Array:
    """Noise between white and red, f32 [samples] of deviation 1."""
    spectrum = np.fft.rfft(rng.standard_normal(samples))
    spectrum /= np.maximum(np.arange(len(spectrum)), 1) ** rng.uniform(0, 0.9)
    found = np.fft.irfft(spectrum, samples)
    return np.asarray(found / found.std(), np.float32)


def scene(part: str, number: int, samples: int, speech: float = 0.6) -> Array:
    """Sentences, pauses and tunes over noise, f32 [samples]; `speech` is the probability that a piece is a sentence."""
    rng = np.random.default_rng([number, samples, part == CALIBRATION])
    pieces: list[Array] = []
    while sum(map(len, pieces)) < samples:
        pieces.append(np.zeros(int(RATE * rng.uniform(0.1, 0.8)), np.float32))
        if rng.random() < speech:
            pieces.append(sentence(part, rng) * np.float32(rng.uniform(0.2, 1.2)))
        elif rng.random() < 0.5:
            pieces.append(tune(rng, int(RATE * rng.uniform(0.5, 1.5))))
    sound = np.concatenate(pieces)
    begin = rng.integers(0, len(sound) - samples + 1)
    return sound[begin : begin + samples] + noise(rng, samples) * np.float32(10 ** rng.uniform(-4, -1.7))


def frames(sound: Array, length: int, step: int) -> Array:
    """Overlapping frames, [count,length]."""
    return np.lib.stride_tricks.sliding_window_view(sound, length)[::step]


def mel_weights(bins: int, rate: int, bands: int, low: float, high: float) -> Array:
    """Triangular filters on the mel scale (HTK): f64 [bins,bands] for `bins` frequencies from 0 to rate / 2."""

    def mel(hertz: Array | float) -> Array:
        return np.asarray(1127 * np.log1p(np.asarray(hertz) / 700))

    edges = np.linspace(mel(low), mel(high), bands + 2)
    place = mel(np.linspace(0, rate / 2, bins))[:, None]
    up = (place - edges[:-2]) / (edges[1:-1] - edges[:-2])
    down = (edges[2:] - place) / (edges[2:] - edges[1:-1])
    found = np.clip(np.minimum(up, down), 0, None)
    found[0] = 0
    return np.asarray(found)


def cosines(bands: int, count: int) -> Array:
    """The matrix of a cosine transform of type II, orthonormal: f64 [bands,count]."""
    k, n = np.arange(count), np.arange(bands)[:, None]
    return np.asarray(np.sqrt(2 / bands) * np.cos(np.pi * k * (n + 0.5) / bands))
