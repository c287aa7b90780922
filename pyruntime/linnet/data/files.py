"""Reads files of examples: idx (the format of MNIST, also gzipped) and CSV."""

from __future__ import annotations

import csv
import gzip
import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import FileError, UsageError
from linnet.data.source import Arrays, Batch

Array = npt.NDArray[Any]
_IDX = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def _problem(path: Path, what: str, expected: str = "", got: str = "", code: int = 206) -> FileError:
    return FileError(f"'{path}': {what}", code=code, tensor=str(path), expected=expected, got=got)


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _problem(path, f"cannot be decompressed: {error}") from None
    except OSError as error:
        code = 201 if isinstance(error, FileNotFoundError) else 202
        raise _problem(path, f"cannot be read: {error.strerror or error}", code=code) from None


def read_idx(path: str | Path) -> Array:
    """The array in an idx file, as defined on LeCun's MNIST page, optionally gzipped. Raises FileError."""
    path = Path(path)
    content = _content(path)
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _IDX:
        raise _problem(path, "is not an idx file", "two zero bytes and a known type code", content[:4].hex(" "), 203)
    dtype, rank = np.dtype(_IDX[content[2]]), content[3]
    if len(content) < 4 + 4 * rank:
        raise _problem(path, "is truncated in its header", f"{4 + 4 * rank} bytes", str(len(content)), 205)
    shape = struct.unpack_from(f">{rank}I", content, 4)
    wanted = 4 + 4 * rank + math.prod(shape) * dtype.itemsize
    if len(content) != wanted:
        raise _problem(
            path, f"has the wrong length for its shape {list(shape)}", f"{wanted} bytes", str(len(content)), 205
        )
    made: Array = np.frombuffer(content, dtype, offset=4 + 4 * rank).reshape(shape).astype(dtype.newbyteorder("="))
    return made


def mnist(
    folder: str | Path, part: str = "train", *, names: tuple[str, str] = ("x", "t"), flat: bool = False
) -> Arrays:
    """Loads MNIST, Fashion-MNIST and other data sets that consist of the same four files. Pixels are f32 in [0, 1],
    labels i32.

    folder: contains train-images-idx3-ubyte, train-labels-idx1-ubyte and the two t10k files, with or without .gz. part:
    "train" or "test". flat: images are [784] instead of [1, 28, 28]. Raises FileError.
    """
    folder, start = Path(folder), {"train": "train", "test": "t10k"}.get(part)
    if start is None:
        raise UsageError("unknown part of MNIST", code=102, expected="'train' or 'test'", got=repr(part))
    read = []
    for kind in ("images-idx3", "labels-idx1"):
        places = [
            folder / f"{start}-{k}-ubyte{end}" for k in (kind, kind.replace("-idx", ".idx")) for end in ("", ".gz")
        ]
        read.append(read_idx(next((p for p in places if p.exists()), places[0])))
    images, labels = read
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise _problem(
            folder, "images and labels do not match", "[n, h, w] and [n]", f"{images.shape} and {labels.shape}"
        )
    shape = (math.prod(images.shape[1:]),) if flat else (1, *images.shape[1:])
    x, t = names

    def prepare(batch: Batch) -> Batch:
        return {x: batch[x].astype(np.float32) / np.float32(255), t: batch[t]}

    return Arrays({x: images.reshape(-1, *shape), t: labels.astype(np.int32)}, prepare)


def read_csv(
    path: str | Path,
    target: str,
    *,
    inputs: Sequence[str] | None = None,
    names: tuple[str, str] = ("x", "t"),
    delimiter: str = ",",
) -> Arrays:
    """Reads a CSV file with a header. Returns the input columns (default: all except the target) as f32 [n, columns],
    and the target column.

    Targets that are integers become i32, other numbers f32 [n]. Words become i32 indices into the sorted list of words,
    which is `classes`. Raises FileError with the line number if a value is not a number. Raises UsageError for an
    unknown column.
    """
    path = Path(path)
    try:
        rows = list(csv.reader(_content(path).decode("utf-8-sig").splitlines(), delimiter=delimiter, strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise _problem(path, f"is not a CSV file in UTF-8: {error}") from None
    header = [name.strip() for name in rows[0]] if rows else []
    chosen = [name for name in header if name != target] if inputs is None else list(inputs)
    for name in [target, *chosen]:
        if name not in header:
            raise UsageError(
                f"'{path}' has no column named {name!r}", code=102, tensor=name, expected=" or ".join(header)
            )
    body = [(i, row) for i, row in enumerate(rows[1:], 2) if row]
    for i, row in body:
        if len(row) != len(header):
            raise _problem(path, f"line {i} has the wrong number of columns", str(len(header)), str(len(row)))
    columns = [header.index(name) for name in chosen]
    values = np.empty((len(body), len(columns)), np.float32)
    for n, (i, row) in enumerate(body):
        for c, column in enumerate(columns):
            try:
                values[n, c] = float(row[column])
            except ValueError:
                raise _problem(
                    path, f"line {i}, column {chosen[c]!r} is not a number", "a number", repr(row[column])
                ) from None
    labels, classes = _labels([row[header.index(target)].strip() for _, row in body])
    return Arrays({names[0]: values, names[1]: labels}, classes=classes)


def _labels(words: list[str]) -> tuple[Array, list[str]]:
    """Integers become i32 and other numbers f32. Words become indices into the sorted list of words."""
    for read, dtype in ((int, np.int32), (float, np.float32)):
        try:
            return np.array([read(word) for word in words], dtype), []
        except (ValueError, OverflowError):
            continue
    classes = sorted(set(words))
    return np.array([classes.index(word) for word in words], np.int32), classes
