"""Reads images and audio for `linnet run` into the arrays expected by models with preprocessing from linnet.preprocess.
Images are decoded by Pillow (the extra `image`). Audio is decoded by soundfile (the extra `audio`) if it is installed.
Otherwise, only PCM files are decoded, by Python's `wave`."""

from __future__ import annotations

import importlib.util
import warnings
import wave
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import FileError, UsageError

Array = npt.NDArray[Any]
MOST_PIXELS = 100_000_000  # larger files are rejected before their pixels or samples are decoded
MOST_SAMPLES = 100_000_000
_KINDS = {"image": "an image", "audio": "an audio file"}


def kind_of(path: Path) -> str:
    """The type of a file, from its first bytes: "npy", "image" (JPEG, PNG, BMP), "audio" (WAV, FLAC, Ogg), else "".
    Raises FileError if the file cannot be read."""
    try:
        with open(path, "rb") as file:
            return _kind(file.read(16))
    except OSError as error:
        code = 201 if isinstance(error, FileNotFoundError) else 202
        raise FileError(
            f"cannot read '{path}': {error.strerror or error}", code=code, tensor=str(path), hint="check the path"
        ) from None


def _kind(start: bytes) -> str:
    if start.startswith(b"\x93NUMPY"):
        return "npy"
    if start.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")) or (start.startswith(b"BM") and len(start) == 16):
        return "image"
    if (start.startswith(b"RIFF") and start[8:12] == b"WAVE") or start.startswith((b"fLaC", b"OggS")):
        return "audio"
    return ""


def _problem(path: Path, got: str, expected: str = "", hint: str = "") -> UsageError:
    return UsageError(
        f"cannot read '{path}'", code=101, tensor=str(path), expected=expected, got=" ".join(got.split()), hint=hint
    )


def read_image(path: Path, content: bytes | None = None, most_pixels: int = MOST_PIXELS) -> Array:
    """Returns u8 [height, width, 3], RGB, upright. The EXIF orientation is applied and alpha is dropped. 16-bit samples
    are reduced to their high 8 bits; grey and palette images become RGB. content: the bytes of the file, if they are in
    memory; `path` then only names it. Raises UsageError for a damaged file or one with more than `most_pixels` pixels."""
    if importlib.util.find_spec("PIL") is None:
        raise _problem(
            path, "an image, but the package Pillow is not installed", hint="pip install 'linnet-runtime[image]'"
        )
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # suppress Pillow's warning about large images; MOST_PIXELS is our limit
            opened = Image.open(path if content is None else BytesIO(content), formats=("JPEG", "PNG", "BMP"))
        with opened:
            width, height = opened.size
            if width * height > most_pixels:
                raise _problem(
                    path,
                    f"{width} x {height} pixels",
                    f"at most {most_pixels // 1_000_000} million pixels",
                    "scale the image down",
                )
            picture: Any = ImageOps.exif_transpose(opened)
            made: Array
            if picture.mode.startswith("I"):  # 16-bit grey; convert() would clip it
                grey = (np.asarray(picture).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)
                made = np.repeat(grey[:, :, None], 3, axis=2)
            else:
                made = np.array(picture.convert("RGB"))
            return made
    except UsageError:
        raise
    except Exception as error:  # Pillow's decoders raise almost any exception on damaged files
        raise _problem(path, str(error) or type(error).__name__, "a JPEG, PNG or BMP image") from None


def in_channels(rgb: Array, order: str) -> Array:
    """Reorders the channels of RGB pixels to "BGR", "RGBA", ... An added alpha channel is 255."""
    opaque = np.concatenate([rgb, np.full_like(rgb[..., :1], 255)], axis=2) if "A" in order else rgb
    made: Array = opaque[..., ["RGBA".index(c) for c in order]]
    return made


def read_sound(path: Path, dtype: str, rate: int, content: bytes | None = None) -> Array:
    """Returns [samples] as f32 in [-1, 1] or as i16, averaged over channels. rate: the sample rate in Hz that the model
    expects (0: any). content: as for read_image. Raises UsageError for a damaged file, another sample rate, or more than
    100 million samples."""
    if importlib.util.find_spec("soundfile") is not None:
        samples, found = _with_soundfile(path, content)
    else:
        samples, found = _with_wave(path, content)
    if rate and found != rate:
        raise _problem(
            path, f"a sample rate of {found} Hz", f"{rate} Hz, the model's sample rate",
            f"resample it (sox in.wav -r {rate} out.wav), or convert the model with source_rate={found} in "
            "linnet.preprocess.audio",
        )  # fmt: skip
    mono: Array = samples.mean(axis=1)
    if dtype == "i16":
        mono = np.clip(np.rint(mono * 32768), -32768, 32767)
    return mono.astype(np.int16 if dtype == "i16" else np.float32)


