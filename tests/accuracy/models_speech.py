"""Networks that listen: voice activity, denoising, notes, pitch, wake words; on sentences, tunes and noise.
Streaming networks run frame by frame with their own state."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

import linnet
from tests.accuracy import metrics, sounds
from tests.accuracy.entry import Array, Entry, Outputs, Sample, each
from tests.accuracy.files import of_zoo

_FRAMES = 40  # of one sample of a streaming network
_SILENT = {"h": np.zeros((1, 1, 128), np.float32), "c": np.zeros((1, 1, 128), np.float32)}


def _sequences(part: str, count: int) -> list[Sample]:
    """silero: frames of 512 samples with the 64 before them, f32 [64,576], and an empty state."""
    found = []
    for i in range(count):
        sound = np.concatenate([np.zeros(64, np.float32), sounds.scene(part, i, 512 * 64)])
        found.append(({"input": np.ascontiguousarray(sounds.frames(sound, 576, 512)), **_SILENT},))
    return found


def _vad(part: str, count: int) -> list[Sample]:
    """silero, frame by frame: f32 [1,512] at 16 kHz."""
    empty, rate = np.zeros((2, 1, 128), np.float32), np.array(16000, np.int64)
    return [
        [
            {"input": frame[None].copy(), "state": empty, "sr": rate}
            for frame in sounds.scene(part, i, 512 * 64).reshape(-1, 512)
        ]
        for i in range(count)
    ]


def _dtln_frames(part: str, number: int) -> Array:
    sound = sounds.scene(part, number, 512 + 128 * (_FRAMES - 1), speech=0.9)
    return np.asarray(sounds.frames(sound, 512, 128))


def _magnitudes(part: str, count: int) -> list[Sample]:
    """dtln 1: magnitudes of spectra of 32 ms, every 8 ms."""
    empty = np.zeros((1, 2, 128, 2), np.float32)
    return [
        [
            {"input_2": np.abs(np.fft.rfft(f)).astype(np.float32)[None, None], "input_3": empty}
            for f in _dtln_frames(part, i)
        ]
        for i in range(count)
    ]


@functools.cache
def _first_half() -> linnet.Session:
    return linnet.Session(linnet.from_onnx(of_zoo("dtln_1")()), threads=2)


def _estimates(part: str, count: int) -> list[Sample]:
    """dtln 2: what the first network (f32) leaves of each frame."""
    empty, found = np.zeros((1, 2, 128, 2), np.float32), []
    for i in range(count):
        state, steps = empty, []
        for frame in _dtln_frames(part, i):
            spectrum = np.fft.rfft(frame)
            outputs = _first_half().run({"input_2": np.abs(spectrum).astype(np.float32)[None, None], "input_3": state})
            mask, state = outputs["activation_2"], np.array(outputs["tf_op_layer_stack_2"])
            estimate = np.fft.irfft(spectrum * mask[0, 0]).astype(np.float32)
            steps.append({"input_4": estimate[None, None], "input_5": empty})
        found.append(steps)
    return found


def _log_power(part: str, count: int) -> list[Sample]:
    """nsnet2: logarithms of power spectra of 20 ms, every 10 ms, f32 [1,100,161]."""
    window, found = np.sqrt(np.hanning(321)[:320]), []
    for i in range(count):
        frames = sounds.frames(sounds.scene(part, i, 160 * 99 + 320, speech=0.9), 320, 160) * window
        power = np.abs(np.fft.rfft(frames)) ** 2
        found.append(np.log10(np.maximum(power, 1e-12)).astype(np.float32)[None])
    return each("input", found)


def _music(part: str, count: int) -> list[Sample]:
    """basic_pitch: two seconds of notes at 22,050 Hz, f32 [1,43844,1]."""
    found = []
    for i in range(count):
        rng = np.random.default_rng([i, part == "calibration", 22050])
        sound = sounds.tune(rng, 43844, 22050) + 10 ** rng.uniform(-3.3, -2) * sounds.noise(rng, 43844)
        found.append((0.8 * sound / max(1.0, np.abs(sound).max())).astype(np.float32)[None, :, None])
    return each("serving_default_input_2:0", found)


def _pitches(part: str, count: int) -> list[Sample]:
    low, high = np.float32(46.875), np.float32(2093.75)
    return [
        ({"audio": sounds.scene(part, i, 16000, speech=0.9)[None], "fmin": np.asarray(low), "fmax": np.asarray(high)},)
        for i in range(count)
    ]


def _same_pitch(o: Outputs) -> Array:
    """Semitones where a frame has a pitch; the unvoiced ones are 0."""
    return np.where(o["confidence"] > 0.5, 12 * np.log2(np.maximum(o["pitch"], 1) / 440), -120)


def _tuned(expected: list[Outputs], got: list[Outputs]) -> float:
    a, b = ([{"p": _same_pitch(o)} for o in outputs] for outputs in (expected, got))
    return metrics.within(0.25, "p")(a, b)


def _sound(name: str, samples: int, scale: float = 1.0) -> Callable[[str, int], list[Sample]]:
    return lambda part, count: each(
        name, [(scale * sounds.scene(part, i, samples)).astype(np.float32)[None] for i in range(count)]
    )


@functools.cache
def _front_end() -> linnet.Session:
    samples = 76 * 160 + 480
    return linnet.Session(
        linnet.from_onnx(of_zoo("oww_melspectrogram")(), input_shapes={"input": (1, samples)}), threads=2
    )


def _mels(part: str, count: int) -> list[Sample]:
    """openWakeWord's embedding: 76 frames of its own front end (f32), f32 [1,76,32,1]."""
    found = []
    for i in range(count):
        sound = 32767 * sounds.scene(part, i, 76 * 160 + 480)
        mel = _front_end().run({"input": sound[None].astype(np.float32)})["output"]
        found.append((mel[0, 0, :76] / 10 + 2).astype(np.float32)[None, :, :, None])
    return each("input_1", found)


