"""Finds shapes that work for inputs with open sizes, for the hints of errors: usual sizes are tried until a plan can be
made. runtime_c/tools/inputs.c has the same sizes and the same order for the native tools."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from linnet.clib.errors import Error
from linnet.session.model import Model, TensorSpec
from linnet.session.open_sizes import kind_of
from linnet.session.planner import Planner
from linnet.session.random_inputs import random_feeds
from linnet.session.session import Session

PHOTO = (480, 640, 3)  # rows, columns, colours of a file
_SIDE, _SAMPLES = 224, 16000
# Usual sizes, in the order in which they are tried: batches, sides of pictures, channels, and lengths of sequences, sounds
# and vectors.
_BATCHES, _CHANNELS = (1, 16, 128), (3, 1, 4)
_SIDES, _OTHERS = (224, 256, 320, 48, 32, 640, 512), (16, 1, 512, 256, 128, 80, 3, 4000, 16000, 160000)
_PATIENCE = 5.0  # seconds


def usable_shapes(
    model: Model, signature: str, given: Mapping[str, Sequence[int]], fetches: Sequence[str] | None = None
) -> dict[str, tuple[int, ...]]:
    """Shapes for the inputs whose shapes are open and not given, for the hints of errors. Returns the first combination
    of usual sizes for which the model can be planned. If shapes or branches depend on data, the model must also run
    with it. If none is found within a few seconds, returns the most usual sizes. `linnet-run` tries the same sizes in
    the same order."""
    specs = [spec for spec in model.inputs(signature) if spec.name not in given]
    open_specs = [spec for spec in specs if spec.shape is None or None in spec.shape]
    sizes = {spec.name: _sizes(spec, kind_of(model, signature, spec.name)) for spec in open_specs}
    choices = [options for shape in sizes.values() for options in shape if len(options) > 1]
    planner, end = Planner(model, signature, fetches=fetches, strict_dims=True), time.monotonic() + _PATIENCE
    for order in _combinations([len(options) for options in choices]):
        which = iter(order)
        shapes = {
            name: tuple(options[next(which) if len(options) > 1 else 0] for options in shape)
            for name, shape in sizes.items()
        }
        try:
            every = {**{name: tuple(shape) for name, shape in given.items()}, **shapes}
            planner.plan(every)
            if planner.plan_info["segments"] > 1:
                _run(model, signature, every, fetches, end - time.monotonic())
            return shapes
        except Error:
            if time.monotonic() > end:
                break
    return {name: tuple(options[0] for options in shape) for name, shape in sizes.items()}


def _run(
    model: Model, signature: str, shapes: Mapping[str, Sequence[int]], fetches: Sequence[str] | None, timeout: float
) -> None:
    session = Session(model, signature, input_shapes=shapes, fetches=fetches)
    session.run(random_feeds(model.inputs(signature), shapes), timeout=max(timeout, 0.001))


def _sizes(spec: TensorSpec, kind: str) -> list[tuple[int, ...]]:
    """For each axis, the sizes to try, the most usual one first."""
    if spec.shape is None:
        return [(1,), (3,), (_SIDE,), (_SIDE,)]
    rank, last = len(spec.shape), spec.shape[-1] if spec.shape else None
    channel_axis = 3 if rank == 4 and last is not None and last <= 4 else 1
    return [
        (size,) if size is not None
        else (PHOTO[min(axis, 2)],) if kind == "image"
        else (_SAMPLES if axis == 0 else 1,) if kind == "audio"
        else _BATCHES if axis == 0
        else _CHANNELS if rank == 4 and axis == channel_axis
        else _SIDES if rank == 4
        else _OTHERS
        for axis, size in enumerate(spec.shape)
    ]  # fmt: skip


def _combinations(counts: Sequence[int]) -> Iterator[list[int]]:
    """All lists of indices below these counts, ordered by their sum. Lists with the same sum are ordered by their first
    indices."""

    def with_sum(total: int, counts: Sequence[int]) -> Iterator[list[int]]:
        if not counts:
            if total == 0:
                yield []
            return
        for first in range(min(total, counts[0] - 1) + 1):
            for rest in with_sum(total - first, counts[1:]):
                yield [first, *rest]

    for total in range(sum(counts) - len(counts) + 1):
        yield from with_sum(total, counts)
