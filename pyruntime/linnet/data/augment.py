"""Random image augmentation for Loader(augment=[...]). Each function here returns a function of (batch, generator) for
one input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import UsageError
from linnet.data.source import Batch

Array = npt.NDArray[Any]
Change = Callable[[Batch, np.random.Generator], Batch]


def _on(name: str, body: Callable[[Array, np.random.Generator], Array]) -> Change:
    def change(batch: Batch, generator: np.random.Generator) -> Batch:
        if name not in batch:
            raise UsageError(
                "the batch has no such input to augment", code=102, tensor=name, expected=" or ".join(batch)
            )
        return {**batch, name: body(batch[name], generator)}

    return change


def _first(x: Array, channel_axis: int) -> Array:
    """A view in the order [batch, channels, height, width]."""
    if x.ndim != 4:
        raise UsageError(
            "only images can be augmented this way", code=104, expected="4 dimensions", got=str(list(x.shape))
        )
    return x if channel_axis == 1 else np.moveaxis(x, channel_axis, 1)


def flip(name: str, *, probability: float = 0.5, vertical: bool = False, channel_axis: int = 1) -> Change:
    """Mirrors each image left to right (or top to bottom) with the given probability."""

    def body(x: Array, generator: np.random.Generator) -> Array:
        made: Array = x.copy()
        images = _first(made, channel_axis)
        chosen = generator.random(len(x)) < probability
        images[chosen] = images[chosen][:, :, ::-1] if vertical else images[chosen][..., ::-1]
        return made

    return _on(name, body)


def crop(name: str, size: tuple[int, int], *, padding: int = 0, value: float = 0.0, channel_axis: int = 1) -> Change:
    """Cuts a window of (height, width) at a random place in each image, after adding `padding` pixels of `value` on
    every side."""
    height, width = size

    def body(x: Array, generator: np.random.Generator) -> Array:
        images = _first(x, channel_axis)
        edges = [(0, 0), (0, 0), (padding, padding), (padding, padding)]
        wide = np.pad(images, edges, constant_values=value) if padding else images
        room = wide.shape[2] - height, wide.shape[3] - width
        if min(room) < 0:
            raise UsageError(
                "the images are too small for this crop size",
                code=104,
                tensor=name,
                expected=f"at least {height} x {width}",
                got=f"{wide.shape[2]} x {wide.shape[3]}",
            )
        tops, lefts = (generator.integers(0, most + 1, len(x)) for most in room)
        made = np.stack([i[:, t : t + height, l : l + width] for i, t, l in zip(wide, tops, lefts, strict=True)])  # noqa: E741
        return made if channel_axis == 1 else np.ascontiguousarray(np.moveaxis(made, 1, channel_axis))

    return _on(name, body)


def shift(name: str, most: int, *, value: float = 0.0, channel_axis: int = 1) -> Change:
    """Moves each image by up to `most` pixels along both axes. New pixels at the border have `value`."""

    def change(batch: Batch, generator: np.random.Generator) -> Batch:
        shape = _first(batch[name], channel_axis).shape if name in batch else (0, 0, 0, 0)
        return crop(name, (shape[2], shape[3]), padding=most, value=value, channel_axis=channel_axis)(batch, generator)

    return change
