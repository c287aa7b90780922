"""The constants of audio features, in f64: windows, DFT bases, mel filterbanks, DCT matrices, resampling filters.
The formulas are those of librosa, torchaudio, TensorFlow and SciPy, as named at each function."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import UsageError

Doubles = npt.NDArray[np.float64]


def window_of(name: str, size: int) -> Doubles:
    """Periodic windows (scipy.signal.get_window, torch.*_window, tf.signal.*_window): hann, hamming, or rectangular."""
    turns = 2 * math.pi * np.arange(size) / size
    if name == "hann":
        return np.asarray(0.5 - 0.5 * np.cos(turns))
    if name == "hamming":
        return np.asarray(0.54 - 0.46 * np.cos(turns))
    if name == "rectangular":
        return np.ones(size)
    raise UsageError("unknown window function", code=101, expected="hann, hamming or rectangular", got=repr(name))


def dft(window: Doubles, fft: int, frame: int) -> Doubles:
    """[2 * bins, frame]: the windowed cosine rows, then the sine rows, of a real DFT of `fft` points. The window is in
    the middle of the frame."""
    padded = np.zeros(frame)
    start = (frame - len(window)) // 2
    padded[start : start + len(window)] = window
    angle = 2 * math.pi * (np.outer(np.arange(fft // 2 + 1), np.arange(frame)) % fft) / fft
    return np.concatenate([np.cos(angle), np.sin(angle)]) * padded


def to_mel(hertz: npt.ArrayLike, scale: str) -> Doubles:
    """HTK: 2595 log10(1 + f / 700). Slaney (Auditory Toolbox): linear below 1 kHz, then 27 steps per factor of 6.4."""
    f = np.asarray(hertz, np.float64)
    if scale == "htk":
        return np.asarray(2595.0 * np.log10(1.0 + f / 700.0))
    return np.where(f < 1000, f * 3 / 200, 15 + 27 * np.log(np.maximum(f, 1000) / 1000) / math.log(6.4))


def to_hertz(mel: npt.ArrayLike, scale: str) -> Doubles:
    """The inverse of `to_mel`."""
    m = np.asarray(mel, np.float64)
    if scale == "htk":
        return np.asarray(700.0 * (10.0 ** (m / 2595.0) - 1.0))
    return np.where(m < 15, m * 200 / 3, 1000 * np.exp(math.log(6.4) / 27 * (np.maximum(m, 15) - 15)))


def mel_filters(
    rate: int, fft: int, mels: int, low: float, high: float, scale: str, norm: str | None, triangles: str
) -> Doubles:
    """[mels, fft // 2 + 1]: triangles between neighbouring points that are equally spaced in mel.

    triangles: "hz": straight lines over frequency (librosa.filters.mel, torchaudio.functional.melscale_fbanks); "mel":
    straight lines over mel, without the 0 Hz bin (tf.signal.linear_to_mel_weight_matrix). norm "slaney": each triangle
    has area 1.
    """
    for name, value, allowed in (
        ("mel_scale", scale, ("htk", "slaney")),
        ("mel_norm", norm, (None, "slaney")),
        ("triangles", triangles, ("hz", "mel")),
    ):
        if value not in allowed:
            words = " or ".join(map(str, allowed))
            raise UsageError(f"unknown {name}", code=101, expected=words, got=repr(value))
    first, last = to_mel([low, high], scale)
    points = np.linspace(float(first), float(last), mels + 2)
    bins = np.arange(fft // 2 + 1) * rate / fft
    hertz = to_hertz(points, scale)
    edges, at = (hertz, bins) if triangles == "hz" else (points, to_mel(bins, scale))
    width = np.diff(edges)
    rising = (at - edges[:-2, None]) / width[:-1, None]
    falling = (edges[2:, None] - at) / width[1:, None]
    made = np.maximum(0, np.minimum(rising, falling))
    if triangles == "mel":
        made[:, 0] = 0
    if norm == "slaney":
        made *= (2 / (hertz[2:] - hertz[:-2]))[:, None]
    return np.asarray(made)


def dct(count: int, mels: int, kind: str) -> Doubles:
    """[count, mels], the matrix of DCT-II. "ortho": orthonormal (librosa, torchaudio). "tensorflow": all rows scaled by
    sqrt(2 / mels) (tf.signal.mfccs_from_log_mel_spectrograms, HTK)."""
    if kind not in ("ortho", "tensorflow"):
        raise UsageError("unknown kind of DCT", code=101, expected="'ortho' or 'tensorflow'", got=repr(kind))
    made = np.cos(math.pi / mels * np.outer(np.arange(count), np.arange(mels) + 0.5)) * math.sqrt(2 / mels)
    if kind == "ortho":
        made[0] /= math.sqrt(2)
    return np.asarray(made)


def resampler(up: int, down: int) -> tuple[Doubles, int]:
    """Returns (taps [up, n], zeros in front). Output k is the sum of n samples times taps[k % up]. The samples start at
    k // up * down - zeros.

    The filter is the same as in scipy.signal.resample_poly: a Kaiser window (beta 5) of 2 * 10 * max(up, down) + 1
    points.
    """
    most = max(up, down)
    half = 10 * most
    t = np.arange(-half, half + 1)
    h = np.sinc(t / most) / most * np.kaiser(2 * half + 1, 5.0)
    h *= up / h.sum()
    # Output k, at k * down / up samples: sum over samples i of x[i] * h[k * down - i * up + half].
    first = -(half // up)  # the earliest sample that phase 0 needs
    last = ((up - 1) * down + half) // up
    taps = np.zeros((up, last - first + 1))
    for phase in range(up):
        for i in range(first, last + 1):
            index = phase * down - i * up + half
            if 0 <= index < len(h):
                taps[phase, i - first] = h[index]
    return taps, -first
