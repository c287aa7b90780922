"""Chooses sizes that the user did not give: an open batch is taken as 1. runtime_c/tools/inputs.c has the same rules
for the native tools. Hints for other open sizes are in usable_sizes.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from linnet.session.model import Model, TensorSpec


def kind_of(model: Model, signature: str, name: str) -> str:
    """ "image" or "audio" for an input that takes a file as it is (linnet.preprocess), else another word or ""."""
    return (model.metadata(f"io:{signature}:{name}") or "").partition(" ")[0]


def open_batches(
    model: Model, signature: str, specs: Sequence[TensorSpec], given: Mapping[str, Sequence[int]]
) -> dict[str, tuple[int, ...]]:
    """Shapes of the inputs whose only open size is the first one, the batch. The batch is taken from the given inputs,
    or else is 1. Images and audio have no batch: their first size is the height or the number of samples."""
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
