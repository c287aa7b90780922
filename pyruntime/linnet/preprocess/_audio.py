"""Audio preprocessing from PCM samples to a model's input: resampling, short-time spectra, mel bands, logarithms, MFCC.
One strided convolution does framing, window and DFT. The rest consists of two matrix products and maps."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from linnet.builder import ops
from linnet.builder.mapping import pointwise
from linnet.clib.errors import UsageError
from linnet.facade import Graph
from linnet.ir.dtypes import Dim, DTypeLike, named
from linnet.ir.expr import Expr
from linnet.ir.function import Tensor
from linnet.preprocess._edit import Edit
from linnet.preprocess._filters import dct, dft, mel_filters, resampler, window_of


@dataclasses.dataclass(frozen=True)
class Features:
    """What to compute from the samples. The defaults give torchaudio's MelSpectrogram (n_fft 400, hop 160, 80 mels)
    without a log.

    window, hop: in samples.
    fft: points of the DFT (default: the window's size).
    window_function: "hann", "hamming" or "rectangular", periodic.
    frame: "fft": frames are `fft` samples long with the window in the middle (librosa, torchaudio); "window": frames
        are `window` samples, with zeros added at the end (TensorFlow).
    centre: "reflect" or "zero": frame t is centred on sample t * hop, and the signal is extended by reflection or zeros
        (librosa, torchaudio, Whisper). None: frame t begins at sample t * hop.
    power: 2, or 1 for magnitudes.
    mels: number of bands, or None for the plain spectrum.
    low, high: in Hz (high: default half the rate).
    mel_scale: "htk" or "slaney".
    mel_norm: None or "slaney".
    triangles: "hz" or "mel": the scale over which the sides of the triangular filters are straight lines.
    log: None, "ln", "log10", or "db" (10 log10 of powers, 20 log10 of magnitudes).
    offset: added before the logarithm.
    floor: smallest value before the logarithm.
    range: the largest distance below the largest value, in the log's unit; smaller values are raised to this limit.
    mfcc: number of cepstral coefficients. dct: "ortho" or "tensorflow".
    mean, std: (x - mean) / std at the end; numbers, or one per feature.
    peak: first divide the samples by the largest magnitude.
    pre_emphasis: the factor p in x[t] - p * x[t - 1]; 0 means no pre-emphasis.
    """

    window: int = 400
    hop: int = 160
    fft: int | None = None
    window_function: str = "hann"
    frame: str = "fft"
    centre: str | None = "reflect"
    power: int = 2
    mels: int | None = 80
    low: float = 0.0
    high: float | None = None
    mel_scale: str = "htk"
    mel_norm: str | None = None
    triangles: str = "hz"
    log: str | None = None
    offset: float = 0.0
    floor: float = 0.0
    range: float | None = None
    mfcc: int | None = None
    dct: str = "ortho"
    mean: float | Sequence[float] = 0.0
    std: float | Sequence[float] = 1.0
    peak: bool = False
    pre_emphasis: float = 0.0

    @property
    def points(self) -> int:
        """Points of the DFT."""
        return self.fft or self.window

    @property
    def count(self) -> int:
        """Number of features per frame."""
        return self.mfcc or self.mels or self.points // 2 + 1

    @property
    def frame_size(self) -> int:
        """Samples in a frame."""
        return self.points if self.frame == "fft" else self.window

    def samples(self, frames: int) -> int:
        """How many samples give this many frames."""
        return (frames - 1) * self.hop + (0 if self.centre else self.frame_size)


def librosa_mel(rate: int = 22050, n_fft: int = 2048, hop: int = 512, mels: int = 128) -> Features:
    """librosa.feature.melspectrogram followed by power_to_db (ref 1, amin 1e-10, top_db 80), with librosa's defaults."""
    del rate  # the bands use the rate given to `audio`
    return Features(
        n_fft, hop, centre="zero", mels=mels, mel_scale="slaney", mel_norm="slaney", log="db", floor=1e-10, range=80.0
    )


def whisper_mel(mels: int = 80) -> Features:
    """Whisper's log-mel spectrogram at 16 kHz. It pads to 30 s and drops the last of 3,001 frames; use
    audio(samples=480000)."""
    return Features(
        400,
        160,
        mels=mels,
        mel_scale="slaney",
        mel_norm="slaney",
        log="log10",
        floor=1e-10,
        range=8.0,
        mean=-4.0,
        std=4.0,
    )


def mlperf_tiny_mfcc() -> Features:
    """The front end of MLPerf Tiny's keyword spotting, computed as TensorFlow does: 49 frames of 10 MFCC from one
    second at 16 kHz."""
    return Features(
        480, 320, 512, frame="window", centre=None, power=1, mels=40, low=20.0, high=4000.0, triangles="mel",
        log="ln", offset=1e-6, mfcc=10, dct="tensorflow", peak=True,
    )  # fmt: skip


def audio(
    graph: Graph,
    input: str,
    features: Features | None,
    *,
    rate: int = 16000,
    source_rate: int | None = None,
    dtype: DTypeLike = "f32",
    samples: int | None = None,
    layout: str | None = None,
    signature: str = "infer",
) -> Graph:
    """A graph whose `input` is audio instead of the model's own input: [samples] of any length, f32 in [-1, 1] or i16.

    features: what to compute; None: the model takes the samples themselves.
    rate: sample rate of the features in Hz.
    source_rate: sample rate of the audio, if it must be resampled (SciPy's resample_poly).
    samples: the audio is cut, or padded with zeros at the end, to this number of samples (at `rate`). Default: as many
        as the model's frames need, or no change if the number of frames is open. If this gives more frames than the
        model takes, the last ones are dropped.
    layout: "TF": frames, then features; "FT": features, then frames; default: derived from the model's input. Integer
        inputs receive the result through their quantization.
    Raises UsageError for an invalid value, or if the result does not match the model.
    """
    edit = Edit(graph, signature)
    old = edit.input(input)
    dtype = named(dtype)
    if dtype not in ("f32", "i16"):
        raise UsageError("unknown dtype of the samples", code=101, expected="f32 or i16", got=repr(dtype))
    rates = (rate, source_rate or rate)
    if min(rates) < 1 or max(rates) // math.gcd(*rates) > 2000:
        raise UsageError(
            "the sample rates are invalid",
            code=101,
            expected="positive rates whose ratio has small terms",
            got=f"{rates[1]} to {rate}",
        )
    if features is not None:
        _check(features, rate)
    places = _places(old, features.count if features else None, layout, input)
    frames = old.shape[places[0]] if old.shape else None
    if samples is None and isinstance(frames, int):
        samples = features.samples(frames) if features else frames

    def build(x: Tensor) -> Tensor:
        if dtype == "i16":
            x = pointwise([x], lambda v: v.cast("f32") * (1 / 32768), "f32")
        if rates[1] != rate:
            x = _resampled(x, rates[1], rate)
        if features is None:
            return _shaped(x if samples is None else _to_length(x, samples), old, places)
        if features.peak:
            x = pointwise([x, ops.reduce(x, kind="max", axis=[0])], lambda v, top: v / top.max(1e-9))
        if samples is not None:
            x = _to_length(x, samples)
        y = _features(x, features, rate)
        if isinstance(frames, int):
            y = ops.copy([y], kind="slice", starts=[0], ends=[frames], axis=[1])[0]
        return _shaped(y, old, places)

    edit.prepend(input, dtype, (f"{input} samples",), "audio", build)
    edit.describe(input, "audio", rate=str(rates[1]))
    return edit.graph


def _check(f: Features, rate: int) -> None:
    high = rate / 2 if f.high is None else f.high
    bad = (
        ("window", f.window, f.window >= 1, "1 or more"),
        ("hop", f.hop, f.hop >= 1, "1 or more"),
        ("fft", f.points, f.points >= f.window, f"at least the window, {f.window}"),
        ("frame", f.frame, f.frame in ("fft", "window"), "'fft' or 'window'"),
        ("centre", f.centre, f.centre in (None, "reflect", "zero"), "None, 'reflect' or 'zero'"),
        ("power", f.power, f.power in (1, 2), "1 or 2"),
        ("log", f.log, f.log in (None, "ln", "log10", "db"), "None, 'ln', 'log10' or 'db'"),
        ("high", high, 0 <= f.low < high <= rate / 2, f"low < high <= {rate / 2}"),
        ("mels", f.mels, f.mels is None or f.mels >= 1, "1 or more, or None"),
        ("mfcc", f.mfcc, f.mfcc is None or 1 <= f.mfcc <= (f.mels or 0), f"1 to {f.mels} (the mel bands)"),
    )
    for name, value, good, expected in bad:
        if not good:
            raise UsageError(f"{name} is invalid", code=101, expected=expected, got=repr(value))


def _places(old: Tensor, count: int | None, layout: str | None, name: str) -> tuple[int, int | None]:
    """The axes of the model's input that hold frames and features. Every other axis has size 1 or is the batch.

    count: features per frame; None if the model takes the samples themselves, which have one axis.
    """
    shape: tuple[Dim, ...] = old.shape or ()
    axes = [i for i, d in enumerate(shape) if d != 1]
    wanted = 1 if count is None else 2
    if len(axes) == wanted + 1 and axes[0] == 0 and not isinstance(shape[0], int):
        axes = axes[1:]  # an open batch axis
    pairs = {"TF": (axes[0], axes[-1]), "FT": (axes[-1], axes[0])} if axes else {}
    if len(axes) == 1 == wanted:
        return axes[0], None
    if layout not in (None, "TF", "FT"):
        raise UsageError("unknown layout", code=101, expected="'TF' or 'FT'", got=repr(layout))
    if len(axes) == 2 == wanted:
        fits = [pair for key, pair in pairs.items() if layout in (None, key) and shape[pair[1]] in (count, None)]
        fits += [pair for key, pair in pairs.items() if layout == key and pair not in fits]
        exact = [pair for pair in fits if shape[pair[1]] == count]
        if len(exact or fits) == 1:
            return (exact or fits)[0]
    raise UsageError(
        f"cannot tell which axis of input {name!r} holds {'the frames' if count else 'the samples'}",
        code=104,
        tensor=name,
        expected=f"{'frames and ' + str(count) + ' features' if count else 'samples'}, with all other axes of size 1",
        got="any shape" if old.shape is None else str(list(shape)),
        hint="give layout='TF' or 'FT'" if count else "",
    )


def _to_length(x: Tensor, samples: int) -> Tensor:
    """The signal cut to a length, or padded with zeros at the end."""
    function = x.function
    missing = pointwise([ops.shape(x)], lambda n: -(n - samples), "i64")
    pads = ops.concat([function.constant(np.zeros(1, np.int64)), missing], 0)
    return ops.reshape(ops.copy([x, pads], kind="pad")[0], [samples])


def _signal(x: Tensor) -> Tensor:
    """Reshapes [N] to [1, 1, N], the form that a convolution takes."""
    return ops.copy([x], kind="unsqueeze", axis=[0, 1])[0]


def _weights(x: Tensor, rows: npt.NDArray[np.float64]) -> Tensor:
    return x.function.constant(rows.astype(np.float32)[:, None])


def _resampled(x: Tensor, source: int, rate: int) -> Tensor:
    """scipy.signal.resample_poly(x, rate, source): ceil(N * up / down) samples."""
    common = math.gcd(source, rate)
    up, down = rate // common, source // common
    taps, front = resampler(up, down)
    padded = ops.copy([x], kind="pad", pads=[front, taps.shape[1] + down])[0]
    phases = ops.conv(_signal(padded), _weights(x, taps), strides=[down])  # [1, up, blocks]
    line = ops.reshape(ops.transpose(phases, [0, 2, 1]), [-1])
    count = pointwise([ops.shape(x)], lambda n: (n * up + (down - 1)) / down, "i64")
    ends = [count, x.function.constant(np.zeros(1, np.int64))]  # ends, axes
    return ops.copy([line, x.function.constant(np.zeros(1, np.int64)), *ends], kind="slice")[0]


def _features(x: Tensor, f: Features, rate: int) -> Tensor:
    """Returns the features, [features, frames]."""
    if f.pre_emphasis:
        first = ops.copy([x], kind="pad", pads=[1, -1])[0]
        x = pointwise([x, first], lambda v, before: v - before * f.pre_emphasis)
    if f.centre:
        half = f.points // 2
        mode = "reflect" if f.centre == "reflect" else "constant"
        x = ops.copy([x], kind="pad", pads=[half, half], pad_mode=mode)[0]
    basis = dft(window_of(f.window_function, f.window), f.points, f.frame_size)
    spectrum = ops.conv(_signal(x), _weights(x, basis), strides=[f.hop])
    bins = f.points // 2 + 1
    real, imaginary = ops.copy([spectrum], kind="split", axis=1, shape=[bins, bins], outputs=2)
    last = f.mels is None

    def power(a: Expr, b: Expr) -> Expr:
        square = a * a + b * b
        return _logarithm(square if f.power == 2 else square.unary("sqrt"), f, last)

    y = ops.reshape(pointwise([real, imaginary], power), [bins, -1])
    if f.mels is not None:
        high = rate / 2 if f.high is None else f.high
        filters = mel_filters(rate, f.points, f.mels, f.low, high, f.mel_scale, f.mel_norm, f.triangles)
        y = ops.matmul(x.function.constant(filters.astype(np.float32)), y)
        if f.log is not None:
            y = pointwise([y], lambda v: _logarithm(v, f, True))
    if f.range is not None:
        least = f.range
        y = pointwise([y, ops.reduce(y, kind="max")], lambda v, top: v.max(top - least))
    if f.mfcc is not None:
        y = ops.matmul(x.function.constant(dct(f.mfcc, f.mels or 0, f.dct).astype(np.float32)), y)
    return _normalized(y, f)


def _logarithm(v: Expr, f: Features, wanted: bool) -> Expr:
    if f.log is None or not wanted:
        return v
    if f.offset:
        v = v + f.offset
    if f.floor:
        v = v.max(f.floor)
    factor = {"ln": 1.0, "log10": 1 / math.log(10), "db": (10 if f.power == 2 else 20) / math.log(10)}[f.log]
    v = v.unary("log")
    return v if factor == 1.0 else v * factor


def _normalized(y: Tensor, f: Features) -> Tensor:
    if f.mean == 0.0 and f.std == 1.0:
        return y
    values = [np.asarray(v, np.float64).reshape(-1) for v in (f.mean, f.std)]
    for name, v in zip(("mean", "std"), values, strict=True):
        if v.size not in (1, f.count) or not np.isfinite(v).all() or (name == "std" and not v.all()):
            raise UsageError(
                f"{name} is invalid", code=101, expected=f"1 or {f.count} numbers", got=f"{v.size} numbers"
            )
    factor, shift = (np.asarray(v, np.float32).reshape(-1, 1) for v in (1 / values[1], -values[0] / values[1]))
    numbers = [
        y.function.constant(np.broadcast_to(v, (max(len(factor), len(shift)), 1)).copy()) for v in (factor, shift)
    ]
    made: Tensor = pointwise([y, *numbers], lambda v, a, b: v * a + b)
    return made


def _shaped(y: Tensor, old: Tensor, places: tuple[int, int | None]) -> Tensor:
    """Brings [features, frames] or [samples] to the shape and dtype of the model's input."""
    frames, features = places
    if features is not None and frames < features:
        y = ops.transpose(y, [1, 0])
    shape: list[int] = [1] * len(old.shape or ())
    sizes = dict(zip(sorted(p for p in places if p is not None), y.shape or (), strict=True))
    for place, size in sizes.items():
        shape[place] = size if isinstance(size, int) else -1
    y = ops.reshape(y, shape)
    if old.quantization is not None and old.dtype != "f32":
        return ops.quantized(y, old.dtype, old.quantization)
    return y if y.dtype == old.dtype else ops.cast(y, dtype=old.dtype)