def _with_soundfile(path: Path, content: bytes | None) -> tuple[Array, int]:
    import soundfile

    try:
        with soundfile.SoundFile(path if content is None else BytesIO(content)) as sound:
            _check_length(path, sound.frames, sound.channels)
            samples: Array = sound.read(dtype="float64", always_2d=True)
            return samples, int(sound.samplerate)
    except (RuntimeError, OSError) as error:
        raise _problem(path, str(error), "an audio file") from None


def _with_wave(path: Path, content: bytes | None) -> tuple[Array, int]:
    try:
        with wave.open(str(path) if content is None else BytesIO(content), "rb") as sound:
            channels, width, count = sound.getnchannels(), sound.getsampwidth(), sound.getnframes()
            _check_length(path, count, channels)
            if width > 4:
                raise wave.Error(f"{8 * width}-bit samples")
            content, found = sound.readframes(count), sound.getframerate()
    except (wave.Error, EOFError, OSError) as error:
        raise _problem(
            path,
            str(error) or "the end of the file",
            "a WAV file with PCM samples",
            "for other formats, pip install 'linnet-runtime[audio]'",
        ) from None
    if len(content) != count * channels * width:
        raise _problem(path, f"{len(content)} bytes of sample data", f"{count * channels * width}")
    if width == 1:
        values = (np.frombuffer(content, np.uint8).astype(np.float64) - 128) / 128
    else:
        padded = np.zeros(
            (count * channels, 4), np.uint8
        )  # little endian; the samples become the high bytes of 32-bit values
        padded[:, 4 - width :] = np.frombuffer(content, np.uint8).reshape(-1, width)
        values = padded.view("<i4")[:, 0] / 2.0**31
    return values.reshape(-1, channels), found


def _check_length(path: Path, count: int, channels: int) -> None:
    if count * channels > MOST_SAMPLES:
        raise _problem(
            path, f"{count} samples in {channels} channels", f"at most {MOST_SAMPLES // 1_000_000} million samples"
        )


def _described(
    path: Path, content: bytes | None, name: str, dtype: str, about: tuple[str, dict[str, str]] | None, most_pixels: int
) -> Array:
    """The value of an input from a photo or a sound, as the model's metadata says."""
    kind = kind_of(path) if content is None else _kind(content[:16])
    if about is None or about[0] != kind:
        raise UsageError(
            f"'{path}' is {_KINDS[kind]}, but input {name!r} does not accept one",
            code=101,
            tensor=name,
            hint="give a .npy file, or add the steps for this input to the model: "
            + ("linnet convert MODEL -o OUT --image imagenet, or " if kind == "image" else "")
            + f"linnet.preprocess.{kind}",
        )
    if kind == "audio":
        return read_sound(path, dtype, int(about[1].get("rate", "0")), content)
    return in_channels(read_image(path, content, most_pixels), about[1].get("colour", "RGB"))


def read_body(
    content: bytes, name: str, dtype: str, about: tuple[str, dict[str, str]], most_pixels: int = MOST_PIXELS
) -> Array:
    """The value of input `name` from the bytes of a photo or a sound. about: as for read_feed. Raises UsageError."""
    path = Path("the body")
    if _kind(content[:16]) not in _KINDS:
        raise _problem(path, "neither", "a JPEG, PNG or BMP image, or a WAV, FLAC or Ogg sound")
    return _described(path, content, name, dtype, about, most_pixels)


def read_feed(path: Path, name: str, dtype: str, about: tuple[str, dict[str, str]] | None) -> Array:
    """Reads the value of an input from a file. about: what the model's metadata says about the input
    (docs/preprocess.md).

    Raises UsageError if the file cannot be read, or if the input does not accept an image or audio file.
    """
    kind = kind_of(path)
    if kind in ("image", "audio"):
        return _described(path, None, name, dtype, about, MOST_PIXELS)
    expected = "a .npy file, a JPEG, PNG or BMP image, or an audio file"
    if not kind:
        raise UsageError(
            f"cannot read the value of input {name!r}", code=101, tensor=str(path), expected=expected,
            got="a file of another type", hint="write the array with numpy.save",
        )  # fmt: skip
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise UsageError(
            f"cannot read the value of input {name!r}", code=101, tensor=str(path), got=reason,
            expected=expected, hint="write the array with numpy.save",
        ) from None  # fmt: skip
