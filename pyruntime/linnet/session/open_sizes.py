"""Sizes for inputs that nobody gave: an open batch is taken as 1, and a hint for other open sizes is a shape that is
likely to work. runtime_c/tools/inputs.c has the same rules for the native tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from linnet.session.model import Model, TensorSpec

_PHOTO = (480, 640, 3)  # rows, columns, colours of a file
_SIDE, _SAMPLES, _OTHER = 224, 16000, 16


def kind_of(model: Model, signature: str, name: str) -> str:
    """ "image" or "audio" for an input that takes a file as it is (linnet.preprocess), else another word or ""."""
    return (model.metadata(f"io:{signature}:{name}") or "").partition(" ")[0]


def open_batches(
    model: Model, signature: str, specs: Sequence[TensorSpec], given: Mapping[str, Sequence[int]]
) -> dict[str, tuple[int, ...]]:
    """Shapes of the inputs whose only open size is the first one, the batch: that of the given inputs, or else 1.
    Pictures and sound have no batch: their first size is the height or the number of samples."""
    batch = next(
        (int(given[s.name][0]) for s in specs if s.name in given and s.shape and s.shape[0] is None and given[s.name]),
        1,
    )
    found = {}
    for spec in specs:
        if spec.name in given or not spec.shape or spec.shape[0] is not None or None in spec.shape[1:]:
            continue
        if kind_of(model, signature, spec.name) not in ("image", "audio"):
            found[spec.name] = (batch, *(size for size in spec.shape[1:] if size is not None))
    return found


def usable_shape(spec: TensorSpec, kind: str = "") -> tuple[int, ...]:
    """A shape that is likely to work for an input of this kind, for hints."""
    if spec.shape is None:
        return (1, 3, _SIDE, _SIDE)
    rank, last = len(spec.shape), spec.shape[-1] if spec.shape else None
    channel_axis = 3 if rank == 4 and last is not None and last <= 4 else 1
    found = []
    for axis, size in enumerate(spec.shape):
        if size is None and kind == "image":
            size = _PHOTO[min(axis, 2)]
        elif size is None and kind == "audio":
            size = _SAMPLES if axis == 0 else 1
        elif size is None:
            size = 1 if axis == 0 else 3 if rank == 4 and axis == channel_axis else _SIDE if rank == 4 else _OTHER
        found.append(size)
    return tuple(found)
