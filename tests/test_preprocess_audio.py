"""Audio steps before a model (linnet.preprocess.audio) against NumPy in f64, written from the definitions of librosa, torchaudio,
TensorFlow and SciPy; and MLPerf Tiny's keyword spotting from a recording to a word, in both tools."""

from __future__ import annotations

import dataclasses
import struct
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet.data import media
from linnet.preprocess import Features, audio, librosa_mel, mlperf_tiny_mfcc, whisper_mel
from tests import zoo
from tests.test_preprocess import identity
from tests.test_tools_media import cli, native

WORDS = ["down", "go", "left", "no", "off", "on", "right", "stop", "up", "yes", "silence", "unknown"]


def sound(samples: int, rate: int = 16000, seed: int = 1) -> np.ndarray:
    """Gliding tones with noise, f32 in [-1, 1]."""
    t = np.arange(samples) / rate
    tone = 0.4 * np.sin(2 * np.pi * (200 + 900 * t) * t) + 0.2 * np.sin(2 * np.pi * 3000 * t)
    return (tone + 0.02 * np.random.default_rng(seed).standard_normal(samples)).astype(np.float32)


def spectrum(x: np.ndarray, f: Features) -> np.ndarray:
    """|DFT| ** power of every frame, f64 [bins, frames], with NumPy's FFT."""
    fft = f.fft or f.window
    shape = {"hann": (0.5, 0.5), "hamming": (0.54, 0.46), "rectangular": (1.0, 0.0)}[f.window_function]
    window = shape[0] - shape[1] * np.cos(2 * np.pi * np.arange(f.window) / f.window)
    size = fft if f.frame == "fft" else f.window
    if f.frame == "fft":
        left = (fft - f.window) // 2
        window = np.pad(window, (left, fft - f.window - left))
    x = x.astype(np.float64)
    if f.centre:
        x = np.pad(x, fft // 2, mode="reflect" if f.centre == "reflect" else "constant")
    frames = [np.fft.rfft(x[i : i + size] * window, fft) for i in range(0, len(x) - size + 1, f.hop)]
    return np.abs(np.array(frames).T) ** f.power


def hertz_of_mel(scale: str, m: float) -> float:
    if scale == "htk":
        return float(700 * (10 ** (m / 2595) - 1))
    return float(m * 200 / 3 if m < 15 else 1000 * 6.4 ** ((m - 15) / 27))


def mel_of_hertz(scale: str, hertz: float) -> float:
    if scale == "htk":
        return float(2595 * np.log10(1 + hertz / 700))
    return float(hertz * 3 / 200 if hertz < 1000 else 15 + 27 * np.log(hertz / 1000) / np.log(6.4))


def filterbank(f: Features, rate: int) -> np.ndarray:
    """The triangles, one weight at a time."""
    fft, high = f.fft or f.window, rate / 2 if f.high is None else f.high
    ends = [mel_of_hertz(f.mel_scale, e) for e in (f.low, high)]
    points = [ends[0] + (ends[1] - ends[0]) * i / ((f.mels or 0) + 1) for i in range((f.mels or 0) + 2)]
    hertz = [hertz_of_mel(f.mel_scale, m) for m in points]
    made = np.zeros((f.mels or 0, fft // 2 + 1))
    for band in range(f.mels or 0):
        for b in range(fft // 2 + 1):
            at: float = b * rate / fft
            edges = hertz[band : band + 3]
            if f.triangles == "mel":
                at, edges = mel_of_hertz(f.mel_scale, at), points[band : band + 3]
                if b == 0:
                    continue
            weight = min((at - edges[0]) / (edges[1] - edges[0]), (edges[2] - at) / (edges[2] - edges[1]))
            area = 2 / (hertz[band + 2] - hertz[band]) if f.mel_norm == "slaney" else 1.0
            made[band, b] = max(weight, 0.0) * area
    return made


def expected_of(x: np.ndarray, f: Features, rate: int) -> np.ndarray:
    """[features, frames], f64."""
    if f.peak:
        x = x / x.max()
    if f.pre_emphasis:
        x = np.concatenate([x[:1], x[1:] - f.pre_emphasis * x[:-1]])
    y = spectrum(x, f)
    if f.mels:
        y = filterbank(f, rate) @ y
    if f.log:
        y = np.log(np.maximum(y + f.offset, f.floor))
        y = y * {"ln": 1, "log10": 1 / np.log(10), "db": (10 if f.power == 2 else 20) / np.log(10)}[f.log]
    if f.range is not None:
        y = np.maximum(y, y.max() - f.range)
    if f.mfcc:
        n = f.mels or 0
        basis = np.cos(np.pi / n * (np.arange(n) + 0.5) * np.arange(f.mfcc)[:, None]) * np.sqrt(2 / n)
        basis[0] /= np.sqrt(2) if f.dct == "ortho" else 1
        y = basis @ y
    return (y - np.reshape(f.mean, (-1, 1))) / np.reshape(f.std, (-1, 1))


def run(graph: linnet.Graph, samples: np.ndarray) -> np.ndarray:
    return linnet.Session(graph).run({"input": samples})["output"]


CASES: dict[str, tuple[int, Features]] = {
    "torchaudio MelSpectrogram": (16000, Features()),
    "torchaudio Spectrogram, magnitudes": (8000, Features(256, 64, mels=None, power=1)),
    "librosa melspectrogram, dB": (22050, librosa_mel()),
    "whisper": (16000, whisper_mel()),
    "tensorflow MFCC": (16000, mlperf_tiny_mfcc()),
    "librosa MFCC": (22050, dataclasses.replace(librosa_mel(), mfcc=20)),
    "zero padding, window in a longer frame": (16000, Features(400, 160, 512, centre="zero", log="ln", floor=1e-6)),
    "hamming, pre-emphasis, no centre": (
        16000,
        Features(400, 160, 512, "hamming", centre=None, pre_emphasis=0.97, mels=26, low=60, high=7600, log="ln", floor=1e-8),
    ),
    "dB of magnitudes, normalized": (
        16000,
        Features(
            320, 320, window_function="rectangular", mels=12, power=1, log="db", floor=1e-5, mean=[-3.0] * 12, std=2.5
        ),
    ),
    "plain spectrum in log10": (16000, Features(200, 100, mels=None, log="log10", floor=1e-7)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("length", [9000, 16001])
def test_features_follow_their_definitions(name: str, length: int) -> None:
    """Within 1e-4 of the range, for sounds of any length through one file."""
    rate, f = CASES[name]
    x = sound(length, rate)
    expected = expected_of(x, f, rate)
    got = run(audio(identity((1, f.count, "frames")), "input", f, rate=rate), x)
    assert got.shape == (1, *expected.shape)
    error = np.abs(got[0] - expected).max() / np.ptp(expected)
    assert error < 1e-4, error


def test_layouts_and_lengths() -> None:
    """Frames first or last. A model with a fixed number of frames accepts any length, truncated or padded with zeros."""
    f = Features(400, 160, mels=20, centre=None)
    for length in (5000, 8000, 100, 20000):
        x = sound(length)
        whole = np.pad(x, (0, max(0, 8000 - length)))[: f.samples(40)]
        expected = expected_of(whole, f, 16000)
        for shape, layout in (((1, 40, 20, 1), None), (("n", 1, 40, 20), None), ((1, 20, 40), None), ((40, 20), "TF")):
            got = run(audio(identity(shape), "input", f, layout=layout), x)
            wanted = expected.T if shape.index(40) < shape.index(20) else expected
            np.testing.assert_allclose(got.reshape(wanted.shape), wanted, atol=1e-4 * np.ptp(expected))
    open_ends = audio(identity(("n", "frames", 20)), "input", f)
    assert run(open_ends, sound(8000)).shape == (1, 48, 20)
    longer = audio(identity(("n", "frames", 20)), "input", f, samples=16000)
    assert run(longer, sound(8000)).shape == (1, 98, 20)


def test_whisper_drops_its_last_frame() -> None:
    """Three seconds instead of thirty: all samples are used, and the model takes 300 of the 301 frames."""
    x, f = sound(40000), whisper_mel()
    unbounded = dataclasses.replace(f, range=None, mean=0.0, std=1.0)
    expected = expected_of(np.pad(x, (0, 8000)), unbounded, 16000)[:, :300]
    expected = (np.maximum(expected, expected.max() - 8) + 4) / 4
    got = run(audio(identity((1, 80, 300)), "input", f, samples=48000), x)[0]
    np.testing.assert_allclose(got, expected, atol=1e-4)


def test_samples_as_they_are_and_as_integers() -> None:
    x = sound(700)
    fixed = audio(identity((1, 512)), "input", None)
    np.testing.assert_array_equal(run(fixed, x), x[None, :512])
    np.testing.assert_array_equal(run(audio(identity((1, 1, "n")), "input", None), x), x[None, None])
    pcm = np.arange(-32768, 32768, 64, dtype=np.int16)
    np.testing.assert_array_equal(
        run(audio(identity(("batch", "n")), "input", None, dtype="i16"), pcm)[0], pcm.astype(np.float32) / 32768
    )


def polyphase(x: np.ndarray, up: int, down: int) -> np.ndarray:
    """scipy.signal.resample_poly with its default window: inserts zeros, filters, takes every down-th sample; f64."""
    most = max(up, down)
    half = 10 * most
    h = np.sinc(np.arange(-half, half + 1) / most) * np.kaiser(2 * half + 1, 5.0)
    h *= up / h.sum()
    wide = np.zeros(len(x) * up)
    wide[::up] = x
    full = np.convolve(wide, h)[half:]
    return full[: len(x) * up : down]


@pytest.mark.parametrize(
    ("source", "rate"), [(48000, 16000), (44100, 16000), (8000, 16000), (16000, 22050), (32000, 24000)]
)
@pytest.mark.parametrize("length", [3001, 7])
def test_resampling_is_polyphase(source: int, rate: int, length: int) -> None:
    x = sound(length, source)
    common = int(np.gcd(source, rate))
    expected = polyphase(x, rate // common, source // common)
    got = run(audio(identity((1, "n")), "input", None, rate=rate, source_rate=source), x)
    assert got.shape == (1, len(expected)) and len(expected) == -(-length * rate // source)
    np.testing.assert_allclose(got[0], expected, atol=2e-6)


@pytest.mark.parametrize(
    ("words", "shape", "options"),
    [
        ("window is invalid", (1, 80, "t"), {"features": Features(0)}),
        ("fft is invalid; expected at least the window, 400, got 256", (1, 80, "t"), {"features": Features(fft=256)}),
        ("high is invalid; expected low < high <= 8000", (1, 80, "t"), {"features": Features(high=9000)}),
        ("mfcc is invalid; expected 1 to 80", (1, 81, "t"), {"features": Features(mfcc=81)}),
        ("unknown window function", (1, 80, "t"), {"features": Features(window_function="blackman")}),
        ("unknown mel_scale", (1, 80, "t"), {"features": Features(mel_scale="bark")}),
        ("mean is invalid; expected 1 or 80 numbers, got 3", (1, 80, "t"), {"features": Features(mean=[1, 2, 3])}),
        ("holds the frames", (1, 40, 40), {"features": Features(mels=40)}),
        ("holds the frames", (1, 64, "t"), {}),
        ("holds the samples", (2, 64), {"features": None}),
        ("the sample rates are invalid", (1, 80, "t"), {"source_rate": 44101}),
        ("unknown dtype", (1, 80, "t"), {"dtype": "i8"}),
        ("unknown layout", (1, 80, "t"), {"layout": "NCHW"}),
    ],
)
def test_wrong_use_of_audio(words: str, shape: Any, options: dict[str, Any]) -> None:
    arguments = {"features": Features(), **options}
    with pytest.raises(linnet.UsageError, match=words):
        audio(identity(shape), "input", **arguments)


# ---- a whole task


def _recording(path: Path, samples: np.ndarray, rate: int = 16000, channels: int = 1) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(samples.dtype.itemsize)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    return path


@pytest.mark.parametrize("decoder", ["soundfile", "wave"])
def test_wav_files_by_either_decoder(decoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without the extra `audio`: the same samples, and the same kind of error for files that are not PCM of 8 to 32
    bits."""
    pytest.importorskip("soundfile", reason="one of the two decoders: pip install soundfile (1 MB)")
    if decoder == "wave":
        monkeypatch.setattr(media.importlib.util, "find_spec", lambda name: None)
    x = np.round(sound(300) * 100) / 128
    for dtype, scale, zero in ((np.uint8, 128, 128), (np.int16, 2**15, 0), (np.int32, 2**31, 0)):
        path = _recording(tmp_path / "x.wav", np.repeat((x * scale + zero).astype(dtype), 2), channels=2)
        np.testing.assert_array_equal(media.read_sound(path, "f32", 16000), x.astype(np.float32))
    good = path.read_bytes()
    for bits in (0, 40, 64, 128):
        size = bits // 8
        path.write_bytes(
            good[:22] + struct.pack("<HIIHH", 1, 16000, 16000 * size, size, bits) + good[36:40] + struct.pack("<I", 4 * size)
            + bytes(4 * size)
        )  # fmt: skip
        with pytest.raises(linnet.UsageError, match=r"x\.wav"):
            media.read_sound(path, "f32", 0)


def test_sound_files(tmp_path: Path) -> None:
    """8, 16 and 32 bits, several channels, in both tools; another rate is refused with advice."""
    audio(identity((1, "n")), "input", None).save(tmp_path / "echo.lnt")
    x = np.round(sound(500) * 100) / 128
    for dtype, scale, zero in ((np.uint8, 128, 128), (np.int16, 2**15, 0), (np.int32, 2**31, 0)):
        for channels in (1, 2):
            both = np.repeat((x * scale + zero).astype(dtype), channels)
            path = _recording(tmp_path / "x.wav", both, channels=channels)
            done = native(tmp_path, "echo.lnt", "--input", path)
            if "built without" in done.stderr:
                pytest.skip(done.stderr.strip())
            assert done.returncode == 0, done.stderr
            np.testing.assert_array_equal(np.load(tmp_path / "out" / "output.npy")[0], x.astype(np.float32))
            np.testing.assert_array_equal(media.read_sound(path, "f32", 16000), x.astype(np.float32))
            np.testing.assert_array_equal(media.read_sound(path, "i16", 0), (x * 2**15).astype(np.int16))
    path = _recording(tmp_path / "x.wav", np.zeros(100, np.int16), rate=44100)
    done = native(tmp_path, "echo.lnt", "--input", path)
    assert done.returncode == 1 and "44100" in done.stderr and "source_rate=44100" in done.stderr
    code, _, error = cli(tmp_path, "echo.lnt", "--input", "x.wav")
    assert code == 1 and "44100" in error and "source_rate=44100" in error
    path.write_bytes(path.read_bytes()[:30])
    assert native(tmp_path, "echo.lnt", "--input", path).returncode == 1
    with pytest.raises(linnet.UsageError, match=r"x\.wav"):
        media.read_sound(path, "f32", 0)


@pytest.mark.parametrize("kind", ["int8", "fp32"])
def test_a_spoken_word_is_recognized(kind: str, tmp_path: Path) -> None:
    """The front end equals its definition, to the quantum; "yes" is recognized, and "no" is one of the two best (the networks
    take this recording for "go", also with features computed by NumPy)."""
    model = linnet.from_tflite(zoo.shared(f"mlperftiny_kws_{kind}.tflite"))
    [output] = model.signatures["infer"].outputs
    graph = audio(model, "input_1", mlperf_tiny_mfcc())
    graph = linnet.preprocess.top_k(graph, output, 3, labels=WORDS)
    graph.save(tmp_path / "words.lnt")
    quantization = model.signatures["infer"].function.inputs[0].quantization
    for word, among in (("yes", 1), ("no", 2), ("silence", 1)):
        path = zoo.shared(f"{word}_1000ms.wav")
        done = native(tmp_path, "words.lnt", "--input", path)
        assert done.returncode == 0, done.stderr
        found = [line.split(maxsplit=1)[1] for line in done.stdout.splitlines() if line.startswith("   ")]
        assert word in found[:among], done.stdout
        mfcc = expected_of(media.read_sound(path, "f32", 16000), mlperf_tiny_mfcc(), 16000)
        features = mfcc.T[None, :49, :, None].astype(np.float32)
        if quantization is not None:
            features = np.clip(np.rint(features / quantization.scale[0]) + quantization.zero[0], -128, 127).astype(
                np.int8
            )
        bare = linnet.Session(model).run({"input_1": features})[output]
        assert WORDS[int(bare.argmax())] == found[0]
