"""The float networks of MLPerf Tiny: keywords, people in a picture, CIFAR-10, sounds of machines."""

from __future__ import annotations

import numpy as np
from PIL import Image

from examples.voice_activity.sound import read_wav
from tests.accuracy import metrics, pictures, sounds
from tests.accuracy.entry import CALIBRATION, Array, Entry, Sample, each
from tests.accuracy.files import shared

_KEYWORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go", "seven", "house")
_VOICES = ("en", "en-us", "en-gb-scotland", "en-gb-x-rp", "en+m3", "en+f2", "en+f3", "en+m7")


def mfcc(sound: Array) -> Array:
    """MLPerf Tiny's features of one second, f32 [1,49,10,1]: frames of 30 ms every 20 ms, 40 bands of 20 to 4000 Hz."""
    frames = sounds.frames(sound / max(1e-9, float(np.abs(sound).max())), 480, 320) * np.hanning(481)[:480]
    spectrum = np.abs(np.fft.rfft(frames, 512))
    logs = np.log(spectrum @ sounds.mel_weights(257, sounds.RATE, 40, 20, 4000) + 1e-6)
    return (logs @ sounds.cosines(40, 10)).astype(np.float32)[None, :, :, None]


def _words(part: str, count: int) -> list[Sample]:
    found = []
    for i in range(count):
        rng = np.random.default_rng([i, part == CALIBRATION, 3])
        voice = _VOICES[(2 * i + (part == CALIBRATION)) % len(_VOICES)]
        word = sounds.spoken(
            _KEYWORDS[i % len(_KEYWORDS)], voice, int(rng.integers(12, 20)) * 10, int(rng.integers(2, 9)) * 10
        )
        word = word[:16000]
        sound = np.float32(10 ** rng.uniform(-4, -2)) * sounds.noise(rng, 16000)
        begin = rng.integers(0, 16001 - len(word))
        sound[begin : begin + len(word)] += word
        found.append(mfcc(sound))
    if part != CALIBRATION:
        found[:2] = [mfcc(read_wav(shared(f"{w}_1000ms.wav")().read_bytes())[:16000]) for w in ("yes", "no")]
    return each("input_1", found)


def _somebody(part: str, count: int) -> list[Sample]:
    """Every second crop shows people."""
    halves = [pictures.crops(p, part, count // 2, 96, smallest=0.7) for p in (pictures.people(), pictures.things())]
    return each("input_1", [pictures.last(c) for pair in zip(*halves, strict=True) for c in pair])


def _small(part: str, count: int) -> list[Sample]:
    """Pictures of CIFAR-10, moved and mirrored, and small photographs, f32 [1,32,32,3] in 0..255."""
    rng, small = np.random.default_rng(count), []
    own = pictures.part_of(pictures.cifar(), part)
    for i in range(count // 2):
        dy, dx = rng.integers(0, 9, 2)
        moved = np.pad(own[i % len(own)], ((4, 4), (4, 4), (0, 0)), mode="reflect")[dy : dy + 32, dx : dx + 32]
        small.append(moved[:, ::-1] if i // len(own) % 2 else moved)
    big = pictures.crops(pictures.things(), part, count - len(small), 128, smallest=0.8)
    small += [np.asarray(Image.fromarray(b).resize((32, 32), Image.Resampling.BOX)) for b in big]
    return each("input_1", [s[None].astype(np.float32) for s in small])


def _machines(part: str, count: int) -> list[Sample]:
    """Toy motors: harmonics of a wavering speed and noise of gears; logarithms of 128 mel bands, five frames, f32 [1,640]."""
    weights, found = sounds.mel_weights(513, sounds.RATE, 128, 0, 8000), []
    for i in range(count):
        rng = np.random.default_rng([i, part == CALIBRATION, 4])
        t = np.arange(512 * 7) / sounds.RATE
        phase = (
            2
            * np.pi
            * np.cumsum(rng.uniform(40, 160) * (1 + 0.02 * np.sin(2 * np.pi * rng.uniform(2, 9) * t)))
            / sounds.RATE
        )
        tone = sum(np.sin(k * phase + k) / k ** rng.uniform(0.3, 1.2) for k in range(1, 40))
        sound = 0.02 * tone + 10 ** rng.uniform(-3, -1.5) * sounds.noise(rng, len(t))
        power = np.abs(np.fft.rfft(sounds.frames(sound, 1024, 512)[:5] * np.hanning(1025)[:1024])) ** 2
        found.append((10 * np.log10(power @ weights + 1e-10)).astype(np.float32).reshape(1, 640))
    return each("input_1", found)


MODELS = {
    "mlperf_kws": Entry(
        shared("mlperftiny_kws_fp32.tflite"), _words, metrics.same_class(), "keyword", tests=192, share=metrics.sure_share()
    ),
    "mlperf_vww": Entry(
        shared("mlperftiny_vww_fp32.tflite"), _somebody, metrics.same_class(), "person or not", tests=200,
        share=metrics.sure_share(),
    ),
    "mlperf_resnet8": Entry(
        shared("mlperftiny_resnet8_fp32.tflite"), _small, metrics.same_class(), "top-1 of CIFAR-10", tests=200,
        share=metrics.sure_share(),
    ),
    "mlperf_ad01": Entry(
        shared("mlperftiny_ad01_fp32.tflite"), _machines, metrics.fidelity(), "100 - error % of the reconstruction",
        note="synthesised motors",
    ),
}  # fmt: skip