MODELS = {
    "silero_sequence": Entry(
        of_zoo("silero_sequence"), _sequences, metrics.same_decision("speech_probs"), "speech or not, per frame", tests=50,
        share=metrics.sure_decisions("speech_probs"),
    ),
    "silero_ifless": Entry(
        of_zoo("silero_ifless"), _vad, metrics.same_decision("output"), "speech or not, per frame", calibrations=3, tests=24,
        share=metrics.sure_decisions("output"), feedback={"stateN": "state"},
    ),
    "silero_vad": Entry(
        of_zoo("silero_vad"), _vad, metrics.same_decision("output"), "speech or not, per frame", calibrations=3, tests=24,
        share=metrics.sure_decisions("output"), feedback={"stateN": "state"}, note="If",
    ),
    "dtln_1": Entry(
        of_zoo("dtln_1"), _magnitudes, metrics.fidelity("activation_2"), "100 - error % of the mask", calibrations=10, tests=40,
        feedback={"tf_op_layer_stack_2": "input_3"},
    ),
    "dtln_2": Entry(
        of_zoo("dtln_2"), _estimates, metrics.fidelity("conv1d_3"), "100 - error % of the sound", calibrations=10, tests=40,
        feedback={"tf_op_layer_stack_5": "input_5"},
    ),
    "nsnet2": Entry(of_zoo("nsnet2"), _log_power, metrics.fidelity(), "100 - error % of the mask", calibrations=32, tests=60),
    "basic_pitch": Entry(
        of_zoo("basic_pitch"), _music,
        metrics.both(metrics.overlap("StatefulPartitionedCall:1", 0.3), metrics.overlap("StatefulPartitionedCall:2", 0.5)),
        "IoU of notes and onsets", calibrations=32, tests=50,
    ),
    "swift_f0": Entry(of_zoo("swift_f0"), _pitches, _tuned, "pitch within a quarter of a semitone", tests=60),
    "pyannote": Entry(
        of_zoo("pyannote"),
        lambda part, count: each("input", [sounds.scene(part, i, 80000)[None, None] for i in range(count)]),
        metrics.same_class(logits=True), "who speaks, per frame", calibrations=24, tests=40,
        share=metrics.sure_share(logits=True),
    ),
    "oww_embedding": Entry(of_zoo("oww_embedding"), _mels, metrics.cosine(), "cosine of the embedding"),
    "oww_melspectrogram": Entry(
        of_zoo("oww_melspectrogram"), _sound("input", 12640, 32767), metrics.within(1.0), "levels within 1 dB", tests=60
    ),
}  # fmt: skip
