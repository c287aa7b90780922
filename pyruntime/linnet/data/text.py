"""Text as numbers of characters, in windows for language models."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.data.source import Batch, Source
from linnet.errors import FileError, UsageError

Array = npt.NDArray[Any]


class Characters(Source):
    """Windows of a text: ids i32 [length] and, as targets, the same one character later. See `characters`."""

    def __init__(self, text: str, length: int, step: int, vocabulary: str | None, names: tuple[str, str]) -> None:
        if length < 1 or step < 1 or len(text) <= length:
            raise UsageError(
                "the text gives no window", code=104, expected=f"more than {length} characters, and steps above 0",
                got=f"{len(text)} characters, steps of {step}",
            )  # fmt: skip
        self.vocabulary = "".join(sorted(set(text))) if vocabulary is None else vocabulary
        self.length, self.step, self.names = length, step, names
        self._ids = self.encode(text)

    def encode(self, text: str) -> Array:
        """Numbers of characters, i32. UsageError for one that is not in the vocabulary."""
        numbers = {character: i for i, character in enumerate(self.vocabulary)}
        try:
            return np.array([numbers[character] for character in text], np.int32)
        except KeyError as error:
            raise UsageError("this character is not in the vocabulary", code=102, got=str(error)) from None

    def decode(self, ids: npt.ArrayLike) -> str:
        """The text of numbers of characters."""
        return "".join(self.vocabulary[int(i)] for i in np.ravel(ids))

    def __len__(self) -> int:
        return (len(self._ids) - self.length - 1) // self.step + 1

    def take(self, indices: npt.NDArray[np.int64]) -> Batch:
        places = (np.asarray(indices) * self.step)[:, None] + np.arange(self.length)
        return {self.names[0]: self._ids[places], self.names[1]: self._ids[places + 1]}

    def digest(self) -> str:
        return hashlib.sha256(f"{self.vocabulary} {self.length} {self.step}".encode() + self._ids.tobytes()).hexdigest()


def characters(
    text: str | Path,
    length: int,
    *,
    step: int | None = None,
    vocabulary: str | None = None,
    names: tuple[str, str] = ("x", "t"),
) -> Characters:
    """Windows of `length` characters of a text, or of a file in UTF-8 when `text` is a Path.

    step: from window to window (default: length, so that no character is a target twice). vocabulary: the characters, in
    order of their numbers; by default those of the text, sorted. Give the vocabulary of training data to validation data.
    """
    if isinstance(text, Path):
        try:
            text = text.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise FileError(f"cannot read '{text}': {error}", code=202, tensor=str(text)) from None
    return Characters(text, length, length if step is None else step, vocabulary, names)
