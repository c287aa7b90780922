"""Rules for LiteRT's custom ops for speech models: AudioSpectrogram and Mfcc (TensorFlow's audio ops).
Windows, spectra and filter banks become tables during conversion; products and maps do the rest."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from linnet.converters.tflite.operation import Operation
from linnet.converters.tflite.registry import rule
from linnet.converters.tflite.rules.detection import options
from linnet.ir.function import Tensor

FLOOR = 1e-12  # band energies below this count as silence


@rule("CUSTOM:AudioSpectrogram")
def spectrogram(op: Operation) -> Tensor:
    """Converts samples [n, channels] to magnitudes or squared magnitudes [channels, frames, bins]. Each frame gets a
    periodic Hann window and is padded to a power of two. One convolution with the windowed waves computes all
    frames."""
    config = options(op)
    window, stride = int(config["window_size"]), int(config["stride"])
    size = 1 << max(window - 1, 1).bit_length()
    if window < 2 or stride < 1:
        raise op.unsupported(f"window_size {window} or stride {stride} is too small", "export the model again")
    bins = 1 + size // 2
    op.limit(2 * bins * window)
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    angle = 2 * np.pi / size * (np.outer(np.arange(bins), np.arange(window)) % size)
    waves = np.concatenate([np.cos(angle), -np.sin(angle)]) * hann
    x = op.copy([op.transpose(op.input(0), [1, 0])], kind="unsqueeze", axes=[2])
    filters = op.constant(waves[:, None].astype(np.float32))
    y = op.emit("conv", [x, filters], strides=[stride], auto_pad="valid", channel_axis=-1)
    real, imaginary = op.emit_all("copy", [y], 2, kind="split", axis=2, shape=[bins, bins])
    squared = bool(config["magnitude_squared"])
    return op.map([real, imaginary], lambda a, b: a * a + b * b if squared else (a * a + b * b).sqrt())


@rule("CUSTOM:Mfcc")
def mfcc(op: Operation) -> Tensor:
    """Converts squared magnitudes [channels, frames, bins] to cepstral coefficients. It applies triangles on the mel
    scale, the logarithm, and a cosine transform."""
    config = options(op)
    names = ("filterbank_channel_count", "dct_coefficient_count", "lower_frequency_limit", "upper_frequency_limit")
    bands, count, low, high = (int(config[n]) for n in names)
    x, rate = op.input(0), int(op.require(1, "the sample rate").reshape(-1)[0])
    bins = x.shape[-1] if x.shape else None
    if not isinstance(bins, int):
        raise op.unsupported("the size of the input is unknown", "set the input shapes with input_shapes")
    if not (0 < count <= bands and 0 <= low < high and rate > 0 and bins > 1):
        raise op.unsupported(
            f"{bands} bands of {low} to {high} Hz at {rate} Hz cannot give {count} coefficients",
            "export the model again",
        )
    op.limit(bins * bands)
    triangles = op.constant(mel_bands(bins, rate, bands, low, high).astype(np.float32))
    energies = op.emit("matmul", [op.map([x], lambda v: v.sqrt()), triangles])
    steps = np.arange(bands) + 0.5
    cosines = np.sqrt(2 / bands) * np.cos(np.pi / bands * np.outer(steps, np.arange(count)))
    logarithms = op.map([energies], lambda v: v.max(FLOOR).log())
    return op.emit("matmul", [logarithms, op.constant(cosines.astype(np.float32))])


def mel_bands(bins: int, rate: int, bands: int, low: int, high: int) -> npt.NDArray[np.float64]:
    """Weights [bins, bands]: each bin contributes to the two nearest bands (HTK's mel scale, without the constant part)."""

    def mel(hertz: float) -> float:
        return 1127.0 * math.log1p(hertz / 700.0)

    centres = mel(low) + (mel(high) - mel(low)) / (bands + 1) * np.arange(1, bands + 2)
    edges = np.concatenate([[mel(low)], centres])
    step = 0.5 * rate / (bins - 1)
    weights = np.zeros((bins, bands))
    for i in range(int(1.5 + low / step), min(int(high / step), bins - 1) + 1):
        place = mel(i * step)
        band = min(int(np.searchsorted(centres, place, "left")), bands)  # the band whose rising side contains the bin
        share = (edges[band + 1] - place) / (edges[band + 1] - edges[band]) if band + 1 < len(edges) else 0.0
        if band > 0:
            weights[i, band - 1] += share
        if band < bands:
            weights[i, band] += 1 - share
    return weights
