"""Pictures and sound for `linnet run`: files to the arrays that models with steps from linnet.preprocess take.
Pictures are decoded by Pillow (`pip install linnet[image]`); sound by soundfile where it is installed, else PCM by `wave`."""

from __future__ import annotations

import importlib.util
import warnings
import wave
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.errors import FileError, UsageError

Array = npt.NDArray[Any]
MOST_PIXELS = 100_000_000  # larger files are refused before their pixels or samples are decoded
MOST_SAMPLES = 100_000_000
_KINDS = {"image": "a picture", "audio": "a sound file"}


def kind_of(path: Path) -> str:
    """What a file is, by its first bytes: "npy", "image" (JPEG, PNG, BMP), "audio" (WAV, FLAC, Ogg), else "". FileError
    when it cannot be read."""
    try:
        with open(path, "rb") as file:
            start = file.read(16)
    except OSError as error:
        code = 201 if isinstance(error, FileNotFoundError) else 202
        raise FileError(
            f"cannot read '{path}': {error.strerror or error}", code=code, tensor=str(path), hint="check the path"
        ) from None
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


def read_image(path: Path) -> Array:
    """u8 [height, width, 3], RGB, upright: the EXIF orientation is applied; alpha is dropped, 16 bits become the high 8, grey
    and palettes become colours. UsageError for a damaged file, or one of more than 100 million pixels."""
    if importlib.util.find_spec("PIL") is None:
        raise _problem(path, "a picture, and no Pillow to read it with", hint="pip install linnet[image]")
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Pillow about large pictures: the limit is ours
            opened = Image.open(path, formats=("JPEG", "PNG", "BMP"))
        with opened:
            width, height = opened.size
            if width * height > MOST_PIXELS:
                raise _problem(
                    path, f"{width} x {height} pixels", f"at most {MOST_PIXELS // 1_000_000} million", "scale it down"
                )
            picture: Any = ImageOps.exif_transpose(opened)
            made: Array
            if picture.mode.startswith("I"):  # 16-bit grey, which convert() would clip
                grey = (np.asarray(picture).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)
                made = np.repeat(grey[:, :, None], 3, axis=2)
            else:
                made = np.array(picture.convert("RGB"))
            return made
    except UsageError:
        raise
    except Exception as error:  # Pillow's decoders raise nearly anything over damaged files
        raise _problem(path, str(error) or type(error).__name__, "a JPEG, PNG or BMP picture") from None


def in_channels(rgb: Array, order: str) -> Array:
    """RGB pixels in another order of channels: "BGR", "RGBA", ...; alpha is 255."""
    opaque = np.concatenate([rgb, np.full_like(rgb[..., :1], 255)], axis=2) if "A" in order else rgb
    made: Array = opaque[..., ["RGBA".index(c) for c in order]]
    return made


def read_sound(path: Path, dtype: str, rate: int) -> Array:
    """[samples] as f32 in [-1, 1] or i16, channels averaged. rate: samples a second that the model takes (0: any).
    UsageError for a damaged file, another rate, or more than 100 million samples."""
    if importlib.util.find_spec("soundfile") is not None:
        samples, found = _with_soundfile(path)
    else:
        samples, found = _with_wave(path)
    if rate and found != rate:
        raise _problem(
            path, f"{found} samples a second", f"{rate}, which the model takes",
            f"resample it (sox in.wav -r {rate} out.wav), or convert the model with source_rate={found} in "
            "linnet.preprocess.audio",
        )  # fmt: skip
    mono: Array = samples.mean(axis=1)
    if dtype == "i16":
        mono = np.clip(np.rint(mono * 32768), -32768, 32767)
    return mono.astype(np.int16 if dtype == "i16" else np.float32)


def _with_soundfile(path: Path) -> tuple[Array, int]:
    import soundfile

    try:
        with soundfile.SoundFile(path) as sound:
            _check_length(path, sound.frames, sound.channels)
            samples: Array = sound.read(dtype="float64", always_2d=True)
            return samples, int(sound.samplerate)
    except (RuntimeError, OSError) as error:
        raise _problem(path, str(error), "a sound file") from None


def _with_wave(path: Path) -> tuple[Array, int]:
    try:
        with wave.open(str(path), "rb") as sound:
            channels, width, count = sound.getnchannels(), sound.getsampwidth(), sound.getnframes()
            _check_length(path, count, channels)
            if width > 4:
                raise wave.Error(f"samples of {8 * width} bits")
            content, found = sound.readframes(count), sound.getframerate()
    except (wave.Error, EOFError, OSError) as error:
        raise _problem(
            path, str(error) or "its end", "a WAV file of PCM samples", "pip install linnet[audio] for other kinds"
        ) from None
    if len(content) != count * channels * width:
        raise _problem(path, f"{len(content)} bytes of samples", f"{count * channels * width}")
    if width == 1:
        values = (np.frombuffer(content, np.uint8).astype(np.float64) - 128) / 128
    else:
        padded = np.zeros((count * channels, 4), np.uint8)  # little endian, as the high bytes of 32 bits
        padded[:, 4 - width :] = np.frombuffer(content, np.uint8).reshape(-1, width)
        values = padded.view("<i4")[:, 0] / 2.0**31
    return values.reshape(-1, channels), found


def _check_length(path: Path, count: int, channels: int) -> None:
    if count * channels > MOST_SAMPLES:
        raise _problem(
            path, f"{count} samples of {channels} channels", f"at most {MOST_SAMPLES // 1_000_000} million samples"
        )


def read_feed(path: Path, name: str, dtype: str, about: tuple[str, dict[str, str]] | None) -> Array:
    """The value of an input from a file. about: what the model's metadata says of it (docs/preprocess.md).

    Raises UsageError when the file cannot be read, or the input takes no picture or sound.
    """
    kind = kind_of(path)
    if kind in ("image", "audio"):
        if about is None or about[0] != kind:
            raise UsageError(
                f"'{path}' is {_KINDS[kind]}, and input {name!r} takes none", code=101, tensor=name,
                hint=f"put the steps from it to the input into the model with linnet.preprocess.{kind}, or give a .npy file",
            )  # fmt: skip
        if kind == "audio":
            return read_sound(path, dtype, int(about[1].get("rate", "0")))
        return in_channels(read_image(path), about[1].get("colour", "RGB"))
    expected = "a .npy file, a JPEG, PNG or BMP picture, or a sound file"
    if not kind:
        raise UsageError(
            f"cannot read the value of input {name!r}", code=101, tensor=str(path), expected=expected,
            got="another kind of file", hint="write an array with numpy.save",
        )  # fmt: skip
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise UsageError(
            f"cannot read the value of input {name!r}", code=101, tensor=str(path), got=reason,
            expected=expected, hint="write an array with numpy.save",
        ) from None  # fmt: skip
