"""Text as character indices, in windows for language models."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import FileError, UsageError
from linnet.data.source import Batch, Source

Array = npt.NDArray[Any]


class Characters(Source):
    """Windows of a text. Each has ids, i32 [length]; its targets are the same ids shifted by one character. See
    `characters`."""

    def __init__(self, text: str, length: int, step: int, vocabulary: str | None, names: tuple[str, str]) -> None:
        if length < 1 or step < 1 or len(text) <= length:
            raise UsageError(
                "the text is too short for one window, or the step is not positive",
                code=104,
                expected=f"more than {length} characters and a step above 0",
                got=f"{len(text)} characters and step {step}",
            )
        self.vocabulary = "".join(sorted(set(text))) if vocabulary is None else vocabulary
        self.length, self.step, self.names = length, step, names
        self._ids = self.encode(text)

    def encode(self, text: str) -> Array:
        """Character indices, i32. Raises UsageError for a character that is not in the vocabulary."""
        numbers = {character: i for i, character in enumerate(self.vocabulary)}
        try:
            return np.array([numbers[character] for character in text], np.int32)
        except KeyError as error:
            raise UsageError("the character is not in the vocabulary", code=102, got=str(error)) from None

    def decode(self, ids: npt.ArrayLike) -> str:
        """Returns the text that the character indices stand for."""
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
    """Windows of `length` characters of a text, or of a UTF-8 file if `text` is a Path.

    step: distance between windows (default: length, so that no character is a target twice). vocabulary: the characters
    in index order; default: those of the text, sorted. Pass the vocabulary of the training data to the validation data.
    """
    if isinstance(text, Path):
        try:
            text = text.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise FileError(
                f"cannot read '{text}': {error}", code=202, tensor=str(text), hint="give a text file in UTF-8"
            ) from None
    return Characters(text, length, length if step is None else step, vocabulary, names)
